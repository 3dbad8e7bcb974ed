"""Kernels for composites that are registered in Python. Oracles: the decompositions, numpy and scipy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from mlir.dialects import arith, tosa

import stablexla as sx
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import elementwise
from tests.comparison import assert_same

X = np.array([-1, 0, 2], np.float32)


def swish(x: np.ndarray, beta: float = 1.0) -> np.ndarray:
    return (x / (1 + np.exp(-np.float32(beta) * x))).astype(x.dtype)


def program(
    name: str = "my.swish",
    version: int = 1,
    attributes: Any = None,
    shapes: tuple[sx.Shape, ...] = (sx.f32[3],),
    meaning: Callable[..., Any] = lambda x: x * sx.logistic(x),
) -> sx.XlaComputation:
    b = sx.XlaBuilder("program")
    xs = [b.parameter(i, shape) for i, shape in enumerate(shapes)]
    made = sx.composite_call(xs, name, attributes, meaning, version)
    assert made.is_composite
    assert not xs[0].is_composite
    return b.build(made)


def test_a_function_computes_it() -> None:
    seen: list[float] = []
    sx.register_composite_kernel("my.swish", 1, lambda x, beta: (seen.append(beta), swish(x, beta))[1])
    computation = program(attributes="{beta = 1.0 : f32}")
    executable = sx.compile(computation)
    assert executable.composites == {"my.swish v1": "kernel"}
    assert_same(executable(X), swish(X))
    assert seen == [1.0]
    assert sx.check_composite_kernel(computation, [X]) == {"my.swish v1": "kernel"}
    assert sx.check_composite_kernel(computation) == {"my.swish v1": "kernel"}


def test_attributes_of_every_kind_come_by_name() -> None:
    seen: list[dict[str, Any]] = []
    sx.register_composite_kernel("my.swish", 1, lambda x, **named: (seen.append(named), swish(x))[1])
    text = '{n = 3 : i32, mode = "a\\"b", flag = true, f = 0.5 : f32, l = [1, "x"], d = {a = 1 : i64}, t = f32, u}'
    sx.compile(program(attributes=text[:-1] + ", a = dense<[[1, 2]]> : tensor<1x2xi16>, i = array<i64: 4, 5>}"))(X)
    (named,) = seen
    array = named.pop("a")
    assert (array.dtype, array.tolist()) == (np.int16, [[1, 2]])
    assert named == {
        "n": 3,
        "mode": 'a"b',
        "flag": True,
        "f": 0.5,
        "l": (1, "x"),
        "d": {"a": 1},
        "t": "f32",
        "u": True,
        "i": (4, 5),
    }


def test_several_operands_and_results() -> None:
    sx.register_composite_kernel("my.both", 0, lambda x, y: (x + y, x - y))
    computation = program("my.both", 0, None, (sx.s32[2], sx.s32[2]), lambda x, y: (x + y, x - y))
    assert sx.check_composite_kernel(computation) == {"my.both v0": "kernel"}


def test_a_lowering_rule_computes_it() -> None:
    def twice(ctx: LoweringContext, x: Any) -> list[Any]:
        return elementwise([x], ctx.operand_types, ctx.result_types, lambda v: arith.addf(v, v))

    sx.register_composite_kernel("my.twice", 0, twice, lowering=True)
    computation = program("my.twice", 0, None, (sx.f32[3],), lambda x: x * 2)
    assert sx.check_composite_kernel(computation) == {"my.twice v0": "kernel"}
    assert "host" not in sx.compile(computation).ir("tensor")


def test_what_a_kernel_does_not_accept_is_decomposed() -> None:
    def accepts(shapes: Any, attributes: Any) -> bool:
        return shapes[0].element_type is sx.f32 and attributes.get("beta") == 1

    sx.register_composite_kernel("my.swish", 1, swish, accepts=accepts)
    assert sx.compile(program(attributes={"beta": 1})).composites == {"my.swish v1": "kernel"}
    assert sx.compile(program(attributes={"beta": 2})).composites == {"my.swish v1": "decomposition"}
    assert sx.compile(program(version=2, attributes={"beta": 1})).composites == {"my.swish v2": "decomposition"}
    double = program(attributes={"beta": 1}, shapes=(sx.f64[3],))
    assert sx.compile(double).composites == {"my.swish v1": "decomposition"}
    with pytest.raises(AssertionError, match="no composite has a kernel; they went"):
        sx.check_composite_kernel(double)


def test_both_ways_in_one_program() -> None:
    sx.register_composite_kernel("my.swish", 1, swish, accepts=lambda shapes, _: shapes[0].rank == 1)
    b = sx.XlaBuilder("program")
    x = b.parameter(0, sx.f32[2, 3])
    rows = [sx.composite_call(v, "my.swish", None, lambda x: x * sx.logistic(x), 1) for v in (x, x[0])]
    executable = sx.compile(b.build(sx.tuple(rows)))
    assert executable.composites == {"my.swish v1": "kernel, decomposition"}
    assert executable.pipeline.up_to("stablehlo") is not None


def test_a_kernel_that_computes_something_else_is_found() -> None:
    sx.register_composite_kernel("my.swish", 1, lambda x: swish(x) + np.float32(1e-3))
    with pytest.raises(AssertionError, match="program: result 0: kernel and decomposition differ"):
        sx.check_composite_kernel(program())
    sx.check_composite_kernel(program(), atol=1e-2)


def test_the_kernel_goes_before_one_of_ours() -> None:
    b = sx.XlaBuilder("program")
    computation = b.build(sx.erf(b.parameter(0, sx.f32[3])))
    sx.register_composite_kernel("chlo.erf", 0, lambda x: np.full_like(x, 7))
    assert sx.compile(computation)(X).tolist() == [7, 7, 7]
    sx.unregister_composite_kernel("chlo.erf", 0)
    sx.unregister_composite_kernel("chlo.erf", 0)
    assert_same(sx.compile(computation)(X), scipy.special.erf(X.astype(np.float64)).astype(np.float32), ulp=2)


def test_exceptions_reach_the_caller() -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise LookupError("what I say")

    sx.register_composite_kernel("my.swish", 1, fail)
    with pytest.raises(LookupError, match="what I say"):
        sx.compile(program())(X)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 0, swish), "name and the number"),
        (("a.b", True, swish), "number of a version"),
        (("a.b", 0, 5), "no function"),
    ],
)
def test_what_is_no_kernel_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        sx.register_composite_kernel(*arguments)


def test_what_a_rule_leaves_is_told_outside_of_tests_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stablexla.targets.pipeline.driver.VERIFIES_ALL", False)
    sx.register_composite_kernel("my.swish", 1, lambda ctx, x: [tosa.abs(x.type, x)], lowering=True)
    with pytest.raises(sx.CompileError, match=r"left over: tosa\.abs") as error:
        sx.compile(program())
    assert error.value.stage == "tensor"
