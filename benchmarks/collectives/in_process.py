"""Devices of one process: stablexla here and XLA in its child, case by case, in turns."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter, sleep
from typing import Protocol

import stablexla as sx
from benchmarks.collectives.cases import IN_PROCESS, TOLERANCE, Case, difference
from benchmarks.measuring import OURS, PAUSE, Effort, Measured, Row


class Party(Protocol):
    """Who takes part: one at a time is measured."""

    name: str

    def prepare(self, case: Case) -> float: ...

    def time(self, calls: int) -> float: ...


class Ours:
    """`execute_replicated` on numpy arrays where they lie; the results are new numpy arrays."""

    name = OURS

    def prepare(self, case: Case) -> float:
        """Compiles and runs it; how far the results are from the right ones."""
        self._executable = sx.compile(case.text(), num_replicas=case.devices)
        self._arguments = [[each] for each in case.arguments()]
        results = [own[0] for own in self._executable.execute_replicated(self._arguments)]
        return difference(results, case.results([own[0] for own in self._arguments]))

    def time(self, calls: int) -> float:
        """Seconds of a call."""
        run, arguments = self._executable.execute_replicated, self._arguments
        start = perf_counter()
        for _ in range(calls):
            run(arguments)
        return (perf_counter() - start) / calls


def measure_case(case: Case, parties: Sequence[Party], effort: Effort) -> Row:
    """All parties on one case, in turns."""
    row = Row(case.name, f"{case.operation} of {case.name}", IN_PROCESS, case.family, TOLERANCE)
    able: list[Party] = []
    for each in parties:
        start = perf_counter()
        try:
            apart = each.prepare(case)
        except Exception as error:  # whatever one raises, the others go on
            row.failures[each.name] = f"{type(error).__name__}: {[*str(error).splitlines(), ''][0]}"
            continue
        row.engines[each.name] = Measured(perf_counter() - start, difference=apart)
        able.append(each)
    counts = {each.name: calls_in(each, effort.seconds) for each in able}
    start = perf_counter()
    for number in range(effort.most):
        if number >= effort.least and perf_counter() - start > effort.budget:
            break
        for each in able if number % 2 == 0 else reversed(able):
            sleep(PAUSE)
            row.engines[each.name].rounds.append(each.time(counts[each.name]))
    return row


def calls_in(party: Party, seconds: float) -> int:
    """About how many calls take so long; warms it up."""
    count = 1
    while (taken := party.time(count) * count) < seconds / 4:
        count *= 4
    return max(1, round(count * seconds / taken))
