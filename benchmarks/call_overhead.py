"""What one call of a tiny program costs from Python: f32[2,2] + f32[2,2].

Run as `python -m benchmarks.call_overhead`. The machine code itself is a few nanoseconds; everything else is the native
runtime: checking the arguments, the result's memory, releasing the GIL. numpy and XLA:CPU (when jax is there) stand
beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from mlir.execution_engine import ExecutionEngine
from mlir.ir import Context, Location, Module
from mlir.passmanager import PassManager

import stablexla as sx
from stablexla.targets.runtime import ArraySpec, CompiledFunction

PROGRAM = """
func.func @main(%a: memref<4xf32>, %b: memref<4xf32>, %r: memref<4xf32>, %arena: memref<1xi8>) {
  %c0 = arith.constant 0 : index
  %x = vector.load %a[%c0] : memref<4xf32>, vector<4xf32>
  %y = vector.load %b[%c0] : memref<4xf32>, vector<4xf32>
  %z = arith.addf %x, %y : vector<4xf32>
  vector.store %z, %r[%c0] : memref<4xf32>, vector<4xf32>
  return
}
"""
LOWER = (
    "builtin.module(convert-vector-to-llvm,finalize-memref-to-llvm,convert-arith-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},reconcile-unrealized-casts)"
)


def compile_add(arena_bytes: int = 0) -> CompiledFunction:
    spec = ArraySpec("float32", (2, 2))
    with Context(), Location.unknown():
        module = Module.parse(PROGRAM)
        PassManager.parse(LOWER).run(module.operation)
        engine = ExecutionEngine(module, opt_level=3)
        return CompiledFunction(
            "add", engine.raw_lookup("main"), [spec, spec], [spec], arena_bytes=arena_bytes, keep_alive=engine
        )


def microseconds(call: Callable[[], object], repeats: int = 15, count: int = 20_000) -> float:
    """The shortest mean time of `count` calls."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, time.perf_counter() - start)
    return 1e6 * best / count


def main() -> None:
    add, with_arena = compile_add(), compile_add(arena_bytes=4096)
    a, b = np.ones((2, 2), np.float32), np.full((2, 2), 2, np.float32)
    assert (add(a, b) == 3).all()
    calls: dict[str, Callable[[], object]] = {
        "an empty Python function": lambda: None,
        "add(a, b)": lambda: add(a, b),
        "add(a, b), with an arena": lambda: with_arena(a, b),
        "add.execute([a, b])": lambda: add.execute([a, b]),
        "add(a.T, b): one copy": lambda: add(a.T, b),
        "numpy: a + b": lambda: a + b,
    }
    try:
        import jax

        jitted = jax.jit(lambda x, y: x + y)
        on_device = jax.device_put(a), jax.device_put(b)
        calls["jax.jit, numpy arrays"] = lambda: np.asarray(jitted(a, b))
        calls["jax.jit, jax arrays"] = lambda: jitted(*on_device).block_until_ready()
        ours = sx.interop.jax.jit(lambda x, y: x + y)
        ours_numpy = sx.interop.jax.jit(lambda x, y: x + y, returns="numpy")
        calls["sx.interop.jax.jit, jax arrays"] = lambda: ours(*on_device)
        calls['sx.interop.jax.jit, returns="numpy"'] = lambda: ours_numpy(a, b)
    except ImportError:
        pass
    print("| call | us |\n|---|---|")
    for name, call in calls.items():
        print(f"| {name} | {microseconds(call, count=20_000 if 'jax' not in name else 2_000):.2f} |")


if __name__ == "__main__":
    main()
