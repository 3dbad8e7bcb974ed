"""Functions of TensorFlow, models of Keras and SavedModels. Oracle: TensorFlow itself, without XLA where it can."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.interop import tensorflow as interop
from stablexla.interop.tensorflow import compile

tf = pytest.importorskip("tensorflow", reason="tensorflow (extra of that name) is not installed")

ROOT = Path(__file__).parents[2]
SPEC = tf.TensorSpec((4, 3), tf.float32)
X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def variable(*shape: int, name: str = "w") -> Any:
    return tf.Variable(np.random.default_rng(1).standard_normal(shape).astype(np.float32), name=name)


def names(program: interop.TensorFlowProgram) -> list[str]:
    return [parameter.name for parameter in program.executable.parameters]


def close(ours: Any, theirs: Any) -> None:
    """Equal structures, and arrays within a few units in the last place of a sum."""
    tf.nest.assert_same_structure(ours, theirs, check_types=False)
    for mine, other in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
        assert isinstance(mine, np.ndarray)
        assert (mine.dtype, mine.shape) == (other.numpy().dtype, tuple(other.shape))
        np.testing.assert_allclose(mine, other.numpy(), rtol=2e-5, atol=2e-6)


class TestVariables:
    def test_present_values_are_read(self) -> None:
        w = variable(3, 2)
        function = tf.function(lambda x: tf.tanh(x @ w))
        program = compile(function, SPEC)
        assert (dict(program.variables), program.changed) == ({"w": w}, [])
        close(program(X), function(X))
        w.assign(-3 * w)
        close(program(X), function(X))
        assert names(program) == ["x", "w"]

    def test_those_that_are_assigned(self) -> None:
        w, count, unread = variable(3, 2), tf.Variable(0, name="count"), variable(4, 3, name="unread")

        def step(x: Any) -> Any:
            count.assign_add(1)
            unread.assign(x)
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(x @ w))
            w.assign_sub(0.01 * tape.gradient(loss, w))
            return {"loss": loss, "count": count.read_value(), "none": None}

        start = w.numpy()
        wanted = [tf.function(step)(X) for _ in range(3)]
        after = w.numpy(), unread.numpy()
        w.assign(start)
        count.assign(0)
        unread.assign(0 * X)
        program = compile(step, SPEC, freeze=True)
        for each in wanted:
            found = program(X)
            assert found.pop("none") is each.pop("none") is None
            close(found, each)
        np.testing.assert_allclose(w.numpy(), after[0], rtol=1e-5)
        np.testing.assert_array_equal(unread.numpy(), after[1])
        assert sorted(program.changed) == ["count", "unread", "w"]

    def test_a_function_that_only_assigns(self) -> None:
        w = variable(4, 3)

        def keep(x: Any) -> None:
            w.assign(2 * x)

        assert compile(keep, SPEC)(X) is None
        np.testing.assert_array_equal(w.numpy(), 2 * X)

    def test_frozen_ones_keep_their_values(self) -> None:
        w, c = variable(3, 2), tf.constant([1.0, 2.0])
        program = compile(lambda x: x @ w + c, SPEC, freeze=True)
        close(program(X), wanted := tf.constant(X) @ w + c)
        w.assign(0 * w)
        close(program(X), wanted)
        assert names(program) == ["x"]

    def test_equal_names(self) -> None:
        a, b = variable(3, 2), tf.Variable(2.0, name="w")
        program = compile(lambda x: x @ a * b, SPEC)
        assert list(program.variables) == ["w", "w_1"]
        close(program(X), tf.constant(X) @ a * b)


class TestArguments:
    def test_structures(self) -> None:
        def function(pair: Any, options: Any, *, scale: Any, power: int = 1) -> Any:
            assert options == "unused"
            return [(pair[0] - pair[1]["b"]) * scale, {"p": tf.pow(pair[1]["a"], power)}]

        given = ([X, {"b": 2 * X, "a": 3 * X}], "unused")
        program = compile(function, *given, scale=np.float32(3), power=2)
        close(program(*given, scale=np.float32(3)), [tf.constant(-3 * X), {"p": tf.constant(9 * X * X)}])
        assert names(program) == ["pair.0", "pair.1.a", "pair.1.b", "scale"]

    def test_statements_of_python(self) -> None:
        def function(x: Any) -> Any:
            for _ in tf.range(3):
                if tf.reduce_sum(x) > 0:
                    x = x - 1.0
                else:
                    x = x * 2.0
            return x

        close(compile(function, SPEC)(X), tf.function(function)(X))

    def test_ragged_tensors(self) -> None:
        given = tf.ragged.constant([[1.0, 2.0], [3.0]])
        assert compile(lambda r: 2 * r, given)(given).to_list() == [[2.0, 4.0], [6.0]]

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int8", "uint32", "complex64", "bool"])
    def test_element_types(self, dtype: str) -> None:
        x = tf.cast(tf.constant([0.0, 1.0, 3.0]), dtype)
        function = (lambda x: ~x) if dtype == "bool" else (lambda x: x + x)
        found = compile(function, x)(x)
        assert found.tolist() == function(x).numpy().tolist()
        assert found.dtype == x.numpy().dtype

    def test_its_own_signature(self) -> None:
        function = tf.function(lambda x: 2 * x, input_signature=[SPEC])
        for each in (function, function.get_concrete_function()):
            close(compile(each)(X), function(X))

    def test_a_number_of_results_that_depends_on_values(self) -> None:
        close(compile(lambda x: tf.where(x > 0), SPEC)(X), tf.where(X > 0))

    def test_random_numbers_of_a_seed(self) -> None:
        def function(x: Any) -> Any:
            return x + tf.random.stateless_uniform((4, 3), (1, 2))

        close(compile(function, SPEC)(X), tf.function(function, jit_compile=True)(X))


class TestErrors:
    @pytest.mark.parametrize(
        ("function", "spec", "said"),
        [
            (
                lambda x: x,
                tf.TensorSpec((None, 3)),
                r"the argument x has an unknown size: \(None, 3\)[^$]*tf.TensorSpec",
            ),
            (lambda x: tf.strings.length(x), tf.TensorSpec((), tf.string), "cannot write this function as StableHLO"),
            (lambda x: tf.reshape(X, x), tf.TensorSpec((2,), tf.int32), "compile-time constant[^$]*a number or tuple"),
            (lambda x: tf.numpy_function(np.sin, [x], tf.float32), SPEC, "PyFunc"),
        ],
    )
    def test_refused(self, function: Any, spec: Any, said: str) -> None:
        with pytest.raises(sx.StablexlaError, match=said):
            compile(function, spec)

    def test_tables(self) -> None:
        init = tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4], tf.int32, tf.int32)
        table = tf.lookup.StaticHashTable(init, 0)
        with pytest.raises(sx.UnsupportedError, match=r"a table, or another resource that is no tf\.Variable"):
            compile(lambda x: table.lookup(x), tf.TensorSpec((2,), tf.int32))

    def test_calls(self) -> None:
        program = compile(lambda x, n: n * x, SPEC, 2.0)
        with pytest.raises(sx.ShapeError, match="arguments of another structure"):
            program(X)
        with pytest.raises(sx.ShapeError, match=r"compiled for an argument 2\.0, which is no array, and is given 3\.0"):
            program(X, 3.0)
        with pytest.raises(sx.ExecutionError, match=r"parameter 0 \(x\) takes float32\[4,3\]"):
            program(X[:2], 2.0)
        with pytest.raises(sx.StablexlaError, match="a int is no function"):
            compile(3)

    def test_exceptions_of_the_function_are_its_own(self) -> None:
        def function(x: Any) -> Any:
            raise RuntimeError("of mine")

        with pytest.raises(RuntimeError, match="of mine"):
            compile(tf.autograph.experimental.do_not_convert(function), SPEC)


def test_a_version_without_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program comes as HLO then, which says the same of variables."""
    monkeypatch.setattr(interop, "_STAGES", ("of tomorrow", "hlo_serialized"))
    w = variable(3, 2)

    def function(x: Any) -> Any:
        w.assign_add(tf.ones_like(w))
        return x @ w

    start = w.numpy()
    program = compile(function, SPEC)
    close(program(X), tf.constant(X) @ (start + 1))
    np.testing.assert_array_equal(w.numpy(), start + 1)
    assert program.changed == ["w"]


class TestKeras:
    def test_a_model(self) -> None:
        keras = pytest.importorskip("keras")
        given = keras.Input((12, 12, 3))
        y = keras.layers.BatchNormalization()(keras.layers.Conv2D(8, 3, activation="relu")(given))
        y = keras.layers.GlobalAveragePooling2D()(keras.layers.SeparableConv2D(8, 3)(y))
        model = keras.Model(given, keras.layers.Dense(5, activation="softmax")(y))
        x = np.random.default_rng(0).standard_normal((2, 12, 12, 3)).astype(np.float32)
        for freeze in (False, True):
            program = compile(model, tf.TensorSpec(x.shape, tf.float32), freeze=freeze)
            close(program(x), model(x))
        trained = compile(model, x, training=True)
        start = model.get_weights()
        found, after = trained(x), model.get_weights()
        model.set_weights(start)
        close(found, model(x, training=True))
        for ours, theirs in zip(after, model.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        assert [name.split(".")[-1] for name in trained.changed] == ["moving_mean", "moving_variance"]

    def test_recurrent_and_not_built(self) -> None:
        keras = pytest.importorskip("keras")
        model = keras.Sequential(
            [keras.layers.Dense(4), keras.layers.LSTM(3, return_sequences=True), keras.layers.GRU(2)]
        )
        x = np.random.default_rng(0).standard_normal((2, 5, 6)).astype(np.float32)
        close(compile(model, tf.TensorSpec(x.shape))(x), model(x))

    def test_the_page_with_jax(self) -> None:
        """The example of docs/tensorflow.md with JAX as the backend, in a process of its own."""
        pytest.importorskip("keras")
        pytest.importorskip("jax")
        blocks = (ROOT / "docs/tensorflow.md").read_text().split("```python\n")
        (script,) = [block.split("```")[0] for block in blocks if "KERAS_BACKEND" in block]
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
        assert done.stdout == "True\n", done.stderr

    def test_the_example(self) -> None:
        command = [sys.executable, str(ROOT / "examples/keras_model.py"), "--steps", "3"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        differences = [float(line.rsplit(" ", 1)[1]) for line in done.stdout.splitlines() if "difference" in line]
        assert len(differences) == 2
        assert max(differences) < 1e-4


class TestSavedModel:
    def test_signatures(self, tmp_path: Path) -> None:
        module = tf.Module()
        module.v = tf.Variable(2.0, name="v")
        x, k = tf.TensorSpec((None, 3), tf.float32, "x"), tf.TensorSpec((), tf.float32, "k")
        module.f = tf.function(lambda x, k: {"y": x * module.v * k, "z": tf.reduce_sum(x, 1)}, input_signature=[x, k])
        whole = tf.function(lambda x: {"y": x + module.v}).get_concrete_function(tf.TensorSpec((4, 3), tf.float32, "x"))
        tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.f, "whole": whole})
        loaded = tf.saved_model.load(str(tmp_path))
        signature = loaded.signatures["serving_default"]
        with pytest.raises(sx.ShapeError, match="the argument x has an unknown size"):
            compile(signature)
        program = compile(signature, x=SPEC, k=k)
        close(program(x=X, k=np.float32(3)), signature(x=tf.constant(X), k=tf.constant(3.0)))
        close(compile(loaded.f, X, np.float32(3))(X, 3.0), loaded.f(X, 3.0))
        program = compile(loaded.signatures["whole"])
        assert list(program.variables) == ["v"]
        del loaded, signature
        gc.collect()
        close(program(x=X), {"y": tf.constant(X + 2)})
