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
from stablexla.dialects.custom_calls import INSPECT, INSPECTORS, ON_PARTS, PARTITIONER_NOTES
from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.op_traits import TRAITS
from stablexla.lowering.support.context import place_of
from stablexla.targets.signature.array_sharding import ArraySharding
from stablexla.targets.stablehlo.meshes import call_target
from stablexla.targets.stablehlo.partition import factors_windows
from stablexla.targets.stablehlo.partition.annotations import SHARDING, Meshes, shape_of
from stablexla.targets.stablehlo.partition.axes import (
    NOT_PARTIAL,
    Axes,
    Axis,
    Partial,
    Sharding,
    axes_of,
    blocks,
    in_order,
    local_shape,
    positions,
    whole,
)
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

ROUNDED = ("stablehlo.convert", "stablehlo.divide")
"""To integers these drop fractions, and are not linear."""


@dataclass
class Part:
    """A value that holds the device's part of an array, with the array's sharding.

    Attributes:
        partial: the axes along which the array is the sum of what the devices hold.
    """

    value: Any
    sharding: Sharding
    shape: tuple[int, ...] | None
    partial: Partial = NOT_PARTIAL

    def on_devices(self, devices: int) -> ArraySharding:
        """Return the ranges of an array that each device holds."""
        summands = positions(in_order(self.partial), devices) if self.partial else ()
        shape = self.shape or ()
        return ArraySharding(shape, tuple(blocks(shape, self.sharding, devices)), summands)


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
        self._moved: dict[tuple[Any, Sharding, Partial], Any] = {}
        self._dead: list[Any] = []
        self._results: list[Any] = []

    def function(self, main: Any) -> tuple[list[Part], list[Part]]:
        """Rewrite a function; return its parameters and results as parts, in order."""
        block = main.regions[0].blocks[0]
        arguments, results = _annotations(main, "arg_attrs"), _annotations(main, "res_attrs")
        self._results = results
        taken = [self._take(a, note) for a, note in zip(block.arguments, arguments, strict=True)]
        terminator = self._visit_all(block)
        given = []
        with hlo_ir.InsertionPoint(terminator), terminator.location:
            for i, (value, note) in enumerate(zip(list(terminator.operands), results, strict=True)):
                part = self._parts[value]
                if note is not None and part.shape is not None:
                    sharding, partial = self.meshes.read(note, part.shape), self.meshes.partial(note)
                    made = self._as(value, sharding, partial)
                    part = replace(part, value=made, sharding=sharding, partial=partial)
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
            return self._set(argument, self.meshes.read(note, shape), self.meshes.partial(note))
        return self._set(argument, sharding)

    def _set(self, value: Any, sharding: Sharding, partial: Partial = NOT_PARTIAL) -> Part:
        """Make an original value of the module the part of the array that it was."""
        shape = shape_of(value.type)
        if shape is not None and any(sharding):
            value.set_type(hlo.tensor(value.type, local_shape(shape, sharding)))
        self._parts[value] = Part(value, sharding, shape, partial)
        return self._parts[value]

    def _as(self, value: Any, sharding: Sharding, partial: Partial = NOT_PARTIAL) -> Any:
        """Reshard an array's part at the insertion point, and add up what is not to stay partial."""
        part = self._parts[value]
        if part.shape is None or (part.sharding, part.partial) == (sharding, partial):
            return part.value
        key = value, sharding, partial
        if key not in self._moved:
            kept = part.partial & partial
            added = self._added(replace(part), in_order(part.partial - kept), sharding, "stablehlo.add")
            made = added.value
            before, new = added.sharding, partial - kept
            if new & axes_of(before):  # the parts, and zeros around them
                shared = tuple(tuple(a for a in axes if a in new) for axes in before)
                if all(axes[len(axes) - len(s) :] == s for axes, s in zip(before, shared, strict=True)):
                    made, new = self.emitter.among_zeros(made, shared), new - axes_of(shared)
                    before = tuple(axes[: len(axes) - len(s)] for axes, s in zip(before, shared, strict=True))
                    kept |= axes_of(shared)
            for move in moves(before, sharding, (*self._context, *in_order(kept)), self.devices):
                made = self.emitter.move(made, move)
            self._moved[key] = self.emitter.on_first(made, in_order(new)) if new else made
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
            note = _target(op)
            self._reshard(op, self.meshes.read(note, self._shape(op.operands[0])), self.meshes.partial(note))
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
        elif name == "stablehlo.custom_call" and target in PARTITIONER_NOTES and self._is_identity(op):
            self._pass_on(op)
        elif (inspector := _inspector(op)) in INSPECTORS:
            self._inspect(op, inspector)
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
        partial = self._parts[value].partial
        op.operands[0] = self._as(value, source, partial)
        self._set(result, target, partial)

    def _reshard(self, op: Any, sharding: Sharding, partial: Partial) -> None:
        value = op.operands[0]
        made = self._as(value, sharding, partial)
        self._parts[op.results[0]] = Part(made, sharding, self._shape(value), partial)
        self._drop(op)

    def _is_identity(self, op: Any) -> bool:
        return [shape_of(r.type) for r in op.results] == [self._parts[v].shape for v in op.operands]

    def _pass_on(self, op: Any) -> None:
        parts = [self._parts[value] for value in op.operands]
        if op.name != "stablehlo.optimization_barrier":
            self._parts.update(zip(op.results, parts, strict=True))
            self._drop(op)
            return
        for i, (part, result) in enumerate(zip(parts, op.results, strict=True)):
            op.operands[i] = part.value
            self._set(result, part.sharding, part.partial)

    def _control(self, op: Any) -> None:
        """Partition while, if, case: values in and out of regions have the results' wanted shardings."""
        shapes = [shape_of(result.type) for result in op.results]
        wanted = self._wanted(op) or [whole(len(shape or ())) for shape in shapes]
        partial = self._wanted_partials(op)
        is_loop = op.name == "stablehlo.while"
        for i, value in enumerate(list(op.operands)):
            op.operands[i] = self._as(value, wanted[i], partial[i]) if is_loop else self._whole(value)
        for region in op.regions:
            block = region.blocks[0]
            for argument, sharding, sums in zip(block.arguments, wanted, partial, strict=False):
                self._set(argument, sharding, sums)
        outside = self._moved
        for i, region in enumerate(op.regions):
            self._moved = dict(outside)  # resharded values inside are not available outside
            terminator = self._visit_all(region.blocks[0])
            with hlo_ir.InsertionPoint(terminator), terminator.location:
                for j, value in enumerate(list(terminator.operands)):
                    is_condition = is_loop and i == 0
                    made = self._whole(value) if is_condition else self._as(value, wanted[j], partial[j])
                    terminator.operands[j] = made
        self._moved = outside
        for result, sharding, sums in zip(op.results, wanted, partial, strict=True):
            self._set(result, sharding, sums)

    def _manual(self, op: Any) -> None:
        """Inline a manual computation's region, on the parts along its manual axes."""
        is_manual = op.name == "sdy.manual_computation"
        manual = self.meshes.manual_axes(op) if is_manual else ()
        block = op.regions[0].blocks[0]
        ins = self._of_computation(op, "in_shardings", [self._shape(v) for v in op.operands], manual)
        sums = self._partials(op, "in_shardings", len(ins))
        for argument, value, sharding, partial in zip(block.arguments, list(op.operands), ins, sums, strict=True):
            inner = tuple(tuple(a for a in axes if a not in manual) for axes in sharding)
            made = self._as(value, sharding, partial)
            self._parts[argument] = Part(made, inner, shape_of(argument.type), partial - set(manual))
        outs = self._of_computation(op, "out_shardings", [shape_of(r.type) for r in op.results], manual)
        outer, self._context = self._context, (*self._context, *manual)
        terminator = self._visit_all(block)
        with hlo_ir.InsertionPoint(terminator), terminator.location:
            sums = self._partials(op, "out_shardings", len(outs))
            for i, (result, sharding, partial) in enumerate(zip(op.results, outs, sums, strict=True)):
                inner = tuple(tuple(a for a in axes if a not in manual) for axes in sharding)
                made = terminator.operands[i] = self._as(terminator.operands[i], inner, partial - set(manual))
                self._parts[result] = Part(made, sharding, shape_of(result.type), partial)
        for each in [each.operation for each in block.operations][:-1]:
            each.move_before(op)
        self._context = outer
        self._drop(op)

    def _partials(self, op: Any, key: str, count: int) -> list[Partial]:
        return self.meshes.partials(op.attributes[key]) if key in op.attributes else [NOT_PARTIAL] * count

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
            if ON_PARTS in op.attributes:
                operands = [(value, self._parts[value].sharding) for value in op.operands]
                self._leave(op, [self._as(value, sharding) for value, sharding in operands])
            else:
                self._compute_once(op)
            return
        wanted, partial = self._wanted(op), self._wanted_partial(op)
        if partial or any(part.partial for part in parts):
            parts = self._with_sums(op, partial)
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
        self._compute_parts(op, behind, known, wanted, partial)

    def _wanted_partial(self, op: Any) -> Partial:
        """Return the axes along which all of an operation's results may stay sums of what the devices hold."""
        wanted = self._wanted_partials(op)
        return wanted[0].intersection(*wanted) if wanted else NOT_PARTIAL

    def _wanted_partials(self, op: Any) -> list[Partial]:
        """Return for each result the axes along which it may stay a sum: the operation says so, or its only user."""
        found = self._partials(op, SHARDING, len(op.results))
        for i, result in enumerate(op.results):
            uses = list(result.uses)
            if found[i] or len(uses) != 1:
                continue
            if uses[0].owner.name in RESHARDS:
                found[i] = self.meshes.partial(_target(uses[0].owner))
            elif uses[0].owner.name == "func.return":
                note = self._results[uses[0].operand_number]
                found[i] = NOT_PARTIAL if note is None else self.meshes.partial(note)
        return found

    def _with_sums(self, op: Any, partial: Partial) -> list[Part]:
        """Make of the operands what the operation can be computed of, on every device by itself."""
        parts = [self._parts[value] for value in op.operands]
        linear, is_multilinear = _linear_operands(op)
        if is_multilinear:  # in one operand at a time
            linear = [i for i in linear if parts[i].partial & partial][:1]
        for i, part in enumerate(parts):
            kept = NOT_PARTIAL
            if i in linear:
                kept = part.partial & partial if is_multilinear else partial
            if part.shape is not None and kept != part.partial:
                made = self._as(op.operands[i], part.sharding, kept)
                parts[i] = self._parts[made] = replace(part, value=made, partial=kept)
                op.operands[i] = made
        return parts

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
        partial = self._kept(op)
        for i, value in enumerate(operands):
            op.operands[i] = value
        for result in op.results:
            shape = shape_of(result.type)
            self._set(result, () if shape is None else whole(len(shape)), partial)

    def _kept(self, op: Any) -> Partial:
        return NOT_PARTIAL.union(*(self._parts[value].partial for value in op.operands))

    def _agree(self, op: Any, behind: Any) -> None:
        """Broadcast the first device's random numbers to all, as each draws its own."""
        if op.name == "stablehlo.rng" and not self._context:
            with hlo_ir.InsertionPoint(behind), op.location:
                self._parts[op.results[0]].value = self.emitter.from_first(op.results[0])

    def _compute_parts(
        self, op: Any, behind: Any, factors: Factors, wanted: list[Sharding] | None, may_stay: Partial
    ) -> None:
        values = list(op.operands)
        shapes = [self._shape(v) for v in values]
        chosen = cut_factors(factors, [self._parts[v].sharding for v in values], wanted, [prod(s) for s in shapes])
        if "replica_groups" in op.attributes or "source_target_pairs" in op.attributes:
            key = "replica_groups" if "replica_groups" in op.attributes else "source_target_pairs"
            groups = np.array(hlo_ir.DenseIntElementsAttr(op.attributes[key]))
            bad = unshared(groups, {a for axes in chosen.values() for a in axes}, self.devices)
            chosen = {f: axes for f, axes in chosen.items() if not bad & set(axes)}
        needed, kept = [sharding_by(ids, chosen) for ids in factors.operands], self._kept(op)
        if not chosen and any(any(self._parts[v].sharding) for v in values):
            self._note(op)
        for i, (value, sharding) in enumerate(zip(values, needed, strict=True)):
            op.operands[i] = self._as(value, sharding, self._parts[value].partial)
        made = [sharding_by(ids, chosen) for ids in factors.results]
        adapt(op, shapes, [tuple(v.type.shape) for v in op.operands])
        for result, sharding in zip(op.results, made, strict=True):
            self._set(result, sharding, kept)
        partial = tuple(axis for factor in factors.sums for axis in chosen.get(factor, ()))
        with hlo_ir.InsertionPoint(behind), op.location:
            if partial:
                part = self._parts[op.results[0]]
                stays = may_stay.intersection(partial) if factors.reducer == "stablehlo.add" else NOT_PARTIAL
                part.partial |= frozenset(partial)
                rest = tuple(axis for axis in partial if axis not in stays)
                self._added(part, rest, wanted[0] if wanted else None, factors.reducer)
            elif op.name == "stablehlo.iota":
                self._parts[op.results[0]].value = shift_iota(op, made[0], self.emitter)

    def _added(self, part: Part, axes: Axes, wanted: Sharding | None, reducer: str) -> Part:
        """Add up a part along some axes, in place; scatter it where it is wanted in such parts."""
        if not axes:
            return part
        part.partial -= frozenset(axes)
        others: set[Axis] = {*axes_of(part.sharding), *self._context, *part.partial}
        place = scattered(part.sharding, wanted, axes)
        if place is not None and wanted is not None:
            dimension, along = place
            part.value = self.emitter.reduce_scatter(part.value, dimension, along, others, reducer)
            part.sharding = wanted
        else:
            part.value = self.emitter.reduce(part.value, axes, others, reducer)
        return part

    def _inspect(self, op: Any, inspector: bytes) -> None:
        """Tell how an array lies on the devices, once: a program may be partitioned again for its text."""
        tell, INSPECTORS[inspector] = INSPECTORS[inspector], None
        if tell is not None:
            tell(self._parts[op.operands[0]].on_devices(self.devices))
        self._drop(op)

    def _note(self, op: Any) -> None:
        name = f"{op.name} @{call_target(op)}" if op.name == "stablehlo.custom_call" else str(op.name)
        self.replicated.setdefault(name, []).append(place_of(op.location))


def _linear_operands(op: Any) -> tuple[Sequence[int], bool]:
    """Return the operands that may be partial, and whether only one of them at a time."""
    traits = TRAITS.get(op.name)
    if traits is None or traits.linear_in is None:
        return (), False
    if op.name == "stablehlo.reduce" and factors_windows.reducer_of(op) != "stablehlo.add":
        return (), False
    if op.name in ROUNDED and not isinstance(op.results[0].type.element_type, (hlo_ir.FloatType, hlo_ir.ComplexType)):
        return (), False
    return traits.linear_in or range(len(op.operands)), traits.is_multilinear


def _inspector(op: Any) -> bytes:
    """Return the key of the function to which a call tells a sharding; nothing for other operations."""
    if op.name != "stablehlo.custom_call" or call_target(op) != INSPECT:
        return b""
    return bytes(hlo_ir.StringAttr(op.attributes["backend_config"]).value_bytes)


def _target(op: Any) -> Any:
    """Return the sharding to which an operation reshards."""
    return op.attributes["sharding" if "sharding" in op.attributes else "out_sharding"]


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
