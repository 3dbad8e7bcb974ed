"""The native runtime's tests under sanitizers: `python -m tests.sanitize`, which `make sanitize` calls."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.sanitize.building import ROOT, build, build_probe, environment_of, reports_of
from tests.sanitize.sanitizers import SANITIZERS, Group, Sanitizer


@dataclass(frozen=True)
class Outcome:
    """How a group of tests ended: pytest's last line, whether that is well, and what the sanitizer reported."""

    group: str
    said: str
    is_fine: bool
    reports: tuple[Path, ...]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 where all tests pass and nothing is found."""
    parser = argparse.ArgumentParser(prog="python -m tests.sanitize", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SANITIZER", help=f"{' or '.join(SANITIZERS)}; both by default")
    parser.add_argument("-k", dest="only", default="", help="only groups whose names contain this")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.names) - set(SANITIZERS)
    if unknown:
        parser.error(f"there is no sanitizer {', '.join(sorted(unknown))}: {', '.join(SANITIZERS)}")
    outcomes = []
    for name in chosen.names or SANITIZERS:
        sanitizer = SANITIZERS[name]
        print(f"{name}: building with -fsanitize={sanitizer.flags}", flush=True)
        build(sanitizer)
        outcomes.append(_probe(sanitizer))
        for group in sanitizer.groups:
            if chosen.only in group.name:
                outcomes.append(_run(sanitizer, group))
    return _summary(outcomes)


def _probe(sanitizer: Sanitizer) -> Outcome:
    """Look whether known faults are reported."""
    code = f"import ctypes; ctypes.CDLL({str(build_probe(sanitizer))!r}).fault(1)"
    command = [*sanitizer.launcher, sys.executable, "-c", code]
    environment = environment_of(sanitizer)
    done = subprocess.run(command, env=environment, timeout=300, capture_output=True, text=True, errors="replace")
    _keep(sanitizer, done.stderr)
    texts = [file.read_text(errors="replace") for file in reports_of(sanitizer).iterdir()]
    missing = [word for word in sanitizer.finds if not any(word in text for text in texts)]
    said = f"not reported: {', '.join(missing)}" if missing else f"reported: {', '.join(sanitizer.finds)}"
    return Outcome(f"{sanitizer.name}: planted faults", said, not missing, ())


def _run(sanitizer: Sanitizer, group: Group) -> Outcome:
    """Run a group's tests in a process of their own."""
    command = [*sanitizer.launcher, sys.executable, *group.command()]
    before = time.monotonic()
    environment = environment_of(sanitizer)
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, timeout=group.seconds, capture_output=True, text=True, errors="replace"
        )
        lines = (done.stdout.strip() or done.stderr.strip() or "nothing was printed").splitlines()
        said, is_fine = lines[-1].strip("= "), done.returncode == 0
        _keep(sanitizer, done.stderr)
        if not is_fine:
            print(done.stdout[-6000:], done.stderr[-3000:])
    except subprocess.TimeoutExpired:
        said, is_fine = f"ended after {group.seconds} s", False
    reports = tuple(sorted(file for file in reports_of(sanitizer).iterdir() if file.stat().st_size))
    for report in reports:
        print(f"---- {report.relative_to(ROOT)}\n{report.read_text(errors='replace')[:6000]}")
    name = f"{sanitizer.name}: {group.name}"
    outcome = Outcome(name, f"{said} ({time.monotonic() - before:.0f} s)", is_fine, reports)
    print(_line(outcome), flush=True)
    return outcome


def _keep(sanitizer: Sanitizer, printed: str) -> None:
    """Put what UndefinedBehaviorSanitizer printed with the reports: beside AddressSanitizer it writes no file."""
    if "runtime error:" in printed:
        (reports_of(sanitizer) / "undefined").write_text(printed)


def _line(outcome: Outcome) -> str:
    word = "fine" if outcome.is_fine and not outcome.reports else "FAILED" if not outcome.is_fine else "FINDINGS"
    return f"{word:<9} {outcome.group}: {outcome.said}"


def _summary(outcomes: list[Outcome]) -> int:
    bad = [each for each in outcomes if not each.is_fine or each.reports]
    print(f"\n{len(outcomes)} groups, {len(bad)} of them with findings or failures")
    for each in outcomes:
        print(_line(each))
    return 1 if bad or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
