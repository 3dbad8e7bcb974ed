"""Measures how far sums are off on every path of the CPU target: the part on sums in docs/numerics.md.

`python -m benchmarks.sums [--quick] [--paths NAME] [--output FILE]`, from the root of the repository. Takes about an
hour and 8 GiB; `--quick` a minute. `python -m benchmarks.numerics` leaves what it finds on the page.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path as File

from tests.numerics.summation import PATHS, Path, bound

HEADING = "## Sums"
SIZES, QUICK = (10, 14, 18, 20, 22, 24, 26), (10, 16)
_TEXT = f"""{HEADING}

Made by `python -m benchmarks.sums`; `tests/numerics/test_sums.py` holds every path at 2^20.

The error of a sum of n numbers is at most **8 u log2(n)** of the sum of their magnitudes, where u is the unit roundoff
of the type that is summed in: 2^-53 for f64, 2^-24 for f32 and what is narrower. A loop adds at most 256 numbers to one
running sum; longer ones go in blocks of 128 to 256, whose sums are added with their rounding errors
(`targets/cpu/blocked_sums.py`). Blocks follow from shapes alone: results are the same for any number of threads.

Below is the largest error in u, over all results of a program and three kinds of numbers: random ones in [0, 1), random
ones of both signs, and all equal ones, whose every addition rounds the same way. The last line is the bound. `-`: not
measured, the operands would not fit.
"""


def section(sizes: Sequence[int], paths: Sequence[Path] = PATHS) -> str:
    """The part on sums, measured."""
    lines = [f"| path | type | {' | '.join(f'2^{k}' for k in sizes)} |", "|---|---|" + "---|" * len(sizes)]
    for path in paths:
        for dtype in path.dtypes:
            cells = [_measured(path, dtype, k) for k in sizes]
            lines.append(f"| {path.name} | {dtype} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    lines.append(f"| bound | | {' | '.join(f'{bound(1 << k):.0f}' for k in sizes)} |")
    return _TEXT + "\n" + "\n".join(lines) + "\n"


def _measured(path: Path, dtype: str, k: int) -> str:
    if k > path.most or (dtype == "f16" and k > 22):
        return "-"
    return f"{max(path.errors(1 << k, dtype).values()):.1f}"


def replaced(page: str, made: str) -> str:
    """The page with its part on sums replaced, or at its end."""
    before, found, after = page.partition(f"\n{HEADING}\n")
    # The next part begins with its heading, or with the comment above it by which its own script finds it.
    rest = re.search(r"^(<!-- |## )", after, re.MULTILINE) if found else None
    return f"{before}\n{made}" + (f"\n{after[rest.start() :]}" if rest else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sizes, and nothing is written without --output")
    parser.add_argument("--sizes", help="logarithms of the numbers of terms, with commas between them")
    parser.add_argument("--paths", default="", help="only those whose names hold this; nothing is written")
    parser.add_argument("--output", type=File, help="default: docs/numerics.md, with --quick none")
    options = parser.parse_args()
    sizes = [int(k) for k in options.sizes.split(",")] if options.sizes else QUICK if options.quick else SIZES
    made = section(sizes, [path for path in PATHS if options.paths in path.name])
    output = options.output or (None if options.quick or options.paths else File("docs/numerics.md"))
    if output is not None:
        output.write_text(replaced(output.read_text(), made))


if __name__ == "__main__":
    main()
