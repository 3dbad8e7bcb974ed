"""Import of all modules of a package, so that their registrations happen."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from stablexla.dialects.collector import without_collections


def import_all(package: str) -> None:
    """Import every module under a package, also of subpackages.

    >>> import_all("stablexla.dialects.mhlo")
    """
    with without_collections():
        for found in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            import_module(found.name)
