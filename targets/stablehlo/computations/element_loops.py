"""Builders of StableHLO loops over the elements of arrays.

Arrays are flattened to lines of elements (rank 1), and a place is an offset into such a line. Operations are created
at the insertion point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.lowering.bounded.values import broadcast, compare, constant, emit, tensor
from stablexla.lowering.kernels.scan.lines import Axis, merged

Values = list[Any]
# Loop body: (induction variable, carried values) -> carried values.
Turn = Callable[[Any, Values], Sequence[Any]]

# --- arithmetic on places ---------------------------------------------------------------------------------------------


def index(value: int) -> Any:
    """Create a constant of the type of places."""
    return constant(hlo_ir.RankedTensorType.get([], hlo_ir.IntegerType.get_signless(64)), str(value))


def arithmetic(name: str, lhs: Any, rhs: Any) -> Any:
    """Create a binary operation of StableHLO; a number stands for a constant of the type of places."""
    lhs, rhs = (index(v) if isinstance(v, int) else v for v in (lhs, rhs))
    return emit(f"stablehlo.{name}", [lhs, rhs], [lhs.type])


def add(lhs: Any, rhs: Any) -> Any:
    return arithmetic("add", lhs, rhs)


def below(lhs: Any, rhs: Any) -> Any:
    """Compare two places: lhs < rhs."""
    lhs, rhs = (index(v) if isinstance(v, int) else v for v in (lhs, rhs))
    return compare(lhs, rhs)


def select(condition: Any, this: Any, that: Any) -> Any:
    """Select `this` where a scalar condition holds, else `that`."""
    this, that = (index(v) if isinstance(v, int) else v for v in (this, that))
    return emit("stablehlo.select", [condition, this, that], [this.type])


def place(count: Any, axes: Iterable[tuple[int, int]]) -> Any:
    """Compute the place (offset) of an iteration.

    Args:
        count: the number of the iteration, in row-major order over the axes.
        axes: extent and stride of each.
    """
    walked = merged(Axis(extent, (step,)) for extent, step in axes)
    found: Any = None
    for i, axis in enumerate(walked):
        (step,), inner = axis.steps, prod(later.extent for later in walked[i + 1 :])
        if not step:
            continue
        digit = count if inner == 1 else arithmetic("divide", count, inner)
        digit = digit if not i else arithmetic("remainder", digit, axis.extent)
        term = digit if step == 1 else arithmetic("multiply", digit, step)
        found = term if found is None else add(found, term)
    return index(0) if found is None else found


# --- lines of elements ------------------------------------------------------------------------------------------------


def reshape(value: Any, extents: Sequence[int]) -> Any:
    """Reshape a value, elements in row-major order."""
    type_ = tensor(value.type, extents)
    return value if value.type == type_ else emit("stablehlo.reshape", [value], [type_])


def line(value: Any) -> Any:
    """Flatten an array to rank 1."""
    return reshape(value, [prod(value.type.shape)])


def blank(type_: Any) -> Any:
    """Create an uninitialized line for the elements of a type."""
    one = index(1)  # not every type has a zero
    return broadcast(converted(one, type_.element_type), [prod(type_.shape)])


def element(from_line: Any, at: Any) -> Any:
    """Load the scalar at a place."""
    sizes = {"slice_sizes": hlo_ir.DenseI64ArrayAttr.get([1])}
    one = tensor(from_line.type, [1])
    if from_line.type != one:
        from_line = emit("stablehlo.dynamic_slice", [from_line, at], [one], sizes)
    return reshape(from_line, [])


def replaced(in_line: Any, at: Any, scalar: Any) -> Any:
    """Return the line with another scalar stored at a place."""
    one = reshape(scalar, [1])
    if in_line.type == one.type:
        return one
    return emit("stablehlo.dynamic_update_slice", [in_line, one, at], [in_line.type])


def converted(value: Any, element_type: Any) -> Any:
    """Convert an array or scalar to another element type."""
    type_ = hlo_ir.RankedTensorType.get(value.type.shape, element_type)
    return value if value.type == type_ else emit("stablehlo.convert", [value], [type_])


# --- control flow -----------------------------------------------------------------------------------------------------


def loop(turns: int, carried: Sequence[Any], turn: Turn) -> Values:
    """Create a loop of trip count `turns` with the body `turn`; straight-line code for trip counts 0 and 1."""
    if turns < 2:
        return list(turn(index(0), list(carried))) if turns else list(carried)
    state = [index(0), *carried]
    types = [value.type for value in state]
    made = hlo_ir.Operation.create("stablehlo.while", results=types, operands=state, regions=2)
    with _block(made.regions[0], types) as arguments:
        _return([below(arguments[0], turns)])
    with _block(made.regions[1], types) as (count, *values):
        after = list(turn(count, values))
        _return([add(count, 1), *after])
    return list(made.results)[1:]


def where(condition: Any, this: Callable[[], Sequence[Any]], that: Sequence[Any]) -> Values:
    """Create a conditional: the results of `this`, run only where the condition holds, else the values `that`."""
    types = [value.type for value in that]
    made = hlo_ir.Operation.create("stablehlo.if", results=types, operands=[condition], regions=2)
    with _block(made.regions[0], []):
        _return(this())
    with _block(made.regions[1], []):
        _return(that)
    return list(made.results)


def apply(region: Any, values: Sequence[Any]) -> Values:
    """Inline the operations of a computation here with its arguments bound; return its results.

    A value of another element type than its argument's is converted.
    """
    (block,) = region.blocks
    point = hlo_ir.InsertionPoint.current
    for argument, value in zip(list(block.arguments), values, strict=True):
        argument.replace_all_uses_with(converted(value, argument.type.element_type))
    *operations, terminator = (view.operation for view in block.operations)
    for op in operations:
        if point.ref_operation is None:
            point.block.append(op)
        else:
            op.move_before(point.ref_operation)
    return list(terminator.operands)


@contextmanager
def _block(region: Any, types: Sequence[Any]) -> Iterator[Values]:
    """Create a region's only block, insert at its end, and yield its arguments."""
    block = region.blocks.append(*types, arg_locs=[hlo_ir.Location.current] * len(types))
    with hlo_ir.InsertionPoint(block):
        yield list(block.arguments)


def _return(values: Sequence[Any]) -> None:
    hlo_ir.Operation.create("stablehlo.return", operands=list(values))
