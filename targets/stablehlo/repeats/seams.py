"""Where a program may be cut without parting what one kernel would compute.

An approximation of grouping (`targets/grouping/group.py`) on StableHLO: element-wise operations and reductions join the
kernel of what they read, but not that of a product with other readers, and none that they also depend on by way of
another kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stablexla.targets.stablehlo.repeats.dataflow import ELEMENTWISE, LIGHT, PRODUCTS, Dataflow

if TYPE_CHECKING:
    from stablexla.targets.stablehlo.repeats.search import Period, Repeat


IN_EPILOGUES = ELEMENTWISE | {f"stablehlo.{name}" for name in ("broadcast_in_dim", "convert", "reshape", "transpose")}
"""Operations that may be computed in the kernel of a product, or lead to one that may."""
_FUSED = LIGHT | PRODUCTS


class Seams:
    """Predict fusion across a cut of a block: liveness, products with epilogues, and dependences through other kernels.

    Attributes:
        alive: for each node, how many values made before it are read at it or later, but for the block's results.
    """

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        # The last operation that is a kernel of its own, and on which a node's kernel depends.
        self._heavy: list[int] = []
        # Whether a node is a product or its epilogue, and whether it depends on a reduction in its own kernel.
        self._is_product: list[bool] = []
        self._is_reduced: list[bool] = []
        for number, node in enumerate(flow.nodes):
            makers = [maker for maker, _ in node.slots if maker >= 0]
            light = node.op.name in LIGHT
            reduced = light and (node.op.name == "stablehlo.reduce" or any(self._is_reduced[m] for m in makers))
            epilogue = light and not reduced and any(self._is_product[m] for m in makers)
            self._heavy.append(max((self._heavy[m] for m in makers), default=-1) if light else number)
            self._is_reduced.append(reduced)
            self._is_product.append(epilogue or node.op.name in PRODUCTS)
        self.alive = self._count_alive()

    def _count_alive(self) -> np.ndarray:
        change = np.zeros(len(self._flow.nodes) + 2, np.int64)
        for number, node in enumerate(self._flow.nodes):
            for readers in node.readers:
                inside = [reader for reader in readers if reader < len(self._flow.nodes)]
                if inside:
                    change[number + 1] += 1
                    change[max(inside) + 1] -= 1
        return np.cumsum(change)

    def is_chain(self, period: Period) -> bool:
        """Whether the operations of a period are element-wise and read what those of the stretch before made.

        Every cut of it parts what fuses.
        """
        low, length = period.start, period.length
        reads = any(
            low <= m < low + length for n in self._flow.nodes[low + length : low + 2 * length] for m, _ in n.slots
        )
        return reads and all(node.op.name in ELEMENTWISE for node in self._flow.nodes[low : period.end])

    def parts_what_fuses(self, repeat: Repeat) -> bool:
        """Whether a result of one of the stretches has a reader that could be computed with it."""
        for k in range(repeat.count):
            low = repeat.start + k * repeat.length
            for offset, position in repeat.results:
                maker = low + offset
                readers = self._flow.nodes[maker].readers[position]
                outside = [r for r in readers if not low <= r < low + repeat.length]
                if any(self._fuses(maker, reader, len(readers)) for reader in outside):
                    return True
        return False

    def _fuses(self, maker: int, reader: int, readers: int) -> bool:
        if self._flow.nodes[maker].op.name == "stablehlo.broadcast_in_dim":
            return True  # it would be stored
        if reader >= len(self._flow.nodes) or self._flow.nodes[maker].op.name not in _FUSED:
            return False
        joins = IN_EPILOGUES if self._is_product[maker] else LIGHT
        if self._flow.nodes[reader].op.name not in joins or (self._is_product[maker] and readers > 1):
            return False
        others = [m for m, _ in self._flow.nodes[reader].slots if m >= 0 and m != maker]
        return all(self._heavy[other] <= maker for other in others)


__all__ = ["Seams"]
