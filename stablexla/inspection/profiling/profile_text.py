"""A profile as a table."""

from __future__ import annotations

import io
from fnmatch import fnmatchcase
from typing import Literal

from rich.console import Console
from rich.table import Table

from stablexla.inspection.explaining.explanation_text import WIDTH, no_kernel, number, path_of, size, spans
from stablexla.inspection.profiling.profile import KernelTime, Profile

_BAR = 8
_LEFT = ("kernel", "kind", "path", "", "bound", "operations")
_COLUMNS = (
    *("kernel", "kind", "path", "time", "", "calls", "us a call", "bytes", "flops"),
    *("bandwidth", "peak", "threads", "bound", "operations"),
)


def text_of(profile: Profile, width: int = WIDTH, *, kernels: str = "*") -> str:
    """Return a row for each kernel whose name fits the pattern, the longest first, and the time outside all kernels."""
    rows = [row for row in profile.kernels if fnmatchcase(row.name, kernels)]
    if kernels != "*" and not rows:
        return no_kernel(kernels, [row.name for row in profile.kernels])
    table = Table(box=None, pad_edge=False, header_style="bold", title=_title(profile), title_justify="left")
    for name in _COLUMNS:
        side: Literal["left", "right"] = "left" if name in _LEFT else "right"
        table.add_column(name, justify=side, overflow="fold", no_wrap=name != "operations")
    for row in rows:
        table.add_row(*_row(profile, row))
    share = profile.outside / (profile.seconds * profile.devices)
    if kernels == "*":
        table.add_row("outside", "", "", f"{share:.1%}", _bar(share))
    file = io.StringIO()
    Console(file=file, width=width, legacy_windows=False).print(table)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _title(profile: Profile) -> str:
    return (
        f"kernels of {profile.name}: calls of one run, bytes and flops of one call, "
        "shares of this machine's bandwidth, peak and threads"
    )


def _row(profile: Profile, row: KernelTime) -> tuple[str, ...]:
    share = row.seconds / (profile.seconds * profile.devices)
    kernel = row.kernel
    return (
        row.name,
        kernel.kind if kernel else "",
        path_of(kernel) if kernel else "",
        f"{share:.1%}",
        _bar(share),
        f"{row.calls / (profile.runs * profile.devices):g}",
        f"{1e6 * row.seconds / row.calls:.2f}",
        size(kernel.cost.read + kernel.cost.written) if kernel else "",
        number(kernel.cost.flops) if kernel else "",
        percent(row.bandwidth),
        percent(row.peak),
        percent(row.busy),
        row.bound,
        spans(kernel.operations) if kernel else "",
    )


def percent(share: float | None) -> str:
    """Format a share; a dash where it is not known.

    >>> percent(0.254), percent(0.004), percent(None)
    ('25%', '0.4%', '-')
    """
    return "-" if share is None else f"{share:.1%}" if 0 < share < 0.01 else f"{share:.0%}"


def _bar(share: float) -> str:
    return "█" * round(_BAR * max(0.0, min(1.0, share)))
