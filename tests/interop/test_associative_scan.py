"""JAX's associative scans: found as one operation, and computed like one after the other. Oracle: numpy, in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import stablexla as sx

Pair = tuple[Any, Any]


def recurrence(p: Pair, q: Pair) -> Pair:
    return p[0] * q[0], q[0] * p[1] + q[1]


def segmented(p: Pair, q: Pair) -> Pair:
    return jnp.where(q[1], q[0], p[0] + q[0]), p[1] | q[1]


def last_one(p: Any, q: Any) -> Any:
    return jnp.where(q != 0, q, p)


def lowered(function: Callable[..., Any], *arrays: Any, axis: int = 0, reverse: bool = False) -> Any:
    def scan(*given: Any) -> Any:
        return lax.associative_scan(function, given if len(given) > 1 else given[0], axis=axis, reverse=reverse)

    return jax.jit(scan).lower(*arrays)


def scanned(function: Callable[..., Any], arrays: tuple[np.ndarray, ...], axis: int, reverse: bool) -> list[np.ndarray]:
    """One element after the other."""
    turned = [np.moveaxis(np.flip(a, axis) if reverse else a, axis, 0).copy() for a in arrays]
    with np.errstate(all="ignore"):
        for i in range(1, len(turned[0])):
            before, here = tuple(t[i - 1] for t in turned), tuple(t[i] for t in turned)
            made = function(before, here) if len(arrays) > 1 else (function(before[0], here[0]),)
            for t, value in zip(turned, made, strict=True):
                t[i] = value
    moved = [np.moveaxis(t, 0, axis) for t in turned]
    return [np.flip(m, axis) if reverse else m for m in moved]


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array


def numpy_segmented(p: Pair, q: Pair) -> Pair:
    return np.where(q[1], q[0], p[0] + q[0]), p[1] | q[1]


def numpy_last(p: Any, q: Any) -> Any:
    return np.where(q != 0, q, p)


def compared(
    function: Callable[..., Any],
    oracle: Callable[..., Any],
    arrays: tuple[np.ndarray, ...],
    *,
    axis: int = 0,
    reverse: bool = False,
    tolerance: float = 2e-6,
) -> None:
    program = lowered(function, *arrays, axis=axis, reverse=reverse)
    executable = sx.compile(program.as_text())
    kernels = executable.ir("kernels")
    assert kernels.count('stablexla.kernel = "scan"') == 1, "there is one kernel"
    assert kernels.count("stablexla.kernel") == 1
    got = executable(*arrays)
    exact = scanned(oracle, tuple(wide(a) for a in arrays), axis, reverse)
    for one, other, array in zip(got if isinstance(got, tuple | list) else [got], exact, arrays, strict=True):
        assert one.dtype == array.dtype
        if one.dtype.kind in "biu":
            np.testing.assert_array_equal(one, other)
        else:
            # An element has the roundings of the totals before it, which may have been larger.
            (largest,) = scanned(np.maximum, (np.maximum(1, np.abs(other)),), axis, reverse)
            assert (np.abs(wide(one) - other) <= tolerance * largest).all()


def draw(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(dtype)


# Lines with and without tails, one and many; blocks of long ones; the same for rows and panels of them.
SHAPES = [((16,), 0), ((17,), 0), ((1003,), 0), ((20_001,), 0), ((16_384,), 0), ((3, 40), 1), ((9, 31), 1)]
SHAPES += [((40, 3), 0), ((3, 40, 5), 1), ((9, 17, 33), 1), ((9_000, 3), 0), ((3_000, 64), 0), ((20, 1_100), 0)]


class TestKernels:
    @pytest.mark.parametrize(("shape", "axis"), SHAPES)
    def test_recurrence(self, shape: tuple[int, ...], axis: int) -> None:
        factors, added = draw(*shape), draw(*shape[::-1]).reshape(shape)
        compared(recurrence, recurrence, (factors, added), axis=axis)

    @pytest.mark.parametrize(("shape", "axis"), SHAPES[1:10:2])
    def test_from_the_end(self, shape: tuple[int, ...], axis: int) -> None:
        factors, added = draw(*shape), draw(*shape[::-1]).reshape(shape)
        compared(recurrence, recurrence, (factors, added), axis=axis, reverse=True)

    @pytest.mark.parametrize(
        ("shape", "axis", "reverse"), [((20_001,), 0, False), ((20_001,), 0, True), ((3, 50, 5), 1, False)]
    )
    def test_segments(self, shape: tuple[int, ...], axis: int, reverse: bool) -> None:
        begins = np.random.default_rng(3).random(shape) < 0.1
        compared(segmented, numpy_segmented, (draw(*shape), begins), axis=axis, reverse=reverse)

    @pytest.mark.parametrize(
        ("dtype", "reverse"),
        [(np.int8, True), (np.uint16, False), (np.int32, True), (np.int64, False), (np.float64, True)],
    )
    def test_elements(self, dtype: Any, reverse: bool) -> None:
        numbers = np.random.default_rng(4).integers(0, 3, (9, 150)) * (np.arange(150) % 99)
        with jax.enable_x64(True):
            compared(last_one, numpy_last, (numbers.astype(dtype),), axis=1, reverse=reverse)

    @pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
    def test_short_floats(self, dtype: Any) -> None:
        numbers = np.random.default_rng(5).integers(-3, 4, (5, 50)).astype(dtype)
        compared(jnp.add, np.add, (numbers,), axis=1)
        compared(jnp.maximum, np.maximum, (numbers,), axis=0 if numbers.shape[0] >= 16 else 1, reverse=True)

    def test_known_operations(self) -> None:
        compared(jnp.add, np.add, (draw(20_001),))
        compared(jnp.multiply, np.multiply, (1 + draw(3, 100) / 100,), axis=1, reverse=True)
        compared(jnp.minimum, np.minimum, (draw(70, 40),))
        compared(jnp.logical_xor, np.logical_xor, (draw(100) > 0,))

    def test_numbers_from_outside(self) -> None:
        def joined(x: Any, d: Any) -> Any:
            return lax.associative_scan(lambda p, q: p + d + q - 3, x)

        x, d = draw(300), np.float32(2.5)
        executable = sx.compile(jax.jit(joined).lower(x, d).as_text())
        assert executable.ir("kernels").count("stablexla.kernel") == 1
        np.testing.assert_allclose(executable(x, d), jax.jit(joined)(x, d), rtol=1e-5, atol=1e-5)


class TestValues:
    def test_zeros_are_positive(self) -> None:
        """As in the tree, which adds zeros to all of them."""
        for function in (jnp.add, jnp.maximum, jnp.multiply, lambda p, q: p - 0 * q):
            for shape, axis in (((40,), 0), ((3, 40), 1), ((40, 3), 0), ((20, 1_100), 0)):
                zeros = np.full(shape, -0.0, np.float32)
                got = sx.compile(lowered(function, zeros, axis=axis).as_text())(zeros)
                assert not np.signbit(got).any()

    def test_not_a_number(self) -> None:
        x = draw(300)
        x[137] = np.nan
        for function in (jnp.add, jnp.maximum, last_one):
            got = sx.compile(lowered(function, x).as_text())(x)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(lowered(function, x).compile()(x)))

    def test_threads(self) -> None:
        """How the work is cut depends on the sizes alone."""
        text = lowered(recurrence, draw(50_000), draw(50_000)).as_text()
        one, more = (sx.compile(text, options=sx.CompileOptions(num_threads=n)) for n in (1, 2))
        for a, b in zip(one(draw(50_000), draw(50_000)), more(draw(50_000), draw(50_000)), strict=True):
            np.testing.assert_array_equal(a, b)


class TestRecognition:
    def found(self, function: Callable[..., Any], *arrays: Any) -> list[str]:
        text = sx.compile(jax.jit(function).lower(*arrays).as_text()).ir("stablehlo")
        main = text.split("func.func private")[0]
        return [line.strip() for line in main.splitlines() if "stablexla.associative_scan" in line]

    def test_only_what_is_used_is_returned(self) -> None:
        (line,) = self.found(lambda x, y: lax.associative_scan(recurrence, (x, y))[1], draw(50), draw(50))
        assert "arrays = 2" in line
        assert line.count("tensor<50xf32>") == 3

    def test_arrays_that_have_nothing_to_do_with_each_other(self) -> None:
        def both(x: Any, y: Any) -> Any:
            return lax.associative_scan(lambda p, q: (p[0] + q[0], p[1] * q[1]), (x, y))

        assert len(self.found(both, draw(50), draw(50))) == 2

    def test_reversed(self) -> None:
        (line,) = self.found(lambda x: lax.associative_scan(jnp.add, x, reverse=True), draw(50))
        assert "backwards = true" in line

    def test_short_ones_stay(self) -> None:
        assert not self.found(lambda x: lax.associative_scan(jnp.add, x), draw(15))

    @pytest.mark.parametrize(("shape", "axis"), [((0, 23), 1), ((23, 0), 0), ((2, 23, 0), 1)])
    def test_empty_ones_stay(self, shape: tuple[int, ...], axis: int) -> None:
        empty = draw(*shape)
        got = sx.compile(lowered(recurrence, empty, empty, axis=axis).as_text())(empty, empty)
        assert [one.shape for one in got] == [shape, shape]

    def test_empty_parts_of_something_else(self) -> None:
        """Where two elements are left, no element stands between pairs."""

        def scan(x: Any, other: Any) -> Any:
            return lax.associative_scan(lambda p, q: p + q if len(p) else jnp.broadcast_to(other[:0], p.shape), x)

        x, other = np.arange(160, dtype=np.int32).reshape(32, 5), np.ones((1, 5), np.int32)
        got = sx.compile(jax.jit(scan).lower(x, other).as_text())(x, other)
        np.testing.assert_array_equal(got, np.cumsum(x, axis=0))

    def test_products_of_matrices_stay(self) -> None:
        assert not self.found(lambda x: lax.associative_scan(jnp.matmul, x), draw(20, 2, 2))

    @pytest.mark.parametrize("what", ["stride = 2", "other operation", "other element", "other array", "no zero"])
    def test_almost_scans_stay(self, what: str) -> None:
        """One operation of a level differs."""
        text = lowered(jnp.add, draw(64)).as_text()
        before, after = {
            "stride = 2": ("%3 = stablehlo.slice %2 [0:31:2]", "%3 = stablehlo.slice %2 [1:32:2]"),
            "other operation": ("%8 = stablehlo.add", "%8 = stablehlo.maximum"),
            "other element": ("[2:64:2] : (tensor<64xf32>)", "[1:63:2] : (tensor<64xf32>)"),
            "other array": ("%6 = stablehlo.slice %5", "%6 = stablehlo.slice %4"),
            "no zero": ("stablehlo.constant dense<0.0", "stablehlo.constant dense<1.0"),
        }[what]
        assert before in text, text
        changed = text.replace(before, after) if what == "no zero" else text.replace(before, after, 1)
        executable = sx.compile(changed)
        x = draw(64)
        kept = [
            line for line in executable.ir("stablehlo").splitlines() if "tensor<64xf32>" in line and "composite" in line
        ]
        assert not kept
        np.testing.assert_allclose(executable(x), sx.compile(changed, options=plain())(x), rtol=1e-5, atol=1e-5)


def plain() -> sx.CompileOptions:
    """Without the pass."""
    from stablexla.targets.cpu.pipeline import cpu_pipeline

    made = cpu_pipeline()
    first = made.steps[0]
    return sx.CompileOptions(pipeline=made.with_step(first.name, first.passes.replace(",stablexla-find-scans", "")))
