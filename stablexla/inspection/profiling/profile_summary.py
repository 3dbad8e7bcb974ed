"""The first lines of a profile: at most twenty, on the kernels that take the time, what binds them, and what to try."""

from __future__ import annotations

from stablexla.inspection.explaining.explanation_summary import MOST, counted, operations_of, shortened
from stablexla.inspection.explaining.explanation_text import number, path_of, size
from stablexla.inspection.profiling.profile import KernelTime, Profile
from stablexla.inspection.profiling.profile_text import percent

MUCH = 0.3
"""Share of the time outside of kernels that deserves a hint."""


def summary_of(profile: Profile) -> str:
    """Return the times of a run, of the kernels that take most of it, and of the rest."""
    where = f" on {profile.devices} devices" if profile.devices > 1 else ""
    lines = [f"{profile.name}: {counted(profile.runs, 'run')}{where}, {_us(profile.seconds / profile.runs)} each"]
    if profile.limits is not None:
        limits = profile.limits
        lines.append(
            f"{limits.processor}, {counted(limits.threads, 'thread')}: "
            f"{number(int(limits.bandwidth))}B/s to and from memory, {number(int(limits.peak))}flop/s on f32"
        )
    for row in profile.kernels[:MOST]:
        lines += _of_kernel(profile, row)
    return "\n".join([*lines, *_rest(profile)])


def _of_kernel(profile: Profile, row: KernelTime) -> list[str]:
    share = row.seconds / (profile.seconds * profile.devices)
    rounds = profile.runs * profile.devices
    times = f"{share:.1%}  {row.name}  {_us(row.seconds / rounds)} a run, calls: {row.calls / rounds:g}"
    if row.kernel is None:
        return [times]
    cost = row.kernel.cost
    lines = [f"{times}; {_bound(row)}"]
    work = f"{size(cost.read + cost.written)}, {number(cost.flops)} flops a call"
    lines.append(
        f"  {row.kernel.kind}, {path_of(row.kernel)}, {work}: {operations_of(profile.explanation, row.kernel)}"
    )
    why = f"no emitter took it: {row.kernel.refusal.why}; " if row.kernel.refusal is not None else ""
    return [*lines, shortened(f"  {why}try: {row.hint}", 240)] if row.hint else lines


def _bound(row: KernelTime) -> str:
    """Return the bound with the shares that tell of it."""
    if row.busy is None:
        return f"bound: {row.bound or 'not known'}"
    shares = {"bandwidth": row.bandwidth, "peak": row.peak, "threads": row.busy}
    named = [f"{percent(share)} of {what}" for what, share in shares.items() if share is not None]
    return f"bound: {row.bound} ({', '.join(named)})"


def _rest(profile: Profile) -> list[str]:
    whole = profile.seconds * profile.devices
    lines = []
    if left := profile.kernels[MOST:]:
        lines.append(f"{sum(r.seconds for r in left) / whole:.1%}  {counted(len(left), 'other kernel')}")
    share = profile.outside / whole
    text = f"{share:.1%}  outside kernels: arguments, results, scalars and control flow"
    if share >= MUCH:
        text += "; try: larger arrays, or loops inside the program"
    return [*lines, text]


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} us"
