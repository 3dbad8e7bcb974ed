"""wgmma on the simulated driver: descriptors of shared memory with and without swizzles, and what it checks."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

if shutil.which("g++") is None:
    pytest.skip("no g++, with which the simulator is built", allow_module_level=True)

from tests.targets.gpu.ptx import kernel
from tests.targets.gpu.simulated import SimulatorError, run_ptx, unwritten

rng = np.random.default_rng(0)
N = 64
LINES = {0: 16, 1: 128, 2: 64, 3: 32}
"""Bytes of a line by the number of a swizzle."""


def along_k(matrix: np.ndarray[Any, Any], swizzle: int) -> tuple[np.ndarray[Any, Any], int, int]:
    """A matrix of 16 columns of f16 as bytes in shared memory, and its leading and stride offsets."""
    rows, line = len(matrix), LINES[swizzle]
    memory = np.zeros(8192, np.uint8)
    for r in range(rows):
        for c in range(2):  # 16 bytes
            at = r // 8 * 256 + c * 128 + r % 8 * 16 if not swizzle else r * line + c * 16
            at ^= (at >> 7 & (line // 16 - 1)) << 4
            memory[at : at + 16] = np.frombuffer(matrix[r, 8 * c : 8 * c + 8].tobytes(), np.uint8)
    return memory, 128 if not swizzle else 16, 256 if not swizzle else 8 * line


def along_rows(matrix: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int, int]:
    """The same of 64 rows, lines of 128 bytes along these, swizzled."""
    memory = np.zeros(8192, np.uint8)
    for k in range(16):
        for c in range(8):
            at = k * 128 + (c ^ k % 8) * 16
            memory[at : at + 16] = np.frombuffer(matrix[8 * c : 8 * c + 8, k].tobytes(), np.uint8)
    return memory, 8192, 1024


def product(
    a: Any, b: Any, swizzles: tuple[int, int], turned: tuple[int, int], *, fence: str, wait: str, order: str
) -> Any:
    (a_bytes, a_lead, a_stride), (b_bytes, b_lead, b_stride) = (
        along_rows(m) if t else along_k(m, s) for m, s, t in zip((a, b), swizzles, turned, strict=True)
    )

    def descriptor(lead: int, stride: int, swizzle: int) -> int:
        return lead >> 4 << 16 | stride >> 4 << 32 | swizzle << 62

    out = ", ".join(f"%f{i}" for i in range(N // 2))
    four = "{%r20, %r21, %r22, %r23}"
    copies = "".join(
        f"ld.global.v4.b32 {four}, [%rd{p}+{2048 * i}]; st.shared.v4.b32 [%r1{p}+{2048 * i}], {four};\n"
        for p in (2, 3)
        for i in range(4)
    )
    body = f"""
    .shared .align 1024 .b8 s[16384];
    ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2];
    mul.wide.u32 %rd4, %r0, 16; add.u64 %rd2, %rd2, %rd4; add.u64 %rd3, %rd3, %rd4;
    mov.u32 %r10, s; mad.lo.u32 %r12, %r0, 16, %r10; add.u32 %r13, %r12, 8192;
    {copies}
    {fence}
    bar.sync 0;
    shr.u32 %r14, %r10, 4; cvt.u64.u32 %rd5, %r14;
    add.u64 %rd6, %rd5, {descriptor(a_lead, a_stride, swizzles[0])};
    add.u64 %rd7, %rd5, {descriptor(b_lead, b_stride, swizzles[1]) + 512};
    setp.ne.u32 %p1, %r0, %r0;
    {order}
    wgmma.mma_async.sync.aligned.m64n{N}k16.f32.f16.f16 {{{out}}}, %rd6, %rd7, %p1, 1, 1, {turned[0]}, {turned[1]};
    setp.eq.u32 %p1, %r0, %r0;
    wgmma.mma_async.sync.aligned.m64n{N}k16.f32.f16.f16 {{{out}}}, %rd6, %rd7, %p1, 1, 1, {turned[0]}, {turned[1]};
    wgmma.commit_group.sync.aligned;
    {wait}
    ld.param.u64 %rd1, [p0];
    mul.wide.u32 %rd0, %r0, {2 * N}; add.u64 %rd1, %rd1, %rd0;
    {"".join(f"st.global.f32 [%rd1+{4 * i}], %f{i};" for i in range(N // 2))}
"""
    arrays = [unwritten((4, 8, 4, N // 8, 2, 2)), a_bytes, b_bytes]
    spread = run_ptx(kernel(body, parameters=3, address=False, target="sm_90a"), "test", 1, 128, arrays)[0]
    return spread.transpose(0, 4, 1, 3, 2, 5).reshape(64, N)


RIGHT = {
    "fence": "fence.proxy.async;",
    "order": "wgmma.fence.sync.aligned;",
    "wait": "wgmma.wait_group.sync.aligned 0;",
}
A, B = rng.standard_normal((64, 16)).astype(np.float16), rng.standard_normal((N, 16)).astype(np.float16)


@pytest.mark.parametrize(
    ("swizzles", "turned"), [((0, 0), (0, 0)), ((1, 2), (0, 0)), ((3, 1), (0, 1)), ((1, 1), (1, 0))]
)
def test_descriptors(swizzles: tuple[int, int], turned: tuple[int, int]) -> None:
    made = product(A, B, swizzles, turned, **RIGHT)
    np.testing.assert_allclose(made, 2 * A.astype(np.float64) @ B.astype(np.float64).T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("left_out", "text"),
    [("fence", "without fence.proxy.async"), ("order", "without wgmma.fence"), ("wait", "not waited for")],
)
def test_what_is_left_out_is_found(left_out: str, text: str) -> None:
    with pytest.raises(SimulatorError, match=text):
        product(A, B, (1, 1), (0, 0), **{**RIGHT, left_out: ""})


def test_sums_are_there_when_waited_for() -> None:
    late = RIGHT["wait"]
    with pytest.raises(SimulatorError, match="not waited for"):
        product(A, B, (1, 1), (0, 0), **{**RIGHT, "wait": "wgmma.wait_group.sync.aligned 1;"})
    assert np.isfinite(product(A, B, (1, 1), (0, 0), **{**RIGHT, "wait": late})).all()
