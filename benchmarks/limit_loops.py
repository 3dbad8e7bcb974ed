"""The loops behind `benchmarks.limits`: those that profiles measure too, other types, and other ways to move bytes."""

from __future__ import annotations

from stablexla.inspection.profiling.limit_loops import (
    CHAINS,
    Loop,
    chains,
    compiled,
    copy_loops,
    function_of,
    moving,
    multiply_adds,
    stores_of,
    vector_bytes,
)
from stablexla.targets.runtime.processor import flags as processor_flags


def arithmetic_loops() -> dict[str, Loop]:
    """Multiply-adds of f32 and f64, additions of int32, and what the processor has for narrow types."""
    flags = processor_flags()
    return {name: compiled(text, work) for name, (text, work) in arithmetic_texts(flags).items()}


def arithmetic_texts(flags: frozenset[str]) -> dict[str, tuple[str, float]]:
    """By type: the loop and its operations, for a processor with these features."""
    width = vector_bytes(flags)
    made = {name: multiply_adds(name, width // size) for name, size in (("f32", 4), ("f64", 8))}
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
    store = f"llvm.store %v, %q {{alignment = {bits // 8} : i64}} : vector<{lanes}xi32>, !llvm.ptr"
    past = store.replace("i64}", "i64, nontemporal}")
    value = f"%v = arith.constant dense<7> : vector<{lanes}xi32>"
    return {
        "read": compiled(_reading(lanes, apart=False), 1),
        "read apart": compiled(_reading(lanes, apart=True), 1),
        **copy_loops(processor_flags()),
        "fill": compiled(moving(lanes, [value, store]), 1),
        "fill past": compiled(moving(lanes, [value, past]), 1),
    }


# ---- texts ----------------------------------------------------------------------------------------------------------


def _integers(lanes: int) -> tuple[str, float]:
    kind = f"vector<{lanes}xi32>"
    start = f"llvm.load volatile %from {{alignment = 4 : i64}} : !llvm.ptr -> {kind}"

    def step(i: int) -> str:
        return f"    %a{i} = arith.addi %x{i}, %start1 : {kind}\n    %y{i} = arith.xori %a{i}, %start0 : {kind}"

    return chains(kind, start, step, stores_of(kind)), 2.0 * lanes * CHAINS


def _dots(intrinsic: str, lanes: int) -> tuple[str, float]:
    kind, bytes_ = f"vector<{lanes}xi32>", f"vector<{4 * lanes}xi8>"
    start = f"llvm.load volatile %from {{alignment = 4 : i64}} : !llvm.ptr -> {kind}"

    def step(i: int) -> str:
        operands = f"(%x{i}, %a{i}, %b{i}) : ({kind}, {bytes_}, {bytes_}) -> {kind}"
        return f"""    %a{i} = vector.bitcast %start0 : {kind} to {bytes_}
    %b{i} = vector.bitcast %start1 : {kind} to {bytes_}
    %y{i} = llvm.call_intrinsic "{intrinsic}"{operands}"""

    return chains(kind, start, step, stores_of(kind)), 8.0 * lanes * CHAINS


def _pairs() -> tuple[str, float]:
    """Products of 16-bit numbers, added in pairs and to a sum: what AVX2 has for products of bytes."""
    kind, halves = "vector<8xi32>", "vector<16xi16>"
    start = f"llvm.load volatile %from {{alignment = 4 : i64}} : !llvm.ptr -> {kind}"

    def step(i: int) -> str:
        return f"""    %a{i} = vector.bitcast %x{i} : {kind} to {halves}
    %b{i} = vector.bitcast %start0 : {kind} to {halves}
    %p{i} = llvm.call_intrinsic "llvm.x86.avx2.pmadd.wd"(%a{i}, %b{i}) : ({halves}, {halves}) -> {kind}
    %y{i} = arith.addi %p{i}, %start1 : {kind}"""

    return chains(kind, start, step, stores_of(kind)), 32.0 * CHAINS


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
    text = function_of(f"""  %c0 = arith.constant 0 : index
  %place = memref.alloca() {{alignment = 64 : i64}} : memref<16x16x{sum_}>
{loads}
  %r:4 = scf.for %i = %zero to %count step %one iter_args({names}) -> ({kinds}) : i64 {{
{chr(10).join(lines)}
    scf.yield %y0, %y1, %y2, %y3 : {kinds}
  }}
{stores}""")
    return text, 4 * 2.0 * 16 * 16 * columns if there else 0.0


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
    return function_of(f"""  %none = arith.constant dense<0> : {kind}
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
