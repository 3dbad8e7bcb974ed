"""Executables in files. What was saved is the oracle of what is loaded: every bit of the results is the same."""

from __future__ import annotations

import copy
import ctypes
import hashlib
import json
import os
import pickle
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.executable.saved import executable_of
from stablexla.targets.codegen.machine import LEVEL_VECTOR_BITS
from stablexla.targets.llvm import toolchain
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import (
    CompiledFunction,
    ObjectCode,
    container,
    find_symbol,
    get_num_threads,
    processor,
    set_num_threads,
    signatures,
    undefined_symbols,
)
from stablexla.targets.runtime._runtime import flags_of_words
from tests.threads import in_threads

TARGET = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets of a test are gone after it, and those from elsewhere unknown to it."""
    monkeypatch.setattr("stablexla.compiling.custom_calls.TARGETS", targets := {})
    monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "program.sxe"


def build(make: Callable[..., Any], *shapes: sx.Shape) -> sx.Executable:
    b = sx.XlaBuilder("test")
    parameters = [b.parameter(i, shape, name=f"p{i}") for i, shape in enumerate(shapes)]
    return sx.compile(b.build(make(b, *parameters)))


def again(executable: sx.Executable, file: Path) -> sx.Executable:
    executable.save(file)
    return sx.load_executable(file)


def leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]


def same(actual: Any, wanted: Any) -> None:
    assert len(leaves(actual)) == len(leaves(wanted))
    for a, w in zip(leaves(actual), leaves(wanted), strict=True):
        assert a.dtype == w.dtype
        assert a.shape == w.shape
        assert a.tobytes() == w.tobytes()


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> sx.Executable:
    """Constants, a contraction, parallel loops, an elementary function, a reduction."""
    b = sx.XlaBuilder("model")
    x = b.parameter(0, sx.f32[65, 96], name="x")
    hidden = sx.tanh(sx.dot(x, b.constant(numbers(96, 70))))
    return sx.compile(b.build(sx.reduce(hidden, b.constant(0.0), sx.add, (1,))))


def test_all_of_an_executable_is_there_again(model: sx.Executable, file: Path) -> None:
    loaded = again(model, file)
    x = numbers(65, 96)
    same(loaded(x), model(x))
    same(tuple(loaded.execute([x])), tuple(model.execute([x])))
    same(tuple(loaded.execute_replicated([[x]])[0]), (model(x),))
    assert repr(loaded) == f"{repr(model)[:-1]}, program.sxe, not authenticated)"
    assert loaded._repr_html_() == model._repr_html_()
    assert (loaded.parameters, loaded.results, loaded.stages) == (model.parameters, model.results, model.stages)
    assert loaded.pipeline == model.pipeline
    for stage in ("source", "kernels", "llvm"):
        assert loaded.ir(stage, debug_info=True) == model.ir(stage, debug_info=True)
    assert loaded.kernels == model.kernels
    assert loaded.composites == model.composites
    with pytest.raises(sx.ExecutionError, match=r"model: parameter 0 \(x\) takes float32\[65,96\]"):
        loaded(x[1:])


def test_a_loaded_one_can_be_saved(model: sx.Executable, tmp_path: Path) -> None:
    first, second = tmp_path / "1.sxe", tmp_path / "2.sxe"
    again(model, first).save(second)
    assert first.read_bytes() == second.read_bytes()
    same(sx.load_executable(str(second))(numbers(65, 96)), model(numbers(65, 96)))


def test_it_runs_in_many_threads(model: sx.Executable, file: Path) -> None:
    loaded, x = again(model, file), numbers(65, 96)
    results: list[Any] = []
    in_threads(lambda _: results.extend(loaded(x) for _ in range(20)), range(4))
    assert len(results) == 80
    for result in results:
        same(result, model(x))


def test_the_number_of_threads_is_heeded(model: sx.Executable, file: Path) -> None:
    model.save(file)
    before = get_num_threads()
    wanted = 3 if before != 3 else 2
    try:
        with knobs.scoped(num_threads=wanted):
            sx.load_executable(file)
        assert get_num_threads() == wanted
    finally:
        set_num_threads(before)


def test_code_lives_as_long_as_somebody_holds_it(model: sx.Executable, file: Path) -> None:
    run = again(model, file).__call__
    same(run(numbers(65, 96)), model(numbers(65, 96)))


def test_tuples(file: Path) -> None:
    pair = sx.Shape.tuple((sx.f32[3], sx.Shape.tuple((sx.s32[()], sx.pred[2]))))

    def make(b: sx.XlaBuilder, p: sx.XlaOp) -> sx.XlaOp:
        rest = sx.get_tuple_element(p, 1)
        return sx.tuple((sx.get_tuple_element(p, 0) * 2, sx.tuple((sx.get_tuple_element(rest, 1),))))

    executable = build(make, pair)
    loaded = again(executable, file)
    given = (numbers(3), (np.int32(4), np.array([True, False])))
    same(loaded(given), executable(given))
    with pytest.raises(sx.ExecutionError, match="takes a tuple"):
        loaded((numbers(3), 4))


def test_dynamic_sizes(file: Path) -> None:
    executable = build(lambda b, x: sx.tuple((x * 2, sx.reduce(x, b.constant(0.0), sx.add, (0,)))), sx.f32["<=8", 3])
    loaded = again(executable, file)
    for rows in (0, 3, 8):
        same(loaded(numbers(rows, 3)), executable(numbers(rows, 3)))
    with pytest.raises(sx.ExecutionError, match="<=8"):
        loaded(numbers(9, 3))


def test_random_numbers_follow_the_seed(file: Path) -> None:
    executable = build(lambda b: sx.rng_uniform(b.constant(0.0), b.constant(1.0), sx.f32[50]))
    loaded = again(executable, file)
    executable.seed(7)
    loaded.seed(7)
    same(loaded(), executable())
    same(loaded(), executable())


def test_infeed_and_outfeed(file: Path) -> None:
    def make(b: sx.XlaBuilder) -> sx.XlaOp:
        x = b.infeed(sx.f32[2])
        sx.outfeed(x * 3, sx.f32[2], "")
        return x * 2

    loaded = again(build(make), file)
    loaded.transfer_timeout = 5
    loaded.transfer_to_infeed(np.array([1, 2], np.float32))
    np.testing.assert_array_equal(loaded(), [2, 4])
    np.testing.assert_array_equal(loaded.transfer_from_outfeed(), [3, 6])


def test_linear_algebra_finds_its_library(file: Path) -> None:
    executable = build(lambda b, x: sx.cholesky(x), sx.f32[40, 40])
    x = numbers(40, 40)
    same(
        again(executable, file)(x @ x.T + 40 * np.eye(40, dtype=np.float32)),
        executable(x @ x.T + 40 * np.eye(40, dtype=np.float32)),
    )


def test_aliases_are_kept(file: Path) -> None:
    text = """func.func @main(%x: tensor<256xf32> {tf.aliasing_output = 0 : i32}) -> tensor<256xf32> {
      %0 = stablehlo.negate %x : tensor<256xf32>
      return %0 : tensor<256xf32>
    }"""
    loaded = again(sx.compile(text), file)
    assert loaded.aliases == {0: 0}


def test_flushing_of_denormals_is_kept(file: Path) -> None:
    b = sx.XlaBuilder("tiny")
    computation = b.build(b.parameter(0, sx.f32[64]) * 0.5)
    tiny = np.full(64, 1.2e-38, np.float32)
    for flush in (False, True):
        executable = sx.compile(computation, options=sx.CompileOptions(flush_denormals=flush))
        loaded = again(executable, file)
        assert (loaded(tiny) == 0).all() == flush


# ---- functions that no file holds ------------------------------------------------------------------------------------


def look(module: Any) -> None:
    """A pass of a user."""


def _with_functions(kind: str) -> sx.Executable:
    b = sx.XlaBuilder("ruled")
    computation = b.build(sx.tanh(b.parameter(0, sx.f32[4])))
    if kind == "rule":
        options = sx.CompileOptions(rules=[sx.lowering_rule("stablehlo.tanh", lambda ctx, x: [x])])
    else:
        options = sx.CompileOptions(pipeline=sx.pipeline("cpu").inserting(look, before="tensor"))
    return sx.compile(computation, options=options)


@pytest.mark.parametrize("kind", ["rule", "pass"])
def test_what_would_run_lost_functions_says_so(kind: str, tmp_path: Path) -> None:
    executable, x = _with_functions(kind), numbers(4)
    loaded = again(again(executable, tmp_path / "1.sxe"), tmp_path / "2.sxe")  # and it is not forgotten
    same(loaded(x), executable(x))
    assert loaded.ir("source") == executable.ir("source")
    assert loaded.stages == executable.stages
    for ask in (
        lambda: loaded.ir("tensor"),
        lambda: loaded.kernels,
        lambda: loaded.composites,
        lambda: loaded.explain(),
        lambda: loaded.compare([x], "plain"),
        lambda: executable.compare([x], loaded),
        lambda: loaded.profile([x]),
    ):
        with pytest.raises(sx.CompileError, match=r"(?s)ruled: rules or passes .* its file lacks them\n  try: compile"):
            ask()


def test_this_process_may_have_the_functions(file: Path) -> None:
    executable = _with_functions("rule")
    executable.save(file)
    loaded = executable_of(container.read(file), "it", executable.pipeline)
    assert loaded.ir("tensor") == executable.ir("tensor")
    assert "tanh" not in loaded.ir("tensor")
    with pytest.raises(sx.CompileError, match="its file lacks them"):  # with another pipeline than its own
        executable_of(container.read(file), "it", executable.pipeline.without("tensor")).ir("tensor")


# ---- custom calls ----------------------------------------------------------------------------------------------------


def test_python_functions_are_bound_when_it_is_loaded(file: Path) -> None:
    sx.register_custom_call("mine", lambda x: x + 1)
    build(lambda b, x: sx.custom_call("mine", x, sx.f32[3]), sx.f32[3]).save(file)
    sx.register_custom_call("mine", lambda x: x + 5)
    np.testing.assert_array_equal(sx.load_executable(file)(np.zeros(3, np.float32)), [5, 5, 5])


def test_keywords_are_kept(file: Path) -> None:
    sx.register_custom_call("mine", lambda x, opaque: x + float(opaque))
    executable = build(lambda b, x: sx.custom_call("mine", x, sx.f32[3], opaque="2.5"), sx.f32[3])
    np.testing.assert_array_equal(again(executable, file)(np.zeros(3, np.float32)), [2.5] * 3)


def test_c_functions_are_bound_when_it_is_loaded(file: Path) -> None:
    def fill(value: float) -> Any:
        def target(out: Any, inputs: Any) -> None:
            ctypes.cast(out, ctypes.POINTER(ctypes.c_float))[0] = value

        return TARGET(target)

    sx.register_custom_call("fill", fill(1))
    build(lambda b: b.custom_call("fill", (), sx.f32[1])).save(file)
    sx.register_custom_call("fill", fill(2))
    np.testing.assert_array_equal(sx.load_executable(file)(), [2])


@pytest.mark.parametrize(("kind", "function"), [("a Python", lambda: 0.0), ("a C", TARGET(lambda out, inputs: None))])
def test_a_missing_function_is_named(kind: str, function: object, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sx.register_custom_call("nowhere", function)
    build(lambda b: b.custom_call("nowhere", (), sx.f32[1])).save(file)
    from stablexla.dialects import custom_calls

    monkeypatch.delitem(custom_calls.TARGETS, "nowhere")
    with pytest.raises(sx.LoadError, match=f"custom calls of 'nowhere', for which {kind} function must be registered"):
        sx.load_executable(file)


def test_a_missing_kernel_of_a_composite_is_named(file: Path) -> None:
    sx.register_composite_kernel("test.twice", 1, lambda x: x * 2)
    try:
        executable = build(lambda b, x: sx.composite_call(x, "test.twice", {}, lambda x: x + x, version=1), sx.f32[2])
        np.testing.assert_array_equal(again(executable, file)(np.ones(2, np.float32)), [2, 2])
    finally:
        sx.unregister_composite_kernel("test.twice", 1)
    with pytest.raises(sx.LoadError, match=r"the kernel for 'test\.twice' is registered no more"):
        sx.load_executable(file)


def test_without_its_source(model: sx.Executable, tmp_path: Path) -> None:
    model.save(tmp_path / "whole.sxe")
    model.save(tmp_path / "code.sxe", source=False)
    loaded = sx.load_executable(tmp_path / "code.sxe")
    x = numbers(65, 96)
    same((loaded(x),), (model(x),))
    assert loaded.memory_estimate().results == model.memory_estimate().results
    assert len(container.read(tmp_path / "whole.sxe").sections["source"])
    assert not len(container.read(tmp_path / "code.sxe").sections["source"])
    for ask in (
        lambda: loaded.ir("source"),
        lambda: loaded.kernels,
        loaded.explain,
        lambda: loaded.compare([x], "plain"),
        lambda: loaded.check([x]),
        lambda: loaded.profile([x]),
    ):
        with pytest.raises(sx.CompileError, match=r"saved without its source(?s:.)*try: executable\.save"):
            ask()
    loaded.save(tmp_path / "again.sxe")
    same((sx.load_executable(tmp_path / "again.sxe")(x),), (model(x),))


# ---- files that do not fit -------------------------------------------------------------------------------------------


def test_no_file_and_no_program(tmp_path: Path) -> None:
    with pytest.raises(sx.LoadError, match=r"nothing.sxe: cannot be read: No such file"):
        sx.load_executable(tmp_path / "nothing.sxe")
    (tmp_path / "text.mlir").write_text("module {}")
    with pytest.raises(sx.LoadError, match=r"text.mlir: this is no saved program"):
        sx.load_executable(tmp_path / "text.mlir")


def test_every_cut_is_noticed(model: sx.Executable, file: Path) -> None:
    model.save(file)
    data = file.read_bytes()
    for length in [*range(300), *range(300, len(data), 997), *range(len(data) - 70, len(data))]:
        with pytest.raises(sx.LoadError, match=r"damaged|no saved program"):
            container.parse(data[:length], "cut")
    for behind in (b"\0", b"x" * 39, signatures.MARK, bytes(64), data):
        with pytest.raises(sx.LoadError, match=r"the file is damaged: (there are|its signature)"):
            container.parse(data + behind, "longer")
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(sx.LoadError, match="the file is damaged: it ends too early"):
        sx.load_executable(file)


def test_every_changed_bit_is_noticed(model: sx.Executable, file: Path) -> None:
    model.save(file)
    data = bytearray(file.read_bytes())
    random.seed(1)
    said = []
    for _ in range(200):
        place, bit = random.randrange(len(data)), 1 << random.randrange(8)
        data[place] ^= bit
        try:
            read = container.parse(bytes(data), "flipped")
        except sx.LoadError as error:
            said.append(str(error))
        else:  # between the sections
            assert read.sections["code"] == container.read(file).sections["code"]
        data[place] ^= bit
    assert len(said) > 100
    assert all(message.startswith("flipped: ") for message in said)


def forged(file: Path, **changes: object) -> Path:
    """The file with other values in its description."""
    read = container.read(file)
    container.write(file, {**read.description, **changes}, {name: bytes(s) for name, s in read.sections.items()})
    return file


@pytest.mark.parametrize(
    "text", [b"no json", b"[]", b"{}", b'{"sections": 3}', b'{"sections": {"a": {}}}', b'{"sections": {"a": 1}}']
)
def test_descriptions_of_right_checksums(text: bytes) -> None:
    head = container._HEAD.pack(container.FORMAT, 0, len(text), hashlib.sha256(text).digest())
    with pytest.raises(sx.LoadError, match="forged: the file is damaged: its description does not hold together"):
        container.parse(container.MAGIC + head + text, "forged")


def test_another_version(model: sx.Executable, file: Path) -> None:
    model.save(file)
    with pytest.raises(sx.LoadError, match=r"stablexla 9.9 wrote the program, and this is .*\n  try: compile it again"):
        sx.load_executable(forged(file, stablexla="9.9"))


def test_another_format(model: sx.Executable, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(container, "FORMAT", 77)
        model.save(file)
    with pytest.raises(sx.LoadError, match="saved in format 77, and this stablexla reads format"):
        sx.load_executable(file)


def test_pickle_and_copy_name_what_to_do(model: sx.Executable) -> None:
    b = sx.XlaBuilder("double")
    op = b.parameter(0, sx.f32[2]) * 2
    computation = b.build(op)
    run = sx.compile(computation).start([np.ones(2, np.float32)])
    for of_here, way_out in (
        (model, "executable.save(path), and sx.load_executable(path) in the other process"),
        (run, "run.result(), whose arrays can be"),
        (computation, "computation.bytecode(), which sx.compile takes"),
        (op, "b.build(op).bytecode() for another process"),
        (b, "b.build(root).bytecode() for another process"),
    ):
        for refused in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(sx.UnsupportedError, match="can be neither pickled nor copied") as raised:
                refused({"held": of_here} if refused is copy.deepcopy else of_here)
            assert repr(of_here) in raised.value.summary
            assert way_out in raised.value.hint
    np.testing.assert_array_equal(run.result()[0], [2, 2])


def test_another_processor(model: sx.Executable, file: Path) -> None:
    model.save(file)
    function = container.read(file).description["function"]
    features = [*function["features"], "avx9000"]
    with pytest.raises(sx.LoadError, match="a processor with avx9000, which this one does not have"):
        sx.load_executable(forged(file, function={**function, "features": features}))
    with pytest.raises(sx.LoadError, match="compiled for pdp11, and this is"):
        sx.load_executable(forged(file, function={**function, "machine": "pdp11"}))
    assert set(function["features"]) == processor.features()


# Bits of Linux's asm/hwcap.h, by AT_HWCAP and AT_HWCAP2.
HWCAPS = {
    "neoverse-n1": ((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 20), ()),
    "neoverse-v1": ((*range(17), 20, 21, 22, 23, 24, 25, 26, 27), (0, 7, 8, 9, 12, 13, 14)),
}


@pytest.mark.parametrize("name", [*HWCAPS])
def test_features_of_aarch64(name: str) -> None:
    flags = frozenset(flags_of_words(*(sum(1 << bit for bit in bits) for bits in HWCAPS[name])))
    assert flags >= processor.LEVELS[name] > processor.LEVELS["armv8-a"]
    has_v1 = name == "neoverse-v1"
    assert {each: each in flags for each in ("i8mm", "bf16", "sve", "sve2")} == {
        "i8mm": has_v1,
        "bf16": has_v1,
        "sve": has_v1,
        "sve2": False,
    }
    told = processor.llvm_features(flags).split(",")
    assert {"+neon", "+dotprod", "+fullfp16", "+lse", "-sve"} <= set(told)
    assert ("+i8mm" in told, "-i8mm" in told) == (has_v1, not has_v1)


@pytest.mark.parametrize("level", [*processor.LEVELS])
def test_older_processors(level: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their registers alone are in the code; a machine of the level loads it, one of the level before does not."""
    options, features = sx.CompileOptions(target_cpu=level), processor.LEVELS[level]
    b = sx.XlaBuilder("older")
    given = b.parameter(0, sx.f32[12, 5])
    computation = b.build(sx.tanh(sx.dot(given, sx.transpose(given, (1, 0)))) * 3.0)
    if features - processor.features():
        with pytest.raises(sx.CompileError, match=f"code for {level} needs .*, which this processor does not have"):
            sx.compile(computation, options=options)
        return
    sx.compile(computation, options=options).save(file)
    x = np.arange(60, dtype=np.float32).reshape(12, 5) / 60
    for _ in range(2):  # the second one is of a file that a loaded one wrote
        loaded = sx.load_executable(file)
        np.testing.assert_allclose(loaded(x), np.tanh(x @ x.T) * 3, rtol=1e-5)
        assert loaded._compile_options.target_cpu == level
        loaded.save(file)
    assert set(container.read(file).description["function"]["features"]) == features
    widths = {"xmm": 128, "ymm": 256, "zmm": 512}
    assert max(widths[name] for name in registers(loaded, tmp_path)) == LEVEL_VECTOR_BITS[level]
    monkeypatch.setattr(processor, "features", lambda: features)
    sx.load_executable(file)
    for before in [*processor.LEVELS][: [*processor.LEVELS].index(level)]:
        monkeypatch.setattr(processor, "features", lambda before=before: processor.LEVELS[before])
        way_out = rf"target_cpu='{before}' where it is compiled \(stablexla-compile --target-cpu={before}\)"
        with pytest.raises(sx.LoadError, match=rf"a processor with .*, which this one does not have\n  try: {way_out}"):
            sx.load_executable(file)


def registers(executable: sx.Executable, folder: Path) -> set[str]:
    """The kinds of vector registers in an executable's code."""
    found: set[str] = set()
    for file in executable._function.keep_alive.object_files():
        (folder / "part.o").write_bytes(file)
        command = [toolchain.llvm_tool("llvm-objdump"), "-d", folder / "part.o"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found.update(re.findall("%([xyz]mm)[0-9]", text))
    return found


def test_features_of_the_levels_are_among_those_that_are_looked_at() -> None:
    for level, features in processor.LEVELS.items():
        assert all(processor._INSTRUCTIONS.fullmatch(feature) for feature in features), level
    assert LEVEL_VECTOR_BITS.keys() == processor.LEVELS.keys()


@pytest.mark.parametrize("change", [{"parameters": ["nonsense"]}, {"function": {}}, {"name": 3}, {"tree": [1]}])
def test_a_forged_description(change: dict[str, Any], model: sx.Executable, file: Path) -> None:
    model.save(file)
    with pytest.raises(sx.LoadError, match="does not hold together"):
        sx.load_executable(forged(file, **change))


def test_a_wrong_variable_is_no_fault_of_the_file(
    model: sx.Executable, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save(file)
    monkeypatch.setenv("STABLEXLA_NUM_THREADS", "0")
    with pytest.raises(sx.StablexlaError, match=r"^STABLEXLA_NUM_THREADS=0: it is a number of threads"):
        sx.load_executable(file)


def test_what_is_no_object_file(model: sx.Executable) -> None:
    """Nothing outside of its bytes is read, whatever stands in it."""
    code = model._function.keep_alive.object_files()[-1]
    symbols = {name: find_symbol(name) for name in undefined_symbols(code)}
    assert ObjectCode(code, symbols).address("_mlir_main")
    random.seed(2)
    said = []
    for _ in range(1500):
        changed = bytearray(code)
        for _ in range(3):  # headers and tables lie at both ends
            place = random.choice([random.randrange(64), random.randrange(len(code) * 3 // 4, len(code))])
            changed[place] ^= 1 << random.randrange(8)
        try:
            ObjectCode(bytes(changed), symbols)
        except RuntimeError as error:
            said.append(str(error))
    assert len(said) > 300
    assert all(message.startswith("machine code: ") for message in said)
    for length in range(0, len(code), 97):
        with pytest.raises(RuntimeError, match="machine code: "):
            ObjectCode(code[:length], symbols)


def test_what_code_calls_must_be_there() -> None:
    random_numbers = build(lambda b: sx.rng_uniform(b.constant(0.0), b.constant(1.0), sx.f32[5]))
    files = random_numbers._function.keep_alive.object_files()
    (code,) = (file for file in files if b"stablexla_next_random_key" in file)
    with pytest.raises(RuntimeError, match="there is no function stablexla_next_random_key"):
        ObjectCode(code, {"other": 1})


# ---- writing ---------------------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all(model: sx.Executable, file: Path) -> None:
    model.save(file)
    before = file.read_bytes()

    def broken() -> Any:
        yield b"some"
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="the disk is full"):
        container.write(file, {}, {"code": broken()})
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == [file.name]
    with pytest.raises(FileNotFoundError) as error:
        model.save(file.parent / "no" / "folder.sxe")
    assert error.value.filename == str(file.parent / "no" / "folder.sxe")  # not the temporary file


@pytest.mark.parametrize("path", [None, b"\x93stablexla", 3])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(sx.LoadError, match="loaded from a file, whose path this is not"):
        sx.load_executable(path)


def test_readers_meet_whole_files_while_others_write(model: sx.Executable, file: Path) -> None:
    model.save(file)
    done = threading.Event()
    writers = [threading.Thread(target=lambda: [model.save(file) for _ in range(15)]) for _ in range(3)]

    def read() -> None:
        while not done.is_set():
            seen.append(container.read(file).description["name"])

    seen: list[str] = []
    reader = threading.Thread(target=read)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert set(seen) == {"model"}
    assert os.listdir(file.parent) == [file.name]


def test_the_description_is_plain(model: sx.Executable, file: Path) -> None:
    model.save(file)
    described = container.read(file).description
    assert described == json.loads(json.dumps(described))
    assert described["name"] == "model"
    assert isinstance(model._function, CompiledFunction)


START = """
import sys
import numpy as np
from stablexla import load_executable
executable = load_executable(sys.argv[1])
np.save(sys.argv[2], executable(np.load(sys.argv[3])))
print({"jaxlib", "mlir", "scipy"} & set(sys.modules))
executable.ir("source")
"""


def test_another_process_starts_it(model: sx.Executable, file: Path) -> None:
    model.save(file)
    given, result = file.with_name("given.npy"), file.with_name("result.npy")
    np.save(given, numbers(65, 96))
    command = [sys.executable, "-c", START, str(file), str(result), str(given)]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "set()\n", "to start a program takes no MLIR"
    same(np.load(result), model(numbers(65, 96)))
