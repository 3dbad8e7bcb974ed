"""Numbers every operation of a StableHLO module; the number travels as a location through all stages.

So any later operation can be traced to its source operations.
"""

from __future__ import annotations

import re
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.places import Place, place_of, within_call
from stablexla.dialects.symbols import symbol_of
from stablexla.targets.stablehlo.inlining import operations_of

TAG = "stablexla#"
_TAGS = re.compile(rf"{TAG}(\d+)")
# Structural operations, which compute nothing.
_FRAME = frozenset(["func.func", "func.return", "stablehlo.return", "builtin.module"])


@dataclass(frozen=True)
class SourceOperation:
    """An operation of the source program.

    Attributes:
        number: from 0, in the order of the text; operations of the bodies of reductions and the like have none.
        name: as `stablehlo.add`.
        type: the types of its results, as in the text.
        function: the function around it.
        depth: the number of control-flow regions around it.
        place: the line of the user's source.
        is_used: whether anything reads a result of it, or it does something outside of the program.
        detail: a composite's or a custom call's name, else "".
    """

    number: int
    name: str
    type: str
    function: str
    depth: int
    place: Place
    is_used: bool
    detail: str


def number_operations(module: hlo_ir.Module) -> list[SourceOperation]:
    """Number the operations in place; the new location wraps the old one.

    Operations of a function that is called have their places seen from its first call: JAX's own functions, such as
    `jax.nn.relu`, have no lines of the user's in them.
    """
    calls = _calls(module)
    found: list[SourceOperation] = []
    for view in module.body.operations:
        function = view.operation
        if function.name == "func.func":
            name = symbol_of(function)
            _number_regions(function, name, 0, found, calls.get(name))
    return found


def _calls(module: hlo_ir.Module) -> dict[str, Any]:
    """Return the location of each function's first call, seen from the first calls of the functions around it."""
    first: dict[str, tuple[str, Any]] = {}
    for view in module.body.operations:
        if view.operation.name == "func.func":
            caller = symbol_of(view.operation)
            for call in operations_of(view.operation, "func.call"):
                callee = str(hlo_ir.FlatSymbolRefAttr(call.attributes["callee"]).value)
                if callee != caller:
                    first.setdefault(callee, (caller, call.location))
    seen: dict[str, Any] = {}
    for name in first:
        chain: list[str] = []
        while name in first and name not in seen and name not in chain:
            chain.append(name)
            name = first[name][0]
        for callee in reversed(chain):
            caller, location = first[callee]
            seen[callee] = within_call(location, seen[caller]) if caller in seen else location
    return seen


def numbers_in(text: str) -> tuple[int, ...]:
    """Return the numbers in a location, given its text."""
    return tuple(dict.fromkeys(int(n) for n in _TAGS.findall(text)))


def _number_regions(parent: Any, function: str, depth: int, found: list[SourceOperation], call: Any) -> None:
    for region in parent.regions:
        for block in region.blocks:
            for view in block.operations:
                op = view.operation
                if op.name not in _FRAME:
                    _number(op, function, depth, found, call)
                    if op.name in ("stablehlo.while", "stablehlo.if", "stablehlo.case"):
                        _number_regions(op, function, depth + 1, found, call)


def _number(op: Any, function: str, depth: int, found: list[SourceOperation], call: Any) -> None:
    number = len(found)
    types = ", ".join(str(r.type) for r in op.results)
    used = not len(op.results) or any(True for r in op.results for _ in r.uses)
    place = place_of(op.location if call is None else within_call(op.location, call))
    found.append(SourceOperation(number, op.name, types, function, depth, place, used, _detail(op)))
    location = hlo_ir.Location.name(f"{TAG}{number}", op.location, op.context)
    op.location = location
    # The bodies of reductions and the like are part of their operation.
    if op.name not in ("stablehlo.while", "stablehlo.if", "stablehlo.case"):
        for region in op.regions:
            for block in region.blocks:
                for view in block.operations:
                    view.operation.location = location


def _detail(op: Any) -> str:
    for name in ("name", "call_target_name", "callee"):
        if name in op.attributes and op.name in ("stablehlo.composite", "stablehlo.custom_call", "func.call"):
            return str(op.attributes[name]).strip('"')
    return ""
