"""What an operation costs in each pass: python -m benchmarks.pass_costs [PROGRAM ...].

A cell is the processor's time of the compiling thread in a pass, in microseconds, over the number of the program's
StableHLO operations; the least of some compilations. Modules are not verified in between. Passes that take less than a
microsecond for an operation of every program are one line. `--json FILE` keeps the figures; `--before FILE` puts
those of another revision in front.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import thread_time
from typing import Any

import stablexla as sx
from benchmarks.programs import PROGRAMS
from stablexla.targets.pipeline.driver import Watcher, copy_of, run_pipeline
from stablexla.targets.pipeline.pipelines import Element, Step

DEFAULT = ("bert-base", "resnet-18", "unet", "mlp-step")
COMPILATIONS = 5
Costs = dict[str, dict[str, float]]


class _Timer(Watcher):
    """Adds up each pass's time."""

    pass_by_pass, verify_each = True, False

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def before_pass(self, step: Step, element: Element, module: Any) -> None:
        self._start = thread_time()

    def after_pass(self, step: Step, element: Element, module: Any) -> None:
        self.seconds[f"{step.name}: {element.name}"] += thread_time() - self._start


def costs(name: str) -> dict[str, float]:
    """Return the microseconds for an operation of a program by pass."""
    module = sx.load(PROGRAMS[name].text())
    least: dict[str, float] = {}
    for _ in range(COMPILATIONS):
        timer = _Timer()
        run_pipeline(copy_of(module), sx.pipeline("cpu"), watcher=timer)
        least = {each: min(seconds, least.get(each, seconds)) for each, seconds in timer.seconds.items()}
    count = str(module).count("stablehlo.") + str(module).count("chlo.")
    return {each: seconds * 1e6 / count for each, seconds in least.items()}


def table(now: Mapping[str, Mapping[str, float]], before: Mapping[str, Mapping[str, float]]) -> str:
    """Write the table."""
    runs = []
    for name, found in now.items():
        runs += [(f"{name}, before", before[name])] if name in before else []
        runs.append((name, found))
    passes = list(dict.fromkeys(each for _, found in reversed(runs) for each in found))
    long = [each for each in passes if max(found.get(each, 0) for _, found in runs) >= 1]
    lines = [["pass", *(name for name, _ in runs)], ["---", *["---:"] * len(runs)]]
    lines += [[each, *(_cell(found.get(each)) for _, found in runs)] for each in long]
    lines.append(["the others", *(_cell(sum(v for k, v in found.items() if k not in long)) for _, found in runs)])
    lines.append(["all", *(_cell(sum(found.values())) for _, found in runs)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=DEFAULT)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--before", type=Path)
    arguments = parser.parse_args(given)
    found: Costs = {name: costs(name) for name in arguments.programs}
    if arguments.json:
        arguments.json.write_text(json.dumps(found))
    print(table(found, json.loads(arguments.before.read_text()) if arguments.before else {}))


if __name__ == "__main__":
    main()
