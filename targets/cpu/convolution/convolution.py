"""Emitter of convolutions as implicit GEMM: M = output pixels, N = features (or channels), K = window x input features.

The part of lhs under an item's windows is packed, or read in place; any order of dimensions is computed by the same
loops: only packing and the stores of results differ.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.lowering.support.operations import is_tensor
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.convolution import MatchedConvolution, match_convolution
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.codegen.refusals import Refusal, refuse
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.cpu.contraction.register_tile import contraction_grain
from stablexla.targets.cpu.contraction.split_k import emit_split_k_reduction
from stablexla.targets.cpu.convolution.depthwise import DepthwiseInPlaceItem, DepthwiseItem
from stablexla.targets.cpu.convolution.driven_item import DrivenItem, is_driven
from stablexla.targets.cpu.convolution.implicit_gemm import ImplicitGemmItem
from stablexla.targets.cpu.convolution.packing import UnitConversion
from stablexla.targets.cpu.convolution.pixel_lanes import PixelLanesItem
from stablexla.targets.cpu.convolution.plan import ConvolutionPlan, ConvolutionSizes, plan_convolution, work_of
from stablexla.targets.cpu.convolution.weights import (
    ConvolutionWeights,
    PanelPacking,
    pack_weight_panel,
    pack_weights,
    panel_packing,
    reads_weights_in_place,
)
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.shared import SharedFunctions

_TOO_LARGE = Refusal("its windows need more memory than an emitter packs", "fewer input features in a group")


# Up to so many multiplications all that packs comes from the library, however much it is.
LIBRARY_WORK = Gate("convolution.library-work", 1 << 20, eager=1)
_LONG = Refusal("its arrays have 2^31 elements or more, and offsets in them are of 32 bits", "smaller arrays")


@emitter("convolution")
def emit_convolution(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit convolutions of elements of at least a byte; None for others, and for windows beyond the memory bound."""
    if any(is_tensor(value) and math.prod(value.type.shape) >= 1 << 31 for value in kernel.inputs):
        refuse(_LONG)
        return None
    with kernel.func.context, ir.Location.unknown():
        convolved = match_convolution(kernel)
        planned = plan_convolution(convolved, target) if convolved is not None else None
        if convolved is None or planned is None:
            refuse(_TOO_LARGE)
            return None
        sizes, plan = planned
        if convolved.contraction.b.number in kernel.lasting:
            plan = replace(plan, own_weights=False)  # packed once for many calls
        return _Windows(kernel, target, sizes, plan).emit()


def _packs_little(c: MatchedConvolution) -> bool:
    """Return whether packing is a small part of the work: outputs of many features and places share what is packed.

    With the library's packing such convolutions take up to 1% longer, others (grouped ones, gradients of weights) 8%.
    """
    pixels = c.last.outputs * math.prod(d.outputs for d in c.outer)
    return c.group.extent == 1 and c.taps <= pixels


class _Windows:
    """Code of a convolution's two functions: packing of the weights, and the sums."""

    def __init__(self, kernel: Kernel, target: CpuTarget, sizes: ConvolutionSizes, plan: ConvolutionPlan) -> None:
        self.kernel, self.target, self.sizes, self.plan = kernel, target, sizes.of_part(plan.depth), plan
        c = self.convolved = sizes.convolved
        self.shared = SharedFunctions(kernel, target, all_of_library=_packs_little(c) or work_of(c) <= LIBRARY_WORK())
        self.weights = ConvolutionWeights(
            groups=1 if plan.channels else c.group.extent,
            outputs=c.contraction.n.extent if plan.channels else c.outputs,
            width=plan.tile.vectors * self.sizes.lanes,
            parts=c.inputs.extent // plan.features,
            features=plan.features,
            taps=tuple((d.window, d.b) for d in (*c.outer, c.last)),
            group_stride=c.group.b,
            output_stride=c.contraction.n.b,
            input_stride=c.inputs.b,
            slots=rounded_up(plan.features * sizes.units.merged(c), sizes.units.step),
            merged=sizes.units.merged(c),
        )
        if not plan.channels and reads_weights_in_place(c, sizes.units, self.weights):
            self.weights = replace(self.weights, in_place=True)
            self.plan = replace(plan, own_weights=False)  # none packs them: it would into the caller's array

    def emit(self) -> Emitted:
        """Emit both functions."""
        kernel, contraction, order = self.kernel, self.convolved.contraction, self.plan.items(self.sizes)
        items = math.prod(order)
        grain = contraction_grain(contraction, items)
        scratch: tuple[tuple[str, int], ...] = ()
        phases = [Phase(kernel.impl_name, items, grain)]
        parts, shared = self.plan.parts(self.sizes), not (self.plan.own_weights or self.weights.in_place)
        if shared:
            scratch = ((str(self.sizes.units.type), self.weights.items * self.weights.block),)
        if self.plan.depth:
            scratch += ((str(self.sizes.units.sums), parts * math.prod(contraction.shape)),)
        if shared:
            phases.insert(0, self._emit_pack(scratch))
        with kernel.phase(self.target, scratch) as arguments:
            partial = arguments.scratch[-1] if self.plan.depth else None
            sums = self.sizes.units.sums
            scenes = (
                ContractionScene(contraction, arguments, partial, sums),
                ContractionScene(contraction.swapped(), arguments, compute=sums),
            )
            packed = arguments.scratch[0] if shared else None
            depthwise = self.plan.channels and packed is not None
            of_channels = DepthwiseInPlaceItem if self.plan.in_place else DepthwiseItem
            given = self.sizes, self.plan, self.weights, scenes, packed, self.shared
            if self._is_driven():
                own = self.packing if self.plan.own_weights else None
                DrivenItem(*given).drive((arguments.lo, arguments.hi), own)
            else:
                kind = of_channels if depthwise else PixelLanesItem if self.plan.across else ImplicitGemmItem
                item = kind(*given)
                with arguments.split_items(order) as place:
                    item.write(place)
        if self.plan.depth:
            phases.append(emit_split_k_reduction(kernel, contraction, self.target, scratch, parts))
        packs = contraction.packs(phases[0].function) if shared else ()
        return Emitted(items, grain, scratch, contraction.in_place, phases=tuple(phases), packs=packs)

    @cached_property
    def packing(self) -> PanelPacking | None:
        """How the library packs weights, in a phase or by items for themselves."""
        conversion = UnitConversion.of(self.convolved.contraction, self.sizes.units, lhs=False)
        return panel_packing(conversion, self.weights.panel(0, 0)) if self.shared.all_of_library else None

    def _is_driven(self) -> bool:
        """Whether the loop over items is a function of the library."""
        if not (self.shared.all_of_library and is_driven(self.sizes, self.plan)):
            return False
        return not self.plan.own_weights or self.packing is not None

    def _emit_pack(self, scratch: tuple[tuple[str, int], ...]) -> Phase:
        """Emit the phase that packs all weights; an item is a panel, for one part of the input features."""
        name, w = self.kernel.impl_name + "_pack", self.weights
        grain = max(1, round(2e4 / w.block))
        with self.kernel.phase(self.target, scratch, name) as arguments:
            scene, buffer = ContractionScene(self.convolved.contraction, arguments), arguments.scratch[0]
            if self.packing is not None:
                source = scene.inputs[scene.contraction.b.number]
                pack_weights(self.shared, self.packing, w, [source, buffer], arguments.lo, arguments.hi)
                return Phase(name, w.items, grain)
            with arguments.items(w.items) as number:
                group, panel, part = cg.split_index(number, [w.groups, w.panels, w.parts])
                place = (group, panel, part)
                pack_weight_panel(self.shared, scene, self.sizes.units, w, place, buffer, number * w.block)
        return Phase(name, w.items, grain)
