"""Constant subgraphs: values that are known before a computation runs, and the computation of one such value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.builder.computation import CALLED
from stablexla.dialects.erasing import erase
from stablexla.dialects.symbols import functions_of

# Operations whose results do not depend on their operands alone.
STATEFUL = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "cross-replica-sum"),
        *(
            "collective_reduce",
            "custom_call",
            "infeed",
            "outfeed",
            "partition_id",
            "recv",
            "reduce_scatter",
            "replica_id",
            "rng",
            "send",
        ),
    )
)
_CALLEES = ("callee", "decomposition", CALLED)


def is_constant(values: Iterable[ir.Value], module: ir.Module, main: ir.Block) -> bool:
    """Return whether values depend on no block parameter and on no stateful operation."""
    known = functions_of(module)
    waiting, seen = list(values), set()
    while waiting:
        owner = waiting.pop().owner
        if isinstance(owner, ir.Block):
            if owner == main:
                return False
        elif owner not in seen:
            seen.add(owner)
            inner = _inside(owner.operation, known)
            if any(op.name in STATEFUL for op in inner):
                return False
            waiting += [operand for op in inner for operand in op.operands]
    return True


def _inside(op: Any, known: dict[str, ir.Operation]) -> list[Any]:
    """Return an operation with those in its regions and in its callees; of callees, no parameters."""
    found: list[Any] = []

    def note(each: Any) -> ir.WalkResult:
        found.append(each.operation)
        return ir.WalkResult.ADVANCE

    op.walk(note)
    for each in list(found):
        for key in _CALLEES:
            if key in each.attributes:
                for name in _names(each.attributes[key]):
                    found += [inner for inner in _inside(known[name], known) if inner.name in STATEFUL]
    return found


def _names(attribute: ir.Attribute) -> list[str]:
    each = list(attribute) if isinstance(attribute, ir.ArrayAttr) else [attribute]
    return [str(ir.FlatSymbolRefAttr(name).value) for name in each]


def drop_unused(block: ir.Block) -> None:
    """Erase the operations of a block without users, also ones with effects, and then its parameters."""
    *operations, _ = list(block.operations)
    for op in reversed(operations):
        if not any(_is_read(result) for result in op.operation.results):
            erase(op)
    for place in reversed(range(len(block.arguments))):
        block.erase_argument(place)


def _is_read(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is not None
