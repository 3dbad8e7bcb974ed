"""Programs in the form that another implementation takes: without CHLO, composites and calls.

The reference interpreter aborts on complex results and overwrites the operand of a scatter; its form avoids both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
import numpy.typing as npt
from jaxlib.mlir import passmanager

from stablexla.dialects.contexts import diagnostics
from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.types import TensorType, tensor_type
from stablexla.targets.pipeline.driver import copy_of
from stablexla.targets.signature.signature import main_of, plain
from stablexla.targets.stablehlo.inlining import decompose_composites, inline_calls, operations_of

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Form:
    """A program for an oracle, and the result types of the original."""

    module: ir.Module
    results: list[TensorType]


def form_for(oracle: str, module: ir.Module) -> Form:
    """Return the program as the oracle takes it.

    Raises:
        MLIRError: CHLO's operations cannot be legalised.
    """
    copy = copy_of(module)
    types = [tensor_type(plain(v.type)) for v in _terminator(copy).operands]
    decompose_composites(copy, all=True)
    inline_calls(copy)
    with diagnostics(copy.context), copy.context:
        passmanager.PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(copy.operation)
    for op in operations_of(copy, "stablehlo.custom_call"):
        for name in [n.name if hasattr(n, "name") else n for n in op.attributes]:
            if name.startswith("sdy."):  # artifacts cannot hold Shardy's attributes
                del op.attributes[name]
    if oracle == "interpreter":
        for op in operations_of(copy, "stablehlo.scatter"):
            _copy_operands(op)
        _split_complex_results(copy)
    return Form(copy, types)


def joined(results: Sequence[Array], types: Sequence[TensorType]) -> list[Array]:
    """Return the results in their types; complex ones may have come as their parts."""
    left, made = iter(results), []
    for type_ in types:
        array = next(left)
        if type_.element.is_complex and array.dtype.kind != "c":
            whole = np.empty(type_.shape, type_.element.dtype)
            whole.real, whole.imag = array, next(left)
            array = whole
        made.append(array.view(type_.element.dtype).reshape(type_.shape))
    return made


def _terminator(module: ir.Module) -> Any:
    block = main_of(module).regions[0].blocks[0]
    return block.operations[len(block.operations) - 1].operation


def _copy_operands(scatter: Any) -> None:
    """Copy the operand of scatters, by a slice that takes all of it."""
    count = (len(scatter.operands) - 1) // 2
    for i in range(count):
        value = scatter.operands[i]
        shape = list(value.type.shape)
        with scatter.context, scatter.location, ir.InsertionPoint(scatter):
            copy = ir.Operation.create(
                "stablehlo.slice",
                results=[value.type],
                operands=[value],
                attributes={
                    "start_indices": ir.DenseI64ArrayAttr.get([0] * len(shape)),
                    "limit_indices": ir.DenseI64ArrayAttr.get(shape),
                    "strides": ir.DenseI64ArrayAttr.get([1] * len(shape)),
                },
            )
        scatter.operands[i] = copy.result


def _split_complex_results(module: ir.Module) -> None:
    """Replace complex results by their real and imaginary parts."""
    terminator = _terminator(module)
    values: list[Any] = []
    with module.context, ir.Location.unknown(), ir.InsertionPoint(terminator):
        for value in terminator.operands:
            type_ = tensor_type(plain(value.type))
            if not type_.element.is_complex:
                values.append(value)
                continue
            part = ir.RankedTensorType.get(list(type_.shape), ir.Type.parse(type_.element.part.mlir))
            for name in ("stablehlo.real", "stablehlo.imag"):
                values.append(ir.Operation.create(name, results=[part], operands=[value]).result)
        ir.Operation.create("func.return", operands=values)
    erase(terminator)
    main = main_of(module)
    inputs = [a.type for a in main.regions[0].blocks[0].arguments]
    with module.context:
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, [v.type for v in values]))
        if "res_attrs" in main.attributes:
            del main.attributes["res_attrs"]
