"""The factors of reductions, windows, gather and scatter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import jaxlib.mlir.ir as hlo_ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.targets.stablehlo.partition.factors import Factors, Ids, Shape, _rule, _where, ints, value_text

ANY_START = frozenset(f"stablehlo.{name}" for name in ("maximum", "minimum", "and", "or"))
"""Of these the initial value may count once for each part."""
_TEXTS = {0: ("0", "0.000000e+00", "-0.000000e+00", "false"), 1: ("1", "1.000000e+00", "true")}
STARTS = {"stablehlo.add": 0, "stablehlo.multiply": 1, "stablehlo.xor": 0}


@_rule("reduce")
def _reduce(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    reduced = set(ints(op, "dimensions"))
    inputs = operands[: len(operands) // 2]
    reducer = reducer_of(op) if len(inputs) == 1 else None
    ids = tuple(i if reducer or i not in reduced else None for i in range(len(inputs[0])))
    kept = tuple(i for i in range(len(inputs[0])) if i not in reduced)
    starts = ((),) * len(inputs)
    sums = tuple(sorted(reduced)) if reducer else ()
    return Factors((ids,) * len(inputs) + starts, (kept,) * len(inputs), sums, reducer or "")


def reducer_of(op: Any) -> str | None:
    """Return the operation that a reduction does, where parts can be reduced and then put together by it."""
    block = op.regions[0].blocks[0]
    if len(block.operations) != 2:
        return None
    body, terminator = (each.operation for each in block.operations)
    if set(body.operands) != set(block.arguments) or list(terminator.operands) != list(body.results):
        return None
    if body.name in ANY_START:
        return str(body.name)
    return str(body.name) if body.name in STARTS and _is_constant(op.operands[1], STARTS[body.name]) else None


def _is_constant(value: Any, number: int) -> bool:
    owner = value.owner
    if isinstance(owner, hlo_ir.Block) or owner.operation.name not in ("stablehlo.constant", "sdy.constant"):
        return False
    real, *imaginary = value_text(owner.operation).removeprefix("dense<").removesuffix(">").strip("()").split(",")
    return real in _TEXTS[number] and all(part in _TEXTS[0] for part in imaginary)


def _untouched(op: Any, rank: int) -> list[bool]:
    """Dimensions along which a window is one element."""
    ones = [1] * rank
    columns = [ints(op, name, ones) for name in ("window_dimensions", "window_strides", "base_dilations")]
    columns.append(ints(op, "window_dilations", ones))
    padding = ints(op, "padding", [0] * (2 * rank))
    return [all(column[i] == 1 for column in columns) and not any(padding[2 * i : 2 * i + 2]) for i in range(rank)]


@_rule("reduce_window")
def _reduce_window(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    ids = _where(_untouched(op, len(results[0])))
    return Factors((ids,) * len(results) + ((),) * len(results), (ids,) * len(results))


@_rule("select_and_scatter")
def _select_and_scatter(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    ids = _where(_untouched(op, len(results[0])))
    return Factors((ids, ids, ()), (ids,))


@_rule("gather")
def _gather(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    sizes = ints(op, "slice_sizes")
    fresh = count()
    indices = _indices(len(operands[1]), numbers.index_vector_dim, fresh)
    source: list[int | None] = [None] * len(operands[0])
    for d, i in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        source[d] = indices[i]
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    offsets: list[int | None] = []
    for d, n in enumerate(operands[0]):
        if d not in gone:
            if d not in numbers.start_index_map and sizes[d] == n:
                source[d] = next(fresh)
            offsets.append(source[d])
    result = _interleaved(len(results[0]), numbers.offset_dims, offsets, indices, numbers.index_vector_dim)
    return Factors((tuple(source), indices), (result,))


@_rule("scatter")
def _scatter(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    many = len(results)
    target, updates = operands[0], operands[many + 1]
    fresh = count()
    batching = list(zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    # Along other dimensions of the indices several updates may meet in one element.
    cut = {i for _, i in batching}
    indices = tuple(
        i if d in cut else None for d, i in enumerate(_indices(len(operands[many]), numbers.index_vector_dim, fresh))
    )
    places: list[int | None] = [None] * len(target)
    for d, i in batching:
        places[d] = indices[i]
    gone = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    windows: list[int | None] = []
    window_sizes = iter([updates[d] for d in numbers.update_window_dims])
    for d, n in enumerate(target):
        if d not in gone:
            if next(window_sizes) == n and d not in numbers.scattered_dims_to_operand_dims:
                places[d] = next(fresh)
            windows.append(places[d])
    update = _interleaved(len(updates), numbers.update_window_dims, windows, indices, numbers.index_vector_dim)
    inputs = (tuple(places),) * many
    return Factors((*inputs, indices, *((update,) * many)), inputs)


def _indices(rank: int, vector: int, fresh: Any) -> Ids:
    return tuple(None if d == vector else next(fresh) for d in range(rank))


def _interleaved(rank: int, windows: Sequence[int], of_windows: Sequence[int | None], indices: Ids, vector: int) -> Ids:
    """The dimensions of a gather's result or a scatter's updates: those of windows, and between them the indices'."""
    inner = iter(of_windows)
    outer = iter([i for d, i in enumerate(indices) if d != vector])
    return tuple(next(inner) if d in windows else next(outer) for d in range(rank))
