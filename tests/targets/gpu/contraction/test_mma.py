"""Products on tensor cores: every tiling, layout and type, simulated, against numpy in f64."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.gpu.contraction import mma as tensor_cores
from stablexla.targets.gpu.contraction import mma_plan
from stablexla.targets.gpu.contraction.mma_formats import FORMATS
from stablexla.targets.gpu.contraction.mma_plan import GROUPS, THREADS, WARPS, BlockTiling
from tests.targets.gpu.programs import program
from tests.targets.gpu.ptxas import find_ptxas, knows
from tests.targets.gpu.simulation import run_simulated

Array = np.ndarray[Any, Any]
TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "s8": np.int8,
    "u8": np.uint8,
}
SUMS = {"bf16": "f32", "f16": "f32", "f32": "f32", "f64": "f64", "s8": "s32", "u8": "u32"}
LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]
SMALL = WARPS[-1]


def numbers(kind: str, *shape: int, seed: int) -> Array:
    """Random ones, exact in the type."""
    generator = np.random.default_rng(seed)
    if kind in ("s8", "u8"):
        return generator.integers(np.iinfo(TYPES[kind]).min, np.iinfo(TYPES[kind]).max, shape).astype(TYPES[kind])
    return generator.standard_normal(shape).astype(TYPES[kind])


def factors(kind: str, shape: tuple[int, int, int], turned: tuple[bool, bool]) -> tuple[Array, Array]:
    """Both factors of a product of m x n with k terms; `turned`: the left one lies along m, the right one along k."""
    m, n, k = shape
    left = numbers(kind, *((k, m) if turned[0] else (m, k)), seed=1)
    return left, numbers(kind, *((n, k) if turned[1] else (k, n)), seed=2)


def product(kind: str, turned: tuple[bool, bool], x: Array, y: Array) -> sx.XlaComputation:
    dimensions = sx.DotDimensionNumbers((0 if turned[0] else 1,), (1 if turned[1] else 0,))
    return program(lambda b, v, w: sx.dot_general(v, w, dimensions, preferred_element_type=SUMS[kind]), x, y)


def is_right(actual: Array, x: Array, y: Array, turned: tuple[bool, bool]) -> None:
    """Within what sums of products in the result's type allow."""
    left, right = (v.astype(np.float64) for v in (x, y))
    left, right = left.T if turned[0] else left, right.T if turned[1] else right
    terms = left.shape[1]
    bound = np.abs(left) @ np.abs(right) * terms * (2.0**-53 if actual.dtype == np.float64 else 2.0**-24)
    if actual.dtype.kind in "iu":
        bound = bound * 0
    assert (np.abs(actual - left @ right) <= bound).all()


def run(computation: Any, chip: str, *arrays: Array, instruction: str = "") -> Array:
    """The result of a program of emitted kernels that use the instruction."""
    executable, (result,) = run_simulated(computation, *arrays, chip=chip)
    assert {k.path for k in executable.kernels} == {"emitted"}
    if instruction:
        assert instruction in executable.ir("ptx")
    return result


def force(monkeypatch: pytest.MonkeyPatch, tiling: BlockTiling) -> None:
    """Has every product on tensor cores use one tiling."""
    monkeypatch.setattr(
        tensor_cores, "plan_gemm", lambda c, f, chip: mma_plan.plan_gemm(c, f, chip, tiling), raising=True
    )


@pytest.mark.parametrize(("kind", "turned"), [*(("bf16", turned) for turned in LAYOUTS), ("f64", (True, False))])
def test_layouts(kind: str, turned: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, SMALL)
    x, y = factors(kind, (72, 40, 80 if kind == "bf16" else 18), turned)
    is_right(run(product(kind, turned, x, y), "sm_80", x, y), x, y, turned)


@pytest.mark.parametrize(("kind", "chip"), [("u8", "sm_80"), ("f64", "sm_90")])
def test_types(kind: str, chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, SMALL)
    x, y = factors(kind, (20, 66, 144 if kind != "f64" else 20), (False, True))
    is_right(run(product(kind, (False, True), x, y), chip, x, y), x, y, (False, True))


@pytest.mark.parametrize(("tiling", "turned"), [(WARPS[0], (False, False)), (WARPS[3], (True, True))], ids=str)
def test_tilings(tiling: BlockTiling, turned: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, tiling)
    x, y = factors("bf16", (tiling.rows - 8, tiling.columns, 64), turned)
    is_right(run(product("bf16", turned, x, y), "sm_80", x, y), x, y, turned)


@pytest.mark.parametrize(("tiling", "turned"), list(zip(THREADS, LAYOUTS[:3], strict=True)), ids=str)
def test_without_tensor_cores(tiling: BlockTiling, turned: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, tiling)
    x, y = factors("f32", (tiling.rows - 4, tiling.columns + 4, 36), turned)
    computation = product("f32", turned, x, y)
    is_right(run(computation, "sm_80", x, y), x, y, turned)
    assert "mma.sync" not in sx.compile(computation, target="gpu").ir("ptx")


@pytest.mark.parametrize(
    ("kind", "shape", "turned", "tiling", "instruction"),
    [
        ("bf16", (40, 72, 72), (False, False), SMALL, "m16n8k16"),
        ("bf16", (128, 128, 200), (True, True), WARPS[1], "m16n8k16"),
        ("bf16", (128, 64, 72), (True, False), WARPS[2], "m16n8k16"),
        ("bf16", (128, 256, 264), (False, False), GROUPS[0], "m64n256k16"),
        ("bf16", (128, 128, 72), (True, True), GROUPS[1], "m64n128k16"),
        ("bf16", (128, 128, 328), (True, False), GROUPS[1], "m64n128k16"),
        ("f16", (128, 128, 520), (False, True), GROUPS[1], "m64n128k16"),
        ("s8", (72, 72, 272), (False, True), GROUPS[1], "m64n128k32"),
        ("f64", (64, 48, 42), (True, True), None, "m16n8k4"),
        ("f32", (40, 68, 36), (False, True), None, "fma.rn.f32"),
        ("f16", (40, 30, 1040), (False, True), None, "m16n8k16"),
        ("bf16", (33, 35, 71), (False, False), None, "m16n8k16"),
        ("bf16", (3, 520, 300), (False, False), None, "fma.rn.f32"),
        ("bf16", (130, 2, 300), (False, False), None, "fma.rn.f32"),
    ],
)
def test_on_a_chip_with_warpgroups(
    kind: str,
    shape: tuple[int, int, int],
    turned: tuple[bool, bool],
    tiling: BlockTiling | None,
    instruction: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tilings for warpgroups, and others, which run there, too."""
    if tiling is not None:
        force(monkeypatch, tiling)
    x, y = factors(kind, shape, turned)
    is_right(run(product(kind, turned, x, y), "sm_90a", x, y, instruction=instruction), x, y, turned)


def test_stages_come_round(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = factors("bf16", (32, 32, 64 * 6), (False, True))
    force(monkeypatch, SMALL)
    is_right(run(product("bf16", (False, True), x, y), "sm_80", x, y), x, y, (False, True))


def test_parts_of_k() -> None:
    x, y = factors("f16", (32, 24, 64 * 16 + 8), (False, True))
    is_right(run(product("f16", (False, True), x, y), "sm_80", x, y, instruction="_parts"), x, y, (False, True))


def test_a_batch_with_an_epilogue() -> None:
    x, y, bias = (numbers("bf16", *shape, seed=n) for n, shape in enumerate([(2, 40, 64), (2, 64, 48), (48,)]))

    def layer(b: sx.XlaBuilder, v: sx.XlaOp, w: sx.XlaOp, c: sx.XlaOp) -> sx.XlaOp:
        made = sx.dot_general(v, w, sx.DotDimensionNumbers((2,), (1,), (0,), (0,)), preferred_element_type="f32")
        wide = sx.broadcast_in_dim(sx.convert_element_type(c, "f32"), (2, 40, 48), (2,))
        return sx.convert_element_type(sx.max(made + wide, made * 0.0), "bf16")

    found = run(program(layer, x, y, bias), "sm_80", x, y, bias)
    wanted = np.maximum(x.astype(np.float64) @ y.astype(np.float64) + bias.astype(np.float64), 0)
    assert (np.abs(found.astype(np.float64) - wanted) <= np.abs(wanted) * 2.0**-8 + 1e-5).all()


def in_tf32(m: int, n: int, k: int, products: int, turned: tuple[bool, bool]) -> str:
    left, right = f"{k}x{m}" if turned[0] else f"{m}x{k}", f"{n}x{k}" if turned[1] else f"{k}x{n}"
    return f"""func.func @main(%a: tensor<{left}xf32>, %b: tensor<{right}xf32>) -> tensor<{m}x{n}xf32> {{
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [{int(not turned[0])}] x [{int(turned[1])}],
        algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32,
        lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = {products},
        allow_imprecise_accumulation = false>
        : (tensor<{left}xf32>, tensor<{right}xf32>) -> tensor<{m}x{n}xf32>
      return %0 : tensor<{m}x{n}xf32>
    }}"""


@pytest.mark.parametrize("turned", [(True, False), (False, True)])
def test_tf32_on_request(turned: tuple[bool, bool]) -> None:
    x, y = factors("f32", (36, 68, 40), turned)
    text = in_tf32(36, 68, 40, 1 if turned[0] else 3, turned)
    found = run(text, "sm_80", x, y, instruction="mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
    left, right = (v.astype(np.float64) for v in (x.T if turned[0] else x, y.T if turned[1] else y))
    error = np.abs(found - left @ right) / (np.abs(left) @ np.abs(right))
    assert error.max() < (2.0**-11 if turned[0] else 2.0**-20)


@pytest.mark.parametrize(
    ("kind", "shape", "turned"),
    [
        ("bf16", (1, 300, 512), (False, True)),
        ("f32", (70, 5, 530), (False, False)),
        ("f64", (9, 40, 300), (True, False)),
        ("s8", (2, 50, 700), (False, True)),
        ("f16", (8, 264, 40), (False, False)),
        ("f16", (3, 264, 40), (False, False)),
        ("f32", (15, 17, 3), (True, True)),
        ("bf16", (256, 1, 64), (False, False)),
    ],
)
def test_few_rows_or_columns(kind: str, shape: tuple[int, int, int], turned: tuple[bool, bool]) -> None:
    x, y = factors(kind, shape, turned)
    is_right(run(product(kind, turned, x, y), "sm_80", x, y), x, y, turned)


def test_the_larger_factor_is_read_16_bytes_at_a_time() -> None:
    for turned in ((False, False), (False, True)):
        arrays = [np.zeros((2, 1024), ml_dtypes.bfloat16), np.zeros((1024, 1024), ml_dtypes.bfloat16)]
        ptx = sx.compile(product("bf16", turned, *arrays), target="gpu").ir("ptx")
        assert "ld.global.nc.v4.b32" in ptx


@pytest.mark.parametrize(
    ("kind", "chip", "turned", "instruction"),
    [
        ("bf16", "sm_80", (True, True), "mma.sync.aligned.m16n8k16.row.col.f32.bf16"),
        ("bf16", "sm_90a", (False, False), "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16"),
        ("f64", "sm_90", (False, False), "mma.sync.aligned.m16n8k4.row.col.f64"),
        ("f32", "sm_100", (False, True), "fma.rn.f32"),
    ],
)
def test_nothing_is_spilled(kind: str, chip: str, turned: tuple[bool, bool], instruction: str, tmp_path: Path) -> None:
    b = sx.XlaBuilder("product")
    x, y = (b.parameter(i, sx.Shape(kind, (4096, 4096))) for i in range(2))
    dimensions = sx.DotDimensionNumbers((0 if turned[0] else 1,), (1 if turned[1] else 0,))
    computation = b.build(sx.dot_general(x, y, dimensions, preferred_element_type=SUMS[kind]))
    ptx = sx.compile(computation, target=sx.gpu.target(chip=chip)).ir("ptx")
    assert instruction in ptx
    assert "cp.async.cg.shared.global" in ptx
    ptxas = find_ptxas()
    if ptxas is None or not knows(chip):
        pytest.skip(f"no ptxas that knows {chip}: pip install stablexla[gpu]")
    (tmp_path / "product.ptx").write_text(ptx)
    command = [ptxas, "-v", f"-arch={chip}", str(tmp_path / "product.ptx"), "-o", str(tmp_path / "product.cubin")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    spilled = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores", said)
    assert spilled == [("0", "0")]
    assert "wgmma" not in said


@pytest.mark.parametrize(
    ("kind", "turned"),
    [("bf16", (True, True)), ("s8", (True, False)), ("f32", (False, True))],
)
def test_rows_that_begin_at_no_whole_16_bytes(kind: str, turned: tuple[bool, bool]) -> None:
    x, y = factors(kind, (33, 50, 71), turned)
    is_right(run(product(kind, turned, x, y), "sm_80", x, y), x, y, turned)


@pytest.mark.parametrize(("kind", "rows", "terms"), [("bf16", 20, 73), ("f32", 3, 36)])
def test_sums_over_several_dimensions(kind: str, rows: int, terms: int) -> None:
    x, y = numbers(kind, 2, 3, rows, terms, seed=1), numbers(kind, 2, 3, terms, 32, seed=2)
    dimensions = sx.DotDimensionNumbers((1, 3), (1, 2), (0,), (0,))
    computation = program(lambda b, v, w: sx.dot_general(v, w, dimensions, preferred_element_type="f32"), x, y)
    found = run(computation, "sm_80", x, y, instruction="mma.sync" if kind == "bf16" else "")
    wanted = np.einsum("bhqd,bhdo->bqo", x.astype(np.float64), y.astype(np.float64))
    assert np.abs(found - wanted).max() < 1e-4


def test_old_chips_have_other_kernels() -> None:
    arrays = [np.zeros((64, 64), ml_dtypes.bfloat16)] * 2
    ptx = sx.compile(product("bf16", (False, True), *arrays), target=sx.gpu.target(chip="sm_75")).ir("ptx")
    assert "mma.sync" not in ptx


def test_an_epilogue_that_reads_across() -> None:
    x, y = factors("bf16", (48, 64, 64), (False, True))
    z = numbers("f32", 64, 48, seed=3)
    dimensions = sx.DotDimensionNumbers((1,), (1,))

    def make(b: sx.XlaBuilder, v: sx.XlaOp, w: sx.XlaOp, u: sx.XlaOp) -> sx.XlaOp:
        return sx.dot_general(v, w, dimensions, preferred_element_type="f32") + sx.transpose(u, (1, 0))

    found = run(program(make, x, y, z), "sm_80", x, y, z)
    wanted = x.astype(np.float64) @ y.astype(np.float64).T + z.T
    assert np.abs(found - wanted).max() < 1e-4


@pytest.mark.parametrize("chip", ["sm_80", "sm_86", "sm_90a", "sm_100", "sm_120"])
def test_some_tiling_fits_each_chip(chip: str) -> None:
    for format_ in FORMATS.values():
        fitting = [t for t in (*WARPS, *THREADS) if t.shared(format_) <= mma_plan.shared_limit(chip)]
        assert SMALL in fitting
        assert THREADS[-1] in fitting
