"""Rules that operands must keep, checked where an operation is built, with the StableHLO specification's numbers.

`checking` opens the check of one operation; what it yields is called once for each rule and raises `ShapeError` with
the operation, the rule, the operands' shapes, the user's line and a way out.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Sequence
from operator import index
from types import TracebackType
from typing import NoReturn

import numpy as np

from stablexla.constants import as_array
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.errors import ShapeError
from stablexla.dialects.shapes import Shape
from stablexla.op import XlaOp
from stablexla.ops.registry import REGISTRY
from stablexla.source import user_line

#: What stands for an operand in a public signature: an op, or a number that takes the type of the other operand.
Operand = XlaOp | complex
#: One op or several, for parameters such as `operands` and `init_values`.
Operands = XlaOp | Sequence[XlaOp]


class Rules:
    """The rules of one use of an operation; calling it checks one."""

    def __init__(self, operation: str, operands: dict[str, object]) -> None:
        self.operation = operation
        self.operands = operands

    def __enter__(self) -> Rules:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What was found on the way, such as a negative dimension, is told as this operation's error.
        if isinstance(error, ShapeError) and not error.operation:
            raise self._error(error.rule, error.summary, error.hint) from None

    def __call__(self, rule: str, holds: bool, summary: str, hint: str = "") -> None:
        """Raises `ShapeError` when `rule` does not hold; `summary` says what it asks for."""
        if not holds:
            self.broken(rule, summary, hint)

    def broken(self, rule: str, summary: str, hint: str = "") -> NoReturn:
        """Raises the error of a rule that is already known to be broken."""
        raise self._error(rule, summary, hint)

    def _error(self, rule: str, summary: str, hint: str) -> ShapeError:
        shown = {name: _shown(value) for name, value in self.operands.items() if value is not None}
        return ShapeError(summary, operation=self.operation, rule=rule, operands=shown, source=user_line(), hint=hint)

    def types(self, **ops: XlaOp) -> None:
        """Each of `ops` must have an element type that the operation's table entry allows.

        The rules are I1, I2 ..., by the operands' places: so the specification numbers the inputs.
        """
        entry = REGISTRY[self.operation]
        self.arrays(**ops)
        for place, (name, op) in enumerate(ops.items(), start=1):
            if not entry.allows(op.shape.element_type):
                given = op.shape.element_type
                self.broken(f"I{place}", f"{name} must be of {entry.types_in_words} type, not {given}")

    def arrays(self, **ops: XlaOp) -> None:
        """Each of `ops` must be an array."""
        for name, op in ops.items():
            if not op.shape.is_array:
                self.broken("", f"{name} must be an array, not {_a(op.shape)}")

    def op(self, name: str, value: object) -> XlaOp:
        """`value`, which must be an op."""
        if not isinstance(value, XlaOp):
            self.broken("", f"{name} must be an XlaOp, not {_kind(value)}", _as_constant(value))
        return value

    def ops(self, **values: object) -> list[XlaOp]:
        """The operands as ops of one builder; numbers become scalars of the first op's element type."""
        found = [value for value in values.values() if isinstance(value, XlaOp)]
        if not found:
            self.broken("", f"{' or '.join(values)} must be an XlaOp", "b.constant(...) makes one of a value")
        self.one_builder(found)
        return [
            value if isinstance(value, XlaOp) else self._number(name, value, found[0]) for name, value in values.items()
        ]

    def _number(self, name: str, value: object, like: XlaOp) -> XlaOp:
        if not is_number(value):
            self.broken("", f"{name} must be an XlaOp, not {_kind(value)}", _as_constant(value))
        if not like.shape.is_array:
            self.broken("", f"the number {value!r} has no type beside {_a(like.shape)}")
        return like.builder.constant(as_array(value, like.shape.element_type))

    def one_builder(self, ops: Iterable[XlaOp]) -> None:
        """All `ops` must come from one builder."""
        builders = {id(op.builder): op.builder for op in ops}
        if len(builders) > 1:
            names = " and ".join(repr(builder.name) for builder in builders.values())
            self.broken(
                "",
                f"the operands come from different builders, {names}",
                "a computation sees only its own parameters: pass the value in as one",
            )

    def sequence(self, name: str, value: object) -> list[XlaOp]:
        """One op or a sequence of ops, as a list."""
        if isinstance(value, XlaOp):
            return [value]
        if isinstance(value, str) or not isinstance(value, Iterable):
            self.broken("", f"{name} must be an XlaOp or a sequence of them, not {_kind(value)}")
        return [self.op(f"{name}[{position}]", each) for position, each in enumerate(value)]

    def integers(self, name: str, value: object) -> tuple[int, ...]:
        """A sequence of integers."""
        try:
            return tuple(map(index, value))  # type: ignore[call-overload]  # the error is ours
        except TypeError:
            self.broken("", f"{name} must be a sequence of integers, not {value!r}")

    def integer(self, name: str, value: object) -> int:
        """One integer."""
        try:
            return index(value)  # type: ignore[arg-type]  # the error is ours
        except TypeError:
            self.broken("", f"{name} must be an integer, not {value!r}")


def checking(operation: str, /, **operands: object) -> Rules:
    """Opens the check of `operation`; `operands` are shown in its errors under their names.

    >>> with checking("clamp", min=sx.f32[2]) as rule:
    ...     rule("C1", False, "min must be a scalar or have operand's shape")
    Traceback (most recent call last):
    stablexla.dialects.errors.ShapeError: clamp: min must be a scalar or have operand's shape (C1)
      min  f32[2]
    ...
    """
    return Rules(operation, operands)


def same(values: Iterable[object]) -> bool:
    """All values are equal."""
    rest = iter(values)
    first = next(rest, None)
    return all(value == first for value in rest)


def same_element_type(*ops: XlaOp) -> bool:
    """All arrays have one element type."""
    return same(op.shape.element_type for op in ops)


def is_number(value: object) -> bool:
    """A Python or numpy number (or truth value), no array."""
    if isinstance(value, np.ndarray):
        return False
    return isinstance(value, (numbers.Number, np.generic))


def each(what: str, test: Callable[[ElementType], bool], ops: Iterable[XlaOp]) -> str:
    """The first of `ops` that fails `test`, told as "what k is t", or ""."""
    for position, op in enumerate(ops):
        if not test(op.shape.element_type):
            return f"{what} {position} is {op.shape.element_type}"
    return ""


def _shown(value: object) -> str:
    if isinstance(value, XlaOp):
        return str(value.shape)
    if isinstance(value, (Shape, ElementType, str)):
        return str(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, (XlaOp, Shape)) for item in value):
        return ", ".join(map(_shown, value))
    return repr(value)


def _a(shape: Shape) -> str:
    return "a tuple" if shape.is_tuple else "a token" if shape.is_token else str(shape)


def _kind(value: object) -> str:
    return f"{value!r}" if is_number(value) or value is None else f"a {type(value).__name__}"


def _as_constant(value: object) -> str:
    return "b.constant(value) makes an XlaOp of it" if isinstance(value, (np.ndarray, list)) or is_number(value) else ""
