"""The first NaN: what a checked run names, and that it names nothing else.

Oracles: findings that can be read off the program; and numpy, which walks through every value of random programs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.op_traits import TRAITS, bare
from stablexla.dialects.value_checks import kinds_of
from stablexla.inspection.checking.checker import Checker
from stablexla.inspection.program import FlatProgram
from stablexla.targets.signature.signature import main_of
from stablexla.targets.stablehlo.checks.operations import checked_operations
from tests.fuzz.generate import draw
from tests.fuzz.program import Statement
from tests.fuzz.writer import FAMILIES
from tests.inspection.comparing import line_of, normal

HERE = "tests/inspection/test_check.py"
FAMILIES_WITHOUT_EFFECTS = tuple(name for name in FAMILIES if name not in ("random",))
INF = np.float32(np.inf)
BIG = np.float32(3e38)


def program(build: Any, *shapes: sx.Shape) -> sx.XlaComputation:
    b = sx.XlaBuilder("checked")
    return b.build(build(b, *(b.parameter(i, shape) for i, shape in enumerate(shapes))))


def found(build: Any, arguments: Sequence[Any], kinds: Any = "nan", **options: Any) -> Any:
    shapes = [sx.Shape(sx.element_type(a.dtype).name, a.shape) for a in arguments]
    executable = sx.compile(program(build, *shapes), options=sx.CompileOptions(**options))
    return executable.check(arguments, kinds)


def entropy(b: sx.XlaBuilder, p: sx.XlaOp) -> sx.XlaOp:
    logs = sx.log(p)
    return sx.reduce(p * logs, b.constant(np.float32(0)), sx.add, (0, 1))  # the NaN


def full(like: sx.XlaOp, value: float) -> sx.XlaOp:
    return sx.broadcast(like.builder.constant(np.float32(value)), like.shape.dimensions)


class TestWhatIsFound:
    def test_line_index_operands_and_program(self, tmp_path: Path) -> None:
        p = np.full((3, 4), 0.25, np.float32)
        p[1, 2] = 0
        p[2, 0] = 0
        finding = found(entropy, [p])
        assert (finding.kind, finding.operation) == ("nan", "stablehlo.multiply")
        assert finding.place.brief.startswith(f"{HERE}:{line_of(entropy, 'the NaN')}:")
        assert (finding.index, finding.value, finding.count, finding.size) == ((1, 2), "nan", 2, 12)
        assert [operand.value for operand in finding.operands] == ["0.0", "-inf"]
        assert finding.iterations == ()
        assert repr(finding) == f"CheckFinding('nan': {finding.summary})"
        assert "multiply made a NaN from operands that are none" in str(finding)
        assert "multiply made a NaN" in finding._repr_html_()
        path = finding.save(tmp_path)
        small = sx.compile(path)
        with np.load(tmp_path / "inputs.npz") as inputs:
            again = small.check([inputs[name] for name in inputs.files])
        assert (again.index, again.number) == ((1, 2), 1)

    def test_nothing(self) -> None:
        assert found(entropy, [np.full((3, 4), 0.25, np.float32)], "all") is None

    def test_an_infinity_is_another_kind(self) -> None:
        p = np.array([[0.5, 0.0]], np.float32)
        assert found(entropy, [p], "inf").operation == "stablehlo.log"
        assert found(entropy, [p], ("nan", "inf")).operation == "stablehlo.log"
        assert found(entropy, [p], "overflow") is None

    @pytest.mark.parametrize("kinds", ["inf", "overflow", "all"])
    def test_overflow(self, kinds: str) -> None:
        finding = found(lambda b, x: sx.tanh(x * x), [np.array([1, BIG], np.float32)], kinds)
        assert (finding.operation, finding.index, finding.value) == ("stablehlo.multiply", (1,), "inf")
        assert finding.kind == ("overflow" if kinds == "overflow" else "inf")

    def test_quotient_by_zero_is_no_overflow(self) -> None:
        arguments = [np.array([1, 2], np.float32), np.array([1, 0], np.float32)]
        assert found(lambda b, x, y: x / y, arguments, "overflow") is None
        assert found(lambda b, x, y: x / y, arguments, "inf").index == (1,)

    def test_sums(self) -> None:
        x = np.full((2, 3), BIG, np.float32)
        x[0] = 1
        finding = found(lambda b, v: sx.reduce(v, b.constant(np.float32(0)), sx.add, (1,)), [x], "overflow")
        assert (finding.operation, finding.index) == ("stablehlo.reduce", (1,))
        assert finding.operands[0].summary == "from 1.0 to 3e+38"

    def test_a_product_of_finite_numbers_overflows(self) -> None:
        x = np.eye(3, dtype=np.float32) * BIG
        finding = found(lambda b, v: sx.dot(v, v), [x], "inf")
        assert (finding.operation, finding.index) == ("stablehlo.dot_general", (0, 0))

    def test_one_that_is_selected_away(self) -> None:
        """It is found all the same: no result of the program tells of it."""

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.select(x > 0.0, sx.log(x), x)

        assert found(build, [np.array([1, -1], np.float32)]).operation == "stablehlo.log"

    def test_masks_are_no_findings(self) -> None:
        def softmax(b: sx.XlaBuilder, x: sx.XlaOp, mask: sx.XlaOp) -> sx.XlaOp:
            masked = sx.select(mask, x, sx.broadcast(b.constant(-INF), (4, 8)))
            return sx.exp(masked)

        arguments = [normal(4, 8), normal(4, 8, seed=1) > 0]
        assert found(softmax, arguments, "all") is None

    def test_operands_that_are_nan_already(self) -> None:
        """The second is made by the program."""

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.log(x + 1.0)

        finding = found(build, [np.array([np.nan, 1, -3], np.float32)])
        assert (finding.operation, finding.index) == ("stablehlo.log", (2,))
        assert found(build, [np.array([np.nan, 1], np.float32)]) is None

    @pytest.mark.parametrize("name", ["f16", "bf16", "f64", "c64", "f8e5m2", "f8e4m3fn"])
    def test_element_types(self, name: str) -> None:
        dtype = sx.element_type(name).dtype
        x = np.array([1, 4, 2], np.float32).astype(dtype)
        zero = np.array([1, 0, 1], np.float32).astype(dtype)
        finding = found(lambda b, v, z: sx.div(v * z, z), [x, zero])
        assert (finding.operation, finding.index) == ("stablehlo.divide", (1,))

    def test_conversions(self) -> None:
        x = np.array([1, 1e6], np.float32)
        finding = found(lambda b, v: sx.convert_element_type(v, "f16"), [x], "overflow")
        assert (finding.operation, finding.index, finding.value) == ("stablehlo.convert", (1,), "inf")
        finding = found(lambda b, v: sx.convert_element_type(v, "f8e4m3fn"), [x], "overflow")
        assert (finding.index, finding.value) == ((1,), "nan")

    def test_scalars(self) -> None:
        finding = found(lambda b, x, y: sx.sqrt(x) + y, [np.float32(-1), np.float32(2)])
        assert (finding.operation, finding.index) == ("stablehlo.sqrt", ())
        assert [operand.value for operand in finding.operands] == ["-1.0"]

    @pytest.mark.parametrize(
        ("build", "dtype", "kinds"),
        [
            (lambda x: 1.0 / x, "f32", "nan"),
            (lambda x: 3.0 - x, "f32", "nan"),
            (lambda x: x + x, "bf16", "nan"),
            (lambda x: x + 1000.0, "f64", "overflow"),
            (lambda x: sx.convert_element_type(x, "f16"), "s8", "overflow"),
        ],
    )
    def test_what_no_number_of_the_type_makes_is_not_checked(self, build: Any, dtype: str, kinds: str) -> None:
        made = program(lambda b, x: build(x), sx.Shape(dtype, (2,)))
        flat = FlatProgram.of(sx.compile(made)._stablehlo)
        assert checked_operations(main_of(flat.module), kinds_of(kinds)) == {}

    @pytest.mark.parametrize(
        ("build", "dtype", "kinds"),
        [
            (lambda x: 0.0 / x, "f32", "nan"),
            (lambda x: x - x, "f32", "nan"),
            (lambda x: x * 1e-30, "f32", "nan"),  # a constant that may be flushed to zero
            (lambda x: x + 1e38, "f32", "overflow"),
            (lambda x: sx.convert_element_type(x, "f16"), "s32", "overflow"),
            (lambda x: sx.convert_element_type(x, "bf16"), "f32", "overflow"),
        ],
    )
    def test_what_some_number_of_the_type_makes_is_checked(self, build: Any, dtype: str, kinds: str) -> None:
        made = program(lambda b, x: build(x), sx.Shape(dtype, (2,)))
        flat = FlatProgram.of(sx.compile(made)._stablehlo)
        assert len(checked_operations(main_of(flat.module), kinds_of(kinds))["error"]) == 1


OTHERS = ("clamp", "complex", "conj", "convert", "imag", "is_finite", "real", "select")
"""Operations with other types of operands or results than one float."""
FUNCTIONS = [
    name
    for name, row in TRAITS.items()
    if row.is_elementwise and row.arity < 3 and (row.carries or row.makes != "nan inf") and bare(name) not in OTHERS
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_facts_of_functions(name: str) -> None:
    """Of extreme numbers a result has what the operation carries, and nothing that it does not make."""
    row, extremes = TRAITS[name], [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3e38, -3e38, np.inf, -np.inf, np.nan]
    taken = [each.reshape(-1) for each in np.meshgrid(*[np.array(extremes, np.float32)] * row.arity)]
    array, names = f"tensor<{taken[0].size}xf32>", ["%x", "%y"][: row.arity]
    attributes = "{exponent_bits = 8 : i32, mantissa_bits = 7 : i32}" if name.endswith("precision") else ""
    executable = sx.compile(f"""func.func @main({", ".join(f"{each}: {array}" for each in names)}) -> {array} {{
      %r = "{name}"({", ".join(names)}) {attributes} : ({", ".join([array] * row.arity)}) -> {array}
      return %r : {array}
    }}""")
    (result,) = executable.execute(taken)
    is_nan, is_bad = np.isnan(taken).any(0), ~np.isfinite(taken).all(0)
    if "nan" in row.carries:
        assert np.isnan(result[is_nan]).all()
    if "inf" in row.carries:
        first = ~np.isfinite(taken[0]) if name in ("stablehlo.divide", "stablehlo.remainder") else is_bad
        assert not np.isfinite(result[first]).any()
    if "nan" not in row.makes:
        assert not np.isnan(result[~is_nan]).any()
    if "inf" not in row.makes and "pole" not in row.makes:
        assert np.isfinite(result[~is_bad]).all()


class TestLoopsAndBranches:
    def test_the_iteration(self) -> None:
        """x falls by 1 in each of 10 iterations; its root is NaN in the fifth."""

        def body(state: sx.XlaOp) -> Any:
            i, x, _ = state
            less = x - 1.0
            return sx.tuple((i + 1, less, sx.sqrt(less)))

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.while_(lambda state: state[0] < 10, body, (b.constant(np.int32(0)), x, x))

        finding = found(build, [np.array([9, 4, 9.5], np.float32)])
        assert (finding.operation, finding.index) == ("stablehlo.sqrt", (1,))
        assert [step.what for step in finding.iterations] == ["iteration 4"]
        assert finding.operands[0].value == "-1.0"

    def test_nested(self) -> None:
        def inner(state: sx.XlaOp) -> sx.XlaOp:
            i, j, x = state
            return sx.tuple((i, j + 1, sx.log(x - 1.0) + x))

        def outer(state: sx.XlaOp) -> sx.XlaOp:
            i, j, x = state
            _, _, y = sx.while_(lambda s: s[1] < s[0], inner, (i, j, x))
            return sx.tuple((i + 1, j, y - 0.75))

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            zero = b.constant(np.int32(0))
            return sx.while_(lambda s: s[0] < 5, outer, (zero, zero, x))

        x, where = np.float32(3), None
        for i in range(5):
            for j in range(i):
                if where is None and x - 1 < 0:
                    where = i, j
                with np.errstate(invalid="ignore"):
                    x = np.log(x - np.float32(1)) + x
            x = x - np.float32(0.75)
        assert where is not None
        finding = found(build, [np.float32(3)])
        assert finding.operation == "stablehlo.log"
        assert [step.what for step in finding.iterations] == [f"iteration {n}" for n in where]

    def test_a_loop_without_end_is_left(self) -> None:
        """The condition holds for NaN."""

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.while_(lambda v: sx.not_(v < -5.0), lambda v: sx.sqrt(v - 1.0), x)

        finding = found(build, [np.float32(4)])
        assert (finding.operation, [step.what for step in finding.iterations]) == ("stablehlo.sqrt", ["iteration 2"])

    def test_a_time_limit_ends_one_in_which_nothing_is_found(self) -> None:
        b = sx.XlaBuilder("for_ever")
        loop = sx.compile(b.build(sx.while_(lambda v: v < 0.0, lambda v: -(v * v), b.parameter(0, sx.f32[()]))))
        with pytest.raises(sx.ExecutionError, match=r"longer than its time limit of 0\.2 s"):
            loop.check([np.float32(-1)], time_limit=0.2)

    def test_in_the_condition(self) -> None:
        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.while_(lambda v: sx.log(v) > -0.5, lambda v: v - 1.0, x)

        finding = found(build, [np.float32(2.5)])
        assert finding is None
        finding = found(build, [np.float32(-2.5)])
        assert finding.operation == "stablehlo.log"
        assert [step.what for step in finding.iterations] == ["the condition before iteration 0"]

    def test_branches(self) -> None:
        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.conditional(x < 0.0, x, lambda v: sx.sqrt(v), x, lambda v: v)

        finding = found(build, [np.float32(-1)])
        assert (finding.operation, [step.what for step in finding.iterations]) == ("stablehlo.sqrt", ["branch 0"])
        assert found(build, [np.float32(1)]) is None


class TestWarnings:
    def test_division(self) -> None:
        arguments = [np.array([4, 5], np.int32), np.array([2, 0], np.int32)]
        finding = found(lambda b, x, y: sx.div(x, y), arguments, "division")
        assert (finding.kind, finding.index, [o.value for o in finding.operands]) == ("division", (1,), ["5", "0"])

    def test_shifts(self) -> None:
        arguments = [np.array([4, 5, 6], np.int8), np.array([7, 8, -1], np.int8)]
        finding = found(lambda b, x, y: sx.shift_left(x, y), arguments, "shifts")
        assert (finding.kind, finding.index, finding.count) == ("shifts", (1,), 2)

    @pytest.mark.parametrize(("start", "is_found"), [(0, False), (3, False), (4, True), (-1, True)])
    def test_slices(self, start: int, is_found: bool) -> None:
        arguments = [normal(5), np.int32(start)]
        finding = found(lambda b, x, i: sx.dynamic_slice(x, [i], (2,)), arguments, "indices")
        assert (finding is not None) == is_found
        finding = found(lambda b, x, i: sx.dynamic_update_slice(x, x[0:2], [i]), arguments, "indices")
        assert (finding is not None) == is_found

    @pytest.mark.parametrize(("row", "is_found"), [(0, False), (4, False), (5, True), (-1, True)])
    def test_gather_and_scatter(self, row: int, is_found: bool) -> None:
        text = """func.func @main(%x: tensor<5x3xf32>, %i: tensor<2x1xi32>, %u: tensor<2x3xf32>)
            -> (tensor<2x3xf32>, tensor<5x3xf32>) {
          %0 = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1],
            collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
            slice_sizes = array<i64: 1, 3>} : (tensor<5x3xf32>, tensor<2x1xi32>) -> tensor<2x3xf32>
          %1 = "stablehlo.scatter"(%x, %i, %u) ({
            ^bb0(%a: tensor<f32>, %b: tensor<f32>): stablehlo.return %b : tensor<f32>
          }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
            scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
            : (tensor<5x3xf32>, tensor<2x1xi32>, tensor<2x3xf32>) -> tensor<5x3xf32>
          return %0, %1 : tensor<2x3xf32>, tensor<5x3xf32>
        }"""
        finding = sx.compile(text).check([normal(5, 3), np.array([[1], [row]], np.int32), normal(2, 3)], "indices")
        assert (finding is not None) == is_found
        assert finding is None or finding.operation == "stablehlo.gather"

    def test_one_behind_branches_that_are_checked(self) -> None:
        finding = sx.compile("""func.func @main(%p: tensor<i32>, %x: tensor<1x4xi32>) -> tensor<1x4xi32> {
          %0 = "stablehlo.case"(%p) ({
            %zero = stablehlo.constant dense<0> : tensor<i32>
            %1 = stablehlo.dynamic_slice %x, %zero, %p, sizes = [1, 3]
              : (tensor<1x4xi32>, tensor<i32>, tensor<i32>) -> tensor<1x3xi32>
            stablehlo.return %x : tensor<1x4xi32>
          }, {
            stablehlo.return %x : tensor<1x4xi32>
          }) : (tensor<i32>) -> tensor<1x4xi32>
          %two = stablehlo.constant dense<2> : tensor<i64>
          %2 = stablehlo.dynamic_update_slice %0, %0, %two, %two
            : (tensor<1x4xi32>, tensor<1x4xi32>, tensor<i64>, tensor<i64>) -> tensor<1x4xi32>
          return %2 : tensor<1x4xi32>
        }""").check([np.int32(1), np.ones((1, 4), np.int32)], "indices")
        assert finding is not None
        assert (finding.operation, finding.number) == ("stablehlo.dynamic_update_slice", 2)


class TestConstants:
    """A NaN of the program's text that reaches a result, which no operation makes."""

    @staticmethod
    def valid(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        return sx.select(x > 0.0, x, sx.broadcast(b.constant(np.float32(np.nan)), (3,)))  # the selection

    def test_the_operation_that_has_it(self) -> None:
        finding = found(self.valid, [np.array([1, -2, -3], np.float32)])
        assert (finding.kind, finding.operation, finding.index) == ("nan", "stablehlo.select", (1,))
        assert finding.place.brief.startswith(f"{HERE}:{line_of(self.valid, 'the selection')}:")
        assert f"select has a NaN that comes from a constant at {HERE}" in str(finding)
        assert "stablehlo.constant dense<0x7FC00000>" in finding.constant
        assert (finding.count, finding.size, finding.operands[1].value) == (2, 3, "-2.0")
        assert finding.program is None

    def test_none_where_it_is_not_selected(self) -> None:
        assert found(self.valid, [np.ones(3, np.float32)], "all") is None

    def test_none_where_it_is_consumed(self) -> None:
        """A sum of what is valid."""

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            y = self.valid(b, x)
            return sx.reduce(sx.select(y == y, y, full(y, 0)), b.constant(np.float32(0)), sx.add, (0,))

        assert found(build, [np.array([1, -2, -3], np.float32)], "all") is None

    def test_none_where_an_argument_has_one(self) -> None:
        assert found(self.valid, [np.array([1, np.nan, -3], np.float32)]) is None

    def test_one_that_is_made_comes_first(self) -> None:
        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.log(x) + self.valid(b, x)

        finding = found(build, [np.array([1, -2, -3], np.float32)])
        assert (finding.operation, finding.constant) == ("stablehlo.log", "")

    def test_in_a_loop(self) -> None:
        def body(state: sx.XlaOp) -> Any:
            i, x = state
            return sx.tuple((i + 1, sx.select(i == 2, full(x, np.nan), x + 1.0)))

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.while_(lambda state: state[0] < 5, body, (b.constant(np.int32(0)), x))[1]

        finding = found(build, [np.ones(3, np.float32)])
        assert (finding.operation, [step.what for step in finding.iterations]) == ("stablehlo.select", ["iteration 2"])

    def test_the_first_of_several_results_of_a_loop(self) -> None:
        def body(state: sx.XlaOp) -> sx.XlaOp:
            hidden = sx.select(state[1] < 0.0, state[1], state[1].builder.constant(np.float32(np.nan)))
            return sx.tuple((state[0] + 1, hidden, *(state[i] for i in (2, 3, 4))))

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            made = sx.while_(lambda state: state[0] < 3, body, (b.constant(np.int32(0)), x, x, x, x))
            return sx.tuple([made[i] for i in (1, 2, 3, 4)])

        assert found(build, [np.float32(1)]).operation == "stablehlo.select"

    @pytest.mark.parametrize(
        ("type_", "constant"),
        [
            ("bf16", "[1.0, 0x7FC0]"),
            ("f8E4M3FN", "[1.0, 0x7F]"),
            ("f64", "[1.0, 0x7FF8000000000000]"),
            ("complex<f32>", "(0x7FC00000, 0.0)"),
            ("complex<f32>", "[(1.0, 0.0), (0.0, 0x7FC00000)]"),
        ],
    )
    def test_constants_of_all_types(self, type_: str, constant: str) -> None:
        executable = sx.compile(f"""func.func @main(%p: tensor<i1>, %x: tensor<2x{type_}>) -> tensor<2x{type_}> {{
          %c = stablehlo.constant dense<{constant}> : tensor<2x{type_}>
          %r = stablehlo.select %p, %x, %c : tensor<i1>, tensor<2x{type_}>
          return %r : tensor<2x{type_}>
        }}""")
        x = np.ones(2, executable.parameters[1].dtype)
        finding = executable.check([np.array(False), x])
        assert finding is not None
        assert finding.operation == "stablehlo.select"
        assert executable.check([np.array(True), x]) is None

    def test_a_result_that_is_one(self) -> None:
        finding = found(lambda b, x: sx.tuple((x, b.constant(np.float32(np.nan)))), [np.ones(3, np.float32)])
        assert (finding.operation, finding.value) == ("stablehlo.constant", "nan")

    def test_infinities_are_asked_for(self) -> None:
        """A mask that is returned is no mistake."""

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.select(x > 0.0, x, sx.broadcast(b.constant(-INF), (3,)))

        x = np.array([1, -2, -3], np.float32)
        assert found(build, [x], "all") is None
        finding = found(build, [x], "constants")
        assert (finding.kind, finding.operation, finding.index) == ("inf", "stablehlo.select", (1,))

    def test_the_run_raises(self) -> None:
        executable = sx.compile(program(self.valid, sx.f32[3]), options=sx.CompileOptions(check="nan"))
        assert executable(np.ones(3, np.float32)).tolist() == [1, 1, 1]
        for _ in range(5):
            with pytest.raises(sx.CheckError, match="select has a NaN that comes from a constant"):
                executable(-np.ones(3, np.float32))
            assert np.isnan(executable(np.full(3, np.nan, np.float32))).all()

    def test_the_operation_is_known_where_the_program_has_effects(self) -> None:
        """Of two that have a constant the one whose result has it: the one run that there is tells them apart."""

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            drawn = sx.rng_uniform(b.constant(np.float32(0)), b.constant(np.float32(1)), sx.f32[3])
            first = sx.select(x > 0.0, drawn, full(x, np.nan))
            return sx.tuple((first, sx.select(x < 9.0, drawn, full(x, np.nan))))  # the second

        executable = sx.compile(program(build, sx.f32[3]))
        assert executable.check([np.ones(3, np.float32)]) is None
        finding = executable.check([np.full(3, 10, np.float32)])
        assert finding is not None
        assert (finding.operation, finding.number, finding.index) == ("stablehlo.select", 2, None)
        assert finding.place.brief.startswith(f"{HERE}:{line_of(build, 'the second')}:")
        assert finding.note == "values are not known: the program has effects, and is not run again for them"


class TestFewestRuns:
    """A first look at few values, and which programs have more."""

    @staticmethod
    def masked(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
        """Weights of numbers above 0, and a quotient that has nothing to do with them."""
        kept = sx.select(x > 0.0, x, sx.broadcast(b.constant(-INF), (4,)))
        power = sx.exp(kept - sx.reduce(kept, b.constant(-INF), sx.max, (0,)))
        first = power / sx.reduce(power, b.constant(np.float32(0)), sx.add, (0,))
        return sx.tuple((first, sx.sqrt(sx.log(y) + 5.0) * y - y * 7.5))

    def test_infinities_that_are_meant(self) -> None:
        """After some runs that are repeated for nothing, the subtraction is checked with its operands."""
        executable = sx.compile(program(self.masked, sx.f32[4], sx.f32[4]), options=sx.CompileOptions(check="all"))
        plain = sx.compile(program(self.masked, sx.f32[4], sx.f32[4]))
        x, y = np.array([1, -1, 2, -2], np.float32), np.ones(4, np.float32)
        checker = executable._checker
        runs: list[Any] = []
        execute = checker._execute
        checker._execute = lambda program, *rest: runs.append(program) or execute(program, *rest)
        for _ in range(6):
            for result, wanted in zip(executable(x, y), plain(x, y), strict=True):
                np.testing.assert_allclose(result, wanted, rtol=1e-6)
        assert len(runs) == 3 * 2 + 3
        assert checker._begins == "quick"
        for arguments, name in (((x, 0 * y), "log"), ((x, -y), "log"), ((-abs(x), y), "subtract")):
            with pytest.raises(sx.CheckError, match=f"{name} made") as error:
                executable(*arguments)
            assert error.value.finding.place.brief.startswith(HERE)

    def test_warnings_leave_the_rest_as_it_is(self) -> None:
        def build(b: sx.XlaBuilder, x: sx.XlaOp, i: sx.XlaOp) -> sx.XlaOp:
            return sx.log(sx.sqrt(sx.dynamic_slice(x, [i], (2,))))

        executable = sx.compile(
            program(build, sx.f32[4], sx.s32[()]), options=sx.CompileOptions(check=("nan", "indices"))
        )
        x = np.array([1, 2, 3, -4], np.float32)
        assert executable._checker._begins == "quick"
        assert np.isfinite(executable(x, np.int32(1))).all()
        with pytest.warns(sx.CheckWarning, match="dynamic_slice made an index out of range"):
            executable(abs(x), np.int32(5))
        with pytest.raises(sx.CheckError, match="sqrt made"), pytest.warns(sx.CheckWarning, match="index out of range"):
            executable(x, np.int32(5))

    def test_a_loop_in_a_loop(self) -> None:
        """The inner one's result tells of a NaN; nothing else of the outer one is looked at."""

        def inner(state: sx.XlaOp) -> Any:
            i, j, x = state
            return sx.tuple((i, j + 1, sx.sqrt(x - 1.0)))

        def outer(state: sx.XlaOp) -> Any:
            i, j, x = state
            _, _, y = sx.while_(lambda s: s[1] < 3, inner, (i, j, x))
            return sx.tuple((i + 1, j, sx.select(y > 0.0, y, full(y, -1))))

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            zero = b.constant(np.int32(0))
            return sx.while_(lambda s: s[0] < 2, outer, (zero, zero, x))[2]

        finding = found(build, [np.full(3, 2, np.float32)])
        assert (finding.operation, [step.what for step in finding.iterations]) == (
            "stablehlo.sqrt",
            ["iteration 0", "iteration 2"],
        )

    @pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "c64"])
    @pytest.mark.parametrize("at", range(4))
    def test_many_scalars(self, name: str, at: int) -> None:
        """They are told apart in a branch, all checks at once."""

        def build(b: sx.XlaBuilder, *xs: sx.XlaOp) -> sx.XlaOp:
            return sx.tuple(tuple(sx.log(x) * x - x for x in xs))

        dtype = sx.element_type(name).dtype
        made = program(build, *[sx.Shape(name, ())] * 4)
        executable = sx.compile(made, options=sx.CompileOptions(check="all"))
        executable._checker._begins = "exact"
        arguments = [np.ones((), dtype) for _ in range(4)]
        executable(*arguments)
        arguments[at] = np.zeros((), dtype)
        with pytest.raises(sx.CheckError, match="log made an infinity") as error:
            executable(*arguments)
        assert error.value.finding.number == 1 + 3 * at

    def test_more_operations_of_one_shape_than_a_byte_tells_apart(self) -> None:
        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            made = x
            for _ in range(250):
                made = made * x
            return sx.sqrt(made - 2.0)

        finding = found(build, [np.ones(5, np.float32)])
        assert (finding.operation, finding.number) == ("stablehlo.sqrt", 250)  # x * x is none of them

    def test_a_product_of_infinite_factors(self) -> None:
        """Its operands, which are in memory, are looked through where the product has a NaN."""
        x, y = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
        x[1, 2] = INF
        assert found(lambda b, x, y: sx.dot(x, y), [x, y], "all") is None
        y[2, 3] = 0
        finding = found(lambda b, x, y: sx.dot(x, y), [x, y], "all")
        assert (finding.kind, finding.operation, finding.index) == ("nan", "stablehlo.dot_general", (1, 3))
        assert found(lambda b, x, y: sx.dot(x, y), [x, y], "inf") is None


class TestRuns:
    def test_the_run_raises(self) -> None:
        executable = sx.compile(program(entropy, sx.f32[2, 2]), options=sx.CompileOptions(check="nan"))
        right = np.full((2, 2), 0.5, np.float32)
        with pytest.raises(sx.CheckError, match="checked: multiply made a NaN") as error:
            executable(np.array([[0, 1], [1, 1]], np.float32))
        assert isinstance(error.value, FloatingPointError)
        assert error.value.finding.index == (0, 0)
        assert executable.execute([right])[0] == sx.compile(program(entropy, sx.f32[2, 2]))(right)
        assert [str(spec) for spec in executable.results] == ["float32[]"]

    def test_warnings_do_not_end_it(self) -> None:
        made = program(lambda b, x, y: sx.div(x, y), sx.s32[2], sx.s32[2])
        executable = sx.compile(made, options=sx.CompileOptions(check="division"))
        with pytest.warns(sx.CheckWarning, match="an integer division by zero"):
            result = executable(np.array([4, 5], np.int32), np.array([2, 0], np.int32))
        assert list(result) == [2, -1]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            executable(np.array([4, 5], np.int32), np.array([2, 1], np.int32))

    def test_arguments_with_nan_are_run(self) -> None:
        executable = sx.compile(program(lambda b, x: x + 1.0, sx.f32[2]), options=sx.CompileOptions(check="nan"))
        assert np.isnan(executable(np.array([np.nan, 1], np.float32))).tolist() == [True, False]

    def test_tuples(self) -> None:
        b = sx.XlaBuilder("pair")
        pair = b.parameter(0, sx.Shape.tuple((sx.f32[2], sx.f32[2])))
        x, y = pair
        executable = sx.compile(b.build(sx.tuple((x / y, x))), options=sx.CompileOptions(check="nan"))
        ones, zeros = np.ones(2, np.float32), np.zeros(2, np.float32)
        assert executable((ones, ones))[0].tolist() == [1, 1]
        with pytest.raises(sx.CheckError, match="divide"):
            executable((zeros, zeros))

    def test_replicas(self) -> None:
        """Each device looks at its own values."""

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.all_reduce(sx.sqrt(x), sx.add)

        made = program(build, sx.f32[2])
        executable = sx.compile(made, num_replicas=2, options=sx.CompileOptions(check="nan"))
        ones = np.ones(2, np.float32)
        assert executable.execute_replicated([[ones], [ones]])[1][0].tolist() == [2, 2]
        with pytest.raises(sx.CheckError, match="sqrt made a NaN") as error:
            executable.execute_replicated([[ones], [-ones]])
        assert (error.value.finding.device, error.value.finding.index) == (1, (0,))

    @pytest.mark.parametrize("given", [[np.ones(2, np.float32)], [np.ones(2, np.float32)] * 2, [[]] * 3])
    def test_replicas_in_another_form(self, given: list[Any]) -> None:
        made = program(lambda b, x: sx.all_reduce(sx.sqrt(x), sx.add), sx.f32[2])
        executable = sx.compile(made, num_replicas=2)
        assert executable.check([[np.ones(2, np.float32)]] * 2) is None
        with pytest.raises(
            sx.ExecutionError, match=r"runs on 2 devices(.|\n)*executable\.check\(\[arguments of device 0"
        ):
            executable.check(given)

    def test_no_memory_for_the_values(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The operation is named all the same."""
        text = """func.func @main(%x: tensor<2x1024xf32>) -> tensor<f32> {
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %0 = stablehlo.sqrt %x : tensor<2x1024xf32>
          %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0, 1]
            : (tensor<2x1024xf32>, tensor<f32>) -> tensor<f32>
          return %1 : tensor<f32>
        }"""
        executable = sx.compile(text)
        x = np.full((2, 1024), -1, np.float32)
        assert executable.check([x]).index == (0, 0)

        def fails(*_: Any) -> None:
            raise sx.OutOfMemoryError("no memory", needed=8192)

        monkeypatch.setattr(Checker, "_values", fails)
        finding = executable.check([x])
        assert (finding.operation, finding.index) == ("stablehlo.sqrt", None)
        assert "needs more memory than there is" in finding.note

    def test_no_memory_for_all_checks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The error says what the first look at values tells."""
        execute, runs = Checker._execute, []

        def fails(*given: Any) -> Any:
            runs.append(given)
            if len(runs) == 2:
                raise sx.OutOfMemoryError("no memory", needed=8192)
            return execute(*given)

        monkeypatch.setattr(Checker, "_execute", fails)
        with pytest.raises(sx.OutOfMemoryError) as error:
            found(lambda b, x: sx.log(x) + 1.0, [-np.ones(3, np.float32)])
        assert f"the result of stablehlo.log at {HERE}" in error.value.__notes__[0]

    def test_random_numbers_are_drawn_once(self) -> None:
        """A program that cannot be run again tells the operation and no values."""

        def build(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.log(x + sx.rng_uniform(b.constant(np.float32(0)), b.constant(np.float32(1)), sx.f32[4]))

        finding = found(build, [np.full(4, -2, np.float32)])
        assert (finding.operation, finding.index) == ("stablehlo.log", None)
        assert "not run again" in finding.note

    def test_donated_arguments_stay(self) -> None:
        text = """func.func @main(%x: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2xf32> {
          %0 = stablehlo.sqrt %x : tensor<2xf32>
          return %0 : tensor<2xf32>
        }"""
        executable = sx.compile(text, options=sx.CompileOptions(check="nan"))
        x = np.array([4, -4], np.float32)
        with pytest.raises(sx.CheckError) as error:
            executable.execute([x], donate=True)
        assert error.value.finding.operands[0].value == "-4.0"
        assert x.tolist() == [4, -4]

    def test_queues(self) -> None:
        """The program reads its queue once; a run of `check` would read another one."""
        b = sx.XlaBuilder("fed")
        made = b.build(sx.log(b.infeed(sx.f32[2])))
        executable = sx.compile(made, options=sx.CompileOptions(check="nan"))
        for numbers, is_right in (([1, 1], True), ([1, -1], False), ([1, 1], True)):
            executable.transfer_to_infeed(np.array(numbers, np.float32))
            if is_right:
                assert executable().tolist() == [0, 0]
            else:
                with pytest.raises(sx.CheckError, match=r"log made a NaN(.|\n)*not run again"):
                    executable()
        with pytest.raises(sx.UnsupportedError, match=r"the queue of stablehlo\.infeed"):
            sx.compile(made).check([])

    def test_unknown_extents(self) -> None:
        text = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
          %0 = stablehlo.sqrt %x : tensor<?xf32>
          return %0 : tensor<?xf32>
        }"""
        executable = sx.compile(text)
        assert executable.check([np.array([1, -1], np.float32)]).index == (1,)
        assert executable.check([np.array([1, 1, 1], np.float32)]) is None

    def test_partitions(self) -> None:
        text = """module attributes {mhlo.num_partitions = 2 : i32} {
          sdy.mesh @mesh = <["x"=2]>
          func.func @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<4xf32> {
            %0 = stablehlo.sqrt %x : tensor<4xf32>
            return %0 : tensor<4xf32>
          }
        }"""
        executable = sx.compile(text, options=sx.CompileOptions(check="nan"))
        assert executable(np.array([1, 4, 9, 16], np.float32)).tolist() == [1, 2, 3, 4]
        with pytest.raises(sx.CheckError, match="sqrt made a NaN") as error:
            executable(np.array([1, 1, -1, 1], np.float32))
        assert error.value.finding.index == (2,)

    def test_refused(self, tmp_path: Path) -> None:
        with pytest.raises(sx.CompileError, match=r"check takes nan, inf, .* not 'nans'"):
            sx.CompileOptions(check="nans")
        executable = sx.compile(program(entropy, sx.f32[2, 2]), options=sx.CompileOptions(check="nan"))
        with pytest.raises(sx.UnsupportedError, match="cannot be saved"):
            executable.save(tmp_path / "saved")
        text = "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }"
        with pytest.raises(sx.UnsupportedError, match="sizes at run time"):
            sx.compile(text, options=sx.CompileOptions(check="nan"))


def first_by_numpy(flat: FlatProgram, values: dict[Any, np.ndarray], kind: str) -> int | None:
    """The number of the first operation of `main` that makes a NaN or an infinity, by a walk through all values.

    An operation that holds others counts as one.
    """
    for unit in flat.units:
        if not unit.results or unit.op.name.partition(".")[2] in ("constant", "infeed", "recv", "rng"):
            continue
        shown = [bad(values[v], kind, operand=False) for v in unit.results]
        operands = [bad(values[v], kind, operand=True) for v in unit.op.operands]
        traits = TRAITS.get(unit.op.name)
        if traits is not None and traits.is_elementwise and all(o.shape == shown[0].shape for o in operands):
            if (shown[0] & ~np.logical_or.reduce([np.zeros_like(shown[0]), *operands])).any():
                return unit.number
        elif any(r.any() for r in shown) and not any(o.any() for o in operands):
            return unit.number
    return None


def bad(array: np.ndarray, kind: str, *, operand: bool) -> np.ndarray:
    """Which elements are NaN, or infinite; of operands what is not finite."""
    wide = array if array.dtype.kind in "fc" and array.dtype.isbuiltin == 1 else array.astype(np.float64)
    if kind == "nan":
        return np.asarray(np.isnan(wide))
    return np.asarray(~np.isfinite(wide) if operand else np.isinf(wide))


def planted(seed: int) -> tuple[str, list[np.ndarray]]:
    """A random program in which some values are replaced by roots, logarithms or quotients of them."""
    drawn = draw(seed, FAMILIES_WITHOUT_EFFECTS)
    random = np.random.default_rng(seed)
    statements = []
    for statement in drawn.program.statements:
        (value, *others), made = statement.results, statement
        if (
            not others
            and (value.is_float or value.is_complex)
            and value.element_type.bits > 8
            and random.random() < 0.6
        ):
            made = replace(statement, text=statement.text.replace(f"{value.name} =", f"{value.name}_before =", 1))
            operation = random.choice(["log", "sqrt", "rsqrt", "divide", "exponential"])
            operands = ", ".join([f"{value.name}_before"] * (2 if operation == "divide" else 1))
            statements.append(made)
            made = Statement(f"{value.name} = stablehlo.{operation} {operands} : {value.type}", (value,))
        statements.append(made)
    return replace(drawn.program, statements=tuple(statements)).text, drawn.arguments


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_random_programs(seed: int, kind: str) -> None:
    """numpy walks through all values, and comes to the same operation."""
    agree(seed, kind)


def agree(seed: int, kind: str) -> bool:
    """Compare what a checked run finds with numpy's walk; whether there was something."""
    text, arguments = planted(seed)
    executable = sx.compile(text)
    finding = executable.check(arguments, kind)
    flat = FlatProgram.of(executable._stablehlo)
    made = [result for unit in flat.units for result in unit.results]
    results = sx.compile(flat.returning(made)).execute(arguments)
    values = dict(zip([*flat.arguments, *made], [*arguments, *results], strict=True))
    wanted = first_by_numpy(flat, values, kind)
    if finding is None:
        assert wanted is None, flat.units[wanted].text
        return False
    outer = (finding.iterations[0].place if finding.iterations else finding.place).line
    number = next(unit.number for unit in flat.units if unit.place.line == outer)
    if finding.iterations:  # a value inside, which the operation around it need not return
        assert wanted is None or wanted >= number, (str(finding), flat.units[wanted].text)
    else:
        assert wanted == number, (str(finding), wanted)
    return True


def attention(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k) / 8.0), v)


def layer(x: Any, w: Any, scale: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    normal_ = (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * scale
    return jax.nn.gelu(normal_ @ w) + x


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (attention, [normal(2, 64, 64, seed=i) for i in range(3)]),
        (layer, [normal(16, 64), normal(64, 64), normal(64)]),
        (lambda x: jax.lax.scan(lambda c, v: (jnp.tanh(c @ x[0] + v), c), x[0, 0], x[:, 0]), [normal(9, 32, 32)]),
    ],
    ids=["attention", "layer", "scan"],
)
def test_results_are_those_without_checks(function: Any, arguments: list[np.ndarray]) -> None:
    """Bit for bit, as the kernels are the same; and there is nothing to find."""
    text = jax.jit(function).lower(*arguments).as_text()
    plain, checked = sx.compile(text), sx.compile(text, options=sx.CompileOptions(check="nan"))
    for wanted, result in zip(plain.execute(arguments), checked.execute(arguments), strict=True):
        np.testing.assert_array_equal(result, wanted)
    large = {"attention", "contraction"}
    kinds = [{kernel.kind for kernel in each.kernels} & large for each in (plain, checked._checker.first)]
    assert kinds[0] == kinds[1]
    assert plain.check(arguments, "all") is None


@pytest.mark.parametrize("kinds", [None, (), ""])
def test_no_kinds_are_refused(kinds: Any) -> None:
    b = sx.XlaBuilder("log")
    executable = sx.compile(b.build(sx.log(b.parameter(0, sx.f32[2]))))
    with pytest.raises(sx.CompileError, match="check takes nan, inf"):
        executable.check([np.zeros(2, np.float32)], kinds)


@pytest.mark.parametrize(("kinds", "meant"), [("infinity", "inf"), ("nans", "nan"), ("divisions", "division")])
def test_the_way_out_of_another_word_is_a_word_for_both(kinds: str, meant: str) -> None:
    b = sx.XlaBuilder("log")
    computation = b.build(sx.log(b.parameter(0, sx.f32[2])))
    with pytest.raises(sx.CompileError) as of_method:
        sx.compile(computation).check([np.zeros(2, np.float32)], kinds)
    with pytest.raises(sx.CompileError) as of_options:
        sx.compile(computation, options=sx.CompileOptions(check=kinds))
    assert eval(of_method.value.hint) == eval(of_options.value.hint) == meant
