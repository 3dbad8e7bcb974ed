"""Loops that measure a machine's limits, written as MLIR for this processor's vectors, compiled by upstream's engine.

Each runs `count` times over `size` bytes at two addresses. Arithmetic keeps a dozen chains in registers, which is more
than latency times units of any processor at hand.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from typing import Any

from mlir.execution_engine import ExecutionEngine
from mlir.ir import Context, Location, Module
from mlir.passmanager import PassManager

from stablexla.dialects.lazy_dataclass import dataclass

CHAINS = 12
LOWER = "builtin.module(convert-scf-to-cf,convert-to-llvm,reconcile-unrealized-casts)"
Run = Callable[[int, int, int, int], None]
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True)
class Loop:
    """Compiled code, and the operations of one round, or the bytes for each byte of its size."""

    run: Run
    work: float
    engine: Any


def vector_bytes(flags: Collection[str]) -> int:
    """Return the size of the widest vector registers of a processor with these features."""
    return 64 if "avx512f" in flags else 32 if "avx2" in flags else 16


def compiled(text: str, work: float) -> Loop:
    """Compile a loop for this processor."""
    with Context(), Location.unknown():
        module = Module.parse(text)
        PassManager.parse(LOWER).run(module.operation)
        engine = ExecutionEngine(module, opt_level=2)
        entry = _ENTRY(engine.raw_lookup("main"))

    def run(*numbers: int) -> None:
        """The entry takes the addresses of its arguments."""
        values = (ctypes.c_int64 * 4)(*numbers)
        start = ctypes.addressof(values)
        places = (ctypes.c_void_p * 4)(*(start + 8 * i for i in range(4)))
        entry(ctypes.addressof(places))

    return Loop(run, work, engine)


def copy_loops(flags: Collection[str]) -> dict[str, Loop]:
    """Return loops that copy, through the caches and past them; 2 bytes move for each byte of their size."""
    bits = 8 * vector_bytes(flags)
    lanes = bits // 32
    load = f"%v = llvm.load %p {{alignment = {bits // 8} : i64}} : !llvm.ptr -> vector<{lanes}xi32>"
    store = f"llvm.store %v, %q {{alignment = {bits // 8} : i64}} : vector<{lanes}xi32>, !llvm.ptr"
    past = store.replace("i64}", "i64, nontemporal}")
    return {
        "copy": compiled(moving(lanes, [load, store]), 2),
        "copy past": compiled(moving(lanes, [load, past]), 2),
    }


# ---- texts ----------------------------------------------------------------------------------------------------------


def function_of(body: str) -> str:
    """Return a function of the two addresses, the size and the count."""
    return f"""
func.func @main(%from: !llvm.ptr, %to: !llvm.ptr, %size: i64, %count: i64) {{
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
{body}
  return
}}"""


def chains(kind: str, start: str, step: Callable[[int], str], finish: str) -> str:
    """A loop that carries a dozen values; all of them are written at the end, so that none is left out."""
    names = [f"%x{i} = %start{i}" for i in range(CHAINS)]
    starts = "\n".join(f"  %start{i} = {start}" for i in range(CHAINS))
    steps = "\n".join(step(i) for i in range(CHAINS))
    results = ", ".join(f"%y{i}" for i in range(CHAINS))
    kinds = ", ".join([kind] * CHAINS)
    return function_of(f"""{starts}
  %r:{CHAINS} = scf.for %i = %zero to %count step %one iter_args({", ".join(names)}) -> ({kinds}) : i64 {{
{steps}
    scf.yield {results} : {kinds}
  }}
{finish}""")


def stores_of(kind: str) -> str:
    """Return stores of all chains, each to a cache line of its own."""
    lines = []
    for i in range(CHAINS):
        lines.append(f"  %at{i} = llvm.getelementptr %to[{64 * i}] : (!llvm.ptr) -> !llvm.ptr, i8")
        lines.append(f"  llvm.store %r#{i}, %at{i} {{alignment = 4 : i64}} : {kind}, !llvm.ptr")
    return "\n".join(lines)


def multiply_adds(element: str, lanes: int) -> tuple[str, float]:
    """Return a loop of fused multiply-adds, and the operations of one round."""
    kind = f"vector<{lanes}x{element}>"
    # The values stay about 1, and the factors come from memory: nothing can be computed beforehand.
    start = f"llvm.load %from {{alignment = 4 : i64}} : !llvm.ptr -> {kind}"

    def step(i: int) -> str:
        return f"    %y{i} = vector.fma %x{i}, %start0, %start0 : {kind}"

    return chains(kind, start, step, stores_of(kind)), 2.0 * lanes * CHAINS


def _over(lanes: int, body: str) -> str:
    return f"""  %step = arith.constant {4 * lanes} : i64
  scf.for %n = %zero to %count step %one : i64 {{
    scf.for %i = %zero to %size step %step : i64 {{
      %p = llvm.getelementptr %from[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i8
      %q = llvm.getelementptr %to[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i8
{body}
    }}
  }}"""


def moving(lanes: int, lines: list[str]) -> str:
    """Return a loop over `size` bytes whose body reads at %p or writes at %q."""
    return function_of(_over(lanes, "\n".join(f"      {line}" for line in lines)))
