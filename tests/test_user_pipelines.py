"""Pipelines that users change: functions as passes, passes of their own, lowering rules, and how wrong ones are told.

Results are compared with numpy.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxlib.mlir import ir as hlo_ir
from mlir import ir
from mlir.dialects import arith, math

import stablexla as sx
from stablexla.targets.pipeline.passes import PASSES
from stablexla.targets.pipeline.pipelines import Element
from stablexla.targets.pipeline.steps import PREPARE

PROGRAM = """
module @chain {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %x, %x : tensor<4xf32>
    %1 = stablehlo.tanh %0 : tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}
"""
X = np.float32([0.5, 1, 2, 4])
SEEN: list[object] = []


def note(module: Any, *, at_least: int = 0) -> None:
    """Notes the names of the functions, if there are enough."""
    names = [op.name.value for op in module.body.operations]
    if len(names) >= at_least:
        SEEN.append(names)


def compiled(pipeline: sx.Pipeline, text: str = PROGRAM, **options: Any) -> sx.Executable:
    return sx.compile(text, options=sx.CompileOptions(pipeline=pipeline, **options))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No test leaves passes or rules behind."""
    sx.pipeline()  # the package's own passes are registered when they are first needed
    before = dict(PASSES)
    SEEN.clear()
    yield
    assert before == PASSES
    assert sx.pipeline().rules == ()


class TestFunctions:
    def test_a_function_is_a_step_of_its_name(self) -> None:
        pipeline = sx.pipeline("cpu").inserting(note, after="tensor")
        assert pipeline.names[:3] == ("stablehlo", "tensor", "note")
        assert pipeline["note"].text == f"builtin.module(stablexla-python{{function={__name__}:note}})"
        np.testing.assert_allclose(compiled(pipeline)(X), np.tanh(2 * X), rtol=1e-6)
        assert SEEN == [["main"]]

    def test_stands_among_passes_and_takes_options(self) -> None:
        pipeline = sx.pipeline().with_step("kernels", [*PREPARE, "stablexla-group", "stablexla-outline"])
        pipeline = pipeline.inserting_pass(["cse", partial(note, at_least=2)], after="stablexla-outline")
        assert pipeline["kernels"].passes.endswith(f",cse,stablexla-python{{function={__name__}:note at-least=2}}")
        compiled(pipeline)
        assert SEEN == [["loop_0", "main"]]
        compiled(sx.pipeline().inserting_pass(partial(note, at_least=9), before="stablexla-outline"))
        assert len(SEEN) == 1

    def test_works_on_stablehlo_too(self) -> None:
        compiled(sx.pipeline().inserting(sx.Step("look", note), before="stablehlo"))
        assert SEEN == [["main"]]

    def test_text_finds_it_again(self) -> None:
        pipeline = sx.pipeline().inserting(note, after="tensor")
        again = sx.Pipeline.parse(str(pipeline))
        compiled(again)
        assert SEEN == [["main"]]
        assert pipeline != again  # one holds the function, the other a name
        assert not pipeline.is_text
        assert again.is_text

    def test_functions_of_one_name_are_numbered(self) -> None:
        def make(word: str) -> Any:
            return lambda module: SEEN.append(word)

        compiled(sx.pipeline().inserting(sx.Step("both", [make("a"), make("b")]), after="tensor"))
        assert SEEN == ["a", "b"]

    @pytest.mark.parametrize(
        ("function", "place", "package"),
        [
            (lambda module: module.operation.walk(lambda op: ir.WalkResult.ADVANCE), "before", "jaxlib.mlir"),
            (lambda module: ir.InsertionPoint(module.body), "before", "jaxlib.mlir"),
            (lambda module: ir.StringAttr.get("x"), "before", "jaxlib.mlir"),
            (lambda module: module.operation.walk(lambda op: hlo_ir.WalkResult.ADVANCE), "after", "mlir"),
            (lambda module: hlo_ir.InsertionPoint(module.body), "after", "mlir"),
        ],
    )
    def test_classes_of_the_other_mlir(self, function: Any, place: str, package: str) -> None:
        """A pass with the wrong import is told of the right one."""
        at = {place: "stablehlo" if place == "before" else "tensor"}
        pipeline = sx.pipeline().inserting(sx.Step("mine", function), **at)
        with pytest.raises(sx.CompileError) as caught:
            compiled(pipeline)
        assert caught.value.hint.startswith(f"from {package} import ir")

    @pytest.mark.parametrize(
        "function",
        [
            lambda module: ir.StringAttr.get("x", 3),
            lambda module: hlo_ir.nothing or 1 / 0,
            lambda module: float(module),
        ],
    )
    def test_other_mistakes_have_no_hint_of_imports(self, function: Any) -> None:
        with pytest.raises(sx.CompileError) as caught:
            compiled(sx.pipeline().inserting(sx.Step("mine", function), after="tensor"))
        assert caught.value.hint == ""

    def test_a_new_module_goes_on(self) -> None:
        def other(module: Any) -> Any:
            return type(module).parse(str(module).replace("stablehlo.add", "stablehlo.multiply"))

        np.testing.assert_allclose(compiled(sx.pipeline().inserting(other, before="stablehlo"))(X), np.tanh(X * X))

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (lambda module: 3, "gave a int, where a pass gives a module or None"),
            (lambda: None, "takes 0 positional arguments"),
            (lambda module: module.nothing, r"AttributeError: .*\(test_user_pipelines\.py:\d+\)"),
        ],
    )
    def test_wrong_functions(self, wrong: Any, message: str) -> None:
        with pytest.raises(sx.CompileError, match=message) as caught:
            compiled(sx.pipeline().inserting(sx.Step("wrong", wrong), after="tensor"))
        assert caught.value.stage == "wrong"

    @pytest.mark.parametrize("wrong", [3, None, [3], partial(note, 1), int])
    def test_what_is_no_pass(self, wrong: Any) -> None:
        with pytest.raises(sx.CompileError):
            sx.Step("wrong", wrong)

    def test_options_need_plain_types(self) -> None:
        def takes(module: Any, *, list_: list[int]) -> None: ...

        with pytest.raises(sx.CompileError, match="'list_' has no plain type and default"):
            compiled(sx.pipeline().inserting(takes, after="tensor"))
        with pytest.raises(sx.CompileError, match="has no option 'most'"):
            compiled(sx.pipeline().inserting(partial(note, most=1), after="tensor"))

    def test_a_text_names_a_function_that_is_not_there(self) -> None:
        with pytest.raises(sx.CompileError, match="no function 'nowhere:f'") as caught:
            compiled(sx.pipeline().with_step("kernels", "stablexla-python{function=nowhere:f}"))
        assert "--load=nowhere.py" in caught.value.hint


class TestChanging:
    def test_passes_are_inserted_replaced_and_removed_by_name(self) -> None:
        cpu = sx.pipeline()
        assert cpu.inserting_pass("cse", before="stablexla-outline")["kernels"].passes.endswith(
            ",stablexla-group,cse,stablexla-outline,stablexla-inline-repeats"
        )
        assert (
            cpu.without_pass("canonicalize")["tensor"].passes == "stablexla-find-repeats,stablexla-lower-to-tensor,cse"
        )
        replaced = cpu.replacing_pass("stablexla-emit-kernels", "stablexla-emit-kernels{general-only=true}")
        assert replaced["buffers"].elements[0].options == {"general-only": "true"}
        np.testing.assert_allclose(compiled(replaced)(X), np.tanh(2 * X), rtol=1e-6)

    @pytest.mark.parametrize(
        ("change", "message", "hint"),
        [
            (lambda p: p.without_pass("canonicalise"), "has no pass 'canonicalise'", "canonicalize"),
            (lambda p: p.without_pass("cse"), "2 passes 'cse'", "step='stablehlo' or step='tensor'"),
            (lambda p: p.without_pass("canonicalize", step="llvm"), "the step 'llvm' has no pass", ""),
            (lambda p: p.inserting(note), "either after=NAME or before=NAME", ""),
            (lambda p: p.inserting(note, after="tensor", before="kernels"), "either after=NAME", ""),
            (lambda p: p.inserting(note, after="tensr"), "no step 'tensr'", "tensor"),
        ],
    )
    def test_what_cannot_be_changed(self, change: Any, message: str, hint: str) -> None:
        with pytest.raises(sx.CompileError, match=message) as caught:
            change(sx.pipeline())
        assert hint in caught.value.hint

    def test_a_step_says_which_pass_is_meant(self) -> None:
        assert "cse" not in sx.pipeline().without_pass("cse", step="tensor")["tensor"].passes

    def test_quoted_options_may_hold_blanks_and_brackets(self) -> None:
        step = sx.Step("s", "stablexla-transform{script='a b (1].mlir' entry=e},cse")
        assert [e.name for e in step.elements] == ["stablexla-transform", "cse"]
        assert step.elements[0].options == {"script": "a b (1].mlir", "entry": "e"}

    def test_nests_come_apart(self) -> None:
        parts = Element("func.func(cse,scf.for(canonicalize{top-down=1},cse))").parts
        assert [p.text for p in parts] == [
            "func.func(cse)",
            "func.func(scf.for(canonicalize{top-down=1}))",
            "func.func(scf.for(cse))",
        ]


class TestRegisteredPasses:
    def test_any_name_may_be_registered(self) -> None:
        @sx.module_pass("my-note", "notes")
        def mine(module: Any, *, word: str = "") -> None:
            SEEN.append(word)

        compiled(sx.pipeline().with_step("tensor", "stablexla-lower-to-tensor,my-note{word=a},cse"))
        assert SEEN == ["a"]

        @sx.module_pass("my-note", "notes otherwise")  # as who runs a cell of a notebook again does
        def again(module: Any) -> None:
            SEEN.append("again")

        compiled(sx.pipeline().with_step("tensor", "stablexla-lower-to-tensor,my-note"))
        assert SEEN == ["a", "again"]
        sx.unregister_pass("my-note")
        sx.unregister_pass("my-note")
        with pytest.raises(sx.CompileError, match="'my-note' does not refer"):
            compiled(sx.pipeline().with_step("tensor", "stablexla-lower-to-tensor,my-note"))

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("cse", "has a pass 'cse' already"),
            ("stablehlo-refine-shapes", "the MLIR of stablehlo has"),
            ("stablexla-group", "two passes are called stablexla-group"),
            ("My Pass", "no name for a pass"),
        ],
    )
    def test_names_that_are_taken(self, name: str, message: str) -> None:
        with pytest.raises(sx.CompileError, match=message):
            sx.module_pass(name, "is not registered")(note)

    def test_a_side_that_there_is_not(self) -> None:
        with pytest.raises(sx.CompileError, match="'hlo' is no side") as caught:
            sx.module_pass("my-note", "is not registered", side="hlo")  # type: ignore[arg-type]
        assert caught.value.hint == "'stablehlo' or 'upstream'"

    def test_passes_of_the_package_stay(self) -> None:
        with pytest.raises(sx.CompileError, match="belongs to stablexla"):
            sx.unregister_pass("stablexla-group")

    def test_a_python_pass_does_not_stand_in_a_nest(self) -> None:
        with pytest.raises(sx.CompileError) as caught:
            compiled(sx.pipeline().with_step("kernels", "func.func(stablexla-group)"))
        assert "beside the nest" in caught.value.hint

    def test_a_pass_of_the_other_mlir(self) -> None:
        with pytest.raises(sx.CompileError) as caught:
            compiled(sx.pipeline().with_step("kernels", "stablehlo-refine-shapes"))
        assert "on the other side of stablexla-lower-to-tensor" in caught.value.hint


def doubled(ctx: Any, x: Any) -> Any:
    return ctx.elementwise(lambda v: arith.addf(v, v), x)


def unknown(x: ir.Value) -> ir.Value:
    """An operation of no dialect, which MLIR would end the process for."""
    return ir.Operation.create("my.tanh", results=[x.type], operands=[x]).result


def invalid(x: ir.Value) -> Any:
    return ir.Operation.create("arith.addf", results=[x.type], operands=[x]).results[0]


def module_of(lines: str, *, more: str = "") -> str:
    body = f"func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {{ {lines} return %r : tensor<4xf32> }}"
    return f"{body}\n{more}"


COMPOSITE = module_of(
    '%r = stablehlo.composite "my.op" %x {composite_attributes = {scale = 3.0 : f32}, decomposition = @impl, '
    "version = 2 : i32} : (tensor<4xf32>) -> tensor<4xf32>",
    more="func.func private @impl(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }",
)
CALL = module_of("%r = stablehlo.custom_call @my_op(%x) {api_version = 2 : i32} : (tensor<4xf32>) -> tensor<4xf32>")


class TestRules:
    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("stablehlo.tanh", module_of("%r = stablehlo.tanh %x : tensor<4xf32>")),
            ("chlo.erf", module_of("%r = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>")),
            ("chlo.digamma", module_of("%r = chlo.digamma %x : tensor<4xf32> -> tensor<4xf32>")),
            ("my.op", COMPOSITE),
            ("stablehlo.custom_call:my_op", CALL),
        ],
    )
    def test_goes_before_the_packages_own(self, name: str, text: str) -> None:
        rule = sx.lowering_rule(name, doubled)
        executable = sx.compile(text, options=sx.CompileOptions(rules=[rule]))
        np.testing.assert_array_equal(executable(X), 2 * X)
        assert executable.pipeline.rules == (rule,)
        assert f"// rule {name}: {__name__}:doubled (" in str(executable.pipeline)
        assert "arith.addf" in executable.ir("tensor")  # made again later, when no rule is registered

    def test_holds_for_its_program_alone(self) -> None:
        text = module_of("%r = stablehlo.tanh %x : tensor<4xf32>")
        with sx.lowering_rules(sx.lowering_rule("stablehlo.tanh", doubled)):
            inside = sx.compile(text)
        np.testing.assert_array_equal(inside(X), 2 * X)
        np.testing.assert_allclose(sx.compile(text)(X), np.tanh(X), rtol=1e-6)

    def test_the_nearest_one_wins(self) -> None:
        text = module_of("%r = stablehlo.tanh %x : tensor<4xf32>")
        times = [sx.lowering_rule("stablehlo.tanh", self._times(n)) for n in range(4)]
        sx.lowers("stablehlo.tanh")(times[0].function)
        try:
            assert sx.compile(text)(X)[1] == 0
            with sx.lowering_rules(times[1]):
                assert sx.compile(text)(X)[1] == 1
                pipeline = sx.pipeline().with_rules(times[2])
                assert compiled(pipeline, text)(X)[1] == 2
                assert compiled(pipeline, text, rules=(times[3],))(X)[1] == 3
        finally:
            sx.unregister_lowering("stablehlo.tanh")
        np.testing.assert_allclose(sx.compile(text)(X), np.tanh(X), rtol=1e-6)

    @staticmethod
    def _times(n: int) -> Any:
        def rule(ctx: Any, x: Any) -> Any:
            return ctx.elementwise(lambda v: arith.mulf(v, ctx.constant(n, v)), x)

        return rule

    def test_leaves_some_to_the_package(self) -> None:
        def only_f32(ctx: Any, x: Any) -> Any:
            return ctx.built_in(x) if ctx.result.element.name == "f64" else doubled(ctx, x)

        text = PROGRAM.replace("4xf32", "4xf64")
        rules = [sx.lowering_rule("stablehlo.tanh", only_f32)]
        np.testing.assert_allclose(
            sx.compile(text, options=sx.CompileOptions(rules=rules))(X.astype(float)), np.tanh(2.0 * X)
        )
        np.testing.assert_array_equal(sx.compile(PROGRAM, options=sx.CompileOptions(rules=rules))(X), 4 * X)

    def test_reads_attributes_as_plain_values(self) -> None:
        @sx.lowering_rule("my.op")
        def scaled(ctx: Any, x: Any) -> Any:
            scale = ctx.plain_attributes["scale"]
            return ctx.elementwise(lambda v: arith.mulf(v, ctx.constant(scale, v)), x)

        executable = sx.compile(COMPOSITE, options=sx.CompileOptions(rules=scaled))
        np.testing.assert_array_equal(executable(X), 3 * X)
        assert executable.composites == {"my.op v2": "kernel"}

    def test_reads_attributes_of_operations_that_are_no_composites(self) -> None:
        read = {}

        def by_index(ctx: Any, *operands: Any) -> Any:
            read.update(ctx.plain_attributes)
            return ctx.built_in(*operands)

        text = PROGRAM.replace("stablehlo.tanh %0", "stablehlo.reverse %0, dims = [0]")
        rules = [sx.lowering_rule("stablehlo.reverse", by_index)]
        np.testing.assert_array_equal(sx.compile(text, options=sx.CompileOptions(rules=rules))(X), 2 * X[::-1])
        assert list(read["dimensions"]) == [0]

    def test_works_with_the_builder(self) -> None:
        @sx.lowers("my.gelu")
        def gelu(ctx: Any, x: Any) -> Any:
            def body(v: Any) -> Any:
                one, half = (ctx.constant(n, v) for n in (1, 0.5))
                scaled = arith.mulf(v, ctx.constant(2**-0.5, v))
                return arith.mulf(arith.mulf(half, v), arith.addf(one, math.erf(scaled)))

            return ctx.elementwise(body, x)

        try:
            x = sx.XlaBuilder("g").parameter(0, sx.f32[4])
            y = sx.composite_call(x, "my.gelu", {}, lambda x: x * 0.5 * (1.0 + sx.erf(x * 2**-0.5)))
            assert set(sx.check_composite_kernel(x.builder.build(y)).values()) == {"kernel"}
        finally:
            sx.unregister_lowering("my.gelu")

    @pytest.mark.parametrize(
        ("rule", "message"),
        [
            (lambda ctx, x: 1 / 0, r"ZeroDivisionError: division by zero\n.*at .*test_user_pipelines\.py:\d+"),
            (lambda ctx, x: 3, "it gave 3, which is no value"),
            (lambda ctx, x: None, "it gave nothing, and the results are tensor<4xf32>"),
            (lambda ctx, x: [x, x], "it gave tensor<4xf32>, tensor<4xf32>, and"),
            (lambda ctx: 3, "takes 1 positional argument but 2 were given"),
        ],
    )
    def test_faults_are_told_with_the_rules_place(self, rule: Any, message: str) -> None:
        rules = [sx.lowering_rule("stablehlo.tanh", rule)]
        with pytest.raises(sx.CompileError, match=message) as caught:
            sx.compile(PROGRAM, options=sx.CompileOptions(rules=rules))
        assert re.search(r"stablehlo\.tanh: .*<lambda> \(.*test_user_pipelines\.py:\d+\)", str(caught.value))
        assert '"-":5:10' in str(caught.value)  # the program's own line
        assert f"--load={__file__}" in Path(caught.value.reproducer).read_text().splitlines()[0]

    @pytest.mark.parametrize(
        ("rule", "message"),
        [
            (lambda ctx, x: invalid(x), r"it emitted an invalid operation: 'arith\.addf' op expected 2 operands"),
            (lambda ctx, x: ctx.elementwise(invalid, x), "it emitted an invalid operation: .* 2 operands"),
            (lambda ctx, x: [ctx.once("shared", lambda: invalid(x))], r"lower-to-tensor(.|\n)*rules in effect: "),
            (lambda ctx, x: unknown(x), r"it emitted an invalid operation: 'my\.tanh' op created with unregistered"),
        ],
    )
    def test_invalid_ir_is_told_with_the_rules_place(self, rule: Any, message: str) -> None:
        """And not with the next pass, which may abort on it."""
        rules = [sx.lowering_rule("stablehlo.tanh", rule), sx.lowering_rule("stablehlo.negate", doubled)]
        with pytest.raises(sx.CompileError, match=message) as caught:
            sx.compile(PROGRAM, options=sx.CompileOptions(rules=rules))
        assert re.search(r"stablehlo\.tanh: .*<lambda> \(.*test_user_pipelines\.py:\d+\)", str(caught.value))
        assert "canonicalize" not in str(caught.value)
        assert Path(caught.value.reproducer).exists()

    def test_classes_of_the_other_mlir(self) -> None:
        """A lowering rule that uses classes of jaxlib's MLIR gets the right import as its hint."""
        rules = [sx.lowering_rule("stablehlo.tanh", lambda ctx, x: hlo_ir.RankedTensorType(x.type))]
        with pytest.raises(sx.CompileError, match="incompatible function arguments") as caught:
            sx.compile(PROGRAM, options=sx.CompileOptions(rules=rules))
        assert caught.value.hint.startswith("from mlir import ir")

    def test_may_refuse(self) -> None:
        def refuses(ctx: Any, x: Any) -> Any:
            raise ctx.unsupported("not on Mondays")

        with pytest.raises(sx.UnsupportedError, match=r"stablehlo\.tanh: not on Mondays"):
            sx.compile(PROGRAM, options=sx.CompileOptions(rules=[sx.lowering_rule("stablehlo.tanh", refuses)]))

    @pytest.mark.parametrize(
        ("name", "near"),
        [
            ("stablehlo.tahn", "stablehlo.tanh"),
            ("tanh", "'stablehlo.tanh'"),
            ("erf", "'chlo.erf'"),
            ("tahn", "'stablehlo.tanh'"),
            ("Stablehlo.tanh", "'stablehlo.tanh'"),
            ("CHLO.Erf", "'chlo.erf'"),
            ("stablehlo.composite", "my.gelu"),
            ("", ""),
            (3, ""),
        ],
    )
    def test_names_of_nothing(self, name: Any, near: str) -> None:
        for register in (sx.lowers, lambda n: sx.lowering_rule(n, doubled)):
            with pytest.raises(sx.CompileError) as caught:
                register(name)
            assert near in caught.value.hint

    @pytest.mark.parametrize("wrong", [3, "f", int, None])
    def test_what_is_no_function(self, wrong: Any) -> None:
        with pytest.raises(sx.CompileError, match=r"the lowering rule of stablehlo\.tanh: .* is no function"):
            sx.lowers("stablehlo.tanh")(wrong)
        with pytest.raises(sx.CompileError, match="is no function"):
            sx.lowering_rule("stablehlo.tanh")(wrong)

    @pytest.mark.parametrize("name", ["stablehlo.sine", "my.gelu", "stablehlo.custom_call:mine", "chlo.erf"])
    def test_a_rule_that_matches_nothing_is_told_of(self, name: str, recwarn: pytest.WarningsRecorder) -> None:
        rule, other = sx.lowering_rule(name, doubled), sx.lowering_rule("stablehlo.tanh", doubled)
        with pytest.warns(UserWarning, match=re.escape(f"the lowering rule {rule} has no effect")) as told:
            executable = sx.compile(PROGRAM, options=sx.CompileOptions(rules=[rule, other]))
        assert [Path(each.filename).name for each in told] == ["test_user_pipelines.py"]
        with pytest.warns(UserWarning, match="has no effect"):
            compiled(sx.pipeline().with_rules(rule))
        recwarn.clear()
        assert executable.ir("tensor")  # lowered again, by the same rules
        with sx.lowering_rules(rule):  # for several programs
            sx.compile(PROGRAM)
        assert [str(each.message) for each in recwarn] == []

    @pytest.mark.parametrize("name", ["stablehlo.tanh", "chlo.erf", "my.op", "stablehlo.custom_call:my_op"])
    def test_a_rule_that_matches_is_not(self, name: str, recwarn: pytest.WarningsRecorder) -> None:
        texts = {"my.op": COMPOSITE, "stablehlo.custom_call:my_op": CALL}
        texts["chlo.erf"] = module_of("%r = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>")
        sx.compile(texts.get(name, PROGRAM), options=sx.CompileOptions(rules=[sx.lowering_rule(name, doubled)]))
        assert [str(each.message) for each in recwarn] == []

    def test_what_is_no_rule(self) -> None:
        with pytest.raises(sx.CompileError, match="is no lowering rule"):
            sx.CompileOptions(rules=[doubled])  # type: ignore[list-item]
        with pytest.raises(sx.CompileError, match="is no lowering rule"):
            sx.lowering_rules(doubled)  # type: ignore[arg-type]

    def test_an_operation_inside_a_reducer_comes_with_scalars(self) -> None:
        text = """func.func public @main(%x: tensor<4xf32>, %z: tensor<f32>) -> tensor<f32> {
          %0 = stablehlo.reduce(%x init: %z) across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
            reducer(%a: tensor<f32>, %b: tensor<f32>) {
              %1 = stablehlo.tanh %b : tensor<f32>
              %2 = stablehlo.add %a, %1 : tensor<f32>
              stablehlo.return %2 : tensor<f32>
            }
          return %0 : tensor<f32>
        }"""
        rules = [sx.lowering_rule("stablehlo.tanh", doubled)]
        executable = sx.compile(text, options=sx.CompileOptions(rules=rules))
        np.testing.assert_allclose(executable(X, np.float32(0)), np.sum(2 * X))


def test_a_reproducers_command_runs_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a pass and a rule that stand in a file of the user's."""
    script = tmp_path / "my_work.py"
    script.write_text(
        "def fails(module):\n    raise KeyError('on purpose')\n\n"
        "def rule(ctx, x):\n    print('the rule is used')\n    return x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_work  # type: ignore[import-not-found]

    passes = ["stablexla-lower-to-tensor", my_work.fails]
    pipeline = sx.pipeline().with_step("tensor", passes).with_rules(sx.lowering_rule("stablehlo.tanh", my_work.rule))
    with pytest.raises(sx.CompileError, match="KeyError: 'on purpose'") as caught:
        compiled(pipeline)
    monkeypatch.delitem(sys.modules, "my_work")
    command = Path(caught.value.reproducer).read_text().splitlines()[0].split(": ", 1)[1]
    tool = f"{sys.executable} -m stablexla.tools.opt"
    done = subprocess.run(
        ["bash", "-c", command.replace("stablexla-opt", tool, 1)], cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "failed in stablexla-python{function=my_work:fails}" in done.stderr
    assert "the rule is used" in done.stdout
