"""Profiles: a program is compiled once more with clock readings around its calls, and run.

Kernels are the same machine code as without the readings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.display.control_characters import escaped
from stablexla.dialects.errors import ExecutionError, UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.inspection.explaining.explanation import Explanation, KernelNote
from stablexla.inspection.profiling.machine_limits import MachineLimits, machine_limits, measured_again
from stablexla.targets.llvm.timing import TIMED, TimedCall, take_timed
from stablexla.targets.pipeline.driver import Watcher, copy_of, run_pipeline
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import Step
from stablexla.targets.registry import find_target
from stablexla.targets.runtime._runtime import CompiledFunction, GpuFunction, begin_profile, end_profile

if TYPE_CHECKING:
    from stablexla.executable.executable import Executable

# The runtime keeps one profile at a time.
_lock = threading.Lock()


@dataclass(frozen=True)
class Slice:
    """A span of time of a thread inside one call.

    Attributes:
        name: of the kernel; of another function that main calls, its own.
        thread: 0 is the one that called the program.
        start, end: nanoseconds from the start of the first run.
        is_share: whether it is one thread's share of a call that several threads work on.
        function: the function on buffers that ran, a phase of the kernel.
    """

    name: str
    thread: int
    start: int
    end: int
    is_share: bool
    function: str = ""


@dataclass(frozen=True)
class KernelTime:
    """Time in one kernel, over all runs.

    Attributes:
        name: of the kernel, or of another function that main calls.
        kernel: what it computes; None for another function.
        calls: how often main called it, as in an explanation: a call runs all phases, and counts once. A call in a loop
            counts each time that it runs.
        seconds: from the calls to the returns, as the calling thread saw it.
        bandwidth, peak: shares of this machine's limits; None where they are not known, or more is done: data of the
            caches is faster than memory, and narrow elements may be than the peak, which is that of f32.
        busy: share of the threads that worked during the calls; None where it is not known.
        bound: "latency", "threads", "memory" or "compute", by the rule of `bounds.py`; "" where it is not known.
        hint: what to try, or "".
    """

    name: str
    kernel: KernelNote | None
    calls: int
    seconds: float
    bandwidth: float | None = None
    peak: float | None = None
    busy: float | None = None
    bound: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Profile:
    """Times of a program's kernels. `str()` is a summary, `text(all=True)` has all kernels.

    `save_trace(path)` writes a file for Perfetto.

    Attributes:
        name: the program's.
        runs: how often it was run.
        seconds: in all runs together, as their caller saw it.
        kernels: the times, the longest first.
        slices: every span, in the order of their starts.
        explanation: the operations of the kernels.
        devices: how many ran it in this process at the same time; calls and times of kernels are those of all of them.
        limits: this machine's; None where the program ran elsewhere.
        spans: start and end of each run in nanoseconds from the start of the first; none for a GPU's.
    """

    name: str
    runs: int
    seconds: float
    kernels: tuple[KernelTime, ...]
    slices: tuple[Slice, ...]
    explanation: Explanation
    devices: int = 1
    limits: MachineLimits | None = None
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def outside(self) -> float:
        """Seconds outside all calls: arguments, results, control flow and scalars of main; of all devices."""
        return self.seconds * self.devices - sum(k.seconds for k in self.kernels)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Profile({self.name!r}: {self.runs} runs in {self.seconds:.3g} s, {len(self.kernels)} kernels)"

    def text(self, *, all: bool = False, kernels: str = "") -> str:
        """Return the summary of at most twenty lines; with `all` the table of all kernels behind it.

        Args:
            all: adds the table of all kernels.
            kernels: a pattern of names, such as "loop_*": adds the table of these kernels alone.
        """
        from stablexla.inspection.explaining.explanation_summary import REST
        from stablexla.inspection.profiling.profile_summary import summary_of
        from stablexla.inspection.profiling.profile_text import text_of

        rest = text_of(self, kernels=kernels or "*") if all or kernels else REST
        return escaped(f"{summary_of(self)}\n{rest}".rstrip())

    def _repr_html_(self) -> str:
        from stablexla.inspection.profiling.profile_html import html_of

        return html_of(self)

    def save_trace(self, path: str | Path) -> None:
        """Write a trace in Chrome's format, which https://ui.perfetto.dev opens: a track for each thread."""
        from stablexla.inspection.profiling.trace_file import write_trace

        write_trace(self, Path(path))


def profile(executable: Executable, arguments: Sequence[object], *, runs: int = 10) -> Profile:
    """Run a program with clock readings, after one warm-up run.

    Raises:
        UnsupportedError: a program whose pipeline does not end in LLVM's dialect, or of a target without kernels.
        ExecutionError: arguments that do not fit.
    """
    from stablexla.inspection.profiling.bounds import exceeds_peak, with_bounds

    if runs < 1:
        raise ExecutionError(f"{executable.name}: runs is a number from 1 on, not {runs}")
    function: object = executable._function  # a target may have another kind
    if isinstance(function, GpuFunction):
        from stablexla.inspection.profiling.profile_gpu import profile_on_gpu

        return profile_on_gpu(executable, function, arguments, runs)
    if not isinstance(function, CompiledFunction):
        what = f"{executable.name}: the target {executable.target} has no kernels, whose times could be measured"
        raise UnsupportedError(what, hint='target="cpu"')
    explanation = executable.explain()
    marked, timed = with_marks(executable)
    with _lock:  # also for the first run: its marks would be noted in another's profile
        _run(marked, arguments)
        begin_profile()
        readings = [perf_counter_ns()]
        try:
            for _ in range(runs):
                _run(marked, arguments)
                readings.append(perf_counter_ns())
        finally:
            threads = end_profile()
    zero = readings[0]
    slices = _slices(threads, timed, [k.name for k in explanation.kernels], zero)
    spans = tuple((start - zero, end - zero) for start, end in pairwise(readings))
    options = executable._compile_options
    limits = machine_limits(options.num_threads if options is not None else None)
    devices = len(executable.local_devices)
    measured = times_of(slices, explanation)
    if exceeds_peak(measured, limits, devices):
        limits = measured_again(limits)
    times = tuple(with_bounds(measured, slices, limits, devices))
    seconds = (readings[-1] - zero) / 1e9
    return Profile(executable.name, runs, seconds, times, tuple(slices), explanation, devices, limits, spans)


def _run(executable: Executable, arguments: Sequence[Any]) -> None:
    if executable.num_devices == 1 or executable._shardings is not None:
        executable.execute(arguments)
    else:
        executable.execute_replicated(arguments, gather=False)


class _Taker(Watcher):
    """Takes the list of timed calls off the module, as LLVM's translation would refuse it."""

    timed: list[TimedCall] | None = None

    def replace(self, number: int, step: Step, module: Any) -> Any:
        if TIMED in module.operation.attributes:
            self.timed = take_timed(module)
        return module


def with_marks(
    executable: Executable, first: int = 0, prepare: Callable[[Any], object] = lambda module: None
) -> tuple[Executable, list[TimedCall]]:
    """Compile the program once more, with clock readings around its calls.

    Args:
        executable: the program.
        first: the number of the first mark, an even one.
        prepare: changes the module of the source, as it was changed before `executable` was compiled.

    Returns:
        The program with readings, and its calls in the order of their marks.

    Raises:
        UnsupportedError: its pipeline does not end in LLVM's dialect.
    """
    from stablexla.executable.executable import Executable

    taker = _Taker()
    with executable._contexts():
        source = copy_of(executable._stablehlo, here=True)
        prepare(source)
        marks = f"stablexla-time-calls{{first={first}}}"
        pipeline = executable._pipeline_again().inserting(Step("profile", marks), after=executable.pipeline.names[-1])
        lowered = run_pipeline(copy_of(source), pipeline, watcher=taker, holds=True)
        if taker.timed is None:
            raise UnsupportedError("a program for a profile must be compiled down to LLVM's dialect")
        options = executable._compile_options or CompileOptions()
        signature = executable._signature
        function = find_target(executable.target).load(lowered, signature, options)
    marked = Executable(
        source,
        signature,
        function,
        pipeline,
        target=executable.target,
        num_replicas=executable.num_replicas,
        num_partitions=executable.num_partitions,
        tree=executable._tree,
        options=options,
        shardings=executable._shardings,
    )
    return marked, taker.timed


def _slices(
    threads: Sequence[tuple[int, bytes]], timed: Sequence[TimedCall], kernels: Sequence[str], zero: int
) -> list[Slice]:
    """Return the spans between the readings of each thread, from `zero`. The calling thread passed the first one."""
    tracks = [np.frombuffer(pairs, np.int64).reshape(-1, 2) for _, pairs in threads]
    tracks.sort(key=lambda marks: int(marks[0, 1]))
    names = [kernel_name(t.function, kernels) for t in timed]
    found = []
    for thread, marks in enumerate(tracks):
        found += _spans(marks, thread, zero, names, timed)
    return sorted(found, key=lambda s: (s.start, -s.end))


def _spans(
    marks: npt.NDArray[np.int64], thread: int, zero: int, names: Sequence[str], timed: Sequence[TimedCall]
) -> list[Slice]:
    found, open_calls = [], list[tuple[int, int]]()
    for mark, time in marks.tolist():
        if mark % 2 == 0:
            open_calls.append((mark // 2, time))
        elif open_calls and open_calls[-1][0] == mark // 2:  # else an error ended the call
            number, start = open_calls.pop()
            call = timed[number]
            found.append(Slice(names[number], thread, start - zero, time - zero, call.is_share, call.function))
    return found


def kernel_name(function: str, kernels: Sequence[str]) -> str:
    """Return the kernel of a function on buffers, or the function's own name."""
    fitting = [k for k in kernels if function == k or function.startswith(f"{k}_")]
    return max(fitting, key=len, default=function)


def times_of(slices: Sequence[Slice], explanation: Explanation) -> list[KernelTime]:
    """Return the calls and total time of each kernel, the longest first."""
    by_name = {k.name: k for k in explanation.kernels}
    spent: dict[str, list[Slice]] = {}
    for span in slices:
        if not span.is_share:
            spent.setdefault(span.name, []).append(span)
    times = [
        KernelTime(name, by_name.get(name), _calls(spans, by_name.get(name)), sum(s.end - s.start for s in spans) / 1e9)
        for name, spans in spent.items()
    ]
    return sorted(times, key=lambda t: -t.seconds)


def _calls(spans: Sequence[Slice], kernel: KernelNote | None) -> int:
    """Count the runs of the last phase: earlier ones may be left out, where they pack constants."""
    last = kernel.functions[-1:] if kernel is not None else ()
    return sum(span.function in last for span in spans) or len(spans)
