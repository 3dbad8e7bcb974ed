"""JAX's own tests on the platform stablexla: python -m tests.jax_suite CHECKOUT [FILE ...].

CHECKOUT is a clone of JAX at the version that is installed (`git clone --branch jax-v0.10.2 ...`); nothing is fetched.
FILE is a name in its folder `tests`, such as `lax_test.py`. A table says for each file how many tests passed, how many
JAX skipped, and how many failed; `--reasons` counts why. JAX's tests need absl-py, and draw their cases at random, the
same ones each time: `--cases N` says how many.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

DEFAULT = (
    *("api_test.py", "array_test.py", "dtypes_test.py", "fft_test.py", "lax_control_flow_test.py", "lax_numpy_test.py"),
    *("lax_numpy_indexing_test.py", "lax_numpy_ufuncs_test.py", "lax_scipy_test.py", "lax_test.py", "linalg_test.py"),
    *("nn_test.py", "pjit_test.py", "pmap_test.py", "python_callback_test.py", "random_test.py", "shard_map_test.py"),
)


@dataclass
class Outcome:
    """What became of a file's tests.

    Attributes:
        failures: the last lines of what went wrong, with the tests' names.
        crash: how the process ended, where it did not end by itself.
    """

    passed: int = 0
    skipped: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    crash: str = ""


def run(checkout: Path, file: str, cases: int, devices: int, minutes: float) -> Outcome:
    """Run one file in a process of its own."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "stablexla,cpu",
        "STABLEXLA_NUM_DEVICES": str(devices),
        "JAX_NUM_GENERATED_CASES": str(cases),
        "JAX_SKIP_SLOW_TESTS": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", file]
        try:
            done = subprocess.run(
                line, cwd=checkout / "tests", env=environment, capture_output=True, text=True, timeout=60 * minutes
            )
        except subprocess.TimeoutExpired:
            return Outcome(crash=f"not done in {minutes:g} minutes")
        if not report.exists():
            last = [each for each in (done.stdout + done.stderr).splitlines() if each.strip()][-1:]
            return Outcome(crash=f"the process ended with {done.returncode}: {''.join(last)}")
        return read(report)


def read(report: Path) -> Outcome:
    """Read pytest's report."""
    outcome = Outcome()
    for case in ElementTree.parse(report).iter("testcase"):
        wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
        if wrong is not None:
            lines = (wrong.get("message") or wrong.text or "").strip().splitlines()
            outcome.failures.append((f"{case.get('classname')}.{case.get('name')}", lines[0] if lines else ""))
        elif case.find("skipped") is not None:
            outcome.skipped += 1
        else:
            outcome.passed += 1
    return outcome


def row(file: str, outcome: Outcome) -> str:
    """Write a line of the table."""
    counts = (outcome.passed, outcome.skipped, len(outcome.failures))
    return f"| {file} | {' | '.join(map(str, counts))} | {outcome.crash} |"


def reasons(outcome: Outcome) -> list[str]:
    """Return the failures' reasons, without numbers, the most frequent first, each with a test."""
    short = {name: re.sub(r"\d+(\.\d+)?", "N", reason)[:200] for name, reason in outcome.failures}
    examples = {reason: name for name, reason in reversed([*short.items()])}
    return [f"  {count} x {why}   e.g. {examples[why]}" for why, count in Counter(short.values()).most_common()]


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("files", nargs="*", default=DEFAULT)
    parser.add_argument("--cases", type=int, default=5, help="of a test that draws them (default 5)")
    parser.add_argument("--devices", type=int, default=8, help="of the platform (default 8, as JAX's tests want)")
    parser.add_argument("--minutes", type=float, default=30, help="the most for a file (default 30)")
    parser.add_argument("--reasons", action="store_true", help="list why tests failed")
    arguments = parser.parse_intermixed_args(given)
    if not (arguments.checkout / "tests").is_dir():
        parser.error(f"{arguments.checkout} has no folder tests")
    print("| file | passed | skipped by JAX | failed | |\n|---|---:|---:|---:|---|")
    failed = 0
    for file in arguments.files:
        outcome = run(arguments.checkout, file, arguments.cases, arguments.devices, arguments.minutes)
        failed += len(outcome.failures) + bool(outcome.crash)
        print(row(file, outcome), flush=True)
        if arguments.reasons:
            print("\n".join(reasons(outcome)), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
