"""Random programs on stablexla, on StableHLO's reference interpreter and on XLA:CPU: `python -m tests.fuzz`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from stablexla.inspection.judging.known_faults import FAULTS
from tests.fuzz.campaign import Tally, check_all
from tests.fuzz.check import Disagreement
from tests.fuzz.program import write_file
from tests.fuzz.writer import FAMILIES

CORPUS = Path(__file__).parent / "corpus"

DESCRIPTION = """Draws random programs, runs them on stablexla and on two oracles, and says where they disagree.

A program has 5 to 60 operations of all families, on small arrays of all element types and ranks, some without elements,
with special values among the arguments, loops and conditions. Each operation is compared with StableHLO's reference
interpreter (always) and XLA:CPU (a third of the programs) on the operands that it had; a third is also compiled by the
general path alone. What is left over after known faults of the oracles is a disagreement: it is shrunk to a small
program, saved, and makes the exit code 1."""

EPILOG = """examples:
  python -m tests.fuzz                                  2,000 programs
  python -m tests.fuzz --programs 1 --seed 1234         one program again, by its number
  python -m tests.fuzz --families shape,reduction       of two families only
  python -m tests.fuzz --minutes 30 --seed 100000       as many as fit into half an hour
  python -m tests.fuzz --target gpu:sm_80               on the simulated driver of tests/targets/gpu/simulator
"""


def save(folder: Path, seed: int, found: Disagreement, *, whole: bool) -> Path:
    """Writes the program with its arguments, what it shows, and whether its numbers are whole."""
    name = "_".join(filter(None, "".join(c if c.isalnum() else " " for c in found.kind.lower()).split()))[:60]
    path = folder / f"{name}_{seed}.mlir"
    folder.mkdir(parents=True, exist_ok=True)
    first = found.message.splitlines()[0] if found.message else ""
    notes = [f"{found.kind} (program {seed})", first, f"ways: {' '.join(found.ways)}"]
    notes.append(f"numbers: {'whole' if whole else 'any'}")
    write_file(path, found.program, found.arguments, notes)
    return path


def report(tally: Tally, seconds: float) -> None:
    print(f"{tally.programs:,} programs with {tally.operations:,} operations in {seconds:.0f} s;", end=" ")
    print(f"{tally.compared:,} results compared, {sum(tally.kinds.values())} programs disagree")
    for kind, count in tally.kinds.most_common():
        print(f"  {count:6} {kind}")
    reasons = {fault.name: fault.reason for fault in FAULTS}
    for name, count in tally.excused.most_common():
        print(f"known: {count:6} {name} ({reasons[name]})")
    if tally.reordered:
        print(f"known: {tally.reordered:6} sums in another order when fused (StableHLO leaves the order open)")
    for name, count in tally.refused.most_common(30):
        print(f"not compared: {count:6} {name}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--programs", type=int, default=0, help="how many; 2,000, or no limit with --minutes")
    parser.add_argument("--seed", type=int, default=0, help="number of the first program")
    parser.add_argument("--minutes", type=float, default=0, help="stop after so long")
    parser.add_argument("--families", default="", help=f"separated by commas, of: {', '.join(FAMILIES)}")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with its own oracles")
    parser.add_argument("--target", default="", help="a GPU that is simulated: gpu:sm_80, gpu:sm_90a; none: the CPU")
    parser.add_argument("--keep", action="store_true", help="do not shrink what is found")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="where programs that disagree are saved")
    parser.add_argument("--operations", action="store_true", help="say how often each operation was drawn")
    return parser.parse_args()


def main() -> int:
    options = parse()
    families = tuple(filter(None, options.families.split(",")))
    unknown = set(families) - set(FAMILIES)
    if unknown:
        print(f"no families: {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}", file=sys.stderr)
        return 2
    total, start = Tally(), time.time()
    deadline = start + options.minutes * 60 if options.minutes else float("inf")
    count = options.programs or (10**9 if options.minutes else 2000)
    seeds = range(options.seed, options.seed + count)
    for tally in check_all(seeds, families, deadline, options.jobs, not options.keep, options.target):
        for seed, found in tally.found:
            if found.kind not in total.kinds:
                path = save(options.corpus, seed, found, whole=seed % 2 == 0)
                print(f"\n{found}\n  saved as {path}\n", flush=True)
        total.add(tally)
        done, seconds = total.programs, time.time() - start
        wrong = sum(total.kinds.values())
        print(f"\r{done:,} programs, {seconds:.0f} s, {wrong} disagree ", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    report(total, time.time() - start)
    if options.operations:
        print(", ".join(f"{name} {count}" for name, count in total.drawn.most_common()))
    return int(bool(total.kinds))


if __name__ == "__main__":
    sys.exit(main())
