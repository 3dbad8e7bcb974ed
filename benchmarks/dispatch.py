"""What a call costs from Python beside the computation: next to nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.measuring import Effort

if TYPE_CHECKING:
    from benchmarks.engines import Engine, Prepared

CALLS = {"add-2x2": "two arrays of 2x2 in, one out", "ten-in-ten-out": "ten arrays of 8x8 in, ten out"}


def measure_calls(engines: Sequence[Engine], effort: Effort) -> dict[str, dict[str, float]]:
    """Seconds of a call by kind of call and engine: numpy arrays in and out, and arrays where the engine has them."""
    from benchmarks.programs import PROGRAMS

    found: dict[str, dict[str, float]] = {}
    for name, text in CALLS.items():
        if name not in PROGRAMS:
            continue
        program = PROGRAMS[name]
        arguments = program.arguments()
        both: dict[str, dict[str, Callable[[], object]]] = {text: {}, f"{text}, in the engine's own arrays": {}}
        for engine in engines:
            prepared = _prepared(engine, name)
            if prepared is not None:
                prepared.bind(arguments)
                for calls, call in zip(both.values(), (prepared.from_numpy(arguments), prepared.run), strict=True):
                    calls[engine.name] = call
        for kind, calls in both.items():
            found[kind] = _times(calls, effort)
    return found


def _prepared(engine: Engine, name: str) -> Prepared | None:
    from benchmarks.programs import PROGRAMS

    try:
        made = engine.prepare(PROGRAMS[name], PROGRAMS[name].text())
        if made is not None:
            made.bind(PROGRAMS[name].arguments())
            made.results()
    except Exception:  # told of where programs are measured
        return None
    return made


def _times(calls: dict[str, Callable[[], object]], effort: Effort) -> dict[str, float]:
    """The best round of each, in turns."""
    counts = {name: max(1, round(effort.seconds / max(_time(call, 20), 1e-9))) for name, call in calls.items()}
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(effort.most):
        for name, call in calls.items():
            best[name] = min(best[name], _time(call, counts[name]))
    return best


def _time(call: Callable[[], object], count: int) -> float:
    start = perf_counter()
    for _ in range(count):
        call()
    return (perf_counter() - start) / count
