"""Functions of JAX explained, profiled and compared on trees, errors of wrong arguments, and lines of operations."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.places import Place, place_of
from stablexla.interop.jax import JaxProgram, from_exported, from_lowered, jit
from stablexla.interop.loading import load
from stablexla.lowering.support.context import place_of as line_of_error
from stablexla.targets.pipeline.messages import place_of as place_in_messages

HERE = "test_jax_inspection.py"
X = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)


def model(params: Any, x: Any, *, scale: Any) -> Any:
    return {"out": jnp.tanh(x @ params["dense"]["kernel"] + params["dense"]["bias"]) * scale}


def params(**changes: Any) -> Any:
    return {"dense": {"kernel": jnp.ones((4, 5)), "bias": jnp.zeros(5), **changes}}


def lowered() -> JaxProgram:
    return from_lowered(jax.jit(model).lower(params(), X, scale=2.0))


def exported() -> JaxProgram:
    return from_exported(jax.export.export(jax.jit(model))(params(), X, scale=2.0).serialize())


class TestTrees:
    def test_a_function(self, tmp_path: Path) -> None:
        function = jit(model)
        explanation = function.explain(params(), X, scale=2.0)
        assert [kernel.kind for kernel in explanation.kernels] == ["contraction"]
        profile = function.profile(params(), X, scale=2.0, runs=3)
        assert profile.runs == 3
        assert [row.kernel.kind for row in profile.kernels if row.kernel] == ["contraction"]
        comparison = function.compare(params(), X, scale=2.0, against="plain", cause=False)
        assert comparison
        assert comparison.result_count == 1
        function.inspect(params(), X, scale=2.0).trace(tmp_path / "trace.json", runs=1)
        assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        assert "1 program" in repr(function)

    @pytest.mark.parametrize("make", [lowered, exported])
    def test_a_program(self, make: Callable[[], JaxProgram]) -> None:
        program = make()
        assert [kernel.kind for kernel in program.explain().kernels] == ["contraction"]
        assert program.profile(params(), X, scale=2.0, runs=2).runs == 2
        assert program.compare(params(), X, scale=2.0, against="plain", cause=False)
        np.testing.assert_array_equal(program.inspect(params(), X, scale=2.0).arguments[2], X)

    def test_arrays_that_only_have_a_type(self) -> None:
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params())
        with pytest.raises(sx.ExecutionError, match=r"ShapeDtypeStruct\(.* has no values\n  try: explain"):
            jit(model).check(shapes, X, scale=1.0)
        assert jit(model).explain(shapes, X, scale=1.0).kernels

    def test_names_of_the_functions_own(self) -> None:
        def function(x: Any, runs: Any, against: Any = 3) -> Any:
            return x * runs + against

        assert jit(function).profile(X, runs=2.0).runs == 10
        assert jit(function).inspect(X, runs=2.0).profile(runs=1).runs == 1
        assert jit(function).inspect(X, 2.0, against=1).compare("plain", cause=False)
        program = jit(function).program(X, runs=2.0)
        assert program.profile(X, runs=2.0).runs == 10

    def test_static_constants_and_captured(self) -> None:
        state = jax.new_ref(jnp.zeros(3))

        def function(state: Any, power: int, x: Any) -> None:
            state[...] += x["a"] ** power

        inspection = jit(function, static_argnums=1).inspect(state, 2, {"a": 2.0})
        assert inspection.profile(runs=2).runs == 2
        np.testing.assert_array_equal(state[...], np.zeros(3))

    @pytest.mark.parametrize("make", [lambda: jit(model), lowered, exported])
    def test_check(self, make: Callable[[], Any]) -> None:
        function = make()
        assert function.check(params(), X, scale=2.0) is None
        finding = function.check(params(), X * 0, scale=np.inf)  # tanh(0) * inf
        assert (finding.operation, finding.kind, finding.index) == ("stablehlo.multiply", "nan", (0, 0))
        huge = params(kernel=jnp.full((4, 5), 3e38))
        assert function.check(huge, X + 1, scale=2.0) is None
        finding = function.check(huge, X + 1, scale=2.0, kinds="overflow", time_limit=60)
        assert finding.operation == "stablehlo.dot_general"
        with pytest.raises(sx.CompileError):
            function.check(params(), X, scale=2.0, kinds="non")

    def test_check_with_names_of_the_functions_own(self) -> None:
        def function(x: Any, kinds: Any) -> Any:
            return jnp.log(x) * kinds

        assert jit(function).check(X, kinds=2.0) is None
        assert jit(function).inspect(X, kinds=2.0).check("inf").operation == "stablehlo.log"
        assert jit(function).inspect(X - 1, kinds=2.0).check().operation == "stablehlo.log"

    def test_donated_arguments_stay(self) -> None:
        step = jit(lambda x: x + 1, donate_argnums=0)
        x = jnp.ones(4)
        assert step.check(x) is None
        step.profile(x, runs=1)
        assert step.compare(x, against="plain", cause=False)
        np.testing.assert_array_equal(x, np.ones(4))


WRONG: list[tuple[Callable[[JaxProgram], Any], str]] = [
    (lambda p: p(params(kernel=jnp.ones((3, 5))), X, scale=2.0), "['kernel']: f32[3,5] given, f32[4,5] needed"),
    (lambda p: p(params(kernel=np.ones((4, 5), int)), X, scale=2.0), "['kernel']: s64[4,5] given, f32[4,5] needed"),
    (lambda p: p(params(kernel="text"), X, scale=2.0), "['kernel']: a str given, f32[4,5] needed"),
    (lambda p: p(params(kernel=None), X, scale=2.0), "['kernel']: None given, f32[4,5] needed"),
    (lambda p: p(params(kernel=[X]), X, scale=2.0), "['kernel']: a list given, f32[4,5] needed"),
    (lambda p: p(params(kernal=X), X, scale=2.0), "['kernal'] is not taken"),
    (lambda p: p({"dense": {"bias": 1}}, X, scale=2.0), "['kernel'] is missing"),
    (lambda p: p({"dense": {"kernel": 1, "bais": 1}}, X, scale=2.0), "['bias'] is missing, params['dense']['bais'] is"),
]


class TestWrongArguments:
    @pytest.mark.parametrize("make", [lowered, exported])
    @pytest.mark.parametrize(("call", "said"), WRONG)
    def test_the_leaf_is_named(self, make: Callable[[], JaxProgram], call: Any, said: str) -> None:
        with pytest.raises(sx.ExecutionError) as caught:
            call(make())
        assert str(caught.value).startswith(f"model: params['dense']{said}")
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("call", "said"),
        [
            (lambda p: p(params(), X), "scale is missing"),
            (lambda p: p(params(), scale=1.0), "x is missing"),
            (lambda p: p(params(), X, X, scale=1.0), "args[2] is not taken"),
            (lambda p: p([1], X, scale=1.0), "params: a list given, a dict needed"),
            (lambda p: p(params(), X.astype("int8"), scale=X), "x: s8[3,4] given, f32[3,4] needed (and 1 more)"),
            (lambda p: p.compare(params(), X[0], scale=1.0), "x: f32[4] given, f32[3,4] needed"),
            (lambda p: p.profile(params(), X, scale=[1.0]), "scale: a list given, f32[] needed"),
        ],
    )
    def test_whole_arguments(self, call: Callable[[JaxProgram], Any], said: str) -> None:
        with pytest.raises(sx.ExecutionError) as caught:
            call(lowered())
        assert str(caught.value) == f"model: {said}"

    def test_big_trees_are_not_printed(self) -> None:
        tree = {f"layer{i}": {"kernel": jnp.ones(2), "bias": 1.0} for i in range(200)}
        program = jit(lambda tree: tree["layer0"]).program(tree)
        del tree["layer7"]["bias"]
        with pytest.raises(sx.ExecutionError, match=r"^<lambda>: tree\['layer7'\]\['bias'\] is missing$"):
            program(tree)

    def test_keys_and_nodes_of_other_types(self) -> None:
        program = jit(lambda key, x: (key, x)).program(jax.random.key(0), (1.0, None))
        with pytest.raises(sx.ExecutionError, match=r"key: f32\[2\] given, key<fry>\[\] needed"):
            program(jnp.ones(2), (1.0, None))
        with pytest.raises(sx.ExecutionError, match=r"x: a list given, a tuple needed"):
            program(jax.random.key(0), [1.0, None])
        with pytest.raises(sx.ExecutionError, match=r"x\[1\]: an int given, None needed"):
            program(jax.random.key(0), (1.0, 2))

    def test_symbolic_sizes(self) -> None:
        (rows,) = jax.export.symbolic_shape("rows")
        shape = jax.ShapeDtypeStruct((rows, 2), "float32")
        program = from_exported(jax.export.export(jax.jit(lambda t: t["x"].sum(0)))({"x": shape}))
        np.testing.assert_array_equal(program({"x": jnp.ones((5, 2))}), [5, 5])
        with pytest.raises(sx.ExecutionError, match=r"\['x'\]: f32\[5,3\] given, f32\[rows,2\] needed"):
            program({"x": jnp.ones((5, 3))})

    def test_what_is_no_array(self) -> None:
        def function(n: Any, tree: Any, *rest: Any) -> Any:
            return tree

        static = jit(function, static_argnums=0)
        said = r"^function: tree\['a'\]\[1\]: a str given, an array or a number needed: not a valid JAX type$"
        with pytest.raises(TypeError, match=said):
            static("n", {"a": [1, "text" * 1000]})
        with pytest.raises(TypeError, match=r"^function: rest\[0\]: an object given"):
            static("n", 1, object())
        with pytest.raises(ValueError, match=r"^static argument 0 must be hashable, and a list is not$"):
            static([1] * 1000, 1)

    def test_other_errors_stay(self) -> None:
        def fail(x: Any) -> Any:
            raise sx.ExecutionError("the callback's own")

        function = jit(lambda x: jax.pure_callback(fail, x, x))
        with pytest.raises(sx.ExecutionError, match="the callback's own"):
            function.program(X)(X)


def line_with(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


class TestLines:
    def test_none_of_this_layer_or_jax(self) -> None:
        def function(x: Any) -> Any:
            return jax.nn.softmax(jnp.clip(jax.nn.relu(x), 0, 3)) + jax.random.normal(jax.random.key(0), x.shape)

        explanation = jit(function).explain(X)
        called = [op for op in explanation.operations if op.function != "main"]
        assert len(called) > 40
        for op in explanation.operations:
            assert op.place.file == __file__, op
            assert not any("interop/jax/" in place.file or "/jax/_src" in place.file for place in op.place.callers), op
        line = line_with(function, "jax.nn.softmax")
        assert {op.place.line for op in called} == {line}
        maximum = next(op for op in called if op.name == "stablehlo.maximum" and op.function == "relu")
        assert maximum.place.name == "jit(function)/jit(relu)/max"
        source = jit(function).executable(X).ir("source", debug_info=True)
        assert "interop/jax/" not in source

    def test_functions_of_libraries(self) -> None:
        optax = pytest.importorskip("optax")
        linen = pytest.importorskip("flax.linen")

        class Network(linen.Module):
            @linen.compact
            def __call__(self, x: Any) -> Any:
                return linen.Dense(2)(x)  # the layer

        network = Network()
        weights = network.init(jax.random.key(0), X)
        optimizer = optax.sgd(0.1, momentum=0.9)

        def step(weights: Any, state: Any, x: Any) -> Any:
            gradient = jax.grad(lambda w: network.apply(w, x).sum())(weights)
            return optimizer.update(gradient, state)  # the update

        explanation = jit(step).explain(weights, optimizer.init(weights), X)
        places = [op.place for op in explanation.operations]
        layer = next(p for p in places if "flax/linen/linear.py" in str(p))
        assert layer.user_call is not None
        assert (layer.user_call.file, layer.user_call.text) == (__file__, "return linen.Dense(2)(x)  # the layer")
        update = next(p for p in places if "optax/_src/" in str(p))
        assert str(update).startswith("optax/_src/")
        assert update.line > 1
        assert f"{HERE}:{line_with(step, '# the update')}" in str(update)
        assert "# the layer" in explanation.html()

    @pytest.mark.parametrize(
        ("frames", "shown"),
        [
            (
                [("f", "a/site-packages/flax/x.py"), ("g", "model.py")],
                "flax/x.py:1:2 in f, called from model.py:2:2 in g",
            ),
            ([("f", "a/site-packages/jax/x.py"), ("g", "model.py")], "model.py:2:2 in g"),
            ([("f", "/a/stablexla/interop/jax/jit.py"), ("g", "model.py")], "model.py:2:2 in g"),
            ([("f", "m.py"), ("h", "stablexla/interop/torch.py"), ("g", "model.py")], "m.py:1:2 in f"),
            ([("f", "site-packages/a/x.py"), ("h", "site-packages/b/y.py")], "a/x.py:1:2 in f"),
            ([("f", "jax/_src/x.py"), ("h", "stablexla/interop/torch.py")], "add"),
        ],
    )
    def test_frames(self, frames: list[tuple[str, str]], shown: str) -> None:
        text = ""
        for line, (name, file) in reversed(list(enumerate(frames, 1))):
            frame = f'"{name}"("{file}":{line}:2)'
            text = f"callsite({frame} at {text})" if text else frame
        module = load(f'module {{ func.func @main() {{ return loc("add"({text})) }} }}')
        (block,) = module.body.operations[0].regions[0].blocks
        location = block.operations[0].operation.location
        place = place_of(location)
        assert str(place) == (shown if shown == "add" else f"{shown} (add)")
        assert all(isinstance(p, Place) and "stablexla" not in p.file for p in place.callers)
        short = shown.replace(":2 in", " in") if shown != "add" else "add"
        assert line_of_error(location) == f"\n  from {short}"
        plain = "" if shown == "add" else short.replace(" in f", "").replace(" in g", "")
        assert place_in_messages(str(location)) == plain
