"""Checks that let a run end before its time: between kernels, and at the back edges of loops.

A check reads a word of the runtime, which is 0 as a rule: behind kernels by a call; see `stopping.h`. Kernels have
none, as the pool looks between their work items; except for those with loops that the program does not bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import mlir.ir as ir
from mlir.dialects import arith, scf

from stablexla.dialects.choices import Gate
from stablexla.dialects.source_files import line_of
from stablexla.dialects.symbols import callee_of, symbol_of
from stablexla.lowering.support.operations import constant_of, defining, operations_named, terminator_of, walk
from stablexla.targets.codegen.calls import PARALLEL_GRAIN
from stablexla.targets.codegen.kernel import UNBOUNDED
from stablexla.targets.codegen.runtime_calls import (
    GUARD,
    PLACE,
    PLACES,
    RUN_CALLS,
    SAYS,
    call_at_place,
    call_runtime,
    number_of,
)
from stablexla.targets.llvm.parallel_calls import TASK
from stablexla.targets.pipeline.passes import module_pass

NEWS_ADDRESS, LOOK_AROUND, CHECK = "stablexla_news_address", "stablexla_look_around", "stablexla_check"
_DECLARED = f"""
llvm.func @{NEWS_ADDRESS}() -> !llvm.ptr attributes {{passthrough = ["nounwind", "willreturn", ["memory", "0"]]}}
llvm.func @{LOOK_AROUND}(i64) attributes {{passthrough = ["cold"]}}
llvm.func @{CHECK}(i64)
"""
_LOOPS = ("scf.while", "scf.for")
_LESS = (arith.CmpIPredicate.slt, arith.CmpIPredicate.sle, arith.CmpIPredicate.ult, arith.CmpIPredicate.ule)
SHORT = Gate("check-stops.short", 1_000_000, eager=1)
"""Operations that a loop may run without a check: less than a millisecond."""


@module_pass("stablexla-check-stops", "lets a run be stopped between the kernels of main, and in loops")
def check_stops(module: ir.Module) -> None:
    """Insert the checks. Each has a number, and the location of what it stands behind: `take_places` reads them.

    A main without loops, whose kernels are all too small for a second thread, gets none: it ends at once. The
    runtime has those of calls in a list.
    """
    main = next((view.operation for view in module.body.operations if symbol_of(view) == "main"), None)
    if main is None or main.name != "func.func":
        return
    loops = [op for name in _LOOPS for op in operations_named(main, name)]
    calls = _calls(main)
    unbounded = [view.operation for view in module.body.operations if UNBOUNDED in view.operation.attributes]
    if not loops and not unbounded and not any(PARALLEL_GRAIN in call.attributes for call, _ in calls):
        return
    with module.context, ir.Location.unknown():
        with ir.InsertionPoint.at_block_begin(module.body):
            for view in ir.Module.parse(_DECLARED).body.operations:
                view.operation.clone()
        for call, following in calls:
            with call.location, ir.InsertionPoint(following):  # a call more beside a kernel's: main stays one block
                call_at_place(CHECK, number_of(callee_of(call)))
        news = _news(main)
        for number, loop in enumerate(loops):
            last = terminator_of(loop.regions[-1].blocks[0])
            has_calls = any(view.operation.name == "func.call" for view in last.block.operations)
            if not has_calls and not _is_short(loop):
                _check_before(last, news, number, loop.location)
        for function in unbounded:
            del function.attributes[UNBOUNDED]
            news = _news(function)
            for loop in operations_named(function, "scf.while"):
                last = terminator_of(loop.regions[1].blocks[0])
                _check_before(last, news, number_of(symbol_of(function)), loop.location)


def _is_short(loop: ir.Operation) -> bool:
    """Return whether a loop counts to a constant, and ends before anyone could stop it."""
    operations = len(walk(loop))
    if loop.name == "scf.for":
        low, high, step = (constant_of(value) for value in list(loop.operands)[:3])
        if low is None or high is None or not step:
            return False
        return (high - low) // step * operations <= SHORT()
    before, after = (region.blocks[0] for region in loop.regions)
    condition = terminator_of(before)
    compare = defining(condition.operands[0])
    if compare is None or compare.name != "arith.cmpi" or compare.operands[0] not in list(before.arguments):
        return False
    number = list(before.arguments).index(compare.operands[0])
    low, high = constant_of(loop.operands[number]), constant_of(compare.operands[1])
    count = defining(terminator_of(after).operands[number])
    is_upwards = ir.IntegerAttr(compare.attributes["predicate"]).value in _LESS
    if low is None or high is None or count is None or count.name != "arith.addi" or not is_upwards:
        return False
    step = constant_of(count.operands[1])
    carried = list(condition.operands)[1:]
    counts = count.operands[0] == after.arguments[number] and carried[number] == before.arguments[number]
    return counts and step is not None and step > 0 and (high - low) // step * operations <= SHORT()


def is_check(call: ir.Operation) -> bool:
    """Return whether a call of LLVM's dialect is a part of the checks."""
    return callee_of(call) in (NEWS_ADDRESS, LOOK_AROUND, CHECK) or callee_of(call).startswith(GUARD)


def take_places(module: ir.Module, kept: Mapping[str, str]) -> dict[int, str]:
    """Return what an error says of each check, by their numbers; their attributes are taken off, for LLVM.

    Args:
        module: in LLVM's dialect.
        kept: names of kernels whose code is kept, by those of their functions.
    """
    functions = {symbol_of(view) for view in module.body.operations if view.operation.name == "llvm.func"}
    if functions.isdisjoint((LOOK_AROUND, f"{GUARD}kernel", RUN_CALLS)):
        return {}
    kernels = {number_of(name.removesuffix(TASK)): _kernel_of(name, kept) for name in functions}
    found: dict[int, tuple[str, ir.Location]] = {}  # of each number the last
    for call in operations_named(module.operation, "llvm.call"):
        if PLACE in call.attributes:
            number = ir.IntegerAttr(call.attributes[PLACE]).value
            del call.attributes[PLACE]
            what = kernels.get(number, "a loop")
            if SAYS in call.attributes:
                what = ir.StringAttr(call.attributes[SAYS]).value
                del call.attributes[SAYS]
            found[number] = what, call.location
        elif PLACES in call.attributes:
            found |= _places_of(ir.ArrayAttr(call.attributes[PLACES]), kept)
            del call.attributes[PLACES]
    return {number: _place(what, location) for number, (what, location) in found.items()}


def places_of_list(places: ir.ArrayAttr, kept: Mapping[str, str]) -> dict[int, str]:
    """Return what an error says of each kernel of a list, as `take_places`.

    Args:
        places: the attribute `PLACES`.
    """
    return {number: _place(what, location) for number, (what, location) in _places_of(places, kept).items()}


def _places_of(places: ir.ArrayAttr, kept: Mapping[str, str]) -> dict[int, tuple[str, ir.Location]]:
    names = ((ir.StringAttr(name).value, at) for name, at in map(ir.ArrayAttr, places))
    return {number_of(n): (_kernel_of(n, kept), ir.Location.from_attr(at, places.context)) for n, at in names}


def _kernel_of(function: str, kept: Mapping[str, str]) -> str:
    """Return the name of the kernel that a function is a phase of."""
    kernel = function.partition("_impl")[0]
    return kept.get(kernel, kernel)


def _place(what: str, location: ir.Location) -> str:
    """Return what an error says: the kernel, and the user's line of what it computes last."""
    line, _, _ = line_of(str(last_part(location)), functions=False).partition(":  ")
    return f"{what} at {line.replace('-:', '<text>:', 1) if line.startswith('-:') else line}" if line else what


def last_part(location: ir.Location) -> ir.Location:
    """Return the last part of a fused location that is known."""
    while location.is_a_fused():
        known = [part for part in location.locations if str(part) != "loc(unknown)"]
        if not known:
            break
        location = known[-1]
    return location


def _calls(main: ir.Operation) -> list[tuple[ir.Operation, ir.Operation]]:
    """Return the calls of kernels, each with the operation behind it."""
    holders = [op for op in walk(main) if len(op.regions)]
    blocks = [block for op in holders for region in op.regions for block in region]
    pairs = (pair for block in blocks for pair in pairwise(view.operation for view in block.operations))
    return [pair for pair in pairs if pair[0].name == "func.call"]


def _news(function: ir.Operation) -> ir.Value:
    """Ask for the word's address, once in a function."""
    with ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]):
        return call_runtime(NEWS_ADDRESS, [], [ir.Type.parse("!llvm.ptr")]).result


def _check_before(op: ir.Operation, news: ir.Value, number: int, location: ir.Location) -> None:
    i32, i64 = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(64)
    with location, ir.InsertionPoint(op):
        # volatile: other threads write it
        attributes = {"volatile_": ir.UnitAttr.get(), "alignment": ir.IntegerAttr.get(i64, 4)}
        word = ir.Operation.create("llvm.load", results=[i32], operands=[news], attributes=attributes).result
        none = arith.constant(i32, 0)
        branch = scf.IfOp(arith.cmpi(arith.CmpIPredicate.ne, word, none))
        with ir.InsertionPoint(branch.then_block):
            call_at_place(LOOK_AROUND, number)
            scf.YieldOp([])
