"""A profile in a notebook: a row for each kernel."""

from __future__ import annotations

from stablexla.dialects.display.html_table import html_table, html_title
from stablexla.inspection.explaining.explanation_text import number, size, spans
from stablexla.inspection.profiling.profile import KernelTime, Profile

_NUMBERS = ("share", "us a run", "us a call", "calls a run", "reads", "writes", "flops")
_HEADS = ("kernel", "kind", *_NUMBERS, "operations")


def html_of(profile: Profile) -> str:
    """Return the times of all kernels, the longest first, and the time outside of them."""
    outside = share_of(profile, profile.outside)
    runs = f"{profile.runs} runs, {1e6 * profile.seconds / profile.runs:.1f} us each; bytes and flops of one call"
    rows = [*(_row(profile, each) for each in profile.kernels), ("outside", "", outside, *[""] * 7)]
    return html_title(profile.name, runs) + html_table(_HEADS, rows, _NUMBERS)


def share_of(profile: Profile, seconds: float) -> str:
    """Return a part of the time of all runs, in percent."""
    whole = profile.seconds * profile.devices
    return f"{seconds / whole:.1%}" if whole else "-"


def times_of_kernel(profile: Profile, row: KernelTime) -> tuple[str, str]:
    """Return the microseconds that a kernel takes in a run and in a call."""
    return f"{1e6 * row.seconds / (profile.runs * profile.devices):.2f}", f"{1e6 * row.seconds / row.calls:.2f}"


def _row(profile: Profile, row: KernelTime) -> tuple[str, ...]:
    kernel = row.kernel
    cost = kernel.cost if kernel else None
    return (
        row.name,
        kernel.kind if kernel else "",
        share_of(profile, row.seconds),
        *times_of_kernel(profile, row),
        f"{row.calls / (profile.runs * profile.devices):g}",
        *(("", "", "") if cost is None else (size(cost.read), size(cost.written), number(cost.flops))),
        spans(kernel.operations) if kernel else "",
    )
