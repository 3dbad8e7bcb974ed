"""Programs made of whole modules, and damaged files: `python -m tests.campaign --minutes 10`."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.draws import MAKERS, draw
from tests.campaign.examine import Examiner, category
from tests.campaign.pool import Unfit
from tests.campaign.watched import Watched
from tests.fuzz import mutations
from tests.fuzz.__main__ import CORPUS, save
from tests.fuzz.check import Disagreement
from tests.fuzz.program import Program
from tests.fuzz.shrink import Shrinker
from tests.fuzz.workers import Failure

DEVICES = 20
"""One program of several devices for so many others."""
DESCRIPTION = """Makes programs of whole modules, runs each in a child that is watched, and says what must not be.

Programs are stitched of two others (one after the other, in the other's loop, branch or map), changed in a number,
word, operation, element type or extent, or an operation's example with another element type, rank and extents, or of
everyday sizes around those at which rewrites and emitters begin, with operands that are computed and shared. Each
operation is compared with StableHLO's interpreter, at times with XLA:CPU and by the general path; other forms of the
program (behind a call, from HLO with other layouts, saved, cached, by other threads ...) must give the same bits.
A crash, hang, foreign error, sanitizer's report, output, leak or wrong result is shrunk, saved once for each signature,
and makes the exit code 1."""

EPILOG = """examples:
  python -m tests.campaign --minutes 30 --seed 1000         as many as fit into half an hour
  python -m tests.campaign --programs 1 --seed 4711         one program again, by its number
  python -m tests.campaign --programs 500 --target gpu:sm_80
  python -m tests.campaign --programs 500 --made sized      of everyday sizes, against XLA:CPU and the general path
  python -m tests.campaign --files 10000                    damaged files of every form, no programs
"""


@dataclass
class Report:
    """What came out: counts by names, and the findings by their signatures."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    findings: dict[str, dict[str, object]] = field(default_factory=dict)

    def count(self, table: str, name: str, by: int = 1) -> None:
        self.counts.setdefault(table, Counter())[name] += by

    def note(self, signature: str, kind: str, seed: int, message: str) -> bool:
        """Whether it is new."""
        self.count("findings", kind)
        known = self.findings.setdefault(
            signature, {"category": kind, "seeds": [], "message": message[:2000], "saved": ""}
        )
        seeds = known["seeds"]
        assert isinstance(seeds, list)
        seeds.append(seed)
        return len(seeds) == 1

    def as_dict(self) -> dict[str, object]:
        return {**{name: dict(table.most_common()) for name, table in self.counts.items()}, "found": self.findings}


def run_programs(
    report: Report,
    first: int,
    count: int,
    deadline: float,
    target: str,
    keep: Callable[[int, Disagreement], str],
    makers: Sequence[str] = (),
) -> None:
    """Examines the programs of these numbers until the time is over; what was counted is reported in any case."""
    warnings.simplefilter("ignore")
    start = time.monotonic()
    with Watched() as watched:
        examiner = Examiner(watched)
        try:
            for seed in range(first, first + count):
                if time.time() > deadline:
                    break
                _run_program(report, examiner, seed, target, keep, makers)
                if seed % 10 == 0:
                    _progress(report, time.monotonic() - start)
        finally:
            _count_all(report, examiner)
            report.count("seconds", "programs", round(time.monotonic() - start))


def _run_program(
    report: Report,
    examiner: Examiner,
    seed: int,
    target: str,
    keep: Callable[[int, Disagreement], str],
    makers: Sequence[str],
) -> None:
    try:
        drawn = draw(seed, target, makers)
    except Unfit:
        report.count("programs", "nothing drawn")
        return
    if seed % DEVICES == 0 and not target:
        _run_on_devices(report, examiner.watched, seed)
    report.count("programs", drawn.made)
    report.count("operations", "all", drawn.program.size)
    try:
        found = examiner.check(drawn.program, drawn.arguments, drawn.plan)
    except Exception as error:  # a mistake of ours: the others go on
        report.note(f"examiner: {type(error).__name__}: {error}", "examiner", seed, traceback.format_exc())
        return
    if found is not None and report.note(found.kind, category(found), seed, found.message):
        small = Shrinker(examiner, drawn.plan, 40.0).shrink(found)
        report.findings[found.kind]["saved"] = keep(seed, small)
        print(f"\n{seed}: {category(found)}: {small}\n{small.program.text}", flush=True)


def _count_all(report: Report, examiner: Examiner) -> None:
    for name, number in examiner.asked.items():
        report.count("forms", name, number)
    for table, counts in (("known faults", examiner.excused), ("refused", examiner.refused)):
        for name, number in counts.items():
            report.count(table, name, number)
    report.count("results", "compared", examiner.compared)
    report.count("results", "not judged in regions that round", examiner.unjudged)
    report.count("results", "sums in another order", examiner.reordered)
    report.count("memory", "largest of a child, MiB", examiner.watched.largest >> 20)
    report.count("memory", "last of a child, MiB", examiner.watched.memory >> 20)


def _run_on_devices(report: Report, watched: Watched, seed: int) -> None:
    """A random program of several devices, against its model."""
    report.count("programs", "of several devices")
    found = watched.run(f"devices {seed}", "", [])
    if isinstance(found, Failure):
        made = Disagreement(f"devices: {found.kind}", str(found), Program((), (), ()), [], ("devices",))
        if report.note(made.kind, category(made), seed, made.message):
            print(f"\ndevices {seed}: {category(made)}: {made.message}", flush=True)


def run_files(report: Report, first: int, count: int, deadline: float) -> None:
    """Loads damaged files until the time is over."""
    start = time.monotonic()
    for form, outcome, number, _ in mutations.check(count, 40, first):
        report.count("files", form)
        report.count("outcomes of files", outcome)
        if outcome not in mutations.FINE:
            kind = "crash" if "died" in outcome else "hang" if "hangs" in outcome else "foreign error"
            if report.note(f"{form}: {outcome}"[:120], kind, number, outcome):
                print(f"\nfile {number}: {kind}: {form}: {outcome}", flush=True)
        if number % 500 == 0:
            _progress(report, time.monotonic() - start)
        if time.time() > deadline:
            break
    report.count("seconds", "files", round(time.monotonic() - start))


def _progress(report: Report, seconds: float) -> None:
    done = {name: sum(report.counts.get(name, Counter()).values()) for name in ("programs", "files", "findings")}
    told = f"{done['programs']:,} programs, {done['files']:,} files, {seconds:.0f} s, {done['findings']} findings"
    print(f"\r{told} ", end="", flush=True, file=sys.stderr)


def show(report: Report) -> None:
    """The tables."""
    for name, table in report.counts.items():
        total = sum(table.values())
        print(f"{name}: {total:,}" if len(table) > 1 and name not in ("memory", "results") else f"{name}:")
        for row, number in table.most_common(25):
            print(f"  {number:9,}  {row}")
    for signature, finding in report.findings.items():
        seeds = finding["seeds"]
        assert isinstance(seeds, list)
        print(f"FOUND: {finding['category']}: {signature} ({len(seeds)} times, first {seeds[0]}) {finding['saved']}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--minutes", type=float, default=0, help="stop after so long")
    add("--programs", type=int, default=None, metavar="N", help="how many; 1,000, or no limit with --minutes")
    add("--files", type=int, default=0, metavar="N", help="how many damaged files; none by default")
    add("--seed", type=int, default=0, help="number of the first program and file")
    add("--target", default="cpu", help="cpu, or a GPU that is simulated: gpu:sm_80")
    add("--made", choices=MAKERS, action="append", default=[], help="made in this way only; may be given several times")
    add("--corpus", type=Path, default=CORPUS, help="where programs that show something are saved")
    add("--report", type=Path, help="a file for all counts and findings, as JSON")
    return parser.parse_args()


def main() -> int:
    options, report = parse(), Report()
    deadline = time.time() + options.minutes * 60 if options.minutes else float("inf")
    programs = options.programs
    if programs is None:
        programs = 0 if options.files else 10**9 if options.minutes else 1000
    target = "" if options.target == "cpu" else options.target

    def keep(seed: int, found: Disagreement) -> str:
        return str(save(options.corpus, seed, found, whole=False).name)

    try:
        if programs:
            run_programs(report, options.seed, programs, deadline, target, keep, options.made)
        if options.files:
            run_files(report, options.seed, options.files, deadline)
    except KeyboardInterrupt:
        print("\ninterrupted: what was found until then", file=sys.stderr)
    print(file=sys.stderr)
    show(report)
    if options.report:
        options.report.write_text(json.dumps(report.as_dict(), indent=1))
    return int(bool(report.findings))


if __name__ == "__main__":
    sys.exit(main())
