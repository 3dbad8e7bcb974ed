"""Elementwise kernels in vectors. Oracle: numpy; all results are exact unless an elementary function is involved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.cpu.elementwise.loops import BLOCK, emit_loop
from tests.targets.cpu.harness import DTYPES, compile_kernel, emit
from tests.targets.cpu.kernel_text import KernelText

ADD = "%r = arith.addf %a, %b : f32"
SHAPES = [
    (0,), (1,), (2,), (3,), (7,), (8,), (9,), (31,), (1009,), (2 * BLOCK(),), (2 * BLOCK() + 13,),
    (), (1, 1), (5, 0, 3), (3, 1, 5), (2, 3, 4, 5), (1, 2, 1, 3, 1, 7), (70, 300),
]  # fmt: skip
# s0 and s1 are the last indices.
MAPS = [
    "d0 + 3, d1 + 5", "d0 * 2 + 1, d1", "d0, d1 * 2 + 1", "d0, d1 * 3", "-d0 + s0, d1", "d0, -d1 + s1", "d1, d0",
    "d0, 7", "d1, -d0 + s0", "5, -d1 * 2 + 100",
]  # fmt: skip
MULTIPLY_ADD = "%p = arith.mulf %a, %b : f32\n%r = arith.addf %p, %c : f32"


def run(text: str, *arguments: object, target: CpuTarget | None = None) -> list[np.ndarray]:
    """The results, the same however the kernel is called."""
    return compile_kernel(text, target, emit_loop).in_all_ways(*arguments)


def numbers(dtype: np.dtype | str, shape: Sequence[int], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return rng.integers(-100, 100, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    "shape",
    SHAPES,
    ids=str,
)
def test_two_operands_and_a_scalar(shape: tuple[int, ...]) -> None:
    text = KernelText("loop")
    x, y, s = text.input("f32", shape), text.input("f32", shape), text.input("f32")
    result = text.map(shape, [x, y, s], MULTIPLY_ADD)
    a, b = numbers("f4", shape), numbers("f4", shape, 1)
    (got,) = run(text.text(result), a, b, 2.5)
    np.testing.assert_array_equal(got, a * b + np.float32(2.5))


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("shape", [(77,), (5, 37), (3, 16)], ids=str)
def test_vector_widths(bits: int, shape: tuple[int, ...]) -> None:
    text = KernelText("loop")
    x, row = text.input("f32", shape), text.input("f32", shape[-1:])
    result = text.map(shape, [x, (row, f"d{len(shape) - 1}")], ADD)
    a, b = numbers("f4", shape), numbers("f4", shape[-1:], 1)
    (got,) = run(text.text(result), a, b, target=CpuTarget(vector_bits=bits))
    np.testing.assert_array_equal(got, a + b)


@pytest.mark.parametrize("element", ["f64", "f32", "i64", "i32", "i16", "i8"])
@pytest.mark.parametrize("size", [5, 64, 1001])
def test_element_types(element: str, size: int) -> None:
    kind = "f" if element.startswith("f") else "i"
    text = KernelText("loop")
    x, y = text.input(element, (size,)), text.input(element, (size,))
    body = f"%p = arith.mul{kind} %a, %a : {element}\n%r = arith.add{kind} %p, %b : {element}"
    a, b = numbers(DTYPES[element], (size,)), numbers(DTYPES[element], (size,), 1)
    (got,) = run(text.text(text.map((size,), [x, y], body, element)), a, b)
    np.testing.assert_array_equal(got, a * a + b)


@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_narrow_floats_are_computed_in_f32(element: str) -> None:
    text = KernelText("loop")
    x, y = text.input(element, (101,)), text.input(element, (101,))
    body = (
        f"%p = arith.extf %a : {element} to f32\n%q = arith.extf %b : {element} to f32\n"
        f"%s = arith.mulf %p, %q : f32\n%r = arith.truncf %s : f32 to {element}"
    )
    a, b = numbers(DTYPES[element], (101,)), numbers(DTYPES[element], (101,), 1)
    (got,) = run(text.text(text.map((101,), [x, y], body, element)), a, b)
    np.testing.assert_array_equal(got, (a.astype("f4") * b.astype("f4")).astype(DTYPES[element]))


def test_preds_are_bytes() -> None:
    text = KernelText("loop")
    x, y = text.input("f32", (3, 45)), text.input("f32", (3, 45))
    less = text.map((3, 45), [x, y], "%u = arith.cmpf olt, %a, %b : f32\n%r = arith.extui %u : i1 to i8", "i8")
    body = "%z = arith.constant 0 : i8\n%u = arith.cmpi ne, %a, %z : i8\n%r = arith.select %u, %b, %d : f32"
    chosen = text.map((3, 45), [less, x, x, y], body)
    a, b = numbers("f4", (3, 45)), numbers("f4", (3, 45), 1)
    preds, values = run(text.text(less, chosen), a, b)
    np.testing.assert_array_equal(preds, (a < b).astype(np.int8))
    np.testing.assert_array_equal(values, np.minimum(a, b))


BROADCASTS: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "row": ("d2", lambda s: (s[2],), lambda v: v),
    "column": ("d0", lambda s: (s[0],), lambda v: v[:, None, None]),
    "middle": ("d1", lambda s: (s[1],), lambda v: v[:, None]),
    "outer two": ("d0, d1", lambda s: s[:2], lambda v: v[:, :, None]),
    "outer and inner": ("d0, d2", lambda s: (s[0], s[2]), lambda v: v[:, None, :]),
    "ones": ("0, d1, 0", lambda s: (1, s[1], 1), lambda v: v),
}


@pytest.mark.parametrize("name", BROADCASTS)
@pytest.mark.parametrize("shape", [(4, 5, 6), (3, 1, 17), (2, 3, 70), (7, 2, 3)], ids=str)
def test_broadcast_operands(name: str, shape: tuple[int, int, int]) -> None:
    map_, shape_of, spread = BROADCASTS[name]
    text = KernelText("loop")
    x, y = text.input("f32", shape), text.input("f32", shape_of(shape))
    a, b = numbers("f4", shape), numbers("f4", shape_of(shape), 1)
    (got,) = run(text.text(text.map(shape, [x, (y, map_)], ADD)), a, b)
    np.testing.assert_array_equal(got, a + spread(b))


@pytest.mark.parametrize("channels", [2, 3, 5, 10, 24, 33])
@pytest.mark.parametrize("pixels", [1, 7, 64, 10007])
def test_few_channels(channels: int, pixels: int) -> None:
    shape = (pixels, channels)
    text = KernelText("loop")
    x, scale, shift = text.input("f32", shape), text.input("f32", (channels,)), text.input("f32", (channels,))
    result = text.map(shape, [x, (scale, "d1"), (shift, "d1")], MULTIPLY_ADD)
    a, b, c = numbers("f4", shape), numbers("f4", (channels,), 1), numbers("f4", (channels,), 2)
    (got,) = run(text.text(result), a, b, c)
    np.testing.assert_array_equal(got, a * b + c)


@pytest.mark.parametrize("rows", [8, 13])
@pytest.mark.parametrize("columns", [8, 13, 40])
@pytest.mark.parametrize(
    "map_",
    MAPS,
)
def test_affine_maps(rows: int, columns: int, map_: str) -> None:
    d0, d1 = np.mgrid[0:rows, 0:columns]
    place = eval(map_.replace("s0", str(rows - 1)).replace("s1", str(columns - 1)), {"d0": d0, "d1": d1})
    shape = tuple(int(np.max(p)) + 1 for p in place)
    text = KernelText("loop")
    x, y = text.input("f32", shape), text.input("f32", (rows, columns))
    a, b = numbers("f4", shape), numbers("f4", (rows, columns), 1)
    map_ = map_.replace("s0", str(rows - 1)).replace("s1", str(columns - 1))
    (got,) = run(text.text(text.map((rows, columns), [(x, map_), y], ADD)), a, b)
    np.testing.assert_array_equal(got, a[place] + b)


SHORT = [(5, 3), (64, 3), (24, 4), (7, 8, 3, 3), (40, 9, 4), (3, 2, 5, 6), (9000, 3), (4, 2, 2), (33, 7)]


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("shape", SHORT, ids=str)
def test_short_inner_loops(shape: tuple[int, ...], bits: int) -> None:
    """Operands that lack dimensions, have them in another order, or are larger than the loops."""
    rank, rng = len(shape), np.random.default_rng(shape)
    subsets = [[d for d in range(rank) if bits_ >> d & 1] for bits_ in range(1, 1 << rank)]
    for round_ in range(4):
        text = KernelText("loop")
        chosen = [list(rng.permutation(subsets[i])) for i in rng.integers(0, len(subsets), 2)]
        element, larger = ["f32", "f64"][round_ % 2], round_ % 3
        shapes = [tuple(shape[d] + larger for d in dims) for dims in chosen]
        operands = [
            (text.input(element, s), ", ".join(f"d{d} + {larger}" for d in dims)) for s, dims in zip(shapes, chosen)
        ]
        own = text.input(element, shape)
        body = f"%p = arith.mulf %a, %b : {element}\n%r = arith.addf %p, %c : {element}"
        result = text.map(shape, [*operands, own], body, element)
        arrays = [numbers(DTYPES[element], s, i) for i, s in enumerate([*shapes, shape])]
        (got,) = run(text.text(result), *arrays, target=CpuTarget(vector_bits=bits))
        where = np.indices(shape)
        a, b = (array[tuple(where[d] + larger for d in dims)] for array, dims in zip(arrays, chosen))
        np.testing.assert_array_equal(got, a * b + arrays[2])


def test_short_inner_loops_are_whole_vectors() -> None:
    """A scalar to each three elements is placed by shuffles: no part of a vector is loaded in the loop or stored."""
    text = KernelText("loop")
    x, y = text.input("f32", (64,)), text.input("f32", (64, 3))
    module, _, _ = emit(text.text(text.map((64, 3), [(x, "d0"), y], ADD)), CpuTarget(vector_bits=512), emit_loop)
    written = str(module)
    assert "vector.shuffle" in written
    assert "vector.maskedstore" not in written


@pytest.mark.parametrize("cpu", [None, "x86-64-v4"])
@pytest.mark.parametrize("shape", [(9, 4), (32, 2), (31, 2), (16, 4), (12, 5), (3, 31), (3, 32), (3, 33)], ids=str)
def test_repeated_bytes(shape: tuple[int, int], cpu: str | None) -> None:
    """Each is repeated in a row: LLVM goes on for ever with some of these in 512 bits."""
    x = np.arange(-4, shape[0] - 4, dtype=np.int8)
    builder = sx.XlaBuilder("repeated")
    each = sx.broadcast_in_dim(builder.parameter(0, sx.s8[shape[:1]]), shape, [0])
    program = builder.build(sx.select(sx.lt(each, 0), -each, each * each))
    run = sx.compile(program, options=sx.CompileOptions(target_cpu=cpu, isolated=True, time_limit=60))
    wanted = np.repeat(np.where(x < 0, -x, x * x)[:, None], shape[1], 1)
    if cpu is None:  # this machine may be a lower one
        np.testing.assert_array_equal(run(x), wanted)


@pytest.mark.parametrize("shape", [(3, 70, 70), (33, 64), (64, 33), (100, 100)], ids=str)
def test_a_transposed_operand(shape: tuple[int, ...]) -> None:
    rank = len(shape)
    dims = [f"d{d}" for d in range(rank)]
    swapped = [*dims[:-2], dims[-1], dims[-2]]
    turned = (*shape[:-2], shape[-1], shape[-2])
    text = KernelText("loop")
    x, y, z = text.input("f32", shape), text.input("f32", turned), text.input("f32", shape[-1:])
    result = text.map(shape, [x, (y, ", ".join(swapped)), (z, dims[-1])], MULTIPLY_ADD)
    a, b, c = numbers("f4", shape), numbers("f4", turned, 1), numbers("f4", shape[-1:], 2)
    (got,) = run(text.text(result), a, b, c)
    np.testing.assert_array_equal(got, a * b.swapaxes(-1, -2) + c)


@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("element", ["f32", "f64", "i64", "i32", "i8"])
def test_indices(dimension: int, element: str) -> None:
    if element.startswith("f"):
        count = "%j = arith.index_cast %i : index to i64\n%r = arith.sitofp %j : i64 to "
    else:
        count = "%r = arith.index_cast %i : index to "
    text = KernelText("loop")
    result = text.map((40, 27), [], f"%i = linalg.index {dimension} : index\n{count}{element}", element)
    (got,) = run(text.text(result))
    np.testing.assert_array_equal(got, np.indices((40, 27))[dimension].astype(DTYPES[element]))


def test_an_index_used_as_a_number() -> None:
    text = KernelText("loop")
    body = (
        "%i = linalg.index 0 : index\n%j = linalg.index 1 : index\n%k = arith.addi %i, %j : index\n"
        "%u = arith.cmpi ult, %i, %j : index\n%l = arith.index_cast %k : index to i32\n"
        "%z = arith.constant 0 : i32\n%r = arith.select %u, %l, %z : i32"
    )
    (got,) = run(text.text(text.map((9, 19), [], body, "i32")))
    i, j = np.indices((9, 19))
    np.testing.assert_array_equal(got, np.where(i < j, i + j, 0))


def test_elementary_functions() -> None:
    text = KernelText("loop")
    x = text.input("f32", (1003,))
    result = text.map((1003,), [text.map((1003,), [x], "%r = math.exp %a : f32")], "%r = math.tanh %a : f32")
    a = numbers("f4", (1003,))
    (got,) = run(text.text(result), a)
    np.testing.assert_allclose(got, np.tanh(np.exp(a.astype("f8"))), rtol=1e-6)


@pytest.mark.parametrize("size", [24, 2 * BLOCK() + 48])
@pytest.mark.parametrize("name", ["tanh", "sin", "log"])
def test_one_function(name: str, size: int) -> None:
    """Some take two registers at a time where the length allows it."""
    text = KernelText("loop")
    result = text.map((size,), [text.input("f32", (size,))], f"%r = math.{name} %a : f32")
    a = numbers("f4", (size,))
    exact = getattr(np, name)
    (got,) = run(text.text(result), a)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(got, exact(a.astype("f8")), rtol=3e-7)


def test_masked_lanes_divide_nothing_by_zero() -> None:
    text = KernelText("loop")
    x, y = text.input("i32", (11,)), text.input("i32", (11,))
    a, b = numbers("i4", (11,)), np.arange(1, 12, dtype="i4")
    (got,) = run(text.text(text.map((11,), [x, y], "%r = arith.divsi %a, %b : i32", "i32")), a, b)
    np.testing.assert_array_equal(got, np.trunc(a / b).astype("i4"))


def test_several_results_of_one_operation() -> None:
    text = KernelText("loop")
    x = text.input("f32", (6, 7))
    body = "%s = arith.addf %a, %a : f32\n%t = arith.mulf %a, %a : f32"
    double, square = text.maps((6, 7), [x], body, ["f32", "f32"], "%s, %t")
    a = numbers("f4", (6, 7))
    got = run(text.text(square, double, text.map((6, 7), [double, square], ADD)), a)
    for result, expected in zip(got, (a * a, a + a, (a + a) + a * a), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_fill_and_a_copy() -> None:
    text = KernelText("loop")
    s, x = text.input("f32"), text.input("f32", (5, 9))
    got = run(
        text.text(text.fill((5, 9), s.name, "f32"), text.map((5, 9), [x], "", yields="%a")), 1.5, numbers("f4", (5, 9))
    )
    np.testing.assert_array_equal(got[0], np.full((5, 9), 1.5, "f4"))
    np.testing.assert_array_equal(got[1], numbers("f4", (5, 9)))


def test_a_scalar_that_the_body_takes_from_outside() -> None:
    text = KernelText("loop")
    x, s = text.input("f32", (21,)), text.input("f32")
    a = numbers("f4", (21,))
    (got,) = run(text.text(text.map((21,), [x], f"%r = arith.mulf %a, {s.name} : f32")), a, 3.0)
    np.testing.assert_array_equal(got, a * np.float32(3))


def test_big_results_are_stored_past_the_caches() -> None:
    text = KernelText("loop")
    x, row = text.input("f32", (600, 64)), text.input("f32", (64,))
    result = text.text(text.map((600, 64), [x, (row, "d1")], ADD))
    target = dataclasses.replace(host_target(), nontemporal_bytes=1)
    module, _, _ = emit(result, target, emit_loop)
    assert "nontemporal" in str(module)
    a, b = numbers("f4", (600, 64)), numbers("f4", (64,), 1)
    np.testing.assert_array_equal(run(result, a, b, target=target)[0], a + b)


def test_rows_that_are_not_aligned_go_through_the_caches() -> None:
    text = KernelText("loop")
    x, row = text.input("f32", (600, 65)), text.input("f32", (65,))
    result = text.text(text.map((600, 65), [x, (row, "d1")], ADD))
    module, _, _ = emit(result, dataclasses.replace(host_target(), nontemporal_bytes=1), emit_loop)
    assert "nontemporal" not in str(module)


def test_only_operands_at_the_same_place_may_be_overwritten() -> None:
    text = KernelText("loop")
    x, y, z = text.input("f32", (8, 8)), text.input("f32", (8, 8)), text.input("f32", (8, 8))
    result = text.map((8, 8), [x, (y, "d1, d0"), z, (z, "d0, -d1 + 7")], "%p = arith.addf %a, %b : f32\n"
                      "%q = arith.addf %p, %c : f32\n%r = arith.addf %q, %d : f32")  # fmt: skip
    _, _, emitted = emit(text.text(result), host_target(), emit_loop)
    assert emitted.in_place == ((0, 0),)


@pytest.mark.parametrize("what", ["complex", "control flow", "a result of fewer loops", "a window"])
def test_what_is_declined(what: str) -> None:
    text = KernelText("loop")
    if what == "complex":
        x = text.input("complex<f32>", (8,))
        body = "%r = complex.neg %a : complex<f32>"
        result = [text.map((8,), [x], body, "complex<f32>")]
    elif what == "control flow":
        x = text.input("f32", (8,))
        body = (
            "%l = arith.constant 0 : index\n%m = arith.constant 4 : index\n%n = arith.constant 1 : index\n"
            "%r = scf.for %i = %l to %m step %n iter_args(%v = %a) -> f32 {\n"
            "%w = arith.mulf %v, %v : f32\nscf.yield %w : f32\n}"
        )
        result = [text.map((8,), [x], body)]
    elif what == "a window":
        x = text.input("f32", (20,))
        result = [text.map((8, 3), [(x, "d0 floordiv 2")], "", yields="%a")]
    else:
        x = text.input("f32", (8,))
        y = text.input("f32", (4, 8))
        row = text.map((8,), [x], "%r = arith.addf %a, %a : f32")
        result = [row, text.map((4, 8), [y, (row, "d1")], ADD)]
    with pytest.raises(LookupError):
        emit(text.text(*result), host_target(), emit_loop)


def rotations(rounds: int) -> str:
    """MLIR text of a body that adds, rotates and mixes two words again and again, from the last index as 64 bits."""
    lines = [
        "%i = linalg.index 0 : index\n%wide = arith.index_cast %i : index to i64",
        "%low = arith.trunci %wide : i64 to i32",
        "%c32 = arith.constant 32 : i64\n%up = arith.shrui %wide, %c32 : i64\n%high = arith.trunci %up : i64 to i32",
        "%x0 = arith.addi %low, %a : i32\n%y0 = arith.addi %high, %b : i32",
        "%seven = arith.constant 7 : i32\n%rest = arith.constant 25 : i32",
    ]
    for n in range(rounds):
        lines += [
            f"%x{n + 1} = arith.addi %x{n}, %y{n} : i32\n%l{n} = arith.shli %y{n}, %seven : i32",
            f"%h{n} = arith.shrui %y{n}, %rest : i32\n%o{n} = arith.ori %l{n}, %h{n} : i32",
            f"%y{n + 1} = arith.xori %o{n}, %x{n + 1} : i32",
        ]
    return "\n".join([*lines, f"%r = arith.xori %x{rounds}, %y{rounds} : i32"])


@pytest.mark.parametrize("size", [2 * BLOCK(), 2 * BLOCK() + 1, 3 * BLOCK() - 5, 77])
@pytest.mark.parametrize("rounds", [3, 20])
def test_long_chains_of_integers_made_from_the_place(size: int, rounds: int) -> None:
    text = KernelText("loop")
    result = text.map((size,), [text.input("i32"), text.input("i32")], rotations(rounds), "i32")
    x, y = np.arange(size, dtype=np.uint32) + np.uint32(0x9E3779B9), np.full(size, 12345, np.uint32)
    for _ in range(rounds):
        x = x + y
        y = (y << np.uint32(7) | y >> np.uint32(25)) ^ x
    (got,) = run(text.text(result), 0x9E3779B9 - (1 << 32), 12345)
    np.testing.assert_array_equal(got.view(np.uint32), x ^ y)
