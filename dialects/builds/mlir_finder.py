"""Import hook that passes the extension modules of `mlir` to `private_libraries.py`, imported with the first one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class MlirFinder:
    """A finder on `sys.meta_path`, for the extension modules of `mlir` alone."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("mlir._mlir_libs."):
            return None
        from stablexla.dialects.builds.private_libraries import find_private_spec

        return find_private_spec(name, path, target)


def use_private_libraries() -> None:
    """Load `mlir` with libraries of its own from now on, unless it is loaded already."""
    if MlirFinder not in sys.meta_path:
        sys.meta_path.insert(0, MlirFinder)
