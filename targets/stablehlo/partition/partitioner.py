"""SPMD partitioner: rewrites `main` from whole arrays to one device's computation on its parts.

Operations are visited in program order and rewritten in place. Those without a rule for parts are computed on whole
(replicated) arrays by every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np

from stablexla.dialects import hlo
from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.context import place_of
from stablexla.targets.stablehlo.meshes import call_target
from stablexla.targets.stablehlo.partition import factors_windows  # noqa: F401
from stablexla.targets.stablehlo.partition.annotations import SHARDING, Meshes, shape_of
from stablexla.targets.stablehlo.partition.axes import Axes, Axis, Sharding, axes_of, local_shape, whole
from stablexla.targets.stablehlo.partition.effects import has_effect, once
from stablexla.targets.stablehlo.partition.emit import Emitter
from stablexla.targets.stablehlo.partition.factors import Factors, factors_of
from stablexla.targets.stablehlo.partition.gspmd import (
    BEFORE,
    FULL_TO_SHARD,
    KEY,
    SHARD_TO_FULL,
    is_manual,
    written_sharding,
)
from stablexla.targets.stablehlo.partition.local import (
    adapt,
    constant_of,
    cut_factors,
    reshaped,
    scattered,
    sharding_by,
    shift_iota,
    unshared,
)
from stablexla.targets.stablehlo.partition.mesh_groups import resolve_groups
from stablexla.targets.stablehlo.partition.moves import moves

RESHARDS = frozenset(
    f"sdy.{name}"
    for name in ("all_gather", "all_slice", "all_to_all", "collective_permute", "reshard", "sharding_constraint")
)
PASSES_ON = frozenset(["sdy.data_flow_edge", "sdy.func_data_flow_edge", "sdy.propagation_barrier"])


@dataclass
class Part:
    """A value that holds the device's part of an array, with the array's sharding."""

    value: Any
    sharding: Sharding
    shape: tuple[int, ...] | None


class Partitioner:
    """Visits and partitions the operations of `main`.

    Attributes:
        replicated: names of operations that are computed whole though their arrays lie in parts, and where they are.
    """

    def __init__(self, meshes: Meshes, emitter: Emitter) -> None:
        self.meshes, self.emitter = meshes, emitter
        self.devices = meshes.devices
        self.replicated: dict[str, list[str]] = {}
        self._parts: dict[Any, Part] = {}
        self._context: Axes = ()
        self._moved: dict[tuple[Any, Sharding], Any] = {}
        self._dead: list[Any] = []

    def function(self, main: Any) -> tuple[list[Part], list[Part]]:
        """Rewrite a function; return its parameters and results as parts, in order."""
        block = main.regions[0].blocks[0]
        arguments, results = _annotations(main, "arg_attrs"), _annotations(main, "res_attrs")
        taken = [self._take(a, note) for a, note in zip(block.arguments, arguments, strict=True)]
        terminator = self._visit_all(block)
        given = []
        with hlo_ir.InsertionPoint(terminator), terminator.location:
            for i, (value, note) in enumerate(zip(list(terminator.operands), results, strict=True)):
                part = self._parts[value]
                if note is not None and part.shape is not None:
                    sharding = self.meshes.read(note, part.shape)
                    part = replace(part, value=self._as(value, sharding), sharding=sharding)
                terminator.operands[i] = part.value
                given.append(part)
        inputs = [a.type for a in block.arguments]
        main.attributes["function_type"] = hlo_ir.TypeAttr.get(
            hlo_ir.FunctionType.get(inputs, [v.type for v in terminator.operands])
        )
        for op in self._dead:
            erase(op)
        return taken, given

    def _drop(self, op: Any) -> None:
        """Schedule an operation to be erased at the end, when it has no users; its operands are defs that stay."""
        for i, value in enumerate(list(op.operands)):
            op.operands[i] = self._parts[value].value
        self._dead.append(op)

    def _take(self, argument: Any, note: Any) -> Part:
        shape = shape_of(argument.type)
        sharding = () if shape is None else whole(len(shape))
        if note is not None and shape is not None:
            sharding = self.meshes.read(note, shape)
        return self._set(argument, sharding)

    def _set(self, value: Any, sharding: Sharding) -> Part:
        """Make an original value of the module the part of the array that it was."""
        shape = shape_of(value.type)
        if shape is not None and any(sharding):
            value.set_type(hlo.tensor(value.type, local_shape(shape, sharding)))
        self._parts[value] = Part(value, sharding, shape)
        return self._parts[value]

    def _as(self, value: Any, sharding: Sharding) -> Any:
        """Reshard an array's part at the insertion point."""
        part = self._parts[value]
        if part.shape is None or part.sharding == sharding:
            return part.value
        key = value, sharding
        if key not in self._moved:
            made = part.value
            for move in moves(part.sharding, sharding, self._context, self.devices):
                made = self.emitter.move(made, move)
            self._moved[key] = made
        return self._moved[key]

    def _whole(self, value: Any) -> Any:
        shape = self._parts[value].shape
        return self._as(value, whole(len(shape or ())))

    def _visit_all(self, block: Any) -> Any:
        """Rewrite the operations of a block; return its terminator, which is unchanged."""
        *operations, terminator = (op.operation for op in block.operations)
        following = [*operations[1:], terminator]
        for op, behind in zip(operations, following, strict=False):
            with hlo_ir.InsertionPoint(op), op.location:
                self._visit(op, behind)
        return terminator

    def _visit(self, op: Any, behind: Any) -> None:
        name = op.name
        if name in ("stablehlo.constant", "sdy.constant"):
            self._constant(op)
        elif name == "stablehlo.reshape":
            self._reshape(op)
        elif name in RESHARDS:
            key = "sharding" if "sharding" in op.attributes else "out_sharding"
            self._reshard(op, self.meshes.read(op.attributes[key], self._shape(op.operands[0])))
        elif name in PASSES_ON or name == "stablehlo.optimization_barrier":
            self._pass_on(op)
        elif name in ("sdy.manual_computation", "sdy.named_computation"):
            self._manual(op)
        elif name == "sdy.sharding_group":
            self._drop(op)
        elif name.startswith("sdy."):
            raise UnsupportedError(f"sums that are not added up yet{place_of(op.location)}", operation=name)
        elif name in ("stablehlo.while", "stablehlo.if", "stablehlo.case"):
            self._control(op)
        elif name == "stablehlo.custom_call" and (target := call_target(op)) in (FULL_TO_SHARD, SHARD_TO_FULL):
            self._cross(op, target)
        else:
            self._compute(op, behind)

    def _shape(self, value: Any) -> tuple[int, ...]:
        return self._parts[value].shape or ()

    def _wanted(self, op: Any) -> list[Sharding] | None:
        """Return an operation's annotated result shardings."""
        if SHARDING not in op.attributes or not len(op.results):
            return None
        return self.meshes.of_values(op.attributes[SHARDING], [shape_of(r.type) for r in op.results])

    def _constant(self, op: Any) -> None:
        result = op.results[0]
        shape = tuple(result.type.shape)
        wanted = self._wanted(op)
        if wanted is not None and any(wanted[0]):
            made = constant_of(op, local_shape(shape, wanted[0]))
            if made is not None:
                self._parts[result] = self._parts[made] = Part(made, wanted[0], shape)
                self._drop(op)
                return
        if op.name == "sdy.constant":
            made = constant_of(op, shape)
            self._parts[result] = self._set(made, whole(len(shape)))
            self._drop(op)
        else:
            self._set(result, whole(len(shape)))

    def _reshape(self, op: Any) -> None:
        value, result = op.operands[0], op.results[0]
        wanted = self._wanted(op)
        found = reshaped(
            self._shape(value), tuple(result.type.shape), self._parts[value].sharding, wanted[0] if wanted else None
        )
        source, target = found or (whole(len(self._shape(value))), whole(len(result.type.shape)))
        op.operands[0] = self._as(value, source)
        self._set(result, target)

    def _reshard(self, op: Any, sharding: Sharding) -> None:
        value = op.operands[0]
        self._parts[op.results[0]] = Part(self._as(value, sharding), sharding, self._shape(value))
        self._drop(op)

    def _pass_on(self, op: Any) -> None:
        parts = [self._parts[value] for value in op.operands]
        if op.name != "stablehlo.optimization_barrier":
            self._parts[op.results[0]] = parts[0]
            self._drop(op)
            return
        for i, (part, result) in enumerate(zip(parts, op.results, strict=True)):
            op.operands[i] = part.value
            self._set(result, part.sharding)

    def _control(self, op: Any) -> None:
        """Partition while, if, case: values in and out of regions have the results' wanted shardings."""
        shapes = [shape_of(result.type) for result in op.results]
        wanted = self._wanted(op) or [whole(len(shape or ())) for shape in shapes]
        is_loop = op.name == "stablehlo.while"
        for i, value in enumerate(list(op.operands)):
            op.operands[i] = self._as(value, wanted[i]) if is_loop else self._whole(value)
        for region in op.regions:
            block = region.blocks[0]
            for argument, sharding in zip(block.arguments, wanted, strict=False):
                self._set(argument, sharding)
        outside = self._moved
        for i, region in enumerate(op.regions):
            self._moved = dict(outside)  # resharded values inside are not available outside
            terminator = self._visit_all(region.blocks[0])
            with hlo_ir.InsertionPoint(terminator), terminator.location:
                for j, value in enumerate(list(terminator.operands)):
                    is_condition = is_loop and i == 0
                    terminator.operands[j] = self._whole(value) if is_condition else self._as(value, wanted[j])
        self._moved = outside
        for result, sharding in zip(op.results, wanted, strict=True):
            self._set(result, sharding)

    def _manual(self, op: Any) -> None:
        """Inline a manual computation's region, on the parts along its manual axes."""
        is_manual = op.name == "sdy.manual_computation"
        manual = self.meshes.manual_axes(op) if is_manual else ()
        block = op.regions[0].blocks[0]
        ins = self._of_computation(op, "in_shardings", [self._shape(v) for v in op.operands], manual)
        for argument, value, sharding in zip(block.arguments, list(op.operands), ins, strict=True):
            inner = tuple(tuple(a for a in axes if a not in manual) for axes in sharding)
            self._parts[argument] = Part(self._as(value, sharding), inner, shape_of(argument.type))
        outs = self._of_computation(op, "out_shardings", [shape_of(r.type) for r in op.results], manual)
        outer, self._context = self._context, (*self._context, *manual)
        terminator = self._visit_all(block)
        with hlo_ir.InsertionPoint(terminator), terminator.location:
            for i, (result, sharding) in enumerate(zip(op.results, outs, strict=True)):
                inner = tuple(tuple(a for a in axes if a not in manual) for axes in sharding)
                made = terminator.operands[i] = self._as(terminator.operands[i], inner)
                self._parts[result] = Part(made, sharding, shape_of(result.type))
        for each in [each.operation for each in block.operations][:-1]:
            each.move_before(op)
        self._context = outer
        self._drop(op)

    def _of_computation(self, op: Any, key: str, shapes: Sequence[Any], manual: Axes) -> list[Sharding]:
        if key not in op.attributes:
            return [whole(len(shape or ())) for shape in shapes]
        found = self.meshes.of_values(op.attributes[key], shapes)
        said = self.meshes.exactly(op.attributes[key])
        for sharding, exact, shape in zip(found, said, shapes, strict=True):
            if shape is not None and axes_of(exact) & set(manual) != axes_of(sharding) & set(manual):
                raise UnsupportedError(f"{list(shape)} is not cut evenly{place_of(op.location)}", operation=op.name)
        return found

    def _cross(self, op: Any, target: str) -> None:
        """Rewrite GSPMD's entry to and exit from a manual region."""
        value, result = op.operands[0], op.results[0]
        if target == FULL_TO_SHARD:
            sharding = written_sharding(op, BEFORE, self._shape(value), self.devices)
            shape = shape_of(result.type)
            self._parts[result] = Part(self._as(value, sharding), whole(len(shape or ())), shape)
        else:
            sharding = written_sharding(op, KEY, result.type.shape, self.devices)
            self._parts[result] = Part(self._whole(value), sharding, shape_of(result.type))
        if list(self._parts[result].value.type.shape) != local_shape(self._shape(result), self._parts[result].sharding):
            raise UnsupportedError(f"no such part of {value.type}{place_of(op.location)}", operation=target)
        self._drop(op)

    def _compute(self, op: Any, behind: Any) -> None:
        parts = [self._parts[value] for value in op.operands]
        if has_effect(op) and not self._context and not is_manual(op):
            self._compute_once(op)
            return
        wanted = self._wanted(op)
        resolve_groups(op, self.meshes, self.emitter)
        for region in op.regions:
            for block in region.blocks:
                self._capture(block)
        if not any(any(p.sharding) for p in parts) and not any(map(any, wanted or ())):
            self._leave(op, [p.value for p in parts])
            self._agree(op, behind)
            return
        shapes = [p.shape for p in parts]
        results = [shape_of(r.type) for r in op.results]
        known = None
        if None not in shapes and None not in results:
            known = factors_of(op, [s or () for s in shapes], [s or () for s in results])
        if known is None or (op.name == "stablehlo.iota" and not _can_count(op)):
            self._note(op)
            self._leave(op, [self._whole(value) for value in op.operands])
            self._agree(op, behind)
            return
        self._compute_parts(op, behind, known, wanted)

    def _compute_once(self, op: Any) -> None:
        for i, value in enumerate(list(op.operands)):
            op.operands[i] = self._whole(value)
        for result, made in zip(op.results, once(op, self.emitter), strict=True):
            self._parts[result] = Part(made, whole(len(shape_of(result.type) or ())), shape_of(result.type))
        self._dead.append(op)

    def _capture(self, block: Any) -> None:
        """Remap captured values in a comparator or the like; they are replicated there."""
        for each in block.operations:
            op = each.operation
            for i, value in enumerate(list(op.operands)):
                if value in self._parts:
                    op.operands[i] = self._whole(value)
            for region in op.regions:
                for inner in region.blocks:
                    self._capture(inner)

    def _leave(self, op: Any, operands: Sequence[Any]) -> None:
        for i, value in enumerate(operands):
            op.operands[i] = value
        for result in op.results:
            shape = shape_of(result.type)
            self._set(result, () if shape is None else whole(len(shape)))

    def _agree(self, op: Any, behind: Any) -> None:
        """Broadcast the first device's random numbers to all, as each draws its own."""
        if op.name == "stablehlo.rng" and not self._context:
            with hlo_ir.InsertionPoint(behind), op.location:
                self._parts[op.results[0]].value = self.emitter.from_first(op.results[0])

    def _compute_parts(self, op: Any, behind: Any, factors: Factors, wanted: list[Sharding] | None) -> None:
        values = list(op.operands)
        shapes = [self._shape(v) for v in values]
        chosen = cut_factors(factors, [self._parts[v].sharding for v in values], wanted, [prod(s) for s in shapes])
        if "replica_groups" in op.attributes or "source_target_pairs" in op.attributes:
            key = "replica_groups" if "replica_groups" in op.attributes else "source_target_pairs"
            groups = np.array(hlo_ir.DenseIntElementsAttr(op.attributes[key]))
            bad = unshared(groups, {a for axes in chosen.values() for a in axes}, self.devices)
            chosen = {f: axes for f, axes in chosen.items() if not bad & set(axes)}
        needed = [sharding_by(ids, chosen) for ids in factors.operands]
        if not chosen and any(any(self._parts[v].sharding) for v in values):
            self._note(op)
        for i, (value, sharding) in enumerate(zip(values, needed, strict=True)):
            op.operands[i] = self._as(value, sharding)
        made = [sharding_by(ids, chosen) for ids in factors.results]
        adapt(op, shapes, [tuple(v.type.shape) for v in op.operands])
        for result, sharding in zip(op.results, made, strict=True):
            self._set(result, sharding)
        partial = tuple(axis for factor in factors.sums for axis in chosen.get(factor, ()))
        with hlo_ir.InsertionPoint(behind), op.location:
            if partial:
                self._add_up(op.results[0], partial, wanted[0] if wanted else None, factors.reducer)
            elif op.name == "stablehlo.iota":
                self._parts[op.results[0]].value = shift_iota(op, made[0], self.emitter)

    def _add_up(self, result: Any, partial: Axes, wanted: Sharding | None, reducer: str) -> None:
        part = self._parts[result]
        others: set[Axis] = {*axes_of(part.sharding), *self._context}
        place = scattered(part.sharding, wanted, partial)
        if place is not None and wanted is not None:
            dimension, axes = place
            part.value = self.emitter.reduce_scatter(result, dimension, axes, others, reducer)
            part.sharding = wanted
        else:
            part.value = self.emitter.reduce(result, partial, others, reducer)

    def _note(self, op: Any) -> None:
        name = f"{op.name} @{call_target(op)}" if op.name == "stablehlo.custom_call" else str(op.name)
        self.replicated.setdefault(name, []).append(place_of(op.location))


def _can_count(op: Any) -> bool:
    """Whether a part's offset can be added to an iota: not for booleans."""
    return str(op.results[0].type.element_type) != "i1"


def _annotations(main: Any, key: str) -> list[Any]:
    """Return the sharding attributes of a function's parameters or results, None where there is none."""
    type_ = hlo_ir.FunctionType(hlo_ir.TypeAttr(main.attributes["function_type"]).value)
    rows = len(type_.inputs if key == "arg_attrs" else type_.results)
    if key not in main.attributes:
        return [None] * rows
    found = [hlo_ir.DictAttr(row) for row in hlo_ir.ArrayAttr(main.attributes[key])]
    return [row[SHARDING] if SHARDING in row else None for row in found]  # noqa: SIM401  (it has no get)
