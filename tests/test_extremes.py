"""Programs of extreme form: deep, long, wide, huge. They are compiled, or refused with an error that says why."""

from __future__ import annotations

from collections.abc import Callable

import jaxlib.mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import stablehlo_context
from stablexla.interop.loading import load
from stablexla.targets.pipeline.driver import run_pipeline
from stablexla.targets.pipeline.pipelines import Pipeline, Step
from stablexla.targets.stablehlo.repeats import find, search
from tests.growth import program

S32 = "tensor<i32>"


def calls(count: int, body: str) -> str:
    """Return functions that each call the next one; `body` has a call of `{next}`, and gives %1."""
    signature = f"(%x: {S32}) -> {S32}"
    made = [f"func.func @main{signature} {{ %1 = func.call @f0(%x) : ({S32}) -> {S32} return %1 : {S32} }}"]
    for i in range(count):
        made.append(f"func.func private @f{i}{signature} {{ {body.format(next=f'f{i + 1}')} return %1 : {S32} }}")
    made.append(f"func.func private @f{count}{signature} {{ return %x : {S32} }}")
    return "\n".join(made)


STRAIGHT = f"%0 = func.call @{{next}}(%x) : ({S32}) -> {S32} %1 = stablehlo.add %0, %x : {S32}"
IN_A_BRANCH = (
    f'%1 = "stablehlo.case"(%x) ({{{{ stablehlo.return %x : {S32} }}}}, {{{{ %0 = func.call @{{next}}(%x) : '
    f"({S32}) -> {S32} stablehlo.return %0 : {S32} }}}}) : ({S32}) -> {S32}"
)


def nested(depth: int) -> ir.Module:
    """Return a module with branches in branches, which no text spells."""
    with stablehlo_context(), ir.Location.unknown():
        module = ir.Module.parse(f"func.func @main(%x: {S32}) -> {S32} {{ return %x : {S32} }}")
        block = module.body.operations[0].regions[0].blocks[0]
        x = block.arguments[0]
        place = ir.InsertionPoint(block.operations[0])
        for level in range(depth):
            with place:
                op = ir.Operation.create("stablehlo.case", results=[x.type], operands=[x], regions=1)
            if level:
                with ir.InsertionPoint(block):
                    ir.Operation.create("stablehlo.return", operands=[op.results[0]])
            block = op.regions[0].blocks.append()
            place = ir.InsertionPoint(block)
        with place:
            ir.Operation.create("stablehlo.return", operands=[x])
    return module


# ---- depth -----------------------------------------------------------------------------------------------------------


def test_a_chain_of_thousands_of_calls() -> None:
    assert sx.compile(calls(2000, STRAIGHT))(np.int32(3)) == 3 * 2001


def test_calls_in_branches_that_come_to_deep_nesting() -> None:
    with pytest.raises(sx.UnsupportedError, match="regions nested more than 1000 deep"):
        sx.compile(calls(1500, IN_A_BRANCH))


@pytest.mark.parametrize("use", [sx.compile, sx.load])
def test_a_module_that_is_nested_too_deep(use: Callable[[ir.Module], object]) -> None:
    with pytest.raises(sx.UnsupportedError, match="regions nested more than 1000 deep"):
        use(nested(1500))


def test_a_module_that_is_nested_deep() -> None:
    assert sx.compile(nested(300))(np.int32(3)) == 3


def branches(depth: int) -> str:
    """Return branches in branches, of which each adds x to the result of the one inside."""
    type_ = f"({S32}) -> {S32}"
    opened = [f'%r{i} = "stablehlo.case"(%x) ({{ stablehlo.return %x : {S32} }}, {{' for i in range(depth)]
    closed = [
        f"%a{i} = stablehlo.add %r{i + 1}, %x : {S32} stablehlo.return %a{i} : {S32} }}) : {type_}"
        for i in reversed(range(depth - 1))
    ]
    innermost = f"stablehlo.return %x : {S32} }}) : {type_}"
    return "\n".join([f"func.func @main(%x: {S32}) -> {S32} {{", *opened, innermost, *closed, f"return %r0 : {S32} }}"])


def loops(depth: int) -> str:
    """Return loops in loops, of which each doubles a number until it is 2 or more."""
    opened = [
        f"%r{i} = stablehlo.while(%v{i} = %x{i}) : {S32} cond {{ %c{i} = stablehlo.compare LT, %v{i}, %n : "
        f"({S32}, {S32}) -> tensor<i1> stablehlo.return %c{i} : tensor<i1> }} do {{ "
        f"%x{i + 1} = stablehlo.add %v{i}, %v{i} : {S32}"
        for i in range(depth)
    ]
    closed = [
        f"stablehlo.return %{name} : {S32} }}" for name in (f"x{depth}", *(f"r{i}" for i in range(depth - 1, 0, -1)))
    ]
    begin = f"func.func @main(%x0: {S32}) -> {S32} {{ %n = stablehlo.constant dense<2> : {S32}"
    return "\n".join([begin, *opened, *closed, f"return %r0 : {S32} }}"])


@pytest.mark.parametrize(("nest", "result"), [(branches, 80), (loops, 2)])
def test_regions_that_are_nested_deep(nest: Callable[[int], str], result: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run, or are refused before the passes that would take long for them."""
    assert sx.compile(nest(80))(np.int32(1)) == result
    monkeypatch.setattr(find, "Structures", None)
    with pytest.raises(sx.UnsupportedError, match="regions nested more than 100 deep") as caught:
        sx.compile(nest(480))
    assert "sys.setrecursionlimit" in str(caught.value)


def test_tuples_that_are_nested_too_deep() -> None:
    shape = sx.s32[2]
    for _ in range(100):
        shape = sx.Shape.tuple((shape,))
    assert shape.leaf_count == 1
    with pytest.raises(sx.ShapeError, match="tuples nested more than 100 deep"):
        sx.Shape.tuple((shape,))
    with pytest.raises(sx.ShapeError):
        sx.Shape.parse("(" * 500 + "s32[]" + ")" * 500)


# ---- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", ["f32", "bf16", "i1", "complex<f32>", "f8E4M3FN", "i4"])
def test_a_constant_of_one_number_is_not_written_out(element: str) -> None:
    number = {"i1": "true", "i4": "3", "complex<f32>": "(1.5, 2.0)"}.get(element, "1.5")
    text = f"""func.func @main() -> tensor<1xi32> {{
      %0 = stablehlo.constant dense<{number}> : tensor<1000000000000x{element}>
      %1 = stablehlo.slice %0 [7:8] : (tensor<1000000000000x{element}>) -> tensor<1x{element}>
      %2 = stablehlo.convert %1 : (tensor<1x{element}>) -> tensor<1xi32>
      return %2 : tensor<1xi32>
    }}"""
    executable = sx.compile(text)
    if element == "complex<f32>":  # written out when it runs: 8 TB, and refused
        assert executable.memory_estimate().arena == 8 * 10**12
    else:
        assert executable.memory_estimate().total < 1 << 20
        assert executable()[0] == (3 if element == "i4" else 1)


@pytest.mark.parametrize("where", ["(%x: {0}) -> {1}", "(%y: {1}, %x: {0}) -> {1}"])
def test_arrays_that_no_address_reaches(where: str) -> None:
    huge, small = "tensor<4294967296x4294967296xf32>", "tensor<2xf32>"
    body = f"%0 = stablehlo.constant dense<1.0> : {small} return %0 : {small}"
    text = f"func.func @main{where.format(huge, small)} {{ {body} }}"
    with pytest.raises(sx.UnsupportedError, match=r"an array of 2\^63 bytes or more"):
        sx.compile(text)


def test_ranks() -> None:
    for rank, way in ((64, "runs"), (65, "refused"), (300, "inside")):
        b = sx.XlaBuilder("rank")
        shape = (1,) * (rank - 1) + (2,)
        x = b.parameter(0, sx.f32[2] if way == "inside" else sx.Shape("f32", shape))
        y = sx.transpose(sx.exp(sx.reshape(x, shape)), tuple(reversed(range(rank))))
        program = b.build(sx.reshape(y, (2,)))
        if way == "refused":
            with pytest.raises(sx.UnsupportedError, match="an array of rank 65 as a parameter or result: numpy"):
                sx.compile(program)
        else:
            made = sx.compile(program)(np.zeros(program.parameter_shapes[0].dimensions, np.float32))
            np.testing.assert_array_equal(made, [1, 1])


def test_names_of_a_megabyte() -> None:
    name = "n" * (1 << 20)
    b = sx.XlaBuilder(name)
    program = b.build(b.parameter(0, sx.s32[()], name=name) + 1)
    assert sx.compile(program)(np.int32(2)) == 3
    assert sx.compile(str(program))(np.int32(2)) == 3


def test_hundreds_of_parameters_and_results() -> None:
    b = sx.XlaBuilder("many")
    given = [b.parameter(i, sx.s32[2]) for i in range(300)]
    made = sx.compile(b.build(sx.tuple([x + i for i, x in enumerate(given)])))(*[np.zeros(2, np.int32)] * 300)
    assert [int(x[1]) for x in made] == list(range(300))


def test_thousands_of_kernels() -> None:
    """Their calls are several blocks of machine code; a permutation of order 4 tells how many ran."""
    turn = np.roll(np.eye(4, dtype=np.float32), 1, axis=1)
    np.testing.assert_array_equal(sx.compile(program("products", 2003))(turn), -np.linalg.matrix_power(turn, 3))


def test_the_search_for_equal_stretches_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of two alternating operations has hundreds of periods, none of which is of use: a reversal may fuse."""
    work = 0
    original = search._repeat_at

    def counted(flow: object, seams: object, period: search.Period, start: int) -> object:
        nonlocal work
        work += period.end - start
        return original(flow, seams, period, start)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "_repeat_at", counted)
    operations = ("reverse %{}, dims = [0]", "add %{}, %x")
    lines = [f"%{i} = stablehlo.{operations[i % 2].format(i - 1)} : tensor<8xf32>" for i in range(1, 2000)]
    text = "\n".join(
        ["func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> { %0 = stablehlo.abs %x : tensor<8xf32>", *lines]
    )
    module = load(f"{text} return %1999 : tensor<8xf32> }}")
    run_pipeline(module, Pipeline("repeats", [Step("repeats", "stablexla-find-repeats")]))
    assert 10_000 < work < 2 * search.MOST_WORK
