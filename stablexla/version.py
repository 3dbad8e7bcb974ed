"""The version of the package; a test holds it together with pyproject.toml's."""

VERSION = "0.1.0"
