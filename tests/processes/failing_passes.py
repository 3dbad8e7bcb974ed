"""Passes that end their process in every way there is; they are run in other processes only."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import mlir.ir as ir

import stablexla as sx


@sx.module_pass("test-abort", "aborts, as a failed assertion does")
def abort(module: Any) -> None:
    os.write(2, b"driver.cpp:7: void run(): Assertion `the test is not running' failed.\nPLEASE submit a bug report\n")
    os.abort()


@sx.module_pass("test-segfault", "reads at address 0")
def segfault(module: Any) -> None:
    ctypes.string_at(0)


@sx.module_pass("test-exit", "ends the process")
def leave(module: Any, *, code: int = 3) -> None:
    os._exit(code)


@sx.module_pass("test-hang", "never ends, and holds the GIL")
def hang(module: Any) -> None:
    if "TEST_HANGS" in os.environ:
        open(os.environ["TEST_HANGS"], "w").close()
    ctypes.PyDLL(None).sleep(1000)


@sx.module_pass("test-raise", "raises what is no error of stablexla's")
def fail(module: Any) -> None:
    raise ZeroDivisionError("one over nothing")


@sx.module_pass("test-refuse", "raises an error of stablexla's with all that it can have")
def refuse(module: Any) -> None:
    raise sx.ShapeError(
        "does not fit",
        operation="add",
        rule="C1",
        operands={"x": sx.f32[2], "y": sx.f32[3]},
        source=sx.SourceLine("model.py", 17, "normalize", "y = x + 1"),
        hint="another shape",
    )


@sx.module_pass("test-slow", "takes its time")
def slow(module: Any, *, seconds: float = 0.3) -> None:
    time.sleep(seconds)


@sx.module_pass("test-print", "writes on standard error")
def say(module: Any) -> None:
    os.write(2, b"a word from the pass\n")


@sx.module_pass("test-unselectable", "calls an instruction of another processor, for which LLVM ends the process")
def unselectable(module: Any) -> None:
    text = """llvm.func @unselectable() {
      %0 = llvm.mlir.constant(1 : i32) : i32
      llvm.call_intrinsic "llvm.aarch64.hint"(%0) : (i32) -> ()
      llvm.return
    }"""
    parsed = ir.Module.parse(text)
    with ir.InsertionPoint(module.body):
        parsed.body.operations[0].operation.clone()


def unchanged(ctx: Any, x: Any) -> list[Any]:
    """A lowering rule that computes nothing."""
    return [x]


@sx.lowering_rule("stablehlo.cosine")
def replaced(ctx: Any, x: Any) -> list[Any]:
    """A rule from the start, and so under another name for other operations."""
    return [x]
