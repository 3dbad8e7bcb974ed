"""Follows every operation of a program through the pipeline, by the numbers of `numbering.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.dialects.composites import kernel_of, name_and_version
from stablexla.dialects.held_arrays import short_text
from stablexla.dialects.symbols import symbol_of
from stablexla.inspection.explaining.explanation import (
    BufferNote,
    CallNote,
    CompositeNote,
    Explanation,
    Fate,
    KernelNote,
    PartNote,
)
from stablexla.inspection.numbering import SourceOperation, number_operations, numbers_in
from stablexla.inspection.profiling.kernel_costs import cost_of
from stablexla.lowering.support.kernels import KIND
from stablexla.lowering.support.operations import is_tensor, main_of, walk
from stablexla.lowering.support.repeats import PART
from stablexla.targets.buffers.assignment import BufferAssignment
from stablexla.targets.codegen.calls import IMPL, KernelCall, call_of
from stablexla.targets.codegen.sizes import bytes_of
from stablexla.targets.pipeline.driver import run_pipeline
from stablexla.targets.pipeline.pipelines import Element, Pipeline, Step
from stablexla.targets.registry import Target, find_target
from stablexla.targets.stablehlo.composite_ways import CompositeWatcher
from stablexla.targets.stablehlo.inlining import operations_of

# Views: operations whose users read their operand.
VIEWS = frozenset(
    [
        "stablehlo.bitcast_convert",
        "stablehlo.broadcast",
        "stablehlo.broadcast_in_dim",
        "stablehlo.get_tuple_element",
        "stablehlo.optimization_barrier",
        "stablehlo.reshape",
        "stablehlo.reverse",
        "stablehlo.slice",
        "stablehlo.transpose",
        "stablehlo.tuple",
    ]
)
RESHAPES = frozenset(["tensor.collapse_shape", "tensor.expand_shape"])
"""Operations of main that give an array another shape, in the same memory."""
CALLS = frozenset(["func.call", "stablehlo.composite"])
LARGE = 16
"""Constants of more elements are left out of the texts of stages."""


def explain(module: hlo_ir.Module, pipeline: Pipeline, *, name: str, signature: str, target: str) -> Explanation:
    """Run the pipeline on a module, which is consumed, and explain each operation.

    Raises:
        CompileError: a step of the pipeline failed.
    """
    operations = number_operations(module)
    composites = _Composites(module)
    watcher = _Follower(find_target(target))
    watcher.stages["source"] = _text(module)
    run_pipeline(module, pipeline, watcher=watcher, holds=True)
    return Explanation(
        name,
        signature,
        target,
        tuple(operations),
        tuple(_fates(operations, watcher)),
        tuple(watcher.kernels),
        tuple(watcher.calls),
        tuple(composites.notes(watcher.ways)),
        watcher.arena_bytes,
        watcher.constant_bytes,
        watcher.stages,
        tuple(watcher.parts),
    )


class _Follower(CompositeWatcher):
    """Reads kernels, calls and buffers after kernels are emitted, and keeps every stage's text."""

    pass_by_pass = True

    def __init__(self, target: Target) -> None:
        super().__init__()
        self._target = target
        self.stages: dict[str, str] = {}
        self.kernels: list[KernelNote] = []
        self.calls: list[CallNote] = []
        self.parts: list[PartNote] = []
        self.main: dict[int, str] = {}
        self.inside: dict[int, str] = {}
        self.arena_bytes = self.constant_bytes = 0

    def after_step(self, number: int, step: Step, module: Any, seconds: float) -> None:
        super().after_step(number, step, module, seconds)
        self.stages[step.name] = _text(module)

    def after_pass(self, step: Step, element: Element, module: Any) -> None:
        if element.name == "stablexla-find-repeats":
            self.parts = list(_parts(module))
        functions = {
            symbol_of(v): v.operation
            for v in (module.body.operations if isinstance(module, ir.Module) else ())
            if KIND in v.operation.attributes and IMPL in v.operation.attributes
        }
        if not functions and element.name != "stablexla-emit-kernels":
            return
        assert self._target.assignment is not None, "a target with kernels has buffers for them"
        assignment = self._target.assignment(module)
        self.arena_bytes = assignment.arena_bytes
        self.constant_bytes = sum(bytes_of(c.type) for c in assignment.constants)
        self.calls = [_call(i, op, depth, assignment) for i, (op, depth) in enumerate(_calls(assignment.main))]
        symbols = ir.SymbolTable(module.operation)
        by_op = {ir.FlatSymbolRefAttr(op.attributes["callee"]).value: op for op, _ in _calls(assignment.main)}
        self.kernels = [
            self._kernel(name, function, call_of(by_op[name], symbols) if name in by_op else None)
            for name, function in functions.items()
        ]
        self._read_main(module)
        for name, function in functions.items():
            for op in walk(function):
                for operation in numbers_in(str(op.location)):
                    self.inside.setdefault(operation, name)

    def _kernel(self, name: str, function: Any, call: KernelCall | None) -> KernelNote:
        own = [c for c in self.calls if c.kernel == name]
        phases = call.phases if call else ()
        made = KernelCall.of(function)
        return KernelNote(
            name,
            ir.StringAttr(function.attributes[KIND]).value,
            made.path,
            sum(p.items for p in phases),
            sum(1 for p in phases if p.items),
            any(p.items > p.grain for p in phases),
            cost_of(function),
            tuple(c.number for c in own),
            tuple(sorted({n for c in own for n in c.operations})),
            made.refusal,
            tuple(p.function for p in phases if p.items),
            made.schedule,
        )

    def _read_main(self, module: Any) -> None:
        self.main = {}
        for op in walk(main_of(module)):
            if op.name not in ("func.call", "func.func", "func.return"):
                for number in numbers_in(str(op.location)):
                    if not self.main.get(number, "").startswith("scf."):
                        self.main[number] = op.name


def _parts(module: hlo_ir.Module) -> Iterator[PartNote]:
    """Read the equal parts of a StableHLO module, each from its calls' locations."""
    calls = operations_of(module, "func.call")
    for view in module.body.operations:
        if PART in view.operation.attributes:
            name = symbol_of(view)
            own = [op for op in calls if hlo_ir.FlatSymbolRefAttr(op.attributes["callee"]).value == name]
            yield PartNote(tuple(numbers_in(str(op.location)) for op in own))


def _calls(main: Any) -> Iterator[tuple[Any, int]]:
    """Return the calls of kernels in main, with their loop depth."""
    for op in walk(main):
        if op.name == "func.call":
            depth, parent = 0, op.parent.operation
            while parent.name != "func.func":
                depth, parent = depth + 1, parent.parent.operation
            yield op, depth


def _call(number: int, op: Any, depth: int, assignment: BufferAssignment) -> CallNote:
    def notes(found: Iterable[Any]) -> tuple[BufferNote, ...]:
        return tuple(BufferNote(b.role, b.number, b.offset, b.bytes) for b in found)

    operands = (assignment.operand_buffer(op, i) for i, v in enumerate(op.operands) if is_tensor(v))
    results = (assignment.buffer_of(v) for v in op.results if is_tensor(v))
    kernel = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
    return CallNote(number, kernel, depth, numbers_in(str(op.location)), notes(operands), notes(results))


# ---- fates -----------------------------------------------------------------------------------------------------------


def _fates(operations: Sequence[SourceOperation], watcher: _Follower) -> Iterator[Fate]:
    """Return the fate of each operation, by the places of its number."""
    by_number: dict[int, list[int]] = {}
    for call in watcher.calls:
        for number in call.operations:
            by_number.setdefault(number, []).append(call.number)
    for op in operations:
        yield _fate(op, by_number.get(op.number, []), watcher)


def _fate(op: SourceOperation, calls: list[int], watcher: _Follower) -> Fate:
    kernels = dict.fromkeys(watcher.calls[c].kernel for c in calls)
    in_main = watcher.main.get(op.number)
    if op.name in CALLS and not _is_kept(op, watcher):
        return Fate("inlined", "its function's body took its place", tuple(calls))
    if kernels:
        return Fate("kernel", f"computed by {', '.join(kernels)}", tuple(calls))
    if in_main is not None and in_main.startswith("scf."):
        return Fate("main", f"control flow of main: {in_main}")
    if op.name == "stablehlo.constant":
        held = in_main == "arith.constant" and op.type.count("x")
        return Fate("constant", "held by the executable" if held else "a number in the code that uses it")
    if in_main in RESHAPES:
        return Fate("view", "a reshape: no work")
    if in_main is not None:
        return Fate("main", f"scalars in main: {in_main}")
    if op.number in watcher.inside:
        return Fate("kernel", f"computed inside {watcher.inside[op.number]}")
    if not op.is_used:
        return Fate("unused", "nobody reads it")
    if op.name in VIEWS:
        return Fate("view", "a view of its operand: no work")
    return Fate("folded", "merged with an equal operation, or folded into what uses it")


def _is_kept(op: SourceOperation, watcher: _Follower) -> bool:
    return op.name == "stablehlo.composite" and any(
        title.startswith(f"{op.detail} v") and "kernel" in way for title, way in watcher.ways.items()
    )


class _Composites:
    """The composites of a module, and whether the target has a kernel for each."""

    def __init__(self, module: hlo_ir.Module) -> None:
        self._kept: dict[str, set[bool]] = {}

        def note(view: Any) -> Any:
            op = view.operation
            if op.name == "stablehlo.composite":
                title = "{} v{}".format(*name_and_version(op))
                self._kept.setdefault(title, set()).add(kernel_of(op) is not None)
            return hlo_ir.WalkResult.ADVANCE

        module.operation.walk(note)

    def notes(self, ways: dict[str, str]) -> Iterator[CompositeNote]:
        for title, way in ways.items():
            if title not in self._kept:
                why = "an operation of CHLO, which is lowered whole" if way == "kernel" else "made by a pass"
            elif self._kept[title] == {True}:
                why = "there is a kernel of this name and version that takes its shapes and attributes"
            elif self._kept[title] == {False}:
                why = "there is no kernel of this name and version that takes its shapes and attributes"
            else:
                why = "the kernel takes the shapes and attributes of some of them"
            yield CompositeNote(title, way, why)


def _text(module: Any) -> str:
    return short_text(module, LARGE, enable_debug_info=True, use_local_scope=True)
