"""Structural keys of epilogues: those that differ in strides alone have one function, which takes them from a table."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import defining
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.match.contraction import Contraction, EpilogueInput
from stablexla.targets.codegen.match.epilogue import stride_along

_IN_CODE = frozenset((0, 1))


@dataclass(frozen=True)
class EpilogueForm:
    """Structural key of an epilogue, and its strides.

    Attributes:
        key: equal for epilogues of equal code but for strides.
        strides: those of the results, and of the arrays that the epilogue loads, along each axis.
    """

    key: Hashable
    strides: tuple[int, ...]

    @property
    def numbers(self) -> list[int]:
        """The strides that are numbers of a table: the others, 0 and 1, are in the code."""
        return [stride for stride in self.strides if stride not in _IN_CODE]


def form_of_epilogue(contraction: Contraction) -> EpilogueForm | None:
    """Return the form of a contraction's epilogue; None where the code depends on more than the key."""
    reading = _Reading(contraction)
    if not all(reading.takes(number) for number in range(len(contraction.epilogue))):
        return None
    strides = tuple(reading.strides)
    in_code = tuple(stride if stride in _IN_CODE else None for stride in strides)
    results = tuple((reading.made[r], r.type.element_type) for r in contraction.kernel.results)
    loops = tuple(bool(axis.dims) for axis in reading.axes)  # those of one iteration have no strides in arrays
    return EpilogueForm((tuple(reading.key), results, contraction.sum_type, loops, in_code), strides)


def with_numbers(contraction: Contraction, form: EpilogueForm, numbers: Sequence[Value]) -> Contraction:
    """Return a contraction with numbers of a table in the place of its strides."""
    c, given = contraction, iter(numbers)
    # What emits addresses multiplies by a stride, and takes a value as well as a number.
    places: Iterator[Any] = iter([stride if stride in _IN_CODE else next(given) for stride in form.strides])
    # An axis of several dimensions has one stride: that of the last.
    *batch, m, n = (replace(axis, c=next(places), dims=axis.dims[-1:]) for axis in (*c.batch, c.m, c.n))

    def moved(i: EpilogueInput) -> EpilogueInput:
        if i.kind != "array":
            return i
        along = {axis.dims[-1][0]: next(places) for axis in (*batch, m, n) if axis.dims}
        return replace(i, strides=tuple(along.get(d, stride) for d, stride in enumerate(i.strides)))

    epilogue = tuple(replace(op, inputs=tuple(map(moved, op.inputs))) for op in c.epilogue)
    return replace(c, batch=tuple(batch), m=m, n=n, epilogue=epilogue)


@dataclass
class _Reading:
    contraction: Contraction
    key: list[Hashable] = field(default_factory=list)
    strides: list[int] = field(default_factory=list)
    made: dict[ir.Value, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        c = self.contraction
        self.made[c.dot] = 0
        self.axes = (*c.batch, c.m, c.n)
        self.strides += [axis.c for axis in self.axes]
        self.inputs = {c.kernel.inputs[number]: place for place, number in enumerate(c.epilogue_inputs)}

    def takes(self, number: int) -> bool:
        """Read an operation of the epilogue; return whether the key tells all of it."""
        op = self.contraction.epilogue[number]
        given, body = [self._operand(i) for i in op.inputs], _body_key(op.body)
        if body is None or any(each is None for each in given):
            return False
        self.key.append((tuple(given), body))
        for result in op.operation.results:
            self.made[result] = len(self.made)
        return True

    def _operand(self, i: EpilogueInput) -> Hashable | None:
        if i.kind == "value":
            return self.made[i.value]
        if i.value not in self.inputs:
            return _constant_key(i.value)
        if i.kind == "scalar":
            return i.kind, self.inputs[i.value], i.value.type
        strides = [stride_along(axis, i) for axis in self.axes if axis.dims]
        known = [stride for stride in strides if stride is not None]
        self.strides += known
        return (i.kind, self.inputs[i.value], i.value.type.element_type) if len(known) == len(strides) else None


def _body_key(block: ir.Block) -> tuple[Hashable, ...] | None:
    """Return a key of the computation of one element; None for one that has regions, or reads its place."""
    values: dict[ir.Value, int] = {argument: number for number, argument in enumerate(block.arguments)}
    found: list[Hashable] = []
    for view in block.operations:
        op = view.operation
        operands = tuple(values[o] if o in values else _constant_key(o) for o in op.operands)
        if any(each is None for each in operands) or len(op.regions) or op.name == "linalg.index":
            return None
        attributes = tuple((each, op.attributes[each]) for each in op.attributes)
        results = list(op.results)
        found.append((op.name, operands, attributes, tuple(result.type for result in results)))
        for result in results:
            values[result] = len(values)
    return tuple(found)


def _constant_key(value: ir.Value) -> Hashable | None:
    """Return a key of a constant from outside of a body; None of any other value."""
    maker = defining(value)
    return None if maker is None or maker.name != "arith.constant" else (maker.name, maker.attributes["value"])


__all__ = ["EpilogueForm", "form_of_epilogue", "with_numbers"]
