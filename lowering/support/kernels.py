"""Kernels emitted by lowering rules: operations of more than one loop nest are outlined as private functions at once.

The function's body is the reference semantics on tensors; from its kind and configuration a target's emitter may emit
other code. Functions that grouping outlines later carry the same attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import func, tensor

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.configs import config_attribute, read_config
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.operations import captured, clone_with, remap
from stablexla.lowering.support.storage import entered, to_storage
from stablexla.lowering.support.types import TensorType, tensor_storage

KIND = "stablexla.kernel"
CONFIG = "stablexla.config"
COMBINER = "stablexla.combiner"
"""Attribute of a kernel: the function of its combiner or comparator, a `CombinerReference`; also of that function."""
EFFECT = "stablexla.effect"
INDEPENDENT = "stablexla.independent"

Body = Callable[..., Sequence[ir.Value] | ir.Value]


@dataclass(frozen=True)
class Combiner:
    """A combiner or comparator that a rule hands on to emitters, as a private function of scalars.

    Attributes:
        types: types of the arguments, elements in storage form.
        compute: takes them, and returns the results.
    """

    types: Sequence[ir.Type]
    compute: Callable[[list[ir.Value]], Sequence[ir.Value]]


@dataclass(frozen=True)
class CombinerReference:
    """The function of a combiner, and the kernel's inputs that are its arguments behind the elements."""

    function: ir.Attribute
    uniforms: tuple[int, ...]


def combiner_reference(kernel: func.FuncOp) -> CombinerReference | None:
    """Return a kernel's reference to its combiner; None if the rule handed on none.

    Raises:
        CompileError: the attribute is none of those.
    """
    if COMBINER not in kernel.attributes:
        return None
    return read_config(CombinerReference, kernel.attributes[COMBINER], f"{COMBINER} of @{kernel.name.value}")


def kernel(
    ctx: LoweringContext,
    kind: str,
    operands: Sequence[ir.Value],
    body: Body,
    *,
    config: object | None = None,
    combiner: Combiner | None = None,
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
        combiner: what the body does with elements. Emitters inline it in loops of their own.
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
    if combiner is not None:
        _hand_on(combiner, ctx.new_symbol("combiner"), function, inputs)
    call = func.CallOp([tensor_storage(t) for t in types], name, inputs)
    if effect:
        call.operation.attributes[EFFECT] = ir.UnitAttr.get()
    return [entered(v, t) for v, t in zip(call.results, types, strict=True)]


def _enclosing_function() -> ir.Operation | None:
    """Return main if the insertion point is in it, at most inside control flow; else None."""
    op = ir.InsertionPoint.current.block.owner.operation
    while op.name != "func.func":
        if op.name.startswith("linalg."):
            return None
        op = op.parent.operation
    return None if KIND in op.attributes or COMBINER in op.attributes else op


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


def _hand_on(combiner: Combiner, name: str, function: func.FuncOp, inputs: list[ir.Value]) -> None:
    """Emit a kernel's combiner as a function before it; `inputs` are the operands of the kernel's call."""
    with ir.InsertionPoint(function):
        made = func.FuncOp(name, ir.FunctionType.get([], []), visibility="private")
    made.attributes[COMBINER] = ir.UnitAttr.get()
    types, location = combiner.types, ir.Location.current
    block = made.operation.regions[0].blocks.append(*types, arg_locs=[location] * len(types))
    with ir.InsertionPoint(block):
        results = list(combiner.compute(list(block.arguments)))
        func.ReturnOp(results)
    uniforms = _take_captured(made.operation, block)
    signature = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in results])
    made.attributes["function_type"] = ir.TypeAttr.get(signature)
    assert all(value in inputs for value in uniforms), "the body has a combiner, which reads them as well"
    numbers = tuple(inputs.index(value) for value in uniforms)
    reference = CombinerReference(ir.FlatSymbolRefAttr.get(name), numbers)
    function.attributes[COMBINER] = config_attribute(reference)


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
    """Whether a value is a constant, or a scalar that is computed from constants only."""
    maker = value.owner
    if isinstance(maker, ir.Block):
        return False
    op = maker.operation
    return op.name == "arith.constant" or (op.name in _OF_CONSTANTS and all(map(is_constant, op.operands)))


def copied_constant(value: ir.Value) -> ir.Value:
    """Rematerialize a constant at the insertion point, with its operands."""
    op = value.owner.operation
    parts = {v: copied_constant(v) for v in op.operands}
    return clone_with(op, parts).results[0]


def as_array(value: ir.Value, type_: TensorType) -> ir.Value:
    """Return an operand in storage form, as it lies in memory."""
    if type_.rank:
        return value
    return tensor.from_elements(tensor_storage(type_), [to_storage(value, type_.element)])
