"""`chlo.ragged_dot` with more free dimensions of its left operand, which jaxlib cannot decompose.

They become batching dimensions of the same operation, beside the ragged one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.hlo import broadcast, tensor
from stablexla.targets.stablehlo.imports.replacements import is_static, replaces

_NUMBERS = re.compile(r"(\w+) = \[([\d, ]*)\]")
_NAME = "ragged_dot_dimension_numbers"
Numbers = Mapping[str, Sequence[int]]


@replaces("chlo.ragged_dot")
def ragged_dot(op: Any) -> list[Any] | None:
    """Rewrite a grouped GEMM: each group of rows is multiplied by its own matrix, rhs has a group dimension."""
    lhs, rhs, sizes = op.operands
    numbers = _read(op.attributes[_NAME])
    batch, (ragged,) = numbers["lhs_batching_dimensions"], numbers["lhs_ragged_dimensions"]
    contracting = numbers["lhs_contracting_dimensions"]
    taken = {*batch, *contracting}
    rows = [d for d in range(lhs.type.rank) if d not in taken]
    free = [d for d in rows if d != ragged]
    if not is_static(op) or not numbers["rhs_group_dimensions"] or not free:
        return None
    extents = [lhs.type.shape[d] for d in free]
    count = len(free)
    attributes = dict(op.attributes.items())
    attributes[_NAME] = _written(
        {
            "lhs_batching_dimensions": range(len(batch) + count),
            "rhs_batching_dimensions": [*(d + count for d in numbers["rhs_batching_dimensions"]), *range(count)],
            "lhs_contracting_dimensions": range(lhs.type.rank - len(contracting), lhs.type.rank),
            "rhs_contracting_dimensions": [d + count for d in numbers["rhs_contracting_dimensions"]],
            "lhs_ragged_dimensions": [len(batch) + count],
            "rhs_group_dimensions": [d + count for d in numbers["rhs_group_dimensions"]],
        }
    )
    ordered = stablehlo.transpose(lhs, [*batch, *free, ragged, *contracting])
    wide = broadcast(rhs, [*extents, *rhs.type.shape], range(count, count + rhs.type.rank))
    if sizes.type.rank > 1:  # those of the free dimensions behind the ragged one are missing
        shape = [*(lhs.type.shape[d] for d in batch), *extents, sizes.type.shape[-1]]
        sizes = broadcast(sizes, shape, [*range(sizes.type.rank - 1), len(shape) - 1])
    # The result has the batching dimensions, then the ragged one, then those of the right operand.
    result, first = op.results[0].type, len(batch)
    at = [first + (count if d == ragged else free.index(d)) for d in rows]
    order = [*range(first), *at, *range(first + len(rows), result.rank)]
    shape = [0] * result.rank
    for place, d in enumerate(order):
        shape[d] = result.shape[place]
    made = ir.Operation.create(
        op.name, results=[tensor(result, shape)], operands=[ordered, wide, sizes], attributes=attributes
    )
    return [stablehlo.transpose(made.results[0], order)]


def _read(attribute: Any) -> Numbers:
    """Parse the lists of dimensions; MLIR prints only nonempty ones."""
    found = {name: [int(n) for n in re.findall(r"\d+", numbers)] for name, numbers in _NUMBERS.findall(str(attribute))}
    sides = [f"{side}_{kind}_dimensions" for side in ("lhs", "rhs") for kind in ("batching", "contracting")]
    return {name: found.get(name, []) for name in (*sides, "lhs_ragged_dimensions", "rhs_group_dimensions")}


def _written(numbers: Numbers) -> Any:
    return ir.Attribute.parse(f"#chlo.ragged_dot<{', '.join(f'{name} = {[*n]}' for name, n in numbers.items())}>")
