"""Composites with kernels for GPUs: softmax, layer norm and attention, each a kernel of its own by a lowering rule.

Oracles: the decompositions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlir.ir as ir
import numpy as np
import pytest
from mlir.dialects import arith, math

import stablexla as sx
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import Output, generic, identity, projection
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.types import TensorType
from tests.targets.gpu.programs import numbers, softmax

PARALLEL, REDUCTION = "parallel", "reduction"


class Rows:
    """Operations on the rows of an array, as a kernel's body."""

    def __init__(self, type_: TensorType) -> None:
        self.type, self.rank = type_, type_.rank
        self.row_type = type_.with_shape(type_.shape[:-1])
        self._rows = projection(self.rank, range(self.rank - 1))

    def fold(self, x: ir.Value, start: float, join: Callable[[Any, Any], Any]) -> ir.Value:
        """All elements of each row."""
        maps, kinds = [identity(self.rank), self._rows], [PARALLEL] * (self.rank - 1) + [REDUCTION]
        first = arith.constant(x.type.element_type, start)
        return generic([x], [Output(self.row_type, first)], maps, kinds, lambda v: [join(v[1], v[0])])[0]

    def of(self, values: Sequence[ir.Value], body: Callable[..., Any]) -> ir.Value:
        """A function of elements, of what there is for each row, and of what there is for each place in a row."""
        places = {self.rank: identity(self.rank), 1: projection(self.rank, [self.rank - 1])}
        by_row = [tuple(v.type.shape) == self.row_type.shape for v in values]
        maps = [self._rows if row else places[v.type.rank] for v, row in zip(values, by_row, strict=True)]
        output = Output(self.type)
        return generic(
            values, [output], [*maps, identity(self.rank)], [PARALLEL] * self.rank, lambda v: [body(*v[:-1])]
        )[0]


def softmax_of(rows: Rows, x: ir.Value) -> ir.Value:
    largest = rows.fold(x, -np.inf, arith.maximumf)
    powers = rows.of([x, largest], lambda v, m: math.exp(arith.subf(v, m)))
    return rows.of([powers, rows.fold(powers, 0.0, arith.addf)], arith.divf)


def softmax_rule(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    return kernel(ctx, "row", [x], lambda v: softmax_of(Rows(ctx.result_types[0]), v))


def layer_norm_rule(ctx: LoweringContext, x: ir.Value, scale: ir.Value, shift: ir.Value) -> list[ir.Value]:
    def body(x: ir.Value, scale: ir.Value, shift: ir.Value) -> ir.Value:
        rows = Rows(ctx.result_types[0])

        def number(value: float) -> ir.Value:
            return arith.constant(ir.F32Type.get(), value)

        length = float(ctx.result_types[0].shape[-1])
        sums = rows.fold(x, 0.0, arith.addf)
        centred = rows.of([x, sums], lambda v, s: arith.subf(v, arith.divf(s, number(length))))
        squares = rows.fold(rows.of([centred], lambda v: arith.mulf(v, v)), 0.0, arith.addf)

        def scaled(v: ir.Value, s: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
            variance = arith.addf(arith.divf(s, number(length)), number(1e-5))
            return arith.addf(arith.mulf(arith.mulf(v, math.rsqrt(variance)), a), b)

        return rows.of([centred, squares, scale, shift], scaled)

    return kernel(ctx, "row", [x, scale, shift], body)


def attention_rule(ctx: LoweringContext, q: ir.Value, k: ir.Value, v: ir.Value) -> list[ir.Value]:
    """softmax(q k) v of matrices."""
    (queries, _), (keys, _) = ctx.operand_types[0].shape, ctx.operand_types[1].shape
    zero_of = ir.F32Type.get

    def product(a: ir.Value, b: ir.Value, type_: TensorType, right: tuple[int, int]) -> ir.Value:
        maps = [projection(3, [0, 2]), projection(3, right), projection(3, [0, 1])]
        output = Output(type_, arith.constant(zero_of(), 0.0))
        kinds = [PARALLEL, PARALLEL, REDUCTION]
        return generic([a, b], [output], maps, kinds, lambda x: [arith.addf(x[2], arith.mulf(x[0], x[1]))])[0]

    def body(q: ir.Value, k: ir.Value, v: ir.Value) -> ir.Value:
        scores = ctx.result_types[0].with_shape((queries, keys))
        weights = softmax_of(Rows(scores), product(q, k, scores, (1, 2)))
        return product(weights, v, ctx.result_types[0], (2, 1))

    return kernel(ctx, "attention", [q, k, v], body)


def layer_norm(x: sx.XlaOp, scale: sx.XlaOp, shift: sx.XlaOp) -> sx.XlaOp:
    shape, b = x.shape.dimensions, x.builder

    def mean(v: sx.XlaOp) -> sx.XlaOp:
        return sx.broadcast_in_dim(sx.reduce(v, b.constant(0.0), sx.add, (1,)) / float(shape[1]), shape, (0,))

    centred = x - mean(x)
    scaled = centred * sx.rsqrt(mean(centred * centred) + 1e-5)
    return scaled * sx.broadcast_in_dim(scale, shape, (1,)) + sx.broadcast_in_dim(shift, shape, (1,))


COMPOSITES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...], str]] = {
    "softmax": (softmax_rule, lambda x: softmax(x.builder, x), (numbers(6, 100),), "row"),
    "layer_norm": (layer_norm_rule, layer_norm, (numbers(5, 96), numbers(96, seed=1), numbers(96, seed=2)), "row"),
    "attention": (
        attention_rule,
        lambda q, k, v: sx.dot(softmax(q.builder, sx.dot(q, sx.transpose(k, (1, 0)))), v),
        (numbers(9, 8), numbers(20, 8, seed=1), numbers(20, 12, seed=2)),
        "attention",
    ),
}


def composite(name: str) -> sx.XlaComputation:
    _, meaning, arrays, _ = COMPOSITES[name]
    b = sx.XlaBuilder("program")
    operands = [b.parameter(i, sx.Shape(a.dtype, a.shape)) for i, a in enumerate(arrays)]
    return b.build(sx.composite_call(operands, f"my.{name}", None, meaning, 1))


@pytest.mark.usefixtures("simulated_gpu")
@pytest.mark.parametrize(("name", "target"), [("softmax", "cpu"), *((name, "gpu:sm_80") for name in COMPOSITES)])
def test_a_rule_is_a_kernel_of_both_targets(name: str, target: str) -> None:
    rule, _, arrays, kind = COMPOSITES[name]
    sx.register_composite_kernel(f"my.{name}", 1, rule, lowering=True)
    computation = composite(name)
    ways = sx.check_composite_kernel(computation, list(arrays), target=target)
    assert ways == {f"my.{name} v1": "kernel"}
    kernels = sx.compile(computation, target=target).kernels
    assert [(k.kind, k.path) for k in kernels] == [(kind, "emitted")]


def test_a_kernel_of_one_target() -> None:
    sx.register_composite_kernel("my.softmax", 1, softmax_rule, lowering=True, target="gpu")
    computation = composite("softmax")
    assert sx.compile(computation).composites == {"my.softmax v1": "decomposition"}
    assert sx.compile(computation, target="gpu:sm_80").composites == {"my.softmax v1": "kernel"}
    sx.unregister_composite_kernel("my.softmax", 1, target="gpu")
    assert sx.compile(computation, target="gpu:sm_80").composites == {"my.softmax v1": "decomposition"}


def test_the_kernel_of_a_target_goes_first() -> None:
    sx.register_composite_kernel("my.softmax", 1, lambda x: x * 0)
    sx.register_composite_kernel("my.softmax", 1, softmax_rule, lowering=True, target="cpu")
    assert 'kind = "host"' not in sx.compile(composite("softmax")).ir("kernels")
    x = numbers(6, 100)
    assert np.asarray(sx.compile(composite("softmax"))(x)).any()


@pytest.mark.parametrize(
    ("options", "message"), [({"target": "tpu"}, "'cpu' or 'gpu'"), ({"target": "gpu"}, "runs on the host")]
)
def test_targets_that_there_are_not(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sx.register_composite_kernel("my.softmax", 1, softmax, **options)
