"""Measures how far sums are off on every path of a target: the parts on sums in docs/numerics.md.

`python -m benchmarks.sums [--target gpu] [--quick] [--paths NAME] [--output FILE]`, from the root of the repository.
Takes about an hour and 8 GiB; `--quick` a minute. `--target gpu` takes the GPU that is there, `--target simulated` the
simulated driver, for minutes. `python -m benchmarks.numerics` leaves what it finds on the page.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path as File

from tests.numerics.summation import PATHS, Path, bound
from tests.targets.gpu import simulated as simulator

HEADING, GPU_HEADING = "## Sums", "## Sums on GPUs"
SIZES, SIMULATED, QUICK = (10, 14, 18, 20, 22, 24, 26), (10, 14, 17), (10, 16)
_TEXT = f"""{HEADING}

Made by `python -m benchmarks.sums`; `tests/numerics/test_sums.py` holds every path at 2^20.

The error of a sum of n numbers is at most **8 u log2(n)** of the sum of their magnitudes, where u is the unit roundoff
of the type that is summed in: 2^-53 for f64, 2^-24 for f32 and what is narrower. A loop adds at most 256 numbers to one
running sum; longer ones go in blocks of 128 to 256, whose sums are added with their rounding errors
([decision 0029](decisions/0029-sums.md)). Blocks follow from shapes alone: results are the same for any number of
threads.

Below is the largest error in u, over all results of a program and three kinds of numbers: random ones in [0, 1), random
ones of both signs, and all equal ones, whose every addition rounds the same way. The last line is the bound. `-`: not
measured, the operands would not fit.
"""
_GPU_TEXT = f"""{GPU_HEADING}

Made by `python -m benchmarks.sums --target {{target}}`, in the same units;
`tests/targets/gpu/reduction/test_long_sums.py` holds each kind of kernel. `simulated` is the PTX for sm_80,
run by the simulated driver ([decision 0027](decisions/0027-simulated-driver.md)), instruction by instruction.
"""


def section(text: str, sizes: Sequence[int], paths: Sequence[Path] = PATHS, target: str | None = None) -> str:
    """A part on sums, measured."""
    lines = [f"| path | type | {' | '.join(f'2^{k}' for k in sizes)} |", "|---|---|" + "---|" * len(sizes)]
    for path in paths:
        for dtype in path.dtypes:
            cells = [_measured(path, dtype, k, target) for k in sizes]
            lines.append(f"| {path.name} | {dtype} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    lines.append(f"| bound | | {' | '.join(f'{bound(1 << k):.0f}' for k in sizes)} |")
    return text + "\n" + "\n".join(lines) + "\n"


def _measured(path: Path, dtype: str, k: int, target: str | None) -> str:
    if k > path.most or (dtype == "f16" and k > 22):
        return "-"
    return f"{max(path.errors(1 << k, dtype, target=target).values()):.1f}"


def replaced(page: str, made: str) -> str:
    """The page with a part, which begins with its heading, replaced, or at its end."""
    heading = made.partition("\n")[0]
    before, found, after = page.partition(f"\n{heading}\n")
    # The next part begins with its heading, or with the comment above it by which its own script finds it.
    rest = re.search(r"^(<!-- |## )", after, re.MULTILINE) if found else None
    return f"{before}\n{made}" + (f"\n{after[rest.start() :]}" if rest else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sizes, and nothing is written without --output")
    parser.add_argument("--sizes", help="logarithms of the numbers of terms, with commas between them")
    parser.add_argument("--paths", default="", help="only those whose names hold this; nothing is written")
    parser.add_argument("--output", type=File, help="default: docs/numerics.md, with --quick none")
    parser.add_argument("--target", choices=("cpu", "gpu", "simulated"), default="cpu", help="default: cpu")
    options = parser.parse_args()
    target = {"cpu": None, "gpu": "gpu", "simulated": "gpu:sm_80"}[options.target]
    usual = QUICK if options.quick else SIMULATED if options.target == "simulated" else SIZES
    sizes = [int(k) for k in options.sizes.split(",")] if options.sizes else usual
    # Options of the CPU target that some paths are about mean nothing to GPUs.
    paths = [p for p in PATHS if options.paths in p.name and not (target and (p.general or p.vector_bits))]
    text = _GPU_TEXT.format(target=options.target) if target else _TEXT
    with simulator.in_runtime() if options.target == "simulated" else nullcontext():
        made = section(text, sizes, paths, target)
    output = options.output or (None if options.quick or options.paths else File("docs/numerics.md"))
    if output is not None:
        output.write_text(replaced(output.read_text(), made))


if __name__ == "__main__":
    main()
