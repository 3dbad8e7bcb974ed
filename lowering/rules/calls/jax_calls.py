"""Lowering of JAX's custom calls other than LAPACK's: top-k, shape assertions, and TPU linear algebra.

The last are found in programs that were exported for another platform; LAPACK computes the same.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
from mlir.dialects import arith, tensor

from stablexla.dialects.attributes.comparators import direction_of
from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.errors import UnsupportedError
from stablexla.lowering.kernels.sort.comparators import has_keys
from stablexla.lowering.rules.calls.attributes import CONFIG, attributes_of_call
from stablexla.lowering.rules.calls.custom_call import operation_call
from stablexla.lowering.rules.calls.host import host_call
from stablexla.lowering.rules.calls.lapack import ELEMENTS, call_routine
from stablexla.lowering.rules.calls.lapack_routines import ROUTINES
from stablexla.lowering.rules.calls.layouts import in_columns, row_major
from stablexla.lowering.rules.devices.effects import zeros
from stablexla.lowering.rules.order import best
from stablexla.lowering.rules.shape import reshaped, transposed
from stablexla.lowering.support.context import LoweringContext, place_of
from stablexla.lowering.support.generic import elementwise
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.loops import as_index, count, empties
from stablexla.lowering.support.storage import constant
from stablexla.lowering.support.types import TensorType

S32 = BY_NAME["s32"]
SHAPE_ASSERTION = "shape_assertion"


@operation_call("AllocateBuffer")
def allocate_buffer(ctx: LoweringContext) -> list[ir.Value]:
    """An array of undefined contents."""
    return [zeros(t) for t in ctx.result_types]


@operation_call("dce_sink")
def dce_sink(ctx: LoweringContext, *_: ir.Value) -> list[ir.Value]:
    """Nothing: its operand counts as used."""
    return []


# ---- approximate top-k -----------------------------------------------------------------------------------------------


@operation_call("ApproxTopK")
def approx_top_k(ctx: LoweringContext, x: ir.Value, places: ir.Value, *_: ir.Value) -> list[ir.Value]:
    """The top-k elements along a dimension and their indices; computed exactly, which satisfies any recall."""
    source, attributes = ctx.operand_types[0], attributes_of_call(ctx)
    along = int(attributes["reduction_dim"]) % source.rank
    if not _counts(ctx.op.operands[1], along) or not has_keys(source.element):
        raise ctx.unsupported(
            "ApproxTopK of this element type, or with anything but the elements' places to bring along"
        )
    order = [d for d in range(source.rank) if d != along] + [along]
    last = [t.with_shape(tuple(t.shape[d] for d in order)) for t in (source, *ctx.result_types)]
    found = best(ctx, transposed(x, source, order), last[0], last[1:], largest=_wants_largest(ctx))
    back = [order.index(d) for d in range(source.rank)]
    return [transposed(v, t, back) for v, t in zip(found, last[1:], strict=True)]


def _counts(value: hlo_ir.Value, along: int) -> bool:
    """Whether an array is an s32 iota along a dimension."""
    maker = value.owner
    if not isinstance(maker, hlo_ir.OpView | hlo_ir.Operation) or maker.operation.name != "stablehlo.iota":
        return False
    element = hlo_ir.RankedTensorType(value.type).element_type
    return int(maker.operation.attributes["iota_dimension"]) == along and str(element) == "i32"


def _wants_largest(ctx: LoweringContext) -> bool:
    """Whether the comparator puts the larger element first."""
    (name,) = ctx.attributes["called_computations"]
    direction = direction_of(ctx.function(hlo_ir.FlatSymbolRefAttr(name).value))
    if direction is None:
        raise ctx.unsupported("the first two arguments must be compared, by GT or LT")
    return direction == "GT"


@operation_call("TopK")
def top_k(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """XLA's TopK: the best elements along the last dimension by its comparator, and their indices."""
    if not has_keys(ctx.operand_types[0].element):
        raise ctx.unsupported("TopK of this element type")
    largest = "called_computations" not in ctx.attributes or _wants_largest(ctx)
    return best(ctx, x, ctx.operand_types[0], ctx.result_types, largest=largest)


# ---- assertions ------------------------------------------------------------------------------------------------------


@operation_call(SHAPE_ASSERTION)
def shape_assertion(ctx: LoweringContext, *values: ir.Value) -> list[ir.Value]:
    """An assertion with a run-time condition: the host checks it and raises its error."""
    host_call(ctx, "assertion", values, ctx.operand_types, [], effect=True, text=text_of(ctx.attributes))
    return []


def text_of(attributes: Any) -> str:
    """The error message of a shape assertion."""
    if "error_message" not in attributes:
        return "a shape assertion does not hold"
    return str(hlo_ir.StringAttr(attributes["error_message"]).value)


# ---- linear algebra --------------------------------------------------------------------------------------------------


def _routine(ctx: LoweringContext, names: str) -> str:
    """Return the LAPACK routine of that name for the first operand's element type."""
    element = ctx.operand_types[0].element
    letter = next((letter for letter, known in ELEMENTS.items() if known == element), None)
    if letter is None:
        raise ctx.unsupported("linear algebra of this element type")
    return next(letter + name for name in names.split() if letter + name in ROUTINES)


@operation_call("Qr")
def qr(ctx: LoweringContext, a: ir.Value) -> list[ir.Value]:
    """QR factorization: the packed factors, and the scalar factors (tau) of the Householder reflectors."""
    packed, scales = ctx.result_types
    outputs = [in_columns(packed), row_major(scales)]
    return call_routine(ctx, _routine(ctx, "geqrf"), [a], {}, [in_columns(ctx.operand_types[0])], outputs)


@operation_call("ProductOfElementaryHouseholderReflectors")
def product_of_reflectors(ctx: LoweringContext, a: ir.Value, scales: ir.Value) -> list[ir.Value]:
    """The orthogonal matrix Q from packed Householder reflectors."""
    inputs = [in_columns(ctx.operand_types[0]), row_major(ctx.operand_types[1])]
    return call_routine(ctx, _routine(ctx, "orgqr ungqr"), [a, scales], {}, inputs, [in_columns(ctx.result)])


@operation_call("Eigh")
def eigh(ctx: LoweringContext, a: ir.Value) -> list[ir.Value]:
    """Eigenvectors and eigenvalues, sorted; iterations and tolerance belong to another algorithm and are ignored."""
    vectors, values = ctx.result_types
    text = hlo_ir.StringAttr(ctx.attributes[CONFIG]).value if CONFIG in ctx.attributes else "1"
    attributes = {"mode": ord("V"), "uplo": ord("U" if text.startswith("0") else "L")}
    outputs = [in_columns(vectors), row_major(values), row_major(TensorType(S32, vectors.shape[:-2]))]
    return call_routine(
        ctx, _routine(ctx, "syevd heevd"), [a], attributes, [in_columns(ctx.operand_types[0])], outputs
    )[:2]


@operation_call("LuDecomposition")
def lu_decomposition(ctx: LoweringContext, a: ir.Value) -> list[ir.Value]:
    """LU factorization: both factors in one matrix, the pivots counted from 0, and the row permutation."""
    factors, pivots, permutation = ctx.result_types
    outputs = [in_columns(factors), row_major(pivots), row_major(TensorType(S32, factors.shape[:-2]))]
    lu, exchanges, _ = call_routine(ctx, _routine(ctx, "getrf"), [a], {}, [in_columns(ctx.operand_types[0])], outputs)
    one = constant(ir.IntegerType.get_signless(32), 1)
    (from_zero,) = elementwise([exchanges], [pivots], [pivots], lambda v: arith.subi(v, one))
    return [lu, from_zero, _permutation(ctx, from_zero, pivots, permutation)]


def _permutation(ctx: LoweringContext, exchanges: ir.Value, source: TensorType, result: TensorType) -> ir.Value:
    """Emit the row permutation of LU pivots: row i exchanged with row exchanges[i], in order of i."""
    batch, n = source.size // max(1, source.shape[-1]), result.shape[-1]
    flat, made = source.with_shape((batch, source.shape[-1])), result.with_shape((batch, n))

    def body(given: ir.Value) -> Sequence[ir.Value]:
        return count(0, batch, empties([made]), functools.partial(_permuted, given, n))

    (value,) = kernel(ctx, "permutation", [reshaped(exchanges, source, flat)], body, result_types=[made])
    return reshaped(value, made, result)


def _permuted(given: ir.Value, n: int, batch: ir.Value, rows: ir.Value) -> Sequence[ir.Value]:
    i32 = ir.IntegerType.get_signless(32)

    def begin(i: ir.Value, rows: ir.Value) -> Sequence[ir.Value]:
        return [tensor.insert(arith.index_cast(i32, i), rows, [batch, i])]

    def exchange(i: ir.Value, rows: ir.Value) -> Sequence[ir.Value]:
        j = as_index(tensor.extract(given, [batch, i]))
        one, other = (tensor.extract(rows, [batch, place]) for place in (i, j))
        return [tensor.insert(one, tensor.insert(other, rows, [batch, i]), [batch, j])]

    return count(0, int(given.type.shape[1]), count(0, n, [rows], begin), exchange)


# ---- callbacks -------------------------------------------------------------------------------------------------------


ON_BUFFERS = "xla_buffer_python_cpu_callback"
"""The target of `buffer_callback`, whose functions write their results into arrays that they are given."""

PARTITIONED = "xla_ffi_partitioned_python_cpu_callback"
"""The target of `debug.callback(partitioned=True)`."""

CALLBACKS = (ON_BUFFERS, PARTITIONED, "xla_ffi_python_cpu_callback", "xla_python_cpu_callback")
"""Targets of JAX's custom calls of Python functions."""


def unbound(ctx: LoweringContext, *operands: ir.Value) -> ir.Value:
    """Raise UnsupportedError."""
    name = str(hlo_ir.StringAttr(ctx.attributes["call_target_name"]).value)
    raise UnsupportedError(
        f"{name!r} calls a Python function, and which one only the process knows that traced the program in JAX"
        + place_of(ctx.op.location),
        operation="custom_call",
        hint="stablexla.interop.jax.jit(f), or from_lowered(jax.jit(f).lower(...)), in that process",
    )


for _name in CALLBACKS:
    operation_call(_name)(unbound)
