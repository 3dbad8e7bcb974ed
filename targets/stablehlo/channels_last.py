"""Layout pass: networks of convolutions in channels-first layout (NCHW) are computed channels-last (NHWC).

PyTorch, ONNX and Keras export NCHW. Convolutions read features that lie next to each other: pointwise ones take 1.3 to
1.8 times as long otherwise. The layout is propagated from convolutions through the operations between them; transposes
are inserted where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects import hlo
from stablexla.dialects.attributes.attributes import integers
from stablexla.dialects.choices import Gate
from stablexla.dialects.constants import is_splat
from stablexla.dialects.erasing import erase
from stablexla.dialects.held_arrays import value_of
from stablexla.lowering.support.operations import defining, only_user
from stablexla.targets.pipeline.contents import for_any
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.inlining import operations_of
from stablexla.targets.stablehlo.repeats.dataflow import ELEMENTWISE

CONVOLUTION, RESHAPE, TRANSPOSE = "stablehlo.convolution", "stablehlo.reshape", "stablehlo.transpose"
COMPOSITE = "stablehlo.composite"
LEAST = Gate("channels-last.least-convolutions", 3, eager=1)
"""Convolutions of a program whose layout is changed."""
MOST_MOVED = Gate("channels-last.most-moved", 25, eager=1000)
"""Bytes transposed where the layout ends, as a percentage of those of the convolutions' operands and results."""

_WINDOWS = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")


@module_pass(
    "stablexla-channels-last",
    "computes networks of channels-first convolutions (NCHW) channels-last (NHWC)",
    side="stablehlo",
    acts_on=for_any([CONVOLUTION]),
)
def channels_last(module: ir.Module) -> None:
    """Propagate the channels-last layout through `main`, if all of its convolutions are channels-first."""
    convolutions = operations_of(module, CONVOLUTION)
    if len(convolutions) < LEAST() or not all(map(_has_features_first, convolutions)):
        return
    block = convolutions[0].operation.block
    if any(op.operation.block != block for op in convolutions):
        return
    found = _Propagation()
    plan = [op.operation for op in block.operations if found.visit(op.operation)]
    worked_on = sum(_bytes(v) for op in convolutions for v in (op.operands[0], op.results[0]))
    if found.transposed * 100 > MOST_MOVED() * worked_on:
        return
    _Rewrite(plan).run()


def _has_features_first(op: Any) -> bool:
    values = (op.operands[0], op.results[0])
    if not all(v.type.has_static_shape and v.type.rank >= 3 for v in values):
        return False
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    spatial = list(range(2, values[0].type.rank))
    return (
        (numbers.input_batch_dimension, numbers.input_feature_dimension) == (0, 1)
        and (numbers.output_batch_dimension, numbers.output_feature_dimension) == (0, 1)
        and list(numbers.input_spatial_dimensions) == list(numbers.output_spatial_dimensions) == spatial
    )


def order(rank: int) -> list[int]:
    """Return the dimensions in channels-last order.

    >>> order(4)
    [0, 2, 3, 1]
    """
    return [0, *range(2, rank), 1]


def _places(rank: int) -> list[int]:
    """Return the place of each dimension in channels-last order."""
    return [order(rank).index(d) for d in range(rank)]


def _bytes(value: Any) -> int:
    width = getattr(value.type.element_type, "width", 64)
    return int(prod(value.type.shape) * max(8, width) // 8)


def _can_be_made(value: Any) -> bool:
    """Return whether a value can be made channels-last by its own operation, without another pass over memory."""
    op = defining(value)
    if op is None:
        return False
    if op.name == "stablehlo.constant":
        return is_splat(value_of(op))
    if op.name == RESHAPE:
        return _is_column(value)
    return op.name in ("stablehlo.broadcast_in_dim", "stablehlo.iota", TRANSPOSE)


def _is_column(value: Any) -> bool:
    """Return whether an array has one element for each batch and feature, so that both layouts are one."""
    return all(extent == 1 for extent in value.type.shape[2:])


class _Propagation:
    """The values that become channels-last, found in the order of the operations.

    Attributes:
        values: which become channels-last.
        transposed: bytes of the arrays that are transposed where the layout begins and ends.
    """

    def __init__(self) -> None:
        self.values: set[Any] = set()
        self.transposed = 0
        self._in: set[Any] = set()
        self._out: set[Any] = set()

    def visit(self, op: Any) -> bool:
        """Return whether an operation takes the layout of its operands, and count the transposes."""
        given = [value for value in op.operands if value in self.values]
        if op.name == CONVOLUTION:
            self._enter(op.operands[:1])
            self._leave(op, [value for value in op.operands[1:] if value in self.values])
        elif not given:
            return False
        elif not _follows(op, given):
            self._leave(op, given)
            return False
        else:
            self._enter(value for value in op.operands if value.type.rank)
        if op.name != "stablehlo.reduce":
            self.values.update(op.results)
        return True

    def _enter(self, values: Iterable[Any]) -> None:
        for value in values:
            if value not in self.values and value not in self._in and not _can_be_made(value):
                self._in.add(value)
                self.transposed += _bytes(value)

    def _leave(self, op: Any, values: Iterable[Any]) -> None:
        for value in values:
            if value not in self._out and not _is_free(op, value):
                self._out.add(value)
                self.transposed += _bytes(value)


def _is_free(op: Any, value: Any) -> bool:
    """Return whether an operation reads a channels-last array without another pass over memory."""
    return bool(op.name == TRANSPOSE or (op.name == RESHAPE and _is_column(value)))


def _follows(op: Any, given: Sequence[Any]) -> bool:
    """Return whether an operation propagates the layout of these operands to its results."""
    if op.name not in _BY_NAME or not all(v.type.has_static_shape for v in (*op.operands, *op.results)):
        return False
    if op.name in ELEMENTWISE or op.name == COMPOSITE:
        if op.name == COMPOSITE and ir.StringAttr(op.attributes["name"]).value not in ELEMENTWISE:
            return False
        shape = op.results[0].type.shape
        return not len(op.regions) and all(v.type.shape == shape or v.type.rank == 0 for v in op.operands)
    if op.name == "stablehlo.reduce":
        rank, dimensions = given[0].type.rank, integers(op.attributes["dimensions"])
        kept = [d for d in order(rank) if d not in dimensions]
        return kept == sorted(kept) and all(v.type.rank == rank for v in list(op.operands)[: len(op.results)])
    if op.name == "stablehlo.reduce_window":
        return all(v.type.rank == given[0].type.rank for v in op.results)
    if op.name in (RESHAPE, TRANSPOSE):
        return _is_of_shuffle(op) or (op.name == RESHAPE and op.operands[0].type == op.results[0].type)
    return True


def _is_of_shuffle(op: Any) -> bool:
    """Return whether an operation is one of the three by which features are put in another order, in groups.

    Features are split in two dimensions, which change places, and are merged.
    """
    if op.name == TRANSPOSE:
        split, merge = defining(op.operands[0]), only_user(op.results[0])
        if split is None or merge is None or (split.name, merge.name) != (RESHAPE, RESHAPE):
            return False
        before, (batch, *rest) = split.operands[0].type.shape, op.operands[0].type.shape
        swapped = [0, 2, 1, *range(3, len(rest) + 1)]
        return (
            only_user(split.results[0]) == op
            and list(integers(op.attributes["permutation"])) == swapped
            and list(before) == list(merge.results[0].type.shape) == [batch, rest[0] * rest[1], *rest[2:]]
        )
    for transpose in (only_user(op.results[0]), defining(op.operands[0])):
        if transpose is not None and transpose.name == TRANSPOSE and _is_of_shuffle(transpose):
            return True
    return False


class _Rewrite:
    """Rewrites the operations that propagate the layout, in their order."""

    def __init__(self, plan: Sequence[Any]) -> None:
        self.plan = plan
        self.last: dict[Any, Any] = {}
        self.retyped: set[str] = set()

    def run(self) -> None:
        for op in self.plan:
            with op.location, ir.InsertionPoint(op):
                made = _BY_NAME[op.name](self, op)
                for old, new in zip(op.results, made, strict=True):
                    if op.name != "stablehlo.reduce":
                        self.last[old] = new
                    else:
                        old.replace_all_uses_with(new)
        planned = set(self.plan)
        for op in self.plan:
            for old in op.results:
                uses = [use for use in old.uses if use.owner.operation not in planned]
                if old in self.last and uses:
                    self._give_back(old, op, uses)
        for op in reversed(self.plan):
            erase(op)

    def _give_back(self, old: Any, op: Any, uses: Sequence[Any]) -> None:
        """Transpose a channels-last array back for users that do not propagate the layout."""
        new, rank = self.last[old], old.type.rank
        with op.location, ir.InsertionPoint(op):
            back = self._reshaped(new, old.type) if _is_column(old) else _transpose(new, _places(rank))
        for use in uses:
            use.owner.operation.operands[use.operand_number] = back

    def of(self, value: Any) -> Any:
        """Return a value in channels-last layout."""
        if value not in self.last:
            self.last[value] = self._made(value)
        return self.last[value]

    def _made(self, value: Any) -> Any:
        rank, op = value.type.rank, defining(value)
        type_ = self.type_of(value)
        if _is_column(value):
            return self._reshaped(value, type_)
        if op is not None and op.name == "stablehlo.constant" and _can_be_made(value):
            splat = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
            elements = ir.DenseElementsAttr.get_splat(type_, splat)
            return hlo.emit(op.name, [], [type_], {"value": elements})
        if op is not None and op.name == "stablehlo.broadcast_in_dim":
            places = [_places(rank)[d] for d in integers(op.attributes["broadcast_dimensions"])]
            by_place = sorted(range(len(places)), key=places.__getitem__)
            source = _transpose(op.operands[0], by_place)
            attributes = {"broadcast_dimensions": hlo.i64s(sorted(places))}
            return hlo.emit(op.name, [source], [type_], attributes)
        if op is not None and op.name == "stablehlo.iota":
            return hlo.iota(type_, _places(rank)[ir.IntegerAttr(op.attributes["iota_dimension"]).value])
        if op is not None and op.name == TRANSPOSE:
            permutation = integers(op.attributes["permutation"])
            return _transpose(op.operands[0], [permutation[d] for d in order(rank)])
        if op is not None and op.name == "stablehlo.convert" and _bytes(op.operands[0]) < _bytes(value):
            return hlo.emit(op.name, [self.of(op.operands[0])], [type_])
        return _transpose(value, order(rank))

    def type_of(self, value: Any) -> Any:
        shape = value.type.shape
        return hlo.tensor(value.type, [shape[d] for d in order(len(shape))])

    @staticmethod
    def _reshaped(value: Any, type_: Any) -> Any:
        return hlo.emit(RESHAPE, [value], [type_])

    # ---- operations ----

    def convolution(self, op: Any) -> list[Any]:
        numbers, rank = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"]), op.results[0].type.rank
        spatial = list(range(1, rank - 1))
        attributes = _attributes(op) | {
            "dimension_numbers": stablehlo.ConvDimensionNumbers.get(
                0, rank - 1, spatial,
                numbers.kernel_input_feature_dimension, numbers.kernel_output_feature_dimension,
                list(numbers.kernel_spatial_dimensions), 0, rank - 1, spatial,
            )
        }  # fmt: skip
        operands = [self.of(op.operands[0]), op.operands[1]]
        return [hlo.emit(op.name, operands, [self.type_of(op.results[0])], attributes)]

    def elementwise(self, op: Any) -> list[Any]:
        operands = [self.of(v) if v.type.rank else v for v in op.operands]
        return [hlo.emit(op.name, operands, [self.type_of(op.results[0])], _attributes(op))]

    def composite(self, op: Any) -> list[Any]:
        """Rewrite a composite of an elementwise function; its decomposition gets the new types."""
        type_ = self.type_of(op.results[0])
        name = f"{ir.FlatSymbolRefAttr(op.attributes['decomposition']).value}_channels_last"
        if name not in self.retyped:
            _retype(op, name, type_.shape)
            self.retyped.add(name)
        attributes = _attributes(op) | {"decomposition": ir.FlatSymbolRefAttr.get(name)}
        operands = [self.of(v) if v.type.rank else v for v in op.operands]
        return [hlo.emit(op.name, operands, [type_], attributes)]

    def concatenate(self, op: Any) -> list[Any]:
        place = _places(op.results[0].type.rank)[ir.IntegerAttr(op.attributes["dimension"]).value]
        attributes = _attributes(op) | {"dimension": hlo.i64(place)}
        return [hlo.emit(op.name, [self.of(v) for v in op.operands], [self.type_of(op.results[0])], attributes)]

    def by_dimension(self, op: Any) -> list[Any]:
        """Rewrite an operation whose attributes have a number for each dimension."""
        rank = op.results[0].type.rank
        names = [n for n in _attributes(op) if n in _OF_DIMENSIONS]
        attributes = _attributes(op) | {n: hlo.i64s(integers(op.attributes[n])[d] for d in order(rank)) for n in names}
        operands = [self.of(v) if v.type.rank == rank else v for v in op.operands]
        return [hlo.emit(op.name, operands, [self.type_of(op.results[0])], attributes)]

    def reshape(self, op: Any) -> list[Any]:
        """Split or merge features that are shuffled."""
        if op.operands[0].type == op.results[0].type:
            return [self.of(op.operands[0])]
        batch, *rest = op.results[0].type.shape
        count = 2 if op.results[0].type.rank > op.operands[0].type.rank else 1  # of the dimensions of features
        return [hlo.reshape(self.of(op.operands[0]), [batch, *rest[count:], *rest[:count]])]

    def transpose(self, op: Any) -> list[Any]:
        rank = op.results[0].type.rank
        return [_transpose(self.of(op.operands[0]), [*range(rank - 2), rank - 1, rank - 2])]

    def reverse(self, op: Any) -> list[Any]:
        places = _places(op.results[0].type.rank)
        attributes = {"dimensions": hlo.i64s(places[d] for d in integers(op.attributes["dimensions"]))}
        return [hlo.emit(op.name, [self.of(op.operands[0])], [self.type_of(op.results[0])], attributes)]

    def reduce(self, op: Any) -> list[Any]:
        places = _places(op.operands[0].type.rank)
        attributes = {"dimensions": hlo.i64s(sorted(places[d] for d in integers(op.attributes["dimensions"])))}
        return self._folded(op, attributes, [v.type for v in op.results])

    def reduce_window(self, op: Any) -> list[Any]:
        rank = op.results[0].type.rank
        attributes = {
            n: hlo.i64s(integers(op.attributes[n])[d] for d in order(rank)) for n in _WINDOWS if n in op.attributes
        }
        if "padding" in op.attributes:
            numbers = [int(n) for n in ir.DenseIntElementsAttr(op.attributes["padding"])]
            attributes["padding"] = hlo.table([numbers[2 * d : 2 * d + 2] for d in order(rank)])
        return self._folded(op, attributes, [self.type_of(v) for v in op.results])

    def _folded(self, op: Any, attributes: dict[str, Any], types: Sequence[Any]) -> list[Any]:
        """Return the results of an operation with a body, which the new one takes."""
        count = len(op.results)
        operands = [*(self.of(v) for v in list(op.operands)[:count]), *list(op.operands)[count:]]
        made = hlo.operation(op.name, operands, types, _attributes(op) | attributes, regions=1)
        op.regions[0].blocks[0].append_to(made.regions[0])
        return list(made.results)


def _attributes(op: Any) -> dict[str, Any]:
    return {named: op.attributes[named] for named in op.attributes}


def _retype(composite: Any, name: str, shape: Sequence[int]) -> None:
    """Write a copy of a composite's decomposition, in which arrays of its result's shape have another one."""
    symbols = ir.SymbolTable(composite.operation.parent.operation.parent.operation)
    given = symbols[ir.FlatSymbolRefAttr(composite.attributes["decomposition"]).value].operation
    with ir.InsertionPoint(given):
        made = given.clone()
    made.attributes["sym_name"] = ir.StringAttr.get(name)
    (block,) = made.regions[0].blocks
    values = [*block.arguments, *(value for op in block.operations for value in op.results)]
    for value in values:
        if value.type.shape == composite.results[0].type.shape:
            value.set_type(hlo.tensor(value.type, shape))
    types = [value.type for value in block.arguments], [value.type for value in block.operations[-1].operands]
    made.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))


def _transpose(value: Any, permutation: Sequence[int]) -> Any:
    if list(permutation) == sorted(permutation):
        return value
    shape = [value.type.shape[d] for d in permutation]
    moved = [d for d in permutation if value.type.shape[d] != 1]
    if moved == sorted(moved):
        return hlo.reshape(value, shape)
    attributes = {"permutation": hlo.i64s(permutation)}
    return hlo.emit(TRANSPOSE, [value], [hlo.tensor(value.type, shape)], attributes)


_OF_DIMENSIONS = {
    "edge_padding_low", "edge_padding_high", "interior_padding", "start_indices", "limit_indices", "strides",
}  # fmt: skip
_BY_NAME: dict[str, Callable[[_Rewrite, Any], list[Any]]] = {
    CONVOLUTION: _Rewrite.convolution,
    **dict.fromkeys(ELEMENTWISE, _Rewrite.elementwise),
    COMPOSITE: _Rewrite.composite,
    "stablehlo.concatenate": _Rewrite.concatenate,
    "stablehlo.pad": _Rewrite.by_dimension,
    RESHAPE: _Rewrite.reshape,
    TRANSPOSE: _Rewrite.transpose,
    "stablehlo.slice": _Rewrite.by_dimension,
    "stablehlo.reverse": _Rewrite.reverse,
    "stablehlo.reduce": _Rewrite.reduce,
    "stablehlo.reduce_window": _Rewrite.reduce_window,
}
