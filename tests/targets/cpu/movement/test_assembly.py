"""Kernels that put arrays together: padding, concatenation, stacking, updates of a block. Oracle: numpy; exact."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.cpu.movement.assembly import PART, emit_assembly
from tests.targets.cpu.harness import DTYPES, compile_kernel

# Where a box begins, its size, and how far apart its elements lie.
Placed = tuple[Sequence[int], Sequence[int], Sequence[int]]


def tensor(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def kernel(
    shape: Sequence[int],
    boxes: Sequence[Placed],
    element: str,
    filled: bool,
) -> str:
    """Boxes of (start, size, step) put into nothing, or into a number that is the last input."""
    result = tensor(shape, element)
    parameters = [f"%x{i}: {tensor(size, element)}" for i, (_, size, _) in enumerate(boxes)]
    lines = [f"%e = tensor.empty() : {result}"]
    into = "%e"
    if filled:
        parameters.append(f"%s: {element}")
        lines.append(f"%f = linalg.fill ins(%s : {element}) outs(%e : {result}) -> {result}")
        into = "%f"
    for i, (start, size, step) in enumerate(boxes):
        lines.append(
            f"%r{i} = tensor.insert_slice %x{i} into {into}{list(start)} {list(size)} {list(step)}"
            f" : {tensor(size, element)} into {result}"
        )
        into = f"%r{i}"
    body = "\n".join([*lines, f"return {into} : {result}"])
    kind = 'attributes {stablexla.kernel = "general"}'
    return f"func.func private @k({', '.join(parameters)}) -> {result} {kind} {{\n{body}\n}}"


def check(
    shape: Sequence[int],
    boxes: Sequence[Placed],
    element: str = "f32",
    filled: bool = False,
    target: CpuTarget | None = None,
) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-99, 99, size).astype(DTYPES[element]) for _, size, _ in boxes]
    want = np.full(shape, 7).astype(DTYPES[element])
    for (start, size, step), array in zip(boxes, arrays, strict=True):
        want[tuple(slice(a, a + (n - 1) * k + 1, k) for a, n, k in zip(start, size, step, strict=True))] = array
    made = compile_kernel(kernel(shape, boxes, element, filled), target, emit_assembly)
    (got,) = made.in_all_ways(*arrays, *([7] if filled else []))
    np.testing.assert_array_equal(got, want)


PADDED = [
    ((9,), [((2,), (5,), (1,))]),
    ((1,), [((0,), (1,), (1,))]),
    ((7, 33), [((1, 5), (4, 20), (1, 1))]),
    ((5, 19), [((0, 0), (3, 10), (2, 2))]),
    ((6, 20), [((1, 3), (2, 5), (3, 3))]),
    ((4, 6, 9), [((1, 1, 0), (2, 4, 9), (1, 1, 1))]),
    ((3, 4, 5), [((0, 1, 2), (3, 1, 1), (1, 1, 1))]),
    ((2 * PART() + 17,), [((3,), (2 * PART(),), (1,))]),
    ((2, 2 * PART() + 5), [((1, 1), (1, PART()), (1, 2))]),
]
JOINED = [
    ((12,), [((0,), (5,), (1,)), ((5,), (7,), (1,))]),
    ((3, 40), [((0, 0), (3, 1), (1, 1)), ((0, 1), (3, 39), (1, 1))]),
    ((9, 16), [((0, 0), (4, 16), (1, 1)), ((4, 0), (5, 16), (1, 1))]),
    ((5, 37, 2), [((0, 0, 0), (5, 37, 1), (1, 1, 1)), ((0, 0, 1), (5, 37, 1), (1, 1, 1))]),
    ((33, 3), [((0, i), (33, 1), (1, 1)) for i in range(3)]),
    ((21, 4), [((0, i), (21, 1), (1, 1)) for i in range(4)]),
    ((5, 6), [((0, i), (5, 1), (1, 1)) for i in range(6)]),
    ((3 * PART(),), [((0,), (PART() + 3,), (1,)), ((PART() + 3,), (2 * PART() - 3,), (1,))]),
    ((4, 4), [((0, 0), (2, 2), (1, 1)), ((0, 2), (2, 2), (1, 1)), ((2, 0), (2, 3), (1, 1)), ((2, 3), (2, 1), (1, 1))]),
]


@pytest.mark.parametrize(("shape", "boxes"), PADDED, ids=lambda v: str(v) if isinstance(v, tuple) else "")
@pytest.mark.parametrize("element", ["f32", "i8"])
def test_boxes_in_a_number(shape: tuple[int, ...], boxes: list[Placed], element: str) -> None:
    check(shape, boxes, element, filled=True)


@pytest.mark.parametrize(("shape", "boxes"), JOINED, ids=lambda v: str(v) if isinstance(v, tuple) else "")
@pytest.mark.parametrize("element", ["f32", "i8"])
def test_boxes_side_by_side(shape: tuple[int, ...], boxes: list[Placed], element: str) -> None:
    check(shape, boxes, element)


@pytest.mark.parametrize("element", ["f64", "i64", "i16", "bf16"])
def test_other_elements(element: str) -> None:
    check((7, 33), [((0, 0), (7, 20), (1, 1)), ((0, 20), (7, 13), (1, 1))], element)
    check((33, 2), [((0, 0), (33, 1), (1, 1)), ((0, 1), (33, 1), (1, 1))], element)


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("width", [32, 33])
def test_past_the_caches(bits: int, width: int) -> None:
    """Lines that begin at whole vectors, and such that do not."""
    target = dataclasses.replace(host_target().with_vectors(bits), nontemporal_bytes=1)
    check((5, 2 * width), [((0, 0), (5, width), (1, 1)), ((0, width), (5, width), (1, 1))], target=target)
    check((6, width + 3), [((1, 1), (4, width), (1, 1))], filled=True, target=target)


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("start", [0, 4, 8])
def test_interleaved_past_the_caches(bits: int, start: int) -> None:
    """Elements and numbers in turn, from a whole vector of the line on and from the middle of one."""
    target = dataclasses.replace(host_target().with_vectors(bits), nontemporal_bytes=1)
    check((6, 80), [((1, start), (4, 33), (1, 2))], filled=True, target=target)


LINES = [(n, before) for n in (1, 15, 16, 63, 64, 131, 3 * PART()) for before in (0, 1, 70, PART() + 9)]


@pytest.mark.parametrize("element", ["i8", "i16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_lines_by_functions_of_all_kernels(bits: int, element: str) -> None:
    """Whole vectors, what is left behind them, and elements alone."""
    target = host_target().with_vectors(bits)
    for n, before in LINES:
        check((before + n + 3,), [((before,), (n,), (1,))], element, filled=True, target=target)
        check((n + 5,), [((0,), (5,), (1,)), ((5,), (n,), (1,))], element, target=target)


def shared_in(text: str) -> set[str]:
    return {name for name in ("copy_line", "fill_line") if f"call @stablexla_{name}" in text}


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (lambda x: sx.pad(x[0], 1.5, [(3, 4, 0)]), {"copy_line", "fill_line"}),
        (lambda x: sx.pad(x, 1.5, [(3, 4, 0), (0, 0, 0)]), {"copy_line", "fill_line"}),
        (lambda x: sx.concat_in_dim([x[1:], x[:1]], 0), {"copy_line"}),
        (lambda x: sx.concat_in_dim([x[0] * 2.0, x[0]], 0), {"copy_line"}),
        (lambda x: sx.concat_in_dim([x[0], sx.rev(x[0], (0,))], 0), {"copy_line"}),
        (lambda x: sx.pad(x, 1.5, [(0, 0, 0), (3, 4, 0)]), set()),
        (lambda x: sx.pad(x[0], 1.5, [(0, 0, 2)]), set()),
    ],
)
def test_what_is_a_line(build: Callable[..., sx.XlaOp], names: set[str]) -> None:
    """One contiguous line: not rows of an array, elements apart, or what is computed or read in another order."""
    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    executable, (got,) = compiled(build, x)
    assert shared_in(executable.ir("buffers")) == names
    other, (streamed,) = compiled(build, x, choices="usual+machine.nontemporal-bytes=1")
    assert not shared_in(other.ir("buffers"))
    np.testing.assert_array_equal(got, streamed)


def compiled(
    build: Callable[..., sx.XlaOp], *arrays: np.ndarray, choices: str = "usual"
) -> tuple[sx.Executable, list[np.ndarray]]:
    b = sx.XlaBuilder("program")
    types = [sx.f32 if a.dtype == np.float32 else sx.s32 for a in arrays]
    parameters = [b.parameter(i, t[a.shape]) for i, (t, a) in enumerate(zip(types, arrays, strict=True))]
    executable = sx.compile(b.build(build(*parameters)), options=sx.CompileOptions(choices=choices))
    return executable, executable.execute(list(arrays))


def test_parts_are_computed_where_they_are_written() -> None:
    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    executable, (got,) = compiled(lambda x: sx.concat_in_dim([x * 2.0, x + 1.0], 1), x)
    np.testing.assert_array_equal(got, np.concatenate([x * 2, x + 1], 1))
    assert len(executable.kernels) == 1


def test_a_slice_at_a_place_known_at_run_time_is_read_by_what_follows() -> None:
    x, i = np.arange(60, dtype=np.float32).reshape(6, 10), np.array(3, np.int32)
    executable, (got,) = compiled(lambda x, i: sx.dynamic_slice(x, [i, i], (2, 5)) * 2.0, x, i)
    np.testing.assert_array_equal(got, x[3:5, 3:8] * 2)
    assert len(executable.kernels) == 1


def test_an_update_that_reads_what_it_changes() -> None:
    x, i = np.arange(60, dtype=np.float32).reshape(6, 10), np.array(3, np.int32)

    def shifted(x: sx.XlaOp, i: sx.XlaOp) -> sx.XlaOp:
        zero = x.builder.constant(0, "s32")
        return sx.dynamic_update_slice(x, sx.dynamic_slice(x, [zero, zero], (3, 5)) * 2.0, [i, i])

    _, (got,) = compiled(shifted, x, i)
    want = x.copy()
    want[3:6, 3:8] = x[:3, :5] * 2
    np.testing.assert_array_equal(got, want)
