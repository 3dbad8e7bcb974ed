"""Findings of a comparison as plain values: differences of arrays, wrong operations, and their causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.element_types import BY_DTYPE
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.places import Place
from stablexla.inspection.judging.tolerances import distance_in_ulp

Array = npt.NDArray[Any]
EXCERPT = 2
"""Elements that are shown on either side of the worst one."""


@dataclass(frozen=True)
class Difference:
    """How two arrays of one type differ.

    Attributes:
        type: element type and shape, as XLA writes them.
        count, size: how many elements are wrong, of how many.
        index: of the worst element.
        ours, theirs: that element.
        ulp: units in the last place between the two; of integers the difference.
        largest: the largest absolute difference.
        operands: of an element-wise operation, its operands at this element.
        start: index of the first element of the excerpt.
        our_excerpt, their_excerpt: elements around the worst one, along the last dimension.
    """

    type: str
    count: int
    size: int
    index: tuple[int, ...]
    ours: str
    theirs: str
    ulp: float
    largest: float
    operands: tuple[str, ...] = ()
    start: tuple[int, ...] = ()
    our_excerpt: tuple[str, ...] = ()
    their_excerpt: tuple[str, ...] = ()

    @staticmethod
    def of(ours: Array, theirs: Array, wrong: Array, operands: Sequence[Array] = ()) -> Difference:
        """Return the difference between two arrays.

        Args:
            ours, theirs: the arrays.
            wrong: which elements count as different, flat.
            operands: the operands that they were computed from.
        """
        ulps = np.where(wrong, distance_in_ulp(ours, theirs), -1.0)
        at = int(np.argmax(ulps)) if wrong.size else 0
        index = tuple(int(i) for i in np.unravel_index(at, ours.shape)) if ours.shape else ()
        last = index[-1] if index else 0
        low, high = (max(0, last - EXCERPT), min(ours.shape[-1], last + EXCERPT + 1)) if index else (0, 0)
        row: Any = (*index[:-1], slice(low, high))
        shown = [tuple(map(text_of, a[row])) if index else () for a in (ours, theirs)]
        same = [o for o in operands if o.shape == ours.shape or not o.shape]
        elements = tuple(text_of(o[index] if o.shape else o[()]) for o in same) if len(same) == len(operands) else ()
        dims = ",".join(map(str, ours.shape))
        return Difference(
            f"{BY_DTYPE[ours.dtype].name}[{dims}]",
            int(wrong.sum()),
            int(wrong.size),
            index,
            text_of(ours[index]),
            text_of(theirs[index]),
            float(max(0.0, round(ulps.reshape(-1)[at], 1))) if wrong.size else 0.0,
            _largest(ours, theirs, wrong),
            elements,
            (*index[:-1], low) if index else (),
            *shown,
        )


def text_of(element: Any) -> str:
    """Format an element with enough digits to tell it from its neighbours."""
    value = element[()] if isinstance(element, np.ndarray) else element
    if isinstance(value, (np.bool_, bool)):
        return str(bool(value)).lower()
    return str(value)


def _largest(ours: Array, theirs: Array, wrong: Array) -> float:
    kind = np.complex128 if ours.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        apart = np.abs(ours.astype(kind) - theirs.astype(kind)).reshape(-1)[wrong]
    return float(np.nanmax(apart, initial=0.0)) if not np.isnan(apart).all() else float("nan")


@dataclass(frozen=True)
class RegionStep:
    """A step into a region of an operation.

    Attributes:
        operation: its name.
        place: its place in the source.
        what: the iteration of the loop, or the branch: `turn 3`, `branch 0`.
    """

    operation: str
    place: Place
    what: str


@dataclass(frozen=True)
class SuspectKernel:
    """A kernel of the compiled program, and its operations.

    Attributes:
        name, kind, path: as in `executable.kernels`.
        operations: name and place of each operation in it that is known.
    """

    name: str
    kind: str
    path: str
    operations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cause:
    """The change that made a right program wrong.

    Attributes:
        step: the pipeline's step; "" when it is none of them.
        change: what was changed there: a pass, its options, or an option of the compilation.
        kernel: the kernel that is wrong, when it is one.
        rule: the lowering rule, when that is at fault: `multiply (lowering/rules/elementwise.py:12)`.
        note: how it is known.
        tried: programs that were compiled to find out.
    """

    step: str = ""
    change: str = ""
    kernel: SuspectKernel | None = None
    rule: str = ""
    note: str = ""
    tried: int = 0


@dataclass(frozen=True)
class SmallProgram:
    """A program that shows the difference, with its arguments.

    Attributes:
        text: MLIR.
        arguments: an array for each parameter.
        operations: how many operations it has.
        wanted: the right results, where they are known.
        pipeline: the steps that it has to be compiled by, where these are not the target's own.
    """

    text: str
    arguments: tuple[Array, ...] = field(repr=False)
    operations: int
    wanted: tuple[Array, ...] | None = field(default=None, repr=False)
    pipeline: str = ""


@dataclass(frozen=True)
class Finding:
    """The first wrong operation in program order.

    Attributes:
        operation: its name.
        text: MLIR's text of it.
        number: which operation of the program it is, from 0; those of called functions count where they are called.
        place: where it comes from.
        result: which of its results is wrong.
        difference: how.
        method: which way it was found: "operation", "prefix" or "rounding".
        turns: the loops and branches around it, outermost first.
        after: for "prefix", the operation that made it wrong by being there too.
        cause: the step, pass or kernel that did it, where that was looked for.
        program: the smallest program found that shows it.
    """

    operation: str
    text: str
    number: int
    place: Place
    result: int
    difference: Difference
    method: str
    turns: tuple[RegionStep, ...] = ()
    after: str = ""
    cause: Cause | None = None
    program: SmallProgram | None = None


@dataclass(frozen=True)
class NotJudged:
    """Operations whose results were not compared, and why."""

    operation: str
    reason: str
    places: tuple[Place, ...]
