"""The version of the package; a test compares it with pyproject.toml's."""

VERSION = "0.1.0"
