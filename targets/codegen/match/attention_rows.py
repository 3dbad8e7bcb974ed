"""The row function of an attention (softmax, masks), outlined and analysed; its last division moves to the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import func

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.generic import elementwise_loops
from stablexla.lowering.support.operations import body_of, clone_with, constant_attribute, defining, terminator_of
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.loop_nest import Load, Store, analyze_nest
from stablexla.targets.codegen.row_passes import RowPasses, schedule_rows
from stablexla.targets.grouping.loops import loops_of
from stablexla.targets.grouping.matchers import body_names, converted_in_place, formula, formula_of
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

    function, inputs = function_of("row", members, results, kernel.func.operation, f"{kernel.name}_rows")
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


def maker_in(operations: Sequence[ir.Operation], value: ir.Value) -> ir.Operation | None:
    """Return the one of some operations that defines a value."""
    maker: ir.Operation | None = defining(value)
    return maker if maker is not None and maker in operations else None


def _needed(middle: list[ir.Operation], results: Sequence[ir.Value]) -> list[ir.Operation]:
    """Return the operations on the use-def chains of some values, in order."""
    waiting, found = list(results), set()
    while waiting:
        op = maker_in(middle, waiting.pop())
        if op is not None and op not in found:
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
    op = maker_in(middle, weights)
    while op is not None and (chain := converted_in_place(op)) is not None:
        if any(o.name not in ROUNDINGS for o in chain):
            break
        conversions = (*chain, *conversions)
        op = maker_in(middle, op.operands[0])
    if op is None or len(body_of(op)) != 2 or formula_of(op) != formula("arith.divf", (0,), (1,)):
        return None
    powers, total = op.operands[:2]
    maps = loops_of(op).maps
    if maps[0] != maps[2] or len(maps[1].results) >= len(maps[0].results) or maker_in(middle, total) is None:
        return None
    return (powers, total, conversions) if _at_most_one(powers, middle) else None


ROUNDINGS = ("arith.truncf", "arith.extf")


def _at_most_one(powers: ir.Value, middle: list[ir.Operation]) -> bool:
    """Whether values are exp(x - row maximum), or zeros where masked."""
    op, element = maker_in(middle, powers), powers.type.element_type
    while op is not None and body_names(op)[-1:] == ["arith.select"]:
        masked = [v for v in op.operands if maker_in(middle, v) is not None and v.type.element_type == element]
        if len(masked) != 1 or not _selects_zero(op):
            return False
        op = maker_in(middle, masked[0])
    if op is not None and body_names(op) == ["math.exp"]:
        op = maker_in(middle, op.operands[0])
        is_difference = op is not None and body_names(op)[-1:] == ["arith.subf"]
    else:
        is_difference = op is not None and body_names(op) == ["arith.subf", "math.exp"]
    return op is not None and is_difference and _is_maximum(op.operands[1], middle)


def _selects_zero(op: ir.Operation) -> bool:
    return selects_zero(op.regions[0].blocks[0], lambda n: constant_attribute(op.operands[n]))


def selects_zero(block: ir.Block, constant: Callable[[int], ir.Attribute | None]) -> bool:
    """Whether one side of the select that ends a body is 0; `constant` returns that of an operand, by its number."""
    last = list(block.operations)[-2].operation
    arguments, zero = list(block.arguments), ir.FloatAttr.get(last.results[0].type, 0.0)
    sides = (constant(arguments.index(v)) if v in arguments else constant_attribute(v) for v in list(last.operands)[1:])
    return any(side is not None and side == zero for side in sides)


def _is_maximum(value: ir.Value, middle: list[ir.Operation]) -> bool:
    """Whether a value comes from a maximum reduction, through row operations alone."""
    op = maker_in(middle, value)
    while op is not None and not any(loops_of(op).reduced):
        op = next((m for m in (maker_in(middle, v) for v in op.operands) if m is not None), None)
    return op is not None and body_names(op) == ["arith.maximumf"]


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
