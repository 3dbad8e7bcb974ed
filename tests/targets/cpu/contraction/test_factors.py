"""Products whose weight is dequantised in their kernel. Oracles: numpy, in the program's order of rounding; XLA:CPU.

Rows of lhs that are all zeros but for a one leave rows of the weight as it was dequantised, to the bit; other numbers
are whole ones and powers of two, whose sums are the same in every order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import CpuTarget, host_target
from tests.targets.cpu.assembly import assembly_for
from tests.targets.cpu.harness import compile_kernel, emit
from tests.targets.grouping.stages import outlined

Array = Any
F32 = np.dtype(np.float32)
BITS = tuple(bits for bits in (128, 256, 512) if bits <= host_target().vector_bits)
# Rows: few, read in registers; more, which an item packs the weight for; so many that all items share it packed.
FEW, SOME, MANY = 6, 40, 250


@dataclass(frozen=True)
class Format:
    """How a weight of [k, n] is stored.

    Attributes:
        arrays: shapes and types of the stored arrays.
        dequantise: the weight of them, by numpy or jax.numpy.
    """

    arrays: Callable[[int, int], Sequence[tuple[tuple[int, ...], Any]]]
    dequantise: Callable[..., Array]


def cast(xp: Any, q: Array) -> Array:
    return q.astype(np.float32)


def by_channel(xp: Any, q: Array, scale: Array) -> Array:
    return q.astype(np.float32) * scale


def with_zero_point(xp: Any, q: Array, scale: Array, zero: Array) -> Array:
    return (q.astype(np.float32) - zero.astype(np.float32)) * scale


def in_bf16(xp: Any, q: Array, scale: Array) -> Array:
    return (q.astype(ml_dtypes.bfloat16) * scale.astype(ml_dtypes.bfloat16)).astype(np.float32)


def in_groups(xp: Any, q: Array, scale: Array) -> Array:
    (k, n), groups = q.shape, scale.shape[0]
    return (q.astype(np.float32).reshape(groups, k // groups, n) * scale[:, None, :]).reshape(k, n)


def groups_with_zeros(xp: Any, q: Array, scale: Array, zero: Array) -> Array:
    (k, n), groups = q.shape, scale.shape[0]
    offset = q.astype(np.float32).reshape(groups, k // groups, n) - zero.astype(np.float32)[:, None, :]
    return (offset * scale[:, None, :]).reshape(k, n)


def in_groups_of_lines(xp: Any, q: Array, scale: Array) -> Array:
    (n, k), groups = q.shape, scale.shape[1]
    return (q.astype(np.float32).reshape(n, groups, k // groups) * scale[:, :, None]).reshape(n, k).T


def nibbles(p: Array) -> tuple[Array, Array]:
    return (p & 15).astype(np.int8) - np.int8(8), (p >> 4).astype(np.int8) - np.int8(8)


def paired_rows(xp: Any, p: Array, scale: Array) -> Array:
    return in_groups(xp, xp.stack(nibbles(p), 1).reshape(2 * p.shape[0], p.shape[1]), scale)


def paired_columns(xp: Any, p: Array, scale: Array) -> Array:
    return in_groups(xp, xp.stack(nibbles(p), -1).reshape(p.shape[0], 2 * p.shape[1]), scale)


def paired_columns_with_zeros(xp: Any, p: Array, scale: Array, zero: Array) -> Array:
    q = xp.stack([p & 15, p >> 4], -1).reshape(p.shape[0], 2 * p.shape[1])
    return groups_with_zeros(xp, q, scale, zero)


def paired_halves(xp: Any, p: Array, scale: Array) -> Array:
    return in_groups(xp, xp.concatenate(nibbles(p), 0), scale)


def paired_in_lines(xp: Any, p: Array, scale: Array) -> Array:
    return in_groups_of_lines(xp, xp.stack(nibbles(p), -1).reshape(p.shape[0], 2 * p.shape[1]), scale)


def halves_of_lines(xp: Any, p: Array, scale: Array) -> Array:
    return in_groups_of_lines(xp, xp.concatenate(nibbles(p), 1), scale)


def eight_in_a_word(xp: Any, p: Array, scale: Array) -> Array:
    shifts = xp.arange(0, 32, 4, dtype=np.int32)
    q = (p[:, None, :] >> shifts[None, :, None]) & np.int32(15)
    return in_groups(xp, q.reshape(8 * p.shape[0], p.shape[1]) - np.int32(8), scale)


CODEBOOK = np.array([-96, -70, -50, -36, -25, -16, -9, -4, 0, 4, 9, 16, 25, 36, 50, 70], F32) / 8


def by_codebook(xp: Any, p: Array, scale: Array, table: Array = CODEBOOK) -> Array:
    places = xp.stack([p & 15, p >> 4], -1).reshape(p.shape[0], 2 * p.shape[1])
    return in_groups_of_lines(xp, xp.asarray(table)[places], scale)


def columns_by_codebook(xp: Any, p: Array, scale: Array) -> Array:
    places = xp.stack([p & 15, p >> 4], -1).reshape(p.shape[0], 2 * p.shape[1])
    return in_groups(xp, xp.asarray(CODEBOOK)[places], scale)


def plain(element: Any) -> Format:
    return Format(lambda k, n: [((k, n), element)], cast)


def grouped(size: int, element: Any, dequantise: Callable[..., Array], rows: int = 1, columns: int = 1) -> Format:
    return Format(
        lambda k, n: [((k // rows, n // columns), element), ((k // size, n), F32)],
        dequantise,
    )


def lines(size: int, element: Any, dequantise: Callable[..., Array], columns: int = 1) -> Format:
    return Format(lambda k, n: [((n, k // columns), element), ((n, k // size), F32)], dequantise)


I4, U4 = np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)
FORMATS = {
    **{np.dtype(e).name: plain(np.dtype(e)) for e in (np.int8, np.uint8, ml_dtypes.bfloat16, np.float16)},
    **{np.dtype(e).name: plain(np.dtype(e)) for e in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, I4, U4)},
    "int8 lines": Format(lambda k, n: [((n, k), np.int8)], lambda xp, q: q.T.astype(np.float32)),
    "int8 by channel": Format(lambda k, n: [((k, n), np.int8), ((n,), F32)], by_channel),
    "int8 by tensor": Format(lambda k, n: [((k, n), np.int8), ((), F32)], by_channel),
    "int8 by row": Format(lambda k, n: [((k, n), np.int8), ((k, 1), F32)], by_channel),
    "uint8 zero points": Format(lambda k, n: [((k, n), np.uint8), ((n,), F32), ((n,), np.uint8)], with_zero_point),
    "int8 in bf16": Format(lambda k, n: [((k, n), np.int8), ((n,), F32)], in_bf16),
    "int8 groups of 32": grouped(32, np.int8, in_groups),
    "int4 groups of 64": grouped(64, I4, in_groups),
    "uint4 groups of 64, zero points": Format(
        lambda k, n: [((k, n), U4), ((k // 64, n), F32), ((k // 64, n), np.uint8)], groups_with_zeros
    ),
    "int8 lines, groups of 32": lines(32, np.int8, in_groups_of_lines),
    "int4 lines, groups of 128": lines(128, I4, in_groups_of_lines),
    "paired rows": grouped(64, np.uint8, paired_rows, rows=2),
    "paired columns": grouped(64, np.uint8, paired_columns, columns=2),
    "paired columns, zero points": Format(
        lambda k, n: [((k, n // 2), np.uint8), ((k // 64, n), F32), ((k // 64, n), np.uint8)], paired_columns_with_zeros
    ),
    "paired halves": grouped(64, np.uint8, paired_halves, rows=2),
    "paired in lines": lines(64, np.uint8, paired_in_lines, columns=2),
    "halves of lines": lines(32, np.uint8, halves_of_lines, columns=2),
    "eight in a word": grouped(128, np.int32, eight_in_a_word, rows=8),
    "codebook, lines": lines(64, np.uint8, by_codebook, columns=2),
    "codebook, columns": grouped(64, np.uint8, columns_by_codebook, columns=2),
    "codebook that is an argument": Format(
        lambda k, n: [((n, k // 2), np.uint8), ((n, k // 32), F32), ((16,), F32)], by_codebook
    ),
}
# Whole blocks; groups and columns that fill no block or vector.
SIZES = {"even": (512, 256), "ragged": (1152, 138), "wide": (640, 266)}


def drawn(shape: tuple[int, ...], element: Any, rng: np.random.Generator, *, whole: bool) -> Array:
    """Bytes of all values; scales that round products, or are powers of two."""
    element = np.dtype(element)
    if element == F32:
        if whole:
            return np.exp2(rng.integers(-2, 3, shape)).astype(F32)
        return rng.uniform(0.001, 0.1, shape).astype(F32)
    if element.name in ("int4", "uint4"):
        return (rng.integers(0, 16, shape) - (8 if element == I4 else 0)).astype(element)
    if element.kind in "iu":
        info = np.iinfo(element)
        return rng.integers(info.min, info.max, shape, endpoint=True, dtype=element)
    return rng.integers(-8, 9, shape).astype(element) if whole else rng.standard_normal(shape).astype(element)


def program(form: Format, k: int, n: int, m: int) -> tuple[str, list[tuple[tuple[int, ...], Any]]]:
    """The StableHLO of x @ dequantise(...)."""
    arrays = list(form.arrays(k, n))
    arguments = [jax.ShapeDtypeStruct(shape, element) for shape, element in [((m, k), F32), *arrays]]
    text = jax.jit(lambda x, *stored: x @ form.dequantise(jnp, *stored)).lower(*arguments).as_text()
    return text, arrays


def selecting(rows: Sequence[int], k: int) -> Array:
    x = np.zeros((len(rows), k), F32)
    x[np.arange(len(rows)), rows] = 1
    return x


@pytest.mark.parametrize(
    ("m", "sizes"),
    [*((m, sizes) for m in (1, 3, 16, SOME) for sizes in ("even", "ragged")), (17, "ragged"), (MANY, "wide")],
)
@pytest.mark.parametrize("name", FORMATS)
def test_weights(name: str, sizes: str, m: int) -> None:
    form, (k, n), rng = FORMATS[name], SIZES[sizes], np.random.default_rng(m)
    text, arrays = program(form, k, n, m)
    executable = sx.compile(text)
    assert [kernel.kind for kernel in executable.kernels] == ["contraction"]
    stored = [drawn(shape, element, rng, whole=False) for shape, element in arrays]
    rows = rng.permutation(np.r_[0, k - 1, rng.integers(0, k, max(m, 16) - 2)])[:m]
    np.testing.assert_array_equal(executable(selecting(rows, k), *stored), form.dequantise(np, *stored)[rows])
    stored = [drawn(shape, element, rng, whole=True) for shape, element in arrays]
    x = rng.integers(-4, 5, (m, k)).astype(F32)
    wanted = x.astype(np.float64) @ form.dequantise(np, *stored).astype(np.float64)
    tolerance = 1e-5 if name == "int8 in bf16" or "float" in name else 0
    np.testing.assert_allclose(executable(x, *stored), wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("m", [FEW, SOME])
@pytest.mark.parametrize("name", FORMATS)
def test_beside_xla(name: str, m: int) -> None:
    form, (k, n), rng = FORMATS[name], SIZES["ragged"], np.random.default_rng(9)
    text, arrays = program(form, k, n, m)
    stored = [drawn(shape, element, rng, whole=False) for shape, element in arrays]
    x = rng.standard_normal((m, k)).astype(F32)
    wanted = np.asarray(jax.jit(lambda x, *stored: x @ form.dequantise(jnp, *stored))(x, *stored))
    # XLA keeps a product of bf16 in f32.
    tolerance = 1e-2 if name == "int8 in bf16" else 1e-5
    found = sx.compile(text)(x, *stored)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def with_vectors(bits: int) -> sx.CompileOptions:
    """Options for that width, with the permutations that go with it."""
    pipeline = str(sx.pipeline("cpu", sx.CompileOptions(vector_bits=bits)))
    arm = "asimd" if "asimd" in host_target().features else "asimd+emulated"
    permutes = f" features={ {128: arm, 256: 'avx2', 512: 'avx512f'}[bits] }"
    emit = f"stablexla-emit-kernels{{vector-bits={bits}"
    assert emit in pipeline
    return sx.CompileOptions(pipeline=sx.Pipeline.parse(pipeline.replace(emit, emit + permutes)))


@pytest.mark.parametrize("bits", [bits for bits in BITS if bits > 128])
def test_tables_are_for_processors_that_permute(bits: int) -> None:
    """A width that was asked for may be meant for another processor."""
    form, (k, n) = FORMATS["codebook, lines"], SIZES["ragged"]
    text, _ = program(form, k, n, FEW)
    for options, is_used in ((with_vectors(bits), True), (sx.CompileOptions(vector_bits=bits), False)):
        assert ("llvm.x86.avx" in sx.compile(text, options=options).ir("buffers")) == is_used


@pytest.mark.parametrize("features", [("asimd",), ()])
@pytest.mark.parametrize(
    ("name", "looked_up"), [("codebook, lines", True), ("paired in lines", True), ("paired columns", False)]
)
def test_tables_of_aarch64(name: str, looked_up: bool, features: tuple[str, ...]) -> None:
    """By tbl, of the four bytes of each number, where that replaces more than three operations."""
    form, (k, n) = FORMATS[name], SIZES["ragged"]
    module = outlined(program(form, k, n, FEW)[0])
    kernel = next(str(op) for op in module.body.operations if "stablexla.kernel" in op.operation.attributes)
    made, _, _ = emit(kernel, CpuTarget(num_threads=2).with_vectors(128, features))
    text = assembly_for(made, "neoverse-n1", "aarch64-linux-gnu")
    assert (len(re.findall(r"\ttbl\tv\d+\.16b, \{ v\d+\.16b \}", text)) >= 4) == (looked_up and features != ())


@pytest.mark.parametrize("m", [FEW, SOME])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", FORMATS)
def test_widths_of_vectors(name: str, bits: int, m: int) -> None:
    form, (k, n), rng = FORMATS[name], SIZES["ragged"], np.random.default_rng(2)
    text, arrays = program(form, k, n, m)
    executable = sx.compile(text, options=with_vectors(bits))
    stored = [drawn(shape, element, rng, whole=False) for shape, element in arrays]
    rows = [1, k - 2, 0, k // 2, k // 3, 64, *range(64 - m, 58)]
    np.testing.assert_array_equal(executable(selecting(rows, k), *stored), form.dequantise(np, *stored)[rows])


# Those whose arguments the number of their bytes tells apart.
BYTES = [name for name in FORMATS if any(word in name for word in ("int8", "paired", "halves")) and "row" not in name]
BYTES.append("paired rows")


@pytest.mark.parametrize("m", [1, FEW, SOME])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", BYTES)
def test_nothing_else_is_read(name: str, bits: int, m: int) -> None:
    """The kernel alone, on arrays that end where memory does, its items cut in several ways."""
    form, (k, n), rng = FORMATS[name], SIZES["ragged"], np.random.default_rng(3)
    text, arrays = program(form, k, n, m)
    module = outlined(text)
    kernel = next(str(op) for op in module.body.operations if "stablexla.kernel" in op.operation.attributes)
    compiled = compile_kernel(kernel, CpuTarget(num_threads=4).with_vectors(bits))
    stored = [drawn(shape, element, rng, whole=False) for shape, element in arrays]
    x = rng.standard_normal((m, k)).astype(F32)
    by_bytes = {(a.size, a.dtype.itemsize): a for a in (x, *stored)}
    sizes = [(int(np.prod(b.shape or ())), b.dtype.itemsize) for b in compiled.inputs]
    given = [by_bytes[size].reshape(b.shape or ()) for size, b in zip(sizes, compiled.inputs, strict=True)]
    wanted = x.astype(np.float64) @ form.dequantise(np, *stored).astype(np.float64)
    (found,) = compiled.in_all_ways(*given)
    np.testing.assert_allclose(found.reshape(m, n), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "name", ["int8 by channel", "int4 groups of 64", "paired rows", "paired in lines", "float8_e4m3fn"]
)
@pytest.mark.parametrize("m", [2, SOME, MANY])
def test_constants_and_threads(name: str, m: int) -> None:
    """A constant weight is read packed too; the order of additions does not depend on threads."""
    form, (k, n), rng = FORMATS[name], SIZES["wide"], np.random.default_rng(4)
    text, arrays = program(form, k, n, m)
    stored = [drawn(shape, element, rng, whole=False) for shape, element in arrays]
    x = rng.standard_normal((m, k)).astype(F32)
    wanted = sx.compile(text, options=sx.CompileOptions(num_threads=1))(x, *stored)
    np.testing.assert_array_equal(sx.compile(text, options=sx.CompileOptions(num_threads=2))(x, *stored), wanted)
    constants = [jnp.asarray(a) for a in stored]
    text = jax.jit(lambda x: x @ form.dequantise(jnp, *constants)).lower(x).as_text()
    executable = sx.compile(text)
    assert [kernel.kind for kernel in executable.kernels] == ["contraction"]
    np.testing.assert_array_equal(executable(x), wanted)


@pytest.mark.parametrize("m", [2, SOME, MANY])
@pytest.mark.parametrize("name", ["int8 groups of 32", "paired columns", "paired halves", "int8 lines, groups of 32"])
def test_a_weight_for_each_product_of_a_batch(name: str, m: int) -> None:
    form, (k, n), rng = FORMATS[name], SIZES["wide"], np.random.default_rng(5)
    shapes = [((3, *shape), element) for shape, element in form.arrays(k, n)]
    stored = [drawn(shape, element, rng, whole=True) for shape, element in shapes]
    x = rng.integers(-4, 5, (3, m, k)).astype(F32)
    batched = jax.vmap(lambda x, *stored: x @ form.dequantise(jnp, *stored))
    executable = sx.compile(jax.jit(batched).lower(x, *stored).as_text())
    assert [kernel.kind for kernel in executable.kernels] == ["contraction"]
    weights = [form.dequantise(np, *one).astype(np.float64) for one in zip(*stored, strict=True)]
    np.testing.assert_array_equal(executable(x, *stored), x.astype(np.float64) @ np.stack(weights))


def test_a_scale_that_the_epilogue_reads_too() -> None:
    """It is not overwritten by the result, though both are as large."""
    k, rng = 256, np.random.default_rng(6)
    q, scale = rng.integers(-8, 9, (k, k)).astype(np.int8), np.exp2(rng.integers(-2, 3, (k,))).astype(F32)
    x = rng.integers(-4, 5, (1, k)).astype(F32)
    text = jax.jit(lambda x, q, s: x @ (q.astype(jnp.float32) * s) + s).lower(x, q, scale).as_text()
    module = outlined(text)
    kernel = next(str(op) for op in module.body.operations if "stablexla.kernel" in op.operation.attributes)
    assert not compile_kernel(kernel).emitted.in_place
    np.testing.assert_array_equal(sx.compile(text)(x, q, scale), x @ (q.astype(F32) * scale) + scale)


EXTENTS = {"b": 20, "h": 5, "d": 64, "k": 160, "m": 3, "n": 320, "j": 4}
LONGER = {**EXTENTS, "b": 30, "m": 50}
EQUATIONS = ["mk,kn->nm", "mk,khd->mhd", "mk,khd->mdh", "mk,hdk->dmh", "bk,kb->b", "bmk,knb->bmn", "bmk,kbn->bmn"]


@pytest.mark.parametrize(
    "equation", [*EQUATIONS, "bmk,bnk->nbm", "mjk,jkn->jmn", "mhd,hdn->mn", "k,kn->n", "mk,kdh->hd"]
)
@pytest.mark.parametrize("extents", [EXTENTS, LONGER], ids=["few", "more"])
def test_forms(equation: str, extents: dict[str, int]) -> None:
    """Heads, batches and transposes: whichever of them is read packed, values are the same."""
    x_axes, w_axes = equation.split("->")[0].split(",")
    rng = np.random.default_rng(7)
    x = rng.integers(-4, 5, [extents[c] for c in x_axes]).astype(F32)
    q = rng.integers(-8, 9, [extents[c] for c in w_axes]).astype(np.int8)
    scale = np.exp2(rng.integers(-2, 3, q.shape[-1])).astype(F32)
    program = jax.jit(lambda x, q, s: jnp.einsum(equation, x, q.astype(jnp.float32) * s))
    executable = sx.compile(program.lower(x, q, scale).as_text())
    np.testing.assert_array_equal(executable(x, q, scale), np.einsum(equation, x, q.astype(F32) * scale))


@pytest.mark.parametrize("m", [3, SOME])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", ["int8", "int8 groups of 32", "paired columns", "paired in lines"])
def test_sums_in_f64(name: str, bits: int, m: int) -> None:
    """Two lanes in a register, of which each nibble of a byte has one."""
    form, (k, n), rng = FORMATS[name], SIZES["ragged"], np.random.default_rng(8)
    stored = [drawn(shape, element, rng, whole=False) for shape, element in form.arrays(k, n)]
    with jax.enable_x64(True):
        x = rng.standard_normal((m, k))
        text = jax.jit(lambda x, *stored: x @ form.dequantise(jnp, *stored)).lower(x, *stored).as_text()
    executable = sx.compile(text, options=with_vectors(bits))
    wanted = x @ form.dequantise(np, *stored).astype(np.float64)
    np.testing.assert_allclose(executable(x, *stored), wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
