"""Programs from elsewhere: StableHLO as text, bytecode, portable artifacts, files and modules of jaxlib."""

from stablexla.interop.load import load

__all__ = ["load"]
