"""Programs on arrays with dynamic dimensions, with poison behind their sizes, against the same on plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.runtime import bounded
from tests import oracles
from tests.comparison import assert_same

Make = Callable[..., Any]


def poison(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """What nothing may read: NaN, or numbers that would be seen in any result."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu" or "int" in dtype.name:
        return np.full(shape, 113 if dtype.itemsize > 1 or dtype.name in ("int8", "uint8") else 1).astype(dtype)
    return np.full(shape, np.nan if dtype.kind != "b" else True).astype(dtype)


def build(make: Make, shapes: Sequence[sx.Shape]) -> sx.XlaComputation:
    b = sx.XlaBuilder("bounded")
    root = make(*(b.parameter(i, shape) for i, shape in enumerate(shapes)))
    return b.build(sx.tuple(root) if isinstance(root, list | tuple) else root)


def set_inside(make: Make, shapes: Sequence[sx.Shape], *, cut: bool) -> sx.XlaComputation:
    """The program on arrays of full size that are given their sizes in it, by further parameters.

    With `cut`, dynamic results come in their bounds, with zeros behind the size.
    """
    b = sx.XlaBuilder("set_inside")
    arrays = [b.parameter(i, sx.Shape(s.element_type, s.dimensions)) for i, s in enumerate(shapes)]
    number = len(arrays)
    for i, shape in enumerate(shapes):
        for place in range(shape.rank):
            if shape.is_dynamic_dimension(place):
                arrays[i] = sx.set_dimension_size(arrays[i], b.parameter(number, sx.s32[()]), place)
                number += 1
    root = make(*arrays)
    leaves = list(root) if isinstance(root, list | tuple) else [root]
    return b.build(sx.tuple([filled(b, leaf) for leaf in leaves] if cut else leaves))


def filled(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
    """An array in its bounds, with zeros behind the size."""
    for place in range(x.shape.rank):
        if x.shape.is_dynamic_dimension(place):
            index = b.iota(sx.Shape("s32", x.shape.dimensions), place)
            size = sx.get_dimension_size(x, place)
            zero = b.constant(np.zeros(x.shape.dimensions, x.shape.element_type.dtype))
            x = sx.set_dimension_size(sx.select(index < size, x, zero), x.shape.dimensions[place], place)
    return x


def padded(array: np.ndarray, shape: sx.Shape) -> np.ndarray:
    """The array in its bounds, with poison behind it."""
    room = poison(shape.dimensions, array.dtype)
    room[tuple(map(slice, array.shape))] = array
    return room


def sizes_of(arrays: Sequence[np.ndarray], shapes: Sequence[sx.Shape]) -> list[np.ndarray]:
    return [
        np.int32(array.shape[place])
        for array, shape in zip(arrays, shapes, strict=True)
        for place in range(shape.rank)
        if shape.is_dynamic_dimension(place)
    ]


def check(
    make: Make,
    shapes: Sequence[sx.Shape],
    *args: Any,
    expected: Sequence[Any] | None = None,
    interpreter: bool = True,
    xla: bool = True,
    plain: bool = False,
    ulp: float = 0,
    scale: float = 0,
) -> list[np.ndarray]:
    """Runs `make(*parameters)` for parameters of these shapes on arrays within them, and compares the results.

    The program is run with bounded parameters, and once more on arrays that are given their sizes inside; poison is
    behind the arrays. References: the interpreter, and with `plain` XLA:CPU, on the program for the arrays' own shapes,
    which has no dynamic dimension; XLA:CPU with `set_dimension_size`; and what is expected.
    """
    arrays = [np.asarray(a) for a in args]
    references: dict[str, list[Any]] = {}
    if expected is not None:
        references["expected"] = list(expected)
    static = build(make, [sx.Shape(a.dtype, a.shape) for a in arrays])
    if interpreter:
        references["interpreter"] = oracles.interpreter(str(static), arrays)
    if plain:
        references["XLA:CPU on plain arrays"] = oracles.xla(str(static), arrays)
    inside = [*(padded(a, s) for a, s in zip(arrays, shapes, strict=True)), *sizes_of(arrays, shapes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded, "_room", poison)
        results = _compiled(build(make, shapes)).execute(arrays)
    again = _compiled(set_inside(make, shapes, cut=False)).execute(inside)
    for title, reference in references.items():
        _same(results, reference, f"bounded parameters against {title}", ulp, scale)
        _same(again, reference, f"sizes set inside against {title}", ulp, scale)
    if xla:
        whole = oracles.xla(str(set_inside(make, shapes, cut=True)), inside)
        cut = [w[tuple(map(slice, r.shape))] for w, r in zip(whole, results, strict=True)]
        _same(results, cut, "XLA:CPU with sizes at run time", ulp, scale)
    return results


_executables: dict[str, sx.Executable] = {}


def _compiled(computation: sx.XlaComputation) -> sx.Executable:
    """One executable serves all sizes, as it should."""
    text = str(computation)
    if text not in _executables:
        if len(_executables) > 16:
            _executables.clear()
        _executables[text] = sx.compile(computation)
    return _executables[text]


def _same(results: Sequence[Any], reference: Sequence[Any], title: str, ulp: float, scale: float) -> None:
    assert len(results) == len(reference), title
    for number, (actual, wanted) in enumerate(zip(results, reference, strict=True)):
        try:
            assert_same(actual, wanted, ulp=ulp, scale=scale)
        except AssertionError as error:
            raise AssertionError(f"result {number}, {title}: {error}\n{actual}\n{wanted}") from None
