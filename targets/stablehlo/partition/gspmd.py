"""Conversion of GSPMD's shardings, texts such as `{devices=[2,1]<=[2]}`, to Shardy's attributes and to `Sharding`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir
from jaxlib.mlir.dialects import sdy

from stablexla.dialects.attributes.sharding_tiles import tiles_of
from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import ShapeError, UnsupportedError
from stablexla.lowering.support.context import place_of
from stablexla.targets.stablehlo.meshes import call_target
from stablexla.targets.stablehlo.partition.annotations import SHARDING, shape_of
from stablexla.targets.stablehlo.partition.axes import (
    Axis,
    Sharding,
    coordinates_of,
    fitting,
    primes,
    split_axis,
    whole,
)

KEY = "mhlo.sharding"
BEFORE = "stablexla.before"
"""Attribute at the entry of a manual region: the sharding of the array whose parts enter."""
FULL_TO_SHARD, SHARD_TO_FULL = "SPMDFullToShardShape", "SPMDShardToFullShape"
MESH = "gspmd"
_EACH = re.compile(r"\{[^{}]*\}")


def written_sharding(op: Any, key: str, shape: Sequence[int], devices: int) -> Sharding:
    """Parse the text on an operation as its result's sharding.

    Raises:
        UnsupportedError: it says nothing, or nothing that is understood.
    """
    if key not in op.attributes:
        raise UnsupportedError("nothing says how the array lies on the devices", operation=FULL_TO_SHARD)
    return sharding_of(str(hlo_ir.StringAttr(op.attributes[key]).value), shape, devices, place_of(op.location))


def sharding_of(text: str, shape: Sequence[int], devices: int, place: str = "") -> Sharding:
    """Parse a text as a sharding of an array.

    Raises:
        UnsupportedError: it is not understood, or does not fit the array or the number of devices; the message ends
            with `place`.
    """
    if "unreduced" in text:
        raise UnsupportedError(f"an array of sums that are not added up yet: {text}{place}", operation=KEY)
    try:
        tiles = tiles_of(text)
    except ShapeError as error:
        raise UnsupportedError(error.summary + place, operation=KEY, hint=error.hint) from None
    if tiles is None:
        if any(word in text for word in ("replicated", "maximal", "manual", "unknown")):
            return whole(len(shape))
        raise UnsupportedError(f"the sharding {text}{place}", operation=KEY)
    sizes, order = tiles
    if len(sizes) < len(shape):
        told = f"the sharding {text} must have a number for each dimension of {list(shape)}{place}"
        raise UnsupportedError(told, operation=KEY)
    if len(order) != devices:
        told = f"the sharding {text} is one over {len(order)} devices, and the program is compiled for {devices}{place}"
        raise UnsupportedError(told, operation=KEY, hint=f"sx.compile(program, num_partitions={len(order)})")
    columns = coordinates_of(sizes, order)
    axes = [tuple(split_axis(f"d{i}", n, c)) for i, (n, c) in enumerate(zip(sizes, columns, strict=True))]
    return fitting(shape, tuple(axes[: len(shape)]))


def is_manual(op: Any) -> bool:
    """Whether a text marks an operation as part of a manual region."""
    return KEY in op.attributes and "manual" in str(op.attributes[KEY])


def as_shardy(module: hlo_ir.Module, devices: int) -> None:
    """Convert the texts on parameters, results, operations and constraints to Shardy's attributes on one mesh.

    Its axes have prime sizes. Shardings that they cannot express are dropped: those arrays are replicated.
    """
    sizes = primes(devices)
    columns = coordinates_of(sizes, list(range(devices)))
    known = {Axis(n, c): f"p{i}" for i, (n, c) in enumerate(zip(sizes, columns, strict=True))}
    with module.context, hlo_ir.Location.unknown():
        axes = [sdy.MeshAxisAttr.get(name, axis.size) for axis, name in known.items()]
        with hlo_ir.InsertionPoint.at_block_begin(module.body):
            hlo_ir.Operation.create(
                "sdy.mesh", attributes={"sym_name": hlo_ir.StringAttr.get(MESH), "mesh": sdy.MeshAttr.get(axes)}
            )
        for function in module.body.operations:
            if function.operation.name == "func.func":
                _annotate(function.operation, known, devices)
        notes: list[Any] = []

        def note(op: Any) -> hlo_ir.WalkResult:
            if KEY in op.attributes:
                notes.append(op.operation)
            return hlo_ir.WalkResult.ADVANCE

        module.operation.walk(note)
        for op in notes:
            if op.name != "stablehlo.custom_call":
                _annotate_results(op, known, devices)
            elif call_target(op) == "Sharding":
                _constrain(op, known, devices)


def _attribute(text: str, shape: Sequence[int], known: dict[Axis, str], devices: int, place: str) -> Any:
    sharding = sharding_of(text, shape, devices, place)
    if any(axis not in known for axes in sharding for axis in axes):
        sharding = whole(len(shape))
    dimensions = [
        sdy.DimensionShardingAttr.get([sdy.AxisRefAttr.get(known[axis]) for axis in axes], is_closed=True)
        for axes in sharding
    ]
    return sdy.TensorShardingAttr.get(MESH, dimensions)


def _annotate(function: Any, known: dict[Axis, str], devices: int) -> None:
    type_ = hlo_ir.FunctionType(hlo_ir.TypeAttr(function.attributes["function_type"]).value)
    for key, types, what in (("arg_attrs", type_.inputs, "parameter"), ("res_attrs", type_.results, "result")):
        if key not in function.attributes:
            continue
        rows = []
        for number, (row, each) in enumerate(zip(hlo_ir.ArrayAttr(function.attributes[key]), types, strict=True)):
            named = {n.name: n.attr for n in hlo_ir.DictAttr(row)}
            if KEY in named and shape_of(each) is not None:
                text = str(hlo_ir.StringAttr(named.pop(KEY)).value)
                named["sdy.sharding"] = _attribute(text, each.shape, known, devices, f"\n  from {what} {number}")
            rows.append(hlo_ir.DictAttr.get(named))
        function.attributes[key] = hlo_ir.ArrayAttr.get(rows)


def _annotate_results(op: Any, known: dict[Axis, str], devices: int) -> None:
    """Annotate an operation's results from its text: of one, or "{{...}, {...}}" of several."""
    text = str(hlo_ir.StringAttr(op.attributes[KEY]).value)
    each = _EACH.findall(text[1:-1]) if text.startswith("{{") else [text] * len(op.results)
    shapes = [shape_of(r.type) for r in op.results]
    told = ["devices=[" in t or "replicated" in t for t in each]
    if not shapes or None in shapes or len(each) != len(shapes) or not all(told):
        return
    place = place_of(op.location)
    values = [_attribute(t, shape or (), known, devices, place) for t, shape in zip(each, shapes, strict=True)]
    op.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get(values)


def _constrain(op: Any, known: dict[Axis, str], devices: int) -> None:
    """Add a constraint beside the call, which stays where a manual region begins after it."""
    value, result = op.operands[0], op.results[0]
    crossings = [use.owner.operation for use in result.uses if use.owner.operation.name == "stablehlo.custom_call"]
    for other in crossings:
        if call_target(other) in (FULL_TO_SHARD, SHARD_TO_FULL):
            other.attributes[BEFORE] = op.attributes[KEY]
    text = str(hlo_ir.StringAttr(op.attributes[KEY]).value)
    if is_manual(op):
        result.replace_all_uses_with(value)
        erase(op)
        return
    with hlo_ir.InsertionPoint(op), op.location:
        made = hlo_ir.Operation.create(
            "sdy.sharding_constraint",
            results=[result.type],
            operands=[value],
            attributes={"sharding": _attribute(text, result.type.shape, known, devices, place_of(op.location))},
        )
    result.replace_all_uses_with(made.results[0])
    erase(op)
