"""Checks of operands when an operation is built, with the rule numbers of the StableHLO specification.

`checking` opens the check of one operation; call its `rule` once for each rule: it raises `ShapeError` with
the operation, the rule, the operands' shapes, the user's line and a way out. Its methods coerce the arguments of
each kind: operands here, plain values by `arguments.py`, whose errors get the operation's name here.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeVar

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.builder.constants import as_array
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import REGISTRY
from stablexla.builder.source import user_line
from stablexla.dialects.attributes import arguments
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.element_types import ElementType, element_type
from stablexla.dialects.errors import ShapeError
from stablexla.dialects.shapes import Shape

if TYPE_CHECKING:
    from stablexla.builder.builder import XlaBuilder

#: An operand in a public signature: an op, or a number that takes the type of the other operand.
Operand = XlaOp | complex
#: One op or several, for parameters such as `operands`.
Operands = XlaOp | Sequence[XlaOp]
#: A scalar for each operand; numbers take the operands' types.
InitValues = Operand | Sequence[Operand]
#: An op, or a sequence of them that stands for the tuple.
Packed = XlaOp | Sequence["Packed"]
#: The sizes of dimensions, or a shape that has them.
Sizes = Sequence[int] | Shape


T = TypeVar("T")

_MOST_SHOWN, _WIDEST = 16, 200
"""Operands of a sequence, and characters of each, that errors show."""


class Rules:
    """The rules of one use of an operation; a call checks one rule."""

    def __init__(self, operation: str, operands: dict[str, object]) -> None:
        self.operation = operation
        self.operands = operands

    def __enter__(self) -> Rules:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Errors found on the way, such as a negative dimension, become this operation's error.
        if isinstance(error, ShapeError) and not error.operation:
            raise self._error(error.rule, error.summary, error.hint) from None

    def __call__(self, rule: str, holds: bool, summary: str, hint: str = "") -> None:
        """Raise `ShapeError` when `rule` does not hold; `summary` states the rule."""
        if not holds:
            self.broken(rule, summary, hint)

    def place(self, rule: str, place: int, rank: int, summary: str) -> None:
        """Check that `place` is a dimension of an array of this rank; `summary` says so where it is not."""
        hint = f"{place + rank}, as dimensions are counted from the first" if -rank <= place < 0 else ""
        self(rule, 0 <= place < rank, summary, hint)

    def broken(self, rule: str, summary: str, hint: str = "") -> NoReturn:
        """Raise the error of a rule that is known to be broken."""
        raise self._error(rule, summary, hint)

    def _error(self, rule: str, summary: str, hint: str) -> ShapeError:
        shown = {name: _shown(value) for name, value in self.operands.items() if not _is_left_out(value)}
        return ShapeError(summary, operation=self.operation, rule=rule, operands=shown, source=user_line(), hint=hint)

    def types(self, **ops: XlaOp) -> None:
        """Check that each of `ops` has an element type that the operation's table entry allows.

        The rules are I1, I2 ..., by the operands' places: so the specification numbers the inputs.
        """
        entry = REGISTRY[self.operation]
        self.arrays(**ops)
        for place, (name, op) in enumerate(ops.items(), start=1):
            if not entry.allows(op.shape.element_type):
                given = op.shape.element_type
                self.broken(f"I{place}", f"{name} must be of {entry.types_in_words} type, not {given}")

    def arrays(self, **ops: XlaOp) -> None:
        """Check that each of `ops` is an array."""
        for name, op in ops.items():
            if not op.shape.is_array:
                self.broken("", f"{name} must be an array, not {_a(op.shape)}")

    def op(self, name: str, value: object) -> XlaOp:
        """Return `value`, which must be an op."""
        if not isinstance(value, XlaOp):
            self.broken("", f"{name} must be an XlaOp, not {_kind(value)}", as_constant(value))
        return value

    def ops(self, **values: object) -> list[XlaOp]:
        """Return the operands as ops of one builder; numbers become scalars of the first op's element type."""
        found = [value for value in values.values() if isinstance(value, XlaOp)]
        if not found:
            self.broken("", f"{' or '.join(values)} must be an XlaOp", "b.constant(...) makes one of a value")
        self.one_builder(found)
        return [
            value if isinstance(value, XlaOp) else self._number(name, value, found[0]) for name, value in values.items()
        ]

    def _number(self, name: str, value: object, like: XlaOp) -> XlaOp:
        if not is_number(value):
            self.broken("", f"{name} must be an XlaOp, not {_kind(value)}", as_constant(value))
        if not like.shape.is_array:
            self.broken("", f"the number {value!r} has no type beside {_a(like.shape)}")
        try:
            return like.builder.constant(as_array(value, like.shape.element_type))
        except ShapeError as error:
            self.broken("", f"{name}: {error.summary}", error.hint)

    def one_builder(self, ops: Iterable[XlaOp]) -> XlaBuilder:
        """Return the builder in which an operation on `ops` is written: all are its own, or of builders around it."""
        ops = list(ops)
        builder = ops[0].builder.innermost()
        if not all(builder.is_inside(op.builder) for op in ops):
            names = " and ".join(dict.fromkeys(repr(op.builder.name) for op in ops))
            self.foreign(f"the operands come from different builders, {names}", ops)
        return builder

    def belong(self, builder: XlaBuilder, **several: Sequence[XlaOp]) -> None:
        """Check that ops belong to a builder, or to one around it."""
        for name, ops in several.items():
            for place, op in enumerate(ops):
                if not builder.is_inside(op.builder):
                    self.foreign(f"{name}[{place}] belongs to the builder {op.builder.name!r}", [op])

    def foreign(self, summary: str, ops: Iterable[XlaOp]) -> NoReturn:
        """Raise the error of ops that another builder has."""
        ended = next((op.builder.name for op in ops if op.builder.has_ended), None)
        if ended is not None:
            self.broken("", f"{summary}: an op of the function {ended!r} is used outside of it", "return it from there")
        self.broken("", summary, "a computation that is built sees only its own parameters: pass the value in as one")

    def captured(self, name: str, ops: Sequence[XlaOp]) -> NoReturn:
        """Raise the error of a function that reads `ops` around it, for an operation whose computation cannot."""
        shapes = ", ".join(str(op.shape) for op in ops)
        self.broken(
            "",
            f"{name} reads a value around it, {shapes}: that of {self.operation} sees its own parameters and numbers",
            "functions of while_, conditional, scan, map and call read values around them",
        )

    def sequence(self, name: str, value: object) -> list[XlaOp]:
        """Return one op or a sequence of ops, as a list."""
        if isinstance(value, XlaOp):
            return [value]
        found = arguments.items(name, value, "an XlaOp or a sequence of them")
        return [self.op(f"{name}[{place}]", each) for place, each in enumerate(found)]

    def packed(self, name: str, value: object) -> XlaOp:
        """Return one op; pack a sequence, nested ones too, into a tuple."""
        if isinstance(value, XlaOp):
            return value
        if is_number(value):
            self.broken("", f"{name} must be an XlaOp or a sequence of them, not {told(value)}", as_constant(value))
        found = arguments.items(name, value, "an XlaOp or a sequence of them")
        self("", bool(found), f"{name} must not be an empty sequence", "b.empty_tuple()")
        parts = [self.packed(f"{name}[{place}]", each) for place, each in enumerate(found)]
        builder = self.one_builder(parts)
        values = tuple(value for part in parts for value in builder.lift(part).values)
        return builder.wrap(Shape.tuple(part.shape for part in parts), values, "tuple")

    def init_values(self, name: str, value: object, operands: Sequence[XlaOp]) -> list[XlaOp]:
        """Return a scalar for each operand: ops, or numbers that take the operands' types."""
        several = not isinstance(value, XlaOp) and not is_number(value)
        found = arguments.items(name, value, "a scalar for each operand") if several else [value]
        likes = [*operands, *[operands[-1]] * len(found)] if operands else []
        return [
            each if isinstance(each, XlaOp) else self._number(f"{name}[{place}]" if several else name, each, like)
            for place, (each, like) in enumerate(zip(found, likes))
        ]

    # Plain values. Names of the parameters come first, as their errors tell them.

    def items(self, name: str, value: object, what: str = "a sequence") -> list[object]:
        """Return the items of a sequence."""
        return arguments.items(name, value, what)

    def integer(self, name: str, value: object, bits: int = 64) -> int:
        """Return an integer of so many bits."""
        return arguments.integer(name, value, bits)

    def number(self, name: str, value: object) -> float:
        """Return one real number."""
        return arguments.number(name, value)

    def integers(self, name: str, value: object) -> tuple[int, ...]:
        """Return a sequence of integers."""
        return arguments.integers(name, value)

    def sizes(self, name: str, value: object) -> tuple[int, ...]:
        """Return the sizes of dimensions; the shape of a static array stands for its own."""
        if not isinstance(value, Shape):
            return arguments.integers(name, value)
        self(
            "", value.is_array and value.is_static, f"{name} must be sizes or the shape of a static array, not {value}"
        )
        return value.dimensions

    def rows(self, name: str, value: object, number: str = "") -> list[tuple[int, ...]]:
        """Return a sequence of sequences of integers, by the rule of this number."""
        return self._by_rule(number, lambda: arguments.rows(name, value))

    def truth(self, name: str, value: object) -> bool:
        """Return True or False."""
        return arguments.truth(name, value)

    def truths(self, name: str, value: object) -> tuple[bool, ...]:
        """Return a sequence of True and False."""
        return arguments.truths(name, value)

    def text(self, name: str, value: object, number: str = "") -> str:
        """Return a text, by the rule of this number."""
        return self._by_rule(number, lambda: arguments.text(name, value))

    def word(self, number: str, name: str, value: object, choices: Iterable[str]) -> str:
        """Return one of a few words, by the rule of this number."""
        return self._by_rule(number, lambda: arguments.word(name, value, choices))

    def _by_rule(self, number: str, take: Callable[[], T]) -> T:
        """Call `take`; its error gets the rule's number."""
        try:
            return take()
        except ShapeError as error:
            self.broken(number, error.summary, error.hint)

    def shape(self, name: str, value: object, number: str = "") -> Shape:
        """Return a shape."""
        if not isinstance(value, Shape):
            self.broken(number, f"{name} must be a Shape, not {told(value)}", 'sx.f32[2, 3] or sx.Shape("f32", (2, 3))')
        return value

    def static_shape(self, name: str, value: object) -> Shape:
        """Return a shape whose arrays have no dynamic dimension."""
        shape = self.shape(name, value)
        self("", shape.is_static, f"{name} must be static, not {shape}", "sx.set_dimension_size makes arrays dynamic")
        return shape

    def array_shape(self, name: str, value: object, number: str = "") -> Shape:
        """Return the shape of an array."""
        shape = self.shape(name, value, number)
        self(number, shape.is_array, f"{name} must be that of an array, not {_a(shape)}", "sx.f32[2, 3]")
        return shape

    def element_type(self, name: str, value: object) -> ElementType:
        """Return an element type, which may be given by its name."""
        try:
            return element_type(value)
        except ShapeError as error:
            self.broken("", f"{name}: {error.summary}", error.hint)

    def attributes(self, name: str, value: object, like: XlaBuilder) -> ir.Attribute:
        """Return a mapping of truth values, integers, floats, texts and sequences of integers as an attribute."""
        if not isinstance(value, Mapping):
            self.broken("", f"{name} must be a mapping of plain values, not {told(value)}")
        made: dict[str, ir.Attribute] = {}
        for key, each in value.items():
            self("", arguments.text(f"a key of {name}", key) != "", f"a key of {name} must not be empty")
            made[key] = self._attribute(f"{name}[{key!r}]", each, like)
        return ir.DictAttr.get(made, like.context)

    def _attribute(self, name: str, value: object, like: XlaBuilder) -> ir.Attribute:
        if isinstance(value, ir.Attribute):
            self("", value.context == like.context, f"{name} is an attribute of another context")
            return value
        if isinstance(value, str):
            return like.attribute(arguments.text(name, value))
        if isinstance(value, bool | np.bool_ | float | np.floating):
            return like.attribute(value.item() if isinstance(value, np.generic) else value)
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return like.attribute(arguments.integers(name, value))
        if not isinstance(value, int | np.integer):
            plain = "a truth value, an integer, a float, a text or a list of integers"
            self.broken("", f"{name} must be {plain}, not {told(value)}")
        return like.attribute(arguments.integer(name, value))


def checking(operation: str, /, **operands: object) -> Rules:
    """Open the checks of `operation`; errors show `operands` under their names.

    >>> with checking("clamp", min=sx.f32[2]) as rule:
    ...     rule("C1", False, "min must be a scalar or have operand's shape")
    Traceback (most recent call last):
    stablexla.dialects.errors.ShapeError: clamp: min must be a scalar or have operand's shape (C1)
      min  f32[2]
    ...
    """
    return Rules(operation, operands)


def same(values: Iterable[object]) -> bool:
    """Return whether all values are equal."""
    rest = iter(values)
    first = next(rest, None)
    return all(value == first for value in rest)


def same_element_type(*ops: XlaOp) -> bool:
    """Return whether all arrays have one element type."""
    return same(op.shape.element_type for op in ops)


def is_number(value: object) -> bool:
    """Return whether it is a Python or numpy number (or truth value), not an array."""
    if isinstance(value, np.ndarray):
        return False
    return isinstance(value, (numbers.Number, np.generic))


def each(what: str, test: Callable[[ElementType], bool], ops: Iterable[XlaOp]) -> str:
    """Return the first of `ops` that fails `test` as "what k is t", or ""."""
    for position, op in enumerate(ops):
        if not test(op.shape.element_type):
            return f"{what} {position} is {op.shape.element_type}"
    return ""


def _is_left_out(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value)


def _shown(value: object) -> str:
    """Return an argument as printed below an error: ops by their shapes, in a line."""
    if isinstance(value, (list, tuple)) and any(isinstance(item, (XlaOp, Shape)) for item in value):
        more = ", ..." if len(value) > _MOST_SHOWN else ""
        return ", ".join(map(_shown, value[:_MOST_SHOWN])) + more
    if not isinstance(value, (XlaOp, Shape, ElementType, str)):
        return told(value)
    text = str(value.shape if isinstance(value, XlaOp) else value)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def _a(shape: Shape) -> str:
    return "a tuple" if shape.is_tuple else "a token" if shape.is_token else str(shape)


def _kind(value: object) -> str:
    return told(value) if is_number(value) or value is None else f"a {type(value).__name__}"


def as_constant(value: object) -> str:
    """Return the way out for a value in an op's place: a constant of it; "" for what makes none."""
    return "b.constant(value) makes an XlaOp of it" if isinstance(value, (np.ndarray, list)) or is_number(value) else ""
