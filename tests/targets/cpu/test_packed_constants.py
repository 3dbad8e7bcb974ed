"""Weights that a program holds itself: packed while it is compiled, with the results of weights that are parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.targets.codegen.calls import Packing, Phase
from stablexla.targets.cpu import packed_constants
from stablexla.targets.llvm import early_code

Make = Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp]


def drawn(element: str, *shape: int, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).integers(-9, 9, shape)
    return (values if element.startswith("s") else values / 7).astype(sx.element_type(element).dtype)


def built(
    make: Make,
    element: str,
    x: np.ndarray,
    weight: np.ndarray,
    *,
    constant: bool,
    options: sx.CompileOptions | None = None,
) -> sx.Executable:
    b, type_ = sx.XlaBuilder("weighted"), sx.element_type(element)
    given = b.parameter(0, type_[x.shape])
    root = make(given, b.constant(weight) if constant else b.parameter(1, type_[weight.shape]))
    return sx.compile(b.build(root), options=options)


def both(make: Make, element: str, x: np.ndarray, weight: np.ndarray) -> sx.Executable:
    """Compiles with the weight as a constant; its results must have the very bits of those with a parameter."""
    packed = built(make, element, x, weight, constant=True)
    plain = built(make, element, x, weight, constant=False)
    for one, other in zip(packed.execute([x]), plain.execute([x, weight]), strict=True):
        np.testing.assert_array_equal(one, other)
    return packed


def text(executable: sx.Executable) -> str:
    return executable.ir("buffers", large_elements_limit=8)


def as_f32(x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
    return sx.dot(x, w, preferred_element_type="f32")


def turned(x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
    return sx.dot(x, sx.transpose(w, [1, 0]))


MAKERS: dict[str, tuple[Make, str, tuple[int, ...], tuple[int, ...]]] = {
    "f32": (sx.dot, "f32", (70, 600), (600, 301)),
    "f64": (sx.dot, "f64", (70, 600), (600, 301)),
    "s32": (sx.dot, "s32", (70, 600), (600, 301)),
    "bf16": (as_f32, "bf16", (70, 600), (600, 301)),
    "weight along k": (turned, "f32", (70, 600), (301, 600)),
    "many rows": (sx.dot, "f32", (700, 600), (600, 64)),
    "convolution": (lambda x, w: sx.conv(x, w, (1, 1), "SAME"), "f32", (1, 32, 14, 14), (48, 32, 3, 3)),
    # weights that no two items share: with one as a parameter, each packs its own
    "large convolution": (lambda x, w: sx.conv(x, w, (1, 1), "SAME"), "f32", (1, 256, 7, 7), (256, 256, 3, 3)),
    "large convolution of bf16": (lambda x, w: sx.conv(x, w, (1, 1), "SAME"), "bf16", (1, 512, 7, 7), (512, 512, 3, 3)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_no_call_packs(name: str) -> None:
    make, element, shape, weight = MAKERS[name]
    made = text(both(make, element, drawn(element, *shape), drawn(element, *weight, seed=1)))
    assert "_impl_pack" not in made
    assert made.count('stablexla.role = "constant"') == 1  # as it was given, the weight is not needed any more


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "packs"),
    [
        (47, 64, 40, False),
        (48, 64, 40, True),
        (48, 64, 16, False),
        (48, 64, 17, True),
        (48, 24, 40, False),
        (48, 25, 40, True),
    ],
)
def test_a_small_weight_of_many_rows(rows: int, depth: int, columns: int, packs: bool) -> None:
    """With a parameter no packing would pay; vectors have eight lanes."""
    x, weight = drawn("f32", rows, depth), drawn("f32", depth, columns, seed=1)
    options = sx.CompileOptions(vector_bits=256)
    packed = built(sx.dot, "f32", x, weight, constant=True, options=options)
    plain = built(sx.dot, "f32", x, weight, constant=False, options=options)
    np.testing.assert_array_equal(packed.execute([x])[0], plain.execute([x, weight])[0])
    (call,) = re.findall(r"call @contraction_0_impl\((.*?)\)", text(packed))
    assert call.count("%view") == (2 if packs else 1)


@pytest.mark.parametrize("outputs", [20, 24, 33])
def test_a_pointwise_convolution_is_a_product(outputs: int) -> None:
    """With a parameter one of no more features than before shares the code of other convolutions."""
    x, weight = drawn("f32", 2, 7, 9, 24), drawn("f32", 1, 1, 24, outputs, seed=1)

    def make(x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        return sx.conv_with_general_dimensions(x, w, (1, 1), "SAME", sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC"))

    packed = built(make, "f32", x, weight, constant=True)
    plain = built(make, "f32", x, weight, constant=False)
    np.testing.assert_array_equal(packed.execute([x])[0], plain.execute([x, weight])[0])
    assert [kernel.kind for kernel in packed.kernels] == ["contraction"]
    assert [kernel.kind for kernel in plain.kernels] == ["contraction" if outputs > 24 else "convolution"]


def test_an_integer_product_with_sums_of_columns() -> None:
    """Where a packing phase makes more than packed elements, it stays what it was."""

    def as_s32(x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        return sx.dot(x, w, preferred_element_type="s32")

    both(as_s32, "s8", drawn("s8", 150, 600), drawn("s8", 600, 301, seed=1))


def test_several_calls_share_what_is_packed() -> None:
    made = text(both(lambda x, w: sx.dot(sx.dot(x, w), w), "f32", drawn("f32", 70, 600), drawn("f32", 600, 600)))
    assert made.count('stablexla.role = "constant"') == 1


def test_a_weight_that_is_read_otherwise_too_stays() -> None:
    def make(x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        return sx.dot(x, w) + sx.exp(w[:70])

    made = text(both(make, "f32", drawn("f32", 70, 600), drawn("f32", 600, 600)))
    assert made.count('stablexla.role = "constant"') == 2


def test_a_kernel_called_with_parameters_too_packs_those() -> None:
    def make(x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        return sx.dot(sx.dot(x, x), w)

    made = text(both(make, "f32", drawn("f32", 600, 600), drawn("f32", 600, 600, seed=1)))
    assert "_impl_pack" in made


@pytest.mark.parametrize(
    "make",
    [
        lambda x, w: sx.dot(x, w) + w,
        lambda x, w: sx.dot(w, w) + x,
        lambda x, w: sx.dot(w, sx.transpose(w, [1, 0])) + x,
        lambda x, w: sx.dot(sx.dot(x, w) + w, w),
    ],
)
@pytest.mark.parametrize("element", ["f32", "s16"])
def test_a_weight_that_its_kernel_reads_otherwise_too(make: Make, element: str) -> None:
    """As the other factor, or in the epilogue."""
    both(make, element, drawn(element, 600, 600), drawn(element, 600, 600, seed=1))


def test_the_result_lies_over_an_array_beside_the_weight() -> None:
    both(lambda x, w: sx.dot(x, w) + sx.dot(x * x, w), "f32", drawn("f32", 600, 200), drawn("f32", 200, 600, seed=1))


def test_the_result_lies_over_a_donated_argument() -> None:
    x, weight, bias = (drawn("f32", *shape) for shape in ((600, 200), (200, 600), (600, 600)))
    rows = weight.tobytes().hex()
    executable = sx.compile(f"""
func.func @main(%x: tensor<600x200xf32>, %y: tensor<600x600xf32> {{tf.aliasing_output = 0 : i32}})
    -> tensor<600x600xf32> {{
  %w = stablehlo.constant dense<"0x{rows}"> : tensor<200x600xf32>
  %made = stablehlo.dot %x, %w : (tensor<600x200xf32>, tensor<200x600xf32>) -> tensor<600x600xf32>
  %sum = stablehlo.add %made, %y : tensor<600x600xf32>
  return %sum : tensor<600x600xf32>
}}
""")
    assert executable.aliases == {0: 1}
    (made,) = executable.execute([x, bias.copy()], donate=True)
    np.testing.assert_allclose(made, x @ weight + bias, rtol=1e-4, atol=1e-4)


LOOP = """
func.func @main(%x: tensor<70x600xf32>) -> tensor<70x600xf32> {{
  %w = stablehlo.constant dense<"0x{bytes}"> : tensor<600x600xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %last:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<70x600xf32>
    cond {{
      %more = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }} do {{
      %next = stablehlo.add %i, %one : tensor<i32>
      %made = stablehlo.dot %y, %w : (tensor<70x600xf32>, tensor<600x600xf32>) -> tensor<70x600xf32>
      stablehlo.return %next, %made : tensor<i32>, tensor<70x600xf32>
    }}
  return %last#1 : tensor<70x600xf32>
}}
"""


def test_a_weight_inside_a_loop() -> None:
    x, weight = drawn("f32", 70, 600), drawn("f32", 600, 600, seed=1) / 100
    executable = sx.compile(LOOP.format(bytes=weight.tobytes().hex()))
    np.testing.assert_allclose(executable(x), x @ weight @ weight @ weight, rtol=1e-4, atol=1e-4)
    assert "_impl_pack" not in text(executable)


def test_a_saved_program_keeps_it(tmp_path: Path) -> None:
    x, weight = drawn("f32", 70, 600), drawn("f32", 600, 301, seed=1)
    executable = built(sx.dot, "f32", x, weight, constant=True)
    executable.save(tmp_path / "program")
    again = sx.load_executable(tmp_path / "program")
    np.testing.assert_array_equal(again(x), executable(x))
    assert again.constant_bytes == executable.constant_bytes >= weight.nbytes


def test_explain_and_compare_know_it() -> None:
    x, weight = drawn("f32", 70, 600), drawn("f32", 600, 301, seed=1)
    executable = built(sx.dot, "f32", x, weight, constant=True)
    assert executable.explain().constant_bytes == executable.constant_bytes
    assert executable.compare([x], "plain")


def test_a_library_for_c_holds_it() -> None:
    x, weight = drawn("f32", 70, 600), drawn("f32", 600, 301, seed=1)
    assert "_impl_pack" not in built(sx.dot, "f32", x, weight, constant=True).ir("llvm", large_elements_limit=8)


# Programs of enough kernels that their code is made while others are emitted.
LARGE: dict[str, tuple[Make, str, tuple[int, ...], tuple[int, ...]]] = {
    "products": (sx.dot, "f32", (70, 600), (600, 600)),
    "products of bf16": (sx.dot, "bf16", (70, 600), (600, 600)),
    "convolutions": (lambda x, w: sx.conv(x, w, (1, 1), "SAME"), "f32", (2, 64, 14, 14), (64, 64, 3, 3)),
}


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one, code is made when all of it is emitted."""
    threads = max(2, early_code.host_target().num_threads)
    monkeypatch.setattr(early_code, "host_target", lambda: type("Two", (), {"num_threads": threads}))


def large_program(name: str, small: np.ndarray | None = None) -> tuple[list[sx.XlaComputation], list[np.ndarray]]:
    """A program with its weights as constants and with parameters, and the arguments of that one."""
    make, element, shape, weights = LARGE[name]
    given, made = [drawn(element, *shape)], []
    given += [drawn(element, *weights, seed=number) for number in range(1, 5)]
    given += [] if small is None else [small]
    for constant in (True, False):
        b = sx.XlaBuilder("large")
        ops = [b.parameter(0, sx.Shape(element, shape))]
        for number, array in enumerate(given[1:], 1):
            ops.append(b.constant(array) if constant else b.parameter(number, sx.Shape(element, array.shape)))
        y = ops[0]
        for activation, weight in zip((sx.tanh, sx.logistic, sx.sin, sx.cos, sx.abs), ops[1:], strict=False):
            y = activation(make(y, weight))
        made.append(b.build(y))
    return made, given


@pytest.mark.parametrize("name", LARGE)
def test_weights_packed_when_the_program_is_loaded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_threads: None
) -> None:
    """By the phases that it has already: none is compiled for that. A saved program has them packed."""
    (constant, plain), given = large_program(name)
    (expected,) = sx.compile(plain).execute(given)
    now: list[int] = []
    monkeypatch.setattr(packed_constants, "_packed_now", lambda module, symbols, works: now.extend(works) or [])
    executable = sx.compile(constant)
    assert not now
    np.testing.assert_array_equal(executable(given[0]), expected)
    assert {array.ctypes.data % packed_constants.ALIGNMENT for array in executable._function.constants} == {0}
    executable.save(tmp_path / "program")
    np.testing.assert_array_equal(sx.load_executable(tmp_path / "program")(given[0]), expected)


def test_a_small_weight_beside_large_ones(monkeypatch: pytest.MonkeyPatch, two_threads: None) -> None:
    """Its elements are in the module, which is read before: it is packed at once, the others are not."""
    (constant, plain), given = large_program("convolutions", drawn("f32", 40, 64, 1, 1, seed=9))
    (expected,) = sx.compile(plain).execute(given)
    now, pack = list[object](), packed_constants._packed_now

    def noted(module: ir.Module, symbols: ir.SymbolTable, works: list[packed_constants._Work]) -> list[ir.Attribute]:
        now.extend(works)
        return pack(module, symbols, works)

    monkeypatch.setattr(packed_constants, "_packed_now", noted)
    np.testing.assert_array_equal(sx.compile(constant)(given[0]), expected)
    assert len(now) == 1


def test_bytes_that_a_phase_leaves_unwritten_are_zeros() -> None:
    """They get into saved programs: what was in memory must not."""
    text = "func.func private @pack(%x: memref<4xf32>, %to: memref<999xf32>, %lo: index, %hi: index) { return }"
    with upstream_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(text)
        value = ir.DenseElementsAttr.get(np.ones(4, np.float32))
        work = packed_constants._Work(
            Phase("pack", 1, 1), Packing("pack", 0, 0), value, 1, ir.MemRefType.get([999], ir.F32Type.get())
        )
        for _ in range(3):
            b = sx.XlaBuilder("full")
            sx.compile(b.build(sx.broadcast(b.parameter(0, sx.f32[()]), (999,))))(np.float32(np.nan))
            (made,) = packed_constants._run(module, ir.SymbolTable(module.operation), [work])
            assert not np.asarray(ir.DenseElementsAttr(made)).any()
