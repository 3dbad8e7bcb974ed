"""Copying and filling of contiguous elements by functions of the library, which assemblies of one line share."""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions

VECTORS = 4
"""Vectors of an iteration."""


def copy_line(functions: SharedFunctions, source: Value, at: Index, result: Value, to: Index, count: Index) -> None:
    """Copy `count` elements of a buffer, from `at` on, to another buffer."""
    functions.call(_CopyLine(), [source, result], [at, to, count])


def fill_line(functions: SharedFunctions, value: Value, result: Value, to: Index, count: Index) -> None:
    """Store a number to `count` elements of a buffer."""
    bits = cg.bitcast(value, ir.IntegerType.get_signless(cg.bits_of(value.type)))
    functions.call(_FillLine(), [result], [cg.cast_index(bits, ir.IndexType.get()), to, count])


@dataclass(frozen=True)
class _CopyLine(SharedFunction):
    rolled = True
    name = "stablexla_copy_line"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        (source, result), (at, to, count) = map(_as_integers, buffers), numbers

        def copied(place: Value, lanes: int, valid: Index) -> Value:
            return cg.load_lanes(source, at + place, lanes, valid) if lanes else cg.load(source, at + place)

        _cover(result, to, count, copied)


@dataclass(frozen=True)
class _FillLine(SharedFunction):
    rolled = True
    name = "stablexla_fill_line"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        result, (bits, to, count) = _as_integers(buffers[0]), numbers
        value = cg.cast_index(bits, result.element)
        _cover(result, to, count, lambda place, lanes, valid: cg.splat(value, lanes))


def _as_integers(buffer: Value) -> Value:
    """View a buffer as integers, of which targets have masked loads and stores for more widths than of floats."""
    word = ir.IntegerType.get_signless(cg.bits_of(buffer.element))
    return Value(cg.viewed(buffer.ssa, ir.MemRefType.get(ir.MemRefType(buffer.type).shape, word)))


def _cover(result: Value, to: Value, count: Value, value: Callable[[Value, int, Index], Value]) -> None:
    """Store `value(place, lanes, valid)` to all places: some vectors at a time, then one, then what is left."""
    lanes = cg.lanes_of(result.element)

    def put(place: Value, valid: Index = lanes) -> None:
        cg.store_lanes(value(place, lanes, valid), result, to + place, valid)

    some, whole = count // (VECTORS * lanes) * (VECTORS * lanes), count // lanes * lanes
    with cg.loop(0, some, VECTORS * lanes) as turn:
        for number in range(VECTORS):
            put(turn.iv + number * lanes)
    with cg.loop(some, whole, lanes) as turn:
        put(turn.iv)
    if cg.has_masks(result.element):
        with cg.when(whole.lt(count)):
            put(whole, count - whole)
    else:
        with cg.loop(whole, count) as turn:
            cg.store(value(turn.iv, 0, 1), result, to + turn.iv)
