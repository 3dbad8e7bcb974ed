"""Validation and coercion of the plain (non-operand) arguments of operations, by kind.

An error names the parameter; `stablexla.builder.checking.Rules` adds the operation, its operands and the user's line.
Operands, shapes and computations are checked there, as they need a builder.
"""

from __future__ import annotations

import inspect
import os
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from numbers import Real
from operator import index
from typing import Any

import numpy as np

from stablexla.dialects.errors import ShapeError

MOST_ITEMS = 1 << 17
"""Limit on the items of a sequence; more come from an endless iterator, or exhaust memory."""

_UNORDERED_OR_TEXT = (str, bytes, bytearray, memoryview, Mapping, Set)


class _Short(reprlib.Repr):
    """`repr` cut to one line."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 16
        self.maxstring = self.maxother = self.maxlong = 100

    def repr_function(self, function: Any, level: int) -> str:
        code = inspect.unwrap(function).__code__
        return f"{function.__qualname__} of {os.path.basename(code.co_filename)}:{code.co_firstlineno}"

    def repr_instance(self, value: object, level: int) -> str:
        return re.sub(r" at 0x[0-9a-fA-F]+", "", super().repr_instance(value, level))

    repr_method = repr_builtin_function_or_method = repr_instance


_short = _Short()


def told(value: object) -> str:
    """Format `value` for an error: its truncated `repr`; the name of its class where that fails.

    >>> told([1, "two"]), len(told("x" * 1000))
    ("[1, 'two']", 100)
    """
    try:
        return re.sub(r"\s+", " ", _short.repr(value))
    except Exception:  # an integer of thousands of digits, and what raises when it is asked
        return f"a {type(value).__name__}"


def items(name: str, value: object, what: str = "a sequence") -> list[Any]:
    """Return the items of an ordered, finite sequence.

    Texts, bytes, mappings and sets are refused, as their items are not what is meant or are unordered.
    """
    hint = ""
    if isinstance(value, Iterable) and not isinstance(value, _UNORDERED_OR_TEXT):
        try:
            found = list(islice(value, MOST_ITEMS + 1))
        except Exception as error:  # whatever it raises, it is none
            hint = getattr(error, "hint", "")
        else:
            if len(found) <= MOST_ITEMS:
                return found
            raise ShapeError(f"{name} has more than {MOST_ITEMS} items, or no end")
    raise ShapeError(f"{name} must be {what}, not {told(value)}", hint=hint)


def integer(name: str, value: object, bits: int = 64) -> int:
    """Check a signed integer of `bits` bits."""
    try:
        number = index(value)  # type: ignore[arg-type]  # the error is ours
    except Exception:
        raise ShapeError(f"{name} must be an integer, not {told(value)}") from None
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ShapeError(f"{name} must fit into {bits} bits, and is {told(number)}")
    return number


def number(name: str, value: object) -> float:
    """Check a real number."""
    if isinstance(value, Real | np.number | np.bool_) and not isinstance(value, np.complexfloating):
        try:
            return float(value)
        except OverflowError:
            raise ShapeError(f"{name} is beyond the range of floats: {told(value)}") from None
    raise ShapeError(f"{name} must be a number, not {told(value)}")


def integers(name: str, value: object) -> tuple[int, ...]:
    """Check a sequence of 64-bit integers."""
    what = "a sequence of integers"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        raise ShapeError(f"{name} must be {what}, not {told(value)}", hint=f"({value},)")
    found = items(name, value, what)
    try:
        numbers = tuple(map(index, found))
    except Exception:
        raise ShapeError(f"{name} must be a sequence of integers, not {told(value)}") from None
    for place, number in enumerate(numbers):
        integer(f"{name}[{place}]", number)
    return numbers


def rows(name: str, value: object, row: str = "integers") -> list[tuple[int, ...]]:
    """Check a sequence of sequences of integers; `row` names a row in errors."""
    what = f"a sequence of sequences of {row}"
    found = items(name, value, what)
    if found and all(isinstance(each, int | np.integer) for each in found):
        raise ShapeError(f"{name} must be {what}, not {told(value)}", hint=f"[{told(value)}]")
    return [integers(f"{name}[{place}]", each) for place, each in enumerate(found)]


def truth(name: str, value: object) -> bool:
    """Check a bool."""
    if not isinstance(value, bool | np.bool_):
        raise ShapeError(f"{name} must be True or False, not {told(value)}")
    return bool(value)


def truths(name: str, value: object) -> tuple[bool, ...]:
    """Check a sequence of bools."""
    return tuple(truth(f"{name}[{place}]", each) for place, each in enumerate(items(name, value)))


def text(name: str, value: object) -> str:
    """Check a text that can be encoded as UTF-8."""
    if not isinstance(value, str):
        raise ShapeError(f"{name} must be a text, not {told(value)}")
    half = re.search("[\ud800-\udfff]", value)
    if half is not None:
        raise ShapeError(f"{name} must be a text, and its character {half.start()} is half of a surrogate pair")
    return value


def word(name: str, value: object, choices: Iterable[str]) -> str:
    """Check one of a few words."""
    known = list(choices)
    if not isinstance(value, str) or value not in known:
        near = [each for each in known if isinstance(value, str) and _bare(each) == _bare(value)]
        hint = f'"{near[0]}"' if near else ""
        raise ShapeError(f"{name} must be {alternatives(known)}, not {told(value)}", hint=hint)
    return value


def _bare(spelling: str) -> str:
    """Return a word as XLA's, StableHLO's and JAX's enumerations have it in common: "threefry" of "RNG_THREE_FRY"."""
    return re.sub(r"^rng_|[ _-]", "", spelling.lower())


def alternatives(words: Sequence[str]) -> str:
    """Format the words as "A, B or C"."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
