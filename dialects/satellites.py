"""Parts of the package that its core works without, found by their names when something is asked of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from stablexla.dialects.errors import UnsupportedError


def satellite(name: str) -> Any:
    """Return a module of a part that the core does not know, such as "inspection.profiling.profile".

    Raises:
        UnsupportedError: this installation has the core alone.
    """
    module = f"stablexla.{name}"
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise UnsupportedError(f"{error.name} is no part of this installation, and is asked for it") from None
