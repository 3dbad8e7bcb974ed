"""Split-K: products of few blocks and a long k; blocks compute partial sums of parts of k, a second launch adds them.

The reduction is in order, so that results are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.match.contraction import Contraction
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.gpu.contraction.epilogue import lanes_for
from stablexla.targets.gpu.threads import Launch, coordinates, grid_loop, kernel_function, launched


def split_k_workspace(parts: int, sums: str, c: Contraction) -> tuple[tuple[str, int], ...]:
    """Return the workspace for the partial sums; `sums`: their type."""
    return ((sums, parts * c.batches * c.m.extent * c.n.extent),) if parts > 1 else ()


def emit_split_k(
    kernel: Kernel,
    c: Contraction,
    first: Launch,
    parts: int,
    sums: str,
    write: Callable[[KernelArguments, Value | None], None],
) -> Emitted:
    """Emit the kernel in one launch, or, with several parts of k, in two.

    `write` emits a thread's code of the first one; its argument is the array for partial sums, if there is one.
    """
    if parts == 1:
        with kernel_function(kernel, first) as arguments:
            write(arguments, None)
        return Emitted(first.blocks, 1)
    scratch, lanes = split_k_workspace(parts, sums, c), lanes_for(c)
    names = f"{kernel.impl_name}_parts", f"{kernel.impl_name}_whole"
    with kernel_function(kernel, first, names[0], scratch) as arguments:
        write(arguments, arguments.scratch[0])
    second = Launch.for_items(c.batches * c.m.extent * c.n.extent // lanes)
    with kernel_function(kernel, second, names[1], scratch) as arguments:
        _add_parts(parts, c, arguments, lanes)
    return launched(names, scratch)


def _add_parts(parts: int, c: Contraction, arguments: KernelArguments, lanes: int) -> None:
    """Emit one thread of the reducing launch."""
    scene, partial = ContractionScene(c, arguments), arguments.scratch[0]
    extents = [c.batches, c.m.extent, c.n.extent // lanes]
    items, width = prod(extents), 0 if lanes == 1 else lanes
    with grid_loop(items) as item:
        batch, row, column = coordinates(item.iv, extents)
        at = item.iv * lanes
        total = cg.load(partial, at, width)
        for part in range(1, parts):
            total = total + cg.load(partial, at + part * items * lanes, width)
        scene.write(total, scene.row(scene.frame(batch), row), column * lanes, lanes)
