"""Damaged files: `python -m tests.fuzz.mutations` loads thousands, in child processes that must not die.

Each ends in an error of stablexla, or in a program; nothing else. With --compile the programs are compiled too.
"""

from __future__ import annotations

import argparse
import json
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tests.fuzz.damage import File, Kept, damaged, make_file

LIMIT = 90.0
"""Seconds for one mutation, after which it counts as hanging; the reader's own limit is shorter."""
MEMORY = 8 << 30
"""Bytes of address space that a worker may have; more is an endless allocation."""
FINE = ("program", "refused by the tables", "refused by MLIR or XLA", "its reader crashed", "its reader was stopped")
FINE += ("refused as it was read", "compiled anew")

EPILOG = """examples:
  python -m tests.fuzz.mutations                                   10,000 mutations of 24 files
  python -m tests.fuzz.mutations --mutations 1 --seed 4711         one again, by its number
  python -m tests.fuzz.mutations --in-process                      without the reader's process, to see what dies then
  python -m tests.fuzz.mutations --compile                         compile what still is a program

exit codes: 0 every mutation gave a program or an error; 1 a process died or hung, or raised something else
"""


@dataclass
class Tally:
    """What became of the mutations: how many of each outcome for each form, and what must not be."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, form: str, outcome: str, seed: int, seconds: float) -> None:
        self.counts[form, outcome] += 1
        self.seconds += seconds
        if outcome not in FINE:
            self.faults.append(f"mutation {seed} ({form}): {outcome}")


class Worker:
    """A process that loads one damaged file after the other, and is replaced when it dies."""

    def __init__(self, options: list[str]) -> None:
        self._command = [sys.executable, "-m", "tests.fuzz.mutations", "--worker", *options]
        self._process: subprocess.Popen[str] | None = None

    def run(self, files: int, seed: int) -> tuple[str, str]:
        """The form of the file, and what became of the mutation."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(files, seed, file=self._process.stdin, flush=True)
            with selectors.DefaultSelector() as selector:
                selector.register(self._process.stdout, selectors.EVENT_READ)
                if not selector.select(LIMIT):
                    self.close()
                    return _form(files, seed), f"hangs for {LIMIT:.0f} seconds"
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            self.close()
            return _form(files, seed), f"the process died with exit code {code}"
        form, outcome = json.loads(line)
        return form, outcome

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _form(files: int, seed: int) -> str:
    return make_file(seed % files).form.described


def outcome_of(data: bytes, *, in_process: bool, compiling: bool) -> str:
    """What becomes of some bytes: one of `FINE`, or what must not be."""
    import stablexla as sx

    try:
        module = sx.load(data, trusted=in_process)
        if compiling:
            sx.compile(module)
        str(module)
    except sx.StablexlaError as error:
        said = str(error)
        if "its reader crashed" in said:
            return "its reader crashed"
        if "reading it takes too" in said:
            return "its reader was stopped"
        return "refused by the tables" if "(at byte" in said or "unknown" in said else "refused by MLIR or XLA"
    except (MemoryError, RecursionError, UnicodeError, Exception) as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "program"


def outcome_of_kept(file: File, data: bytes) -> str:
    """What becomes of a damaged file of stablexla's own: one of `FINE`, or what must not be."""
    import stablexla as sx
    from stablexla.compiling import cache

    with tempfile.TemporaryDirectory() as folder:
        try:
            if file.form is Kept.SAVED:
                path = Path(folder) / "program.sxe"
                path.write_bytes(data)
                str(sx.load_executable(path))
                return "program" if _same_contents(data, file.data) else "loaded although it is damaged"
            options = sx.CompileOptions(cache=folder)
            sx.compile(file.program, options=options)
            (path,) = Path(folder).iterdir()
            good = path.read_bytes()
            path.write_bytes(data)
            before = cache.counts.hits
            sx.compile(file.program, options=options)
            if cache.counts.hits == before:
                return "compiled anew"
            same = _same_contents(data, good) or _same_contents(data, file.data)
            return "program" if same else "found although it is damaged"
        except sx.LoadError:
            return "refused as it was read"
        except BaseException as error:
            return f"{type(error).__name__}: {str(error)[:200]}"


def _same_contents(data: bytes, good: bytes) -> bool:
    """Whether two files of stablexla's own differ in no more than the bytes between their sections."""
    from stablexla.targets.runtime import container

    ours, theirs = (container.parse(each, "file") for each in (data, good))
    return (ours.description, *map(bytes, ours.sections.values())) == (
        theirs.description,
        *map(bytes, theirs.sections.values()),
    )


def _work(*, in_process: bool, compiling: bool) -> None:
    """Answers a line for each line of two numbers."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files: dict[int, File] = {}
    for line in sys.stdin:
        count, seed = map(int, line.split())
        number = seed % count
        file = files.setdefault(number, make_file(number)) if number not in files else files[number]
        data = damaged(file.data, seed)
        if isinstance(file.form, Kept):
            outcome = outcome_of_kept(file, data)
        else:
            outcome = outcome_of(data, in_process=in_process, compiling=compiling)
        print(json.dumps((file.form.described, outcome)), flush=True)


def check(
    mutations: int, files: int, seed: int, *, jobs: int = 1, options: list[str] | None = None
) -> Iterator[tuple[str, str, int, float]]:
    """Form, outcome, number and seconds of each mutation, in `jobs` processes that take turns."""
    workers = [Worker(options or []) for _ in range(jobs)]
    try:
        from concurrent.futures import ThreadPoolExecutor

        def run(job: int) -> list[tuple[str, str, int, float]]:
            return [one(workers[job], number) for number in range(seed + start + job, seed + end, jobs)]

        def one(worker: Worker, number: int) -> tuple[str, str, int, float]:
            begin = time.monotonic()
            form, outcome = worker.run(files, number)
            return form, outcome, number, time.monotonic() - begin

        with ThreadPoolExecutor(jobs) as pool:
            for start in range(0, mutations, 100):
                end = min(start + 100, mutations)
                for results in pool.map(run, range(jobs)):
                    yield from results
    finally:
        for worker in workers:
            worker.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.mutations",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--mutations", type=int, default=10_000, metavar="N", help="how many (default: 10,000)")
    add("--files", type=int, default=24, metavar="N", help="of how many files (default: 24)")
    add("--seed", type=int, default=0, metavar="N", help="the first one's number (default: 0)")
    add("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    add("--in-process", action="store_true", help="read in the worker itself, as trusted bytes are")
    add("--compile", action="store_true", help="compile what is a program")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.worker:
        _work(in_process=arguments.in_process, compiling=arguments.compile)
        return 0
    options = [o for o, given in (("--in-process", arguments.in_process), ("--compile", arguments.compile)) if given]
    tally, console = Tally(), Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("mutations", total=arguments.mutations)
        found = check(arguments.mutations, arguments.files, arguments.seed, jobs=arguments.jobs, options=options)
        for form, outcome, number, seconds in found:
            tally.add(form, outcome, number, seconds)
            progress.advance(task)
    forms = sorted({form for form, _ in tally.counts})
    for outcome in sorted({outcome for _, outcome in tally.counts}, key=lambda o: (o not in FINE, o)):
        parts = ", ".join(f"{form} {tally.counts[form, outcome]:,}" for form in forms if tally.counts[form, outcome])
        total = sum(tally.counts[form, outcome] for form in forms)
        print(f"{total:8,}  {outcome}  ({parts})")
    print(f"{tally.seconds / max(1, arguments.mutations) * 1e3:8.2f}  milliseconds a mutation")
    for fault in tally.faults:
        print(f"FAULT: {fault}", file=sys.stderr)
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
