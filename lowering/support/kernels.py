"""Kernels emitted by lowering rules: operations of more than one loop nest are outlined as private functions at once.

The function's body is the reference semantics on tensors; from its kind and configuration a target's emitter may emit
other code. Functions that grouping outlines later carry the same attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import func, tensor

from stablexla.lowering.support.configs import config_attribute
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.operations import captured, remap
from stablexla.lowering.support.storage import from_storage, to_storage
from stablexla.lowering.support.types import TensorType, tensor_storage

KIND = "stablexla.kernel"
CONFIG = "stablexla.config"
EFFECT = "stablexla.effect"
INDEPENDENT = "stablexla.independent"

Body = Callable[..., Sequence[ir.Value] | ir.Value]


def kernel(
    ctx: LoweringContext,
    kind: str,
    operands: Sequence[ir.Value],
    body: Body,
    *,
    config: object | None = None,
    result_types: Sequence[TensorType] | None = None,
    effect: bool = False,
    independent: bool = False,
) -> list[ir.Value]:
    """Outline an operation: emit a private function beside main, and a call of it.

    Args:
        kind: the key by which emitters register.
        body: takes the operands inside the function, and returns its results: arrays in storage form, scalars as
            values. Captured values become further operands.
        config: what an emitter needs and cannot read from the body: a dataclass, see `configs.py`.
        result_types: types of the results; without them those of the operation.
        effect: it has side effects: it is not dead code, and stays in order with others like it.
        independent: the iterations of the body's one outermost loop are independent.

    Inside another kernel, or the body of a linalg operation, the body is emitted inline.
    """
    types = ctx.result_types if result_types is None else list(result_types)
    main = _enclosing_function()
    if main is None:
        made = body(*operands)
        return [made] if isinstance(made, ir.Value) else list(made)
    with ir.InsertionPoint(main):
        name = ctx.new_symbol(kind)
        function = func.FuncOp(name, ir.FunctionType.get([], []), visibility="private")
    function.attributes[KIND] = ir.StringAttr.get(kind)
    if config is not None:
        function.attributes[CONFIG] = config_attribute(config)
    if independent:
        function.attributes[INDEPENDENT] = ir.UnitAttr.get()
    inputs = _fill(function.operation, list(operands), body, types)
    call = func.CallOp([tensor_storage(t) for t in types], name, inputs)
    if effect:
        call.operation.attributes[EFFECT] = ir.UnitAttr.get()
    return [_as_value(v, t) for v, t in zip(call.results, types, strict=True)]


def _enclosing_function() -> ir.Operation | None:
    """Return main if the insertion point is in it, at most inside control flow; else None."""
    op = ir.InsertionPoint.current.block.owner.operation
    while op.name != "func.func":
        if op.name.startswith("linalg."):
            return None
        op = op.parent.operation
    return None if KIND in op.attributes else op


def _fill(function: ir.Operation, operands: list[ir.Value], body: Body, types: Sequence[TensorType]) -> list[ir.Value]:
    """Emit the function's body; return the operands of its call."""
    location = ir.Location.current
    block = function.regions[0].blocks.append(*[v.type for v in operands], arg_locs=[location] * len(operands))
    with ir.InsertionPoint(block):
        made = body(*block.arguments)
        values = [made] if isinstance(made, ir.Value) else list(made)
        stored = [as_array(v, t) for v, t in zip(values, types, strict=True)]
        func.ReturnOp(stored)
    inputs = [*operands, *_take_captured(function, block)]
    signature = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in stored])
    function.attributes["function_type"] = ir.TypeAttr.get(signature)
    return inputs


def _take_captured(function: ir.Operation, block: ir.Block) -> list[ir.Value]:
    """Turn captured values into arguments, and rematerialize scalar constants in the function."""
    outside = []
    for value in captured(function):
        if is_constant(value):
            with ir.InsertionPoint.at_block_begin(block):
                inside = copied_constant(value)
        else:
            outside.append(value)
            inside = block.add_argument(value.type, ir.Location.current)
        remap(function, {value: inside})
    return outside


# Operations of constants that are no arith.constant: complex numbers, and numbers given by their bit patterns.
_OF_CONSTANTS = ("complex.create", "complex.constant", "arith.bitcast")


def is_constant(value: ir.Value) -> bool:
    """Whether a scalar is a constant, or computed from constants only."""
    maker = value.owner
    if isinstance(maker, ir.Block):
        return False
    op = maker.operation
    return op.name == "arith.constant" or (op.name in _OF_CONSTANTS and all(map(is_constant, op.operands)))


def copied_constant(value: ir.Value) -> ir.Value:
    """Rematerialize a constant at the insertion point, with its operands."""
    op = value.owner.operation
    parts = {v: copied_constant(v) for v in op.operands}
    copy = op.clone().operation
    remap(copy, parts)
    return copy.results[0]


def as_array(value: ir.Value, type_: TensorType) -> ir.Value:
    """Return an operand in storage form, as it lies in memory."""
    if type_.rank:
        return value
    return tensor.from_elements(tensor_storage(type_), [to_storage(value, type_.element)])


def _as_value(array: ir.Value, type_: TensorType) -> ir.Value:
    return array if type_.rank else from_storage(tensor.extract(array, []), type_.element)
