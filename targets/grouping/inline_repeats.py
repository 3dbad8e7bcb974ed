"""Inlining of a program's equal parts, after each was lowered and grouped once: `main` calls their kernels.

Buffers are then assigned to the whole program, so that a program with equal parts needs no more memory than another.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.operations import clone_with, main_of, terminator_of, walk
from stablexla.lowering.support.repeats import PART, PLACE
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-inline-repeats", "puts the operations of a program's equal parts in the places of their calls")
def inline_repeats(module: ir.Module) -> None:
    """Replace the calls of parts by copies of their operations, each with its own location, and erase the parts."""
    parts = {view.name.value: view for view in module.body.operations if PART in view.operation.attributes}
    waiting = walk(main_of(module)) if parts else []
    while waiting:
        op = waiting.pop()
        if op.name == "func.call" and (name := ir.FlatSymbolRefAttr(op.attributes["callee"]).value) in parts:
            waiting += _inline(op, parts[name].entry_block)  # a part's loops may have parts themselves
    for part in parts.values():
        erase(part.operation)


def _inline(call: ir.Operation, block: ir.Block) -> list[ir.Operation]:
    """Replace a call by copies of a part's operations; return them with those nested in them."""
    places = _Places(call.location)
    mapping = dict(zip(block.arguments, call.operands, strict=True))
    made: list[ir.Operation] = []
    with ir.InsertionPoint(call):
        for view in list(block.operations)[:-1]:
            made += walk(clone_with(view.operation, mapping))
    for op in made:
        op.location = places.of(op.location)
    for old, new in zip(call.results, terminator_of(block).operands, strict=True):
        old.replace_all_uses_with(mapping[new])
    erase(call)
    return made


class _Places:
    """The locations of one call's operations, in place of those of a part's."""

    def __init__(self, call: ir.Location) -> None:
        places = call.locations if call.is_a_fused() else [call]
        self._by_name = {place.name_str: place.child_loc for place in places if place.is_a_name()}
        self._found: dict[ir.Attribute, ir.Location] = {}

    def of(self, location: ir.Location) -> ir.Location:
        """Return a location with the call's own in place of the part's."""
        key = location.attr
        if key not in self._found:
            self._found[key] = self._replaced(location)
        return self._found[key]

    def _replaced(self, location: ir.Location) -> ir.Location:
        if location.is_a_fused():
            return ir.Location.fused([self.of(inner) for inner in location.locations])
        if location.is_a_name() and location.name_str.startswith(PLACE):
            return self._by_name.get(location.name_str, location.child_loc)
        return location
