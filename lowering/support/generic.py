"""Builders shared by the rules: linalg.generic without unit loops, element-wise operations, fills and index maps."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import mlir.ir as ir
from mlir.dialects import arith, tensor

from stablexla.dialects.contexts import kept_with_contexts
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import is_tensor, walk
from stablexla.lowering.support.storage import from_storage, to_storage
from stablexla.lowering.support.types import TensorType, tensor_storage
from stablexla.lowering.support.unit_dimensions import read_reshaped, with_dimensions, without

Body = Callable[..., ir.Value | Sequence[ir.Value]]
PARALLEL, REDUCTION = "parallel", "reduction"
# Marks a linalg.generic that only broadcasts its operand: consumers read the operand through the map instead.
BROADCAST = "stablexla.broadcast"
# Marks one that only transposes: contractions read the operand itself, in its own order.
TRANSPOSE = "stablexla.transpose"


def identity(rank: int) -> ir.AffineMap:
    return ir.AffineMap.get_identity(rank)


def projection(rank: int, dimensions: Sequence[int]) -> ir.AffineMap:
    """Return the affine map from `rank` loops to the given ones of them."""
    return ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(d) for d in dimensions])


def empty(type_: TensorType) -> ir.Value:
    """Return a tensor of undefined contents."""
    stored = tensor_storage(type_)
    return ir.Operation.create("tensor.empty", results=[stored], operands=[]).result


def fill(value: ir.Value, type_: TensorType) -> ir.Value:
    """Return a splat tensor, materialized only where a user needs it in memory."""
    return tensor.splat(tensor_storage(type_), to_storage(value, type_.element), [])


def filled(value: ir.Value, out: ir.Value) -> ir.Value:
    """Emit a linalg.fill with a scalar in storage form; the bindings' own function takes fifteen times as long."""
    return _moving("linalg.fill", value, value.type, out, [out.type]).result


def copy_buffer(source: ir.Value, target: ir.Value) -> None:
    """Emit a linalg.copy from one buffer to another."""
    _moving("linalg.copy", source, source.type.element_type, target, [])


def _moving(
    name: str, source: ir.Value, element: ir.Type, target: ir.Value, results: Sequence[ir.Type]
) -> ir.Operation:
    """Emit a named operation of linalg whose body yields the element of its input."""
    made = ir.Operation.create(
        name,
        results=results,
        operands=[source, target],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])},
        regions=1,
    )
    location = ir.Location.current
    block = made.regions[0].blocks.append(element, target.type.element_type, arg_locs=[location] * 2)
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[block.arguments[0]])
    return made


@dataclass(frozen=True)
class Output:
    """An output of a linalg.generic: its type, and for a reduction the initial scalar in storage form."""

    type: TensorType
    start: ir.Value | None = None

    def initial(self, shape: tuple[int, ...]) -> ir.Value:
        """Return the initial tensor, in the shape without dimensions of size 1."""
        made = empty(self.type.with_shape(shape))
        return made if self.start is None else filled(self.start, made)


def generic(
    inputs: Sequence[ir.Value],
    outputs: Sequence[Output],
    maps: Sequence[ir.AffineMap],
    iterators: Sequence[str],
    body: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
    mark: str = "",
    kept: Sequence[int] = (),
    attributes: Mapping[str, ir.Attribute] | None = None,
) -> list[ir.Value]:
    """Emit a linalg.generic over the loops of trip count above 1.

    Args:
        maps: from the loops to the dimensions of each input and output.
        body: gets an element of each input and output as stored and returns what to store.
        mark: a unit attribute for the operation.
        kept: loops that are kept even with trip count 1.
        attributes: further attributes for the operation.
    """
    nest = _nest(inputs, outputs, maps, iterators, kept)
    read = [without(v, dropped) for v, dropped in zip(inputs, nest.dropped, strict=False)]
    starts = [o.initial(shape) for o, shape in zip(outputs, nest.output_shapes, strict=True)]
    marks = {mark: ir.UnitAttr.get()} if mark else {}
    op = loop_nest([*read, *starts], len(inputs), nest.maps, nest.iterators, body, {**(attributes or {}), **marks})
    if len(nest.kept) != len(iterators):
        nest.renumber(op)
    return [with_dimensions(r, o.type.shape) for r, o in zip(op.results, outputs, strict=True)]


def elementwise_loops(
    inputs: Sequence[ir.Value], type_: ir.RankedTensorType, body: Callable[[Sequence[ir.Value]], ir.Value]
) -> ir.Value:
    """Emit a linalg.generic over all dimensions of a result, from arrays of its shape and scalars.

    Args:
        body: gets an element of each input and returns what to store.
    """
    empty = ir.Operation.create("tensor.empty", results=[type_]).result
    operands = [*inputs, empty]
    maps = [identity(type_.rank) if is_tensor(v) else projection(type_.rank, []) for v in operands]
    indexing_maps = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
    iterators = ir.ArrayAttr.get([_iterator(PARALLEL)] * type_.rank)
    return loop_nest(operands, len(inputs), indexing_maps, iterators, lambda elements: [body(elements[:-1])]).result


def loop_nest(
    operands: Sequence[ir.Value],
    inputs: int,
    indexing_maps: ir.Attribute,
    iterators: ir.Attribute,
    body: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
    attributes: Mapping[str, ir.Attribute] | None = None,
) -> ir.Operation:
    """Emit a linalg.generic as its attributes have it, of so many `inputs` and then initial values.

    Args:
        body: gets an element of each operand and returns what to store.
        attributes: further attributes for the operation.
    """
    starts = operands[inputs:]
    op = ir.Operation.create(
        "linalg.generic",
        results=[v.type for v in starts],
        operands=operands,
        attributes={
            **(attributes or {}),
            "indexing_maps": indexing_maps,
            "iterator_types": iterators,
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([inputs, len(starts)]),
        },
        regions=1,
    )
    block = op.regions[0].blocks.append(
        *(_element(v.type) for v in operands), arg_locs=[ir.Location.current] * len(operands)
    )
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=list(body(list(block.arguments))))
    return op


def _nest(
    inputs: Sequence[ir.Value],
    outputs: Sequence[Output],
    maps: Sequence[ir.AffineMap],
    iterators: Sequence[str],
    kept: Sequence[int],
) -> _Nest:
    """Return the loop nest for these shapes and maps, cached."""
    shapes = [tuple(v.type.shape) if isinstance(v.type, ir.RankedTensorType) else () for v in inputs]
    shapes += [tuple(o.type.shape) for o in outputs]
    known = kept_with_contexts("nests")
    key = (len(inputs), tuple(shapes), tuple(maps), tuple(iterators), tuple(kept), ir.Context.current)
    found: _Nest | None = known.get(key)
    if found is None:
        found = known[key] = _Nest(shapes, len(inputs), maps, iterators, kept)
    return found


class _Nest:
    """The loop nest of a linalg.generic without loops of trip count 1, which hide that two nests are the same.

    Loops by which no operand is indexed are dropped too.

    Attributes:
        kept: the remaining loops.
        maps, iterators: the attributes of the operation.
        dropped: for each operand the dropped dimensions of size 1.
        output_shapes: the outputs' shapes without dropped dimensions.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        inputs: int,
        maps: Sequence[ir.AffineMap],
        iterators: Sequence[str],
        kept: Sequence[int] = (),
    ) -> None:
        self.kept = sorted({*self._loops_to_keep(shapes, maps, iterators), *kept})
        self.iterators = ir.ArrayAttr.get([_iterator(iterators[d]) for d in self.kept])
        zero = ir.AffineConstantExpr.get(0)
        places = {d: ir.AffineDimExpr.get(i) for i, d in enumerate(self.kept)}
        substitution = ir.AffineMap.get(len(self.kept), 0, [places.get(d, zero) for d in range(len(iterators))])
        self.dropped: list[list[int]] = []
        made: list[ir.Attribute] = []
        for shape, map_ in zip(shapes, maps, strict=True):
            exprs = [e.compose(substitution) for e in map_.results]
            dropped = [k for k, (e, n) in enumerate(zip(exprs, shape, strict=True)) if n == 1 and e == zero]
            self.dropped.append(dropped)
            left = [e for k, e in enumerate(exprs) if k not in dropped]
            made.append(ir.AffineMapAttr.get(ir.AffineMap.get(len(self.kept), 0, left)))
        self.maps = ir.ArrayAttr.get(made)
        self.output_shapes = [
            tuple(n for k, n in enumerate(shape) if k not in dropped)
            for shape, dropped in zip(shapes[inputs:], self.dropped[inputs:], strict=True)
        ]

    @staticmethod
    def _loops_to_keep(
        shapes: Sequence[Sequence[int]], maps: Sequence[ir.AffineMap], iterators: Sequence[str]
    ) -> list[int]:
        once = {
            e.position
            for shape, map_ in zip(shapes, maps, strict=True)
            for e, n in zip(map_.results, shape, strict=True)
            if n == 1 and isinstance(e, ir.AffineDimExpr)
        }
        read = sorted(set[int]().union(*map(_loops_alone, maps)))
        longer = [d for d in read if d not in once]
        reduced = [d for d in read if iterators[d] == REDUCTION]
        if reduced and not {*reduced} & {*longer}:
            longer = sorted([*longer, reduced[0]])
        return longer

    def renumber(self, op: ir.Operation) -> None:
        """Renumber linalg.index in the body to the remaining loops."""
        for inner in walk(op):
            if inner.name != "linalg.index" or inner.parent.operation != op:
                continue
            loop = ir.IntegerAttr(inner.attributes["dim"]).value
            with ir.InsertionPoint(inner):
                index = arith.constant(ir.IndexType.get(), 0) if loop not in self.kept else None
                index = loop_index(self.kept.index(loop)) if index is None else index
            inner.results[0].replace_all_uses_with(index)
            erase(inner)


def _iterator(kind: str) -> ir.Attribute:
    return ir.Attribute.parse(f"#linalg.iterator_type<{kind}>")


def _element(type_: ir.Type) -> ir.Type:
    return type_.element_type if isinstance(type_, ir.RankedTensorType) else type_


def read_through(value: ir.Value, map_: ir.AffineMap, *, transposes: bool = False) -> tuple[ir.Value, ir.AffineMap]:
    """Fold broadcasts and splats into an indexing map: return the tensor or scalar to read, and its map.

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
    reshaped = read_reshaped(op, map_)
    if reshaped is not None:
        return read_through(op.operands[0], reshaped, transposes=transposes)
    if BROADCAST in op.attributes or (transposes and TRANSPOSE in op.attributes):
        inner = ir.AffineMapAttr(op.attributes["indexing_maps"][0]).value
        composed = [e.compose(map_) for e in inner.results]
        return read_through(op.operands[0], ir.AffineMap.get(map_.n_dims, 0, composed), transposes=transposes)
    return value, map_


def loop_index(dimension: int) -> ir.Value:
    """Return a loop's index, inside a linalg.generic's body."""
    i64 = ir.IntegerType.get_signless(64)
    return ir.Operation.create(
        "linalg.index", results=[ir.IndexType.get()], attributes={"dim": ir.IntegerAttr.get(i64, dimension)}
    ).result


def read_all(
    operands: Sequence[ir.Value],
    maps: Sequence[ir.AffineMap],
    *,
    transposes: bool = False,
    needed: Container[int] | None = None,
) -> tuple[list[ir.Value], list[ir.AffineMap]]:
    """Apply `read_through` to the operands of a reduction, keeping every loop's extent defined, or the `needed` loops'.

    linalg infers a loop's extent from the operands: one that alone indexes a loop is read as it is.
    """
    seen = [read_through(v, m, transposes=transposes) for v, m in zip(operands, maps, strict=True)]
    missing = set[int]().union(*map(_loops_alone, maps)) - set[int]().union(*(_loops_alone(m) for _, m in seen))
    missing = {loop for loop in missing if needed is None or loop in needed}
    for place, (value, map_) in enumerate(zip(operands, maps, strict=True)):
        if _loops_alone(map_) & missing:
            seen[place] = value, map_
            missing -= _loops_alone(map_)
    return [v for v, _ in seen], [m for _, m in seen]


def _loops_alone(map_: ir.AffineMap) -> set[int]:
    """Return the loops that alone index a dimension."""
    return {e.position for e in map_.results if isinstance(e, ir.AffineDimExpr)}


def elementwise(
    operands: Sequence[ir.Value],
    operand_types: Sequence[TensorType],
    results: Sequence[TensorType],
    body: Body,
) -> list[ir.Value]:
    """Apply `body` to each element: on scalars directly when the results have rank 0, else in a linalg.generic.

    A rank-0 operand among arrays is broadcast. `body` takes and returns values, not storage.
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

    outputs = [Output(t) for t in results]
    return generic(inputs, outputs, [*maps, *[identity(rank)] * len(results)], [PARALLEL] * rank, stored_body)


def value_of(argument: ir.Value, element: ElementType, *, scalar: bool) -> ir.Value:
    """Return the value of a body's argument: scalars are values already, elements of a tensor in storage form."""
    return argument if scalar else from_storage(argument, element)


def _sequence(values: ir.Value | Sequence[ir.Value]) -> list[ir.Value]:
    return [values] if isinstance(values, ir.Value) else list(values)
