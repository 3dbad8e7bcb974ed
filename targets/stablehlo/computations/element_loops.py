"""Builders of StableHLO loops over the elements of arrays.

Arrays are flattened to lines of elements (rank 1), and a place is an offset into such a line. Operations are created
at the insertion point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects import hlo
from stablexla.lowering.kernels.scan.lines import Axis, merged

Values = list[Any]
# Loop body: (induction variable, carried values) -> carried values.
Turn = Callable[[Any, Values], Sequence[Any]]

# --- arithmetic on places ---------------------------------------------------------------------------------------------


def index(value: int) -> Any:
    """Create a constant of the type of places."""
    return hlo.constant(hlo.integer_tensor(64), str(value))


def arithmetic(name: str, lhs: Any, rhs: Any) -> Any:
    """Create a binary operation of StableHLO; a number stands for a constant of the type of places."""
    lhs, rhs = (index(v) if isinstance(v, int) else v for v in (lhs, rhs))
    return hlo.elementwise(name, lhs, rhs)


def add(lhs: Any, rhs: Any) -> Any:
    return arithmetic("add", lhs, rhs)


def below(lhs: Any, rhs: Any) -> Any:
    """Compare two places: lhs < rhs."""
    lhs, rhs = (index(v) if isinstance(v, int) else v for v in (lhs, rhs))
    return hlo.compare(lhs, rhs)


def select(condition: Any, this: Any, that: Any) -> Any:
    """Select `this` where a scalar condition holds, else `that`."""
    this, that = (index(v) if isinstance(v, int) else v for v in (this, that))
    return hlo.select(condition, this, that)


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


def line(value: Any) -> Any:
    """Flatten an array to rank 1."""
    return hlo.reshape(value, [prod(value.type.shape)])


def blank(type_: Any) -> Any:
    """Create an uninitialized line for the elements of a type."""
    one = index(1)  # not every type has a zero
    return hlo.broadcast(hlo.convert(one, type_.element_type), [prod(type_.shape)])


def element(from_line: Any, at: Any) -> Any:
    """Load the scalar at a place."""
    if list(from_line.type.shape) != [1]:
        from_line = hlo.dynamic_slice(from_line, [at], [1])
    return hlo.reshape(from_line, [])


def replaced(in_line: Any, at: Any, scalar: Any) -> Any:
    """Return the line with another scalar stored at a place."""
    one = hlo.reshape(scalar, [1])
    return one if in_line.type == one.type else hlo.dynamic_update(in_line, one, [at])


# --- control flow -----------------------------------------------------------------------------------------------------


def loop(turns: int, carried: Sequence[Any], turn: Turn) -> Values:
    """Create a loop of trip count `turns` with the body `turn`; straight-line code for trip counts 0 and 1."""
    if turns < 2:
        return list(turn(index(0), list(carried))) if turns else list(carried)
    state = [index(0), *carried]
    types = [value.type for value in state]
    made = hlo.operation("stablehlo.while", state, types, regions=2)
    with hlo.block(made.regions[0], types) as arguments:
        hlo.return_([below(arguments[0], turns)])
    with hlo.block(made.regions[1], types) as (count, *values):
        after = list(turn(count, values))
        hlo.return_([add(count, 1), *after])
    return list(made.results)[1:]


def where(condition: Any, this: Callable[[], Sequence[Any]], that: Sequence[Any]) -> Values:
    """Create a conditional: the results of `this`, run only where the condition holds, else the values `that`."""
    types = [value.type for value in that]
    made = hlo.operation("stablehlo.if", [condition], types, regions=2)
    with hlo.block(made.regions[0]):
        hlo.return_(this())
    with hlo.block(made.regions[1]):
        hlo.return_(that)
    return list(made.results)


def apply(region: Any, values: Sequence[Any]) -> Values:
    """Inline the operations of a computation here with its arguments bound; return its results.

    A value of another element type than its argument's is converted.
    """
    (block,) = region.blocks
    point = hlo_ir.InsertionPoint.current
    for argument, value in zip(list(block.arguments), values, strict=True):
        argument.replace_all_uses_with(hlo.convert(value, argument.type.element_type))
    *operations, terminator = (view.operation for view in block.operations)
    for op in operations:
        if point.ref_operation is None:
            point.block.append(op)
        else:
            op.move_before(point.ref_operation)
    return list(terminator.operands)
