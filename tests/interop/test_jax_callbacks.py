"""Python callbacks of JAX: what they are given, the order of their effects, and what they raise.

The oracle is `jax.jit`: the same calls with the same values, in the same order where order is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify, io_callback
from jax.experimental.buffer_callback import buffer_callback

import stablexla as sx
from stablexla.interop.jax import from_lowered, jit
from tests.interop.jax_comparison import assert_as_jax, assert_same_trees
from tests.threads import in_threads

X = np.arange(4, dtype=np.float32)


def like(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x))


class TestPure:
    def test_trees_of_values(self) -> None:
        def host(tree: Any, *, scale: Any) -> Any:
            return {"sorted": np.sort(tree["x"])[::-1] * scale, "count": np.int32(len(tree["x"]))}

        def function(x: Any) -> Any:
            shapes = {"sorted": like(x), "count": jax.ShapeDtypeStruct((), "int32")}
            return jax.pure_callback(host, shapes, {"x": x + 1}, scale=2.0)

        assert_as_jax(function, X)

    @pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "complex64"])
    def test_element_types(self, dtype: str) -> None:
        x = jnp.array([0, 1, 1]).astype(dtype)
        assert_as_jax(lambda x: jax.pure_callback(lambda v: np.asarray(v)[::-1], like(x), x), x)

    def test_mapped(self) -> None:
        def function(x: Any, method: str) -> Any:
            return jax.vmap(lambda v: jax.pure_callback(lambda v: np.cumsum(v, -1), like(v), v, vmap_method=method))(x)

        for method in ("sequential", "expand_dims"):
            assert_as_jax(lambda x, method=method: function(x, method), np.ones((3, 1), np.float32))

    def test_gradient_through_custom_rule(self) -> None:
        @jax.custom_vjp
        def sine(x: Any) -> Any:
            return jax.pure_callback(np.sin, like(x), x)

        sine.defvjp(lambda x: (sine(x), x), lambda x, g: (g * jax.pure_callback(np.cos, like(x), x),))
        assert_as_jax(jax.grad(lambda x: sine(x).sum()), X)

    def test_a_callback_may_call_jax_and_stablexla(self) -> None:
        inner = jit(lambda x: x * 3)

        def host(x: Any) -> Any:
            return np.asarray(jax.jit(jnp.sin)(x)) + np.asarray(inner(x)) + np.asarray(jnp.zeros(4) + 1)

        assert_as_jax(lambda x: jax.pure_callback(host, like(x), x) * 2, X)

    def test_what_it_was_given_stays_as_it_was(self) -> None:
        kept: list[Any] = []

        def host(x: Any) -> Any:
            kept.append(x)
            return np.asarray(x) + 1

        def function(x: Any) -> Any:
            return jax.lax.fori_loop(0, 5, lambda _, y: jax.pure_callback(host, like(y), y), x)

        jit(function)(X)
        for i, array in enumerate(kept):
            np.testing.assert_array_equal(array, X + i)

    def test_unused_ones_are_dropped(self) -> None:
        calls: list[int] = []

        def function(x: Any) -> Any:
            jax.pure_callback(lambda v: calls.append(1) or v, like(x), x)
            return x

        jit(function)(X)
        assert not calls

    def test_threads(self) -> None:
        function = jit(lambda x: jax.pure_callback(lambda v: np.asarray(v) * 2, like(x), x) + 1)
        function(X)
        results: list[Any] = [None] * 4

        def run(i: int) -> None:
            for _ in range(20):
                results[i] = function(X + i)

        in_threads(run, range(4))
        for i, result in enumerate(results):
            np.testing.assert_array_equal(result, (X + i) * 2 + 1)


class TestEffects:
    """Each function is given a list that its callbacks write to."""

    def both(self, function: Callable[..., Any], *args: Any, ordered: bool = True) -> list[Any]:
        """What a function notes, the same by both; its results are the same too."""
        noted: list[list[Any]] = []
        results = []
        for compiler in (jit, jax.jit):
            log: list[Any] = []
            results.append(compiler(lambda *args, log=log: function(log, *args))(*args))
            jax.effects_barrier()
            noted.append(log if ordered else sorted(log, key=str))
        assert_same_trees(results[0], results[1])
        assert noted[0] == noted[1]
        return noted[0]

    def test_ordered(self) -> None:
        def function(log: list[Any], x: Any) -> Any:
            def note(v: Any) -> Any:
                log.append(float(v))
                return np.float32(len(log))

            first = io_callback(note, like(x), x, ordered=True)
            io_callback(lambda v: log.append(("seen", int(v))), None, 7, ordered=True)
            return first, io_callback(note, like(x), x * 2, ordered=True)

        assert self.both(function, np.float32(3)) == [3.0, ("seen", 7), 6.0]

    def test_in_scan(self) -> None:
        def function(log: list[Any], x: Any) -> Any:
            def body(total: Any, v: Any) -> Any:
                io_callback(lambda t, v: log.append((float(t), float(v))), None, total, v, ordered=True)
                return total + v, total

            return jax.lax.scan(body, jnp.float32(0), x)

        assert self.both(function, X) == [(0.0, 0.0), (0.0, 1.0), (1.0, 2.0), (3.0, 3.0)]

    def test_in_while(self) -> None:
        def function(log: list[Any], n: Any) -> Any:
            def body(i: Any) -> Any:
                io_callback(lambda v: log.append(int(v)), None, i, ordered=True)
                return i + 1

            return jax.lax.while_loop(lambda i: i < n, body, 0)

        assert self.both(function, 4) == [0, 1, 2, 3]

    def test_in_branches(self) -> None:
        def function(log: list[Any], i: Any, x: Any) -> Any:
            def branch(name: str) -> Callable[[Any], Any]:
                def run(x: Any) -> Any:
                    io_callback(lambda: log.append(name), None, ordered=True)
                    return x + len(name)

                return run

            x = jax.lax.switch(i, [branch("zero"), branch("one"), branch("three")], x)
            return jax.lax.cond(x.sum() > 100, branch("large"), branch("small"), x)

        assert self.both(function, 1, X) == ["one", "small"]
        assert self.both(function, 2, X * 100) == ["three", "large"]

    def test_unordered_ones_run_too(self) -> None:
        def function(log: list[Any], x: Any) -> Any:
            io_callback(lambda v: log.append(v.tolist()), None, x)
            return x

        assert self.both(function, X) == [[0.0, 1.0, 2.0, 3.0]]

    def test_debug_callback(self) -> None:
        def function(log: list[Any], x: Any) -> Any:
            jax.debug.callback(lambda v, name: log.append((name, float(v))), x.sum(), name="sum")
            return jax.vmap(lambda v: jax.debug.callback(lambda v: log.append(float(v)), v, ordered=False) or v * 2)(x)

        assert self.both(function, X, ordered=False) == [("sum", 6.0), 0.0, 1.0, 2.0, 3.0]


class TestPrint:
    def test_print(self, capsys: pytest.CaptureFixture[str]) -> None:
        def function(x: Any) -> Any:
            jax.debug.print("sum {total} of {x}", total=x.sum(), x=x)

            def body(i: Any, y: Any) -> Any:
                jax.debug.print("{} {}", i, y[0], ordered=True)
                return y * 2

            return jax.lax.fori_loop(0, 3, body, x + 1)

        jit(function)(X)
        ours = capsys.readouterr().out
        jax.jit(function)(X)
        jax.effects_barrier()
        assert ours == capsys.readouterr().out
        assert ours.splitlines() == ["sum 6.0 of [0. 1. 2. 3.]", "0 1.0", "1 2.0", "2 4.0"]

    def test_print_in_branches(self, capsys: pytest.CaptureFixture[str]) -> None:
        def function(x: Any) -> Any:
            return jax.lax.cond(x > 0, lambda: jax.debug.print("yes"), lambda: jax.debug.print("no {x}", x=x))

        jit(function)(1)
        jit(function)(-1)
        assert capsys.readouterr().out == "yes\nno -1\n"


class TestBuffers:
    """Functions that write their results where they are told, by `buffer_callback`; compared with XLA's CPU."""

    def test_results_of_two_types(self) -> None:
        def halves(ctx: Any, out: Any, x: Any) -> None:
            assert ctx.stage.name == "EXECUTE"
            with pytest.raises(jax.errors.JaxRuntimeError, match="GPU context is not available"):
                _ = ctx.stream
            assert [each.writeable for each in (*out, x)] == [True, True, False]
            np.asarray(out[0])[...] = np.asarray(x) / 2
            np.asarray(out[1])[()] = np.asarray(x).sum()

        made = buffer_callback(halves, (like(X), jax.ShapeDtypeStruct((), jnp.bfloat16)))
        assert_same_trees(jit(lambda x: made(x + 1))(X), jax.jit(lambda x: made(x + 1))(X))

    def test_a_result_that_begins_as_an_argument(self) -> None:
        def add(_: Any, out: Any, x: Any, y: Any) -> None:
            assert np.shares_memory(out, y)
            assert not np.shares_memory(out, x)
            np.asarray(out)[...] += np.asarray(x)

        made = buffer_callback(add, like(X), input_output_aliases={1: 0})
        np.testing.assert_array_equal(jit(made)(X, X * 3), X * 4)

    def test_it_returns_nothing(self) -> None:
        with pytest.raises(ValueError, match="must not return any values"):
            jit(buffer_callback(lambda *_: 1, like(X)))(X)


class TestErrors:
    def test_what_a_callback_raises_reaches_the_caller(self) -> None:
        class Refused(Exception):
            pass

        def host(x: Any) -> Any:
            if x > 2:
                raise Refused("too large")
            return np.asarray(x) + 1

        function = jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, y: jax.pure_callback(host, like(y), y), x))
        for _ in range(2):
            with pytest.raises(Refused, match="too large"):
                function(np.float32(0))
        np.testing.assert_array_equal(jit(lambda x: jax.pure_callback(host, like(x), x))(np.float32(1)), 2)

    @pytest.mark.parametrize("made", [np.zeros(3, np.float32), np.zeros(4, np.int32)])
    def test_a_result_of_another_type(self, made: np.ndarray) -> None:
        with pytest.raises(RuntimeError, match="Incorrect output"):
            jit(lambda x: jax.pure_callback(lambda v: made, like(x), x))(X)

    def test_text_has_no_functions(self) -> None:
        text = jax.jit(lambda x: jax.pure_callback(np.sin, like(x), x)).lower(X).as_text()
        with pytest.raises(sx.UnsupportedError, match=r"(?s)xla_ffi_python_cpu_callback.*process.*from_lowered"):
            sx.compile(text)


def test_a_lowered_function_brings_its_callbacks() -> None:
    lowered = jax.jit(lambda x: jax.pure_callback(np.sin, like(x), x)).lower(X)
    executable = from_lowered(lowered).executable
    np.testing.assert_array_equal(executable(X), np.sin(X))
    assert "jax callback" in executable.ir("stablehlo")  # made again from the source


def test_checkify() -> None:
    def function(x: Any) -> Any:
        checkify.check(x.sum() > 0, "the sum is {s}", s=x.sum())
        return jnp.log(x)

    checked = jit(checkify.checkify(function, errors=checkify.user_checks | checkify.float_checks))
    error, result = checked(X + 1)
    assert error.get() is None
    np.testing.assert_allclose(result, np.log(X + 1), rtol=1e-6)
    assert "the sum is -6.0" in checked(-X)[0].get()
