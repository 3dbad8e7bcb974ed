"""Programs with dimensions of unknown extent: compiled for the shapes that come, once for each.

Results are compared with numpy, and with StableHLO's interpreter on the program once its shapes are known.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.compiling import compiler
from tests.comparison import assert_same
from tests.oracles import interpreter
from tests.threads import in_threads

F32 = np.float32
ADD = """func.func @main(%x: tensor<?x3xf32> loc("x"), %v: tensor<3xf32> loc("v")) -> tensor<?x3xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %three = stablehlo.constant dense<3> : tensor<1xi32>
  %shape = stablehlo.concatenate %n1, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %w = stablehlo.dynamic_broadcast_in_dim %v, %shape, dims = [1] : (tensor<3xf32>, tensor<2xi32>) -> tensor<?x3xf32>
  %y = stablehlo.add %x, %w : tensor<?x3xf32>
  return %y : tensor<?x3xf32>
}"""


def vector(*body: str, result: str = "tensor<?xf32>", parameters: str = "%x: tensor<?xf32>") -> str:
    """A program on a vector; %n is its size, %s an array of that, and %r the result."""
    start = """%n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %two = stablehlo.constant dense<2> : tensor<1xi32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>"""
    lines = "\n  ".join([start, *body, f"return %r : {result}"])
    return f"func.func @main({parameters}) -> {result} {{\n  {lines}\n}}"


def sized(*body: str) -> str:
    """A program that counts to a size, %t, which it computes from %n."""
    return vector(
        *body,
        "%u = stablehlo.reshape %t : (tensor<i32>) -> tensor<1xi32>",
        "%r = stablehlo.dynamic_iota %u, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>",
    )


V = "tensor<?xf32>"
I1 = "tensor<1xi32>"
# Each dynamic operation: the program, and numpy.
OPERATIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "dynamic_reshape": (
        vector(
            "%t = stablehlo.divide %s, %two : tensor<1xi32>",
            f"%shape = stablehlo.concatenate %t, %two, dim = 0 : ({I1}, {I1}) -> tensor<2xi32>",
            f"%r = stablehlo.dynamic_reshape %x, %shape : ({V}, tensor<2xi32>) -> tensor<?x2xf32>",
            result="tensor<?x2xf32>",
        ),
        lambda x: x.reshape(-1, 2),
    ),
    "dynamic_iota": (sized("%t = stablehlo.add %n, %n : tensor<i32>"), lambda x: np.arange(2 * x.size, dtype=F32)),
    "dynamic_pad": (
        vector(f"%r = stablehlo.dynamic_pad %x, %z, %s, %one, %two : ({V}, tensor<f32>, {I1}, {I1}, {I1}) -> {V}"),
        lambda x: np.concatenate([np.zeros(x.size), np.kron(x, [1, 0, 0])[:-2], [0]]).astype(F32),
    ),
    "dynamic_slice": (
        vector(
            "%i = stablehlo.constant dense<9> : tensor<i32>",
            f"%r = stablehlo.dynamic_slice %x, %i, sizes = [2] : ({V}, tensor<i32>) -> tensor<2xf32>",
            result="tensor<2xf32>",
        ),
        lambda x: x[-2:],
    ),
    "dynamic_update_slice": (
        vector(
            "%i = stablehlo.constant dense<1> : tensor<i32>",
            "%p = stablehlo.constant dense<7.0> : tensor<2xf32>",
            f"%r = stablehlo.dynamic_update_slice %x, %p, %i : ({V}, tensor<2xf32>, tensor<i32>) -> {V}",
        ),
        lambda x: np.concatenate([x[:1], [7, 7], x[3:]]).astype(F32),
    ),
    "real_dynamic_slice": (
        vector(f"%r = stablehlo.real_dynamic_slice %x, %one, %s, %two : ({V}, {I1}, {I1}, {I1}) -> {V}"),
        lambda x: x[1::2],
    ),
    "dynamic_gather": (
        vector(
            "%i = stablehlo.constant dense<[[1], [0]]> : tensor<2x1xi32>",
            f'%r = "stablehlo.dynamic_gather"(%x, %i, %two) {{dimension_numbers = #stablehlo.gather<offset_dims = [1], '
            "start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false} : "
            f"({V}, tensor<2x1xi32>, {I1}) -> tensor<2x?xf32>",
            result="tensor<2x?xf32>",
        ),
        lambda x: np.stack([x[1:3], x[:2]]),
    ),
    "while": (
        vector(
            "%i = stablehlo.constant dense<0> : tensor<i32>",
            "%o = stablehlo.constant dense<1> : tensor<i32>",
            f"%r, %j = stablehlo.while(%a = %x, %b = %i) : {V}, tensor<i32> cond {{",
            f"  %m = stablehlo.get_dimension_size %a, dim = 0 : ({V}) -> tensor<i32>",
            "  %p = stablehlo.compare LT, %b, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>",
            "  stablehlo.return %p : tensor<i1>",
            "} do {",
            f"  %y = stablehlo.add %a, %a : {V}",
            "  %k = stablehlo.add %b, %o : tensor<i32>",
            f"  stablehlo.return %y, %k : {V}, tensor<i32>",
            "}",
        ),
        lambda x: x * F32(2**x.size),
    ),
    "case": (
        vector(
            f'%r = "stablehlo.case"(%n) ({{ stablehlo.return %x : {V} }}, '
            f"{{ %y = stablehlo.negate %x : {V}\n stablehlo.return %y : {V} }}) : (tensor<i32>) -> {V}"
        ),
        lambda x: -x,
    ),
    "conv": (
        """func.func @main(%x: tensor<1x?x1xf32>, %w: tensor<2x1x1xf32>) -> tensor<1x?x1xf32> {
  %p = stablehlo.constant dense<[[1, 0]]> : tensor<1x2xi32>
  %r = "stablehlo.dynamic_conv"(%x, %w, %p) {dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>,
    feature_group_count = 1 : i64, batch_group_count = 1 : i64}
    : (tensor<1x?x1xf32>, tensor<2x1x1xf32>, tensor<1x2xi32>) -> tensor<1x?x1xf32>
  return %r : tensor<1x?x1xf32>
}""",
        lambda x, w: np.correlate(np.concatenate([[0], x[0, :, 0]]), w[:, 0, 0], "valid").astype(F32).reshape(1, -1, 1),
    ),
    "shape and tensor dialects": (
        """func.func @main(%x: tensor<?x3xf32>, %v: tensor<3xf32>) -> tensor<?x?xf32> {
  %s = shape.shape_of %x : tensor<?x3xf32> -> tensor<2xindex>
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %n = tensor.dim %x, %c0 : tensor<?x3xf32>
  %t = tensor.from_elements %n, %c3 : tensor<2xindex>
  %a = stablehlo.dynamic_broadcast_in_dim %v, %s, dims = [1] : (tensor<3xf32>, tensor<2xindex>) -> tensor<?x3xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %v, %t, dims = [1] : (tensor<3xf32>, tensor<2xindex>) -> tensor<?x?xf32>
  %y = "stablehlo.add"(%a, %x) : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
  %z = "stablehlo.add"(%b, %y) : (tensor<?x?xf32>, tensor<?x3xf32>) -> tensor<?x?xf32>
  return %z : tensor<?x?xf32>
}""",
        lambda x, v: x + v + v,
    ),
    "chlo broadcast": (
        """func.func @main(%x: tensor<?x3xf32>, %v: tensor<?xf32>) -> tensor<?x3xf32> {
  %y = chlo.broadcast_multiply %x, %v : (tensor<?x3xf32>, tensor<?xf32>) -> tensor<?x3xf32>
  return %y : tensor<?x3xf32>
}""",
        lambda x, v: x * v,
    ),
}
ARGUMENTS = {
    "conv": [np.arange(4, dtype=F32).reshape(1, 4, 1), np.array([2, 3], F32).reshape(2, 1, 1)],
    "shape and tensor dialects": [np.arange(6, dtype=F32).reshape(2, 3), np.array([1, 2, 3], F32)],
    "chlo broadcast": [np.arange(6, dtype=F32).reshape(2, 3), np.array([1, 2, 3], F32)],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str) -> None:
    text, expected = OPERATIONS[name]
    arguments = ARGUMENTS.get(name, [np.array([3, 1, 4, 1], F32)])
    executable = sx.compile(text)
    (result,) = executable.execute(arguments)
    assert_same(result, expected(*arguments))
    assert "?" not in executable.specialize(arguments).ir("shapes")
    (reference,) = interpreter(executable.specialize(arguments).ir("stablehlo"), arguments)
    assert_same(result, reference)


# As exporters from PyTorch write sizes: each takes arrays of ones, of four columns.
OTHER_DIALECTS = {
    "view": """func.func @main(%x: tensor<?x4xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : i64
  %d = tensor.dim %x, %c0 : tensor<?x4xf32>
  %i = arith.index_cast %d : index to i64
  %m = arith.muli %i, %c4 : i64
  %s = tensor.from_elements %m : tensor<1xi64>
  %r = stablehlo.dynamic_reshape %x, %s : (tensor<?x4xf32>, tensor<1xi64>) -> tensor<?xf32>
  return %r : tensor<?xf32> }""",
    "cast": """func.func @main(%x: tensor<?x4xf32>) -> tensor<?x?xf32> {
  %y = stablehlo.add %x, %x : tensor<?x4xf32>
  %r = tensor.cast %y : tensor<?x4xf32> to tensor<?x?xf32>
  return %r : tensor<?x?xf32> }""",
    "shape.broadcast": """func.func @main(%x: tensor<?x4xf32>, %y: tensor<?xf32>) -> tensor<?x?xf32> {
  %a = shape.shape_of %x : tensor<?x4xf32> -> tensor<2xindex>
  %b = shape.shape_of %y : tensor<?xf32> -> tensor<1xindex>
  %c = shape.broadcast %a, %b : tensor<2xindex>, tensor<1xindex> -> tensor<2xindex>
  %u = stablehlo.dynamic_broadcast_in_dim %x, %c, dims = [0, 1] : (tensor<?x4xf32>, tensor<2xindex>) -> tensor<?x?xf32>
  %v = stablehlo.dynamic_broadcast_in_dim %y, %c, dims = [1] : (tensor<?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
  %r = stablehlo.add %u, %v : tensor<?x?xf32>
  return %r : tensor<?x?xf32> }""",
    "extract": """func.func @main(%x: tensor<?x4xf32>) -> tensor<?xf32> {
  %a = shape.shape_of %x : tensor<?x4xf32> -> tensor<2xindex>
  %c0 = arith.constant 0 : index
  %e = tensor.extract %a[%c0] : tensor<2xindex>
  %s = tensor.from_elements %e : tensor<1xindex>
  %r = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xindex>) -> tensor<?xf32>
  return %r : tensor<?xf32> }""",
    "assuming": """func.func @main(%x: tensor<?x4xf32>, %y: tensor<?xf32>) -> tensor<?x4xf32> {
  %a = shape.shape_of %x : tensor<?x4xf32> -> tensor<2xindex>
  %b = shape.shape_of %y : tensor<?xf32> -> tensor<1xindex>
  %w = shape.cstr_broadcastable %a, %b : tensor<2xindex>, tensor<1xindex>
  %r = shape.assuming %w -> (tensor<?x4xf32>) {
    %c = shape.broadcast %a, %b : tensor<2xindex>, tensor<1xindex> -> tensor<2xindex>
    %v = stablehlo.dynamic_broadcast_in_dim %y, %c, dims = [1] : (tensor<?xf32>, tensor<2xindex>) -> tensor<?x4xf32>
    %q = stablehlo.add %x, %v : tensor<?x4xf32>
    shape.assuming_yield %q : tensor<?x4xf32>
  }
  return %r : tensor<?x4xf32> }""",
    "cmp": """func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %d = tensor.dim %x, %c0 : tensor<?x4xf32>
  %e = tensor.dim %y, %c0 : tensor<?x4xf32>
  %p = arith.cmpi eq, %d, %e : index
  cf.assert %p, "mismatched size for broadcast"
  %q = stablehlo.add %x, %y : tensor<?x4xf32>
  return %q : tensor<?x4xf32> }""",
    "const": """func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c = arith.constant dense<1.0> : tensor<f32>
  %s = shape.shape_of %x : tensor<?x4xf32> -> tensor<2xindex>
  %v = stablehlo.dynamic_broadcast_in_dim %c, %s, dims = [] : (tensor<f32>, tensor<2xindex>) -> tensor<?x4xf32>
  %q = stablehlo.add %x, %v : tensor<?x4xf32>
  return %q : tensor<?x4xf32> }""",
    "num_elements": """func.func @main(%x: tensor<?x4xf32>) -> tensor<?xf32> {
  %s = shape.shape_of %x : tensor<?x4xf32> -> tensor<2xindex>
  %n = shape.num_elements %s : tensor<2xindex> -> index
  %t = tensor.from_elements %n : tensor<1xindex>
  %q = stablehlo.dynamic_reshape %x, %t : (tensor<?x4xf32>, tensor<1xindex>) -> tensor<?xf32>
  return %q : tensor<?xf32> }""",
}


@pytest.mark.parametrize("name", OTHER_DIALECTS)
def test_sizes_in_other_dialects(name: str) -> None:
    text = OTHER_DIALECTS[name]
    arguments = [np.ones((3, 4), F32)] + [np.ones((3, 4)[1 - rank :], F32) for rank in _ranks_of_y(text)]
    executable = sx.compile(text)
    (result,) = executable.execute(arguments)
    (reference,) = interpreter(executable.specialize(arguments).ir("stablehlo"), arguments)
    assert_same(result, reference)
    assert result.size in (3, 12)


def _ranks_of_y(text: str) -> list[int]:
    """Whether there is a second parameter, and its rank less one."""
    match = re.search(r"%y: tensor<((?:[?4]x)+)f32>", text)
    return [match[1].count("x") - 1] if match else []


def test_an_assertion_in_another_dialect() -> None:
    with pytest.raises(sx.ExecutionError, match="mismatched size for broadcast"):
        sx.compile(OTHER_DIALECTS["cmp"])(np.ones((3, 4), F32), np.ones((2, 4), F32))


def test_an_operation_of_another_dialect_that_is_not_known() -> None:
    text = f"func.func @main(%x: {V}) -> {V} {{\n  %y = tensor.empty() : tensor<4xf32>\n  return %x : {V}\n}}"
    with pytest.raises(sx.UnsupportedError, match=r"tensor.empty: it is not known here(.|\n)*:2:8"):
        sx.compile(text)(np.ones(3, F32))


# What a size may be computed with; StableHLO's own pass folds the first ones, ours the others.
SIZES = {
    "divide": (["%t = stablehlo.divide %n, %d : tensor<i32>"], 2),
    "remainder": (["%t = stablehlo.remainder %n, %d : tensor<i32>"], 1),
    "negate": (["%a = stablehlo.negate %n : tensor<i32>", "%t = stablehlo.abs %a : tensor<i32>"], 5),
    "power": (["%t = stablehlo.power %n, %d : tensor<i32>"], 25),
    "floats": (
        [
            "%f = stablehlo.convert %n : (tensor<i32>) -> tensor<f32>",
            "%h = stablehlo.constant dense<0.3> : tensor<f32>",
            "%g = stablehlo.multiply %f, %h : tensor<f32>",
            "%c = stablehlo.ceil %g : tensor<f32>",
            "%t = stablehlo.convert %c : (tensor<f32>) -> tensor<i32>",
        ],
        2,
    ),
    "reduce": (
        [
            f"%p = stablehlo.concatenate %s, %two, dim = 0 : ({I1}, {I1}) -> tensor<2xi32>",
            "%e = stablehlo.constant dense<1> : tensor<i32>",
            "%t = stablehlo.reduce(%p init: %e) applies stablehlo.multiply across dimensions = [0]"
            " : (tensor<2xi32>, tensor<i32>) -> tensor<i32>",
        ],
        10,
    ),
    "of booleans": (
        [
            "%b = stablehlo.compare GT, %n, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>",
            "%t = stablehlo.select %b, %d, %n : tensor<i1>, tensor<i32>",
        ],
        2,
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_computed(name: str) -> None:
    lines, size = SIZES[name]
    executable = sx.compile(sized("%d = stablehlo.constant dense<2> : tensor<i32>", *lines))
    assert_same(executable(np.zeros(5, F32)), np.arange(size, dtype=F32))


@pytest.mark.parametrize(("name", "size"), [("divide", -1), ("remainder", 5)])
def test_sizes_divided_by_zero(name: str, size: int) -> None:
    """The processor's division by zero would end the process in StableHLO's folder: as in XLA it is -1 and n."""
    executable = sx.compile(
        sized("%q = stablehlo.subtract %n, %n : tensor<i32>", f"%t = stablehlo.{name} %n, %q : tensor<i32>")
    )
    if size < 0:
        with pytest.raises(sx.StablexlaError):
            executable(np.zeros(5, F32))
    else:
        assert executable(np.zeros(5, F32)).shape == (size,)


def test_one_program_for_each_shape() -> None:
    executable = sx.compile(ADD)
    for rows in (2, 5, 2, 0):
        x = np.arange(3 * rows, dtype=F32).reshape(rows, 3)
        assert_same(executable(x, np.array([1, 2, 3], F32)), x + np.array([1, 2, 3], F32))
    assert list(executable.specializations) == [((5, 3), (3,)), ((2, 3), (3,)), ((0, 3), (3,))]
    two = executable.specialize([(2, 3), np.zeros(3)])
    assert two is executable.specializations[(2, 3), (3,)] is executable.specialize([sx.f32[2, 3], (3,)])
    assert [str(p) for p in executable.parameters] == ["f32[?,3]", "f32[3]"]
    assert [p.name for p in executable.parameters] == ["x", "v"]
    assert repr(executable) == "ShapedExecutable('main', (f32[?,3], f32[3]) -> (f32[?,3]), target='cpu')"


def test_the_longest_unused_program_goes() -> None:
    executable = sx.compile(ADD)
    executable.limit = 2
    v = np.zeros(3, F32)
    for rows in (1, 2, 1, 3):
        executable(np.zeros((rows, 3), F32), v)
    assert [shapes[0][0] for shapes in executable.specializations] == [1, 3]


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was compiled, as it is."""
    made: list[Any] = []
    compile_ = compiler.compile

    def note(program: Any, **options: Any) -> Any:
        made.append(program)
        return compile_(program, **options)

    monkeypatch.setattr(compiler, "compile", note)
    return made


def test_threads_that_come_together_compile_once(compilations: list[Any]) -> None:
    executable = sx.compile(ADD)
    barrier, results = threading.Barrier(4), list[Any]()

    def call(_: int) -> None:
        barrier.wait()
        results.append(executable(np.ones((4, 3), F32), np.ones(3, F32)))

    in_threads(call, range(4))
    assert len(compilations) == 1
    for result in results:
        assert_same(result, np.full((4, 3), 2, F32))


def test_a_compilation_that_failed_is_tried_again() -> None:
    executable = sx.compile(OPERATIONS["dynamic_reshape"][0])
    for _ in range(2):
        with pytest.raises(sx.ExecutionError, match="do not fit the program"):
            executable(np.zeros(3, F32))
    assert not executable.specializations


def test_stages_of_a_program_for_shapes() -> None:
    executable = sx.compile(ADD)
    assert executable.ir("source").count("?") == ADD.count("?")
    with pytest.raises(sx.CompileError, match=r"specialize\(\[\(2, 3\), \(3,\)\]\)"):
        executable.ir("tensor")
    with pytest.raises(sx.CompileError, match="whose shapes are known"):
        _ = executable.kernels
    two = executable.specialize([(2, 3), (3,)])
    assert two.stages[:3] == ("source", "shapes", "stablehlo")
    assert two.ir("source") == executable.ir("source")
    assert "types=tensor<2x3xf32>,tensor<3xf32>" in str(two.pipeline)
    assert "tensor<2x3xf32>" in two.ir("tensor")
    assert [k.kind for k in two.kernels] == ["loop"]


def test_methods_are_those_of_the_program_for_the_shapes() -> None:
    """Each compiles for the shapes of its arguments; what has no arguments names the way to one that knows them."""
    executable = sx.compile("""func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.log %x : tensor<?xf32>
  return %0 : tensor<?xf32>
}""")
    x = np.array([1, 2, 3], F32)
    assert_same(executable.start([x]).result()[0], np.log(x))
    assert_same(executable.execute(arguments=[x], donate=True)[0], np.log(x))
    assert executable.compare([x], "plain", cause=False)
    assert [row.kernel.kind for row in executable.profile([x], runs=1).kernels] == ["loop"]
    assert executable.check([x]) is None
    finding = executable.check([np.array([1, -1], F32)])
    assert finding is not None
    assert finding.index == (1,)
    assert list(executable.specializations) == [((3,),), ((2,),)]
    for asked in (
        executable.explain,
        executable.memory_estimate,
        lambda: executable.aliases,
        lambda: executable.save("x"),
    ):
        with pytest.raises(sx.CompileError, match="this needs a program whose shapes are known") as raised:
            asked()
        assert raised.value.hint == "executable.specialize([(2,)])"


def test_only_results_of_unknown_extent() -> None:
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<?x?xf32> {
  %s = stablehlo.constant dense<2> : tensor<2xi32>
  %y = stablehlo.dynamic_reshape %x, %s : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}"""
    executable = sx.compile(text)
    assert type(executable) is sx.Executable
    assert_same(executable(np.arange(4, dtype=F32)), np.arange(4, dtype=F32).reshape(2, 2))


REFUSED: dict[str, tuple[str, list[Any], str]] = {
    "rank": (ADD, [np.zeros(3, F32), np.zeros(3, F32)], r"parameter 0 \(x\) takes f32\[\?,3\].*shape \[3\] came"),
    "extent": (ADD, [np.zeros((2, 4), F32), np.zeros(3, F32)], r"takes f32\[\?,3\].*shape \[2,4\] came"),
    "type": (ADD, [np.zeros((2, 3)), np.zeros(3, F32)], r"float32\[2,3\].*float64"),
    "count": (ADD, [np.zeros((2, 3), F32)], "takes 2 arguments, but 1 came"),
    "ragged": (ADD, [[[1.0], [1.0, 2.0]], np.zeros(3, F32)], "argument 0 is no array"),
    "rule": (
        "func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {\n"
        "  %z = stablehlo.add %x, %y : tensor<?xf32>\n  return %z : tensor<?xf32>\n}",
        [np.zeros(2, F32), np.zeros(3, F32)],
        r"do not fit the program: .*add(.|\n)*parameter 1  f32\[3\]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_do_not_fit(name: str) -> None:
    text, arguments, message = REFUSED[name]
    with pytest.raises(sx.ExecutionError, match=message):
        sx.compile(text)(*arguments)


def test_groups_without_devices() -> None:
    """StableHLO's own pass divides by their number."""
    text = """func.func @main(%x: tensor<4x16xf32>) -> tensor<4x?xf32> {
      %0 = "stablehlo.reduce_scatter"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %1 = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %1 : tensor<f32>
      }) {replica_groups = dense<0> : tensor<1x0xi64>, scatter_dimension = 1 : i64}
          : (tensor<4x16xf32>) -> tensor<4x?xf32>
      return %0 : tensor<4x?xf32>
    }"""
    with pytest.raises(sx.UnsupportedError, match="groups without devices"):
        sx.compile(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func.func private @main(tensor<?xf32>) -> tensor<?xf32>", "has no body"),
        (f"func.func @main(%x: index, %y: {V}) -> {V} {{ return %y : {V} }}", "a value of type index"),
    ],
)
def test_programs_that_are_refused(text: str, message: str) -> None:
    with pytest.raises((sx.UnsupportedError, sx.VerificationError), match=message):
        sx.compile(text)


@pytest.mark.parametrize("shape", [(-1,), (2**62,), (2**70,)])
def test_extents_that_no_array_has(shape: tuple[int, ...]) -> None:
    with pytest.raises((sx.ExecutionError, sx.UnsupportedError)):
        sx.compile(f"func.func @main(%x: {V}) -> {V} {{ return %x : {V} }}").specialize([shape])


def test_an_extent_that_depends_on_data() -> None:
    text = vector(f"%r = stablehlo.dynamic_iota %m, dim = 0 : ({I1}) -> {V}", parameters=f"%x: {V}, %m: {I1}")
    with pytest.raises(sx.UnsupportedError, match=r"dynamic_iota: the size of dimension 0 of the result(.|\n)*:8:8"):
        sx.compile(text)(np.zeros(2, F32), np.zeros(1, np.int32))


def test_in_a_process_of_its_own() -> None:
    """Shapes are found there too, and what is refused is told as it is here."""
    add = sx.compile(ADD, options=sx.CompileOptions(isolated=True))
    assert_same(add(np.ones((2, 3), F32), np.ones(3, F32)), np.full((2, 3), 2, F32))
    pairs = sx.compile(OPERATIONS["dynamic_reshape"][0], options=sx.CompileOptions(isolated=True))
    with pytest.raises(sx.ExecutionError, match=r"do not fit the program(.|\n)*parameter 0  f32\[3\]"):
        pairs(np.ones(3, F32))


def test_bounded_and_unknown_dimensions_together() -> None:
    text = """func.func @main(%x: tensor<?x?xf32, #stablehlo.bounds<4, ?>>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}"""
    with pytest.raises(sx.StablexlaError):
        sx.compile(text)


def test_seeds_reach_all_programs() -> None:
    text = vector(
        f'%r = "stablehlo.rng"(%z, %h, %s) {{rng_distribution = #stablehlo<rng_distribution UNIFORM>}}'
        f" : (tensor<f32>, tensor<f32>, {I1}) -> {V}"
    ).replace("  %n =", "  %h = stablehlo.constant dense<1.0> : tensor<f32>\n  %n =", 1)
    executable = sx.compile(text)
    x = np.zeros(3, F32)
    executable(x)
    executable.seed(7)
    first = executable(x)
    executable.seed(7)
    assert_same(executable(x), first)
    assert executable(np.zeros(5, F32)).shape == (5,)
