"""Outlining: each group of operations becomes a private function on tensors; equal functions are merged.

After it `main` holds calls of kernels, control flow and arithmetic on scalars.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import mlir.ir as ir
from mlir.dialects import func

from stablexla.dialects.erasing import erase
from stablexla.dialects.symbols import functions_of
from stablexla.lowering.support.configs import config_attribute
from stablexla.lowering.support.kernels import COMBINER, KIND, combiner_reference
from stablexla.lowering.support.operations import (
    captured,
    captured_by_regions,
    clone_with,
    defining,
    is_tensor,
    operations_named,
    program_of,
    within,
)
from stablexla.targets.grouping.drop_unused import drop_unused
from stablexla.targets.grouping.effects import previous_effects
from stablexla.targets.grouping.group import FACTOR, GROUP, blocks_of
from stablexla.targets.grouping.matchers import users_of
from stablexla.targets.grouping.repeat import TWIN
from stablexla.targets.pipeline.passes import module_pass

# Provisional name of a function: equal functions must have equal texts.
PROVISIONAL = "kernel"


@module_pass("stablexla-outline", "moves each group of operations into a private function; equal functions are shared")
def outline(module: ir.Module) -> None:
    """Outline the groups of the program as functions and replace them by calls."""
    functions = program_of(module)
    kernels = KernelTable(functions[0])
    _share_made(module, functions, kernels)
    for function in functions:
        for block in list(blocks_of(function)):
            _outline_block(block, kernels)
        drop_unused(function)


def _share_made(module: ir.Module, functions: Sequence[ir.Operation], kernels: KernelTable) -> None:
    """Merge equal kernels that lowering rules made, and their combiners; erase those without calls."""
    calls: dict[str, list[ir.Operation]] = {}
    for op in [op for function in functions for op in operations_named(function, "func.call")]:
        calls.setdefault(ir.FlatSymbolRefAttr(op.attributes["callee"]).value, []).append(op)
    by_name = functions_of(module)
    for view in [view for view in module.body.operations if KIND in view.operation.attributes]:
        reference = combiner_reference(view)
        combiner = None if reference is None else by_name[ir.FlatSymbolRefAttr(reference.function).value]
        if view.name.value not in calls:
            for op in (view.operation, combiner):
                if op is not None:
                    erase(op)
            continue
        callers = calls[view.name.value]
        with module.context:
            if reference is not None and combiner is not None:  # equal kernels have equal texts with its shared name
                combiner.attributes["sym_name"] = ir.StringAttr.get(PROVISIONAL)
                name = ir.FlatSymbolRefAttr.get(kernels.share(combiner.opview, "combiner"))
                view.attributes[COMBINER] = config_attribute(replace(reference, function=name))
            view.attributes["sym_name"] = ir.StringAttr.get(PROVISIONAL)
            callee = ir.FlatSymbolRefAttr.get(kernels.share(view, ir.StringAttr(view.attributes[KIND]).value))
        for op in callers:
            op.attributes["callee"] = callee


class KernelTable:
    """Kernels made so far; they stand before the program's `first` function.

    Equal ones have equal texts. Texts are long, so only those are written that have the same operations.
    """

    def __init__(self, first: ir.Operation) -> None:
        self.first = first
        self._alike: dict[object, list[_Kernel]] = {}
        self._count: dict[str, int] = {}

    def share(self, made: func.FuncOp, kind: str) -> str:
        """Name a kernel; when an equal one exists, erase this one and return the other's name."""
        alike = self._alike.setdefault((kind, _operations(made)), [])
        new = _Kernel(made)
        for other in alike:
            if other.text == new.text:
                erase(made.operation)
                return other.name
        number = self._count[kind] = self._count.get(kind, -1) + 1
        new.name = f"{kind}_{number}"
        made.attributes["sym_name"] = ir.StringAttr.get(new.name)
        alike.append(new)
        return new.name


class _Kernel:
    """A kernel, and its name when it has one of its own."""

    def __init__(self, function: func.FuncOp) -> None:
        self._function = function
        self.name = PROVISIONAL

    @functools.cached_property
    def text(self) -> str:
        """The function's text without that name."""
        attributes = self._function.attributes
        attributes["sym_name"] = ir.StringAttr.get(PROVISIONAL)
        text = text_of(self._function)
        attributes["sym_name"] = ir.StringAttr.get(self.name)
        return text


def _operations(function: func.FuncOp) -> tuple[object, ...]:
    """Return a function's type, and the names of its operations with the values of constants."""
    found: list[object] = [function.attributes["function_type"]]
    for view in function.regions[0].blocks[0].operations:
        op = view.operation
        found += [op.name, op.attributes["value"]] if op.name == "arith.constant" else [op.name]
    return tuple(found)


def text_of(function: func.FuncOp) -> str:
    """Return a function's text, which is that of equal functions of the same name."""
    text: str = function.operation.get_asm(enable_debug_info=False, use_local_scope=True, assume_verified=True)
    return text


def outlined_text(kernel: func.FuncOp) -> str:
    """Return a kernel's text with the provisional name, by which it is the same in all programs."""
    return text_of(kernel).replace(f"@{kernel.name.value}(", f"@{PROVISIONAL}(", 1)


def _outline_block(block: ir.Block, kernels: KernelTable) -> None:
    groups: dict[str, list[ir.Operation]] = {}
    for view in block.operations:
        op = view.operation
        if GROUP in op.attributes:
            groups.setdefault(ir.StringAttr(op.attributes[GROUP]).value, []).append(op)
    outlined = [m for label, m in groups.items() if _outline_group(label.split(".")[0], m, kernels)]
    for members in outlined:
        for op in reversed(members):
            erase(op)
    _sort_block(block)


def _outline_group(kind: str, members: list[ir.Operation], kernels: KernelTable) -> bool:
    """Call a function in place of a group, whose operations then have no users but one another."""
    inside = set(members)
    read = [r for op in members for r in op.results if any(not within(user, inside) for user in users_of(r))]
    if not read:
        return False  # it has no users: dead code elimination erases it
    made_by: dict[ir.Value | int, ir.Value] = {}
    made_as = [made_by.setdefault(_twins(r), r) for r in read]
    results = list(made_by.values())
    # A call bears the locations of all its operations: they tell later what a kernel came from.
    with members[0].context, ir.Location.fused([op.location for op in members]):
        made, inputs = function_of(kind, members, results, kernels.first)
        name = kernels.share(made, kind)
        with ir.InsertionPoint(members[-1]):
            call = func.CallOp([r.type for r in results], name, inputs)
    called = dict(zip(results, call.results, strict=True))
    for old, one in zip(read, made_as, strict=True):
        old.replace_all_uses_with(called[one])
    return True


def _twins(result: ir.Value) -> ir.Value | int:
    """Return a key that is equal for copies of one operation (CSE)."""
    attributes = result.owner.attributes
    return int(ir.IntegerAttr(attributes[TWIN]).value) if TWIN in attributes else result


def function_of(
    kind: str, members: list[ir.Operation], results: Sequence[ir.Value], before: ir.Operation, name: str = PROVISIONAL
) -> tuple[func.FuncOp, list[ir.Value]]:
    """Clone `members` into a private function that returns `results`; return it and its call's operands."""
    captures = {op: values for op in members if (values := captured_by_regions(op))}
    inputs, starts = _inputs(members, captures)
    type_ = ir.FunctionType.get([v.type for v in inputs], [r.type for r in results])
    with ir.InsertionPoint(before):
        made = func.FuncOp(name, type_, visibility="private")
    made.attributes[KIND] = ir.StringAttr.get(kind)
    _fill(made.add_entry_block(), inputs, [*starts, *members], list(results), captures)
    return made, inputs


_Captures = Mapping[ir.Operation, Sequence[ir.Value]]


def _inputs(members: list[ir.Operation], captures: _Captures) -> tuple[list[ir.Value], list[ir.Operation]]:
    """Return a group's inputs, and the constants and initial values that are cloned into the kernel."""
    made = set(members)
    inputs: list[ir.Value] = []
    copied: list[ir.Operation] = []

    def take(value: ir.Value) -> None:
        maker = defining(value)
        if maker is not None and (maker in made or maker in copied):
            return
        if maker is not None and _copied_along(maker):
            for operand in maker.operands:
                take(operand)
            copied.append(maker)
        elif value not in inputs:
            inputs.append(value)

    for op in members:
        for value in (*op.operands, *captures.get(op, ())):
            take(value)
    return inputs, copied


def _copied_along(op: ir.Operation) -> bool:
    """Whether to clone into each using kernel: scalar constants and initial values of reductions."""
    if op.name in ("tensor.empty", "linalg.fill"):
        return True
    return op.name == "arith.constant" and not is_tensor(op.results[0])


def _fill(
    block: ir.Block, inputs: list[ir.Value], ops: list[ir.Operation], results: list[ir.Value], captures: _Captures
) -> None:
    """Clone a group's operations into a kernel's block."""
    mapping: dict[ir.Value, ir.Value] = dict(zip(inputs, block.arguments, strict=True))
    twins: dict[int, ir.Operation] = {}
    with ir.InsertionPoint(block):
        for op in ops:
            number = ir.IntegerAttr(op.attributes[TWIN]).value if TWIN in op.attributes else None
            if number in twins:
                mapping[op.results[0]] = twins[number].results[0]
                continue
            copy = clone_with(op, mapping, captures=op in captures)
            if number is not None:
                twins[number] = copy
            for name in (FACTOR, GROUP, TWIN):
                if name in copy.attributes:
                    del copy.attributes[name]
        func.ReturnOp([mapping[r] for r in results])


def _sort_block(block: ir.Block) -> None:
    """Sort the block topologically, each def before its uses, changing the order as little as possible."""
    *operations, terminator = (v.operation for v in block.operations)
    here, effects = set(operations), previous_effects(block)
    placed: dict[ir.Operation, None] = {}
    waiting: set[ir.Operation] = set()
    stack = operations[::-1]
    while stack:
        op = stack[-1]
        needed = [] if op in placed else [*map(defining, captured(op)), effects.get(op)]
        missing = [need for need in needed if need is not None and need in here and need not in placed]
        if missing:
            assert waiting.isdisjoint(missing), "two groups need each other"
            waiting.add(op)
            stack += reversed(missing)
        else:
            placed.setdefault(stack.pop())
    for op in placed:
        op.move_before(terminator)
