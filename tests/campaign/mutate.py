"""Other programs of a program: one number, word, operation, element type or extent of its text is another.

What does not verify is thrown away. Where a changed operation has a result of another type, which is read from the
verifier's message, this is made one of the old type for all that reads it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from stablexla.dialects.element_types import BY_MLIR
from tests.campaign.pool import Unfit
from tests.campaign.stitch import fitted
from tests.fuzz.families.elementwise import same_names
from tests.fuzz.program import NAME, Program, Statement, Value
from tests.fuzz.shrink import with_extent
from tests.fuzz.writer import FAMILIES, Writer, number_text

ELEMENTS = tuple(BY_MLIR)
WORDS = (
    ("LT", "LE", "GT", "GE", "EQ", "NE"),
    ("FLOAT", "TOTALORDER"),
    ("DEFAULT", "HIGH", "HIGHEST"),
    ("true", "false"),
    ("FFT", "IFFT"),
    ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    ("high", "low"),
    ("stride", "rhs_dilate", "lhs_dilate"),
)
"""Words that stand in one another's place."""
PROMISES = ("unique_indices", "indices_are_sorted", "is_stable")
"""What a program says of its arguments, and may not say of others."""
_NUMBER = re.compile(r"(?<![\w.%#<\-])-?\d+(?![\w.])")
_TYPE = re.compile(r"tensor<[^<>]*(?:<[^<>]*>)?[^<>]*>")
_CONSTANT = re.compile(r"dense<([^>]*)> : tensor<((?:\d+x)*)([^>]+>?)>")
_ELEMENT = re.compile(r"0x[0-9A-Fa-f]+|-?[0-9.]+(?:[eE][+-]?[0-9]+)?|true|false")
_INFERRED = re.compile(r"inferred type\(s\) ((?:'tensor<[^']+>'(?:, )?)+) are incompatible")

Change = Callable[[Program, random.Random], Program]


def mutated(program: Program, seed: int, *, times: int = 1, tries: int = 40) -> Program:
    """The program with so many changes; equal numbers give equal ones.

    Raises:
        Unfit: nothing that was tried verifies.
    """
    rng = random.Random(seed)
    for _ in range(times):
        program = _changed(program, rng, tries)
    return program


def _changed(program: Program, rng: random.Random, tries: int) -> Program:
    for _ in range(tries):
        try:
            made = rng.choice(CHANGES)(program, rng)
        except Exception:  # no program, or nothing there to change
            continue
        if made.text != program.text:
            return made
    raise Unfit("no change verifies")


# ---- of the whole program --------------------------------------------------------------------------------------------


def retyped(program: Program, element: str, other: str) -> Program:
    """With another element type wherever one stands; constants as well as they can be."""
    text = _CONSTANT.sub(lambda found: _constant(found, element, other), program.text)
    bare = re.escape(element)
    text = re.sub(rf"(?<=[<x]){bare}(?=>(?!>))" if "<" not in element else rf"(?<=[<x]){bare}(?=>)", other, text)
    return Program.parse(_comparisons(text, other))


def _constant(found: re.Match[str], element: str, other: str) -> str:
    numbers, extents, own = found.groups()
    if own != element:
        return found[0]

    def number(one: re.Match[str]) -> str:
        word = {"true": "1", "false": "0"}.get(one[0], one[0])
        return number_text(int(float(word)) % 100 if "0x" not in word else 1, other)

    numbers = _ELEMENT.sub(number, re.sub(r"\([^()]*\)", "1", numbers))  # parentheses: complex ones
    return f"dense<{numbers}> : tensor<{extents}{own}>"


def _comparisons(text: str, element: str) -> str:
    """With the kind of comparison that an element type has."""
    type_ = BY_MLIR[element]
    whole = type_.is_integer or type_.is_pred
    kind = "SIGNED" if type_.is_integer and type_.is_signed else "UNSIGNED" if whole else "FLOAT"
    return re.sub(rf"(compare\s+\w+,[^\n]*?,\s+)\w+( : \(tensor<(?:\d+x)*{re.escape(element)}>)", rf"\1{kind}\2", text)


def _element_type(program: Program, rng: random.Random) -> Program:
    return retyped(program, rng.choice([v.element for v in program.values.values()]), rng.choice(ELEMENTS))


def resized(program: Program, extent: int, other: int) -> Program:
    """With another extent wherever one stands."""
    return Program.parse(with_extent(program.text, extent, other))


def _extent(program: Program, rng: random.Random) -> Program:
    extent = rng.choice([d for v in program.values.values() for d in v.shape])
    return resized(program, extent, rng.choice((0, 1, 1, 2, 3, 5, 8, 17, extent + 1)))


# ---- of one statement ------------------------------------------------------------------------------------------------


def _number(program: Program, rng: random.Random) -> Program:
    """Of an attribute: one more, one less, 0, 1, 2, the other sign."""
    place = rng.randrange(len(program.statements))
    head, *rest = program.statements[place].text.split("\n")
    types = [found.span() for found in _TYPE.finditer(head)]
    spots = [m for m in _NUMBER.finditer(head) if not any(a <= m.start() < b for a, b in types)]
    spot = rng.choice(spots)
    number = int(spot[0])
    other = rng.choice((number + 1, number - 1, 0, 1, 2, -number, number * 2))
    return _replaced(program, place, "\n".join([head[: spot.start()] + str(other) + head[spot.end() :], *rest]))


def _word(program: Program, rng: random.Random) -> Program:
    place = rng.randrange(len(program.statements))
    text = program.statements[place].text
    if any(promise in text for promise in PROMISES):
        raise Unfit("it may promise too much")
    known = {word: words for words in WORDS for word in words}
    spots = [m for m in re.finditer(r"[A-Za-z_]+", text) if m[0] in known]
    spot = rng.choice(spots)
    return _replaced(program, place, text[: spot.start()] + rng.choice(known[spot[0]]) + text[spot.end() :])


def _operation(program: Program, rng: random.Random) -> Program:
    """Another operation on each element, of as many operands."""
    place = rng.randrange(len(program.statements))
    statement = program.statements[place]
    value = statement.results[0]
    arity = len(statement.operands)
    found = same_names(arity, value.element, False)
    if statement.operation not in found or "\n" in statement.text:
        raise Unfit("no operation on each element")
    return _replaced(program, place, statement.text.replace(statement.operation, rng.choice(found), 1))


def _replaced(program: Program, place: int, text: str) -> Program:
    """The program with another statement, whose results keep their types for all that reads them."""
    statements = program.statements
    changed = Statement(text, statements[place].results)
    try:
        return Program.parse(Program(program.parameters, (*statements[:place], changed, *statements[place + 1 :]),
                                     program.returns).text)  # fmt: skip
    except Exception as error:
        found = _INFERRED.search(str(error))
        if found is None or len(changed.results) != 1:
            raise
        return _with_result(program, place, text, found[1].strip("'"))


def _with_result(program: Program, place: int, text: str, type_: str) -> Program:
    statement = program.statements[place]
    (result,) = statement.results
    w = Writer(place, 0, list(FAMILIES), whole=False)
    fresh = Value(f"%changed_{place}", *(lambda v: (v.shape, v.element))(Value.of("", type_)))
    head = text.replace(result.name, fresh.name, 1)
    at = head.rindex(result.type)
    w.values = [fresh]
    back = fitted(w, fresh, result)
    lines = [re.sub(r"%v(\d+)", rf"%fit_{place}_\1", line) for line in w.lines()]
    last = re.sub(r"%v(\d+)", rf"%fit_{place}_\1", back.name)
    made = [head[:at] + type_ + head[at + len(result.type) :], *lines]

    def rename(found: re.Match[str]) -> str:
        return last if found[0] == result.name else found[0]

    after = [NAME.sub(rename, s.text) for s in program.statements[place + 1 :]]
    returns = [last if name == result.name else name for name in program.returns]
    body = "\n".join([*(s.text for s in program.statements[:place]), *made, *after])
    inputs = ", ".join(f"{p.name}: {p.type}" for p in program.parameters)
    types = ", ".join(program.values[name].type for name in program.returns)
    return Program.parse(
        f"func.func public @main({inputs}) -> ({types}) {{\n{body}\nreturn {', '.join(returns)} : {types}\n}}\n"
    )


CHANGES: tuple[Change, ...] = (
    *(_element_type, _element_type, _extent, _extent, _extent),
    *(_number, _number, _number, _word, _word, _operation),
)
