"""Kernels that are kept: what any program has had before is linked, neither emitted nor compiled."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.compiling.ahead_of_time import compile_library
from stablexla.compiling.cache import KeptLibrary
from stablexla.dialects.contexts import upstream_context
from stablexla.dialects.symbols import functions_of
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.registry import Emitters
from stablexla.targets.cpu.emitters import EMITTERS
from stablexla.targets.llvm import code_llvm, early_code, kept_kernels, split_module
from stablexla.targets.llvm.library import Library
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.passes import PASSES
from tests.targets.runtime.test_stopping import ARRAYS

NHWC = sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC")
X = np.random.default_rng(1).standard_normal((37, 41), np.float32)


def model(scale: float = 0.5) -> sx.XlaComputation:
    """A program of several kernels, one of which calls a function of the library; the scale is in another."""
    b = sx.XlaBuilder("model")
    x = b.parameter(0, sx.f32[37, 41], name="x")
    product = sx.tanh(sx.sin(x)) @ sx.transpose(x, (1, 0))
    sums = sx.reduce(sx.exp(product * scale), 0.0, sx.add, (1,))
    return b.build(sx.sub(product, sums, (0,)) @ product)


def compiled(scale: float = 0.5, **options: Any) -> sx.Executable:
    return sx.compile(model(scale), options=sx.CompileOptions(**options))


def files_of(executable: sx.Executable) -> list[bytes]:
    files: list[bytes] = executable._function.keep_alive.object_files()
    return files


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """Kernels are kept, in an empty library without a folder; every program counts as big; there are two threads."""
    made, one = Library(), early_code.host_target()
    monkeypatch.setattr(early_code, "LIBRARY", made)
    monkeypatch.setattr(early_code.MOST_OF_SMALL, "usual", 3)
    monkeypatch.setattr(early_code.LEAST_KERNELS, "usual", 1)
    monkeypatch.setattr(early_code, "PART", 1)
    monkeypatch.setattr(early_code, "host_target", lambda: type("Two", (), {"num_threads": max(2, one.num_threads)}))
    with knobs.scoped(kept_kernels=True):
        yield made


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that are emitted from now on."""
    names: list[str] = []
    emit = Emitters.emit

    def noted(self: Any, kernel: Kernel, target: object) -> Any:
        names.append(kernel.name)
        return emit(self, kernel, target)

    monkeypatch.setattr(Emitters, "emit", noted)
    return names


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The object files that LLVM makes from now on."""
    files: list[bytes] = []
    make = split_module.object_file

    def noted(*arguments: Any, **options: Any) -> bytes:
        files.append(make(*arguments, **options))
        return files[-1]

    monkeypatch.setattr(split_module, "object_file", noted)
    return files


# ---- what is found ---------------------------------------------------------------------------------------------------


def test_a_program_again_needs_no_code(library: Library, emitted: list[str], made: list[bytes]) -> None:
    first = compiled()
    assert len(emitted) == len(first.kernels)
    emitted.clear()
    made.clear()
    second = compiled()
    assert (emitted, made) == ([], [])
    assert files_of(second)[-1] == files_of(first)[-1]
    assert set(files_of(second)) <= {*files_of(first)}
    np.testing.assert_array_equal(first(X), second(X))
    with knobs.scoped(kept_kernels=False):
        np.testing.assert_array_equal(compiled()(X), second(X))


def test_an_edited_line_is_emitted_alone(library: Library, emitted: list[str]) -> None:
    names = {kernel.name for kernel in compiled().kernels}
    emitted.clear()
    edited = compiled(scale=0.25)
    assert len(emitted) == 1
    assert set(emitted) < names
    emitted.clear()
    np.testing.assert_array_equal(compiled(scale=0.25)(X), edited(X))
    assert emitted == []
    with knobs.scoped(kept_kernels=False):
        np.testing.assert_array_equal(compiled(scale=0.25)(X), edited(X))


def test_a_kernel_of_another_program(library: Library, emitted: list[str]) -> None:
    """Neither its name, nor its place, nor what is around it counts."""

    def run(body: str, result: str) -> Any:
        emitted.clear()
        array = "tensor<37x37xf32>"
        body = re.sub(r"(\w+)\((.*?)\)", rf"stablehlo.\1 \2 : {array}", body)
        body = re.sub(r"(dot .*?) : ", rf"\1 : ({array}, {array}) -> ", body)
        return sx.compile(
            f"func.func @main(%x: {array}, %w: {array}) -> {array} {{ {body} return {result} : {array} }}"
        )(X[:, :37], X[:, 4:])

    product = run("%y = dot(%x, %w)\n", "%y")
    assert emitted == ["contraction_0"]
    run("%t = tanh(%x)\n %z = dot(%t, %t)\n %y = dot(%x, %w)\n %s = subtract(%y, %z)\n", "%s")
    assert "contraction_0" in emitted
    run("\n\n %t = tanh(%x)\n %z = dot(%w, %t)\n", "%z")
    assert emitted == []
    np.testing.assert_array_equal(product, run("\n %y = dot(%x, %w)\n", "%y"))


def test_the_parts_that_a_part_calls_come_along(library: Library, emitted: list[str]) -> None:
    """Packing for grouped convolutions is in the part of the first kernel that does it."""

    def convolutions(*features: int) -> tuple[sx.Executable, list[np.ndarray]]:
        b, rng = sx.XlaBuilder("layers"), np.random.default_rng(1)
        y = b.parameter(0, sx.f32[1, 16, 12, 8], name="x")
        arrays = [rng.standard_normal((1, 16, 12, 8), np.float32)]
        results = []
        for number, size in enumerate(features, 1):
            arrays.append(rng.standard_normal((3, 3, 4, size), np.float32))
            w = b.parameter(number, sx.f32[3, 3, 4, size], name=f"w{number}")
            results.append(sx.conv_with_general_dimensions(y, w, (1, 1), "SAME", NHWC, 2))
        return sx.compile(b.build(sx.concatenate(results, 3))), arrays

    convolutions(160, 224)
    second, arrays = convolutions(224)
    assert emitted[-1:] != []
    emitted.clear()
    second, arrays = convolutions(224)
    assert emitted == []
    with knobs.scoped(kept_kernels=False):
        np.testing.assert_array_equal(second(*arrays), convolutions(224)[0](*arrays))
    assert any(part.parts for part in (kept_kernels.KeptPart.find(library, d) for d in [*library._files]) if part)


def test_a_small_program_stays_whole(
    library: Library, monkeypatch: pytest.MonkeyPatch, emitted: list[str], made: list[bytes]
) -> None:
    compiled()
    emitted.clear()
    made.clear()
    monkeypatch.setattr(early_code.MOST_OF_SMALL, "usual", 10_000)
    monkeypatch.setattr(early_code, "PART", 10_000)
    monkeypatch.setattr(split_module.LEAST_OPERATIONS, "usual", 10_000)
    executable = compiled()
    assert len(emitted) == len(executable.kernels)
    assert len(made) == 1


def test_kernels_without_code(library: Library, emitted: list[str], made: list[bytes], tmp_path: Path) -> None:
    """They forward their calls to the library: main's list has all that there is, and an entry has no object file."""
    b = sx.XlaBuilder("products")
    x, y = (b.parameter(n, sx.f32[300, 300], name=name) for n, name in enumerate("xy"))
    products = b.build(sx.tuple((x @ y, sx.transpose(y, (1, 0)) @ x)))
    first = sx.compile(products)
    assert len(emitted) == len(first.kernels) == 2
    assert len(kept(library)) == 2
    assert all(b"_impl" not in file for file in files_of(first))
    emitted.clear()
    made.clear()
    second = sx.compile(products)
    assert (emitted, made) == ([], [])
    second.save(tmp_path / "products.sxe")
    arguments = np.random.default_rng(1).standard_normal((2, 300, 300), np.float32)
    for found in (second, sx.load_executable(tmp_path / "products.sxe")):
        for one, other in zip(found.execute([*arguments]), first.execute([*arguments]), strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(first.execute([*arguments])[0], arguments[0] @ arguments[1], rtol=1e-3, atol=1e-3)


def test_parts_of_the_same_code_that_need_other_functions(library: Library) -> None:
    """Constants that are packed in two ways: the code of both kernels is the same epilogue."""
    draw = np.random.default_rng(1)
    constants = [draw.standard_normal(shape, np.float32) for shape in ((200, 64), (64, 200))]

    def products(*numbers: int) -> sx.Executable:
        b = sx.XlaBuilder("packed")
        x = b.parameter(0, sx.f32[300, 200], name="x")
        factors = [sx.transpose(b.constant(constants[n]), (1, 0)) if n else b.constant(constants[n]) for n in numbers]
        return sx.compile(b.build(sx.tuple([sx.tanh(x @ factor) for factor in factors])))

    x = draw.standard_normal((300, 200), np.float32)
    alone = [np.asarray(products(n).execute([x])[0]) for n in (0, 1)]
    for found, expected in zip(products(0, 1).execute([x]), alone, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_kernel_that_is_kept_and_one_of_the_same_functions_that_is_new(library: Library) -> None:
    """The epilogue that both call back comes with the kept one's part, and is not made again."""
    draw = np.random.default_rng(1)
    constant = draw.standard_normal((500, 301), np.float32)
    arrays = [draw.standard_normal((rows, 500), np.float32) for rows in (64, 200)]
    arrays.append(draw.standard_normal((500, 301), np.float32))

    def products(*, both: bool) -> sx.Executable:
        b = sx.XlaBuilder("products")
        x, y, z = (b.parameter(n, sx.f32[array.shape], name="xyz"[n]) for n, array in enumerate(arrays))
        results = [sx.tanh(x @ b.constant(constant))] + [sx.tanh(y @ z)] * both
        return sx.compile(b.build(sx.tuple(results)))

    (alone,) = products(both=False).execute(arrays)
    found, other = products(both=True).execute(arrays)
    np.testing.assert_array_equal(found, alone)
    np.testing.assert_allclose(other, np.tanh(arrays[1] @ arrays[2]), rtol=1e-3, atol=1e-3)


def test_a_part_of_several_kernels(
    library: Library, emitted: list[str], made: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program links all of a part for the kernels that it has."""
    compiled()
    weight = sum(kernel.weight for kernel in kept(library).values())
    library._files.clear()
    monkeypatch.setattr(early_code.MOST_OF_SMALL, "usual", 3 * weight)  # the last kernel makes it a big program
    monkeypatch.setattr(early_code, "PART", 10_000)
    first = compiled()
    (part,) = {entry for entry in library._files.values() if b'"kernels": {' in entry}
    assert len(kept(library)) == len(first.kernels)
    monkeypatch.setattr(early_code.MOST_OF_SMALL, "usual", 3)
    emitted.clear()
    made.clear()
    edited = compiled(scale=0.25)
    assert len(emitted) == len(made) == 1
    assert any(part.endswith(b"\n" + file) for file in files_of(edited))
    with knobs.scoped(kept_kernels=False):
        np.testing.assert_array_equal(compiled(scale=0.25)(X), edited(X))


@pytest.mark.parametrize("more", [0, 1])
def test_a_program_of_few_kernels(library: Library, monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    with knobs.scoped(kept_kernels=False):
        count = len(compiled().kernels)
    monkeypatch.setattr(early_code.LEAST_KERNELS, "usual", count + more)
    compiled()
    assert len(kept(library)) == (0 if more else count)


def test_one_thread_keeps_nothing(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_code, "host_target", lambda: type("One", (), {"num_threads": 1}))
    compiled()
    assert not kept(library)


def kept(library: Library) -> dict[str, kept_kernels.KeptKernel]:
    """The kernels in a library, by their digests."""
    parts = [kept_kernels.KeptPart.find(library, digest) for digest in [*library._files]]
    return {digest: kernel for part in parts if part is not None for digest, kernel in part.kernels.items()}


# ---- what a kernel is known by ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"opt_level": 2},
        {"vector_bits": 128},
        {"target_cpu": "x86-64-v2"},
        {"choices": "eager"},
        {"choices": "usual+general.grain-elements=64"},
        {"num_threads": 1},
        {"num_threads": 7},
        {"flush_denormals": True},
    ],
    ids=str,
)
def test_other_options_are_other_kernels(library: Library, emitted: list[str], options: dict[str, Any]) -> None:
    plain = compiled()
    emitted.clear()
    made = compiled(**options)
    assert len(emitted) == len(made.kernels)
    np.testing.assert_allclose(made(X), plain(X), rtol=1e-4, atol=1e-4)


def test_another_llvm_is_another_kernel(library: Library, emitted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled()
    emitted.clear()
    monkeypatch.setattr(kept_kernels, "key_of_second_llvm", lambda: code_llvm.key_of_second_llvm() + "another")
    compiled()
    assert emitted


def digest(
    text: str,
    constants: frozenset[int] = frozenset(),
    lasting: frozenset[int] = frozenset(),
    target: CpuTarget = CpuTarget(),  # noqa: B008  (a frozen value)
) -> str | None:
    """The digest of the last function of a module."""
    with upstream_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(text)
        *_, function = module.body.operations
        kernel = Kernel(function, constants, None, lasting)
        return kept_kernels.digest_of_kernel(kernel, functions_of(module), target, CpuOptions())


IDENTITY = "func.func private @{}(%x: tensor<8xf32>) -> tensor<8xf32> attributes {{{}}} {{ return %x : tensor<8xf32> }}"
KIND = 'stablexla.kernel = "loop"'
COMBINER = """func.func private @{}(%x: f32, %y: f32) -> f32 attributes {{stablexla.combiner}} {{
    %z = arith.{} %x, %y : f32
    return %z : f32
}}"""


def test_names_are_no_part_of_the_digest() -> None:
    assert digest(IDENTITY.format("loop_0", KIND)) == digest(IDENTITY.format("loop_17", KIND))


def test_what_emitters_read_besides_is_a_part_of_the_digest() -> None:
    """Emitters read from a kernel's calls which inputs are constant, or outlive a loop."""
    text, one = IDENTITY.format("loop_0", KIND), frozenset([0])
    other = replace(CpuTarget(), l2_bytes=1 << 20)
    assert len({digest(text), digest(text, constants=one), digest(text, lasting=one), digest(text, target=other)}) == 4


def test_a_combiner_is_a_part_of_the_digest() -> None:
    def of(name: str, operation: str) -> str | None:
        reference = f"{KIND}, stablexla.combiner = {{function = @{name}, uniforms = []}}"
        return digest(COMBINER.format(name, operation) + IDENTITY.format("loop_0", reference))

    assert of("combiner_0", "addf") == of("combiner_3", "addf") is not None
    assert of("combiner_0", "addf") != of("combiner_0", "mulf")


def test_a_kernel_that_names_anything_else_has_no_digest() -> None:
    assert digest(IDENTITY.format("loop_0", f"{KIND}, other = @elsewhere")) is None


# ---- what is never kept ----------------------------------------------------------------------------------------------


def test_off() -> None:
    for cache, given, is_kept in (("off", None, False), (None, None, True), ("off", True, True), (None, False, False)):
        with knobs.scoped(kernel_cache=cache, kept_kernels=given):
            assert kept_kernels.are_kept(CpuOptions()) is is_kept


@pytest.mark.parametrize(
    "options",
    [
        {"rules": [sx.lowering_rule("stablehlo.tanh", lambda ctx, x: [x])]},
        {"schedules": lambda kernel, schedule: None},
    ],
    ids=["rules", "schedules"],
)
def test_functions_of_a_user(library: Library, options: dict[str, Any]) -> None:
    compiled(**options)
    assert not kept(library)


def test_an_emitter_of_a_user(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(kernel: Kernel, target: object) -> None:
        return None

    monkeypatch.setitem(EMITTERS, "loop", [refuses, *EMITTERS["loop"]])
    compiled()
    assert not kept(library)


def test_runs_under_guard(library: Library) -> None:
    with knobs.scoped(guard="ends"):
        compiled()
    assert not kept(library)


def test_whoever_looks_sees_everything(library: Library, tmp_path: Path) -> None:
    executable = compiled()
    before = set(library._files)
    for _ in range(2):
        assert "kept_" not in executable.ir("buffers")
        with knobs.scoped(dump=tmp_path):
            executable = compiled()
        executable = compiled()  # by what is kept
    (file,) = tmp_path.rglob("*.buffers.mlir")
    bodies = [line for line in file.read_text().splitlines() if "_impl" in line and "func.func" in line]
    assert len(bodies) >= len(executable.kernels)
    assert all(line.endswith("{") for line in bodies)
    assert set(library._files) == before


def test_constants_that_are_packed(library: Library, emitted: list[str], made: list[bytes]) -> None:
    """They are packed by the code that is kept, which is the same for other weights."""
    x = np.random.default_rng(3).standard_normal((64, 600), np.float32)

    def by(seed: int) -> sx.Executable:
        b = sx.XlaBuilder("constant")
        weights = np.random.default_rng(seed).standard_normal((600, 301), np.float32)
        return sx.compile(b.build(sx.sin(b.parameter(0, sx.f32[64, 600], name="x") @ b.constant(weights))))

    first = by(1)
    assert [kernel.call.count("_impl_pack") for kernel in kept(library).values()] == [2]  # a phase, and what it packs
    emitted.clear()
    made.clear()
    again, other = by(1), by(2)
    assert (emitted, made) == ([], [])
    np.testing.assert_array_equal(again(x), first(x))
    with knobs.scoped(kept_kernels=False):
        np.testing.assert_array_equal(by(1)(x), first(x))
        np.testing.assert_array_equal(by(2)(x), other(x))


def test_calls_of_python_and_random_states(library: Library, emitted: list[str]) -> None:
    """Kernels beside them are kept; calls go to the function that is registered, and each run draws other numbers."""
    text = """func.func @main(%x: tensor<37x41xf32>) -> (tensor<37x41xf32>, tensor<64xui32>) {
        %y = stablehlo.sine %x : tensor<37x41xf32>
        %z = stablehlo.custom_call @test.kept(%y) {api_version = 4 : i32} : (tensor<37x41xf32>) -> tensor<37x41xf32>
        %t = stablehlo.tanh %z : tensor<37x41xf32>
        %s = stablehlo.constant dense<[1, 2]> : tensor<2xui64>
        %state, %bits = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY
            : (tensor<2xui64>) -> (tensor<2xui64>, tensor<64xui32>)
        return %t, %bits : tensor<37x41xf32>, tensor<64xui32>
    }"""
    results = []
    for factor in (2.0, 3.0):
        sx.register_custom_call("test.kept", lambda y, _factor=factor: y * np.float32(_factor))
        emitted.clear()
        results.append(sx.compile(text)(X))
        np.testing.assert_allclose(results[-1][0], np.tanh(np.sin(X) * factor), rtol=1e-5, atol=1e-5)
    assert emitted == ["host_0"]
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_collectives(library: Library, emitted: list[str]) -> None:
    b = sx.XlaBuilder("sums")
    x = b.parameter(0, sx.f32[37, 41], name="x")
    program = b.build(sx.tanh(sx.cross_replica_sum(sx.sin(x))))
    for _ in range(2):
        emitted.clear()
        made = sx.compile(program, num_replicas=2)
        for (found,) in made.execute_replicated([[X], [2 * X]]):
            np.testing.assert_allclose(found, np.tanh(np.sin(X) + np.sin(2 * X)), rtol=1e-5, atol=1e-5)
    assert emitted == ["collective_0"]


# ---- the folder ------------------------------------------------------------------------------------------------------


def in_folder(library: Library, folder: Path) -> list[Path]:
    library.store = KeptLibrary()
    return sorted(folder.iterdir()) if folder.is_dir() else []


@pytest.mark.parametrize("links", [True, False])
def test_kept_in_a_folder(
    links: bool, library: Library, emitted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:  # as on some file systems
        monkeypatch.setattr(os, "link", refused)
    with knobs.scoped(library=tmp_path / "kept"):
        in_folder(library, tmp_path)
        first = compiled()
        assert len(in_folder(library, tmp_path / "kept")) == len(library._files)
        library._files.clear()
        emitted.clear()
        for file in in_folder(library, tmp_path / "kept"):
            os.utime(file, (1, 1))
        np.testing.assert_array_equal(compiled()(X), first(X))
        assert emitted == []
        found = [file.stat() for file in in_folder(library, tmp_path / "kept")]
        assert any(each.st_mtime > 1 for each in found)  # what is used is evicted last
        assert all(each.st_mtime > 1 for each in found) == links
        assert all(each.st_mode & 0o077 == 0 for each in found)


def refused(*_: object, **__: object) -> None:
    raise PermissionError(1, "Operation not permitted")


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda entry: entry[:40],
    "empty": lambda entry: b"",
    "no part": lambda entry: b"null\n",
    "a list": lambda entry: b"[]\n",
    "another field": lambda entry: entry.replace(b'"digest"', b'"digests"', 1),
    "no kernels": lambda entry: entry.replace(b'"kernels": {', b'"kernels": {}, "more": {', 1),
    "no attribute": lambda entry: entry.replace(b"{in_place = ", b"{in_place @ "),
    "no type": lambda entry: entry.replace(b"(memref<", b"(nothing<"),
    "a missing part": lambda entry: entry.replace(b'"parts": [', b'"parts": ["0", ').replace(b", ]", b"]", 1),
    "a missing function": lambda entry: entry.replace(b'"library": [', b'"library": ["0", ').replace(b", ]", b"]", 1),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_entries_that_cannot_be_read(library: Library, emitted: list[str], damage: str, tmp_path: Path) -> None:
    first = compiled()
    for digest in kept(library):
        entry = library._files[digest]
        library._files[digest] = DAMAGES[damage](entry)
        assert library._files[digest] != entry
    emitted.clear()
    np.testing.assert_array_equal(compiled()(X), first(X))
    assert len(emitted) == len(first.kernels)
    emitted.clear()
    np.testing.assert_array_equal(compiled()(X), first(X))  # the entries were replaced
    assert emitted == []


def test_damaged_files(library: Library, emitted: list[str], tmp_path: Path) -> None:
    with knobs.scoped(library=tmp_path):
        in_folder(library, tmp_path)
        first = compiled()
        for number, file in enumerate(in_folder(library, tmp_path)):
            data = file.read_bytes()
            file.unlink()
            if number % 3 == 0:
                file.write_bytes(data[:-70] + bytes(70))
            elif number % 3 == 1:
                file.symlink_to(__file__)
        library._files.clear()
        emitted.clear()
        np.testing.assert_array_equal(compiled()(X), first(X))
        assert emitted
        library._files.clear()
        emitted.clear()
        np.testing.assert_array_equal(compiled()(X), first(X))
        assert emitted == []


def test_another_process_finds_them(library: Library, tmp_path: Path) -> None:
    with knobs.scoped(library=tmp_path / "kept"):
        in_folder(library, tmp_path)
        expected = compiled()(X)
    code = """
import sys, numpy as np
from tests.targets.llvm.test_kept_kernels import Emitters, X, compiled, early_code
Emitters.emit = None
early_code.MOST_OF_SMALL.usual = 3
early_code.LEAST_KERNELS.usual = 1
np.save(sys.argv[1], compiled()(X))
"""
    own = {**os.environ, "STABLEXLA_LIBRARY": str(tmp_path / "kept"), "STABLEXLA_KEPT_KERNELS": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "out.npy")], env=own, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def test_memory_has_a_limit() -> None:
    small = Library(limit=10)
    small.put(["a", "b"], b"1234")
    small.find("a")
    small.put(["c"], b"1234")
    assert (small.find("a"), small.find("b"), small.find("c")) == (b"1234", None, b"1234")
    small.put(["d"], b"12345678901")
    assert small.find("d") is None


# ---- what is made of them --------------------------------------------------------------------------------------------


def test_explain_profile_and_errors_have_this_programs_names(library: Library) -> None:
    """Places of checks too: errors of runs that are stopped name the kernel, and its line."""
    with knobs.scoped(kept_kernels=False):
        expected = sx.compile(ARRAYS)
    sx.compile(ARRAYS)
    found = sx.compile("\n\n" + ARRAYS)
    lines = [sorted(made._function.places.values()) for made in (found, expected)]
    assert lines[0] == [re.sub(r"\d+$", lambda number: str(int(number[0]) + 2), line) for line in lines[1]]
    assert "contraction_0 at <text>:12" in lines[0]
    assert found.kernels == expected.kernels
    assert str(sx.compile(ARRAYS).explain()) == str(expected.explain())
    arguments = [np.eye(300, dtype=np.float32), np.int32(0)]
    times = [[time.name for time in made.profile(arguments, runs=1).kernels] for made in (found, expected)]
    assert times[0] == times[1]


def test_a_saved_program_has_all_that_it_needs(library: Library, tmp_path: Path) -> None:
    compiled()
    second = compiled(scale=0.25)
    second.save(tmp_path / "model.sxe")
    library._files.clear()
    np.testing.assert_array_equal(sx.load_executable(tmp_path / "model.sxe")(X), second(X))


def test_c_libraries_are_whole(library: Library, tmp_path: Path) -> None:
    compiled()
    before = set(library._files)
    compile_library(model(), tmp_path / "model.o")
    assert b"kept_" not in (tmp_path / "model.o").read_bytes()
    assert set(library._files) == before


def test_isolated(library: Library) -> None:
    expected = compiled()
    np.testing.assert_array_equal(compiled(isolated=True)(X), expected(X))


def test_an_error_behind_linked_kernels_is_that_of_the_whole_module(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(module: ir.Module) -> None:
        (call, *_) = (op for op in module.body.operations if "_impl" in str(op.operation.attributes["sym_name"]))
        raise ValueError(f"not {call.operation.attributes['sym_name']}")

    compiled()
    name = "stablexla-run-in-parallel"
    monkeypatch.setitem(PASSES, name, replace(PASSES[name], function=refuse))
    with pytest.raises(sx.CompileError) as caught:
        compiled()
    assert "_0_impl" in str(caught.value)
    assert "@kept_" not in str(caught.value)
    assert '"kept_' not in str(caught.value)


def test_many_threads_at_once(library: Library) -> None:
    """They keep and find the same kernels, of programs that share some."""
    scales = [0.5, 0.25, 0.5, 0.125, 0.25, 0.5, 0.75, 0.125]
    with knobs.scoped(kept_kernels=False):
        expected = {scale: np.asarray(compiled(scale)(X)) for scale in {*scales}}

    def run(scale: float) -> np.ndarray:
        with knobs.scoped(kept_kernels=True):
            return np.asarray(compiled(scale)(X))

    with ThreadPoolExecutor(4) as pool:
        for scale, found in zip(scales, pool.map(run, scales), strict=True):
            np.testing.assert_array_equal(found, expected[scale])
