"""The simulated driver finds what is wrong: for every check a kernel that breaks it, beside one that does not."""

from __future__ import annotations

import ctypes
import shutil
from typing import Any

import numpy as np
import pytest

if shutil.which("g++") is None:
    pytest.skip("no g++, with which the simulator is built", allow_module_level=True)

from tests.targets.gpu.ptx import kernel
from tests.targets.gpu.simulated import Session, SimulatorError, driver, run_ptx, settings, unwritten

SHARED = ".shared .align 16 .b8 s[1024];\nmov.u32 %r10, s; mad.lo.u32 %r11, %r0, 4, %r10;\n"
ADDRESS = "ld.param.u64 %rd1, [p0]; mul.wide.u32 %rd0, %r0, 4; add.u64 %rd1, %rd1, %rd0;"


def run(body: str, *arrays: Any, grid: int = 1, block: int = 64, shared: int = 0, **form: Any) -> list[Any]:
    given = list(arrays) or [unwritten(256, np.uint32)]
    return run_ptx(kernel(body, parameters=len(given), **form), "test", grid, block, given, shared=shared)


BROKEN = {
    "out-of-bounds": ("st.global.u32 [%rd1+1024], %r0;", 700, "allocation of 1024 bytes"),
    "no-memory": ("mov.u64 %rd2, 64; st.global.u32 [%rd2], %r0;", 700, "no memory of the device"),
    "misaligned": ("st.global.v2.u32 [%rd1], {%r0, %r0};", 716, "not aligned"),
    "shared-out-of-bounds": (SHARED + "st.shared.u32 [%r11+1000], %r0;", 700, "the block has 1024"),
    "local-out-of-bounds": (
        ".local .align 4 .b8 l[8];\nmov.u64 %rd2, l; st.local.u32 [%rd2+16], %r0;",
        700,
        "local memory",
    ),
    "shared-race": (SHARED + "st.shared.u32 [%r11], %r0; ld.shared.u32 %r1, [%r11+4];", 719, "race in shared memory"),
    "same-value-race": (SHARED + "st.shared.u32 [%r10], 1;", 719, "race in shared memory"),
    "write-after-read": (
        SHARED + "st.shared.u32 [%r11], %r0; bar.sync 0; xor.b32 %r2, %r0, 63; mad.lo.u32 %r2, %r2, 4, %r10;"
        "ld.shared.u32 %r1, [%r2]; st.shared.u32 [%r11], %r1;",
        719,
        "race in shared memory",
    ),
    "global-race": ("st.global.u32 [%rd1], %r0; ld.global.u32 %r1, [%rd1+4];", 719, "race in global memory"),
    "constant-reads": ("st.global.u32 [%rd1], 1; ld.global.nc.u32 %r1, [%rd1];", 719, "as constant"),
    "shared-not-written": (SHARED + "ld.shared.u32 %r1, [%r11];", 719, "nobody has written"),
    "global-not-written": ("ld.global.u32 %r1, [%rd1];", 719, "nobody has written"),
    "divergent-barrier": (
        "setp.lt.u32 %p1, %r0, 5; @%p1 bra A; bar.sync 0; bra.uni B;\nA:\nbar.sync 0;\nB:\n",
        719,
        "divergent",
    ),
    "ended-threads": ("setp.lt.u32 %p1, %r0, 5; @%p1 ret; bar.sync 0;", 719, "divergent"),
    "ended-warp": ("setp.lt.u32 %p1, %r0, 32; @%p1 ret; bar.sync 0;", 719, "divergent"),
    "partial-shuffle": ("setp.lt.u32 %p1, %r0, 5; @%p1 ret; shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;", 719, "divergent"),
    "trap": ("trap;", 715, "a trap"),
    "copy-not-waited-for": (
        SHARED + "mov.u64 %rd4, %rd1; cp.async.ca.shared.global [%r11], [%rd4], 4; cp.async.commit_group;",
        719,
        "not waited for",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_found(name: str) -> None:
    body, code, text = BROKEN[name]
    given = [np.zeros(256, np.uint32)] if name.startswith("copy") else [unwritten(256, np.uint32)]
    with pytest.raises(SimulatorError) as caught:
        run(body, *given)
    assert caught.value.code == code
    assert text in caught.value.report
    assert "kernel test" in caught.value.report


def test_a_copy_is_read_too_early() -> None:
    copy = SHARED + "cp.async.ca.shared.global [%r11], [%rd1], 4; cp.async.commit_group;\n{}\n"
    copy += "ld.shared.u32 %r1, [%r11]; st.global.u32 [%rd1+256], %r1;"
    numbers = np.arange(128, dtype=np.uint32)
    (out,) = run(copy.format("cp.async.wait_group 0;"), numbers)
    assert (out[64:] == numbers[:64]).all()
    with pytest.raises(SimulatorError, match="still under way"):
        run(copy.format("cp.async.wait_group 1;"), numbers)
    with pytest.raises(SimulatorError, match="race"):
        run(
            copy.format("cp.async.wait_group 0;").replace("ld.shared.u32 %r1, [%r11]", "ld.shared.u32 %r1, [%r11+4]"),
            numbers,
            block=63,
        )


def test_barriers_order() -> None:
    body = SHARED + "st.shared.u32 [%r11], %r0; bar.sync 0; xor.b32 %r2, %r0, 63; mad.lo.u32 %r2, %r2, 4, %r10;"
    body += "ld.shared.u32 %r1, [%r2]; bar.sync 0; st.shared.u32 [%r11], %r1; st.global.u32 [%rd1], %r1;"
    (out,) = run(body)
    assert (out[:64] == 63 - np.arange(64)).all()


def test_warp_barriers_order_a_warp() -> None:
    body = (
        SHARED
        + "st.shared.u32 [%r11], %r0; {} xor.b32 %r2, %r0, 1; mad.lo.u32 %r2, %r2, 4, %r10; ld.shared.u32 %r1, [%r2];"
    )
    run(body.format("bar.warp.sync -1;"))
    with pytest.raises(SimulatorError, match="race in shared memory"):
        run(body.format(""))


def test_blocks_are_not_ordered() -> None:
    with pytest.raises(SimulatorError, match="race in global memory"):
        run("st.global.u32 [%rd1], 1;", grid=2)
    atomic = "red.global.add.u32 [%rd1], 1;"
    (out,) = run(atomic, np.zeros(64, np.uint32), grid=2)
    assert (out == 2).all()


LAST_BLOCK = """
    mov.u32 %r1, %ctaid.x;
    mad.lo.u32 %r2, %r1, 4, 8;
    cvt.u64.u32 %rd2, %r2;
    ld.param.u64 %rd3, [p0];
    add.u64 %rd2, %rd2, %rd3;
    ld.param.u64 %rd4, [p1];
    st.global.u32 [%rd2], 3;
    FENCE
    atom.global.add.u32 %r3, [%rd4], 1;
    setp.ne.u32 %p1, %r3, 1;
    @%p1 ret;
    FENCE
    ld.global.u32 %r4, [%rd3+8];
    ld.global.u32 %r5, [%rd3+12];
    add.u32 %r4, %r4, %r5;
    st.global.u32 [%rd3], %r4;
"""


def test_fences_and_atomics_order_blocks() -> None:
    def last_block(fence: str) -> Any:
        arrays = [unwritten(4, np.uint32), np.zeros(1, np.uint32)]
        return run(LAST_BLOCK.replace("FENCE", fence), *arrays, grid=2, block=1)[0]

    assert last_block("membar.gl;")[0] == 6
    with pytest.raises(SimulatorError, match="race in global memory"):
        last_block("")


def test_given_back_memory() -> None:
    with settings(devices=1), Session() as session:
        function = session.function(session.load(kernel("st.global.u32 [%rd1], 1;")), "test")
        address = session.allocate(256)
        session.free(address)
        with pytest.raises(SimulatorError, match="given back"):
            session.launch(function, (1,), (32,), [ctypes.c_uint64(address)])


def test_too_much_shared_memory() -> None:
    body = "mov.u32 %r1, d; mad.lo.u32 %r1, %r0, 4, %r1; st.shared.u32 [%r1+65000], 1;"
    extern = ".extern .shared .align 16 .b8 d[];"
    run(body, block=32, shared=70000, before=extern)  # asked for with cuFuncSetAttribute
    with pytest.raises(SimulatorError, match="bytes of shared memory"):
        run(body, block=32, shared=64996 + 32 * 4, before=extern + "\n")
    with pytest.raises(SimulatorError, match="more than the device has"):
        run(body, block=32, shared=300000, before=extern)


REFUSED = {
    "unknown-instruction": "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [t, {%r1}];",
    "unknown-word": "add.rn.weird.f32 %f1, %f2, %f3;",
    "width-of-a-register": "add.u32 %r1, %rd1, %r2;",
    "unknown-register": "add.u32 %r1, %r2, %q3;",
    "number-too-large": "add.u16 %h1, %h2, 70000;",
    "operands": "add.u32 %r1, %r2;",
    "unknown-label": "bra NOWHERE;",
    "rounding": "cvt.f16.f32 %h1, %f1;",
    "newer-chip": None,
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body = REFUSED[name]
    with pytest.raises(SimulatorError, match="line") as caught:
        run(body, block=1) if body else run("", block=1, target="sm_100")
    assert caught.value.code == 218


def test_any_order_gives_the_same() -> None:
    body = SHARED + "st.shared.u32 [%r11], %r0; bar.sync 0; ld.shared.u32 %r1, [%r10+12]; st.global.u32 [%rd1], %r1;"
    for seed in (0, 1, 2, 3):
        with settings(seed=seed):
            assert (run(body, unwritten(64, np.uint32))[0] == 3).all()


def test_leaks_are_counted() -> None:
    with settings(devices=2):
        found = driver()
        run("st.global.u32 [%rd1], 1;", block=32)
        assert found.simulator_allocated_bytes(0) == 0
        assert found.simulator_host_bytes() == 0
