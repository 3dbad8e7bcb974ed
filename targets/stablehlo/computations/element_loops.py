"""Loops over the elements of arrays, written in StableHLO.

Arrays are flattened to lines of elements, and a place is an offset into such a line. What is written stands where
insertion stands.
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
# One iteration: (its number, carried values) -> carried values.
Turn = Callable[[Any, Values], Sequence[Any]]

# --- arithmetic on places ---------------------------------------------------------------------------------------------


def index(value: int) -> Any:
    """A constant of the type of places."""
    return constant(hlo_ir.RankedTensorType.get([], hlo_ir.IntegerType.get_signless(64)), str(value))


def arithmetic(name: str, lhs: Any, rhs: Any) -> Any:
    """A binary operation of StableHLO; a number stands for a constant of the type of places."""
    lhs, rhs = (index(v) if isinstance(v, int) else v for v in (lhs, rhs))
    return emit(f"stablehlo.{name}", [lhs, rhs], [lhs.type])


def add(lhs: Any, rhs: Any) -> Any:
    return arithmetic("add", lhs, rhs)


def below(lhs: Any, rhs: Any) -> Any:
    """Whether a place comes before another one."""
    lhs, rhs = (index(v) if isinstance(v, int) else v for v in (lhs, rhs))
    return compare(lhs, rhs)


def select(condition: Any, this: Any, that: Any) -> Any:
    """`this` where a scalar condition holds, else `that`."""
    this, that = (index(v) if isinstance(v, int) else v for v in (this, that))
    return emit("stablehlo.select", [condition, this, that], [this.type])


def place(count: Any, axes: Iterable[tuple[int, int]]) -> Any:
    """The place that an iteration reaches.

    Args:
        count: the number of the iteration, in row-major order over the axes.
        axes: extent of each, and how far one step along it leads.
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
    """The same elements in row-major order under other extents."""
    type_ = tensor(value.type, extents)
    return value if value.type == type_ else emit("stablehlo.reshape", [value], [type_])


def line(value: Any) -> Any:
    """An array's elements one after the other."""
    return reshape(value, [prod(value.type.shape)])


def blank(type_: Any) -> Any:
    """A line for the elements of a type, none of which means anything yet."""
    one = index(1)  # not every type has a zero
    return broadcast(converted(one, type_.element_type), [prod(type_.shape)])


def element(from_line: Any, at: Any) -> Any:
    """The scalar at a place."""
    sizes = {"slice_sizes": hlo_ir.DenseI64ArrayAttr.get([1])}
    one = tensor(from_line.type, [1])
    if from_line.type != one:
        from_line = emit("stablehlo.dynamic_slice", [from_line, at], [one], sizes)
    return reshape(from_line, [])


def replaced(in_line: Any, at: Any, scalar: Any) -> Any:
    """The line with another scalar at a place."""
    one = reshape(scalar, [1])
    if in_line.type == one.type:
        return one
    return emit("stablehlo.dynamic_update_slice", [in_line, one, at], [in_line.type])


def converted(value: Any, element_type: Any) -> Any:
    """An array or scalar with elements of another type."""
    type_ = hlo_ir.RankedTensorType.get(value.type.shape, element_type)
    return value if value.type == type_ else emit("stablehlo.convert", [value], [type_])


# --- control flow -----------------------------------------------------------------------------------------------------


def loop(turns: int, carried: Sequence[Any], turn: Turn) -> Values:
    """So many iterations of `turn`, which is written down once, or never if there are none."""
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
    """The values that `this` writes where the condition holds, which is not run elsewhere; else `that`."""
    types = [value.type for value in that]
    made = hlo_ir.Operation.create("stablehlo.if", results=types, operands=[condition], regions=2)
    with _block(made.regions[0], []):
        _return(this())
    with _block(made.regions[1], []):
        _return(that)
    return list(made.results)


def apply(region: Any, values: Sequence[Any]) -> Values:
    """Moves the operations of a computation here, its arguments bound; returns what it returns.

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
    """The arguments of a region's only block, at whose end insertion stands."""
    block = region.blocks.append(*types, arg_locs=[hlo_ir.Location.current] * len(types))
    with hlo_ir.InsertionPoint(block):
        yield list(block.arguments)


def _return(values: Sequence[Any]) -> None:
    hlo_ir.Operation.create("stablehlo.return", operands=list(values))
