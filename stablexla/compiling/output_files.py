"""Files that are written after a compilation: whether they can be is known before it."""

from __future__ import annotations

import os
from pathlib import Path

from stablexla.dialects.errors import CompileError


def check_output(path: str | Path, *, makes_folders: bool = False) -> None:
    """Check that a file can be written.

    Args:
        path: the file, or with `makes_folders` a folder that will be made, with those around it.

    Raises:
        CompileError: its folder is not there, it is a folder itself, or it must not be written.
    """
    path = Path(path)
    place = path if makes_folders else path.parent
    while makes_folders and not place.exists() and place != place.parent:
        place = place.parent
    if not place.exists():
        raise CompileError(f"{path}: there is no folder {place}", hint=f"mkdir -p {place}")
    if not place.is_dir():
        raise CompileError(f"{path}: {place} is no folder")
    if not makes_folders and path.is_dir():
        raise CompileError(f"{path}: it is a folder, and a file is to be written")
    if not os.access(path if path.exists() else place, os.W_OK):
        raise CompileError(f"{path} cannot be written: permission denied")
