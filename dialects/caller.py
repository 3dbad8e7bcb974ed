"""Warnings at the line of the user's program: the innermost frame outside this package and JAX's."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

_INNER = ("stablexla", "jax", "jaxlib", "contextlib")


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _INNER:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
