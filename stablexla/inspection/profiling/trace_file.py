"""A profile as a file in Chrome's trace format, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stablexla.inspection.profiling.profile import Profile


def write_trace(profile: Profile, path: Path) -> None:
    """Write the file."""
    events = [*_names(profile), *_events(profile)]
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}), encoding="utf-8")


def _names(profile: Profile) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": profile.name}}
    for thread in sorted({s.thread for s in profile.slices}):
        name = "caller" if thread == 0 else f"worker {thread}"
        yield {"ph": "M", "pid": 0, "tid": thread, "name": "thread_name", "args": {"name": name}}


def _events(profile: Profile) -> Iterator[dict[str, Any]]:
    kernels = {k.name: k for k in profile.explanation.kernels}
    for span in profile.slices:
        kernel = kernels.get(span.name)
        yield {
            "ph": "X",
            "pid": 0,
            "tid": span.thread,
            "name": f"{span.name} (share)" if span.is_share else span.name,
            "cat": kernel.kind if kernel else "call",
            "ts": span.start / 1e3,
            "dur": (span.end - span.start) / 1e3,
            "args": _arguments(profile, kernel),
        }


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
