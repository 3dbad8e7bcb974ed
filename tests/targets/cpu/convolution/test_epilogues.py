"""Epilogues that the library's loops call back: which convolutions share one, and that each takes its own numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import stablexla as sx
from tests.comparison import assert_same
from tests.ops.convolution_reference import convolve, wide

NHWC = sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC")
NCHW = sx.ConvDimensionNumbers.of("NCHW", "OIHW", "NCHW")


class Layer(NamedTuple):
    """Sizes of a convolution: images, rows, places, features, and those of the result; of 3 x 3 or 1 x 1."""

    images: int
    rows: int
    places: int
    features: int
    outputs: int
    window: int = 3

    @property
    def result(self) -> tuple[int, ...]:
        return (self.images, self.rows, self.places, self.outputs)


# An epilogue is given the sums and a function that makes an array beside them, for the program and for numpy.
More = Callable[..., Any]
Epilogue = Callable[[Any, Any, More, Layer], Any]


def bias_and_scale(m: Any, y: Any, more: More, layer: Layer) -> Any:
    scale, bias = more((layer.outputs,), (3,)), more((layer.outputs,), (3,))
    return m.max(m.add(m.mul(y, scale), bias), m.mul(y, more((), ())))


def residual(m: Any, y: Any, more: More, layer: Layer) -> Any:
    return m.add(y, more(layer.result, (0, 1, 2, 3)))


def rows_and_images(m: Any, y: Any, more: More, layer: Layer) -> Any:
    return m.add(m.mul(y, more((layer.rows,), (1,))), more((layer.images, layer.places), (0, 2)))


def features_first(m: Any, y: Any, more: More, layer: Layer) -> Any:
    images, rows, places, outputs = layer.result
    return m.add(y, m.transpose(more((images, outputs, rows, places), None), (0, 2, 3, 1)))


def its_place(m: Any, y: Any, more: More, layer: Layer) -> Any:
    return m.add(y, m.iota(layer.result, 2))


def in_two_results(m: Any, y: Any, more: More, layer: Layer) -> Any:
    return m.both(m.add(y, more((layer.outputs,), (3,))), m.mul(y, y))


class InNumpy:
    """Epilogues in double precision."""

    add, mul, max = map(staticmethod, (np.add, np.multiply, np.maximum))

    @staticmethod
    def transpose(x: Any, order: Any) -> Any:
        return np.transpose(x, order)

    @staticmethod
    def iota(shape: Any, dimension: int) -> Any:
        return np.broadcast_to(np.arange(shape[dimension]).reshape([-1] + [1] * (len(shape) - 1 - dimension)), shape)

    @staticmethod
    def both(a: Any, b: Any) -> Any:
        return [a, b]


class InProgram(InNumpy):
    """Epilogues of the program."""

    add, mul, max, transpose = map(staticmethod, (sx.add, sx.mul, sx.max, sx.transpose))

    def __init__(self, builder: sx.XlaBuilder) -> None:
        self.builder = builder

    def iota(self, shape: Any, dimension: int) -> Any:
        return self.builder.iota(sx.Shape("f32", shape), dimension)


class Program:
    """Convolutions beside one another, each with the epilogue."""

    def __init__(
        self, layers: list[Layer], epilogue: Epilogue, numbers: sx.ConvDimensionNumbers = NHWC, element: str = "f32"
    ) -> None:
        self.element, self.dtype = element, sx.element_type(element).dtype
        self.rng, self.arrays = np.random.default_rng(0), list[np.ndarray]()
        self.builder, self.expected, roots = sx.XlaBuilder("test"), list[np.ndarray](), list[sx.XlaOp]()
        for layer in layers:
            made, wanted = self._layer(layer, epilogue, numbers)
            roots += made if isinstance(made, list) else [made]
            self.expected += wanted if isinstance(wanted, list) else [wanted]
        self.computation = self.builder.build(sx.tuple(roots))

    def _array(self, shape: tuple[int, ...]) -> tuple[sx.XlaOp, np.ndarray]:
        array = self.rng.normal(size=shape).astype(self.dtype)
        self.arrays.append(array)
        return self.builder.parameter(len(self.arrays) - 1, sx.Shape(self.element, shape)), wide(array)

    def _layer(self, layer: Layer, epilogue: Epilogue, numbers: sx.ConvDimensionNumbers) -> tuple[Any, Any]:
        last = numbers is NHWC
        images, rows, places, features, outputs, window = layer
        sides = {"N": images, "C": features, "H": rows, "W": places, "I": features, "O": outputs}
        x, x_array = self._array(tuple(sides[d] for d in ("NHWC" if last else "NCHW")))
        sides |= {"H": window, "W": window}
        w, w_array = self._array(tuple(sides[d] for d in ("HWIO" if last else "OIHW")))
        y = sx.conv_with_general_dimensions(x, w, (1, 1), "SAME", numbers)
        sums = convolve(x_array, w_array, numbers, strides=(1, 1), padding=[(window // 2, window // 2)] * 2)
        given: list[tuple[np.ndarray, Any]] = []

        def in_program(shape: tuple[int, ...], dims: tuple[int, ...] | None) -> sx.XlaOp:
            op, array = self._array(shape)
            given.append((array, dims))
            if dims is None:
                return op
            along = self._of(dims, last)
            order = sorted(range(len(along)), key=along.__getitem__)
            return sx.broadcast_in_dim(sx.transpose(op, order), y.shape.dimensions, sorted(along))

        def in_numpy(shape: tuple[int, ...], dims: tuple[int, ...] | None) -> np.ndarray:
            array, _ = given.pop(0)
            if dims is None:
                return array
            along = self._of(dims, last)
            order = sorted(range(len(along)), key=along.__getitem__)
            wanted = [array.shape[along.index(d)] if d in along else 1 for d in range(4)]
            return array.transpose(order).reshape(wanted)

        return epilogue(InProgram(self.builder), y, in_program, layer), epilogue(InNumpy, sums, in_numpy, layer)

    @staticmethod
    def _of(dims: tuple[int, ...], last: bool) -> tuple[int, ...]:
        return dims if last else tuple({0: 0, 1: 2, 2: 3, 3: 1}[d] for d in dims)

    def check(self, epilogues: int | None, options: sx.CompileOptions | None = None) -> None:
        """Compare with numpy; `epilogues` are called back."""
        executable = sx.compile(self.computation, options=options)
        for made, wanted in zip(executable(*self.arrays), self.expected, strict=True):
            scale = 2e-6 if self.dtype.itemsize > 2 else 2e-2  # sums and each operation are rounded
            assert_same(np.asarray(made), wanted.astype(self.dtype), scale=scale)
        if epilogues is not None:
            found = re.findall(r"func\.func private @stablexla_epilogue_of_\w+", executable.ir("buffers"))
            assert len(found) == epilogues


LAYERS = [Layer(2, 9, 7, 8, 16), Layer(2, 6, 8, 16, 48), Layer(4, 5, 16, 4, 32, window=1), Layer(3, 4, 4, 24, 80)]


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize(
    ("epilogue", "epilogues"),
    [(bias_and_scale, 1), (residual, 1), (rows_and_images, 1), (its_place, None), (in_two_results, None)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_sizes_share_an_epilogue(epilogue: Epilogue, epilogues: int | None, bits: int) -> None:
    Program(LAYERS, epilogue).check(epilogues, sx.CompileOptions(vector_bits=bits))


@pytest.mark.parametrize("element", ["f64", "bf16", "f16"])
def test_other_elements(element: str) -> None:
    """Sums of short floats are f32, and converted where the epilogue begins."""
    Program(LAYERS, residual, element=element).check(None)
    Program(LAYERS, bias_and_scale, element=element).check(None)


def test_groups_share_an_epilogue() -> None:
    """Their features are counted on: a panel of the second group begins behind those of the first."""
    b, rng, arrays, expected = sx.XlaBuilder("groups"), np.random.default_rng(0), list[np.ndarray](), list[np.ndarray]()

    def given(*shape: int) -> sx.XlaOp:
        arrays.append(rng.normal(size=shape).astype(np.float32))
        return b.parameter(len(arrays) - 1, sx.Shape("f32", shape))

    roots = []
    for groups, features, outputs in ((2, 8, 40), (3, 16, 120)):
        x, w, bias = given(1, 9, 8, groups * features), given(3, 3, features, outputs), given(outputs)
        y = sx.conv_general_dilated(x, w, (1, 1), "SAME", None, None, NHWC, feature_group_count=groups)
        roots.append(sx.add(y, bias, broadcast_dimensions=(3,)))
        x_array, w_array, bias_array = (wide(a) for a in arrays[-3:])
        window = {"strides": (1, 1), "padding": [(1, 1)] * 2}
        expected.append(convolve(x_array, w_array, NHWC, **window, feature_groups=groups) + bias_array)
    executable = sx.compile(b.build(sx.tuple(roots)))
    for made, wanted in zip(executable.execute(arrays), expected, strict=True):
        assert_same(np.asarray(made), wanted.astype(np.float32), scale=2e-6)


@pytest.mark.parametrize(("outputs", "epilogues"), [((20, 36), 1), ((20, 33), 2), ((15, 31), 1), ((16, 17), 2)])
def test_the_rest_of_a_row_is_in_the_code(outputs: tuple[int, int], epilogues: int) -> None:
    """Masks of what is beyond whole vectors are constants."""
    layers = [Layer(1, 6, 7, 8, count) for count in outputs]
    Program(layers, residual).check(epilogues, sx.CompileOptions(vector_bits=512))


def test_strides_that_are_equal_in_one() -> None:
    """The strides of an image and of a residual's row are as long in one of them: they are numbers of their own."""
    layers = [Layer(2, 1, 7, 8, 16), Layer(2, 5, 7, 8, 16), Layer(2, 7, 1, 8, 16), Layer(1, 4, 4, 16, 16)]
    Program(layers, rows_and_images).check(None)
    Program(layers, residual).check(None)


def test_different_epilogues_are_two() -> None:
    """Of equal arrays; they differ in an operation."""

    def product(m: Any, y: Any, more: More, layer: Layer) -> Any:
        return m.mul(y, more(layer.result, (0, 1, 2, 3)))

    def one_of_both(m: Any, y: Any, more: More, layer: Layer) -> Any:
        return (residual if layer.outputs == 16 else product)(m, y, more, layer)

    Program(LAYERS[:2], one_of_both).check(2)


@pytest.mark.parametrize("epilogue", [bias_and_scale, residual, rows_and_images])
def test_features_first(epilogue: Epilogue) -> None:
    """Squares of features and pixels are transposed; nothing is shared."""
    Program(LAYERS, epilogue, NCHW).check(None)


def test_arrays_whose_features_are_apart() -> None:
    Program(LAYERS, features_first).check(None)


def test_without_an_epilogue_nothing_is_called() -> None:
    """Whole panels go to the result at once, others through a stage; also a part of a vector."""
    layers = [*LAYERS, Layer(1, 6, 7, 8, 20), Layer(1, 3, 3, 8, 5), Layer(2, 7, 7, 512, 24)]
    Program(layers, lambda m, y, more, layer: y).check(0)
