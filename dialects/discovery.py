"""Imports all modules of a package, so that whatever registers itself there is in its registry."""

from __future__ import annotations

import pkgutil
from importlib import import_module


def import_all(package: str) -> None:
    """Imports every module under a package, its subpackages' too.

    >>> import_all("stablexla.dialects.mhlo")
    """
    for found in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
        import_module(found.name)
