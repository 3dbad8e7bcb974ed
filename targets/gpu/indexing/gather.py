"""Gathers: a thread copies a vector of a slice's elements, or one element."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

import mlir.ir as ir

from stablexla.dialects.element_types import BY_NAME
from stablexla.lowering.rules.indexing import GatherAxis, GatherConfig, GatherStart
from stablexla.lowering.rules.shape import as_index, held_within
from stablexla.lowering.support.storage import from_storage
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import Launch, access_lanes, coordinates, grid_loop, kernel_function


@gpu_emitter("gather")
def emit_gather(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit any gather."""
    config = kernel.config(GatherConfig)
    axes = config.axes
    lanes = _lanes(axes, config.starts, kernel.results[0].type.element_type)
    extents = [axis.extent for axis in axes] or [1]
    extents[-1] //= lanes
    items = prod(extents)
    type_ = BY_NAME[config.index_type]
    with kernel_function(kernel, Launch.for_items(items)) as arguments:
        operand, indices = arguments.inputs[:2]
        result = arguments.results[0]
        with grid_loop(items) as item:
            at = coordinates(item.iv, extents)
            at = [*at[:-1], at[-1] * lanes] if axes else []
            vector = cg.total([i * axis.index_step for i, axis in zip(at, axes, strict=True)])
            place = cg.total([i * axis.operand_step for i, axis in zip(at, axes, strict=True)])
            written = cg.total([i * axis.result_step for i, axis in zip(at, axes, strict=True)])
            for start in config.starts:
                is_array = isinstance(indices.type, ir.MemRefType)
                given = from_storage((cg.load(indices, vector + start.offset) if is_array else indices).ssa, type_)
                if start.highest is not None:
                    given = held_within(given, type_, start.highest)
                place = place + Value(as_index(given, type_)) * start.step
            cg.store(cg.load(operand, place, 0 if lanes == 1 else lanes), result, written)
    return Emitted(items, items)


def _lanes(axes: Sequence[GatherAxis], starts: Sequence[GatherStart], element: ir.Type) -> int:
    """Return the vector width: every slice and each row of it begins at a multiple of it."""
    if not axes or not isinstance(element, ir.FloatType | ir.IntegerType):
        return 1
    *outer, row = axes
    if (row.index_step, row.operand_step, row.result_step) != (0, 1, 1):
        return 1
    steps = [step for axis in outer for step in (axis.operand_step, axis.result_step)]
    return gcd(access_lanes(cg.bits_of(element), most=16), row.extent, *steps, *(start.step for start in starts))
