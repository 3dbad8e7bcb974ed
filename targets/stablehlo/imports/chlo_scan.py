"""Expansion of `chlo.scan` to a loop: one element along a dimension per iteration, with carried state.

jaxlib's decomposition aborts the process on complex numbers, lacks the reverse order, and slices dynamically.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects import hlo
from stablexla.dialects.erasing import erase
from stablexla.dialects.inlining import inline_block
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
    counter = hlo.integer_tensor(64)
    empty = [hlo.broadcast(hlo.number(r.type, "0"), r.type.shape) for r in list(op.results)[:given]]
    if not extent:
        return [*empty, *inits]
    state = [hlo.constant(counter, "0"), *inits, *empty]
    types = [value.type for value in state]
    loop = hlo.operation("stablehlo.while", state, types, regions=2)
    with hlo.block(loop.regions[0], types) as (number, *_):
        hlo.return_([hlo.compare(number, hlo.constant(counter, str(extent)))])
    with hlo.block(loop.regions[1], types) as values:
        _step(op, values, inputs, dimension, extent)
    results = list(loop.results)[1:]
    return [*results[len(inits) :], *results[: len(inits)]]


def _step(op: Any, state: list[Any], inputs: Sequence[Any], dimension: int, extent: int) -> None:
    """Create one iteration: the computation on the elements at the counter."""
    counter, *rest = state
    carries = len(op.operands) - len(inputs)
    place = counter
    if "is_reverse" in op.attributes and ir.BoolAttr(op.attributes["is_reverse"]).value:
        place = hlo.elementwise("subtract", hlo.constant(counter.type, str(extent - 1)), counter)
    arguments = [*(_element(x, dimension, place) for x in inputs), *rest[:carries]]
    end = hlo.return_([counter])
    values = inline_block(op.regions[0].blocks[0], arguments, end)
    erase(end)
    outputs = len(values) - carries
    kept = [_with_element(x, v, dimension, place) for x, v in zip(rest[carries:], values[:outputs], strict=True)]
    following = hlo.elementwise("add", counter, hlo.constant(counter.type, "1"))
    hlo.return_([following, *values[outputs:], *kept])


def _starts(type_: Any, dimension: int, place: Any) -> list[Any]:
    zero = hlo.constant(place.type, "0")
    return [place if d == dimension else zero for d in range(type_.rank)]


def _element(x: Any, dimension: int, place: Any) -> Any:
    """Slice at one index along a dimension, and drop that dimension."""
    shape = list(x.type.shape)
    sizes = [1 if d == dimension else n for d, n in enumerate(shape)]
    one = hlo.dynamic_slice(x, _starts(x.type, dimension, place), sizes)
    return hlo.reshape(one, shape[:dimension] + shape[dimension + 1 :])


def _with_element(x: Any, value: Any, dimension: int, place: Any) -> Any:
    sizes = [1 if d == dimension else n for d, n in enumerate(x.type.shape)]
    return hlo.dynamic_update(x, hlo.reshape(value, sizes), _starts(x.type, dimension, place))
