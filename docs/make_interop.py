"""Writes docs/interop.md and docs/interop.tsv: JAX's public functions and libraries, run on stablexla and by JAX.

The machinery is in tests/interop/proof/; the libraries are those of the extra `interop`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: E402

from tests.interop.proof.catalogue import ENTRIES, reason_of  # noqa: E402
from tests.interop.proof.inventory import public  # noqa: E402
from tests.interop.proof.known import KNOWN  # noqa: E402
from tests.interop.proof.programs import PROGRAMS  # noqa: E402
from tests.interop.proof.run import run_all  # noqa: E402
from tests.interop.proof.table import Row, page, read_tsv, write_tsv  # noqa: E402
from tests.interop.proof.trial import BOTH, Trial  # noqa: E402

PAGE, LINES = ROOT / "docs/interop.md", ROOT / "docs/interop.tsv"
CACHE = ROOT / "build/interop"
PLUGIN_LINES, PLUGIN_CACHE = ROOT / "docs/interop_plugin.tsv", ROOT / "build/interop_plugin"

EPILOG = """examples:
  python docs/make_interop.py                         all; what was equal before is taken from build/interop
  python docs/make_interop.py --fresh --jobs 4        all, from the beginning, in four processes
  python docs/make_interop.py --only 'fft|conv'       those whose path fits a pattern; prints them, writes no page
  python docs/make_interop.py --only ^programs.flax   of the libraries
  python docs/make_interop.py --failed                what is not equal in docs/interop.tsv, again
  python docs/make_interop.py --plugin                all, by jax.jit and the PJRT plugin
  python docs/make_interop.py --check                 runs nothing; says what the page lacks

Exit code 1: something is neither equal nor explained (tests/interop/proof/known.py), or --check found something."""


def subjects() -> list[str]:
    """Paths of all functions in which something is computed, and of all programs."""
    functions = [name.path for name in public() if name.path in ENTRIES or not reason_of(name)]
    return [*PROGRAMS, *functions]


def run(paths: list[str], jobs: int, fresh: bool, plugin: bool) -> dict[str, tuple[Trial, ...]]:
    """What becomes of them, by path; with a bar on a terminal."""
    found: dict[str, tuple[Trial, ...]] = {}
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("functions", total=len(paths))

        def done(path: str, trials: list[Trial]) -> None:
            found[path] = tuple(trials)
            row = Row(path, found[path])
            if row.is_fault and row.worst is not None:
                progress.console.print(f"{path}: {row.state}: {row.worst.verdict.note}", markup=False, highlight=False)
            progress.update(task, advance=1, description=path[-40:].ljust(40))

        cache, platforms = (PLUGIN_CACHE, BOTH) if plugin else (CACHE, "cpu")
        run_all(paths, jobs, cache, done, fresh=fresh, platforms=platforms)
    return found


def read(lines: Path) -> dict[str, tuple[Trial, ...]]:
    """What a file of lines holds; nothing before it is there."""
    return read_tsv(lines.read_text()) if lines.exists() else {}


def lacking(*ways: dict[str, tuple[Trial, ...]]) -> list[str]:
    """What is missing or out of date in what the page was made from."""
    wanted, lines = subjects(), []
    for found in ways:
        lines += [f"{path}: not in the table" for path in wanted if path not in found]
        lines += [f"{path}: in the table, and not there any more" for path in found if path not in wanted]
    states = {path: {Row(path, found[path]).state for found in ways if path in found} for path in KNOWN}
    return [*lines, *(f"{path}: equal, and in KNOWN" for path, each in states.items() if each == {"equal"})]


def write(found: dict[str, tuple[Trial, ...]], lines: Path) -> None:
    """The page, and the lines of one of its two ways."""
    lines.write_text(write_tsv(Row(path, found[path]) for path in subjects() if path in found))
    PAGE.write_text(text_of(LINES.read_text(), PLUGIN_LINES.read_text()))


def text_of(lines: str, by_plugin: str) -> str:
    """The page for docs/interop.tsv and docs/interop_plugin.tsv."""
    names = list(public())
    reasons = {name.path: reason_of(name) for name in names if reason_of(name) and name.path not in ENTRIES}
    return page(
        lines, by_plugin, subjects(), names, reasons, {path: program.about for path, program in PROGRAMS.items()}
    )


def show(row: Row) -> None:
    """A line for each call."""
    for trial in row.trials:
        v = trial.verdict
        distances = f" {v.ulp:.3g} ULP" if v.ulp else ""
        exact = f" (from the exact one: {v.ours:.3g}, JAX {v.theirs:.3g})" if v.ours or v.theirs else ""
        print(f"{row.path}  {trial.label}: {v.state} {v.how}{distances}{exact} {v.note} {trial.seconds:.2f} s")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="PATTERN", help="a regular expression for paths, as jax.numpy.sin")
    parser.add_argument("--failed", action="store_true", help="only what is not equal in the table")
    parser.add_argument("--plugin", action="store_true", help="by jax.jit, with JAX_PLATFORMS=stablexla,cpu")
    parser.add_argument("--fresh", action="store_true", help="take nothing from earlier runs")
    parser.add_argument("--jobs", type=int, default=2, help="processes; 2")
    parser.add_argument("--check", action="store_true", help="run nothing; exit code 1 when the page is out of date")
    return parser.parse_args()


def main() -> int:
    options = parse()
    lines = PLUGIN_LINES if options.plugin else LINES
    before = read(lines)
    if options.check:
        problems = lacking(read(LINES), read(PLUGIN_LINES))
        if not PAGE.exists() or PAGE.read_text() != text_of(LINES.read_text(), PLUGIN_LINES.read_text()):
            problems.append("docs/interop.md is not what docs/interop.tsv and docs/interop_plugin.tsv say")
        print("\n".join(problems), end="\n" if problems else "")
        return int(bool(problems))
    paths = [path for path in subjects() if not options.only or re.search(options.only, path)]
    if options.failed:
        paths = [path for path in paths if path not in before or Row(path, before[path]).state != "equal"]
    found = run(paths, options.jobs, options.fresh, options.plugin)
    rows = [Row(path, found[path]) for path in paths]
    if options.only:
        for row in rows:
            show(row)
    else:
        write(before | found, lines)
    return int(any(row.is_fault for row in rows))


if __name__ == "__main__":
    sys.exit(main())
