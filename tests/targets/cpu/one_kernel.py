"""The kernel of one kind in a program, with what main hands to it: for emitters of kernels that lowering rules make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlir.ir as ir
import numpy as np

import stablexla as sx
from stablexla.dialects.symbols import functions_of
from stablexla.interop.loading import load
from stablexla.lowering.support.kernels import KIND, combiner_reference
from stablexla.lowering.support.operations import defining, main_of, walk
from stablexla.targets.cpu.pipeline import cpu_pipeline
from stablexla.targets.pipeline.driver import copy_of, run_pipeline

Reader = Callable[[Sequence[np.ndarray]], np.ndarray]
# What gives another view of the same elements.
_VIEWS = ("tensor.collapse_shape", "tensor.expand_shape")


@dataclass(frozen=True)
class OneKernel:
    """A kernel that a program has once.

    Attributes:
        text: its function on tensors, behind that of its combiner.
        arguments: gives what main calls it with, for arguments of the program.
    """

    text: str
    arguments: Callable[[Sequence[np.ndarray]], list[np.ndarray]]


def program_of(make: Callable[..., Any], *arrays: np.ndarray) -> sx.XlaComputation:
    """`make(*parameters)` as a program for arguments of these shapes."""
    b = sx.XlaBuilder("test")
    made = make(*(b.parameter(i, sx.Shape(a.dtype, a.shape)) for i, a in enumerate(arrays)))
    return b.build(sx.tuple(made) if isinstance(made, list | tuple) else made)


def kernel_of(program: sx.XlaComputation | str, kind: str, *, is_prepared: bool = False) -> OneKernel:
    """The first kernel of a kind that main calls.

    Args:
        is_prepared: the program is as the step `stablehlo` leaves it, with operations that passes make.
    """
    pipeline = cpu_pipeline().up_to("kernels")
    module = run_pipeline(copy_of(load(str(program))), pipeline.after("stablehlo") if is_prepared else pipeline)
    functions = {
        ir.StringAttr(view.operation.attributes["sym_name"]).value: view.operation
        for view in module.body.operations
        if KIND in view.operation.attributes and ir.StringAttr(view.operation.attributes[KIND]).value == kind
    }
    calls = [op for op in walk(main_of(module)) if op.name == "func.call"]
    call = next(op for op in calls if ir.FlatSymbolRefAttr(op.attributes["callee"]).value in functions)
    function = functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value]

    readers = [_reader(v) for v in call.operands]
    reference = combiner_reference(function.opview)
    parts = [function] if reference is None else [functions_of(module)[reference.function.value], function]
    text = "\n".join(part.get_asm(use_local_scope=True) for part in parts)
    return OneKernel(text, lambda arrays: [read(arrays) for read in readers])


def _reader(value: ir.Value) -> Reader:
    """What a value of main is: a parameter, a constant, a view or an element of one."""
    maker = defining(value)
    if maker is None:
        number = value.arg_number
        return lambda arrays: arrays[number]
    if maker.name == "arith.constant":
        constant = _constant(maker.attributes["value"])
        return lambda arrays: constant
    source, *places = (_reader(v) for v in maker.operands)
    if maker.name in _VIEWS:
        shape = tuple(value.type.shape)
        return lambda arrays: source(arrays).reshape(shape)
    assert maker.name == "tensor.extract", f"main computes {maker.name}"
    return lambda arrays: np.asarray(source(arrays)[tuple(int(place(arrays)) for place in places)])


def _constant(attribute: Any) -> np.ndarray:
    if isinstance(attribute, ir.IntegerAttr | ir.FloatAttr):
        return np.asarray(attribute.value)
    return np.array(attribute)
