"""The emitter of keys for random numbers: each run of `rng` draws a new one from the native runtime."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith, func, memref

from stablexla.lowering.rules.random import RANDOM_KEY
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.host.bindings import RANDOM_KEY as NEXT_KEY
from stablexla.targets.host.emitters import host_emitter
from stablexla.targets.host.symbols import declare


@host_emitter(RANDOM_KEY)
def emit_random_key(kernel: Kernel, target: CpuTarget) -> Emitted:
    """Emit a call for the running program's next key."""
    made, arguments = kernel.declare()
    i64 = ir.IntegerType.get_signless(64)
    with ir.InsertionPoint(made.entry_block), kernel.func.location:
        callee = declare(kernel.func.operation, NEXT_KEY, [], [i64])
        key = func.CallOp([i64], callee, []).results[0]
        memref.store(key, arguments.results[0].ssa, [arith.constant(ir.IndexType.get(), 0)])
        func.ReturnOp([])
    return Emitted(items=1, grain=1)
