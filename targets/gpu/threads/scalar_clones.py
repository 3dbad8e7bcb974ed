"""Clone a kernel's scalar computations from its function on tensors into the thread's code."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import mlir.ir as ir

from stablexla.lowering.support.operations import captured, defining, remap

_TAKEN = ("arith", "math", "complex")


class ScalarClones:
    """Clone operations at the insertion point.

    Attributes:
        known: mapping from values of the function on tensors to their clones.
    """

    def __init__(self, known: dict[ir.Value, ir.Value]) -> None:
        self.known = dict(known)

    def of(self, value: ir.Value) -> ir.Value:
        """Return a value's clone; its defining operations are cloned first, operands before users."""
        waiting = [value]
        while waiting:
            now = waiting[-1]
            if now in self.known:
                waiting.pop()
                continue
            maker = defining(now)
            assert maker is not None, "a value that nothing stands for"
            missing = [v for v in _read_by(maker) if v not in self.known]
            if missing:
                waiting += missing
                continue
            copy = maker.clone().operation
            remap(copy, self.known)
            self.known.update(zip(maker.results, copy.results, strict=True))
        return self.known[value]


def element_loads(values: Iterable[ir.Value], given: Collection[ir.Value] = ()) -> list[ir.Operation] | None:
    """Return the element loads that values depend on; None if anything but arithmetic and branches is in the slice.

    Args:
        given: values that need not be computed. The function's arguments that are no arrays are such, too.
    """
    found: dict[ir.Operation, None] = {}
    seen: set[ir.Value] = set(given)
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        maker = defining(value)
        if maker is None:
            if isinstance(value.type, ir.RankedTensorType) or value.owner.owner.operation.name != "func.func":
                return None
        elif maker.name == "tensor.extract":
            found[maker] = None
        elif maker.name == "scf.if" or maker.name.split(".")[0] in _TAKEN:
            if any(isinstance(v.type, ir.RankedTensorType) for v in maker.results):
                return None
            waiting += _read_by(maker)
        else:
            return None
    return list(found)


def _read_by(maker: ir.Operation) -> list[ir.Value]:
    return [*maker.operands, *captured(maker)]
