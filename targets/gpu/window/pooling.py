"""Pooling (windowed reductions): a thread computes a vector of the result along the last dimension, or one element.

Windows are short and unrolled, so that all their loads are in flight together. Loads of padding are clamped to the
array's edge and masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import mlir.ir as ir

from stablexla.lowering.kernels.window.axes import Axis
from stablexla.lowering.rules.window import PoolConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.combiners import combine_values, identity
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.refusals import POOLED, refuse
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import Launch, access_lanes, coordinates, grid_loop, kernel_function, unlaunched

Fold = Callable[[Value, Value], Value]


@gpu_emitter("pool")
def emit_pool(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit window reductions by one operation: of integers, floats of 32 and 64 bits, min and max of 16-bit floats."""
    config = kernel.config(PoolConfig)
    name, unsigned = config.computation, config.unsigned
    element = kernel.inputs[0].type.element_type
    with kernel.func.context:
        wide = ir.F32Type.get() if cg.is_float(element) and cg.bits_of(element) == 16 else element
    exact = wide == element or name in ("maximum", "minimum")
    if not exact or identity(name, wide, unsigned=unsigned) is None:
        refuse(POOLED)
        return None
    pool = _Pool(kernel, config.axes, wide, lambda a, b: combine_values(name, a, b, unsigned=unsigned))
    if not pool.items:
        return unlaunched(kernel)
    with kernel_function(kernel, Launch.for_items(pool.items)) as arguments, grid_loop(pool.items) as item:
        pool.write(arguments, item.iv)
    return Emitted(pool.items, pool.items)


class _Pool:
    """The windows of a kernel."""

    def __init__(self, kernel: Kernel, axes: tuple[Axis, ...], wide: ir.Type, fold: Fold) -> None:
        self.axes, self.wide, self.fold = axes, wide, fold
        last, bits = self.axes[-1], cg.bits_of(kernel.inputs[0].type.element_type)
        self.lanes = access_lanes(bits, last.extent) if last.alone else 1
        self.items = prod(axis.positions for axis in self.axes) // self.lanes

    def write(self, arguments: KernelArguments, item: Value) -> None:
        """Emit one vector of the result."""
        source, result = arguments.inputs[0], arguments.results[0]
        positions = [axis.positions for axis in self.axes]
        positions[-1] //= self.lanes
        places = coordinates(item, positions)
        places[-1] = places[-1] * self.lanes
        width = 0 if self.lanes == 1 else self.lanes
        total = cg.splat(cg.to_float(arguments.inputs[1], self.wide), width)

        def read(at: Value) -> Value:
            return cg.to_float(cg.load(source, at, width), self.wide)

        total = self._written_out(places, read, total)
        at = sum((p * a.position_step for p, a in zip(places, self.axes, strict=True)), cg.index(0))
        cg.store(cg.to_float(total, source.element), result, at)

    def _written_out(self, places: Sequence[Value], read: Callable[[Value], Value], total: Value) -> Value:
        along = [_along(axis, place) for axis, place in zip(self.axes, places, strict=True)]
        found = []
        for window in product(*along):
            inside, at = None, cg.index(0)
            for offset, within in window:
                at = at + offset
                if within is not None:
                    inside = within if inside is None else inside & within
            found.append((read(at), inside))
        for value, inside in found:
            made = self.fold(total, value)
            total = made if inside is None else cg.select(inside, made, total)
        return total


def _along(axis: Axis, place: Value) -> list[tuple[Value, Value | None]]:
    """Return the positions of a window's elements along an axis, with their masks of padding, if there is any."""
    if axis.alone:
        return [(place * axis.step, None)]
    found: list[tuple[Value, Value | None]] = []
    for number in range(axis.size):
        here = place * axis.stride + (number - axis.low)
        first, last = number - axis.low, (axis.positions - 1) * axis.stride + number - axis.low
        if first >= 0 and last < axis.extent:
            found.append((here * axis.step, None))
            continue
        near = cg.minimum(cg.maximum(here, 0), axis.extent - 1)
        found.append((near * axis.step, here.ge(0) & here.lt(axis.extent)))
    return found
