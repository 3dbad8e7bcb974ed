"""Schedules: which loops of a kernel are shared by threads, unrolled and put in lanes, as values and as text.

A target chooses the schedule of a kernel and says why, and its emitter emits the steps, the outermost first. A rule of
the user's may choose another one: `CompileOptions(schedules=...)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from math import lcm

from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import SCHEDULES, active_rules, applied
from stablexla.targets.codegen.sizes import rounded_up

THREAD, PARALLEL, REDUCED, UNROLLED, LANE = ROLES = ("thread", "parallel", "reduced", "unrolled", "lane")
MOST_SIDE_BY_SIDE, MOST_LANES = 16, 128
Form = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Step:
    """One step of a schedule: an axis of the loop nest in a role.

    Attributes:
        role: "thread", work items, which threads share; "parallel", a loop of independent iterations; "reduced", a loop
            over a reduced axis; "unrolled", side by side in the code; "lane", side by side in a vector.
        axis: number of the loop; 0 is the outermost.
        sizes: of "thread" the indices of an item; of "unrolled" and "lane" how many are side by side, one number or one
            for each pass over the rows. Loops advance by what is side by side inside of them, and have no size.
    """

    role: str
    axis: int
    sizes: tuple[int, ...] = (1,)

    def __str__(self) -> str:
        sizes = ",".join(map(str, self.sizes))
        size = {THREAD: f" by {sizes}", UNROLLED: f" x{sizes}", LANE: f" x{sizes}"}.get(self.role, "")
        return f"{self.role} d{self.axis}" + ("" if (self.role, sizes) == (THREAD, "1") else size)


@dataclass(frozen=True)
class Schedule:
    """The steps of a kernel's loop nest, the outermost first, and why a target has chosen them.

    >>> rows = Schedule.parse("thread d0; reduced d1; unrolled d1 x4; lane d1 x8")
    >>> print(rows.resized("unrolled", 1, 2))
    thread d0; reduced d1; unrolled d1 x2; lane d1 x8
    """

    steps: tuple[Step, ...]
    why: str = ""

    @staticmethod
    def parse(text: str) -> Schedule:
        """Parse what `str` spells.

        Raises:
            CompileError: a step that is none.
        """
        steps = []
        for part in map(str.strip, text.split(";")):
            match = re.fullmatch(r"(\w+) d(\d+)(?: (?:by |x)(\d+(?:,\d+)*))?", part)
            if match is None or match[1] not in ROLES:
                raise CompileError(f"{part!r} is no step of a schedule", hint=f"{'|'.join(ROLES)} dAXIS xSIZE")
            steps.append(Step(match[1], int(match[2]), tuple(map(int, (match[3] or "1").split(",")))))
        return Schedule(tuple(steps))

    def __str__(self) -> str:
        return "; ".join(map(str, self.steps))

    @property
    def form(self) -> Form:
        """The steps without their sizes."""
        return tuple((step.role, step.axis) for step in self.steps)

    @property
    def lanes(self) -> int:
        """Lanes of vectors; 0 is scalar."""
        return next((step.sizes[0] for step in self.steps if step.role == LANE), 0)

    def size(self, role: str, axis: int, default: int = 1, number: int = 0) -> int:
        """Return the size of an axis in a role, in pass `number`; the default where it has not this role."""
        found = next((s.sizes for s in self.steps if (s.role, s.axis) == (role, axis)), (default,))
        return found[number % len(found)]

    def resized(self, role: str, axis: int, *sizes: int) -> Schedule:
        """Return the schedule with another size of an axis in a role.

        Raises:
            CompileError: the axis has not this role.
        """
        if (role, axis) not in self.form:
            raise CompileError(f"the schedule `{self}` has no step `{role} d{axis}`", hint="one of its steps")
        return Schedule(
            tuple(Step(role, axis, sizes) if (s.role, s.axis) == (role, axis) else s for s in self.steps), self.why
        )


@dataclass(frozen=True)
class ScheduleNote:
    """The schedule of a kernel, as a kernel's calling convention notes it: its steps as text, and why these."""

    steps: str
    why: str


# --- rules of users ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScheduledKernel:
    """A kernel as a rule for schedules sees it.

    Attributes:
        name, kind: as in the stage "kernels".
        extents: trip counts of the loops of its nest, the outermost first.
        reduced: the loops that are reduced.
        cost: vector instructions of each pass over the rows, about.
        vector_bits: width of a register.
    """

    name: str
    kind: str
    extents: tuple[int, ...]
    reduced: tuple[int, ...]
    cost: tuple[int, ...]
    vector_bits: int

    def __str__(self) -> str:
        loops = (f"d{d} of {n}" + (" reduced" if d in self.reduced else "") for d, n in enumerate(self.extents))
        return f"{self.name} ({', '.join(loops)})"


ScheduleRule = Callable[[ScheduledKernel, Schedule], Schedule | None]


def decide(kernel: ScheduledKernel, chosen: Schedule, forms: Callable[[], Collection[Form]]) -> Schedule:
    """Return the schedule that the user's rule gives a kernel, or else the target's.

    Args:
        chosen: the target's.
        forms: those that the target can emit for the kernel.

    Raises:
        CompileError: the rule's schedule is none of these, or has sizes that do not fit.
    """
    rule = active_rules().get(SCHEDULES)
    if rule is None or 0 in kernel.extents:
        return chosen
    applied(rule)
    given = rule(kernel, chosen)
    if given is None or given == chosen:
        return chosen
    if not isinstance(given, Schedule):
        raise CompileError(f"{rule} gave a {type(given).__name__} for {kernel}", hint="return a Schedule, or None")
    problem = _wrong_form(given.form, forms())
    if problem is None:
        problem = next(filter(None, (_wrong_size(given, kernel, step) for step in given.steps)), None)
    if problem is not None:
        raise CompileError(f"{rule} gave {kernel} the schedule `{given}`: {problem[0]}", hint=problem[1])
    return Schedule(given.steps, f"the rule {rule.label}")


def _wrong_form(given: Form, forms: Collection[Form]) -> tuple[str, str] | None:
    """Return which step cannot stand where it does, and those that can."""
    if given in forms:
        return None
    right = max(n for form in forms for n in range(len(form) + 1) if form[:n] == given[:n] and n <= len(given))
    others = {form[right : right + 1] for form in forms if form[:right] == given[:right]}
    hints = (f"`{other[0][0]} d{other[0][1]}`" if other else "no step more" for other in others)
    found = "it is missing"
    if right < len(given):
        found = f"d{given[right][1]} cannot have the role {given[right][0]!r} here"
    return f"step {right + 1}: {found}", " or ".join(sorted(hints))


def _wrong_size(schedule: Schedule, kernel: ScheduledKernel, step: Step) -> tuple[str, str] | None:
    """Return what is wrong with the size of a step, and a size that is right."""
    role, axis, size = step.role, step.axis, step.sizes[0]
    lanes, extent = max(1, schedule.size(LANE, axis)), kernel.extents[axis]
    is_loop = not {(PARALLEL, axis), (REDUCED, axis)}.isdisjoint(schedule.form)
    whole = lanes * lcm(*(max(1, schedule.size(UNROLLED, axis, number=n)) for n in range(len(kernel.cost))))
    most = {UNROLLED: MOST_SIDE_BY_SIDE, LANE: MOST_LANES}.get(role, rounded_up(extent, whole))
    why, right = "", size
    if len(step.sizes) > 1 and (role != UNROLLED or len(step.sizes) != len(kernel.cost)):
        why = "it has one size" + f", or one for each of {len(kernel.cost)} passes" * (role == UNROLLED)
    elif role == UNROLLED and not is_loop and (THREAD, axis) not in schedule.form and size != -(-extent // lanes):
        why, right = f"no loop has the rest of the {extent} indices", -(-extent // lanes)
        if right > most:
            return f"`{step}`: {why}", f"`{REDUCED if axis in kernel.reduced else PARALLEL} d{axis}` before it"
    elif not all(1 <= n <= most for n in step.sizes):
        why, right = f"sizes are 1 to {most}", min(max(1, size), most)
    elif role == LANE and (size < 2 or size & (size - 1)):
        why, right = "lanes are a power of two", max(2, 1 << size.bit_length() - 1)
    elif role == THREAD and (size % whole if is_loop else size != whole):
        why = f"an item has {'a multiple of ' * is_loop}{whole} of the indices"
        right = rounded_up(size, whole) if is_loop else whole
    return (f"`{step}`: {why}", f"`{Step(role, axis, (right,))}`") if why else None
