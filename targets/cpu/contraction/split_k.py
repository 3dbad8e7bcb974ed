"""Last phase of a split-K contraction: reduction of the parts' partial sums, in the order of k."""

from __future__ import annotations

import math

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction
from stablexla.targets.codegen.match.epilogue import ContractionScene, ResultRow


def emit_split_k_reduction(
    kernel: Kernel, contraction: Contraction, target: CpuTarget, scratch: tuple[tuple[str, int], ...], parts: int
) -> Phase:
    """Emit the split-K reduction of partial sums in the last scratch buffer, contiguous by part; an item is a row."""
    c = contraction
    name = kernel.impl_name + "_sum"
    with kernel.phase(target, scratch, name) as arguments:
        scene = ContractionScene(c, arguments, arguments.scratch[-1])
        lanes = scene.lanes if scene.vectors else 0

        def add_up(row: ResultRow, column: Value, count: int) -> None:
            with cg.loop(1, parts, 1, [scene.load_partial(row, column, lanes, count)]) as part:
                offset = part.iv * math.prod(c.shape)
                part.yields(part.args[0] + scene.load_partial(row, column, lanes, count, offset))
            scene.write(part.results[0], row, column, count)

        with arguments.split_items([c.batches, c.m.extent]) as (batch, number):
            row = scene.row(scene.frame(batch), number)
            step = max(1, lanes)
            whole = c.n.extent // step * step
            with cg.loop(0, whole, step) as j:
                add_up(row, j.iv, step)
            if whole < c.n.extent:
                add_up(row, cg.index(whole), c.n.extent - whole)
    grain = max(1, round(4e4 / (c.n.extent * parts)))
    return Phase(name, c.batches * c.m.extent, grain)
