"""The loops behind `benchmarks.limits`, written as MLIR for this processor's vectors and compiled by upstream's engine.

Each runs `count` times over `size` bytes at two places. Arithmetic keeps a dozen chains in registers, which is more
than latency times units of any processor at hand.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlir.execution_engine import ExecutionEngine
from mlir.ir import Context, Location, Module
from mlir.passmanager import PassManager

CHAINS = 12
LOWER = "builtin.module(convert-scf-to-cf,convert-to-llvm,reconcile-unrealized-casts)"
Run = Callable[[int, int, int, int], None]
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True)
class Loop:
    """Compiled code, and the operations of one round, or the bytes for each byte of its size."""

    run: Run
    work: float
    engine: ExecutionEngine


def processor_flags() -> set[str]:
    """What the processor can do, in Linux's words."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()


def vector_bytes(flags: set[str]) -> int:
    return 64 if "avx512f" in flags else 32 if "avx2" in flags else 16


def arithmetic_loops() -> dict[str, Loop]:
    """Multiply-adds of f32 and f64, additions of int32, and what the processor has for narrow types."""
    flags = processor_flags()
    return {name: compiled(text, work) for name, (text, work) in arithmetic_texts(flags).items()}


def arithmetic_texts(flags: set[str]) -> dict[str, tuple[str, float]]:
    """By type: the loop and its operations, for a processor with these features."""
    width = vector_bytes(flags)
    made = {name: _multiply_adds(name, width // size) for name, size in (("f32", 4), ("f64", 8))}
    made["int32"] = _integers(width // 4)
    if "amx_tile" in flags:
        made["bf16"] = _tiles("bf16", "f32", "tile_mulf", 32, "amx_bf16" in flags)
        made["int8"] = _tiles("i8", "i32", "tile_muli", 64, "amx_int8" in flags)
    elif "avx512_vnni" in flags:
        made["int8"] = _dots("llvm.x86.avx512.vpdpbusd.512", 16)
    elif "avx2" in flags:
        made["int8"] = _pairs()
    return {name: each for name, each in made.items() if each[1]}


def memory_loops() -> dict[str, Loop]:
    """Reading, copying and filling; the last two also past the caches."""
    bits = 8 * vector_bytes(processor_flags())
    lanes = bits // 32
    load = f"%v = llvm.load %p {{alignment = {bits // 8} : i64}} : !llvm.ptr -> vector<{lanes}xi32>"
    store = f"llvm.store %v, %q {{alignment = {bits // 8} : i64}} : vector<{lanes}xi32>, !llvm.ptr"
    past = store.replace("i64}", "i64, nontemporal}")
    value = f"%v = arith.constant dense<7> : vector<{lanes}xi32>"
    return {
        "read": compiled(_reading(lanes, apart=False), 1),
        "read apart": compiled(_reading(lanes, apart=True), 1),
        "copy": compiled(_moving(lanes, [load, store]), 2),
        "copy past": compiled(_moving(lanes, [load, past]), 2),
        "fill": compiled(_moving(lanes, [value, store]), 1),
        "fill past": compiled(_moving(lanes, [value, past]), 1),
    }


def compiled(text: str, work: float) -> Loop:
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


# ---- texts ----------------------------------------------------------------------------------------------------------


def _function(body: str) -> str:
    return f"""
func.func @main(%from: !llvm.ptr, %to: !llvm.ptr, %size: i64, %count: i64) {{
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
{body}
  return
}}"""


def _chains(kind: str, start: str, step: Callable[[int], str], finish: str) -> str:
    """A loop that carries a dozen values; all of them are written at the end, so that none is left out."""
    names = [f"%x{i} = %start{i}" for i in range(CHAINS)]
    starts = "\n".join(f"  %start{i} = {start}" for i in range(CHAINS))
    steps = "\n".join(step(i) for i in range(CHAINS))
    results = ", ".join(f"%y{i}" for i in range(CHAINS))
    kinds = ", ".join([kind] * CHAINS)
    return _function(f"""{starts}
  %r:{CHAINS} = scf.for %i = %zero to %count step %one iter_args({", ".join(names)}) -> ({kinds}) : i64 {{
{steps}
    scf.yield {results} : {kinds}
  }}
{finish}""")


def _stores(kind: str) -> str:
    lines = []
    for i in range(CHAINS):
        lines.append(f"  %at{i} = llvm.getelementptr %to[{64 * i}] : (!llvm.ptr) -> !llvm.ptr, i8")
        lines.append(f"  llvm.store %r#{i}, %at{i} {{alignment = 4 : i64}} : {kind}, !llvm.ptr")
    return "\n".join(lines)


def _multiply_adds(element: str, lanes: int) -> tuple[str, float]:
    kind = f"vector<{lanes}x{element}>"
    # The values stay about 1, and the factors come from memory: nothing can be computed beforehand.
    start = f"llvm.load %from {{alignment = 4 : i64}} : !llvm.ptr -> {kind}"

    def step(i: int) -> str:
        return f"    %y{i} = vector.fma %x{i}, %start0, %start0 : {kind}"

    return _chains(kind, start, step, _stores(kind)), 2.0 * lanes * CHAINS


def _integers(lanes: int) -> tuple[str, float]:
    kind = f"vector<{lanes}xi32>"
    start = f"llvm.load volatile %from {{alignment = 4 : i64}} : !llvm.ptr -> {kind}"

    def step(i: int) -> str:
        return f"    %a{i} = arith.addi %x{i}, %start1 : {kind}\n    %y{i} = arith.xori %a{i}, %start0 : {kind}"

    return _chains(kind, start, step, _stores(kind)), 2.0 * lanes * CHAINS


def _dots(intrinsic: str, lanes: int) -> tuple[str, float]:
    kind, bytes_ = f"vector<{lanes}xi32>", f"vector<{4 * lanes}xi8>"
    start = f"llvm.load volatile %from {{alignment = 4 : i64}} : !llvm.ptr -> {kind}"

    def step(i: int) -> str:
        operands = f"(%x{i}, %a{i}, %b{i}) : ({kind}, {bytes_}, {bytes_}) -> {kind}"
        return f"""    %a{i} = vector.bitcast %start0 : {kind} to {bytes_}
    %b{i} = vector.bitcast %start1 : {kind} to {bytes_}
    %y{i} = llvm.call_intrinsic "{intrinsic}"{operands}"""

    return _chains(kind, start, step, _stores(kind)), 8.0 * lanes * CHAINS


def _pairs() -> tuple[str, float]:
    """Products of 16-bit numbers, added in pairs and to a sum: what AVX2 has for products of bytes."""
    kind, halves = "vector<8xi32>", "vector<16xi16>"
    start = f"llvm.load volatile %from {{alignment = 4 : i64}} : !llvm.ptr -> {kind}"

    def step(i: int) -> str:
        return f"""    %a{i} = vector.bitcast %x{i} : {kind} to {halves}
    %b{i} = vector.bitcast %start0 : {kind} to {halves}
    %p{i} = llvm.call_intrinsic "llvm.x86.avx2.pmadd.wd"(%a{i}, %b{i}) : ({halves}, {halves}) -> {kind}
    %y{i} = arith.addi %p{i}, %start1 : {kind}"""

    return _chains(kind, start, step, _stores(kind)), 32.0 * CHAINS


def _tiles(element: str, sum_: str, operation: str, columns: int, there: bool) -> tuple[str, float]:
    """Four sums of tiles, which with two operands each way take all eight tiles."""
    operand, total = f"!amx.tile<16x{columns}x{element}>", f"!amx.tile<16x16x{sum_}>"
    lines = [
        f"    %y{n} = amx.{operation} %a{n // 2}, %b{n % 2}, %x{n} : {operand}, {operand}, {total}" for n in range(4)
    ]
    loads = "\n".join(
        f"  %{name} = amx.tile_zero : {kind}"
        for name, kind in [
            *((f"{o}{i}", operand) for o in "ab" for i in range(2)),
            *((f"s{i}", total) for i in range(4)),
        ]
    )
    names, kinds = ", ".join(f"%x{n} = %s{n}" for n in range(4)), ", ".join([total] * 4)
    stores = "\n".join(f"  amx.tile_store %place[%c0, %c0], %r#{n} : memref<16x16x{sum_}>, {total}" for n in range(4))
    text = _function(f"""  %c0 = arith.constant 0 : index
  %place = memref.alloca() {{alignment = 64 : i64}} : memref<16x16x{sum_}>
{loads}
  %r:4 = scf.for %i = %zero to %count step %one iter_args({names}) -> ({kinds}) : i64 {{
{chr(10).join(lines)}
    scf.yield %y0, %y1, %y2, %y3 : {kinds}
  }}
{stores}""")
    return text, 4 * 2.0 * 16 * 16 * columns if there else 0.0


def _over(lanes: int, body: str) -> str:
    return f"""  %step = arith.constant {4 * lanes} : i64
  scf.for %n = %zero to %count step %one : i64 {{
    scf.for %i = %zero to %size step %step : i64 {{
      %p = llvm.getelementptr %from[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i8
      %q = llvm.getelementptr %to[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i8
{body}
    }}
  }}"""


def _moving(lanes: int, lines: list[str]) -> str:
    return _function(_over(lanes, "\n".join(f"      {line}" for line in lines)))


def _reading(lanes: int, apart: bool) -> str:
    """Four sums, of neighbours or of four quarters: what prefetches better differs from processor to processor."""
    kind, sums = f"vector<{lanes}xi32>", range(4)
    lines = []
    for n in sums:
        if apart:
            lines.append(f"      %e{n} = llvm.getelementptr %quarter{n}[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i8")
        else:
            lines.append(f"      %e{n} = llvm.getelementptr %p[{4 * lanes * n}] : (!llvm.ptr) -> !llvm.ptr, i8")
        lines.append(f"      %v{n} = llvm.load %e{n} {{alignment = {4 * lanes} : i64}} : !llvm.ptr -> {kind}")
        lines.append(f"      %y{n} = arith.addi %x{n}, %v{n} : {kind}")
    inner = ", ".join(f"%x{n} = %o{n}" for n in sums)
    outer = ", ".join(f"%o{n} = %none" for n in sums)
    kinds = ", ".join([kind] * 4)
    quarters = "\n".join(
        f"""  %n{n} = arith.constant {n} : i64
  %at{n} = arith.muli %part, %n{n} : i64
  %quarter{n} = llvm.getelementptr %from[%at{n}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"""
        for n in sums
    )
    step, end = (4 * lanes, "%part") if apart else (16 * lanes, "%size")
    # A round's sums are written down, so that none can be left out.
    return _function(f"""  %none = arith.constant dense<0> : {kind}
  %step = arith.constant {step} : i64
  %four = arith.constant 4 : i64
  %part = arith.divsi %size, %four : i64
{quarters}
  %r:4 = scf.for %n = %zero to %count step %one iter_args({outer}) -> ({kinds}) : i64 {{
    %q:4 = scf.for %i = %zero to {end} step %step iter_args({inner}) -> ({kinds}) : i64 {{
      %p = llvm.getelementptr %from[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i8
{chr(10).join(lines)}
      scf.yield %y0, %y1, %y2, %y3 : {kinds}
    }}
    llvm.store %q#0, %to {{alignment = {4 * lanes} : i64}} : {kind}, !llvm.ptr
    scf.yield %q#0, %q#1, %q#2, %q#3 : {kinds}
  }}
  %s = arith.addi %r#0, %r#1 : {kind}
  %t = arith.addi %r#2, %r#3 : {kind}
  %u = arith.addi %s, %t : {kind}
  llvm.store %u, %to {{alignment = {4 * lanes} : i64}} : {kind}, !llvm.ptr""")
