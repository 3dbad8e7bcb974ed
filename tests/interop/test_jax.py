"""Functions of JAX, run here: arguments and results, static and donated ones, caches, and what is refused.

The oracle is `jax.jit` (XLA:CPU), and numpy where a line of it says the same.
"""

from __future__ import annotations

import gc
import sys
import traceback
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.custom_calls import TARGETS
from stablexla.interop.jax import from_exported, from_lowered, jit, required
from tests.interop.jax_comparison import assert_as_jax, assert_same_trees
from tests.threads import in_threads

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Pair(NamedTuple):
    first: Any
    second: Any


class TestTrees:
    def test_nested_arguments_and_results(self) -> None:
        def function(tree: Any, *rest: Any, factor: Any) -> Any:
            return {"pair": Pair(tree["a"] * factor, rest), "none": None, "list": [tree["b"][0] + 1, ()]}

        assert_as_jax(function, {"a": X, "b": [jnp.int8(3)]}, 1.5, (X, True), factor=2)

    def test_one_result_is_no_tuple(self) -> None:
        result = jit(lambda x: x + 1)(X)
        assert isinstance(result, jax.Array)
        np.testing.assert_array_equal(result, X + 1)

    def test_no_results_and_no_arguments(self) -> None:
        assert jit(lambda: None)() is None
        assert_as_jax(lambda: (jnp.arange(3), 2))

    def test_registered_node(self) -> None:
        @jax.tree_util.register_pytree_node_class
        class Affine:
            def __init__(self, w: Any, b: Any) -> None:
                self.w, self.b = w, b

            def tree_flatten(self) -> Any:
                return (self.w, self.b), None

            @classmethod
            def tree_unflatten(cls, _: None, leaves: Any) -> Affine:
                return cls(*leaves)

        result = jit(lambda m: jax.tree.map(lambda leaf: 2 * leaf, m))(Affine(X, X[0]))
        assert isinstance(result, Affine)
        np.testing.assert_array_equal(result.b, 2 * X[0])

    def test_results_that_are_arguments_or_constants(self) -> None:
        assert_as_jax(lambda x, y: (x, x, 3, y, jnp.zeros((0, 2))), X, jnp.zeros((0,)))

    def test_unused_arguments(self) -> None:
        assert_as_jax(lambda a, b, c: b + 1, X, jnp.ones(3), np.int32(4))
        assert_as_jax(lambda a, b: b, X, 2.0, settings={"keep_unused": True})
        kept = jit(lambda a, b: b, keep_unused=True)
        assert len(kept.executable(X, 2.0).parameters) == 2


class TestTypes:
    @pytest.mark.parametrize(
        "dtype", ["bool", "int4", "uint8", "int16", "bfloat16", "float16", "float8_e4m3fn", "complex64"]
    )
    def test_element_types(self, dtype: str) -> None:
        x = jnp.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
        assert_as_jax(lambda x: (x.T, jnp.concatenate([x, x])), x)

    @pytest.mark.parametrize("value", [True, 3, 2.5, 1 + 2j, np.float32(3), np.int64(5), np.float64(2)])
    def test_numbers(self, value: Any) -> None:
        assert_as_jax(lambda v, x: (v, v + x, v * jnp.bfloat16(2)), value, X)

    def test_wide_types_with_x64(self) -> None:
        def function(x: Any, n: Any) -> Any:
            return x / 3, n * 2, x.sum(), jnp.arange(3)

        x, n = np.array([1.0, 2.0]), np.int64(2**40)
        narrow = jit(function)
        with jax.enable_x64(True):
            wide = narrow(x, n)
            assert_same_trees(wide, jax.jit(function)(x, n))
        assert [leaf.dtype.itemsize for leaf in wide] == [8] * 4
        assert_same_trees(narrow(x, 3), jax.jit(function)(x, 3))
        with jax.enable_x64(True):
            assert_same_trees(narrow(x, n), wide)
        assert "2 programs" in repr(narrow)

    def test_wide_arrays_of_numpy_become_narrow(self) -> None:
        assert_as_jax(lambda x, n: (x + 1, n + 1), np.array([1.5, 2.5]), np.array([3, 4]))

    def test_weak_types_of_arguments_are_types_of_their_own(self) -> None:
        double = jit(lambda x: x + jnp.bfloat16(1))
        for value in (jnp.float32(1), jnp.asarray(1.0), 1.0):
            assert_same_trees(double(value), jax.jit(lambda x: x + jnp.bfloat16(1))(value))

    def test_keys(self) -> None:
        def function(key: Any, old: Any) -> Any:
            return jax.random.split(key), jax.random.fold_in(old, 3)

        assert_as_jax(function, jax.random.key(7), jax.random.PRNGKey(3))
        assert_as_jax(lambda k: (k[1:], jax.random.bits(k[0])), jax.random.split(jax.random.key(0, impl="rbg"), 3))

    def test_float0(self) -> None:
        function = jax.grad(lambda n, x: x * n, argnums=(0, 1), allow_int=True)
        assert_as_jax(function, 2, 3.0)

    def test_numpy_results(self) -> None:
        result = jit(lambda x: (x + 1, x.astype(jnp.bfloat16)), returns="numpy")(X)
        assert [type(leaf) for leaf in result] == [np.ndarray] * 2
        np.testing.assert_array_equal(result[0], X + 1)

    def test_arguments_of_any_layout(self) -> None:
        wide = np.arange(24, dtype=np.float32).reshape(4, 6)
        read_only = wide.copy()
        read_only.flags.writeable = False
        for x in (wide[::2, ::-1], wide.T, np.asfortranarray(wide), read_only):
            assert_as_jax(lambda x: x * 2, x)

    def test_results_of_jax_arrays_are_theirs(self) -> None:
        """The memory of a result is not used again while anybody holds it."""
        add = jit(lambda x: x + 1)
        results = [add(jnp.full((100,), float(i))) for i in range(8)]
        gc.collect()
        for i, result in enumerate(results):
            np.testing.assert_array_equal(result, np.full(100, i + 1.0))


class TestCalls:
    def test_closures_and_methods(self) -> None:
        weights = jnp.linspace(0, 1, 3)
        assert_as_jax(lambda x: x * weights, X)

        class Model:
            scale = 3.0

            @partial(jit, static_argnums=0)
            def apply(self, x: Any) -> Any:
                """Scales."""
                return x * self.scale

        np.testing.assert_array_equal(Model().apply(X), X * 3)
        assert Model.apply.__doc__ == "Scales."

    def test_constants_as_arguments(self) -> None:
        big = jnp.arange(1000.0)
        before = jax.config.jax_use_simplified_jaxpr_constants
        jax.config.update("jax_use_simplified_jaxpr_constants", True)
        try:
            assert_as_jax(lambda x, unused: big + x, 2.0, X)
        finally:
            jax.config.update("jax_use_simplified_jaxpr_constants", before)

    def test_nested_jit(self) -> None:
        inner = jit(lambda x: x * 2)
        assert_as_jax(lambda x: inner(x) + jax.jit(jnp.sin)(x), X, ulp=1)
        with_capture = jit(lambda x: jit(lambda y: x + y)(1.0))
        np.testing.assert_array_equal(with_capture(X), X + 1)

    def test_inside_transformations(self) -> None:
        square = jit(lambda x: x**2)
        np.testing.assert_array_equal(jax.grad(lambda x: square(x).sum())(X), 2 * X)
        np.testing.assert_array_equal(jax.vmap(square)(X), X**2)
        np.testing.assert_array_equal(jax.jit(square)(X), X**2)
        assert jax.eval_shape(square, X).shape == square.eval_shape(X).shape == (2, 3)
        np.testing.assert_array_equal(jax.linearize(square, X)[1](np.ones_like(X)), 2 * X)

    def test_programs_by_signature(self) -> None:
        traces = []

        @jit
        def function(x: Any) -> Any:
            traces.append(x)
            return x + 1

        for x in (jnp.ones(2), jnp.zeros(2), np.ones(2, np.float32), np.zeros(2, np.float32), jnp.ones(3), 1.0, 2.0):
            function(x)
        assert len(traces) == 3
        assert repr(function) == "<stablexla.interop.jax.jit of function, 3 programs>"
        function.clear_cache()
        function(jnp.ones(2))
        assert len(traces) == 4

    def test_settings_are_part_of_the_signature(self) -> None:
        x = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
        product = jit(lambda a: a @ a)
        product(x)
        with jax.default_matmul_precision("highest"):
            product(x)
        assert "2 programs" in repr(product)

    def test_static_arguments(self) -> None:
        def function(x: Any, n: int, *, mode: str = "up") -> Any:
            return x**n if mode == "up" else x * n

        power = jit(function, static_argnums=1, static_argnames="mode")
        np.testing.assert_array_equal(power(X, 2), X**2)
        np.testing.assert_array_equal(power(X, 3), X**3)
        np.testing.assert_array_equal(power(X, 3, mode="down"), X * 3)
        by_name = jit(function, static_argnames=("n", "mode"))
        np.testing.assert_array_equal(by_name(X, n=2), X**2)
        np.testing.assert_array_equal(by_name(X, 2, mode="down"), X * 2)
        last = jit(lambda x, n: x * n, static_argnums=-1)
        np.testing.assert_array_equal(last(X, 4), X * 4)

    @pytest.mark.parametrize("freeze", [0, "net", [0, "scale"]], ids=str)
    def test_frozen_arguments(self, freeze: Any) -> None:
        """A tree of small and of large arrays, numpy's and JAX's, behind a static argument and before named ones."""

        def function(net: Any, power: int, x: Any, *, scale: Any) -> Any:
            return (jnp.tanh(x @ net["w"] + net["b"]) @ net["w"]) ** power * scale

        rng = np.random.default_rng(1)
        net = {"w": jnp.asarray(rng.standard_normal((150, 150), np.float32)), "b": rng.standard_normal(150, np.float32)}
        x, scale = rng.standard_normal((3, 150), np.float32), jnp.float32(2)
        run = jit(function, static_argnums=1, freeze=freeze)
        for _ in range(2):
            given = run(net, 2, x, scale=scale)
            np.testing.assert_allclose(given, function(net, 2, x, scale=scale), rtol=1e-4, atol=1e-3)
        assert "1 program" in repr(run)
        count = len(run.executable(net, 2, x, scale=scale).parameters)
        assert count == (1 if freeze == [0, "scale"] else 2)
        other = {"w": net["w"] * 2, "b": net["b"]}
        np.testing.assert_allclose(
            run(other, 2, x, scale=scale), function(other, 2, x, scale=scale), rtol=1e-4, atol=1e-3
        )
        assert "2 programs" in repr(run)
        gradient = jax.grad(lambda v: run(net, 2, v, scale=scale).sum())(x)
        wanted = jax.grad(lambda v: function(net, 2, v, scale=scale).sum())(x)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-2)

    def test_what_cannot_be_frozen(self) -> None:
        for freeze, named in ((2, "2"), (-3, "-3"), ("z", "'z'")):
            with pytest.raises(sx.CompileError, match=f"no argument {named}"):
                jit(lambda x, y: x + y, freeze=freeze)
        with pytest.raises(sx.ShapeError, match="donated"):
            jit(lambda x, y: (x + y, x), donate_argnums=0, freeze=0)(X, X)
        assert jit(lambda *all: all[0] - all[1], freeze=1)(X, X).sum() == 0
        assert jit(lambda **all: all["x"] - all["y"], freeze="y")(x=X, y=X).sum() == 0

    @pytest.mark.parametrize("value", [2, 2.5, True, np.array([1.0, 2, 3]), np.array([1, 2, 3])], ids=repr)
    def test_frozen_values_are_those_that_jax_makes_of_them(self, value: Any) -> None:
        run, x = jit(lambda v, x: v * x, freeze=0), X.reshape(-1, 3)
        for _ in range(2):
            np.testing.assert_array_equal(run(value, x), jax.jit(lambda v, x: v * x)(value, x))
        assert "1 program" in repr(run)

    def test_frozen_keys(self) -> None:
        key = jax.random.key(3)
        draw = jit(lambda key, x: x + jax.random.uniform(key, x.shape), freeze=0)
        np.testing.assert_allclose(draw(key, X), X + jax.random.uniform(key, X.shape), rtol=1e-6)

    def test_frozen_by_place_and_by_name(self) -> None:
        run = jit(lambda a, b, c: a + b + c, freeze=(0, "b"))
        assert len(run.executable(X, X, X).parameters) == 1
        np.testing.assert_array_equal(run(X, X, c=X), 3 * X)

    def test_static_values_of_other_types(self) -> None:
        kind = jit(lambda x, v: x + {int: 1, float: 2, bool: 3}[type(v)], static_argnums=1)
        assert [int(kind(0, v)) for v in (1, 1.0, True)] == [1, 2, 3]
        with pytest.raises(ValueError, match="hashable"):
            jit(lambda x, v: x, static_argnums=1)(X, [1])

    def test_disabled(self) -> None:
        seen = []
        function = jit(lambda x: (seen.append(x), x + 1)[1])
        with jax.disable_jit():
            np.testing.assert_array_equal(function(X), X + 1)
        assert isinstance(seen[0], np.ndarray)

    def test_what_is_no_array(self) -> None:
        with pytest.raises(TypeError, match="not a valid JAX type"):
            jit(lambda x: x)("text")

    def test_parts_that_can_be_looked_at(self) -> None:
        function = jit(lambda x: jnp.tanh(x) @ x.T)
        executable = function.executable(X)
        assert "stablehlo.tanh" in executable.ir("stablehlo")
        assert "stablehlo.tanh" in function.lower(X).as_text()
        assert executable is function.program(X).executable

    def test_options(self) -> None:
        quiet = jit(lambda x: x * 3, options=sx.CompileOptions(flush_denormals=True))
        assert float(quiet(np.float32(1e-40))) == 0.0
        assert float(jit(lambda x: x * 3)(np.float32(1e-40))) > 0.0


class TestDebugNans:
    """JAX's settings are read at each call; the error has the function's line and the iteration of its loop."""

    def test_the_first_nan_of_a_scan(self) -> None:
        @jit
        def total(x: Any, start: Any) -> Any:
            return jax.lax.scan(lambda c, v: (c - v, jnp.sqrt(c)), start, x)[1].sum()

        ones = jnp.ones(5)
        assert np.isnan(total(ones, 3.0))
        with jax.debug_nans(True):
            assert total(ones, 5.0) > 0
            with pytest.raises(FloatingPointError, match=r"sqrt made a NaN .* at tests/interop/test_jax.py") as error:
                total(ones, 3.0)
        assert isinstance(error.value, sx.CheckError)
        assert [step.what for step in error.value.finding.iterations] == ["iteration 4"]  # type: ignore[attr-defined]
        assert np.isnan(total(ones, 3.0))

    def test_infinities(self) -> None:
        inverse = jit(lambda x: 1 / x)
        with jax.debug_infs(True), pytest.raises(FloatingPointError, match="divide made an infinity"):
            inverse(jnp.zeros(2))
        assert np.isinf(inverse(jnp.zeros(2))).all()

    def test_constants_that_reach_a_result(self) -> None:
        """`cholesky` selects a NaN of its own text; JAX, which looks at results, raises for the same arguments."""
        for compiler in (jit, jax.jit):
            root = compiler(jnp.linalg.cholesky)
            assert np.isnan(root(-jnp.eye(3))).any()
            with jax.debug_nans(True):
                assert root(jnp.eye(3)).tolist() == np.eye(3).tolist()
                match = "select has a NaN that comes from a constant" if compiler is jit else "nan"
                with pytest.raises(FloatingPointError, match=match):
                    root(-jnp.eye(3))
            mask = compiler(lambda x: jnp.where(x > 0, x, -jnp.inf))
            chances = compiler(lambda x: jax.nn.softmax(jnp.where(x > 0, x, -jnp.inf)))
            with jax.debug_infs(True):
                match = "select has an infinity that comes from a constant" if compiler is jit else "inf"
                with pytest.raises(FloatingPointError, match=match):
                    mask(jnp.array([1.0, -1.0]))
                assert chances(jnp.array([1.0, -1.0])).tolist() == [1, 0]

    def test_donated_arguments(self) -> None:
        """They are deleted by the call, whatever it comes to."""
        root = jit(jnp.sqrt, donate_argnums=0)
        with jax.debug_nans(True):
            assert root(jnp.full(3, 4.0)).tolist() == [2, 2, 2]
            with pytest.raises(FloatingPointError, match=r"operand 0 .* -4\.0"):
                root(jnp.full(3, -4.0))


class TestReferences:
    """Arrays that a function changes in place."""

    def test_arguments_and_captured_ones(self) -> None:
        def outcome(compiler: Any) -> Any:
            state, captured = jax.new_ref(jnp.arange(3.0)), jax.new_ref(jnp.ones(2))

            def function(state: Any, x: Any) -> Any:
                state[0] = x
                captured[...] += state[1]
                return state[...] * 2

            compiled = compiler(function)
            results = [compiled(state, 5.0), compiled(state, 6.0)]
            return results, state[...], captured[...]

        assert_same_trees(outcome(jit), outcome(jax.jit))

    def test_inside(self) -> None:
        def function(x: Any) -> Any:
            total = jax.new_ref(jnp.zeros_like(x[0]))

            def body(i: Any, _: Any) -> None:
                total[...] += x[i]

            jax.lax.fori_loop(0, 2, body, None)
            return total[...]

        assert_as_jax(function, X)


class TestDonation:
    def test_donated_arrays_are_deleted(self) -> None:
        step = jit(lambda state, x: (state + x, x.sum()), donate_argnums=0)
        state, x = jnp.arange(6.0).reshape(2, 3), jnp.asarray(X)
        after, _ = step(state, x)
        assert state.is_deleted()
        assert not x.is_deleted()
        np.testing.assert_array_equal(after, np.arange(6.0).reshape(2, 3) + X)
        with pytest.raises(RuntimeError, match="deleted"):
            step(state, x)

    def test_memory_stays_the_same(self) -> None:
        step = jit(lambda tree: jax.tree.map(lambda leaf: leaf * 2, tree), donate_argnums=0)
        tree = step({"a": jnp.ones((16, 16)), "b": jnp.arange(64.0)})
        places = {key: leaf.unsafe_buffer_pointer() for key, leaf in tree.items()}
        for _ in range(4):  # not only after two: memory could be used in turn
            tree = step(tree)
            assert {key: leaf.unsafe_buffer_pointer() for key, leaf in tree.items()} == places
        np.testing.assert_array_equal(tree["a"], np.full((16, 16), 32.0))
        np.testing.assert_array_equal(tree["b"], np.arange(64.0) * 32)

    def test_a_result_that_somebody_holds_is_not_overwritten(self) -> None:
        """JAX's array is a view of a result that the caller made it of, and still has."""
        program = sx.compile(jax.jit(lambda x: x + 1, donate_argnums=0).lower(jnp.zeros(64)).as_text())
        held = program.execute([np.ones(64, np.float32)])[0]
        given = jax.dlpack.from_dlpack(sx.to_dlpack(held))
        result = jit(lambda x: x + 1, donate_argnums=0)(given)
        np.testing.assert_array_equal(held, np.full(64, 2))
        np.testing.assert_array_equal(np.asarray(result), np.full(64, 3))

    def test_keys_are_donated_too(self) -> None:
        def function(state: Any) -> Any:
            bits = jax.random.bits(state["key"], (32,))
            return {"key": jax.random.clone(state["key"]), "sum": state["sum"] + bits}

        ours, theirs = jit(function, donate_argnums=0), jax.jit(function, donate_argnums=0)
        first = {"key": jax.random.key(0, impl="rbg"), "sum": jnp.zeros(32, "uint32")}
        a, b = jax.tree.map(jnp.copy, first), jax.tree.map(jnp.copy, first)
        for _ in range(4):
            a, b = ours(a), theirs(b)
        assert_same_trees(a, b)

    def test_views_and_readers_keep_what_they_see(self) -> None:
        step = jit(lambda x: x + 1, donate_argnums=0)
        x = step(jnp.zeros((256, 256)))
        view = np.asarray(x)[1:]
        x = step(x)
        np.testing.assert_array_equal(view, np.ones((255, 256)))
        slow = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: (y @ x) / 256, x))
        right = np.asarray(slow(jnp.full((256, 256), 2.0)))
        pending = slow(x)
        x = step(x)
        np.testing.assert_array_equal(pending, right)
        np.testing.assert_array_equal(x, np.full((256, 256), 3.0))

    def test_by_name_and_what_fits_nowhere(self) -> None:
        step = jit(lambda *, state, other: state.sum(), donate_argnames=("state", "other"))
        state, other = jnp.ones(3), jnp.ones(4)
        with pytest.warns(UserWarning, match="donated"):
            assert float(step(state=state, other=other)) == 3.0
        assert not state.is_deleted()

    def test_numpy_arguments_are_left_alone(self) -> None:
        step = jit(lambda x: x + 1, donate_argnums=0)
        x = np.zeros(64, np.float32)
        np.testing.assert_array_equal(step(x), np.ones(64))
        np.testing.assert_array_equal(x, np.zeros(64))


class TestLoweredAndExported:
    def test_lowered(self) -> None:
        def function(x: Any, *, y: Any) -> Any:
            return {"sum": x + y["z"]}

        lowered = jax.jit(function).lower(jax.ShapeDtypeStruct((2, 3), "float32"), y={"z": 1.0})
        program = from_lowered(lowered)
        assert_same_trees(program(X, y={"z": 2.0}), jax.jit(function)(X, y={"z": 2.0}))
        assert repr(program).startswith("JaxProgram('function', Executable(")
        with pytest.raises(sx.ExecutionError, match=r"^function: args\[1\] is not taken$"):
            program(X, 2.0)
        with pytest.raises(sx.ExecutionError, match=r"^function: x: s32\[2,3\] given, f32\[2,3\] needed$"):
            program(X.astype(np.int32), y={"z": 2.0})

    def test_donated(self) -> None:
        program = from_lowered(jax.jit(lambda x: x + 1, donate_argnums=0).lower(jnp.zeros(4)))
        x = jnp.ones(4)
        np.testing.assert_array_equal(program(x), [2, 2, 2, 2])
        assert x.is_deleted()

    def test_exported(self) -> None:
        def function(x: Any, y: Any) -> Any:
            values, indices = jax.lax.top_k(x, 2)
            return {"acos": jnp.arccos(x / 6), "top": (values, indices), "erf": jax.lax.erf(x) + y}

        exported = jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct((2, 3), "float32"), 2)
        for source in (exported, exported.serialize()):
            assert_same_trees(from_exported(source)(X, 3), jax.jit(function)(X, 3), ulp=4)

    def test_exported_for_several_platforms(self) -> None:
        export = partial(jax.export.export, jax.jit(lambda x: jnp.sin(x)))
        np.testing.assert_allclose(from_exported(export(platforms=("cuda", "cpu"))(X))(X), np.sin(X), rtol=1e-6)
        with pytest.raises(sx.UnsupportedError, match="exported for cuda"):
            from_exported(export(platforms=("cuda",))(X))

    def test_text_is_a_program(self) -> None:
        text = jax.jit(lambda x: (x * 2, x.sum())).lower(X).as_text()
        double, total = sx.compile(text)(X)
        np.testing.assert_array_equal(double, X * 2)
        assert total == X.sum()

    def test_objects_of_jax_are_no_programs(self) -> None:
        for program in (jax.jit(lambda x: x).lower(X), jax.export.export(jax.jit(lambda x: x))(X)):
            with pytest.raises(sx.ParseError, match="from_lowered or from_exported"):
                sx.compile(program)

    def test_errors_name_the_users_line(self) -> None:
        def function(x: Any) -> Any:
            return jax.ffi.ffi_call("no_such_target", jax.ShapeDtypeStruct((), "float32"))(x)  # here

        with pytest.raises(sx.StablexlaError, match="no_such_target") as caught:
            jit(function)(X)
        assert "test_jax.py" in str(caught.value)
        assert "# here" in str(caught.value)


def test_threads_compile_and_run() -> None:
    """Also with settings of their own."""
    function = jit(lambda x: (x * 2).sum() + jnp.arange(3).sum())
    results: dict[int, Any] = {}

    def run(i: int) -> None:
        with jax.enable_x64(i % 2 == 1):
            results[i] = [function(np.full(4 + i, k, np.float64)) for k in range(5)]

    in_threads(run, range(4))
    for i, values in results.items():
        assert [value.dtype for value in values] == [np.float64 if i % 2 else np.float32] * 5
        assert [float(value) for value in values] == [2.0 * k * (4 + i) + 3 for k in range(5)]
    assert len(results) == 4


def test_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    required.jax.cache_clear()
    with pytest.raises(sx.StablexlaError, match=r"(?s)jax cannot be imported.*pip install 'stablexla\[jax\]'"):
        jit(lambda x: x)
    monkeypatch.undo()
    assert isinstance(jit(lambda x: x)(1), jax.Array)


def test_nothing_is_left_behind() -> None:
    before = dict(TARGETS)
    function = jit(lambda x: jax.pure_callback(lambda v: np.asarray(v) + 1, x, x))
    np.testing.assert_array_equal(function(X), X + 1)
    assert set(TARGETS) - set(before)
    del function
    gc.collect()
    assert before == TARGETS


@pytest.mark.parametrize("wrap", [jit, lambda f, **options: jit(**options)(f)])
def test_another_word_for_returns_is_refused(wrap: Any) -> None:
    with pytest.raises(sx.CompileError, match='returns is "jax" or "numpy", not \'np\''):
        wrap(lambda x: x, returns="np")


def test_options_that_are_a_dictionary() -> None:
    with pytest.raises(sx.CompileError) as raised:
        jit(lambda x: x, options={"vector_bits": 256})(X)
    assert eval(raised.value.hint, {"sx": sx}) == sx.CompileOptions(vector_bits=256)


def test_tracebacks_of_the_traced_function_have_no_frames_of_the_package() -> None:
    def broken(x: Any) -> Any:
        return x @ jnp.ones((5, 5))

    with pytest.raises(TypeError, match="dot_general") as raised:
        jit(broken)(jnp.ones(3))
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert [each.name for each in frames if "site-packages" not in each.filename] == [
        "test_tracebacks_of_the_traced_function_have_no_frames_of_the_package",
        "broken",
    ]
