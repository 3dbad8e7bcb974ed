"""Tracing of Python functions that are given for computations, and the values around them that they read.

A function is traced by a builder of its own, inside that of the operation that it is given to. An op of a builder
around it becomes a further parameter there, captured; `emit` gives the operation, or the call, its value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import jaxlib.mlir.ir as ir

from stablexla.builder.checking import Rules, as_constant
from stablexla.builder.computation import XlaComputation
from stablexla.builder.op import XlaOp
from stablexla.builder.source import raised_by_user
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.errors import StablexlaError
from stablexla.dialects.shapes import Shape

if TYPE_CHECKING:
    from stablexla.builder.builder import XlaBuilder

_local = threading.local()


def _active() -> list[XlaBuilder]:
    """Return the builders of the functions that this thread is tracing, innermost last."""
    found: list[XlaBuilder] | None = getattr(_local, "active", None)
    if found is None:
        found = _local.active = []
    return found


class Nesting:
    """Mixin of XlaBuilder: the builders around it, and the values of theirs that it captures."""

    _block: ir.Block
    _end: ir.InsertionPoint

    def _begin_nesting(self, outer: XlaBuilder | None) -> None:
        self._outer = outer
        self.device_counts: dict[str, int] = {} if outer is None else outer.device_counts
        """How many replicas, partitions and devices the groups of its collectives list, as far as that is known."""
        self._here: dict[ir.Value, ir.Value] = {}
        self.captured: dict[ir.BlockArgument, XlaOp] = {}
        """The ops of the builder around it that it reads, by the arguments of the block for them."""
        self.has_ended = False
        """Whether it is that of a traced function that has returned: nothing outside may use its ops."""

    def innermost(self) -> XlaBuilder:
        """Return the builder of the function that is being traced inside of this one, else this one.

        What a function writes is part of its computation, also where all operands are from around it.
        """
        for builder in reversed(_active()):
            if builder.is_inside(self):
                return builder
        return self  # type: ignore[return-value]

    def is_inside(self, other: object) -> bool:
        """Return whether `other` is this builder, or around it, so that its ops can be read here."""
        return self is other or (self._outer is not None and self._outer.is_inside(other))

    def lift(self, op: XlaOp) -> XlaOp:
        """Return `op`, of this builder or of one around it, as an op of this one."""
        if op.builder is self:
            return op
        leaves = zip(op.values, op.shape.leaves)
        values = tuple(self._passed(XlaOp(op.builder, leaf, (value,), op.name)) for value, leaf in leaves)
        return XlaOp(self, op.shape, values, op.name)  # type: ignore[arg-type]

    def _passed(self, op: XlaOp) -> ir.Value:
        """Return the value here of an array or token around it; a number is written once more."""
        (value,) = op.values
        if value not in self._here:
            if _is_number(op):
                self._here[value] = value.owner.operation.clone(ip=self._end).results[0]
            else:
                assert self._outer is not None, "Rules.one_builder refuses what is not around it"
                argument = self._here[value] = self._block.add_argument(value.type, value.location)
                self.captured[argument] = self._outer.lift(op)
        return self._here[value]


def _is_number(op: XlaOp) -> bool:
    owner = op.values[0].owner
    return op.shape.is_scalar and not isinstance(owner, ir.Block) and bool(owner.name == "stablehlo.constant")


@contextmanager
def _tracing(builder: XlaBuilder) -> Iterator[None]:
    _active().append(builder)
    try:
        yield
    finally:
        _active().remove(builder)
        builder.has_ended = True


def trace(
    rule: Rules, name: str, function: Callable[..., object], shapes: Sequence[Shape], builder: XlaBuilder
) -> XlaComputation:
    """Return the computation that a Python function builds in `builder`, called with parameters of these shapes.

    It returns an op, or a sequence of ops for a tuple.
    """
    with _tracing(builder):
        result = _applied(rule, name, function, [builder.parameter(number, each) for number, each in enumerate(shapes)])
        if isinstance(result, (tuple, list)):
            result = rule.packed(f"the result of {name}", result) if result else builder.empty_tuple()
        if not isinstance(result, XlaOp):
            said = f"{name} must return an XlaOp or a sequence of them, not {told(result)}"
            rule.broken("", said, as_constant(result))
        if not builder.is_inside(result.builder):
            rule.foreign(f"{name} returns an op of another builder, {result.builder.name!r}", [result])
        return builder.build(builder.lift(result))


def title_of(function: Callable[..., object], name: str) -> str:
    """Return the name of the computation of a function that is given for the parameter `name`."""
    title = getattr(function, "__name__", name)
    return title if isinstance(title, str) and title != "<lambda>" else name


def _applied(rule: Rules, name: str, function: Callable[..., object], parameters: Sequence[XlaOp]) -> object:
    """Call a user's function and return its result; one that can't be called with these parameters breaks a rule.

    An error of the user's own code is passed on unchanged.
    """
    try:
        return function(*parameters)
    except Exception as error:
        if getattr(error, "operation", "") or raised_by_user(error):
            raise
        reason = error.summary if isinstance(error, StablexlaError) else error
        shapes = ", ".join(str(parameter.shape) for parameter in parameters)
        packed = len(parameters) == 1 and parameters[0].shape.is_tuple
        hint = f"{name} takes one parameter, the tuple: a, b = state takes it apart" if packed else ""
        rule.broken("", f"{name} {told(function)} can't be called with ops of shapes {shapes}: {reason}", hint)
