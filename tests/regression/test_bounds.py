"""Machine code writes nothing outside its results and its arena: bytes of a known value lie around each buffer.

The oracle is that those bytes stay what they were. The native runtime is left out, as its blocks may be larger.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.pipeline.knobs import knobs
from tests.ops.samples import sample

MARGIN, MARK = 2048, 0xA5
SHAPES = [(2, 1, 3, 1, 2, 3), (37, 1), (3, 5, 7)]
TYPES = ["pred", "s4", "s8", "bf16", "f8e4m3fn", "f32"]


def _programs(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> dict[str, Callable[[], Any]]:
    rank, shape = x.shape.rank, x.shape.dimensions
    zero = b.constant(np.zeros((), x.shape.element_type.dtype))
    return {
        "select": lambda: sx.select(sx.eq(x, y), x, y),
        "add": lambda: sx.add(x, y),
        "max": lambda: sx.max(x, y),
        "atan2": lambda: sx.atan2(x, y),
        "transpose": lambda: sx.transpose(x, tuple(reversed(range(rank)))),
        "broadcast": lambda: sx.broadcast(x, (2, 1)),
        "pad": lambda: sx.pad(x, zero, [(1, -1, 1)] * rank),
        "concatenate": lambda: sx.concatenate([x, y, x], rank - 1),
        "slice": lambda: sx.slice(x, (0,) * rank, shape, (2,) * rank),
        "update": lambda: sx.dynamic_update_slice(x, y, [b.constant(-5)] * rank),
        "reduce": lambda: sx.reduce(x, zero, sx.add, (rank - 1,)),
        "reduce_0": lambda: sx.reduce(x, zero, sx.add, (0,)),
    }


def _touched(executable: sx.Executable, args: list[np.ndarray]) -> list[int]:
    """The buffers around which a call changed something: parameters, then results, then the arena."""
    function, buffers = executable._function, []

    def buffer(size: int, value: np.ndarray | None = None) -> int:
        whole = np.full(size + 2 * MARGIN + 64, MARK, np.uint8)
        start = MARGIN + (-(whole.ctypes.data + MARGIN)) % 64
        if value is not None:
            whole[start : start + size] = np.frombuffer(value.tobytes(), np.uint8)
        buffers.append((whole, start, size))
        return int(whole.ctypes.data) + start

    addresses = [buffer(spec.nbytes, arg) for spec, arg in zip(function.parameters, args, strict=True)]
    addresses += [buffer(spec.nbytes) for spec in function.results] + [buffer(function.arena_bytes)]
    slots = (ctypes.c_void_p * len(addresses))(*addresses)
    first, step = ctypes.addressof(slots), ctypes.sizeof(ctypes.c_void_p)
    # In a variable: the memory must live as long as the call.
    packed = (ctypes.c_void_p * len(addresses))(*(first + step * i for i in range(len(addresses))))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function.entry)(ctypes.addressof(packed))
    return [
        i
        for i, (whole, start, size) in enumerate(buffers)
        if (whole[:start] != MARK).any() or (whole[start + size :] != MARK).any()
    ]


@pytest.mark.parametrize("name", TYPES)
def test_nothing_is_written_outside(name: str) -> None:
    for shape in SHAPES:
        args = [sample(name, int(np.prod(shape)), seed).reshape(shape) for seed in (1, 2)]
        b = sx.XlaBuilder("bounds")
        x, y = (b.parameter(i, sx.Shape(name, shape)) for i in range(2))
        for operation, make in _programs(b, x, y).items():
            try:
                root = make()
            except sx.ShapeError:  # not for this element type
                continue
            executable = sx.compile(b.build(root))
            if 'stablexla.role = "constant"' not in executable.ir("buffers"):
                assert not _touched(executable, args), (operation, name, shape)


@pytest.mark.parametrize("count", [9, 17, 33, 65])
@pytest.mark.parametrize(
    ("wide", "narrow"),
    [("s32", "s8"), ("s64", "s8"), ("s16", "u8"), ("f64", "s16"), ("s32", "s16"), ("f32", "f4e2m1fn")],
)
def test_one_lane_of_truncated_numbers(wide: str, narrow: str, count: int) -> None:
    """The last element of a conversion, alone in its vector, was stored with bytes behind it by LLVM 22 (AVX-512)."""
    b = sx.XlaBuilder("narrow")
    x = b.parameter(0, sx.Shape(wide, (count,)))
    with knobs.scoped(guard="ends"):  # the arrays end where a page does that nobody may touch
        executable = sx.compile(b.build(sx.convert_element_type(x, narrow)))
    given = np.ones(count, x.shape.element_type.dtype)
    np.testing.assert_array_equal(executable(given).astype(np.float32), 1)
