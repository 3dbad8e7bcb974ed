"""What one parallel region costs, and what a second core gains, for the ways in which machine code can use threads.

Run as `python -m benchmarks.threads`. Each way is measured in a process of its own, as idle threads of one would
disturb the others; the rounds go through all of them in turns, and the best of each is shown. OpenMP needs the package
intel-openmp (extra `bench`) and is left out without it. The findings are in docs/decisions/0002-threads.md.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import mlir
import numpy as np
from mlir.execution_engine import ExecutionEngine
from mlir.ir import Context, Location, Module
from mlir.passmanager import PassManager

from stablexla.targets import runtime

MLIR_LIBRARIES = Path(mlir.__path__[0]) / "lib"
TAIL = (
    "convert-scf-to-cf,convert-vector-to-llvm,convert-math-to-llvm,finalize-memref-to-llvm,convert-arith-to-llvm,"
    "convert-index-to-llvm,convert-cf-to-llvm,{openmp}convert-func-to-llvm{{use-bare-ptr-memref-call-conv=1}},"
    "reconcile-unrealized-casts"
)


@dataclass(frozen=True)
class Shape:
    """Rows of a matrix that are worked on one by one, and how many of them make a chunk."""

    rows: int
    columns: int
    grain: int

    @property
    def memref(self) -> str:
        return f"memref<{self.rows * self.columns}xf32>"


SHAPES = {
    "2x8": Shape(2, 8, 1),  # next to no work: the cost of the region itself
    "128x768": Shape(128, 768, 16),
    "4096x1024": Shape(4096, 1024, 64),
}


def rows_function(shape: Shape) -> str:
    """Work items [lo, hi): each row through a polynomial of degree 8, and divided by the sum of its squares."""
    m = shape.memref
    horner = "\n".join(f"    %p{i + 1} = math.fma %p{i}, %v, %k : vector<8xf32>" for i in range(8))
    return f"""
func.func private @rows(%x: {m}, %y: {m}, %lo: index, %hi: index) attributes {{no_inline}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %columns = arith.constant {shape.columns} : index
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %k = arith.constant dense<0.25> : vector<8xf32>
  scf.for %r = %lo to %hi step %c1 {{
    %first = arith.muli %r, %columns : index
    %end = arith.addi %first, %columns : index
    %sums = scf.for %j = %first to %end step %c8 iter_args(%s = %zero) -> vector<8xf32> {{
      %v = vector.load %x[%j] : {m}, vector<8xf32>
      %t = math.fma %v, %v, %s : vector<8xf32>
      scf.yield %t : vector<8xf32>
    }}
    %sum = vector.reduction <add>, %sums : vector<8xf32> into f32
    %all = vector.broadcast %sum : f32 to vector<8xf32>
    scf.for %j = %first to %end step %c8 {{
      %v = vector.load %x[%j] : {m}, vector<8xf32>
    %p0 = arith.addf %v, %k : vector<8xf32>
{horner}
      %q = arith.divf %p8, %all : vector<8xf32>
      vector.store %q, %y[%j] : {m}, vector<8xf32>
    }}
  }}
  return
}}
"""


def sequential(shape: Shape, threads: int) -> str:
    m = shape.memref
    return f"""
func.func @main(%x: {m}, %y: {m}) {{
  %lo = arith.constant 0 : index
  %hi = arith.constant {shape.rows} : index
  call @rows(%x, %y, %lo, %hi) : ({m}, {m}, index, index) -> ()
  return
}}
"""


def own(shape: Shape, threads: int) -> str:
    """Calls of stablexla_parallel_for; the context is an array of the data pointers."""
    m, descriptor = shape.memref, "!llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>"

    def memref_of(pointer: str, name: str) -> str:
        return f"""
  %{name}0 = llvm.mlir.poison : {descriptor}
  %{name}1 = llvm.insertvalue {pointer}, %{name}0[0] : {descriptor}
  %{name}2 = llvm.insertvalue {pointer}, %{name}1[1] : {descriptor}
  %{name}3 = llvm.insertvalue %zero, %{name}2[2] : {descriptor}
  %{name}4 = llvm.insertvalue %size, %{name}3[3, 0] : {descriptor}
  %{name}5 = llvm.insertvalue %one, %{name}4[4, 0] : {descriptor}
  %{name} = builtin.unrealized_conversion_cast %{name}5 : {descriptor} to {m}"""

    return f"""
func.func private @stablexla_parallel_for(!llvm.ptr, !llvm.ptr, i64, i64)
func.func private @body(%ctx: !llvm.ptr, %from: i64, %to: i64) {{
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %size = llvm.mlir.constant({shape.rows * shape.columns} : i64) : i64
  %slot = llvm.getelementptr %ctx[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %px = llvm.load %ctx : !llvm.ptr -> !llvm.ptr
  %py = llvm.load %slot : !llvm.ptr -> !llvm.ptr
  {memref_of("%px", "x")}
  {memref_of("%py", "y")}
  %lo = arith.index_cast %from : i64 to index
  %hi = arith.index_cast %to : i64 to index
  call @rows(%x, %y, %lo, %hi) : ({m}, {m}, index, index) -> ()
  return
}}
func.func @main(%x: {m}, %y: {m}) {{
  %two = llvm.mlir.constant(2 : i64) : i64
  %n = arith.constant {shape.rows} : i64
  %grain = arith.constant {shape.grain} : i64
  %ctx = llvm.alloca %two x !llvm.ptr : (i64) -> !llvm.ptr
  %slot = llvm.getelementptr %ctx[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %ix = memref.extract_aligned_pointer_as_index %x : {m} -> index
  %iy = memref.extract_aligned_pointer_as_index %y : {m} -> index
  %jx = arith.index_cast %ix : index to i64
  %jy = arith.index_cast %iy : index to i64
  %px = llvm.inttoptr %jx : i64 to !llvm.ptr
  %py = llvm.inttoptr %jy : i64 to !llvm.ptr
  llvm.store %px, %ctx : !llvm.ptr, !llvm.ptr
  llvm.store %py, %slot : !llvm.ptr, !llvm.ptr
  %f = func.constant @body : (!llvm.ptr, i64, i64) -> ()
  %body = builtin.unrealized_conversion_cast %f : (!llvm.ptr, i64, i64) -> () to !llvm.ptr
  call @stablexla_parallel_for(%body, %ctx, %n, %grain) : (!llvm.ptr, !llvm.ptr, i64, i64) -> ()
  return
}}
"""


def scf_parallel(shape: Shape, threads: int) -> str:
    """What the OpenMP and async conversions start from: a parallel loop over the chunks."""
    m = shape.memref
    return f"""
func.func @main(%x: {m}, %y: {m}) {{
  %c0 = arith.constant 0 : index
  %grain = arith.constant {shape.grain} : index
  %rows = arith.constant {shape.rows} : index
  scf.parallel (%lo) = (%c0) to (%rows) step (%grain) {{
    %hi = arith.addi %lo, %grain : index
    func.call @rows(%x, %y, %lo, %hi) : ({m}, {m}, index, index) -> ()
    scf.reduce
  }}
  return
}}
"""


@dataclass(frozen=True)
class Way:
    """A way to use threads: the main function it needs, the passes that lower it, and its runtime library.

    `convert-openmp-to-llvm` lowers functions too, each memref argument to the five fields of its descriptor
    (`fields`); the others get bare pointers.
    """

    main: Callable[[Shape, int], str]
    passes: str = ""
    libraries: Callable[[], list[str]] = field(default=list)
    fields: bool = False
    environment: dict[str, str] = field(default_factory=dict)


def openmp_libraries() -> list[str]:
    return [str(path) for path in Path(sys.prefix).glob("lib*/libiomp5.so")][:1]


OPENMP = "convert-scf-to-openmp{{num-threads={threads}}},"
WAYS = {
    "sequential": Way(sequential),
    "stablexla_parallel_for": Way(own, "", lambda: [runtime.library_path()]),
    "OpenMP, threads spin": Way(scf_parallel, OPENMP, openmp_libraries, True),
    "OpenMP, KMP_BLOCKTIME=0": Way(scf_parallel, OPENMP, openmp_libraries, True, {"KMP_BLOCKTIME": "0"}),
    "async dialect": Way(
        scf_parallel,
        "async-parallel-for{{num-workers={threads} min-task-size=1}},async-to-async-runtime,"
        "func.func(async-runtime-ref-counting,async-runtime-ref-counting-opt),convert-async-to-llvm,",
        lambda: [str(MLIR_LIBRARIES / "libmlir_async_runtime.so")],
    ),
}


class Program:
    """A compiled way for one shape, called through ctypes with everything prepared."""

    def __init__(self, way: Way, shape: Shape, threads: int) -> None:
        openmp = "convert-openmp-to-llvm," if "openmp" in way.passes else ""
        pipeline = f"builtin.module({way.passes.format(threads=threads)}{TAIL.format(openmp=openmp)})"
        with Context(), Location.unknown():
            module = Module.parse(rows_function(shape) + way.main(shape, threads))
            PassManager.parse(pipeline).run(module.operation)
            self.engine = ExecutionEngine(module, opt_level=3, shared_libs=way.libraries())
            entry = self.engine.raw_lookup("main")
        assert entry, "a symbol was not found"
        self.x = np.random.default_rng(0).standard_normal((shape.rows, shape.columns)).astype(np.float32)
        self.y = np.empty_like(self.x)
        values: list[int] = []
        for array in (self.x, self.y):
            pointer = array.ctypes.data
            values += [pointer, pointer, 0, array.size, 1] if way.fields else [pointer]
        self.arguments = (ctypes.c_int64 * len(values))(*values)
        first = ctypes.addressof(self.arguments)
        self.packed = (ctypes.c_void_p * len(values))(*(first + 8 * i for i in range(len(values))))
        self.entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry)
        self.address = ctypes.addressof(self.packed)

    def __call__(self) -> None:
        self.entry(self.address)

    def check(self) -> None:
        x = self.x.astype(np.float64)
        p = x + 0.25
        for _ in range(8):
            p = p * x + 0.25
        np.testing.assert_allclose(self.y, p / (x * x).sum(axis=1, keepdims=True), rtol=1e-3, atol=1e-5)


def seconds(call: Callable[[], None], budget: float = 0.15) -> float:
    """The shortest time of one call, over repeats that fill the budget, each long enough for the clock."""
    call()
    start = time.perf_counter()
    call()
    count = max(1, int(2e-4 / max(time.perf_counter() - start, 1e-7)))
    best, end = float("inf"), time.perf_counter() + budget
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - start) / count)
    return best


def seconds_after_rest(call: Callable[[], None], rest: float = 2e-3, repeats: int = 60) -> float:
    """The median time of a call whose threads have had time to fall asleep."""
    times = []
    for _ in range(repeats):
        time.sleep(rest)
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[repeats // 2]


def burnt_while_idle(call: Callable[[], None], rest: float = 0.3) -> float:
    """CPU time that the process uses while it does nothing after a region, in seconds."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    call()
    before = used()
    time.sleep(rest)
    return used() - before


def measure(way: Way, threads: int) -> dict[str, float]:
    """All figures of one way; runs in a child process."""
    runtime.set_num_threads(threads)
    figures = {}
    # The async runtime's threads may still be inside the code when a call returns, so none of it is dropped.
    programs = {name: Program(way, shape, threads) for name, shape in SHAPES.items()}
    for name, program in programs.items():
        program()
        program.check()
        figures[name] = seconds(program)
        if name == "2x8":
            figures["rested"] = seconds_after_rest(program)
            figures["idle"] = burnt_while_idle(program)
    return figures


def measure_in_child(name: str, threads: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.threads", "--threads", str(threads), "--only", name]
    environment = {**os.environ, **WAYS[name].environment}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=environment)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def print_table(best: dict[str, dict[str, float]]) -> None:
    print("| way | region of 2 tasks | after 2 ms of rest | CPU burnt in 0.3 s of rest | 128x768 | 4096x1024 |")
    print("|---|---|---|---|---|---|")
    base = best["sequential"]
    for name, row in best.items():
        cells = [f"{1e6 * row['2x8']:.2f} us", f"{1e6 * row['rested']:.1f} us", f"{1e3 * row['idle']:.1f} ms"]
        cells += [f"{1e6 * row[key]:.0f} us ({base[key] / row[key]:.2f}x)" for key in ("128x768", "4096x1024")]
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=runtime.default_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=WAYS, help="measure one way in this process and print JSON")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(WAYS[options.only], options.threads)))
        return
    names = [name for name in WAYS if not name.startswith("OpenMP") or openmp_libraries()]
    if len(names) < len(WAYS):
        print("OpenMP is left out: pip install intel-openmp", file=sys.stderr)
    best: dict[str, dict[str, float]] = {}
    for _ in range(options.rounds):
        for name in names:
            new = measure_in_child(name, options.threads)
            old = best.setdefault(name, new)
            best[name] = {key: (max if key == "idle" else min)(old[key], new[key]) for key in new}
    print(f"{options.threads} threads on {os.cpu_count()} CPUs, best of {options.rounds} rounds\n")
    print_table(best)


if __name__ == "__main__":
    main()
