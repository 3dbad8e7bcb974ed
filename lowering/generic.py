"""The shared shapes of code that rules are written with: linalg.generic, element-wise maps, fills and index maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import arith, linalg, tensor

from stablexla.dialects.element_types import ElementType
from stablexla.lowering.storage import from_storage, to_storage
from stablexla.lowering.types import TensorType, tensor_storage

Body = Callable[..., ir.Value | Sequence[ir.Value]]
PARALLEL, REDUCTION = "parallel", "reduction"
# Marks a linalg.generic that only repeats its operand: consumers read the operand through the map instead.
BROADCAST = "stablexla.broadcast"
# Marks one that only reorders dimensions: contractions read the operand itself, in its own order.
TRANSPOSE = "stablexla.transpose"


def identity(rank: int) -> ir.AffineMap:
    return ir.AffineMap.get_identity(rank)


def projection(rank: int, dimensions: Sequence[int]) -> ir.AffineMap:
    """The map from `rank` loops to the given ones of them."""
    return ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(d) for d in dimensions])


def empty(type_: TensorType) -> ir.Value:
    """A tensor whose contents are not defined yet."""
    stored = tensor_storage(type_)
    return ir.Operation.create("tensor.empty", results=[stored], operands=[]).result


def fill(value: ir.Value, type_: TensorType) -> ir.Value:
    """A tensor that holds one value everywhere; written out only where someone needs it in memory."""
    return tensor.splat(tensor_storage(type_), to_storage(value, type_.element), [])


def generic(
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    maps: Sequence[ir.AffineMap],
    iterators: Sequence[str],
    body: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
) -> list[ir.Value]:
    """A linalg.generic; `body` gets an element of each input and output as stored and returns what to store."""
    op = ir.Operation.create(
        "linalg.generic",
        results=[v.type for v in outputs],
        operands=[*inputs, *outputs],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            "iterator_types": ir.ArrayAttr.get([_iterator(kind) for kind in iterators]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(outputs)]),
        },
        regions=1,
    )
    elements = [_element(v.type) for v in (*inputs, *outputs)]
    location = ir.Location.current
    block = op.regions[0].blocks.append(*elements, arg_locs=[location] * len(elements))
    with ir.InsertionPoint(block):
        linalg.YieldOp(list(body(list(block.arguments))))
    return list(op.results)


def _iterator(kind: str) -> ir.Attribute:
    return ir.Attribute.parse(f"#linalg.iterator_type<{kind}>")


def _element(type_: ir.Type) -> ir.Type:
    return type_.element_type if isinstance(type_, ir.RankedTensorType) else type_


def read_through(value: ir.Value, map_: ir.AffineMap, *, transposes: bool = False) -> tuple[ir.Value, ir.AffineMap]:
    """What to read, and through which map, so that repeated values and constants are not read from memory.

    `map_` leads from the loops to `value`'s dimensions. A splat becomes its scalar; a broadcast its operand; with
    `transposes` a transpose its operand too.
    """
    owner = value.owner
    if not isinstance(owner, ir.OpView | ir.Operation):
        return value, map_
    op = owner.operation
    if op.name == "tensor.splat":
        return op.operands[0], ir.AffineMap.get(map_.n_dims, 0, [])
    if op.name == "arith.constant" and isinstance(value.type, ir.RankedTensorType):
        attribute = op.attributes["value"]
        if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
            scalar = arith.ConstantOp(value.type.element_type, attribute.get_splat_value()).result
            return scalar, ir.AffineMap.get(map_.n_dims, 0, [])
    if BROADCAST in op.attributes or (transposes and TRANSPOSE in op.attributes):
        inner = ir.AffineMapAttr(op.attributes["indexing_maps"][0]).value
        composed = [e.compose(map_) for e in inner.results]
        return read_through(op.operands[0], ir.AffineMap.get(map_.n_dims, 0, composed), transposes=transposes)
    return value, map_


def loop_index(dimension: int) -> ir.Value:
    """Inside a linalg.generic's body: the index of a loop."""
    i64 = ir.IntegerType.get_signless(64)
    return ir.Operation.create(
        "linalg.index", results=[ir.IndexType.get()], attributes={"dim": ir.IntegerAttr.get(i64, dimension)}
    ).result


def read_all(
    operands: Sequence[ir.Value], maps: Sequence[ir.AffineMap], *, transposes: bool = False
) -> tuple[list[ir.Value], list[ir.AffineMap]]:
    """`read_through` for the operands of loops that reduce: each loop must still be seen by some operand, since that is
    what tells its extent; where none would be left the operands are read as they are."""
    seen = [read_through(v, m, transposes=transposes) for v, m in zip(operands, maps, strict=True)]
    alone = {e.position for _, m in seen for e in m.results if isinstance(e, ir.AffineDimExpr)}
    needed = {e.position for m in maps for e in m.results if isinstance(e, ir.AffineDimExpr)}
    if not needed <= alone:
        return list(operands), list(maps)
    return [v for v, _ in seen], [m for _, m in seen]


def elementwise(
    operands: Sequence[ir.Value],
    operand_types: Sequence[TensorType],
    results: Sequence[TensorType],
    body: Body,
) -> list[ir.Value]:
    """Applies `body` to each element: on scalars directly when the results have rank 0, else in a linalg.generic.

    A rank-0 operand among arrays holds for all elements. `body` sees and returns values, not storage.
    """
    if not results[0].rank:
        return _sequence(body(*operands))
    rank = results[0].rank
    inputs, maps = [], []
    for operand, type_ in zip(operands, operand_types, strict=True):
        seen = (operand, ir.AffineMap.get(rank, 0, [])) if not type_.rank else read_through(operand, identity(rank))
        inputs.append(seen[0])
        maps.append(seen[1])
    elements = [t.element for t in operand_types]

    def stored_body(arguments: Sequence[ir.Value]) -> list[ir.Value]:
        values = [
            value_of(a, e, scalar=not t.rank) for a, e, t in zip(arguments, elements, operand_types, strict=False)
        ]
        return [to_storage(v, t.element) for v, t in zip(_sequence(body(*values)), results, strict=True)]

    outputs = [empty(t) for t in results]
    return generic(inputs, outputs, [*maps, *[identity(rank)] * len(results)], [PARALLEL] * rank, stored_body)


def value_of(argument: ir.Value, element: ElementType, *, scalar: bool) -> ir.Value:
    """The value of a body's argument: scalars are values already, elements of a tensor are as stored."""
    return argument if scalar else from_storage(argument, element)


def _sequence(values: ir.Value | Sequence[ir.Value]) -> list[ir.Value]:
    return [values] if isinstance(values, ir.Value) else list(values)
