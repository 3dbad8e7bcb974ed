"""Counter-based generators Threefry-2x32 and Philox-4x32 (Salmon et al., SC 2011): key and counter to random words.

Words have 32 bits. Emitted in arith on i32 scalars or vectors alike; words are unsigned.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith

Words = Sequence[ir.Value]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def threefry(key: Words, counter: Words) -> list[ir.Value]:
    """Emit a Threefry-2x32 block: two words, by twenty rounds."""
    parity = constant_like(key[0], _PARITY)
    keys = [*key, arith.xori(arith.xori(key[0], key[1]), parity)]
    x, y = arith.addi(counter[0], keys[0]), arith.addi(counter[1], keys[1])
    for group in range(5):
        for amount in _ROTATIONS[group % 2]:
            x = arith.addi(x, y)
            y = arith.xori(_rotated(y, amount), x)
        x = arith.addi(x, keys[(group + 1) % 3])
        y = arith.addi(y, arith.addi(keys[(group + 2) % 3], constant_like(y, group + 1)))
    return [x, y]


def philox(key: Words, counter: Words) -> list[ir.Value]:
    """Emit a Philox-4x32 block: four words, by ten rounds."""
    a, b, c, d = counter
    left, right = key
    for round_ in range(10):
        if round_:
            left, right = (arith.addi(k, constant_like(k, w)) for k, w in zip((left, right), _WEYL, strict=True))
        low0, high0 = _product(a, _MULTIPLIERS[0])
        low1, high1 = _product(c, _MULTIPLIERS[1])
        a, b = arith.xori(arith.xori(high1, b), left), low1
        c, d = arith.xori(arith.xori(high0, d), right), low0
    return [a, b, c, d]


def constant_like(value: ir.Value, number: int) -> ir.Value:
    """Return a constant of a value's type, a splat for a vector."""
    type_ = value.type
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    width = element.width
    wrapped = number & ((1 << width) - 1)
    attribute = ir.IntegerAttr.get(element, wrapped - (1 << width) if wrapped >> (width - 1) else wrapped)
    if isinstance(type_, ir.VectorType):
        attribute = ir.DenseElementsAttr.get_splat(type_, attribute)
    return arith.ConstantOp(type_, attribute).result


def resized(value: ir.Value, bits: int) -> ir.Value:
    """Truncate or zero-extend unsigned integers to another width."""
    type_ = value.type
    element = ir.IntegerType.get_signless(bits)
    result = ir.VectorType.get(type_.shape, element) if isinstance(type_, ir.VectorType) else element
    now = (type_.element_type if isinstance(type_, ir.VectorType) else type_).width
    if now == bits:
        return value
    return arith.extui(result, value) if bits > now else arith.trunci(result, value)


def halves(value: ir.Value) -> list[ir.Value]:
    """Split 64 bits into the lower and the upper word."""
    return [resized(value, 32), resized(arith.shrui(value, constant_like(value, 32)), 32)]


def joined(low: ir.Value, high: ir.Value) -> ir.Value:
    """Join two words to 64 bits."""
    wide = resized(high, 64)
    return arith.ori(resized(low, 64), arith.shli(wide, constant_like(wide, 32)))


def _rotated(value: ir.Value, amount: int) -> ir.Value:
    left = arith.shli(value, constant_like(value, amount))
    return arith.ori(left, arith.shrui(value, constant_like(value, 32 - amount)))


def _product(value: ir.Value, factor: int) -> list[ir.Value]:
    """Return the lower and the upper word of a widening product."""
    wide = resized(value, 64)
    return halves(arith.muli(wide, constant_like(wide, factor)))
