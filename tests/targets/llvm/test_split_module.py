"""Modules that are compiled in parts give the same results as whole ones, fresh and from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.targets.llvm import split_module as partitioning
from stablexla.targets.llvm.llvm_c import LlvmError, object_file
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.llvm.split_module import split_module
from stablexla.targets.runtime import ObjectCode, undefined_symbols

# Calls the two kernels of either module.
MAIN = """
llvm.func @main(%x: f32) -> f32 {
  %y = llvm.call @one(%x) : (f32) -> f32
  %z = llvm.call @two(%y) : (f32) -> f32
  llvm.return %z : f32
}
llvm.func @_mlir_main(%x: f32) {
  %y = llvm.call @main(%x) : (f32) -> f32
  llvm.return
}
"""
MODULE = (
    """
llvm.func @outside(f32) -> f32
llvm.mlir.global internal constant @number(2.0 : f32) : f32
llvm.func internal @shared(%x: f32) -> f32 {
  %p = llvm.mlir.addressof @number : !llvm.ptr
  %y = llvm.load %p : !llvm.ptr -> f32
  %z = llvm.fmul %x, %y : f32
  llvm.return %z : f32
}
llvm.func internal @one(%x: f32) -> f32 {
  %y = llvm.call @shared(%x) : (f32) -> f32
  llvm.return %y : f32
}
llvm.func internal @two(%x: f32) -> f32 {
  %y = llvm.call @shared(%x) : (f32) -> f32
  %z = llvm.call @outside(%y) : (f32) -> f32
  llvm.return %z : f32
}
"""
    + MAIN
)


def module(text: str = MODULE) -> ir.Module:
    return ir.Module.parse(text, upstream_context())


def many(b: sx.XlaBuilder) -> sx.XlaOp:
    """A program of different kernels, one in a loop."""
    x = b.parameter(0, sx.f32[37, 41], name="x")
    y = sx.transpose(sx.tanh(x) @ sx.transpose(x, (1, 0)), (1, 0))
    y = sx.add(y, sx.reduce(y, b.constant(0.0), sx.add, (1,)), broadcast_dimensions=(0,))

    def step(state: sx.XlaOp) -> sx.XlaOp:
        return sx.tuple((state[0] + 1, sx.sin(state[1] @ state[1])))

    return sx.while_(lambda state: state[0] < 3, step, sx.tuple((b.constant(0), y / 100.0)))[1]


def compiled() -> sx.Executable:
    b = sx.XlaBuilder("many")
    return sx.compile(b.build(many(b)))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is compiled is cut up."""
    monkeypatch.setattr(partitioning.LEAST_OPERATIONS, "usual", 1)


def test_a_small_module_stays_whole() -> None:
    given = module()
    assert [part.module for part in split_module(given, 4)] == [given]


@pytest.mark.usefixtures("small")
def test_what_goes_where() -> None:
    parts = split_module(module(), 4)
    names = [{ir.StringAttr(o.operation.attributes["sym_name"]).value for o in p.module.body.operations} for p in parts]
    assert names[0] == {"shared", "number"}
    assert names[-1] == {"main", "_mlir_main", "one", "two"}
    assert {"one", "shared"} in names
    assert {"two", "shared", "outside"} in names
    assert parts[-1].is_straight
    for part in parts:
        assert part.module.operation.verify()


@pytest.mark.usefixtures("small")
def test_the_parts_call_each_other() -> None:
    files = [object_file(part.module, 1) for part in split_module(module(), 4)]
    assert {"one", "two"} <= set(undefined_symbols(files[-1]))
    assert [undefined_symbols(file).count("shared") for file in files] == [0, 1, 1, 0]


# A shared function calls another, and main calls a kernel that a kernel calls too.
CHAINED = (
    """
llvm.func internal @inner(%x: f32) -> f32 {
  llvm.return %x : f32
}
llvm.func internal @shared(%x: f32) -> f32 {
  %y = llvm.call @inner(%x) : (f32) -> f32
  llvm.return %y : f32
}
llvm.func internal @one(%x: f32) -> f32 {
  %y = llvm.call @shared(%x) : (f32) -> f32
  %z = llvm.call @inner(%y) : (f32) -> f32
  llvm.return %z : f32
}
llvm.func internal @two(%x: f32) -> f32 {
  %y = llvm.call @shared(%x) : (f32) -> f32
  %z = llvm.call @one(%y) : (f32) -> f32
  llvm.return %z : f32
}
"""
    + MAIN
)


@pytest.mark.usefixtures("small")
def test_each_part_needs_earlier_ones_alone() -> None:
    parts = split_module(module(CHAINED), 4)
    files = [object_file(part.module, 1) for part in parts]
    made: list[ObjectCode] = []
    for file in files:
        needed = undefined_symbols(file)
        known = {name: code.address(name) for name in needed for code in made if code.address(name)}
        assert set(known) == set(needed)
        made.append(ObjectCode(file, known))
    assert made[-1].address("_mlir_main")


@pytest.mark.usefixtures("small")
def test_one_thread_compiles_the_whole() -> None:
    assert len(split_module(module(), 1)) == 1


@pytest.mark.parametrize("threads", [1, 4])
def test_a_long_main_is_alone_in_short_blocks(threads: int) -> None:
    count = 3 * partitioning.MOST_OF_BLOCK()
    calls = "\n".join(f"%{i} = llvm.call @one(%{i - 1 if i else 'x'}) : (f32) -> f32" for i in range(count))
    main = MAIN.replace("%y = llvm.call @one(%x) : (f32) -> f32", calls, 1).replace("%y)", f"%{count - 1})", 1)
    parts = split_module(module(MODULE.replace(MAIN, main)), threads)
    assert parts[-1].is_straight
    assert parts[-1].module.operation.verify()
    function = next(f.operation for f in parts[-1].module.body.operations if "@main(" in str(f)[:20])
    sizes = [len(list(block.operations)) for block in function.regions[0].blocks]
    assert sum(sizes) == count + 2 + len(sizes) - 1
    assert max(sizes) == partitioning.MOST_OF_BLOCK() + 1
    assert undefined_symbols(parts[-1].object_file(CpuOptions())) == ["one", "two"]


def test_a_long_main_with_a_loop_stays_with_its_kernels() -> None:
    """It is optimised, and they may be inlined."""
    calls = "\n".join(f"%{i} = llvm.call @one(%x) : (f32) -> f32" for i in range(partitioning.MOST_OF_SMALL()))
    main = MAIN.replace("%y = llvm.call", f"{calls}\nllvm.br ^next\n^next:\n%y = llvm.call", 1)
    given = module(MODULE.replace(MAIN, main))
    assert [part.module for part in split_module(given, 1)] == [given]


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
def test_levels(opt_level: int) -> None:
    file = object_file(module(), opt_level, unroll=opt_level == 1)
    assert undefined_symbols(file) == ["outside"]
    assert ObjectCode(file, {"outside": 4096}).address("main")


def test_what_has_no_translation() -> None:
    with pytest.raises(LlvmError, match="no translation"):
        object_file(module("func.func @main() { return }"), 1)


def test_equal_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((37, 41), np.float32)
    expected: Any = compiled()(x)
    monkeypatch.setattr(partitioning.LEAST_OPERATIONS, "usual", 1)
    parts = compiled()
    assert len(parts._function.keep_alive.object_files()) > 2
    np.testing.assert_array_equal(parts(x), expected)
    parts.save(tmp_path / "many.sxe")
    again = sx.load_executable(tmp_path / "many.sxe")
    np.testing.assert_array_equal(again(x), expected)
    assert again._function.keep_alive.object_files() == parts._function.keep_alive.object_files()
