"""The simulated driver computes what PTX says: groups of instructions against numpy."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

if shutil.which("g++") is None:
    pytest.skip("no g++, with which the simulator is built", allow_module_level=True)

from tests.targets.gpu.ptx import kernel, lanes
from tests.targets.gpu.simulated import run_ptx, unwritten

rng = np.random.default_rng(0)
INTEGERS = {"s32": np.int32, "u32": np.uint32, "s64": np.int64, "u64": np.uint64, "s16": np.int16, "u16": np.uint16}
FLOATS = {"f32": np.float32, "f64": np.float64}
SPECIAL = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, 2.5, 3.5, -2.5, 2**31, -(2.0**31), 2**40, 1e9, 0.1]


def integers(dtype: Any) -> np.ndarray[Any, Any]:
    info = np.iinfo(dtype)
    edges = [info.min, info.max, 0, 1, 2, 31, info.max // 3]
    return np.concatenate([np.array(edges, dtype), rng.integers(info.min, info.max, 25, dtype, endpoint=True)])


def floats(dtype: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([np.array(SPECIAL), rng.standard_normal(16)]).astype(dtype)


def same(actual: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(actual, wanted.astype(actual.dtype))


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str) -> None:
    dtype = INTEGERS[name]
    a, b = integers(dtype), rng.permutation(integers(dtype))
    bits, wide = np.dtype(dtype).itemsize * 8, [int(x) * int(y) for x, y in zip(a, b, strict=True)]
    for code, wanted in {
        "add": a + b,
        "sub": a - b,
        "mul.lo": a * b,
        "mul.hi": np.array([(w >> bits) for w in wide], object).astype(dtype),
        "min": np.minimum(a, b),
        "max": np.maximum(a, b),
    }.items():
        same(lanes(f"{code}.{name} $0, $1, $2;", dtype, a, b), wanted)
    ok = np.where(b == 0, dtype(1), b)
    quotient = np.array(
        [int(abs(int(x)) // abs(int(y))) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, ok, strict=True)],
        object,
    )
    same(
        lanes(f"div.{name} $0, $1, $2;", dtype, a, ok),
        np.array([q % 2**bits for q in quotient], object).astype(f"u{bits // 8}").view(dtype),
    )
    same(lanes(f"mad.lo.{name} $0, $1, $2, $1;", dtype, a, b), a * b + a)
    amount = np.arange(32, dtype=np.uint32) * 3
    shifted = [int(x) >> int(n) if n < bits else (-1 if x < 0 else 0) for x, n in zip(a, amount, strict=True)]
    same(lanes(f"shr.{name} $0, $1, $2;", dtype, a, amount), np.array(shifted, object).astype(dtype))


def test_bits() -> None:
    a, b, c = (rng.integers(0, 2**32, 32, np.uint32) for _ in range(3))
    same(lanes("and.b32 $0, $1, $2;", np.uint32, a, b), a & b)
    same(lanes("lop3.b32 $0, $1, $2, $3, 0x96;", np.uint32, a, b, c), a ^ b ^ c)
    same(lanes("popc.b32 $0, $1;", np.uint32, a), np.array([bin(x).count("1") for x in a]))
    same(
        lanes("clz.b32 $0, $1;", np.uint32, a >> (c & 31)), np.array([32 - int(x).bit_length() for x in a >> (c & 31)])
    )
    same(lanes("brev.b32 $0, $1;", np.uint32, a), np.array([int(f"{x:032b}"[::-1], 2) for x in a]))
    same(lanes("bfe.u32 $0, $1, 5, 9;", np.uint32, a), a >> 5 & 511)
    same(lanes("bfe.s32 $0, $1, 5, 9;", np.int32, a), (a << 18).view(np.int32) >> 23)
    same(lanes("bfi.b32 $0, $1, $2, 4, 8;", np.uint32, a, b), (b & ~np.uint32(0xFF0)) | (a & 255) << 4)
    same(lanes("prmt.b32 $0, $1, $2, 0x5410;", np.uint32, a, b), (a & 0xFFFF) | b << 16)
    same(lanes("prmt.b32 $0, $1, 0, 0x7773;", np.uint32, a), a >> 24)
    same(lanes("shf.l.wrap.b32 $0, $1, $2, 40;", np.uint32, a, b), b << 8 | a >> 24)
    products = (a.view(np.int8).astype(np.int64) * b.view(np.int8)).reshape(32, 4).sum(1)
    same(lanes("dp4a.s32.s32 $0, $1, $2, $3;", np.int32, a, b, c), (products + c.view(np.int32)).astype(np.int32))
    same(
        lanes("bfind.u32 $0, $1;", np.int32, a >> (c & 31)), np.array([int(x).bit_length() - 1 for x in a >> (c & 31)])
    )


@pytest.mark.parametrize("name", FLOATS)
def test_floats(name: str) -> None:
    dtype = FLOATS[name]
    a, b, c = floats(dtype), rng.permutation(floats(dtype)), rng.permutation(floats(dtype))
    with np.errstate(all="ignore"):
        cases = {
            "add.rn": a + b,
            "sub.rn": a - b,
            "mul.rn": a * b,
            "div.rn": a / b,
            "min": np.fmin(a, b),
            "max": np.fmax(a, b),
        }
        for code, wanted in cases.items():
            same(lanes(f"{code}.{name} $0, $1, $2;", dtype, a, b), wanted)
        same(lanes(f"sqrt.rn.{name} $0, $1;", dtype, a), np.sqrt(a))
        same(lanes(f"rcp.rn.{name} $0, $1;", dtype, a), 1 / a)
        same(lanes(f"copysign.{name} $0, $1, $2;", dtype, a, b), np.copysign(b, a))
        exact = (a.astype(np.longdouble) * b + c).astype(dtype)
        made = lanes(f"fma.rn.{name} $0, $1, $2, $3;", dtype, a, b, c)
        np.testing.assert_allclose(made, exact, rtol=np.finfo(dtype).eps)
    for code, wanted in {"lt": a < b, "neu": ~(a == b), "nan": np.isnan(a) | np.isnan(b), "geu": ~(a < b)}.items():
        text = f"{{ .reg .pred p; setp.{code}.{name} p, $1, $2; selp.b32 $0, 1, 0, p; }}"
        same(lanes(text, np.uint32, a, b), wanted)


def test_flushing_and_nans() -> None:
    tiny, nan = np.full(32, 1e-40, np.float32), np.full(32, np.nan, np.float32)
    assert not lanes("add.rn.ftz.f32 $0, $1, $1;", np.float32, tiny).any()
    assert lanes("add.rn.f32 $0, $1, $1;", np.float32, tiny).all()
    assert (lanes("add.rn.f32 $0, $1, $1;", np.uint32, nan) == 0x7FFFFFFF).all(), "a GPU's NaN has all bits set"
    assert np.isnan(lanes("max.NaN.f32 $0, $1, 0f3F800000;", np.float32, nan)).all()


def test_conversions() -> None:
    x = floats(np.float32)
    whole = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0, posinf=2**31 - 1, neginf=-(2**31))
    same(lanes("cvt.rzi.s32.f32 $0, $1;", np.int32, x), np.clip(whole, -(2**31), 2**31 - 1).astype(np.int32))
    same(lanes("cvt.rni.f32.f32 $0, $1;", np.float32, x), np.rint(x))
    same(lanes("cvt.f64.f32 $0, $1;", np.float64, x), x.astype(np.float64))
    wide = rng.integers(-(2**63), 2**63 - 1, 32, np.int64)
    same(lanes("cvt.rn.f32.s64 $0, $1;", np.float32, wide), wide.astype(np.float32))
    same(lanes("cvt.sat.s8.s64 $0, $1;", np.int32, wide >> 52), np.clip(wide >> 52, -128, 127).astype(np.int32))
    with np.errstate(all="ignore"):
        half = lanes("{ .reg .b16 h; cvt.rn.f16.f32 h, $1; cvt.f32.f16 $0, h; }", np.float32, x)
        same(half, x.astype(np.float16).astype(np.float32))
    bits = x.view(np.uint32)
    rounded = np.where(np.isnan(x), 0x7FFF, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint32)
    same(lanes("cvt.rn.bf16x2.f32 $0, $1, 0f00000000;", np.uint32, x) >> 16, rounded)
    chopped = lanes("cvt.rz.f32.f64 $0, $1;", np.float32, np.full(32, 0.1))
    assert (chopped < 0.1).all()
    tf32 = lanes("cvt.rna.tf32.f32 $0, $1;", np.uint32, np.full(32, 0.1, np.float32))
    assert (tf32 & 0x1FFF == 0).all()


def test_halves() -> None:
    x = rng.standard_normal((2, 64)).astype(np.float16)
    a, b = x.view(np.uint32)
    same(lanes("add.rn.f16x2 $0, $1, $2;", np.uint32, a, b).view(np.float16), x[0] + x[1])
    same(lanes("mul.rn.f16x2 $0, $1, $2;", np.uint32, a, b).view(np.float16), x[0] * x[1])
    same(lanes("max.f16x2 $0, $1, $2;", np.uint32, a, b).view(np.float16), np.maximum(x[0], x[1]))
    i, j = rng.integers(-(2**15), 2**15, (2, 64)).astype(np.int16)
    p, q = i.view(np.uint32), j.view(np.uint32)
    same(lanes("add.u16x2 $0, $1, $2;", np.uint32, p, q).view(np.int16), i + j)
    same(lanes("max.s16x2 $0, $1, $2;", np.uint32, p, q).view(np.int16), np.maximum(i, j))
    same(lanes("max.relu.s16x2 $0, $1, $2;", np.uint32, p, q).view(np.int16), np.maximum(i, j).clip(0))
    same(lanes("min.relu.s32 $0, $1, $2;", np.int32, p, q), np.minimum(p.view(np.int32), q.view(np.int32)).clip(0))
    unsigned = np.minimum(i.view(np.uint16), j.view(np.uint16))
    same(lanes("min.u16x2 $0, $1, $2;", np.uint32, p, q).view(np.uint16), unsigned)
    text = """{ .reg .pred p, q; .reg .b32 r, s; setp.lt.f16x2 p|q, $1, $2; selp.b32 r, 1, 0, p; selp.b32 s, 2, 0, q;
        or.b32 $0, r, s; }"""
    below = (x[0] < x[1]).reshape(32, 2)
    same(lanes(text, np.uint32, a, b), (below @ [1, 2]).astype(np.uint32))


def test_shuffles_and_votes() -> None:
    a = rng.integers(0, 2**31, 32, np.int32).astype(np.uint32)
    at = np.arange(32)
    same(lanes("shfl.sync.bfly.b32 $0, $1, 5, 31, -1;", np.uint32, a), a[at ^ 5])
    same(lanes("shfl.sync.down.b32 $0, $1, 3, 31, -1;", np.uint32, a), a[np.where(at + 3 < 32, at + 3, at)])
    same(lanes("shfl.sync.up.b32 $0, $1, 3, 0, -1;", np.uint32, a), a[np.where(at >= 3, at - 3, at)])
    same(lanes("shfl.sync.idx.b32 $0, $1, 2, 0x1807, -1;", np.uint32, a), a[at // 8 * 8 + 2])
    text = "{ .reg .pred p; setp.lt.u32 p, $1, $2; vote.sync.ballot.b32 $0, p, -1; }"
    small = a < a[::-1]
    same(lanes(text, np.uint32, a, a[::-1].copy()), np.full(32, int((small.astype(np.int64) << at).sum())))
    same(lanes("redux.sync.add.u32 $0, $1, -1;", np.uint32, a), np.full(32, int(a.astype(np.int64).sum()) % 2**32))
    same(lanes("match.any.sync.b32 $0, $1, -1;", np.uint32, at.astype(np.uint32) % 8), 0x01010101 << (at % 8))


def test_branches_meet_again() -> None:
    body = """
    setp.lt.u32 %p1, %r0, 7;
    mov.u32 %r1, 0;
    @%p1 bra FEW;
LOOP:
    add.u32 %r1, %r1, %r0;
    setp.lt.u32 %p2, %r1, 100;
    @%p2 bra LOOP;
    bra.uni DONE;
FEW:
    mov.u32 %r1, 5;
DONE:
    bar.sync 0;
    shfl.sync.idx.b32 %r2, %r1, 31, 31, -1;
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd1], %r1;
"""
    at = np.arange(32)
    own = np.where(at < 7, 5, -(-100 // np.maximum(at, 1)) * at)
    (out,) = run_ptx(kernel(body), "test", 1, 32, [unwritten(32, np.uint32)])
    same(out, own + own[31])


def test_atomics_of_many_blocks() -> None:
    body = "ld.param.u64 %rd1, [p0]; red.global.add.u32 [%rd1], %r0; atom.global.max.u32 %r1, [%rd1+4], %r0;"
    (out,) = run_ptx(kernel(body, address=False), "test", 6, 64, [np.zeros(2, np.uint32)])
    assert out.tolist() == [6 * 63 * 32, 63]


def fragments(name: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A product by ldmatrix and mma.sync, of matrices in memory."""
    body = f"""
    .shared .align 16 .b8 sa[512];
    .shared .align 16 .b8 sb[256];
    ld.param.u64 %rd2, [p1];
    ld.param.u64 %rd3, [p2];
    mul.wide.u32 %rd4, %r0, 16;
    add.u64 %rd2, %rd2, %rd4;
    mul.wide.u32 %rd5, %r0, 8;
    add.u64 %rd3, %rd3, %rd5;
    mov.u32 %r20, sa;
    mov.u32 %r21, sb;
    mad.lo.u32 %r22, %r0, 16, %r20;
    mad.lo.u32 %r23, %r0, 8, %r21;
    cp.async.cg.shared.global [%r22], [%rd2], 16;
    cp.async.ca.shared.global [%r23], [%rd3], 8;
    cp.async.commit_group;
    cp.async.wait_group 0;
    bar.sync 0;
    and.b32 %r24, %r0, 15;
    shr.u32 %r25, %r0, 4;
    mad.lo.u32 %r26, %r24, 32, %r20;
    mad.lo.u32 %r26, %r25, 16, %r26;
    mad.lo.u32 %r27, %r24, 16, %r21;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r26];
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{%r14, %r15}}, [%r27];
    mov.f32 %f1, 0f00000000;
    mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32
        {{%f2, %f3, %f4, %f5}}, {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}}, {{%f1, %f1, %f1, %f1}};
    shr.u32 %r1, %r0, 2;
    and.b32 %r2, %r0, 3;
    ld.param.u64 %rd1, [p0];
    mad.lo.u32 %r3, %r1, 32, 0;
    mad.lo.u32 %r3, %r2, 8, %r3;
    cvt.u64.u32 %rd6, %r3;
    add.u64 %rd1, %rd1, %rd6;
    st.global.v2.f32 [%rd1], {{%f2, %f3}};
    st.global.v2.f32 [%rd1+256], {{%f4, %f5}};
"""
    return run_ptx(kernel(body, parameters=3, address=False), "test", 1, 32, [unwritten((16, 8)), a, b])[0]


def test_products() -> None:
    a, b = rng.standard_normal((16, 16)).astype(np.float16), rng.standard_normal((16, 8)).astype(np.float16)
    np.testing.assert_allclose(
        fragments("f16", a, b), a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-5
    )
    ab, bb = ((x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for x in (a, b))
    exact = [(x.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for x in (ab, bb)]
    np.testing.assert_allclose(fragments("bf16", ab, bb), exact[0] @ exact[1], rtol=1e-5, atol=1e-5)
