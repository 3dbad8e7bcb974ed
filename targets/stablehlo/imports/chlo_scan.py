"""Expansion of `chlo.scan` to a loop: one element along a dimension per iteration, with carried state.

jaxlib's decomposition aborts the process on complex numbers, lacks the reverse order, and slices dynamically.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.erasing import erase
from stablexla.lowering.bounded.values import broadcast, compare, constant, emit, number, tensor
from stablexla.targets.stablehlo.imports.replacements import is_static, replaces


@replaces("chlo.scan")
def scan(op: Any) -> list[Any] | None:
    """Expand to a while loop. Results, like those of the computation, are the outputs, then the last carries.

    The loop's state is its counter, the carries and the outputs.
    """
    if not is_static(op):
        return None
    count = op.attributes["operandSegmentSizes"][0]
    inputs, inits = list(op.operands)[:count], list(op.operands)[count:]
    given = len(op.results) - len(inits)
    dimension = int(ir.IntegerAttr(op.attributes["dimension"]).value)
    extent = (inputs[0] if inputs else op.results[0]).type.shape[dimension]
    counter = ir.RankedTensorType.get([], ir.IntegerType.get_signless(64))
    empty = [broadcast(number(r.type, "0"), r.type.shape) for r in list(op.results)[:given]]
    if not extent:
        return [*empty, *inits]
    state = [constant(counter, "0"), *inits, *empty]
    types = [value.type for value in state]
    loop = ir.Operation.create("stablehlo.while", results=types, operands=state, regions=2)
    condition, body = (r.blocks.append(*types, arg_locs=[ir.Location.current] * len(types)) for r in loop.regions)
    with ir.InsertionPoint(condition):
        _return([compare(condition.arguments[0], constant(counter, str(extent)))])
    with ir.InsertionPoint(body):
        _step(op, list(body.arguments), inputs, dimension, extent)
    results = list(loop.results)[1:]
    return [*results[len(inits) :], *results[: len(inits)]]


def _step(op: Any, state: list[Any], inputs: Sequence[Any], dimension: int, extent: int) -> None:
    """Create one iteration: the computation on the elements at the counter."""
    counter, *rest = state
    carries = len(op.operands) - len(inputs)
    place = counter
    if "is_reverse" in op.attributes and ir.BoolAttr(op.attributes["is_reverse"]).value:
        place = emit("stablehlo.subtract", [constant(counter.type, str(extent - 1)), counter], [counter.type])
    block = op.regions[0].blocks[0]
    arguments = [*(_element(x, dimension, place) for x in inputs), *rest[:carries]]
    for old, new in zip(list(block.arguments), arguments, strict=True):
        old.replace_all_uses_with(new)
    *operations, terminator = (o.operation for o in block.operations)
    end = _return([counter])
    for each in operations:
        each.move_before(end)
    erase(end)
    values = list(terminator.operands)
    outputs = len(values) - carries
    kept = [_with_element(x, v, dimension, place) for x, v in zip(rest[carries:], values[:outputs], strict=True)]
    following = emit("stablehlo.add", [counter, constant(counter.type, "1")], [counter.type])
    _return([following, *values[outputs:], *kept])


def _return(values: Sequence[Any]) -> Any:
    return ir.Operation.create("stablehlo.return", operands=list(values))


def _starts(type_: Any, dimension: int, place: Any) -> list[Any]:
    zero = constant(place.type, "0")
    return [place if d == dimension else zero for d in range(type_.rank)]


def _element(x: Any, dimension: int, place: Any) -> Any:
    """Slice at one index along a dimension, and drop that dimension."""
    shape = list(x.type.shape)
    sizes = [1 if d == dimension else n for d, n in enumerate(shape)]
    one = stablehlo.dynamic_slice(x, _starts(x.type, dimension, place), sizes)
    return emit("stablehlo.reshape", [one], [tensor(x.type, shape[:dimension] + shape[dimension + 1 :])])


def _with_element(x: Any, value: Any, dimension: int, place: Any) -> Any:
    sizes = [1 if d == dimension else n for d, n in enumerate(x.type.shape)]
    one = emit("stablehlo.reshape", [value], [tensor(x.type, sizes)])
    return emit("stablehlo.dynamic_update_slice", [x, one, *_starts(x.type, dimension, place)], [x.type])
