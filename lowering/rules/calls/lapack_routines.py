"""Table of LAPACK routines as custom calls know them: operands, results, and the order of the call's arguments.

Everything specific to a routine is in its row. A rule checks a call's arrays against a row and emits a kernel
(lapack.py); a target calls the routine, one matrix after another.

Arrays are written `name:kind[sizes]`. Sizes are those of one matrix, columns first in memory, and all arrays have the
same dimensions before them, those of the batch. Without a kind the elements are the routine's own; `real` and `complex`
are the types beside it, `int` is i32. A result with the name of an operand begins with the operand's elements.

`call` lists the routine's arguments, all of them addresses: an array, a size, a word, or one of

    ld(n)        n, and at least 1: the leading dimension
    dl+1         an array from its second element on
    copy(a)      a copy of an operand, which the routine destroys
    packed(v)    the real numbers that hold a complex result: see `packed`
    work lwork   workspace and its length, as returned by a workspace query, and at least `work`
    rwork lrwork, iwork liwork    workspace of real numbers and of integers, of the given lengths
    one, null    the number 1, no address

and an argument that ends in `?` is passed for complex elements only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from stablexla.dialects.lazy_dataclass import dataclass

Sizes = Mapping[str, int]
Words = dict[str, str | int]
LETTERS = "sdcz"


@dataclass(frozen=True)
class Array:
    """One array of a call: its name, the kind of its elements, and its sizes per matrix of the batch."""

    name: str
    kind: str
    sizes: tuple[str, ...]


def letters(attributes: Mapping[str, Any], is_complex: bool) -> Words:
    """Return the attributes as LAPACK's option letters; calls hold a letter as its character code."""
    return {name: chr(value) for name, value in attributes.items()}


def numbers(attributes: Mapping[str, Any], is_complex: bool) -> Words:
    """Return the attributes as numbers."""
    return {name: int(value) for name, value in attributes.items()}


def side_and_transposition(attributes: Mapping[str, Any], is_complex: bool) -> Words:
    """Return LAPACK's SIDE and TRANS for two truth values; for complex elements the transpose is the adjoint."""
    adjoint = "C" if is_complex else "T"
    return {"side": "L" if attributes["left"] else "R", "trans": adjoint if attributes["transpose"] else "N"}


@dataclass(frozen=True)
class Routine:
    """A row of the table.

    Attributes:
        name: without the letter of the elements' type; two, of which the second is for complex elements.
        operands, results, call: see above.
        elements: letters of the element types that it supports.
        attributes: those that a call must have, with the letters that they may be; none for numbers.
        words: converts the attributes to LAPACK's option letters and numbers.
        sizes: sizes that are functions of other sizes.
        left_out: results that are not computed when a word is a letter; they must have no users then.
        packed: for each complex result that is returned as real numbers, the imaginary parts of the eigenvalues:
            a real eigenvalue has one column, a conjugate pair two, the real part and the imaginary part.
        identities: results that are the identity for a matrix without elements.
        checks_finite: an operand with an element that is not finite is not passed to the routine, whose iterations
            might never end; results are NaN then, and info is -4.
        work: minimum number of elements of workspace.
        rwork, iwork: elements of real and of integer workspace.
        cost: a rough number of multiplications.
    """

    name: str
    operands: str
    results: str
    call: str
    cost: Callable[[Sizes], float]
    elements: str = LETTERS
    attributes: Mapping[str, str] = field(default_factory=dict)
    words: Callable[[Mapping[str, Any], bool], Words] = letters
    sizes: Mapping[str, Callable[[Sizes], int]] = field(default_factory=dict)
    left_out: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    packed: Mapping[str, str] = field(default_factory=dict)
    identities: tuple[str, ...] = ()
    checks_finite: str = ""
    work: Callable[[Sizes], int] = lambda s: 1
    rwork: Callable[[Sizes], int] = lambda s: 0
    iwork: Callable[[Sizes], int] = lambda s: 0

    def leaves_out(self, result: str, words: Mapping[str, object]) -> bool:
        """Return whether a result is not computed."""
        name, letter = self.left_out.get(result, ("", ""))
        return name in words and words[name] == letter

    def name_for(self, letter: str) -> str:
        """Return the routine's name in LAPACK: `ssyevd`, `cheevd`."""
        real, _, of_complex = self.name.partition(" ")
        return letter + (of_complex or real if letter in "cz" else real)


def arrays(text: str) -> tuple[Array, ...]:
    """Parse a list of arrays.

    >>> arrays("a[m,n] info:int")
    (Array(name='a', kind='', sizes=('m', 'n')), Array(name='info', kind='int', sizes=()))
    """
    found = re.findall(r"(\w+)(?::(\w+))?(?:\[([^]]*)\])?", text)
    return tuple(Array(name, kind, tuple(sizes.split(",")) if sizes else ()) for name, kind, sizes in found)


def _smaller(s: Sizes) -> int:
    return min(s["m"], s["n"])


def _vectors(s: Sizes) -> int:
    """Return the size of the real workspace of the complex gesdd."""
    low, high = min(s["m"], s["n"]), max(s["m"], s["n"])
    return max(5 * low * low + 7 * low, 2 * high * low + 2 * low * low + low)


TRIANGLE = {"uplo": "UL"}
SVD: dict[str, Any] = {
    "operands": "a[m,n]",
    "results": "a[m,n] s:real[k] u[m,p] vt[q,n] info:int",
    "attributes": {"mode": "ANS"},
    "sizes": {"k": _smaller},
    "left_out": {"u": ("mode", "N"), "vt": ("mode", "N")},
    "identities": ("u", "vt"),
    "checks_finite": "a",
    "cost": lambda s: 10 * s["m"] * s["n"] * min(s["m"], s["n"]),
}
LDL: dict[str, Any] = {
    "operands": "a[n,n]",
    "results": "a[n,n] ipiv:int[n] info:int",
    "call": "uplo n a ld(n) ipiv work lwork info",
    "attributes": TRIANGLE,
    "cost": lambda s: s["n"] ** 3 / 3,
}
LDL_SOLUTION: dict[str, Any] = {
    "operands": "a[n,n] ipiv:int[n] b[n,r]",
    "results": "b[n,r] info:int",
    "call": "uplo n r a ld(n) ipiv b ld(n) info",
    "attributes": TRIANGLE,
    "cost": lambda s: 2 * s["n"] ** 2 * max(1, s["r"]),
}

TABLE = (
    Routine(
        "potrf",
        operands="a[n,n]",
        results="a[n,n] info:int",
        call="uplo n a ld(n) info",
        attributes=TRIANGLE,
        cost=lambda s: s["n"] ** 3 / 3,
    ),
    Routine(
        "getrf",
        operands="a[m,n]",
        results="a[m,n] ipiv:int[k] info:int",
        call="m n a ld(m) ipiv info",
        sizes={"k": _smaller},
        cost=lambda s: s["m"] * s["n"] * min(s["m"], s["n"]) * 2 / 3,
    ),
    Routine("sytrf", **LDL),
    Routine("hetrf", elements="cz", **LDL),
    Routine("sytrs", **LDL_SOLUTION),
    Routine("hetrs", elements="cz", **LDL_SOLUTION),
    Routine(
        "geqrf",
        operands="a[m,n]",
        results="a[m,n] tau[k]",
        call="m n a ld(m) tau work lwork info",
        sizes={"k": _smaller},
        work=lambda s: s["n"],
        cost=lambda s: s["m"] * s["n"] * min(s["m"], s["n"]) * 4 / 3,
    ),
    Routine(
        "geqp3",
        operands="a[m,n] jpvt:int[n]",
        results="a[m,n] jpvt:int[n] tau[k]",
        call="m n a ld(m) jpvt tau work lwork rwork? info",
        sizes={"k": _smaller},
        work=lambda s: 3 * s["n"] + 1,
        rwork=lambda s: 2 * s["n"],
        cost=lambda s: s["m"] * s["n"] * min(s["m"], s["n"]) * 2,
    ),
    Routine(
        "orgqr ungqr",
        operands="a[m,n] tau[k]",
        results="a[m,n]",
        call="m n k a ld(m) tau work lwork info",
        work=lambda s: s["n"],
        cost=lambda s: 2 * s["m"] * s["n"] * max(1, s["k"]),
    ),
    Routine(
        "ormqr unmqr",
        operands="a[p,q] tau[k] c[m,n]",
        results="c[m,n]",
        call="side trans m n k a ld(p) tau c ld(m) work lwork info",
        attributes={"left": "", "transpose": ""},
        words=side_and_transposition,
        work=lambda s: max(1, s["m"], s["n"]),
        cost=lambda s: 2 * s["m"] * s["n"] * max(1, s["k"]),
    ),
    Routine(
        "gehrd",
        operands="a[n,n]",
        results="a[n,n] tau[n-1] info:int",
        call="n low high a ld(n) tau work lwork info",
        attributes={"low": "", "high": ""},
        words=numbers,
        work=lambda s: s["n"],
        cost=lambda s: s["n"] ** 3 * 10 / 3,
    ),
    Routine(
        "sytrd hetrd",
        operands="a[n,n]",
        results="a[n,n] d:real[n] e:real[n-1] tau[n-1] info:int",
        call="uplo n a ld(n) d e tau work lwork info",
        attributes=TRIANGLE,
        cost=lambda s: s["n"] ** 3 * 4 / 3,
    ),
    Routine(
        "syevd heevd",
        operands="a[n,n]",
        results="a[n,n] w:real[n] info:int",
        call="mode uplo n a ld(n) w work lwork rwork? lrwork? iwork liwork info",
        attributes={"mode": "NV", "uplo": "UL"},
        work=lambda s: 1 + 6 * s["n"] + 2 * s["n"] ** 2,
        rwork=lambda s: 1 + 5 * s["n"] + 2 * s["n"] ** 2,
        iwork=lambda s: 3 + 5 * s["n"],
        cost=lambda s: 5 * s["n"] ** 3,
    ),
    Routine(
        "gesdd",
        call="mode m n a ld(m) s u ld(m) vt ld(q) work lwork rwork? iwork info",
        rwork=_vectors,
        iwork=lambda s: 8 * min(s["m"], s["n"]),
        **SVD,
    ),
    Routine(
        "gesvd",
        call="mode mode m n a ld(m) s u ld(m) vt ld(q) work lwork rwork? info",
        rwork=lambda s: 5 * min(s["m"], s["n"]),
        **SVD,
    ),
    Routine(
        "geev",
        elements="sd",
        operands="a[n,n]",
        results="wr[n] wi[n] vl:complex[n,n] vr:complex[n,n] info:int",
        call="compute_left compute_right n copy(a) ld(n) wr wi packed(vl) ld(n) packed(vr) ld(n) work lwork info",
        attributes={"compute_left": "NV", "compute_right": "NV"},
        left_out={"vl": ("compute_left", "N"), "vr": ("compute_right", "N")},
        packed={"vl": "wi", "vr": "wi"},
        checks_finite="a",
        work=lambda s: 4 * s["n"],
        cost=lambda s: 15 * s["n"] ** 3,
    ),
    Routine(
        "geev",
        elements="cz",
        operands="a[n,n]",
        results="w[n] vl[n,n] vr[n,n] info:int",
        call="compute_left compute_right n copy(a) ld(n) w vl ld(n) vr ld(n) work lwork rwork info",
        attributes={"compute_left": "NV", "compute_right": "NV"},
        left_out={"vl": ("compute_left", "N"), "vr": ("compute_right", "N")},
        checks_finite="a",
        work=lambda s: 2 * s["n"],
        rwork=lambda s: 2 * s["n"],
        cost=lambda s: 40 * s["n"] ** 3,
    ),
    Routine(
        "gees",
        elements="sd",
        operands="a[n,n]",
        results="a[n,n] vs[n,n] wr[n] wi[n] sdim:int info:int",
        call="mode sort null n a ld(n) sdim wr wi vs ld(n) work lwork null info",
        attributes={"mode": "NV", "sort": "N"},
        left_out={"vs": ("mode", "N")},
        checks_finite="a",
        work=lambda s: 3 * s["n"],
        cost=lambda s: 15 * s["n"] ** 3,
    ),
    Routine(
        "gees",
        elements="cz",
        operands="a[n,n]",
        results="a[n,n] vs[n,n] w[n] sdim:int info:int",
        call="mode sort null n a ld(n) sdim w vs ld(n) work lwork rwork null info",
        attributes={"mode": "NV", "sort": "N"},
        left_out={"vs": ("mode", "N")},
        checks_finite="a",
        work=lambda s: 2 * s["n"],
        rwork=lambda s: s["n"],
        cost=lambda s: 40 * s["n"] ** 3,
    ),
    Routine(
        "gtsv",
        operands="dl[n] d[n] du[n] b[n,r]",
        results="dl[n] d[n] du[n] b[n,r] info:int",
        call="n r dl+1 d du b ld(n) info",
        cost=lambda s: 5 * s["n"] * (1 + s["r"]),
    ),
)

ROUTINES = {routine.name_for(letter): routine for routine in TABLE for letter in routine.elements}
"""The routines by LAPACK's names, with the letter of the element type: `ssyevd`."""
