"""Which dimensions of an operation's operands and results are one and the same, and can be cut together.

A factor is a number that stands for such a dimension. Along a factor every device computes its part of the results from
its parts of the operands with the same operation; along a factor that is summed over it has a part of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeAlias

import jaxlib.mlir.ir as hlo_ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.op_traits import operations
from stablexla.targets.stablehlo.meshes import call_target

Shape: TypeAlias = Sequence[int]
Ids: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True)
class Factors:
    """For each dimension of each operand and result its factor; None where it must be whole.

    Attributes:
        sums: factors that no result has.
        reducer: how the parts are put together along those.
    """

    operands: tuple[Ids, ...]
    results: tuple[Ids, ...]
    sums: tuple[int, ...] = ()
    reducer: str = "stablehlo.add"


_FRONTEND = "mhlo.frontend_attributes"
Rule = Callable[[Any, list[Shape], list[Shape]], Factors | None]
RULES: dict[str, Rule] = {}

CUT_ALIKE = frozenset(operations(lambda traits: traits.is_elementwise or traits.is_cut_alike))
"""Operations every dimension of which can be cut."""


def factors_of(op: Any, operands: list[Shape], results: list[Shape]) -> Factors | None:
    """The factors of an operation on arrays of these shapes; None where nothing is known of it."""
    if op.name in CUT_ALIKE and "has_dynamic_root" not in op.attributes:
        return _elementwise(operands, results)
    rule = RULES.get(op.name)
    return None if rule is None else rule(op, operands, results)


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys((f"stablehlo.{name}" for name in names), rule))
        return rule

    return register


def _elementwise(operands: list[Shape], results: list[Shape]) -> Factors | None:
    shape = max(results, key=len)
    ids = tuple(range(len(shape)))
    if any(list(s) != list(shape) and len(s) for s in (*operands, *results)):
        return None
    taken, given = (tuple(ids if len(s) else () for s in shapes) for shapes in (operands, results))
    return Factors(taken, given)


def _where(kept: Sequence[bool]) -> Ids:
    return tuple(i if keep else None for i, keep in enumerate(kept))


def _except(rank: int, *dimensions: int) -> Ids:
    return _where([i not in dimensions for i in range(rank)])


def ints(op: Any, name: str, default: Sequence[int] = ()) -> list[int]:
    """An attribute of numbers, which may be an array or a tensor of them."""
    if name not in op.attributes:
        return list(default)
    attribute = op.attributes[name]
    if isinstance(attribute, hlo_ir.DenseI64ArrayAttr):
        return [int(i) for i in hlo_ir.DenseI64ArrayAttr(attribute)]
    return [int(i) for i in np.array(hlo_ir.DenseIntElementsAttr(attribute)).reshape(-1)]


def integer(op: Any, name: str, default: int = 0) -> int:
    """An attribute that is a number."""
    return int(hlo_ir.IntegerAttr(op.attributes[name]).value) if name in op.attributes else default


def value_text(op: Any) -> str:
    """A constant's value as text, without its type. The binding cannot give attributes of complex numbers."""
    notes = [op.attributes[i] for i in range(len(op.attributes))]
    return next(str(note) for note in notes if note.name == "value").partition("=")[2].rpartition(" : ")[0]


@_rule("bitcast_convert")
def _bitcast_convert(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    """The wider side lacks the last dimension where the widths differ."""
    wide, narrow = sorted((len(operands[0]), len(results[0])))
    kept = tuple(range(wide))
    longer = (*kept, *((None,) * (narrow - wide)))
    return Factors((longer if len(operands[0]) > wide else kept,), (longer if len(results[0]) > wide else kept,))


@_rule("transpose")
def _transpose(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    return Factors((tuple(range(len(operands[0]))),), (tuple(ints(op, "permutation")),))


@_rule("broadcast_in_dim")
def _broadcast(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    places = ints(op, "broadcast_dimensions")
    ids = tuple(d if n == results[0][d] else None for d, n in zip(places, operands[0], strict=True))
    return Factors((ids,), (tuple(range(len(results[0]))),))


@_rule("constant", "iota")
def _made_here(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    return Factors((), (tuple(range(len(results[0]))),))


@_rule("concatenate")
def _concatenate(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    ids = _except(len(results[0]), integer(op, "dimension"))
    return Factors((ids,) * len(operands), (ids,))


@_rule("custom_call")
def _lapack(op: Any, operands: list[Shape], results: list[Shape]) -> Factors | None:
    """Cut batches of matrices: JAX says how many dimensions are before those that a function of LAPACK reads."""
    notes = op.attributes.get(_FRONTEND, {})
    if "num_batch_dims" not in notes or not call_target(op).startswith("lapack_"):
        return None
    batch = int(hlo_ir.StringAttr(notes["num_batch_dims"]).value)
    taken, given = (tuple(_where([i < batch for i in range(len(s))]) for s in each) for each in (operands, results))
    return Factors(taken, given) if batch else None


@_rule("reverse")
def _reverse(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    ids = _except(len(results[0]), *ints(op, "dimensions"))
    return Factors((ids,), (ids,))


@_rule("sort")
def _sort(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    ids = _except(len(results[0]), integer(op, "dimension", -1) % max(len(results[0]), 1))
    return Factors((ids,) * len(operands), (ids,) * len(results))


@_rule("pad")
def _pad(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    columns = [ints(op, name) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")]
    ids = _where([not any(row) for row in zip(*columns, strict=True)])
    return Factors((ids, ()), (ids,))


@_rule("slice", "dynamic_slice")
def _slice(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    ids = _where([n == m for n, m in zip(operands[0], results[0], strict=True)])
    return Factors((ids, *(() for _ in operands[1:])), (ids,))


@_rule("dynamic_update_slice")
def _dynamic_update_slice(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    ids = _where([n == m for n, m in zip(operands[0], operands[1], strict=True)])
    return Factors((ids, ids, *(() for _ in operands[2:])), (ids,))


@_rule("fft")
def _fft(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    rank = len(results[0])
    ids = _where([i < rank - len(ints(op, "fft_length")) for i in range(rank)])
    return Factors((ids,), (ids,))


@_rule("cholesky", "triangular_solve")
def _matrices(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    rank = len(results[0])
    ids = _where([i < rank - 2 for i in range(rank)])
    return Factors((ids,) * len(operands), (ids,))


@_rule("all_gather", "reduce_scatter", "all_to_all")
def _collective(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    names = ("all_gather_dim", "scatter_dimension", "split_dimension", "concat_dimension")
    special = [integer(op, name) for name in names if name in op.attributes]
    ids = [_except(len(shape), *special) for shape in operands]
    return Factors(tuple(ids), tuple(ids))


@_rule("dot_general")
def _dot_general(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    lhs: list[int | None] = [None] * len(operands[0])
    rhs: list[int | None] = [None] * len(operands[1])
    fresh = count()
    result: list[int] = []
    for left, right in zip(numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions, strict=True):
        lhs[left] = rhs[right] = next(fresh)
    result += [i for d in numbers.lhs_batching_dimensions if (i := lhs[d]) is not None]
    sums = []
    for left, right in zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True):
        lhs[left] = rhs[right] = next(fresh)
        sums.append(lhs[left] or 0)
    for side in (lhs, rhs):
        for d, known in enumerate(side):
            if known is None:
                side[d] = next(fresh)
                result.append(side[d] or 0)
    return Factors((tuple(lhs), tuple(rhs)), (tuple(result),), tuple(sums))


@_rule("dot")
def _dot(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    lhs = (*range(1, len(operands[0])), 0)
    rhs = (0, *range(10, 9 + len(operands[1])))
    return Factors((lhs, rhs), (lhs[:-1] + rhs[1:],), (0,))


@_rule("convolution")
def _convolution(op: Any, operands: list[Shape], results: list[Shape]) -> Factors:
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    image: list[int | None] = [None] * len(operands[0])
    kernel: list[int | None] = [None] * len(operands[1])
    result: list[int | None] = [None] * len(results[0])
    sums: tuple[int, ...] = ()
    if integer(op, "batch_group_count", 1) == 1:
        image[numbers.input_batch_dimension] = result[numbers.output_batch_dimension] = 0
        if integer(op, "feature_group_count", 1) == 1:
            kernel[numbers.kernel_output_feature_dimension] = result[numbers.output_feature_dimension] = 1
            image[numbers.input_feature_dimension] = kernel[numbers.kernel_input_feature_dimension] = 2
            sums = (2,)
    return Factors((tuple(image), tuple(kernel)), (tuple(result),), sums)
