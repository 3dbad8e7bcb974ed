"""The row function of an attention (softmax, masks), outlined and analysed; its last division moves to the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import func

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.generic import elementwise_loops
from stablexla.lowering.support.operations import body_of, clone_with, constant_attribute, defining, terminator_of
from stablexla.targets.codegen.kernel import KIND, Kernel
from stablexla.targets.codegen.loop_nest import Load, Store, analyze_nest
from stablexla.targets.codegen.match.contraction import conversion_of
from stablexla.targets.codegen.row_passes import RowPasses, schedule_rows
from stablexla.targets.grouping.loops import is_generic, loops_of
from stablexla.targets.grouping.outline import function_of


@dataclass(frozen=True)
class RowFunction:
    """The row function, analysed.

    Attributes:
        scores, weights: the load and the store for each key.
        total: the store of each row's denominator, if the division is deferred.
        shared: whether weights may overwrite the scores in place.
        inputs: for each input the number of the kernel's input; None for the scores.
    """

    chain: RowPasses
    scores: Load
    weights: Store
    total: Store | None
    shared: bool
    inputs: tuple[int | None, ...]


def analyse_row_function(
    kernel: Kernel,
    middle: list[ir.Operation],
    weights: ir.Value,
    conversion: tuple[ir.Operation, ...],
    scores: ir.Value,
    keep: Callable[[func.FuncOp], None],
) -> RowFunction | None:
    """Analyse the row function from `scores` through `middle` to `weights`, converted; None for other forms.

    The temporary function goes to `keep`, and must outlive the result.
    """
    divided = _division(weights, middle)
    if divided is None or divided[1].type.element_type != scores.type.element_type:
        divided = None
        results, converted = [weights], conversion
    else:
        powers, total, between = divided
        results, converted = [powers, total], (*between, *conversion)
    members = _needed(middle, results)

    def new(inputs: Sequence[ir.Type], outputs: Sequence[ir.Type], kind: str) -> func.FuncOp:
        with ir.InsertionPoint(kernel.func):
            made = func.FuncOp(
                f"{kernel.name}_rows", ir.FunctionType.get(list(inputs), list(outputs)), visibility="private"
            )
        made.attributes[KIND] = ir.StringAttr.get(kind)
        return made

    function, inputs = function_of("row", members, results, new)
    keep(function)
    if converted:
        _convert_result(function, converted)
    made = Kernel(function)
    nest = analyze_nest(made, merge=False)
    chain = schedule_rows(nest) if nest is not None else None
    if chain is None or chain.columns != {chain.inner}:
        return None
    if scores not in inputs or any(v != scores and v not in kernel.inputs for v in inputs):
        return None
    number = inputs.index(scores)
    loads = [node for node in chain.nest.loads if node.buffer == number]
    if len(loads) != 1 or not loads[0].stays or not all(loads[0].strides):
        return None
    if made.results[0].type.element_type != scores.type.element_type:
        return None
    stores = [s for p in chain.passes for s in p.stores]
    return RowFunction(
        chain,
        loads[0],
        stores[0],
        chain.row_stores[0] if divided is not None else None,
        _written_last(chain, loads[0], stores[0]),
        tuple(None if v == scores else kernel.inputs.index(v) for v in inputs),
    )


def _written_last(chain: RowPasses, scores: Load, weights: Store) -> bool:
    """Whether no pass reads the scores after the one that writes the weights."""
    writer = next(i for i, p in enumerate(chain.passes) if weights in p.stores)
    return not any(scores in p.loads for p in chain.passes[writer + 1 :])


def is_defined_by(value: ir.Value, operations: list[ir.Operation]) -> bool:
    """Whether one of some operations defines a value."""
    owner = defining(value)
    return owner is not None and owner in operations


def _needed(middle: list[ir.Operation], results: Sequence[ir.Value]) -> list[ir.Operation]:
    """Return the operations on the use-def chains of some values, in order."""
    waiting, found = list(results), set()
    while waiting:
        op = defining(waiting.pop())
        if op is not None and op in middle and op not in found:
            found.add(op)
            waiting += op.operands
    return [op for op in middle if op in found]


def _division(
    weights: ir.Value, middle: list[ir.Operation]
) -> tuple[ir.Value, ir.Value, tuple[ir.Operation, ...]] | None:
    """Match the rows' last division: numerator, denominator, and the conversions behind it.

    It is deferred to the sums if the numerators are at most 1: no overflow that would not occur otherwise.
    """
    conversions: tuple[ir.Operation, ...] = ()
    op = defining(weights)
    while op is not None and op in middle and (chain := _conversion_body(op)) is not None:
        conversions = (*chain, *conversions)
        op = defining(op.operands[0])
    if op is None or op not in middle or [o.name for o in body_of(op)] != ["arith.divf", "linalg.yield"]:
        return None
    block = op.regions[0].blocks[0]
    if list(body_of(op)[0].operands) != list(block.arguments)[:2]:
        return None
    powers, total = op.operands[:2]
    maps = loops_of(op).maps
    if maps[0] != maps[2] or len(maps[1].results) >= len(maps[0].results):
        return None
    if not is_defined_by(powers, middle) or not is_defined_by(total, middle) or not _at_most_one(powers, middle):
        return None
    return powers, total, conversions


def _conversion_body(op: ir.Operation) -> tuple[ir.Operation, ...] | None:
    """Return the operations of a generic that only converts its one operand elementwise."""
    block = op.regions[0].blocks[0]
    loops = loops_of(op)
    if len(loops.maps) != 2 or loops.maps[0] != loops.maps[1] or any(loops.reduced):
        return None
    last = body_of(op)[-1]
    chain = conversion_of(last.operands[0])
    if chain is None or chain[0] != block.arguments[0]:
        return None
    names = ("arith.truncf", "arith.extf")
    return chain[1] if all(o.name in names for o in chain[1]) else None


def _at_most_one(powers: ir.Value, middle: list[ir.Operation]) -> bool:
    """Whether values are exp(x - row maximum), or zeros where masked."""
    op = defining(powers)
    while op is not None and op in middle and is_generic(op):
        names = [o.name for o in body_of(op)[:-1]]
        if names and names[-1] == "arith.select":
            element = powers.type.element_type
            masked = [v for v in op.operands if is_defined_by(v, middle) and v.type.element_type == element]
            if len(masked) != 1 or not _selects_zero(op):
                return False
            op = defining(masked[0])
        elif names == ["math.exp"]:
            op = defining(op.operands[0])
            if op is None or op not in middle:
                return False
            return body_of(op)[-2].name == "arith.subf" and _is_maximum(op.operands[1], middle)
        elif names and names[0] == "arith.subf" and names[-1] == "math.exp":
            return len(names) == 2 and _is_maximum(op.operands[1], middle)
        else:
            return False
    return False


def _selects_zero(op: ir.Operation) -> bool:
    return selects_zero(op.regions[0].blocks[0], lambda n: constant_attribute(op.operands[n]))


def selects_zero(block: ir.Block, constant: Callable[[int], ir.Attribute | None]) -> bool:
    """Whether one side of the select that ends a body is 0; `constant` returns that of an operand, by its number."""
    last = list(block.operations)[-2].operation
    arguments, zero = list(block.arguments), ir.FloatAttr.get(last.results[0].type, 0.0)
    sides = list(last.operands)[1:]
    return any((constant(arguments.index(v)) if v in arguments else constant_attribute(v)) == zero for v in sides)


def _is_maximum(value: ir.Value, middle: list[ir.Operation]) -> bool:
    """Whether a value comes from a maximum reduction, through row operations alone."""
    op = defining(value)
    while op is not None and op in middle:
        if any(loops_of(op).reduced):
            return [o.name for o in body_of(op)] == ["arith.maximumf", "linalg.yield"]
        op = next((m for m in (defining(v) for v in op.operands) if m is not None and m in middle), None)
    return False


def _convert_result(function: func.FuncOp, operations: Sequence[ir.Operation]) -> None:
    """Append elementwise conversions to a function's first result."""
    block = function.regions[0].blocks[0]
    end = terminator_of(block)
    value = end.operands[0]

    def converted(elements: Sequence[ir.Value]) -> ir.Value:
        (inner,) = elements
        for operation in operations:
            inner = clone_with(operation, {operation.operands[0]: inner}).results[0]
        return inner

    with ir.InsertionPoint(end):
        type_ = ir.RankedTensorType.get(value.type.shape, operations[-1].results[0].type)
        end.operands[0] = elementwise_loops([value], type_, converted)
    types = [v.type for v in end.operands]
    signature = ir.FunctionType.get([a.type for a in block.arguments], types)
    function.attributes["function_type"] = ir.TypeAttr.get(signature)
