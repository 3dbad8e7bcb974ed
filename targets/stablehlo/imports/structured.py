"""Conversion to StableHLO of scf loops and conditionals, which come from lifted control-flow graphs."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects import hlo
from stablexla.dialects.errors import UnsupportedError
from stablexla.lowering.support.context import place_of
from stablexla.targets.stablehlo.imports.shapes.dialects import RULES, array_of


def _if(op: Any, operands: list[Any]) -> list[Any]:
    regions = [op.regions[0], op.regions[1]]
    made = hlo.operation("stablehlo.if", operands, _results(op), regions=2)
    for old, new in zip(regions, made.regions, strict=True):
        _move(old, new)
    return list(made.results)


def _index_switch(op: Any, operands: list[Any]) -> list[Any]:
    """Convert to stablehlo.case; the default region, first in scf, becomes the last."""
    (index,) = operands
    cases = list(ir.DenseI64ArrayAttr(op.attributes["cases"]))
    i32 = hlo.integer_tensor(32)
    which = hlo.constant(i32, str(len(cases)))
    for place, case in enumerate(cases):
        here = hlo.compare(index, hlo.constant(index.type, str(case)), "EQ")
        which = hlo.select(here, hlo.constant(i32, str(place)), which)
    made = hlo.operation("stablehlo.case", [which], _results(op), regions=len(cases) + 1)
    default, *others = op.regions
    for old, new in zip([*others, default], made.regions, strict=True):
        _move(old, new)
    return list(made.results)


def _while(op: Any, operands: list[Any]) -> list[Any]:
    """Convert a do-while loop: the condition is carried as the last value of the state.

    Raises:
        UnsupportedError: its second region does something.
    """
    before, after = (region.blocks[0] for region in op.regions)
    (end,) = list(after.operations)[-1:]
    if len(after.operations) > 1 or list(end.operands) != list(after.arguments):
        raise UnsupportedError(f"a loop with work after its condition{place_of(op.location)}", operation=op.name)
    flag = hlo.integer_tensor(1)
    types = [*_results(op), flag]
    state = [*operands, hlo.constant(flag, "true")]
    made = hlo.operation("stablehlo.while", state, types, regions=2)
    with hlo.block(made.regions[0], types) as (*_, goes_on):
        hlo.return_([goes_on])
    before.append_to(made.regions[1])
    for argument in before.arguments:
        argument.set_type(array_of(argument.type))
    before.add_argument(flag, ir.Location.current)
    return list(made.results)[:-1]


def _condition(op: Any, operands: list[Any]) -> list[Any]:
    goes_on, *values = operands
    hlo.return_([*values, goes_on])
    return []


def _yield(op: Any, operands: list[Any]) -> list[Any]:
    """Convert the terminator of a moved region; that of a loop's second region is dropped with it."""
    if op.parent.name != "scf.while":
        hlo.return_(operands)
    return []


def _poison(op: Any, operands: list[Any]) -> list[Any]:
    """Replace an undefined (poison) value, which is never read, by an arbitrary one."""
    type_ = array_of(op.results[0].type)
    return [hlo.broadcast(hlo.number(type_, "0"), type_.shape)]


def _results(op: Any) -> list[Any]:
    return [array_of(result.type) for result in op.results]


def _move(old: Any, new: Any) -> None:
    """Move the block of one region to another; a region without one gets an empty block."""
    blocks = list(old.blocks)
    if blocks:
        blocks[0].append_to(new)
        return
    with hlo.block(new):
        hlo.return_([])


RULES.update(
    {
        "scf.condition": _condition,
        "scf.if": _if,
        "scf.index_switch": _index_switch,
        "scf.while": _while,
        "scf.yield": _yield,
        "ub.poison": _poison,
    }
)
