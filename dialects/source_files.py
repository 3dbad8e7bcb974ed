"""Source files in locations: which belong to the machinery around a program, which to an installed library."""

from __future__ import annotations

import linecache
import re
from typing import NamedTuple

# JAX and PyTorch with their frames around every operation, and this package's own layer between them and a program.
_MACHINERY = re.compile(
    r"(^|[/\\])(jax[/\\](_src|experimental)|site-packages[/\\](jax|torch)|stablexla[/\\]interop)[/\\]"
)
_INSTALLED = re.compile(r"^(.*[/\\])?(site|dist)-packages[/\\]")
_FRAME = re.compile(r'(?:"([^"\n]+)"\()?"([^"\n]+)":(\d+):\d+')


class Frame(NamedTuple):
    """A frame of a call stack, as a location holds it."""

    function: str
    file: str
    line: int

    @property
    def text(self) -> str:
        """The source line itself, where the file can be read."""
        return linecache.getline(self.file, self.line).strip()


def is_machinery(file: str) -> bool:
    """Return whether a file belongs to JAX, PyTorch or `stablexla.interop`; no location shows a line of it.

    >>> is_machinery("/lib/site-packages/jax/_src/lax/lax.py"), is_machinery("model.py")
    (True, False)
    """
    return _MACHINERY.search(file) is not None


def is_library(file: str) -> bool:
    """Return whether a file belongs to an installed package.

    >>> is_library("/lib/site-packages/optax/_src/update.py"), is_library("model.py")
    (True, False)
    """
    return _INSTALLED.match(file) is not None


def short_name(file: str) -> str:
    """Return an installed package's file without the path to the package; other files as they are.

    >>> short_name("/lib/site-packages/optax/_src/update.py")
    'optax/_src/update.py'
    """
    return _INSTALLED.sub("", file)


def frames_in(location: str) -> list[Frame]:
    """Return the frames in a location's text, the innermost first: its line, and if a library's, the user's call.

    Locations of the machinery alone have no frames.

    >>> call = 'callsite("f"("/lib/site-packages/flax/core.py":3:4) at "g"("model.py":5:6))'
    >>> [(frame.function, frame.line) for frame in frames_in(call)]
    [('f', 3), ('g', 5)]
    """
    found = [Frame(m[1] or "", m[2], int(m[3])) for m in _FRAME.finditer(location) if not is_machinery(m[2])]
    if not found or not is_library(found[0].file):
        return found[:1]
    return [found[0], *(frame for frame in found if not is_library(frame.file))][:2]


def line_of(location: str, *, functions: bool = True) -> str:
    """Return a location's text as one line of an error: file, line, function and source; "" when it has no frames.

    Args:
        location: the text, of either MLIR.
        functions: whether functions are named.

    >>> line_of('"f"("/lib/site-packages/flax/core.py":3:4)'), line_of('"max"')
    ('flax/core.py:3 in f', '')
    """
    frames = frames_in(location)
    if not frames:
        return ""
    places = [
        f"{short_name(frame.file)}:{frame.line}" + (f" in {frame.function}" if functions and frame.function else "")
        for frame in frames
    ]
    text = frames[-1].text
    return ", called from ".join(places) + (f":  {text}" if text else "")
