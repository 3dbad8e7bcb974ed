"""Contractions of narrow elements by instructions that take neighbours along k together. Oracle: numpy.einsum."""

from __future__ import annotations

import re
from dataclasses import replace

import ml_dtypes
import mlir.ir as ir
import numpy as np
import pytest

from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.machine import FEATURES, CpuTarget, features_worth_using, host_target
from stablexla.targets.codegen.match.contraction import match_contraction
from stablexla.targets.cpu.contraction import dot_units
from stablexla.targets.cpu.contraction.dot_instructions import choose_multiply_add
from stablexla.targets.cpu.contraction.strategy import emit_contraction
from tests.targets.cpu.assembly import assembly_for
from tests.targets.cpu.contraction.test_strategy import ORDERS, close_to_einsum, dot
from tests.targets.cpu.harness import DTYPES, compile_kernel, emit
from tests.targets.cpu.kernel_text import KernelText

ALL = ("amx_bf16", "amx_fp16", "amx_int8", "amx_tile", "avx512_bf16", "avx512_vnni", "sse2")
ARM = ("asimd", "asimddp")
MATRICES = ("asimd", "asimddp", "bf16", "i8mm")
# What a machine has, element types with and without a sign, and the product that is taken.
KINDS = {
    "pairs": (("sse2",), "i8", "extsi", "extsi"),
    "unsigned pairs": (("sse2",), "i8", "extui", "extui"),
    "mixed pairs": (("sse2",), "i8", "extsi", "extui"),
    "pairs of i16": (("sse2",), "i16", "extsi", "extsi"),
    "bytes": (("avx_vnni", "avx512_vnni", "sse2"), "i8", "extui", "extsi"),
    "signed bytes": (("avx_vnni", "avx512_vnni", "sse2"), "i8", "extsi", "extsi"),
    "tiles ss": (ALL, "i8", "extsi", "extsi"),
    "tiles su": (ALL, "i8", "extsi", "extui"),
    "tiles us": (ALL, "i8", "extui", "extsi"),
    "tiles uu": (ALL, "i8", "extui", "extui"),
    "tiles bf16": (ALL, "bf16", "extf", "extf"),
    "tiles f16": (ALL, "f16", "extf", "extf"),
    "dot ss": (ARM, "i8", "extsi", "extsi"),
    "dot uu": (ARM, "i8", "extui", "extui"),
    "matrix ss": (MATRICES, "i8", "extsi", "extsi"),
    "matrix su": (MATRICES, "i8", "extsi", "extui"),
    "matrix us": (MATRICES, "i8", "extui", "extsi"),
    "matrix uu": (MATRICES, "i8", "extui", "extui"),
    "matrix bf16": (MATRICES, "bf16", "extf", "extf"),
    "bf16": (("avx512_bf16", "sse2"), "bf16", "extf", "extf"),
    "floats bf16": (("sse2",), "bf16", "extf", "extf"),
    "floats f16": (("sse2",), "f16", "extf", "extf"),
}
# Large caches keep k whole; small ones cut it into blocks.
SMALL = {"l1_bytes": 1 << 10, "l2_bytes": 16 << 10}
SHAPES = {"large": (70, 67, 33), "small": (40, 37, 301)}


def target_for(kind: str, **more: int) -> CpuTarget:
    """Vectors of this machine, and instructions written out; wide ones only where they say nothing of registers."""
    bits = min(256, host_target().vector_bits)
    if kind == "bf16":
        bits = 512
    if "asimd" in KINDS[kind][0]:
        bits = 128
    return replace(CpuTarget(num_threads=4, **more).with_vectors(bits, KINDS[kind][0]), emulated=True)


def kernel_text(kind: str, equation: str, m: int, n: int, k: int) -> KernelText:
    _, element, left, right = KINDS[kind]
    total = "f32" if left == "extf" else "i32"
    text = KernelText("contraction")
    made, _ = dot(text, equation, {"m": m, "n": n, "k": k}, element, total, left)
    return text.text(made).replace(f"%bb = arith.{left}", f"%bb = arith.{right}")


def drawn(kind: str, shape: tuple[int, ...], side: int) -> np.ndarray:
    """All numbers of the type, the ends among them; floats are ordinary ones."""
    _, element, *casts = KINDS[kind]
    rng = np.random.default_rng(side)
    dtype = DTYPES[element]
    if dtype.kind != "i":
        return np.asarray(rng.standard_normal(shape), np.float32).astype(dtype)
    made = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
    made.flat[: max(1, made.size // 4)] = np.iinfo(dtype).min
    return made.view(f"u{dtype.itemsize}") if casts[side] == "extui" else made


def check(kind: str, equation: str, m: int, n: int, k: int, target: CpuTarget) -> str:
    kernel = compile_kernel(kernel_text(kind, equation, m, n, k), target, emit_contraction)
    sizes = {"m": m, "n": n, "k": k}
    sides = equation.split("->")[0].split(",")
    x, y = (drawn(kind, tuple(sizes[a] for a in side), i) for i, side in enumerate(sides))
    (result,) = kernel(x, y)
    close_to_einsum(result, equation, x, y)
    for chunks in (2, 5):
        np.testing.assert_array_equal(kernel(x, y, chunks=chunks)[0], result)
    return kernel.phases[-1].function


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("caches", SHAPES)
def test_products(kind: str, caches: str) -> None:
    m, n, k = SHAPES[caches]
    order = ORDERS[(len(kind) + len(caches)) % len(ORDERS)]
    check(kind, order, m, n, k, target_for(kind, **(SMALL if caches == "small" else {})))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("tiles")])
@pytest.mark.parametrize(
    ("m", "n", "bytes_", "taken"),
    [
        (64, 40, 384, True),
        (32, 160, 2048, False),  # of rows that share cache sets, with many columns
        (32, 128, 2048, True),
        (32, 160, 2112, True),
        (33, 40, 384, True),  # with a rest of rows
        (70, 40, 384, True),
        (31, 40, 384, False),
        (32, 40, 380, False),  # with a rest of k
        (32, 40, 388, False),
    ],
)
def test_tiles_read_lhs_where_it_lies(
    kind: str, m: int, n: int, bytes_: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, plan = [], dot_units._plan
    monkeypatch.setattr(dot_units, "_plan", lambda *given: plans.append(plan(*given)) or plans[-1])
    k = bytes_ // DTYPES[KINDS[kind][1]].itemsize
    check(kind, "mk,kn->mn", m, n, k, replace(target_for(kind), num_threads=1))  # an item has all columns
    assert plans[-1].in_place == taken


@pytest.mark.parametrize("kind", ["bytes", "signed bytes", "pairs"])
@pytest.mark.parametrize(
    ("m", "n", "k", "fits"),
    [
        (30, 40, 36, True),
        (31, 40, 36, True),  # with a rest of rows
        (35, 67, 400, True),
        (17, 300, 400, True),
        (30, 40, 35, False),  # with a rest of k
        (30, 160, 2048, False),  # of rows that share cache sets, with many columns
    ],
)
def test_bytes_are_read_where_they_lie(
    kind: str, m: int, n: int, k: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signed ones are changed first, and pairs are of 16 bits: both are packed."""
    plans, plan = [], dot_units._plan
    monkeypatch.setattr(dot_units, "_plan", lambda *given: plans.append(plan(*given)) or plans[-1])
    check(kind, "mk,kn->mn", m, n, k, replace(target_for(kind), num_threads=1))
    check(kind, "mk,kn->mn", m, n, k, target_for(kind, **SMALL))
    assert plans[0].in_place == (fits and kind == "bytes")


@pytest.mark.parametrize("kind", ["pairs", "tiles bf16"])
@pytest.mark.parametrize("order", ORDERS)
def test_orders(kind: str, order: str) -> None:
    check(kind, order, 30, 50, 75, target_for(kind, **SMALL))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("matrix")])
def test_edges_of_two_rows_and_columns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, columns and steps of k below, at and above whole tiles; a k of one group has instructions on one row."""
    names, plan = [], dot_units._plan
    monkeypatch.setattr(dot_units, "_plan", lambda *given: names.append(given[1].name) or plan(*given))
    group, name = (4, "bf16") if kind == "matrix bf16" else (8, kind[-2:])
    sizes = [(5, 257, 5 * group - 1), (6, 256, 5 * group), (7, 255, 5 * group + 1)]
    for number, (m, n, k) in enumerate([*sizes, (120, 120, group // 2 + 1), (120, 120, group // 2)]):
        check(kind, ORDERS[number % len(ORDERS)], m, n, k, target_for(kind))
    assert names == [f"matrix_{name}"] * 4 + [f"dot_{name}"]


@pytest.mark.parametrize("kind", ["mixed pairs", "floats f16", "matrix bf16", "matrix su"])
@pytest.mark.parametrize("order", ORDERS)
def test_few_rows_or_columns(kind: str, order: str) -> None:
    for m, n, k in ((1, 81, 700), (7, 640, 65)):
        check(kind, order, *((m, n) if "mk" in order else (n, m)), k, target_for(kind))


@pytest.mark.parametrize("kind", ["pairs", "unsigned pairs", "mixed pairs", "matrix us", "pairs of i16", "floats bf16"])
def test_instructions_of_this_machine(kind: str) -> None:
    for m, n, k in ((33, 19, 301), (5, 90, 333)):
        check(kind, "mk,kn->mn", m, n, k, host_target())


def test_batches_share_what_is_packed() -> None:
    text = KernelText("contraction")
    made, inputs = dot(text, "bmk,kn->bmn", {"b": 3, "m": 300, "n": 40, "k": 50}, "i8", "i32", "extsi")
    kernel = compile_kernel(text.text(made), target_for("pairs", **SMALL), emit_contraction)
    x, y = (drawn("pairs", array.shape, i) for i, array in enumerate(inputs))
    (result,) = kernel(x, y, chunks=3)
    close_to_einsum(result, "bmk,kn->bmn", x, y)


def test_sums_of_pairs_wrap_around() -> None:
    """-32768 squared, twice, is one too many for 32 bits; sums are modulo 2^32 as everywhere."""
    kernel = compile_kernel(kernel_text("pairs of i16", "mk,kn->mn", 16, 40, 64), host_target(), emit_contraction)
    x, y = (np.full(shape, -32768, np.int16) for shape in ((16, 64), (64, 40)))
    (result,) = kernel(x, y)
    np.testing.assert_array_equal(result, np.full((16, 40), 64 << 30, np.int64).astype(np.int32))


def test_infinities_and_nans_stay_where_they_are() -> None:
    """What is filled up with zeros, and what is not there, meets nothing."""
    for kind in ("tiles bf16", "bf16", "floats bf16"):
        kernel = compile_kernel(kernel_text(kind, "mk,kn->mn", 33, 35, 71), target_for(kind), emit_contraction)
        x, y = (drawn(kind, shape, i) for i, shape in enumerate([(33, 71), (71, 35)]))
        x[4, 70], y[70, 34], x[5, 0] = np.inf, np.nan, -np.inf
        (result,) = kernel(x, y)
        expected = x.astype(np.float32) @ y.astype(np.float32)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
        np.testing.assert_array_equal(np.isposinf(result), np.isposinf(expected))


def test_results_do_not_depend_on_threads() -> None:
    results = []
    for threads in (1, 16):
        target = replace(target_for("floats bf16", **SMALL), num_threads=threads)
        kernel = compile_kernel(kernel_text("floats bf16", "mk,kn->mn", 90, 80, 900), target, emit_contraction)
        x, y = (drawn("floats bf16", shape, i) for i, shape in enumerate([(90, 900), (900, 80)]))
        results.append(kernel(x, y)[0])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("caches", ["large", "small"])
def test_epilogue(caches: str) -> None:
    """Scales, a bias and a rounding after the sums, over what was there before."""
    text = KernelText("contraction")
    made, inputs = dot(text, "mk,kn->mn", {"m": 45, "n": 50, "k": 700}, "i8", "i32", "extsi")
    scale, residual = text.input("f32", [50]), text.input("bf16", [45, 50])
    body = (
        "%f = arith.sitofp %a : i32 to f32\n%s = arith.mulf %f, %b : f32\n%w = arith.extf %c : bf16 to f32\n"
        "%t = arith.addf %s, %w : f32\n%r = arith.truncf %t : f32 to bf16"
    )
    out = text.map((45, 50), [made, (scale, "d1"), residual], body, element="bf16")
    target = target_for("signed bytes", **(SMALL if caches == "small" else {}))
    kernel = compile_kernel(text.text(out), target, emit_contraction)
    x, y = (drawn("pairs", array.shape, i) for i, array in enumerate(inputs))
    s, w = np.linspace(1e-4, 1e-3, 50, dtype=np.float32), drawn("floats bf16", (45, 50), 2 % 2)
    results = kernel.in_all_ways(x, y, s, w)
    expected = (x.astype(np.int32) @ y.astype(np.int32)).astype(np.float32) * s + w.astype(np.float32)
    np.testing.assert_array_equal(results[0], expected.astype(ml_dtypes.bfloat16))


# --- choosing ------------------------------------------------------------------------------------------------


def chosen(kind: str, *features: str, bits: int = 256) -> str:
    module, kernel, _ = emit(kernel_text(kind, "mk,kn->mn", 64, 64, 64), CpuTarget(), emit_contraction)
    with module.context, ir.Location.unknown():
        contraction = match_contraction(Kernel(kernel.func))
        assert contraction is not None
        product = choose_multiply_add(contraction, CpuTarget().with_vectors(bits, features))
        return product.name if product else ""


def test_choice() -> None:
    assert chosen("pairs") == ""
    assert chosen("pairs", "sse2") == "pairs"
    assert chosen("pairs", "sse2", "avx_vnni") == "bytes"
    assert chosen("pairs", "sse2", "avx_vnni", bits=512) == "pairs"
    assert chosen("pairs", "sse2", "avx512_vnni", bits=512) == "bytes"
    assert chosen("unsigned pairs", "sse2", "avx512_vnni", bits=512) == "pairs"
    assert chosen("tiles us", *FEATURES, bits=512) == "tiles_us"
    assert chosen("pairs of i16", *FEATURES, bits=512) == "pairs"
    assert chosen("bf16", "amx_tile", "amx_int8", "avx512_bf16", bits=512) == "bf16"
    assert chosen("bf16", "sse2", bits=512) == ""
    assert chosen("tiles f16", *FEATURES, bits=512) == "tiles_f16"
    assert chosen("dot ss", *MATRICES, bits=128) == chosen("dot ss", *ARM, bits=128) == "dot_ss"
    assert chosen("matrix su", *MATRICES, bits=128) == "dot_su"
    assert chosen("matrix su", *ARM, bits=128) == ""
    assert chosen("dot uu", "asimd", bits=128) == ""
    assert chosen("matrix bf16", *MATRICES, bits=128) == "dot_bf16"
    assert chosen("matrix bf16", *ARM, bits=128) == chosen("matrix bf16", "bf16", bits=512) == ""


def test_a_processor_uses_what_it_gains_by() -> None:
    flags = {"avx512_bf16", "avx512_vnni", "avx512f", "sse2"}
    assert features_worth_using(flags, "GenuineIntel") == ("avx512_vnni", "avx512f", "sse2")
    assert features_worth_using(flags, "AuthenticAMD") == ("avx512_bf16", "avx512_vnni", "avx512f", "sse2")
    assert features_worth_using(set(), "") == ()


def test_f32_is_never_rounded_to_multiply() -> None:
    text = KernelText("contraction")
    made, _ = dot(text, "mk,kn->mn", {"m": 64, "n": 64, "k": 64}, "f32", "f32")
    target = CpuTarget().with_vectors(256, tuple(FEATURES))
    module, _, _ = emit(text.text(made), target, emit_contraction)
    assert "bf16" not in str(module)


# --- other processors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "features", "instruction"),
    [
        ("pairs", ("sse2",), "vpdpwssd"),
        ("bytes", ("avx512_vnni",), "vpdpbusd"),
        ("signed bytes", ("avx512_vnni",), "vpdpbusd"),
        ("bf16", ("avx512_bf16",), "vdpbf16ps"),
        ("tiles bf16", ALL, "tdpbf16ps"),
        ("tiles ss", ALL, "tdpbssd"),
        ("tiles su", ALL, "tdpbsud"),
        ("tiles us", ALL, "tdpbusd"),
        ("tiles uu", ALL, "tdpbuud"),
        ("tiles f16", ALL, "tdpfp16ps"),
    ],
)
def test_instructions_of_other_machines(kind: str, features: tuple[str, ...], instruction: str) -> None:
    target = CpuTarget(num_threads=2).with_vectors(512, features)
    module, _, _ = emit(kernel_text(kind, "mk,kn->mn", 64, 64, 256), target, emit_contraction)
    text = assembly_for(module, "graniterapids" if "f16" in kind and "bf16" not in kind else "sapphirerapids")
    assert instruction in text
    for library_call in ("__truncsfbf2", "__extendhfsf2"):
        assert library_call not in text


@pytest.mark.parametrize(
    ("kind", "instruction"),
    [
        ("dot ss", "sdot"),
        ("dot uu", "udot"),
        ("matrix ss", "smmla"),
        ("matrix uu", "ummla"),
        ("matrix su", "usmmla"),
        ("matrix us", "usmmla"),
        ("matrix bf16", "bfmmla"),
    ],
)
def test_instructions_of_aarch64(kind: str, instruction: str) -> None:
    """In the loop of a tile, with more sums than the 16 registers of x86 hold; 24 of them, and none is spilled."""
    target = CpuTarget(num_threads=2).with_vectors(128, KINDS[kind][0])
    module, _, _ = emit(kernel_text(kind, "mk,kn->mn", 64, 64, 256), target, emit_contraction)
    text = assembly_for(module, "neoverse-v1", "aarch64-linux-gnu")
    sums = set(re.findall(rf"\t{instruction}\tv(\d+)\.4s", text))
    assert len(sums) == 24
    (loop,) = [part for part in re.split(r"^\.L\w+:", text, flags=re.MULTILINE) if f"\t{instruction}\t" in part]
    assert loop[: loop.rindex(instruction)].count(f"\t{instruction}\t") >= 23
    assert "Spill" not in loop[: loop.rindex(instruction)]
    assert "smull" not in text


@pytest.mark.parametrize(
    ("kind", "size", "instruction"),
    [
        ("matrix su", (3, 640, 256), "(?:us|su)dot"),
        ("matrix us", (3, 640, 256), "(?:us|su)dot"),
        ("matrix us", (120, 120, 4), "(?:us|su)dot"),
        ("matrix bf16", (120, 120, 2), "bfdot"),
    ],
)
def test_few_rows_or_steps_take_instructions_on_one_row(
    kind: str, size: tuple[int, int, int], instruction: str
) -> None:
    target = CpuTarget(num_threads=2).with_vectors(128, MATRICES)
    module, _, _ = emit(kernel_text(kind, "mk,kn->mn", *size), target, emit_contraction)
    text = assembly_for(module, "neoverse-v1", "aarch64-linux-gnu")
    assert re.search(rf"\t{instruction}\tv", text)
    assert "mmla" not in text


def test_few_rows_of_bf16_are_summed_in_f32() -> None:
    """Rounded to nearest: their loops along k are long."""
    target = CpuTarget(num_threads=2).with_vectors(128, MATRICES)
    module, _, _ = emit(kernel_text("matrix bf16", "mk,kn->mn", 3, 640, 256), target, emit_contraction)
    text = assembly_for(module, "neoverse-v1", "aarch64-linux-gnu")
    assert "fmla" in text
    assert not re.search("bfdot|bfmmla|bfmlal", text)
