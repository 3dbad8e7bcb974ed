"""Where the milliseconds of a program go, beside the least that this machine needs for each part.

    python -m benchmarks.accounting bert-base gpt2-prefill-128

A program of `benchmarks.run` is profiled (`Executable.profile`), and its spans are added up by what they do: the kind
of kernel, a packing phase apart, with the operations that it computes. The limit of a part is its arithmetic over the
peak, or its bytes over the bandwidth of the smallest cache that holds them; nothing has to be packed, so that packing
has none. "threads" is the share of them that worked. What is outside of all calls stands last.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console

import stablexla as sx
from benchmarks.limits import Limits, kept_limits
from benchmarks.programs import PROGRAMS
from benchmarks.programs.registry import Work
from benchmarks.tables import Cells, to_table

PACKING = "_pack"
NAMED = 4
"""Operations that a part is named by at most."""
# They tell nothing of a part, as every part has some.
COMMON = ("broadcast_in_dim", "constant", "convert", "reshape", "transpose")


@dataclass
class Part:
    """Calls of one kind; times in seconds of all runs."""

    calls: int = 0
    seconds: float = 0.0
    busy: float = 0.0
    limit: float = 0.0
    operations: set[str] = field(default_factory=set)


def parts_of(profile: sx.Profile, limits: Limits) -> dict[str, Part]:
    """The parts of a profile by name."""
    kernels = {kernel.name: kernel for kernel in profile.explanation.kernels}
    names = {each.number: each.name.removeprefix("stablehlo.") for each in profile.explanation.operations}
    parts: dict[str, Part] = defaultdict(Part)
    label = ""
    for span in profile.slices:
        kernel = kernels.get(span.name)
        if span.is_share:
            parts[label].busy += (span.end - span.start) / 1e9
            continue
        is_packing = span.function.endswith(PACKING)
        label = "other calls" if kernel is None else "packing" if is_packing else kernel.kind
        part = parts[label]
        part.seconds += (span.end - span.start) / 1e9
        part.calls += 1
        if kernel is not None and not is_packing:
            part.operations.update(names[number] for number in kernel.operations)
            if span.function in kernel.functions[-1:]:
                cost = kernel.cost
                part.limit += limits.of(Work(cost.flops or 0, cost.read, cost.written))
    return parts


def account(profile: sx.Profile, limits: Limits) -> Cells:
    """The table of a profile, the longest part first."""
    parts = sorted(parts_of(profile, limits).items(), key=lambda item: -item[1].seconds)
    total, runs = profile.seconds, profile.runs
    lines = [_line(name, part, total, runs, limits.threads) for name, part in parts]
    lines.append(
        ["outside", "", f"{profile.outside / runs * 1e3:.2f}", f"{profile.outside / total:.0%}", "", "", "", ""]
    )
    whole = sum(part.limit for _, part in parts)
    ends = [f"{total / runs * 1e3:.2f}", "100%", "", f"{whole / runs * 1e3:.2f}", f"{whole / total:.0%}", ""]
    headings = ["part", "calls", "ms", "share", "threads", "limit ms", "of the limit", "operations"]
    return Cells(profile.name, headings, [*lines, ["all", "", *ends]], ())


def _line(name: str, part: Part, total: float, runs: int, threads: int) -> list[str]:
    busy = f"{part.busy / (part.seconds * threads):.0%}" if part.busy else ""
    limit = [f"{part.limit / runs * 1e3:.2f}", f"{part.limit / part.seconds:.0%}"] if part.limit else ["", ""]
    telling = sorted(part.operations.difference(COMMON))
    words = ", ".join([*telling[:NAMED], *["..."] * (len(telling) > NAMED)])
    return [
        name,
        str(part.calls // runs),
        f"{part.seconds / runs * 1e3:.2f}",
        f"{part.seconds / total:.0%}",
        busy,
        *limit,
        words,
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.accounting",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("programs", nargs="+", help="names, as `python -m benchmarks.run --list` has them")
    made.add_argument("--runs", type=int, default=10, help="runs of each (default 10)")
    options = made.parse_args(arguments)
    if unknown := [name for name in options.programs if name not in PROGRAMS]:
        made.error(f"there is no program {unknown[0]!r}; `python -m benchmarks.run --list` has their names")
    console = Console()
    console.width = max(console.width, 150)
    for name in options.programs:
        program = PROGRAMS[name]
        profile = sx.compile(program.text()).profile(program.arguments(), runs=options.runs)
        console.print(to_table(account(profile, kept_limits(again=False))))


if __name__ == "__main__":
    main()
