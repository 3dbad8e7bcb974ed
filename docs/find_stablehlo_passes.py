"""Finds the passes that jaxlib's MLIR has: the words of its libraries that read as a pipeline.

Run as `python docs/find_stablehlo_passes.py` after another jaxlib was pinned; it names what
`targets/pipeline/stablehlo_passes.py` lacks and what is gone, and exits with 1 when there is any.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import jaxlib
from jaxlib.mlir.passmanager import PassManager

from stablexla.dialects.contexts import stablehlo_context
from stablexla.targets.pipeline.stablehlo_passes import SHARED, STABLEHLO_PASSES
from stablexla.targets.pipeline.standard_error import captured_stderr

_WORD = re.compile(rb"(?<![\w-])[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-])")
_WITH_DASH = re.compile(rb"[a-z][a-z0-9]+(?:-[a-z0-9]+)+")


def words() -> set[str]:
    """Everything in jaxlib's libraries that could be a pass's name."""
    found: set[bytes] = set()
    for library in Path(jaxlib.__file__).parent.rglob("*.so*"):
        data = library.read_bytes()
        found.update(_WITH_DASH.findall(data))
        found.update(word for word in re.findall(rb"(?<=\0)[a-z][a-z0-9-]*(?=\0)", data) if _WORD.fullmatch(word))
    return {word.decode() for word in found if len(word) < 70}


def passes() -> set[str]:
    """Those that a pipeline may name."""
    context, found = stablehlo_context(), set()
    with captured_stderr():
        for word in words():
            try:
                PassManager.parse(f"any({word})", context)
            except ValueError:
                continue
            found.add(word)
    return found


def main() -> int:
    found, known = passes(), {*STABLEHLO_PASSES, *SHARED}
    for name in sorted(found - known):
        print(f"not in the table: {name}")
    for name in sorted(known - found):
        print(f"in the table, but not in jaxlib: {name}")
    print(f"{len(found)} passes")
    return int(found != known)


if __name__ == "__main__":
    sys.exit(main())
