"""The bound of each kernel: its shares of this machine's limits, how busy the threads are, and what to try.

The rule, in this order; the first that holds names the bound:

- "latency": a call takes less than 10 microseconds, of which its start and that of threads are a part.
- "threads": of the threads that programs run on, less than three quarters are busy during a call, on average.
- "memory": half of the bandwidth or more, and a larger share of it than of the peak; or nothing is computed.
- "compute": the rest. The peak is that of multiply-adds: elementary functions, which count as one operation, and
  integers leave a kernel far below it.

Bytes count once for each array and call: data that stays in the caches may exceed the bandwidth of memory, and no share
of it is named then. Nor is one of the peak that is exceeded also when it is measured once more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from stablexla.inspection.explaining.explanation import KernelNote
from stablexla.inspection.profiling.machine_limits import MachineLimits
from stablexla.inspection.profiling.profile import KernelTime, Slice

LATENCY = 10e-6
"""Seconds of a call below which its start counts."""
BUSY = 0.75
"""Share of the threads that has to work."""
BANDWIDTH = 0.5
"""Share of the bandwidth from which on memory is the bound."""


def with_bounds(
    times: Sequence[KernelTime], slices: Sequence[Slice], limits: MachineLimits | None, devices: int
) -> Iterator[KernelTime]:
    """Yield the times with shares of the limits, bounds and hints; other functions than kernels have none.

    Args:
        limits: those of this machine; None for a program that runs elsewhere.
        devices: how many share the threads.
    """
    shares: dict[str, int] = {}
    alone: dict[str, int] = {}
    within = {s.function for s in slices if s.is_share}
    for span in slices:
        if span.is_share or span.function not in within:
            into = shares if span.is_share else alone
            into[span.name] = into.get(span.name, 0) + span.end - span.start
    for time in times:
        if time.kernel is None or not time.seconds:
            yield time
            continue
        worked = (shares.get(time.name, 0) + alone.get(time.name, 0)) / 1e9
        yield _judged(time, time.kernel, worked, limits, devices)


def exceeds_peak(times: Sequence[KernelTime], limits: MachineLimits, devices: int) -> bool:
    """Whether a kernel does more operations in a second than the machine is said to do."""
    return any(
        time.kernel is not None
        and time.seconds > 0
        and (time.kernel.cost.flops or 0) * _rate(time, limits, devices) > limits.peak
        for time in times
    )


def _rate(time: KernelTime, limits: MachineLimits, devices: int) -> float:
    """Return calls in a second. Devices run at the same time, each with its part of the threads and of the limits."""
    part = min(1.0, limits.threads / devices) if devices > limits.threads else 1.0
    return time.calls / time.seconds * devices * part


def _judged(
    time: KernelTime, kernel: KernelNote, worked: float, limits: MachineLimits | None, devices: int
) -> KernelTime:
    if limits is None:
        bound = "latency" if time.seconds < LATENCY * time.calls else ""
        return dataclasses.replace(time, bound=bound, hint=_hint(kernel, bound))
    threads = max(1.0, limits.threads / devices)
    cost, rate = kernel.cost, _rate(time, limits, devices)
    bandwidth = (cost.read + cost.written) * rate / limits.bandwidth
    peak = None if cost.flops is None else cost.flops * rate / limits.peak
    busy = min(1.0, worked / time.seconds / threads)
    bound = bound_of(time.seconds / time.calls, busy, bandwidth, peak)
    hint = _hint(kernel, bound)
    return dataclasses.replace(time, bandwidth=_named(bandwidth), peak=_named(peak), busy=busy, bound=bound, hint=hint)


def _named(share: float | None) -> float | None:
    return None if share is None or share > 1 else share


def bound_of(call: float, busy: float, bandwidth: float, peak: float | None) -> str:
    """Return what binds a kernel, by the rule above.

    Args:
        call: seconds of a call.
        busy, bandwidth, peak: shares of the threads and of the machine's limits; None for an unknown number of flops.

    >>> bound_of(2e-6, 1.0, 0.1, 0.1), bound_of(1e-3, 0.5, 0.4, 0.0), bound_of(1e-3, 1.0, 0.8, 0.1)
    ('latency', 'threads', 'memory')
    >>> bound_of(1e-3, 1.0, 0.1, 0.6), bound_of(1e-3, 1.0, 0.2, 0)
    ('compute', 'memory')
    """
    if call < LATENCY:
        return "latency"
    if busy < BUSY:
        return "threads"
    if peak == 0 or (bandwidth >= BANDWIDTH and bandwidth > (peak or 0)):
        return "memory"
    return "compute"


HINTS = {
    "latency": "fewer and longer calls: larger arrays, a batch, or several steps of a loop in one",
    "memory": "fewer bytes: narrower elements (bf16, f16), or donated arguments in place of copies",
    "compute": "fewer operations: narrower elements (bf16, int8) where the processor has them, cheaper functions",
}


def _hint(kernel: KernelNote, bound: str) -> str:
    """Return what to try: the way off the general path first."""
    if kernel.refusal is not None and bound != "latency":
        return kernel.refusal.hint
    if bound != "threads":
        return HINTS.get(bound, "")
    if kernel.items <= 1:
        return "it cannot be cut: a batch dimension, or a larger outermost dimension, is shared by threads"
    if not kernel.parallel:
        return "too little work for a second thread: larger arrays, or a batch"
    return "threads wait: other programs on this machine, or work items of unequal size"
