"""What the tests of the builder share: writing a program, running it in the reference interpreter, being refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jaxlib.mlir.ir as ir
import jaxlib.mlir.passmanager as passmanager
import numpy as np
import pytest

import stablexla as sx
from tests import oracles


def build(make: Callable[..., Any], *shapes: sx.Shape) -> sx.XlaComputation:
    """The computation that `make` writes down for parameters of these shapes: it verifies, and its text reads back."""
    b = sx.XlaBuilder("test")
    root = make(*(b.parameter(number, shape) for number, shape in enumerate(shapes)))
    computation = b.build(sx.tuple(root) if isinstance(root, list | tuple) else root)
    assert str(ir.Module.parse(str(computation), b.context)).strip() == str(computation)
    return computation


def shape_of(array: np.ndarray) -> sx.Shape:
    return sx.Shape(array.dtype, array.shape)


def evaluate(make: Callable[..., Any], *arrays: Any) -> Any:
    """What the reference interpreter gives for `make`'s program; a list if it returns several values.

    Complex results are taken apart in the program and put together here, for the interpreter can't return them.
    """
    inputs = [np.asarray(array) for array in arrays]

    def parts(*parameters: sx.XlaOp) -> list[sx.XlaOp]:
        root = make(*parameters)
        leaves = list(sx.tuple(root)) if isinstance(root, list | tuple) else [root]
        return [part for leaf in leaves for part in (_halves(leaf) if leaf.shape.element_type.is_complex else [leaf])]

    whole = build(make, *map(shape_of, inputs))
    text = without_chlo(build(parts, *map(shape_of, inputs)))
    values = iter(oracles.interpreter(text, inputs))
    results = [_joined(values) if leaf.element_type.is_complex else next(values) for leaf in whole.result_shape.leaves]
    assert [shape_of(result) for result in results] == list(whole.result_shape.leaves)
    return results if whole.result_shape.is_tuple else results[0]


def without_chlo(computation: sx.XlaComputation) -> str:
    """The text of the computation with CHLO's operations rewritten in StableHLO's."""
    module = computation.copy_of_module()
    passes = "builtin.module(func.func(chlo-legalize-to-stablehlo))"
    passmanager.PassManager.parse(passes, module.context).run(module.operation)
    return str(module)


def _halves(op: sx.XlaOp) -> list[sx.XlaOp]:
    return [sx.real(op), sx.imag(op)]


def _joined(values: Any) -> np.ndarray:
    real, imaginary = next(values), next(values)
    return np.asarray(real + 1j * imaginary).astype("complex64" if real.dtype == np.float32 else "complex128")


def refused(rule: str, make: Callable[..., Any], *shapes: sx.Shape) -> sx.ShapeError:
    """`make` is refused by this rule, and the error points to the line of the test that is at fault."""
    with pytest.raises(sx.ShapeError) as raised:
        build(make, *shapes)
    error = raised.value
    assert error.rule == rule, error
    assert error.source is not None
    assert error.source.file == make.__code__.co_filename, error
    return error
