"""Processor time of the suite by file and test, and lines that a run lost: `python -m tests.suite report FOLDER`."""

from __future__ import annotations

import argparse
import pickle
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.suite.recorder import KINDS, Recorded

DESCRIPTION = """Reads what `pytest -p tests.suite.recorder --record=FOLDER` wrote.

`report` prints seconds of the processor by file, or with --tests by test: all of it, and those of compiling, running
and the oracles in the test's own process; the rest is the test's own and that of its child processes. `lost` compares
the lines of the sources that two runs reached, of the whole suite and of the drawn one, and names a few cases that
reach the missing ones."""

EPILOG = """examples:
  make test-all PYTEST_ARGS='-p tests.suite.recorder --record=build/whole'
  python -m tests.suite report build/whole
  make test PYTEST_ARGS='-p tests.suite.recorder --record=build/drawn'
  python -m tests.suite lost build/whole build/drawn"""


def read(folder: Path) -> list[Recorded]:
    return [pickle.loads(file.read_bytes()) for file in sorted(folder.glob("*.pickle"))]


def report(folder: Path, by_test: bool, rows: int) -> None:
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0] * (2 + len(KINDS)))
    for recorded in read(folder):
        for test, (seconds, kinds, _) in recorded.tests.items():
            for name in ("in all", test.partition("[" if by_test else "::")[0]):
                for i, value in enumerate((1, seconds, *kinds.values())):
                    spent[name][i] += value
    print(f"{'cases':>6} {'seconds':>8} " + " ".join(f"{kind:>8}" for kind in KINDS))
    for name, (cases, *seconds) in sorted(spent.items(), key=lambda row: -row[1][1])[: rows + 1]:
        print(f"{cases:6.0f} " + " ".join(f"{value:8.1f}" for value in seconds) + f"  {name}")


def reached(folder: Path) -> dict[str, frozenset[str]]:
    """The tests that reached each line."""
    found: dict[str, set[str]] = defaultdict(set)
    for recorded in read(folder):
        names, by_lines = list(recorded.lines), defaultdict(list)
        for test, (_, _, lines) in recorded.tests.items():
            by_lines[lines].append(test)
        for lines, tests in by_lines.items():
            bits = int.from_bytes(zlib.decompress(lines), "little")
            for i, digit in enumerate(reversed(f"{bits:b}")):
                if digit == "1":
                    found[names[i]].update(tests)
    return {line: frozenset(tests) for line, tests in found.items()}


def lost(whole: Mapping[str, frozenset[str]], drawn: Collection[str]) -> dict[str, int]:
    """Tests that reach the lines that `drawn` does not, each with how many, chosen one by one for the most of them.

    Args:
        whole: the tests that reach each line.
        drawn: lines, as "file:line".
    """
    missing = {line: tests for line, tests in whole.items() if line not in drawn}
    chosen = {}
    while missing:
        [(best, count)] = Counter(test for tests in missing.values() for test in tests).most_common(1)
        chosen[best] = count
        missing = {line: tests for line, tests in missing.items() if best not in tests}
    return chosen


def show_lost(whole: Path, drawn: Path) -> bool:
    by_line, left = reached(whole), reached(drawn)
    for line in sorted(by_line.keys() - left.keys()):
        print(f"only in the whole suite: {line}")
    chosen = lost(by_line, left)
    for test, count in chosen.items():
        print(f"{count:5} lines by {test}")
    return bool(chosen)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.suite",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    reporting = commands.add_parser("report", help="processor time by file or test")
    reporting.add_argument("folder", type=Path)
    reporting.add_argument("--tests", action="store_true", help="by test in place of file")
    reporting.add_argument("--rows", type=int, default=60, help="of the table")
    losing = commands.add_parser("lost", help="lines that the drawn suite does not reach, with exit code 1")
    losing.add_argument("whole", type=Path)
    losing.add_argument("drawn", type=Path)
    given = parser.parse_args()
    if given.command == "report":
        report(given.folder, given.tests, given.rows)
        return 0
    return int(show_lost(given.whole, given.drawn))


if __name__ == "__main__":
    sys.exit(main())
