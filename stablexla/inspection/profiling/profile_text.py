"""A profile as a table."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from stablexla.inspection.explaining.explanation_text import WIDTH, number, size, spans
from stablexla.inspection.profiling.profile import KernelTime, Profile

_BAR = 20


def text_of(profile: Profile, width: int = WIDTH) -> str:
    """Return a row for each kernel, the longest first, and the time outside all kernels."""
    table = Table(box=None, pad_edge=False, header_style="bold", title=_title(profile), title_justify="left")
    for name in ("kernel", "kind", "share", "", "calls a run", "us a call", "bytes/s", "flops/s", "operations"):
        table.add_column(name, justify="left" if name in ("kernel", "kind", "", "operations") else "right")
    for row in profile.kernels:
        table.add_row(*_row(profile, row))
    share = profile.outside / (profile.seconds * profile.devices)
    table.add_row("outside", "", f"{share:.1%}", _bar(share))
    file = io.StringIO()
    Console(file=file, width=width, legacy_windows=False).print(table)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _title(profile: Profile) -> str:
    where = f" on {profile.devices} devices" if profile.devices > 1 else ""
    return f"{profile.name}: {profile.runs} runs{where}, {1e6 * profile.seconds / profile.runs:.1f} us each"


def _row(profile: Profile, row: KernelTime) -> tuple[str, ...]:
    share = row.seconds / (profile.seconds * profile.devices)
    call = row.seconds / row.calls
    kernel = row.kernel
    # A kernel of several phases is called several times for one piece of work.
    moved, flops = ("-", "-") if kernel is None else _rates(profile, row, kernel.cost)
    return (
        row.name,
        kernel.kind if kernel else "",
        f"{share:.1%}",
        _bar(share),
        f"{row.calls / (profile.runs * profile.devices):g}",
        f"{1e6 * call:.2f}",
        moved,
        flops,
        spans(kernel.operations) if kernel else "",
    )


def _rates(profile: Profile, row: KernelTime, cost: object) -> tuple[str, str]:
    from stablexla.inspection.profiling.kernel_costs import Cost

    assert isinstance(cost, Cost)
    phases = max(1, row.kernel.phases if row.kernel else 1)
    works = row.calls / phases
    if row.seconds == 0:
        return "-", "-"
    moved = size(int((cost.read + cost.written) * works / row.seconds)) + "/s"
    return moved, "-" if cost.flops is None else number(int(cost.flops * works / row.seconds))


def _bar(share: float) -> str:
    return "█" * round(_BAR * max(0.0, min(1.0, share)))
