"""Emulate instructions of inline PTX on the CPU, by functions of the runtime that take registers as words."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith, func, memref

from stablexla.dialects.erasing import erase
from stablexla.targets.gpu.ptx.inline_ptx import BASE, NAME, NUMBERS
from stablexla.targets.host.symbols import declare, pointer_to, pointer_type

MOST_WORDS = 320
"""Registers and immediates of one instruction, at most."""


class EmulatedInstructions:
    """Inline instructions of one function; their words go through two buffers of it."""

    def __init__(self, function: ir.Operation, shared: ir.Value | None) -> None:
        self._function, self._shared = function, shared
        self._places: list[ir.Value] = []

    def replace(self, op: ir.Operation) -> bool:
        """Replace an operation that is an inline instruction by a call."""
        if NAME not in op.attributes:
            return False
        name = ir.StringAttr(op.attributes[NAME]).value
        if name == BASE:
            op.results[0].replace_all_uses_with(arith.constant(op.results[0].type, 0))
        elif name != "nothing":
            self._call(name, op)
        erase(op)
        return True

    def _call(self, name: str, op: ir.Operation) -> None:
        given, taken = self._buffers()
        words = [_constant(int(n)) for n in ir.DenseI64ArrayAttr(op.attributes[NUMBERS])]
        words += [_word(v) for v in op.operands]
        for i, word in enumerate(words):
            memref.store(word, given, [arith.constant(ir.IndexType.get(), i)])
        assert self._shared is not None
        callee = declare(self._function, f"stablexla_emulated_{name}", [pointer_type()] * 3)
        func.CallOp([], callee, [pointer_to(place) for place in (given, taken, self._shared)])
        if not len(op.results):
            return
        users = [use.owner.operation for use in op.results[0].uses]
        several = str(op.results[0].type).startswith("!llvm.struct")
        for user in users if several else ():
            at = int(ir.DenseI64ArrayAttr(user.attributes["position"])[0])
            user.results[0].replace_all_uses_with(_read(taken, at, user.results[0].type))
            erase(user)
        if not several:
            op.results[0].replace_all_uses_with(_read(taken, 0, op.results[0].type))

    def _buffers(self) -> list[ir.Value]:
        if not self._places:
            type_ = ir.MemRefType.get([MOST_WORDS], ir.IntegerType.get_signless(64))
            with ir.InsertionPoint.at_block_begin(self._function.regions[0].blocks[0]):
                self._places = [memref.alloca(type_, [], []) for _ in range(2)]
        return self._places


def _constant(number: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(64), number)


def _word(value: ir.Value) -> ir.Value:
    """Return a register's bit pattern."""
    i64, bits = ir.IntegerType.get_signless(64), 64 if str(value.type) in ("f64", "i64") else 32
    if isinstance(value.type, ir.FloatType):
        value = arith.bitcast(ir.IntegerType.get_signless(bits), value)
    return value if bits == 64 else arith.extui(i64, value)


def _read(place: ir.Value, at: int, type_: ir.Type) -> ir.Value:
    word = memref.load(place, [arith.constant(ir.IndexType.get(), at)])
    bits = 64 if str(type_) in ("f64", "i64") else 32
    if bits == 32:
        word = arith.trunci(ir.IntegerType.get_signless(32), word)
    return arith.bitcast(type_, word) if isinstance(type_, ir.FloatType) else word
