"""Random programs of several devices by hand: `python -m tests.distributed.random_campaign --count 1000`.

Each is run by stablexla and compared with the model, and with XLA:CPU where that means the same by it. What fails is
printed with its number, and its text is kept with `--keep`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import stablexla as sx
from tests.distributed import xla_oracle
from tests.distributed.harness import same
from tests.distributed.random_statements import random_program


def check_program(seed: int, size: int = 14, *, oracle: bool = True, ours: bool = True) -> str:
    """Raises AssertionError, or what stablexla raises; says whether XLA:CPU was asked, or refused the program."""
    made = random_program(seed, size)
    grid = made.grid
    told = "not asked"
    if oracle and made.xla:
        try:
            found = xla_oracle.xla(made.text, made.arguments, grid.replicas, grid.partitions)
        except xla_oracle.OracleError:  # it divides by 0 in empty arrays, and takes some forms not at all
            told = "refused"
        else:
            told = "asked"
            same(found, made.expected, "XLA:CPU and the model")
    if ours:
        executable = sx.compile(made.text, num_replicas=grid.replicas, num_partitions=grid.partitions)
        executable.collective_timeout = 30
        same(executable.execute_replicated(made.arguments), made.expected, "stablexla and the model")
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--size", type=int, default=14, help="statements of a program")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--no-oracle", action="store_true", help="only the model")
    parser.add_argument("--only-oracle", action="store_true", help="the model against XLA:CPU")
    parser.add_argument("--keep", type=Path, help="a folder for the texts of programs that fail")
    given = parser.parse_args()
    start, failed, done = time.monotonic(), 0, 0
    told: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.count):
        if time.monotonic() - start > given.seconds:
            break
        done += 1
        try:
            told[check_program(seed, given.size, oracle=not given.no_oracle, ours=not given.only_oracle)] += 1
        except Exception as error:
            failed += 1
            print(f"{seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
            if given.keep:
                given.keep.mkdir(parents=True, exist_ok=True)
                (given.keep / f"{seed}.mlir").write_text(random_program(seed, given.size).text)
    print(f"{done} programs, {failed} failed, {time.monotonic() - start:.0f} s; XLA:CPU: {dict(told)}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
