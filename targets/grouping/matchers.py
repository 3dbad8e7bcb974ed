"""Matchers that all rewrites and kernels share: producers, single users, bodies as formulas, sums of products.

Each returns None, or is false, for every other form. Kinds of operations are in `classify.py`, loops in `loops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any

import mlir.ir as ir
from mlir.dialects import tensor

from stablexla.lowering.math.logistic import names_of
from stablexla.lowering.support.generic import filled
from stablexla.lowering.support.operations import body_of, constant_attribute, defining, terminator_of
from stablexla.targets.grouping.loops import Loops, is_generic, loops_of

GENERIC = "linalg.generic"


def made_by(value: ir.Value, *names: str) -> ir.Operation | None:
    """Return the operation that defines a value, if it has one of these names."""
    maker: ir.Operation | None = defining(value)
    return maker if maker is not None and maker.name in names else None


def users_of(value: ir.Value) -> list[ir.Operation]:
    """Return the operations that use a value, one for each use."""
    return [use.owner.operation for use in value.uses]


def in_program_order(operations: Iterable[ir.Operation]) -> list[ir.Operation]:
    """Return operations of one function, each once, in program order; use lists are in another one."""
    different: list[ir.Operation] = []
    for op in operations:
        if op not in different:
            different.append(op)
    return sorted(different, key=cmp_to_key(_order)) if len(different) > 1 else different


def _order(one: ir.Operation, other: ir.Operation) -> int:
    """Compare two operations by their order; MLIR numbers those of a block, iterating them takes 1 us for each."""
    paths = _path(one), _path(other)
    for mine, others in zip(*paths, strict=False):
        if mine != others:
            if mine.block == others.block:
                return -1 if mine.is_before_in_block(others) else 1
            blocks = [block for region in mine.parent.regions for block in region.blocks]
            return blocks.index(mine.block) - blocks.index(others.block)
    return len(paths[0]) - len(paths[1])


def _path(op: ir.Operation) -> list[ir.Operation]:
    """Return the operations that an operation is nested in, from the function on, and itself."""
    return [op] if op.name == "func.func" else [*_path(op.parent.operation), op]


def private_producers(
    op: ir.Operation,
    values: Sequence[ir.Value],
    accepts: Callable[[ir.Operation], bool],
    reads: Callable[[ir.Operation], Sequence[ir.Value]],
) -> list[ir.Operation]:
    """Return the operations behind operands of `op`, on ways of accepted ones, that nothing else uses: users last.

    Args:
        reads: the operands of an operation that are followed.
    """
    found: list[ir.Operation] = []
    inside = {op}

    def visit(value: ir.Value) -> None:
        maker = defining(value)
        if maker is None or maker in inside or not accepts(maker):
            return
        if any(user not in inside for result in maker.results for user in users_of(result)):
            return
        inside.add(maker)
        for operand in reads(maker):
            visit(operand)
        found.append(maker)

    for value in values:
        visit(value)
    return found


def body_names(op: ir.Operation) -> list[str]:
    """Return the names of the operations of a linalg.generic's body, but the last; a logistic function's is one."""
    return names_of(body_of(op)[:-1])


# --- bodies as formulas ---------------------------------------------------------------------------------------

CASTS = frozenset(f"arith.{name}" for name in ("extf", "extsi", "extui", "truncf", "trunci"))
COMMUTATIVE = frozenset(["arith.addf", "arith.addi", "arith.mulf", "arith.muli"])
# Written out as a formula, a body in which many operations use a value twice would be exponentially long.
LONGEST_BODY = 32
Formula = tuple[Any, ...]


def formula_of(op: ir.Operation) -> Formula:
    """Return what a linalg.generic's body of at most LONGEST_BODY operations yields: (name, operand, ...), nested.

    Casts are left out, and the operands of commutative operations sorted. An argument is its number, from the end for
    the outputs: -1; a value from outside of the body is ().
    """
    block = op.regions[0].blocks[0]
    if len(block.operations) > LONGEST_BODY:
        return ()
    arguments = list(block.arguments)
    names: dict[ir.Value, Formula] = {argument: (number,) for number, argument in enumerate(arguments)}
    for number in range(len(op.results)):
        names[arguments[-1 - number]] = (-1 - number,)
    return _formula(terminator_of(block).operands[0], names, block)


def _formula(value: ir.Value, names: Mapping[ir.Value, Formula], block: ir.Block) -> Formula:
    while value not in names:
        maker = defining(value)
        if maker is None or maker.block != block:
            return ()
        if maker.name not in CASTS:
            return formula(maker.name, *(_formula(v, names, block) for v in maker.operands))
        value = maker.operands[0]
    return names[value]


def formula(name: str, *operands: Formula) -> Formula:
    """Return a formula as `formula_of` does."""
    return (name, *(sorted(operands, key=str) if name in COMMUTATIVE else operands))


def _complex_product() -> Formula:
    def part(name: str, of: int) -> Formula:
        return formula(f"complex.{name}", (of,))

    def times(a: str, b: str) -> Formula:
        return formula("arith.mulf", part(a, 0), part(b, 1))

    re = formula("arith.subf", times("re", "re"), times("im", "im"))
    im = formula("arith.addf", times("re", "im"), times("im", "re"))
    sums = (formula("arith.addf", part(name, -1), term) for name, term in (("re", re), ("im", im)))
    return formula("complex.create", *sums)


PRODUCTS = tuple(formula(f"arith.add{t}", (-1,), formula(f"arith.mul{t}", (0,), (1,))) for t in "fi")
COMPLEX_PRODUCT = _complex_product()


# --- conversions ----------------------------------------------------------------------------------------------


def conversion_of(value: ir.Value, stop: Sequence[str] = ()) -> tuple[ir.Value, tuple[ir.Operation, ...]] | None:
    """Return a value's conversion: the source, and the unary operations from it to the value.

    The source is a block argument, or the result of an operation of a name in `stop`.
    """
    chain: list[ir.Operation] = []
    while (op := defining(value)) is not None and op.name not in stop:
        if len(op.operands) != 1 or not op.name.startswith("arith."):
            return None
        chain.append(op)
        value = op.operands[0]
    return value, tuple(reversed(chain))


def converted_in_place(op: ir.Operation | None) -> tuple[ir.Operation, ...] | None:
    """Return the unary operations of a linalg.generic that only converts each element of its one input."""
    if op is None or not is_generic(op) or len(op.operands) != 2:
        return None
    loops, block = loops_of(op), op.regions[0].blocks[0]
    if any(loops.reduced) or loops.maps[0] != loops.maps[1]:
        return None
    found = conversion_of(terminator_of(block).operands[0])
    return found[1] if found is not None and found[0] == block.arguments[0] else None


# --- sums of products -----------------------------------------------------------------------------------------


def sums_products(op: ir.Operation, loops: Loops) -> bool:
    """Whether an operation sums products of two inputs, real numbers which may be cast, and reads one of them again.

    Where each element of the result has its own elements of both, as in a batch of dot products, no input is read
    twice: these are reductions, which fuse with what is around them. So are sums of one array's elements, each
    multiplied by what is the same all along the sum.
    """
    if loops.num_inputs != 2 or len(op.results) != 1 or not loops.is_plain:
        return False
    kept, summed = (
        {d for d, reduced in enumerate(loops.reduced) if reduced is kind and loops.extents[d] != 1}
        for kind in (False, True)
    )
    read = [set(dims) for dims in loops.dims[:2]]
    if all(kept <= loops_read for loops_read in read):
        return False
    if summed and any(mine <= other and not mine & summed for mine, other in (read, read[::-1])):
        return False
    return formula_of(op) in PRODUCTS


def fill_of(op: ir.Operation) -> ir.Operation | None:
    """Return the linalg.fill that initializes the last output of an operation."""
    return made_by(op.operands[len(op.operands) - 1], "linalg.fill")


def starts_at_zero(op: ir.Operation) -> bool:
    """Whether the accumulator of an operation of one result is initialized with zeros, real or complex."""
    fill = fill_of(op)
    if fill is None:
        return False
    number = made_by(fill.operands[0], "complex.create")
    parts = map(constant_attribute, [fill.operands[0]] if number is None else number.operands)
    return all(isinstance(part, ir.FloatAttr | ir.IntegerAttr) and part.value == 0 for part in parts)


def multiplied(op: ir.Operation) -> list[ir.Value]:
    """Match a body `yield acc + x * y`: return x and y, [] for others."""
    block = op.regions[0].blocks[0]
    total, addition = list(block.arguments)[-1], made_by(terminator_of(block).operands[0], "arith.addf", "arith.addi")
    if addition is None:
        return []
    products = [made_by(v, "arith.mulf", "arith.muli") for v in addition.operands if v != total]
    return list(products[0].operands) if len(products) == 1 and products[0] is not None else []


def factor_conversions(op: ir.Operation) -> tuple[tuple[ir.Operation, ...], tuple[ir.Operation, ...]] | None:
    """Return the conversions of both factors, when the body is `yield acc + convert(x) * convert(y)`."""
    arguments = list(op.regions[0].blocks[0].arguments)
    if len(arguments) != 3:
        return None
    chains = [conversion_of(factor) for factor in multiplied(op)]
    by_argument = dict(chain for chain in chains if chain is not None)
    x, y, _ = arguments
    return (by_argument[x], by_argument[y]) if by_argument.keys() == {x, y} else None


def product_like(
    product: ir.Operation,
    factors: Sequence[ir.Value],
    shape: Sequence[int],
    maps: Sequence[ir.AffineMap] = (),
    zero: ir.Value | None = None,
) -> ir.Value:
    """Emit a sum of products as another one, of other factors, result shape and maps, where they differ."""
    fill, element = fill_of(product), product.results[0].type.element_type
    assert fill is not None, "a product starts from zeros"
    start = filled(fill.operands[0] if zero is None else zero, tensor.empty(list(shape), element))
    made = product.clone().operation
    for number, value in enumerate((*factors, start)):
        made.operands[number] = value
    if maps:
        made.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
    made.results[0].set_type(start.type)
    return made.results[0]
