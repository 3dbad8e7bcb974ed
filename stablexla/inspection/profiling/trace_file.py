"""A profile as a file in Chrome's trace format, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stablexla.inspection.profiling.profile import Profile

_RUNS = 0
"""The track of the runs; those of threads follow, the calling one first."""


def write_trace(profile: Profile, path: Path) -> None:
    """Write the file."""
    events = [*_names(profile), *_events(profile)]
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}), encoding="utf-8")


def _names(profile: Profile) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": profile.name}}
    threads = sorted({s.thread for s in profile.slices})
    tracks = {_RUNS: "runs"} if profile.spans else {}
    tracks |= {thread + 1: f"worker {thread}" if thread else "caller" for thread in threads}
    for track, name in tracks.items():
        yield {"ph": "M", "pid": 0, "tid": track, "name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", "pid": 0, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}}


def _events(profile: Profile) -> Iterator[dict[str, Any]]:
    kernels = {k.name: k for k in profile.explanation.kernels}
    for number, (start, end) in enumerate(profile.spans, 1):
        yield {"ph": "X", "pid": 0, "tid": _RUNS, "name": f"run {number}", "cat": "run", **_span(start, end)}
    for span in profile.slices:
        kernel = kernels.get(span.name)
        yield {
            "ph": "X",
            "pid": 0,
            "tid": span.thread + 1,
            "name": f"{span.name} (share)" if span.is_share else span.name,
            "cat": kernel.kind if kernel else "call",
            **_span(span.start, span.end),
            "args": _arguments(profile, kernel),
        }


def _span(start: int, end: int) -> dict[str, float]:
    """Return the fields of a span of nanoseconds: the format has microseconds."""
    return {"ts": start / 1e3, "dur": (end - start) / 1e3}


def _arguments(profile: Profile, kernel: Any) -> dict[str, Any]:
    """Return the details that the viewer shows of a selected slice."""
    if kernel is None:
        return {}
    operations = [profile.explanation.operations[n] for n in kernel.operations]
    return {
        "operations": [f"{op.name} at {op.place}" if op.place.is_known else op.name for op in operations],
        "bytes read": kernel.cost.read,
        "bytes written": kernel.cost.written,
        **({} if kernel.cost.flops is None else {"flops": kernel.cost.flops}),
    }
