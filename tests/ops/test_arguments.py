"""Arguments that are not what a parameter takes: refused by name, never taken for something else.

No oracle is needed for refusals; where two spellings mean the same, their programs are compared as text.
"""

from __future__ import annotations

import inspect
import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.builder.registry import REGISTRY
from tests.ops.building import build, evaluate, refused

ROOT = Path(__file__).parents[2]
SCALAR = sx.f32[()]


def said(make: Callable[..., Any], *shapes: sx.Shape, rule: str = "") -> str:
    """What the error says with which `make` is refused."""
    return str(refused(rule, make, *shapes))


def test_every_operation_with_every_wrong_value() -> None:
    command = [sys.executable, "-m", "tests.ops.wrong_arguments"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert int(done.stdout.split()[-4]) > 30_000, done.stdout


class TestSequences:
    """An element type has items at every place, and no end."""

    @pytest.mark.parametrize(
        "make",
        [
            lambda x: sx.dot(x, x, sx.f32),
            lambda x: sx.broadcast(x, sx.f32),
            lambda x: sx.all_reduce(x, sx.add, sx.f32),
            lambda x: sx.collective_permute(x, sx.f32),
            lambda x: sx.concatenate(sx.f32, 0),
            lambda x: sx.reduce(x, 0.0, sx.add, itertools.count()),
            lambda x: sx.broadcast(x, range(10**12)),
        ],
    )
    def test_without_end(self, make: Callable[..., Any]) -> None:
        assert "sequence" in (text := said(make, sx.f32[2])) or "no end" in text or "must be a word" in text

    def test_of_a_padding(self) -> None:
        text = said(lambda x: sx.pad(x, 0.0, sx.f32), sx.f32[2], rule="C2")  # type: ignore[arg-type]
        assert "padding_config must be a sequence" in text

    def test_of_a_convolution(self) -> None:
        numbers = sx.ConvDimensionNumbers.default(1)

        def reversed_by(x: sx.XlaOp) -> sx.XlaOp:
            return sx.conv_general_dilated(x, x, (1,), "VALID", None, None, numbers, window_reversal=sx.f32)  # type: ignore[arg-type]

        assert "window_reversal must be a sequence" in said(reversed_by, sx.f32[1, 1, 1])

    def test_of_a_constructor(self) -> None:
        with pytest.raises(sx.ShapeError, match="more than 131072 items, or no end"):
            sx.Shape("f32", itertools.count())
        with pytest.raises(sx.ShapeError, match="lhs_contracting_dimensions must be a sequence of integers"):
            sx.DotDimensionNumbers(sx.f32, ())  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            iter(sx.f32)  # type: ignore[call-overload]

    @pytest.mark.parametrize("order", [{1, 0}, "10", b"\1\0", {1: 0, 0: 1}])
    def test_in_no_order(self, order: object) -> None:
        assert "permutation must be a sequence of integers" in said(lambda x: sx.transpose(x, order), sx.f32[2, 3])


class TestShapes:
    """A shape stands for its dimensions where sizes are meant, and is refused where places are."""

    @pytest.mark.parametrize(
        ("by_shape", "by_sizes"),
        [
            (lambda x, s: sx.broadcast_in_dim(s, x.shape, ()), lambda x, s: sx.broadcast_in_dim(s, (2, 3), ())),
            (lambda x, s: sx.broadcast(s, x.shape), lambda x, s: sx.broadcast(s, (2, 3))),
            (lambda x, s: sx.reshape(x, sx.f32[3, 2]), lambda x, s: sx.reshape(x, (3, 2))),
            (lambda x, s: sx.slice(x, (0, 1), x.shape), lambda x, s: sx.slice(x, (0, 1), (2, 3))),
            (lambda x, s: sx.dynamic_slice(x, (0, 0), sx.f32[1, 2]), lambda x, s: sx.dynamic_slice(x, (0, 0), (1, 2))),
        ],
    )
    def test_stands_for_sizes(self, by_shape: Callable[..., Any], by_sizes: Callable[..., Any]) -> None:
        assert str(build(by_shape, sx.f32[2, 3], SCALAR)) == str(build(by_sizes, sx.f32[2, 3], SCALAR))

    def test_does_not_stand_for_places(self) -> None:
        text = said(lambda x, s: sx.reduce(x, s, sx.add, x.shape), sx.f32[1, 0], SCALAR)
        assert "dimensions must be a sequence of integers, not Shape('f32', (1, 0))" in text
        assert "try: shape.dimensions" in text

    def test_is_static_and_an_arrays(self) -> None:
        for shape in (sx.f32["<=2", 3], sx.Shape.tuple(()), sx.Shape.token()):
            assert "the shape of a static array" in said(lambda x, s=shape: sx.broadcast(x, s), SCALAR)

    def test_has_no_elements(self) -> None:
        with pytest.raises(sx.ShapeError, match=r"shape\.dimensions"):
            list(sx.f32[2, 3])
        assert list(sx.Shape.tuple((sx.f32[2], SCALAR))) == [sx.f32[2], SCALAR]

    def test_from_a_text_that_is_too_deep(self) -> None:
        for text in ("(" * 100_000, f"f32[{'1' * 5000}]"):
            with pytest.raises(sx.ShapeError, match="is no shape"):
                sx.Shape.parse(text)


class TestElementTypes:
    @pytest.mark.parametrize("what", [None, "f8", "f4", "i4", "<f4", "d", float, int, complex, np.floating, 5, object])
    def test_that_are_none(self, what: object) -> None:
        with pytest.raises(sx.ShapeError, match="is no element type"):
            sx.element_type(what)
        assert "new_element_type: " in said(lambda x: sx.convert_element_type(x, what), sx.f32[2])

    def test_what_numpy_takes_for_one_is_the_hint(self) -> None:
        for what, meant in (("f8", "sx.f64"), (float, "sx.f64"), ("f4", "sx.f32")):
            assert f"try: {meant}" in said(lambda x, w=what: sx.convert_element_type(x, w), sx.f32[2])

    def test_names_classes_and_dtypes(self) -> None:
        for each in sx.ELEMENT_TYPES:
            for spelled in (each, each.name, each.dtype, each.dtype.name, each.dtype.type):
                assert sx.element_type(spelled) is each
        assert sx.element_type(bool) is sx.pred


class TestComputations:
    def test_of_another_number_of_parameters(self) -> None:
        text = said(lambda x, z: sx.reduce(x, z, lambda a: a, (0,)), sx.f32[2], SCALAR)
        assert "can't be called with ops of shapes f32[], f32[]" in text
        assert "comparator" in said(lambda x: sx.sort((x, x), sx.lt), sx.f32[2])

    @pytest.mark.parametrize("function", [int, len, list, np.add])
    def test_that_builds_nothing(self, function: Callable[..., Any]) -> None:
        assert "computation" in said(lambda x: sx.map(x, function), sx.f32[2])

    def test_errors_of_the_users_own_code_are_left_alone(self) -> None:
        def fails(x: sx.XlaOp) -> sx.XlaOp:
            raise TypeError("mine")

        with pytest.raises(TypeError, match="mine"):
            build(lambda x: sx.map(x, fails), sx.f32[2])


class TestPlainValues:
    """What was once answered by an exception that is not stablexla's."""

    @pytest.mark.parametrize(
        ("rule", "make", "told"),
        [
            ("", lambda x: sx.dot(x, x, 1), "precision_config must be a word"),
            ("", lambda x: sx.composite_call(x, "my.f", 5, sx.neg), "composite_attributes must be a mapping"),
            ("", lambda x: sx.composite_call(x, "my.f", {"a": np.ones(3)}, sx.neg), "composite_attributes['a']"),
            ("", lambda x: sx.composite_call(x, "my.f", {1: 2}, sx.neg), "a key of composite_attributes"),
            ("", lambda x: sx.composite_call(x, "my.f", "", sx.neg), "must not be an empty text"),
            ("", lambda x: sx.composite_call(x, "my.f", "[" * 100_000, sx.neg), "nested more than"),
            ("I2", lambda x: sx.fft(sx.complex(x, x), ["FFT"], (2,)), "fft_type must be FFT, IFFT, RFFT or IRFFT"),
            ("", lambda x: sx.reduce_precision(x, 2**70, 1), "exponent_bits must fit into 32 bits"),
            ("", lambda x: sx.rev(x, (2**70,)), "dimensions[0] must fit into 64 bits"),
            (
                "",
                lambda x: sx.custom_call("f", x, sx.f32[2], output_operand_aliasing=[0]),
                "output_operand_aliasing[0] must be a pair, not 0",
            ),
            ("", lambda x: sx.custom_call("f", x, sx.f32[2], "", "no"), "has_side_effect must be True or False"),
            ("", lambda x: sx.infeed_with_token(x.builder.create_token(), sx.f32["<=2"]), "shape must be static"),
            ("", lambda x: x.builder.constant(range(10**12)), "a constant can't be made of range"),
            ("", lambda x: sx.custom_call("\udc80", x, sx.f32[2]), "half of a surrogate pair"),
        ],
    )
    def test_is_refused(self, rule: str, make: Callable[..., Any], told: str) -> None:
        assert told in said(make, sx.f32[2], rule=rule)

    def test_errors_are_short(self) -> None:
        text = said(lambda x: sx.transpose(x, [*range(10**5), "a"]), sx.f32[2])
        assert len(text) < 1000

    def test_name_of_a_builder(self) -> None:
        with pytest.raises(sx.ShapeError, match="XlaBuilder: name must be a text, and its character 0 is half"):
            sx.XlaBuilder("\udc80")


class TestEvenness:
    """What one operation takes, its neighbours take too."""

    @pytest.mark.parametrize(
        ("short", "long"),
        [
            (lambda x, z: sx.reduce(x, 0.0, sx.add, (0,)), lambda x, z: sx.reduce(x, z, sx.add, (0,))),
            (lambda x, z: sx.reduce_all(x, 0, sx.add), lambda x, z: sx.reduce_all(x, z, sx.add)),
            (
                lambda x, z: sx.reduce_window(x, 0, sx.add, (2,), (1,), "SAME"),
                lambda x, z: sx.reduce_window(x, z, sx.add, (2,), (1,), padding="SAME"),
            ),
        ],
    )
    def test_numbers_as_initial_values(self, short: Callable[..., Any], long: Callable[..., Any]) -> None:
        value = np.array([1, 2, 3], np.float32)
        short_of = lambda x: short(x, None)  # noqa: E731
        long_of = lambda x: long(x, x.builder.constant(0.0))  # noqa: E731
        assert str(build(short_of, sx.f32[3])) == str(build(long_of, sx.f32[3]))
        np.testing.assert_array_equal(evaluate(short_of, value), evaluate(long_of, value))

    def test_numbers_of_several_types(self) -> None:
        def make(x: sx.XlaOp, n: sx.XlaOp) -> list[sx.XlaOp]:
            return list(sx.reduce((x, n), (0.5, 2), lambda a, i, b, j: (a + b, i * j), (0,)))

        total, product = evaluate(make, np.array([1, 2], np.float32), np.array([3, 4], np.int32))
        assert (total, product) == (3.5, 24)
        assert "0.5" in said(lambda n: sx.reduce(n, 0.5, sx.add, (0,)), sx.s32[2])

    @pytest.mark.parametrize(
        ("by_list", "by_tuple"),
        [
            (
                lambda a, b: sx.while_(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), [a, b]),
                lambda a, b: sx.while_(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), sx.tuple((a, b))),
            ),
            (lambda a, b: sx.optimization_barrier([a, b]), lambda a, b: sx.optimization_barrier(sx.tuple((a, b)))),
            (lambda a, b: sx.outfeed([a, b]), lambda a, b: sx.outfeed(sx.tuple((a, b)))),
            (
                lambda a, b: sx.conditional(a > 0, [a, b], lambda s: s[1], [b, a], lambda s: s[0]),
                lambda a, b: sx.conditional(a > 0, sx.tuple((a, b)), lambda s: s[1], sx.tuple((b, a)), lambda s: s[0]),
            ),
        ],
    )
    def test_sequences_as_tuples(self, by_list: Callable[..., Any], by_tuple: Callable[..., Any]) -> None:
        assert str(build(by_list, sx.s32[()], sx.s32[()])) == str(build(by_tuple, sx.s32[()], sx.s32[()]))

    def test_sequence_as_root(self) -> None:
        b = sx.XlaBuilder("pair")
        x = b.parameter(0, sx.f32[2])
        assert b.build([x, (x, x)]).result_shape == sx.Shape.parse("(f32[2], (f32[2], f32[2]))")

    def test_config_of_an_infeed(self) -> None:
        b = sx.XlaBuilder("infeed")
        assert 'infeed_config = "here"' in str(b.build(b.infeed(sx.f32[2], config="here")))
        with pytest.raises(sx.ShapeError, match="config must be a text, not 3"):
            b.infeed(sx.f32[2], config=3)  # type: ignore[arg-type]

    def test_token_of_another_builder(self) -> None:
        token = sx.XlaBuilder("other").create_token()
        assert "token belongs to the builder 'other'" in said(lambda x: x.builder.infeed(sx.f32[2], token), sx.f32[2])

    def test_dilations_are_no_padding(self) -> None:
        window: dict[str, Any] = {"window_dimensions": (2, 2), "window_strides": (1, 1)}
        summed = lambda x, **more: sx.reduce_window(x, 0.0, sx.add, **window, **more)  # noqa: E731
        text = said(lambda x: summed(x, base_dilations=(2, 2)), sx.f32[4, 4], rule="C12")
        assert "padding must be given" in text
        refused("", lambda x: summed(x, base_dilations="VALID"), sx.f32[4, 4])

    def test_padding_config(self) -> None:
        rows = ((1, 0, 0), (-1, 2, 1))
        spelled = [lambda x, c=c: sx.pad(x, 0.0, c) for c in (rows, sx.PaddingConfig(rows))]
        assert len({str(build(make, sx.f32[2, 3])) for make in spelled}) == 1
        assert sx.PaddingConfig(rows).dimensions == rows
        with pytest.raises(sx.ShapeError, match="PaddingConfig: dimensions must be of three numbers"):
            sx.PaddingConfig([(1, 2)])  # type: ignore[list-item]

    def test_dimension_numbers_without_arguments(self) -> None:
        outer = build(lambda x: sx.dot_general(x, x, sx.DotDimensionNumbers()), sx.f32[2])
        assert outer.result_shape == sx.f32[2, 2]


class TestHints:
    def test_order_of_the_c_header(self) -> None:
        numbers = sx.GatherDimensionNumbers((1,), (0,), (0,), 1)
        text = said(lambda x, i: sx.gather(x, i, numbers, (1, 4)), sx.f32[3, 4], sx.s32[2])  # type: ignore[arg-type]
        assert "try: dimension_numbers=GatherDimensionNumbers(...)" in text
        into = sx.ScatterDimensionNumbers((1,), (0,), (0,), 1)
        scatter = lambda x, i, u: sx.scatter(x, i, u, sx.add, into)  # noqa: E731
        assert "try: dimension_numbers=Scatter" in said(scatter, sx.f32[3, 4], sx.s32[2], sx.f32[2, 4])

    @pytest.mark.parametrize("name", ["iota", "infeed", "recv", "parameter", "replica_id", "build", "ReplicaId"])
    def test_methods_looked_for_in_the_package(self, name: str) -> None:
        with pytest.raises(AttributeError, match=r"has no attribute '\w+': try b\.\w+\(.*\) of the builder b"):
            getattr(sx, name)

    @pytest.mark.parametrize("name", ["infeed_with_token", "recv_from_host", "add", "reduce", "BroadcastInDim"])
    def test_functions_looked_for_in_the_builder(self, name: str) -> None:
        with pytest.raises(AttributeError, match=rf"XlaBuilder has no attribute '{name}': try sx\.\w+\("):
            getattr(sx.XlaBuilder("b"), name)

    def test_names_of_the_c_header(self) -> None:
        for name, meant in (("ConvertElementType", "convert_element_type"), ("While", "while_"), ("Conv", "conv")):
            with pytest.raises(AttributeError, match=rf"try sx\.{meant}\("):
                getattr(sx, name)

    def test_nothing_is_known_of_other_names(self) -> None:
        with pytest.raises(AttributeError, match=r"has no attribute 'zzzzqqqq'$"):
            sx.zzzzqqqq  # noqa: B018
        assert not hasattr(sx.XlaBuilder("b"), "__array__")


@pytest.mark.parametrize("name", sorted(name for name in sx.__all__ if name in REGISTRY))
def test_signatures_name_the_parameters(name: str) -> None:
    kinds = {p.kind for p in inspect.signature(getattr(sx, name)).parameters.values() if p.name != "more"}
    assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
