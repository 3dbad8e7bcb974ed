"""select_and_scatter, the gradient of pooling, as a gather: windows select elements, then elements gather windows.

An element combines the updates of the windows that selected it in their order, so results do not depend on threads.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.window.axes import Axis
from stablexla.lowering.kernels.window.select import SelectAndScatterConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.combiners import combine_values, compare
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.refusals import Refusal, refuse
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import Launch, coordinates, grid_loop, kernel_function, launched

# (indices along the axes so far, loop-carried values) -> loop-carried values.
_Iteration = Callable[[list[Value], list[Value]], list[Value]]


_SELECTION = Refusal(
    "emitters take one comparison and one operation, on fewer than 2^31 elements",
    "a comparison such as ge with an add",
)


@gpu_emitter("select_and_scatter")
def emit_select_and_scatter(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit selections by one comparison, combined by one operation."""
    config = kernel.config(SelectAndScatterConfig)
    axes = config.axes
    positions, elements = (prod(n) for n in zip(*((axis.positions, axis.extent) for axis in axes), strict=True))
    plain = isinstance(kernel.results[0].type.element_type, ir.FloatType | ir.IntegerType)
    known = config.select and config.scatter and config.plain and plain
    if not known or max(positions, elements) >= 1 << 31:
        refuse(_SELECTION)
        return None
    scratch = (("i32", positions),)
    names = f"{kernel.impl_name}_selected", f"{kernel.impl_name}_combined"
    windows = _Windows(axes, config.select, config.scatter, config.unsigned)
    with kernel_function(kernel, Launch.for_items(positions), names[0], scratch) as arguments:
        source, chosen = arguments.inputs[0], arguments.scratch[0]
        with grid_loop(positions) as item:
            cg.store(windows.selected(source, item.iv), chosen, item.iv)
    with kernel_function(kernel, Launch.for_items(elements), names[1], scratch) as arguments:
        given, start, chosen = arguments.inputs[1], arguments.inputs[2], arguments.scratch[0]
        with grid_loop(elements) as item:
            total = windows.combined(item.iv, cg.load(start, item.iv), given, chosen)
            cg.store(total, arguments.results[0], item.iv)
    return launched(names, scratch)


@dataclass(frozen=True)
class _Windows:
    """All windows, and the two computations."""

    axes: tuple[Axis, ...]
    direction: str
    operation: str
    unsigned: bool

    def selected(self, source: Value, window: Value) -> Value:
        """Return the position of a window's selected element as an i32; -1 if all of it is padding."""
        i32 = ir.IntegerType.get_signless(32)
        places = coordinates(window, [axis.positions for axis in self.axes])
        firsts = [place * axis.stride - axis.low for place, axis in zip(places, self.axes, strict=True)]

        def bounds(d: int) -> tuple[Value, Value]:
            axis = self.axes[d]
            return cg.maximum(firsts[d], 0), _smaller(firsts[d] + axis.size, axis.extent)

        def look(at: list[Value], carried: list[Value]) -> list[Value]:
            best, found = carried
            place = sum((i * axis.step for i, axis in zip(at, self.axes, strict=True)), cg.index(0))
            value = cg.load(source, place)
            keeps = compare(self.direction, _wide(best), _wide(value), unsigned=self.unsigned) & found.ge(0)
            return [cg.select(keeps, best, value), cg.select(keeps, found, cg.cast_index(place, i32))]

        return self._walk(bounds, [cg.constant(0, source.element), cg.constant(-1, i32)], look)[1]

    def combined(self, element: Value, start: Value, given: Value, chosen: Value) -> Value:
        """Combine the updates of the windows that selected an element."""
        places = coordinates(element, [axis.extent for axis in self.axes])
        here = cg.cast_index(element, chosen.element)

        def bounds(d: int) -> tuple[Value, Value]:
            axis = self.axes[d]
            reach = places[d] + axis.low
            first = (cg.maximum(reach - (axis.size - 1), 0) + (axis.stride - 1)) // axis.stride
            behind = _smaller(cg.maximum(reach, 0) // axis.stride + 1, axis.positions)
            return first, cg.select(reach.lt(0), cg.index(0), behind)

        def look(at: list[Value], carried: list[Value]) -> list[Value]:
            window = sum((p * axis.position_step for p, axis in zip(at, self.axes, strict=True)), cg.index(0))
            side = cg.branch(cg.load(chosen, window).eq(here), [start.type])
            with side.then:
                side.yields(self._join(carried[0], cg.load(given, window)))
            with side.otherwise:
                side.yields(carried[0])
            return side.results

        return self._walk(bounds, [start], look)[0]

    def _walk(
        self, bounds: Callable[[int], tuple[Value, Value]], carried: list[Value], body: _Iteration
    ) -> list[Value]:
        """Emit a loop nest over the bounds of each axis, row-major."""

        def deeper(at: list[Value], carried: list[Value]) -> list[Value]:
            if len(at) == len(self.axes):
                return body(at, carried)
            low, high = bounds(len(at))
            if self.axes[len(at)].alone:
                return deeper([*at, low], carried)
            with cg.loop(low, high, 1, carried) as each:
                each.yields(*deeper([*at, each.iv], each.args))
            return each.results

        return deeper([], carried)

    def _join(self, a: Value, b: Value) -> Value:
        """Combine two values; narrow floats are combined in f32, and rounded each time."""
        if not cg.is_float(a.type) or cg.bits_of(a.type) >= 32:
            return combine_values(self.operation, a, b, unsigned=self.unsigned)
        return cg.to_float(combine_values(self.operation, _wide(a), _wide(b), unsigned=self.unsigned), a.type)


def _wide(value: Value) -> Value:
    """Promote narrow floats to f32: comparisons of bf16 came with sm_90, and no CPU has them."""
    narrow = cg.is_float(value.type) and cg.bits_of(value.type) < 32
    return cg.to_float(value, ir.F32Type.get()) if narrow else value


def _smaller(a: Value, b: int) -> Value:
    """Return the signed minimum of two indices."""
    return Value(arith.minsi(a.ssa, cg.index(b).ssa))
