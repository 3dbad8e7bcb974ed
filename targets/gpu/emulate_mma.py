"""Tensor cores on the CPU: a thread's registers as numbers of f32, and the products by a function of the runtime."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith, func, memref

from stablexla.targets.cpu.symbols import declare, pointer_to, pointer_type

MMA = "stablexla_emulated_mma"


def emulate_mma(function: ir.Operation, op: ir.Operation) -> None:
    """Puts a call in the place of an `nvvm.mma.sync` of 16 x 8 x 16, and erases it."""
    operands = list(op.operands)
    f32 = ir.F32Type.get()
    with ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]):
        places = [memref.alloca(ir.MemRefType.get([n], f32), [], []) for n in (8, 4, 4)]
    factors = [[n for v in part for n in _numbers(v)] for part in (operands[:4], operands[4:6])]
    for place, numbers in zip(places, [*factors, operands[6:]], strict=True):
        for i, number in enumerate(numbers):
            memref.store(number, place, [arith.constant(ir.IndexType.get(), i)])
    callee = declare(function, MMA, [pointer_type()] * 3)
    func.CallOp([], callee, [pointer_to(place) for place in places])
    sums = [memref.load(places[2], [arith.constant(ir.IndexType.get(), i)]) for i in range(4)]
    for use in list(op.results[0].uses):
        user = use.owner.operation
        user.results[0].replace_all_uses_with(sums[int(ir.DenseI64ArrayAttr(user.attributes["position"])[0])])
        user.erase()
    op.erase()


def _numbers(register: ir.Value) -> list[ir.Value]:
    """The two numbers in a register, the lower half first."""
    i32, i16, f32 = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(16), ir.F32Type.get()
    if register.type != i32:  # two numbers of f16, made of a word
        maker = register.owner.operation
        word = maker.operands[0]
        halves = [arith.trunci(i16, word), arith.trunci(i16, arith.shrui(word, arith.constant(i32, 16)))]
        return [arith.extf(f32, arith.bitcast(ir.F16Type.get(), half)) for half in halves]
    low = arith.shli(register, arith.constant(i32, 16))
    high = arith.andi(register, arith.constant(i32, -65536))
    return [arith.bitcast(f32, low), arith.bitcast(f32, high)]
