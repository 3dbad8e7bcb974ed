"""Lowering of counter-based random numbers: rng draws from a new key each run, rng_bit_generator from its state.

The bits of rng_bit_generator are those of XLA: `Layout` maps elements to words of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import mlir.ir as ir
from mlir.dialects import arith, tensor

from stablexla.dialects.attributes.attributes import word
from stablexla.dialects.element_types import BY_NAME, ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.shapes import Shape
from stablexla.lowering.kernels.random.blocks import constant_like, halves, joined, philox, resized, threefry
from stablexla.lowering.kernels.random.numbers import normal, uniform
from stablexla.lowering.rules.calls.host import in_main
from stablexla.lowering.rules.shape import reshaped
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import PARALLEL, Output, empty, generic, identity, loop_index
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.storage import constant, from_storage, to_storage
from stablexla.lowering.support.types import TensorType, storage_type

RANDOM_KEY, RANDOM_BITS = "random_key", "random_bits"
"""Kinds of kernels: a key of 64 bits, unique to each call, and an array of the words of blocks."""

# Types whose bits the emitter of blocks can store.
_PLAIN = ("f16", "bf16", "f32", "f64")


# --- rng ------------------------------------------------------------------------------------------------------------


@lowers("stablehlo.rng")
def rng(ctx: LoweringContext, first: ir.Value, second: ir.Value, _: ir.Value) -> ir.Value:
    """Random numbers of a distribution; each run of the operation has a key of its own, each element a block."""
    element = ctx.result.element
    draw = uniform if word(ctx.attributes["rng_distribution"]) == "UNIFORM" else normal
    drawn = draw(element, first, second)
    key = halves(_new_key(ctx))
    if not ctx.result.rank:
        zero = constant(ir.IntegerType.get_signless(64), 0)
        return drawn.number(drawn.scalars, lambda block: threefry(key, _counter(zero, block)))

    def body(given: list[ir.Value]) -> list[ir.Value]:
        low, high, *scalars = given
        place = arith.index_cast(ir.IntegerType.get_signless(64), loop_index(0))
        value = drawn.number(scalars, lambda block: threefry([low, high], _counter(place, block)))
        return [to_storage(value, element)]

    flat = ctx.result.with_shape((ctx.result.size,))
    return reshaped(_counted([*key, *drawn.scalars], flat, body), flat, ctx.result)


def _counter(place: ir.Value, block: int) -> list[ir.Value]:
    """Return the counter of an element's block: the element's number, and the block's in the upper words."""
    low, high = halves(place)
    return [low, high if not block else arith.xori(high, constant_like(high, block << 24))]


def _counted(scalars: list[ir.Value], type_: TensorType, body: Callable[[list[ir.Value]], list[ir.Value]]) -> ir.Value:
    """Emit a flat array, each element of which is computed from its number and some scalars."""
    maps = [ir.AffineMap.get(1, 0, [])] * len(scalars)
    count = len(scalars)
    return generic(scalars, [Output(type_)], [*maps, identity(1)], [PARALLEL], lambda given: body(list(given[:count])))[
        0
    ]


def _new_key(ctx: LoweringContext) -> ir.Value:
    if not in_main():
        raise ctx.unsupported("stablehlo.rng inside the computation of another operation has no lowering")
    key = TensorType(BY_NAME["u64"], ())

    def unknown() -> ir.Value:
        i64 = ir.IntegerType.get_signless(64)
        return tensor.extract(tensor.empty([], i64), [])

    return kernel(ctx, RANDOM_KEY, [], unknown, result_types=[key], effect=True)[0]


# --- rng_bit_generator ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Mapping of an array's elements to words of blocks.

    The blocks' words are consecutive along one dimension of `length` elements, which may truncate the last block.

    Attributes:
        words: elements of a block.
        outer, length, inner: extents before, along and after that dimension.
    """

    words: int
    outer: int
    length: int
    inner: int

    @property
    def across(self) -> int:
        """Blocks along the dimension."""
        return -(-self.length // self.words)

    @property
    def blocks(self) -> int:
        return self.outer * self.across * self.inner

    def place(self, element: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return the block and the word of an element, by its number; all of them as i64."""

        def split(value: ir.Value, by: int) -> tuple[ir.Value, ir.Value]:
            divisor = constant_like(value, by)
            return arith.divui(value, divisor), arith.remui(value, divisor)

        rest, inner = split(element, self.inner)
        outer, along = split(rest, self.length)
        block, which = split(along, self.words)
        row = arith.addi(arith.muli(outer, constant_like(outer, self.across)), block)
        return arith.addi(arith.muli(row, constant_like(row, self.inner)), inner), which


@dataclass(frozen=True)
class RandomBitsConfig:
    """Random bits: the generator, the layout of its blocks, and the bits of an element."""

    algorithm: str
    layout: Layout
    bits: int


def layout_of(algorithm: str, type_: TensorType) -> Layout:
    """Return XLA's layout of blocks: consecutive, but along a dimension for Threefry's two words of 32 bits.

    That dimension is the first even one, else the longest.
    """
    size = type_.size
    wide = type_.element.bits == 64
    if algorithm == "PHILOX":
        return Layout(2 if wide else 4, 1, size, 1)
    if wide:
        return Layout(1, 1, size, 1)
    shape = type_.shape or (1,)
    even = [d for d, extent in enumerate(shape) if extent % 2 == 0]
    along = even[0] if even else shape.index(max(shape))
    return Layout(2, prod(shape[:along]), shape[along], prod(shape[along + 1 :]))


@lowers("stablehlo.rng_bit_generator")
def rng_bit_generator(ctx: LoweringContext, state: ir.Value) -> list[ir.Value]:
    """The state after the draw, and the random bits."""
    algorithm = word(ctx.attributes["rng_algorithm"])
    algorithm = "PHILOX" if algorithm == "DEFAULT" else algorithm
    given = ctx.operand_types[0]
    sizes = (2, 3) if algorithm == "PHILOX" else (2,)
    if given.shape not in [(n,) for n in sizes] or given.element.name not in ("u64", "s64"):
        many = " or ".join(map(str, sizes))
        way = f"{many} integers of 64 bits, or twice as many of u32"
        raise ctx.unsupported(f"the state {Shape(given.element.name, given.shape)} for {algorithm}, which takes {way}")
    length = given.shape[0]
    type_ = ctx.result_types[1]
    layout = layout_of(algorithm, type_)
    numbers = [tensor.extract(state, [constant(ir.IndexType.get(), i)]) for i in range(length)]
    return [_next_state(ctx, state, numbers[1], layout.blocks), _bits(ctx, algorithm, layout, numbers)]


def _next_state(ctx: LoweringContext, state: ir.Value, counter: ir.Value, blocks: int) -> ir.Value:
    """Advance the counter by the number of blocks: the state's second number, and the third as its upper half."""
    type_ = ctx.operand_types[0]

    def body(given: Sequence[ir.Value]) -> list[ir.Value]:
        value, low = given[0], given[1]
        place = arith.index_cast(value.type, loop_index(0))
        moved = arith.addi(low, constant(low.type, blocks))
        carry = resized(arith.cmpi(arith.CmpIPredicate.ult, moved, low), 64)
        second, third = (arith.cmpi(arith.CmpIPredicate.eq, place, constant(place.type, n)) for n in (1, 2))
        return [arith.select(second, moved, arith.select(third, arith.addi(value, carry), value))]

    maps = [identity(1), ir.AffineMap.get(1, 0, []), identity(1)]
    return generic([state, counter], [Output(type_)], maps, [PARALLEL], body)[0]


def _bits(ctx: LoweringContext, algorithm: str, layout: Layout, state: list[ir.Value]) -> ir.Value:
    type_ = ctx.result_types[1]
    flat = type_.with_shape((type_.size,))
    element = type_.element

    def each(*numbers: ir.Value) -> ir.Value:
        """Compute each element from a block of its own."""

        def body(given: list[ir.Value]) -> list[ir.Value]:
            place = arith.index_cast(ir.IntegerType.get_signless(64), loop_index(0))
            block, which = layout.place(place)
            return [_stored(_selected(words_of(algorithm, given, block, element.bits), which), element)]

        return _counted(list(numbers), flat, body)

    if not type_.size:
        return empty(type_)
    if not type_.rank:
        zero = constant(ir.IntegerType.get_signless(64), 0)
        return from_storage(_stored(words_of(algorithm, state, zero, element.bits)[0], element), element)
    if not _is_plain(layout, element):
        return reshaped(each(*state), flat, type_)
    config = RandomBitsConfig(algorithm, layout, element.bits)
    (made,) = kernel(ctx, RANDOM_BITS, state, each, config=config, result_types=[flat])
    return reshaped(made, flat, type_)


def _is_plain(layout: Layout, element: ElementType) -> bool:
    """Whether blocks can be stored whole, except the last."""
    whole = layout.length % layout.words == 0 or layout.outer == layout.inner == 1
    return whole and (element.is_integer or element.name in _PLAIN)


def words_of(algorithm: str, state: list[ir.Value], block: ir.Value, bits: int) -> list[ir.Value]:
    """Return a block's words, of 32 or 64 bits. The numbers of the state are scalars, or vectors like the block."""
    key, counter, *upper = state
    low = arith.addi(counter, block)
    if algorithm == "THREE_FRY":
        words = threefry(halves(key), halves(low))
    else:
        # With a state of two numbers the key stands in for the upper half of the counter.
        upper_half = upper[0] if upper else key
        high = arith.addi(upper_half, resized(arith.cmpi(arith.CmpIPredicate.ult, low, counter), 64))
        words = philox(halves(key), [*halves(low), *halves(high)])
    if bits < 64:
        return words
    return [joined(a, b) for a, b in zip(words[::2], words[1::2], strict=True)]


def _selected(words: list[ir.Value], which: ir.Value) -> ir.Value:
    found = words[0]
    for number, word_ in enumerate(words[1:], start=1):
        here = arith.cmpi(arith.CmpIPredicate.eq, which, constant_like(which, number))
        found = arith.select(here, word_, found)
    return found


def _stored(bits: ir.Value, element: ElementType) -> ir.Value:
    """Return the element, in storage form, of a word's low bits."""
    value = resized(bits, max(8, element.bits))
    if element.bits < 8:
        return arith.andi(value, constant(value.type, (1 << element.bits) - 1))
    return arith.bitcast(storage_type(element), value) if element.is_float else value
