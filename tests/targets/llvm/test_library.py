"""The library: functions with sizes as arguments, whose machine code programs link instead of compiling it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.compiling.cache import Folder, KeptLibrary
from stablexla.dialects.contexts import upstream_context
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.math import registry
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu import emit, packed_constants, shared
from stablexla.targets.llvm import early_code, engine
from stablexla.targets.llvm.library import Library
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.passes import PASSES
from stablexla.targets.runtime import processor
from stablexla.targets.runtime.processor import LEVELS

LHS = np.random.default_rng(1).standard_normal((300, 500), np.float32)
RHS = np.random.default_rng(2).standard_normal((500, 400), np.float32)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    """A library with nothing in it and no folder."""
    made = Library()
    monkeypatch.setattr(early_code, "LIBRARY", made)
    return made


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The symbols of shared functions that are emitted from now on."""
    symbols: list[str] = []
    emit = shared.SharedFunctions._emit

    def noted(self: Any, spec: Any, symbol: str, *rest: Any) -> None:
        symbols.append(symbol)
        emit(self, spec, symbol, *rest)

    monkeypatch.setattr(shared.SharedFunctions, "_emit", noted)
    return symbols


def product(more: int = 0, **options: Any) -> sx.Executable:
    """A packed product, of more columns than the arrays have by `more`."""
    b = sx.XlaBuilder("product")
    x = b.parameter(0, sx.f32[LHS.shape], name="x")
    y = b.parameter(1, sx.f32[RHS.shape[0], RHS.shape[1] + more], name="y")
    return sx.compile(b.build(x @ y), options=sx.CompileOptions(**options))


def files_of(executable: sx.Executable) -> list[bytes]:
    files: list[bytes] = executable._function.keep_alive.object_files()
    return files


def test_sizes_are_arguments(library: Library, emitted: list[str]) -> None:
    first = product()
    made, emitted[:] = [*emitted], []
    assert any("sum_block" in symbol for symbol in made)
    assert len(library._files) + 1 == len(files_of(first))
    other = product(more=33)
    assert emitted == []
    assert files_of(other)[:-1] == files_of(first)[:-1]
    expected = LHS.astype(np.float64) @ RHS
    np.testing.assert_allclose(first(LHS, RHS), expected, rtol=2e-5, atol=2e-4)
    wider = np.concatenate([RHS, RHS[:, :33]], axis=1)
    np.testing.assert_array_equal(np.asarray(other(LHS, wider))[:, : RHS.shape[1]], first(LHS, RHS))


@pytest.mark.parametrize(("groups", "less", "all_of_library"), [(1, 1, True), (2, 0, True), (2, 1, False)])
def test_convolutions_pack_by_the_library(groups: int, less: int, all_of_library: bool, library: Library) -> None:
    """But for those that pack much, if they are not small."""
    work = 32 * 30 * 9 * 8 * 16 // groups

    def convolution() -> sx.Executable:
        b = sx.XlaBuilder("small")
        x, w = b.parameter(0, sx.f32[1, 32, 30, 8]), b.parameter(1, sx.f32[3, 3, 8 // groups, 16])
        y = sx.conv_general(x, w, (1, 1), "SAME", ("NHWC", "HWIO", "NHWC"), feature_group_count=groups)
        options = sx.CompileOptions(choices=f"usual+convolution.library-work={work - less}")
        return sx.compile(b.build(y), options=options)

    image = np.random.default_rng(3).standard_normal((1, 32, 30, 8), np.float32)
    weights = np.random.default_rng(4).standard_normal((3, 3, 8 // groups, 16), np.float32)
    made = convolution()
    assert (b"stablexla_fill_pixels" in b"".join(library._files.values())) == all_of_library
    padded = np.pad(image.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    parts = zip(np.split(windows, groups, 3), np.split(weights, groups, 3), strict=True)
    expected = np.concatenate([np.einsum("byxcij,ijco->byxo", *part) for part in parts], 3)
    np.testing.assert_allclose(made(image, weights), expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(made(image, weights), convolution()(image, weights))


def test_the_same_bits_and_files_as_when_it_was_made(library: Library) -> None:
    made, found = product(), product()
    assert files_of(made) == files_of(found)
    np.testing.assert_array_equal(made(LHS, RHS), found(LHS, RHS))


@pytest.mark.parametrize(
    "options", [{"opt_level": 2}, {"vector_bits": 128}, {"target_cpu": "x86-64-v2"}, {"choices": "eager"}], ids=str
)
def test_other_code_is_another_function(library: Library, options: dict[str, Any]) -> None:
    product()
    before = set(library._files)
    made = product(**options)
    assert set(library._files) - before
    np.testing.assert_allclose(made(LHS, RHS), LHS.astype(np.float64) @ RHS, rtol=2e-5, atol=2e-4)


def test_what_is_saved_needs_no_library(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "product.sxe"
    made = product()
    made.save(path)
    code = "import sys, numpy as np, stablexla as sx; x, y = np.load(sys.argv[2]).values(); "
    code += "np.save(sys.argv[3], sx.load_executable(sys.argv[1])(x, y))"
    np.savez(tmp_path / "in.npz", LHS, RHS)
    names = [str(path), str(tmp_path / "in.npz"), str(tmp_path / "out.npy")]
    subprocess.run([sys.executable, "-c", code, *names], check=True)
    np.testing.assert_array_equal(np.load(names[2]), made(LHS, RHS))


def test_whoever_looks_sees_everything(library: Library, tmp_path: Path) -> None:
    assert "func.func private @stablexla_sum_block_" in product().ir("buffers")
    emptied = set(library._files)
    with knobs.scoped(dump=tmp_path):
        product()
    (file,) = tmp_path.rglob("*.buffers.mlir")
    bodies = [line for line in file.read_text().splitlines() if "func.func private @stablexla_" in line]
    assert bodies
    assert all(line.endswith("{") for line in bodies)
    assert set(library._files) == emptied


# ---- elementary functions -------------------------------------------------------------------------------------------


def elementary(name: str, type_: sx.ElementType, size: int, **options: Any) -> sx.Executable:
    """A program of one elementary function, of a sum."""
    b = sx.XlaBuilder(name)
    x = b.parameter(0, type_[size], name="x")
    given = [x + x, x] if name in ("pow", "atan2", "rem") else [x + x]
    return sx.compile(b.build(getattr(sx, name)(*given)), options=sx.CompileOptions(**options))


UNARY = ["sin", "cos", "tan", "exp", "log", "tanh", "log1p", "expm1", "cbrt", "erf", "acosh", "logistic"]


@pytest.mark.parametrize("name", [*UNARY, "atan2", "pow", "rem"])
@pytest.mark.parametrize("type_", [sx.f32, sx.f64])
def test_elementary_functions_have_the_bits_of_code_in_place(
    name: str, type_: sx.ElementType, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole vectors and a part of one, linked and found again; few elements and, by the gate, many."""
    x = np.abs(np.random.default_rng(3).standard_normal(1003)).astype(type_.dtype) * 3
    x[:5] = 0, np.inf, np.nan, 1e30, 1e-30
    few = elementary(name, type_, 43)
    of_library = dict(library._files)
    assert of_library
    assert len(files_of(few)) == len(of_library) + 1
    np.testing.assert_array_equal(elementary(name, type_, 43)(x[:43]), few(x[:43]))
    many = elementary(name, type_, 1003, choices="usual+elementary-functions.most-evaluated=1000")
    assert len(files_of(many)) > 1
    monkeypatch.setattr(early_code.EarlyCode, "symbol_for", lambda *_: None)
    monkeypatch.setattr(registry, "LONG", frozenset())
    alone = elementary(name, type_, 1003, choices="usual+elementary-functions.most-evaluated=1")
    assert not {*files_of(alone)} & {*files_of(many)}, "a function of the library"
    np.testing.assert_array_equal(many(x), alone(x))
    np.testing.assert_array_equal(few(x[:43]), np.asarray(alone(x))[:43])


def test_elementary_functions_of_a_saved_program(library: Library, tmp_path: Path) -> None:
    x = np.linspace(-9, 9, 43, dtype=np.float32)
    made = elementary("sin", sx.f32, 43)
    made.save(tmp_path / "sine.sxe")
    np.testing.assert_array_equal(sx.load_executable(tmp_path / "sine.sxe")(x), made(x))
    np.testing.assert_allclose(made(x), np.sin(2 * x.astype(np.float64)), rtol=2e-7, atol=2e-7)


def test_whoever_looks_sees_elementary_functions_in_place(library: Library) -> None:
    made = elementary("tanh", sx.f32, 43)
    assert "math_tanh" not in made.ir("llvm")
    assert "llvm.intr.fma" in made.ir("llvm")


def test_an_expansion_of_others_stays_in_the_program(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may change while a process runs."""
    monkeypatch.setattr(registry, "EXPANSIONS", dict(registry.EXPANSIONS))

    @registry.expands("math.tanh")
    def ours(x: Any) -> Any:
        return x * 3.0

    x = np.ones(43, np.float32)
    np.testing.assert_array_equal(elementary("tanh", sx.f32, 43)(x), np.full(43, 6, np.float32))
    assert not library._files


# ---- constants ------------------------------------------------------------------------------------------------------


def product_by_constant(more: int = 0, **options: Any) -> sx.Executable:
    """The packed product of a constant, which has more columns by `more`."""
    b = sx.XlaBuilder("constant")
    x = b.parameter(0, sx.f32[LHS.shape], name="x")
    constant = b.constant(np.concatenate([RHS, RHS[:, :more]], axis=1))
    return sx.compile(b.build(x @ constant), options=sx.CompileOptions(**options))


@pytest.mark.parametrize("threads", [1, 2])
def test_constants_are_packed_by_the_library(
    library: Library, emitted: list[str], monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(early_code, "host_target", lambda: type("Some", (), {"num_threads": threads}))
    made = product_by_constant()
    of_library = len(library._files)
    assert of_library == 2  # what packs, and the loops over items, with all that they call
    assert len(emitted) == 5
    emitted.clear()
    more = product_by_constant(33)
    assert emitted == []
    assert len(files_of(more)) == of_library + 1  # what is left is main
    np.testing.assert_array_equal(np.asarray(more(LHS))[:, : RHS.shape[1]], made(LHS))
    monkeypatch.setattr(emit, "open_session", lambda: None)
    np.testing.assert_array_equal(product_by_constant()(LHS), made(LHS))
    assert emitted
    assert len(library._files) == of_library


def test_code_for_another_processor_packs_nothing(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's would have instructions that this one lacks; the whole module packs by code for this one."""
    monkeypatch.setattr(early_code, "host_target", lambda: type("One", (), {"num_threads": 1}))
    packed_by = []
    load = packed_constants.load

    def noted(module: Any, signature: Any, options: sx.CompileOptions) -> Any:
        made = load(module, signature, options)
        packed_by.append(options.target_cpu)
        return made

    monkeypatch.setattr(packed_constants, "load", noted)
    product_by_constant(target_cpu="x86-64-v2")
    assert packed_by.pop() == "x86-64-v2"
    monkeypatch.setattr(engine.processor, "features", lambda: frozenset(LEVELS["x86-64-v2"]))
    with pytest.raises(sx.CompileError, match="code for x86-64-v3 needs"):
        product_by_constant(target_cpu="x86-64-v3")
    assert packed_by == [None]


@pytest.mark.parametrize("level", ["neoverse-n1", "x86-64-v4"])
def test_a_processor_that_this_one_is_not_is_refused_before_any_code_is_made(
    level: str, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM ends the process over the name of one of another family."""
    monkeypatch.setattr(processor, "features", lambda: frozenset({"sse2"}))
    with pytest.raises(sx.CompileError, match=f"code for {level} needs"):
        product(target_cpu=level)
    assert not library._files


def test_kept_in_a_folder(library: Library, emitted: list[str], tmp_path: Path) -> None:
    with knobs.scoped(library=tmp_path / "kept"):
        library.store = KeptLibrary()
        made = product()
        assert len(list((tmp_path / "kept").iterdir())) == len(library._files)
        library._files.clear()
        emitted.clear()
        np.testing.assert_array_equal(product()(LHS, RHS), made(LHS, RHS))
        assert emitted == []
        for file in (tmp_path / "kept").iterdir():
            file.write_bytes(file.read_bytes()[:-70])
        library._files.clear()
        np.testing.assert_array_equal(product()(LHS, RHS), made(LHS, RHS))
        assert emitted
    with knobs.scoped(library="off"):
        assert Folder.of_library() is None
        assert KeptLibrary().get("0" * 64) is None
        KeptLibrary().put("0" * 64, b"code")


@dataclass(frozen=True)
class _OfAUser(shared.SharedFunction):
    name = "of_a_user"

    def emit(self, functions: Any, buffers: list[Any], numbers: list[Any]) -> None:
        pass


def test_functions_of_others_are_not_kept() -> None:
    with upstream_context() as context, ir.Location.unknown(context), early_code.early_code(early_code.CpuOptions()):
        module = ir.Module.parse("func.func private @place()")
        home = shared._Alone(module.body.operations[0], uses_library=True)
        with ir.InsertionPoint.at_block_begin(module.body):
            shared.SharedFunctions(home, CpuTarget()).call(_OfAUser(), [], [])
    assert "func.func private @of_a_user() attributes {no_inline} {" in str(module)
    assert len(home.emitted) == 1


def test_an_error_behind_a_declared_function_has_the_whole_module(
    library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(module: ir.Module) -> None:
        raise ValueError("no machine code today")

    name = "stablexla-run-in-parallel"
    monkeypatch.setitem(PASSES, name, replace(PASSES[name], function=refuse))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(sx.CompileError, match="no machine code today") as caught:
        product()
    (file,) = re.findall(r"--run-reproducer (\S+)", str(caught.value))
    bodies = [line for line in Path(file).read_text().splitlines() if "func private @stablexla_sum_block" in line]
    assert bodies
    assert all(line.endswith("{") for line in bodies)
