"""Inlining on StableHLO modules until one function is left: composites become calls, calls become their bodies.

The target says for which composites it has kernels; the module notes how each composite was compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.composites import TARGET, kernel_of, name_and_version
from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.inlining import inline_block
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import callee_of, functions_of
from stablexla.targets.pipeline.contents import for_any
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.call_loops import loop_over_calls, merge_equal_calls
from stablexla.targets.stablehlo.nesting import check_depth, depth_in

NOTE = "stablexla.composites"
"""Attribute of the module: for each composite's name and version, "kernel" or "decomposition"."""

MOST_INLINED = Gate("calls.most-inlined", 1 << 20, eager=64)
"""Operations of a function after inlining, doubled for each level of repeated calls in it, from which on calls that
it repeats become a loop."""
LARGEST = 4_000_000
"""Limit of a function's operations after inlining."""


@module_pass(
    "stablexla-decompose-composites",
    "turns composite operations into calls of their decompositions, except those that have a kernel; all=true: all",
    side="stablehlo",
    acts_on=for_any(["stablehlo.composite"]),
)
def decompose_composites(module: hlo_ir.Module, *, all: bool = False, target: str = "cpu") -> None:
    """Decompose composites without kernels, and note on the module how each was compiled.

    Args:
        all: decomposes every composite.
        target: whose kernels count, as `register_composite_kernel` names it.
    """
    ways = noted_ways(module)
    for op in operations_of(module, "stablehlo.composite"):
        with module.context:
            op.attributes[TARGET] = hlo_ir.StringAttr.get(target)
        kept = not all and kernel_of(op) is not None
        title = "{} v{}".format(*name_and_version(op))
        way = "kernel" if kept else "decomposition"
        ways[title] = way if ways.get(title, way) == way else "kernel, decomposition"
        if not kept:
            call_decomposition(op)
    note_ways(module, ways)


def noted_ways(module: hlo_ir.Module) -> dict[str, str]:
    """Return the module's notes on composites."""
    attributes = module.operation.attributes
    noted = hlo_ir.DictAttr(attributes[NOTE]) if NOTE in attributes else ()
    return {named.name: str(hlo_ir.StringAttr(named.attr).value) for named in noted}


def note_ways(module: hlo_ir.Module, ways: Mapping[str, str]) -> None:
    """Note how composites were compiled, by name and version."""
    if ways:
        with module.context:
            noted = {name: hlo_ir.StringAttr.get(way) for name, way in ways.items()}
            module.operation.attributes[NOTE] = hlo_ir.DictAttr.get(noted)


def call_decomposition(op: Any) -> None:
    callee = op.attributes["decomposition"]
    with op.context, op.location, hlo_ir.InsertionPoint(op):
        call = hlo_ir.Operation.create(
            "func.call",
            results=[r.type for r in op.results],
            operands=list(op.operands),
            attributes={"callee": callee},
        )
    for old, new in zip(op.results, call.results, strict=True):
        old.replace_all_uses_with(new)
    erase(op)


# Operations other than calls that name functions.
_NAMERS = ("stablehlo.composite", "stablehlo.custom_call")


@module_pass(
    "stablexla-inline-calls",
    "replaces every call by the body of its function and drops the functions that nobody calls",
    side="stablehlo",
)
def inline_calls(module: hlo_ir.Module) -> None:
    """Inline all calls: jaxlib registers MLIR's own inliner without the interfaces for func and StableHLO.

    Asynchronous operations run where they are started.

    Raises:
        UnsupportedError: functions that call each other in a circle, or a call of a function that is not there.
    """
    users = operations_of(module, "stablehlo.async_start", *_NAMERS)
    starts = [op for op in users if op.name == "stablehlo.async_start"]
    for op in starts:
        _run_at_start(op)
    functions = functions_of(module)
    callees_first = bound_calls(module)
    called = {"main"}
    for op in operations_of(module, *_NAMERS) if starts else users:
        if op.name == "stablehlo.composite":
            called.add(callee_of(op))
        elif "called_computations" in op.attributes:
            called |= {hlo_ir.FlatSymbolRefAttr(name).value for name in op.attributes["called_computations"]}
    unused = [n for n, f in functions.items() if n not in called and ("main" in functions or _is_private(f))]
    # Callers come first: what they clone is not inlined yet, so that each operation is cloned once.
    for name in reversed(callees_first):
        calls = [] if name in unused else operations_of(functions[name], "func.call")
        while calls:
            call = calls.pop()
            calls += inline_call(call, functions[callee_of(call)])
    for name in unused:
        erase(functions[name])


def bound_calls(module: hlo_ir.Module) -> list[str]:
    """Make loops of calls that would make too much code, each inlined by itself; return the functions, callees first.

    Each body can then be cloned inlined. Code that repeated calls make in several levels counts twice for each of them.

    Raises:
        UnsupportedError: they call each other in a circle, what is called is not there, or there would be too much.
    """
    functions = functions_of(module)
    found = {name: operations_of(op, "func.call") for name, op in functions.items()}
    for name in {callee_of(call) for calls in found.values() for call in calls}:
        if name not in functions or len(functions[name].regions[0].blocks) != 1:
            raise UnsupportedError(f"@{name} has no body, or one of several blocks", operation="func.call")
    bodies: dict[str, _Inlined] = {}
    for start in functions:
        path, waiting = {start: None}, [map(callee_of, found[start])]
        while path and start not in bodies:
            callee = next((c for c in waiting[-1] if c not in bodies), None)
            if callee is None:
                name, _ = path.popitem()
                waiting.pop()
                bodies[name] = _bounded(name, functions[name], bodies)
            elif callee in path:
                names = list(path)
                circle = " -> ".join((*names[names.index(callee) :], callee))
                raise UnsupportedError(f"functions call each other in a circle: {circle}", operation="func.call")
            else:
                path[callee] = None
                waiting.append(map(callee_of, found[callee]))
    return list(bodies)


@dataclass(frozen=True)
class _Inlined:
    """A function's body after inlining.

    Attributes:
        calls: those that it has itself.
        size: its operations.
        depth: of the regions in it.
        levels: functions one below the other that have a function called several times.
        is_pure: it may be run once in the place of twice.
    """

    calls: list[Any]
    size: int
    depth: int
    levels: int
    is_pure: bool


def _bounded(name: str, function: Any, bodies: Mapping[str, _Inlined]) -> _Inlined:
    """Make loops of a function's calls, if they make too much code.

    Raises:
        UnsupportedError: it is too much in any case.
    """
    body = _inlined(function, bodies)
    if body.size << body.levels > MOST_INLINED():
        merge_equal_calls([call for call in body.calls if bodies[callee_of(call)].is_pure])
        body = _inlined(function, bodies)
    if body.size << body.levels > MOST_INLINED():
        sizes = {name: each.size for name, each in bodies.items()}
        if loop_over_calls(body.calls, sizes):
            body = _inlined(function, bodies)
    check_depth(body.depth)
    if body.size > LARGEST:
        many = f"more than {LARGEST:,} operations in @{name}"
        hint = "call each function from one block only, in a loop over what differs between the calls"
        raise UnsupportedError(f"{many}, with what it calls in its place", operation="func.call", hint=hint)
    return body


def _inlined(function: Any, bodies: Mapping[str, _Inlined]) -> _Inlined:
    size, calls, effects = 0, [], False

    def note(op: Any) -> hlo_ir.WalkResult:
        nonlocal size, effects
        size += 1
        if op.name == "func.call":
            calls.append(op.operation)
        effects |= op.name in EFFECTS
        return hlo_ir.WalkResult.ADVANCE

    function.walk(note)
    inner = [bodies[callee_of(call)] for call in calls]
    repeated = len({(call.block, callee_of(call)) for call in calls}) < len(calls)
    return _Inlined(
        calls,
        size + sum(each.size for each in inner),
        max((depth_in(call, function) + each.depth for call, each in zip(calls, inner, strict=True)), default=0),
        max((each.levels for each in inner), default=0) + repeated,
        not effects and all(each.is_pure for each in inner),
    )


EFFECTS = frozenset(f"stablehlo.{name}" for name in ("custom_call", "infeed", "outfeed", "send", "recv", "rng"))
"""Operations that are not the same, run once in the place of twice."""


def inline_call(call: Any, function: Any, relocated: Callable[[Any], Any] | None = None) -> list[Any]:
    """Inline a function at a call; return the calls in it.

    Args:
        relocated: maps the operations' locations, if they change.
    """
    # A clone of the function has its operations' inner uses remapped; they need only be moved.
    copy = function.clone().operation
    if relocated is not None:
        copy.walk(lambda op: _relocate(op, relocated))
    calls = operations_of(copy, "func.call")
    values = inline_block(copy.regions[0].blocks[0], list(call.operands), call)
    for result, value in zip(call.results, values, strict=True):
        result.replace_all_uses_with(value)
    erase(call)
    erase(copy)
    return calls


def _relocate(op: Any, relocated: Callable[[Any], Any]) -> hlo_ir.WalkResult:
    op.operation.location = relocated(op.operation.location)
    return hlo_ir.WalkResult.ADVANCE


def _run_at_start(start: Any) -> None:
    """Inline the operations of an async_start; its async_done is replaced by their results.

    Raises:
        UnsupportedError: the future goes elsewhere, as out of a function.
    """
    values = inline_block(start.regions[0].blocks[0], list(start.operands), start)
    for use in list(start.results[0].uses):
        done = use.owner.operation
        if done.name != "stablehlo.async_done":
            raise UnsupportedError(f"a future that {done.name} uses", operation=start.name)
        for result, value in zip(list(done.results), values, strict=True):
            result.replace_all_uses_with(value)
        erase(done)
    erase(start)


def clone(op: Any, mapping: dict[Any, Any]) -> None:
    """Clone an operation at the insertion point; the mapping maps what it reads, and receives its results."""
    copy = op.clone().operation
    for inner in all_operations(copy):
        for i, operand in enumerate(inner.operands):
            if operand in mapping:
                inner.operands[i] = mapping[operand]
    mapping.update(zip(op.results, copy.results, strict=True))


def all_operations(root: Any) -> list[Any]:
    """Return an operation and all nested ones, inner ones first (post-order)."""
    found: list[Any] = []

    def note(op: Any) -> hlo_ir.WalkResult:
        found.append(op.operation)
        return hlo_ir.WalkResult.ADVANCE

    root.operation.walk(note, hlo_ir.WalkOrder.POST_ORDER)
    return found


def operations_of(root: Any, *names: str) -> list[Any]:
    """Return all operations of some names nested in a module or an operation."""
    found: list[Any] = []

    def note(op: Any) -> hlo_ir.WalkResult:
        if op.name in names:
            found.append(op.operation)
        return hlo_ir.WalkResult.ADVANCE

    root.operation.walk(note)
    return found


def _is_private(function: Any) -> bool:
    visibility = function.attributes
    return "sym_visibility" in visibility and hlo_ir.StringAttr(visibility["sym_visibility"]).value == "private"
