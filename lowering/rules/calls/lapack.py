"""Lowering of JAX's LAPACK custom calls on CPUs: `lapack_ssyevd_ffi` and the like.

A call becomes a kernel that names the routine; the signatures are in the table of lapack_routines.py.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any

import mlir.ir as ir
import numpy as np
from mlir.dialects import tensor

from stablexla.dialects.element_types import BY_NAME, ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.calls.attributes import attributes_of_call
from stablexla.lowering.rules.calls.custom_call import operation_call
from stablexla.lowering.rules.calls.host import in_main
from stablexla.lowering.rules.calls.lapack_routines import LETTERS, ROUTINES, Array, Routine, Words, arrays
from stablexla.lowering.rules.calls.layouts import OPERANDS, RESULTS, Layout, in_columns, layouts_of
from stablexla.lowering.rules.devices.effects import zeros
from stablexla.lowering.rules.linear_algebra import solve_triangular
from stablexla.lowering.rules.shape import constant_array, constant_value
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.kernels import as_array, kernel
from stablexla.lowering.support.types import TensorType, storage_type

LAPACK = "lapack"
"""The kind of these kernels."""
ELEMENTS = {letter: BY_NAME[name] for letter, name in zip(LETTERS, ("f32", "f64", "c64", "c128"), strict=True)}


def call_of_lapack(name: str, ctx: LoweringContext, *operands: ir.Value) -> list[ir.Value]:
    """Lower a custom call of a LAPACK routine, with the layouts that the operation requires."""
    return call_routine(
        ctx,
        name,
        operands,
        attributes_of_call(ctx),
        layouts_of(ctx, OPERANDS, ctx.operand_types),
        layouts_of(ctx, RESULTS, ctx.result_types),
    )


def call_routine(
    ctx: LoweringContext,
    name: str,
    operands: Sequence[ir.Value],
    attributes: Mapping[str, Any],
    inputs: Sequence[Layout],
    outputs: Sequence[Layout],
) -> list[ir.Value]:
    """Emit the call of a LAPACK routine for each matrix of a batch. LAPACK's matrices are column-major.

    Args:
        name: in LAPACK.
        attributes: those of the routine.
        inputs, outputs: the layouts of the routine's operands and results.

    Raises:
        UnsupportedError: arrays or attributes that the routine does not have; no shape that a producer makes is.
    """
    types = [side.type for side in inputs], [side.type for side in outputs]
    call = _Call(ctx, name, ROUTINES[name], ELEMENTS[name[0]], *types)
    call.match(attributes)
    if not in_main():
        raise ctx.unsupported(f"{name} inside the computation of another operation has no lowering")
    if not call.result_types[0].size:
        return call.nothing()
    given = [as_array(side.enter(v), side.held) for v, side in zip(operands, inputs, strict=True)]
    made = [i for i, array in enumerate(call.results) if not call.routine.leaves_out(array.name, call.words)]
    held = [outputs[i].held for i in made]
    config = call.config()

    def body(*_: ir.Value) -> list[ir.Value]:
        return [_unknown(t) for t in held]

    values = kernel(ctx, LAPACK, given, body, config=config, result_types=held)
    results = [zeros(t) for t in call.result_types]
    for i, value in zip(made, values, strict=True):
        results[i] = outputs[i].leave(value)
    return results


def _unknown(type_: TensorType) -> ir.Value:
    made = tensor.empty(type_.shape, storage_type(type_.element))
    return made if type_.rank else tensor.extract(made, [])


@dataclass(frozen=True)
class LapackConfig:
    """A call of a LAPACK routine for each matrix of a batch, with its sizes and other numbers, and its letters."""

    routine: str
    batch: int
    sizes: dict[str, int]
    words: dict[str, str]


@dataclass
class _Call:
    """A call, checked against its routine's row of the table."""

    ctx: LoweringContext
    name: str
    routine: Routine
    element: ElementType
    operand_types: list[TensorType]
    result_types: list[TensorType]
    sizes: dict[str, int] = field(default_factory=dict)
    words: Words = field(default_factory=dict)
    batch: int = 1

    def __post_init__(self) -> None:
        self.operands, self.results = arrays(self.routine.operands), arrays(self.routine.results)

    def match(self, attributes: Mapping[str, Any]) -> None:
        """Find the sizes and words; reject a call that could make the routine read or write out of bounds."""
        counts = (len(self.operands), len(self.results))
        if counts != (len(self.operand_types), len(self.result_types)):
            raise self._refused(f"takes {counts[0]} operands and gives {counts[1]} results")
        pairs = [
            *zip(self.operands, self.operand_types, strict=True),
            *zip(self.results, self.result_types, strict=True),
        ]
        first = self.operands[0]
        dimensions = self.operand_types[0].shape[: self.operand_types[0].rank - len(first.sizes)]
        self.batch = prod(dimensions)
        for array, type_ in pairs:
            self._match(array, type_, dimensions)
        for size, rule in self.routine.sizes.items():
            if self.sizes[size] != rule(self.sizes):
                raise self._refused(f"has {size} = {rule(self.sizes)}, where the call has {self.sizes[size]}")
        self._read(attributes)
        self._check_sizes()

    def _match(self, array: Array, type_: TensorType, dimensions: Sequence[int]) -> None:
        wanted = self._element(array.kind)
        if type_.element != wanted:
            raise self._refused(f"has {array.name} of {wanted}, not {type_.element}")
        rank = len(dimensions)
        if type_.rank != rank + len(array.sizes) or tuple(type_.shape[:rank]) != tuple(dimensions):
            raise self._refused(f"has {array.name}[{','.join(['...', *array.sizes])}], not {type_}")
        for size, extent in zip(array.sizes, type_.shape[rank:], strict=True):
            known = max(0, self.sizes["n"] - 1) if size == "n-1" else self.sizes.setdefault(size, extent)
            if extent != known:
                raise self._refused(f"has {size} = {known} in {array.name}, not {type_}")

    def _check_sizes(self) -> None:
        """Check the constraints between sizes and words."""
        s = self.sizes
        rwork = self.routine.rwork(s) if self.element.is_complex else 0
        spaces = (self.routine.work(s), rwork, self.routine.iwork(s))
        if max(self.batch, *s.values(), *spaces) >= 2**31:
            raise self._refused("counts in 32 bits")
        if "p" in s and "vt[q,n]" in self.routine.results and self.words["mode"] != "N":
            wanted = (s["m"], s["n"]) if self.words["mode"] == "A" else (s["k"], s["k"])
            if (s["p"], s["q"]) != wanted:
                raise self._refused(f"has u[...,m,{wanted[0]}] and vt[...,{wanted[1]},n] in mode {self.words['mode']}")
        if "c[m,n]" in self.routine.results:
            order = s["m"] if self.words["side"] == "L" else s["n"]
            if s["p"] != order or not s["k"] <= min(order, s["q"]):
                raise self._refused("has reflectors as long as the side of c, and not more of them")
        if self.routine.results == "a[m,n]" and not s["k"] <= s["n"] <= s["m"]:
            raise self._refused("has at least as many rows as columns, and columns as reflectors")
        if "low" in self.words and s["n"] and not 1 <= int(self.words["low"]) <= int(self.words["high"]) <= s["n"]:
            raise self._refused("has 1 <= low <= high <= n")

    def _read(self, attributes: Mapping[str, Any]) -> None:
        rows = self.routine.attributes
        missing = sorted(set(rows) - set(attributes))
        if missing:
            raise self._refused(f"has an attribute {missing[0]!r}")
        self.words = self.routine.words({name: attributes[name] for name in rows}, self.element.is_complex)
        for name, letters in rows.items():
            if letters and str(self.words[name]) not in letters:
                raise self._refused(f"has {name} in {', '.join(letters)}, not {self.words[name]!r}")

    def _element(self, kind: str) -> ElementType:
        if kind == "int":
            return BY_NAME["s32"]
        if kind == "real":
            return self.element.part
        if kind == "complex":
            return ELEMENTS["c" if self.element == ELEMENTS["s"] else "z"]
        return self.element

    def config(self) -> LapackConfig:
        """Return the kernel's configuration."""
        numbers = {name: value for name, value in self.words.items() if isinstance(value, int)}
        letters = {name: value for name, value in self.words.items() if isinstance(value, str)}
        return LapackConfig(self.name, self.batch, {**self.sizes, **numbers}, letters)

    def nothing(self) -> list[ir.Value]:
        """Return the results for empty matrices: info is 0, and orthogonal matrices are the identity."""
        return [
            _identity(t) if array.name in self.routine.identities and t.size else zeros(t)
            for array, t in zip(self.results, self.result_types, strict=True)
        ]

    def _refused(self, rule: str) -> Exception:
        return self.ctx.unsupported(f"{self.name} {rule}")


def _identity(type_: TensorType) -> ir.Value:
    if not type_.rank:
        return constant_value(1, type_.element)
    one = np.eye(type_.shape[-2], type_.shape[-1], dtype=type_.element.dtype)
    return constant_array(np.broadcast_to(one, type_.shape), type_)


for _name in ROUTINES:
    operation_call(f"lapack_{_name}_ffi")(functools.partial(call_of_lapack, _name))


def triangular_system(ctx: LoweringContext, a: ir.Value, b: ir.Value) -> ir.Value:
    """BLAS's trsm, lowered as triangular_solve."""
    layouts = layouts_of(ctx, OPERANDS, ctx.operand_types) + layouts_of(ctx, RESULTS, ctx.result_types)
    if any(side != in_columns(side.type) for side in layouts):
        raise ctx.unsupported("trsm takes matrices that lie in columns")
    attributes = attributes_of_call(ctx)
    side, lower, transpose, diagonal = (chr(attributes[name]) for name in ("side", "uplo", "trans_x", "diag"))
    words = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    return solve_triangular(
        ctx, a, b, words[transpose], left_side=side == "L", lower=lower == "L", unit_diagonal=diagonal == "U"
    )


for _letter in LETTERS:
    operation_call(f"lapack_{_letter}trsm_ffi")(triangular_system)
