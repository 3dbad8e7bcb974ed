"""Operations on f16 by instructions on halves. Oracle: NumPy, which computes in f32 and rounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import mlir.ir as ir
import numpy as np
import numpy.typing as npt
import pytest

import stablexla as sx
from stablexla.targets.cpu.pipeline import cpu_pipeline
from tests.targets.cpu.assembly import compiled_for

Array = npt.NDArray[Any]
# All bit patterns of special and small numbers, and some of any.
SPECIAL = np.array([0, 1, 2, 0x3FF, 0x400, 0x401, 0x3BFF, 0x3C00, 0x3C01, 0x7BFF, 0x7C00, 0x7E00], np.uint16)
CODES = np.concatenate([SPECIAL, SPECIAL | 0x8000, np.random.default_rng(0).integers(0, 1 << 16, 230, np.uint16)])
NAN = 0x7E00
# Operation, its oracle, and the instruction.
OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "add": (lambda x, y: x + y, lambda x, y: x + y, "fadd"),
    "subtract": (lambda x, y: x - y, lambda x, y: x - y, "fsub"),
    "multiply": (lambda x, y: x * y, lambda x, y: x * y, "fmul"),
    "divide": (lambda x, y: x / y, lambda x, y: x / y, "fdiv"),
    "maximum": (sx.max, np.maximum, "fmax"),
    "minimum": (sx.min, np.minimum, "fmin"),
    "square root": (lambda x, _: sx.sqrt(x), lambda x, _: np.sqrt(x), "fsqrt"),
    "magnitude": (lambda x, _: sx.abs(x), lambda x, _: np.abs(x), "fabs"),
    "negative": (lambda x, _: sx.neg(x), lambda x, _: -x, "fneg"),
    "floor": (lambda x, _: sx.floor(x), lambda x, _: np.floor(x), "frintm"),
    "ceiling": (lambda x, _: sx.ceil(x), lambda x, _: np.ceil(x), "frintp"),
    "nearest even": (lambda x, _: sx.round_nearest_even(x), lambda x, _: np.rint(x), "frintn"),
    "comparison": (lambda x, y: sx.select(sx.lt(x, y), x, y), lambda x, y: np.where(x < y, x, y), "fcmgt"),
    "constant": (lambda x, _: (x + 1) * np.float16(0.1), lambda x, _: (x + np.float16(1)) * np.float16(0.1), "fmul"),
    "chain": (lambda x, y: (x + y) * (x - y), lambda x, y: (x + y) * (x - y), "fmul"),
}


def compiled(make: Callable[..., Any], size: int, features: str = "asimd+asimdhp", **more: Any) -> sx.Executable:
    """Compile a program on two f16 arrays for vectors of 128 bits and a processor's features."""
    b = sx.XlaBuilder("halves")
    x, y = (b.parameter(i, sx.Shape("f16", (size,))) for i in range(2))
    options = sx.CompileOptions(vector_bits=128, num_threads=1, **more)
    pipeline = cpu_pipeline(options)
    (step,) = (step for step in pipeline.steps if step.name == "buffers")
    passes = step.passes.replace("vector-bits=128", f"vector-bits=128 features={features}")
    options = sx.CompileOptions(pipeline=pipeline.with_step("buffers", passes), **more)
    return sx.compile(b.build(make(x, y)), options=options)


def bits(values: Any) -> Array:
    """Return the bit patterns, one for all NaNs."""
    codes = np.asarray(values, np.float16).view(np.uint16)
    return np.where((codes & 0x7FFF) > 0x7C00, NAN, codes)


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_are_those_of_f32(name: str) -> None:
    """Of all pairs of special numbers and some of any: zeros' signs, denormals, infinities."""
    make, oracle, _ = OPERATIONS[name]
    x, y = (side.ravel().view(np.float16) for side in np.meshgrid(CODES, CODES))
    with np.errstate(all="ignore"):
        expected = oracle(x, y)
    if name in ("maximum", "minimum"):  # NumPy's zeros are equal
        zeros = (x == 0) & (y == 0)
        is_max = name == "maximum"
        negative = (np.signbit(x) & np.signbit(y)) if is_max else (np.signbit(x) | np.signbit(y))
        expected = np.where(zeros, np.where(negative, np.float16(-0.0), np.float16(0)), expected)
    np.testing.assert_array_equal(bits(compiled(make, x.size)(x, y)), bits(expected))


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 65])
def test_sizes_next_to_whole_vectors(size: int) -> None:
    x, y = (np.random.default_rng([i, size]).standard_normal(size).astype(np.float16) for i in range(2))
    make, oracle, _ = OPERATIONS["chain"]
    np.testing.assert_array_equal(compiled(make, size)(x, y), oracle(x, y))


def vectors(make: Callable[..., Any], **given: Any) -> set[str]:
    """Return the vectors that a program's kernels load."""
    return set(re.findall(r"vector.load .*, (vector<\w+>)", compiled(make, 4096, **given).ir("buffers")))


def test_lanes() -> None:
    """A register of halves where all of a kernel is on halves; of f32 where it is not, or the processor has none."""
    chain = OPERATIONS["chain"][0]
    assert vectors(OPERATIONS["add"][0]) == vectors(OPERATIONS["comparison"][0]) == {"vector<8xf16>"}
    assert vectors(OPERATIONS["constant"][0]) == {"vector<8xf16>"}
    assert vectors(OPERATIONS["add"][0], features="asimd") == {"vector<4xf16>"}
    assert vectors(chain) == {"vector<16xf16>"}  # two registers, as of all chains
    assert vectors(chain, features="asimd") == vectors(chain, excess_precision=True) == {"vector<8xf16>"}
    assert vectors(lambda x, y: sx.exp(x) + y) == {"vector<8xf16>"}
    assert vectors(lambda x, y: sx.convert_element_type(x, "f32") * 3) == {"vector<4xf16>"}


def test_with_excess_precision_chains_stay_in_f32() -> None:
    x, y = (np.random.default_rng(i).standard_normal(1000).astype(np.float16) for i in range(2))
    make, oracle, _ = OPERATIONS["chain"]
    once = oracle(x.astype("f4"), y.astype("f4")).astype(np.float16)
    np.testing.assert_array_equal(compiled(make, 1000, excess_precision=True)(x, y), once)
    assert not np.array_equal(once, compiled(make, 1000)(x, y))


def test_sums_are_accumulated_in_f32() -> None:
    """Of 4096 ones, and of products: a running sum in halves would end at 2048."""
    ones = np.ones(4096, np.float16)
    b = sx.dot_general
    numbers = sx.DotDimensionNumbers((0,), (0,), (), ())
    assert compiled(lambda x, y: sx.reduce(x * y, np.float16(0), sx.add, (0,)), 4096)(ones, ones) == 4096
    assert compiled(lambda x, y: b(x, y, numbers), 4096)(ones, ones) == 4096


@pytest.mark.parametrize("name", OPERATIONS)
def test_instructions_of_aarch64(name: str) -> None:
    """On 8 halves, with no conversion from f32 or to it; without the feature the conversions are there."""
    make, _, instruction = OPERATIONS[name]
    for features, cpu in (("asimd+asimdhp", "neoverse-n1"), ("asimd", "generic")):
        with ir.Context():
            module = ir.Module.parse(compiled(make, 4096, features).ir("llvm"))
            text = compiled_for(module, cpu, "aarch64-linux-gnu")
        assert (re.search(rf"\t{instruction}\tv\d+\.8h", text) is not None) == (cpu != "generic")
        assert ("fcvtl" in text) == (cpu == "generic")
