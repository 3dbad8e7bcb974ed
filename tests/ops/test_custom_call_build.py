"""How custom calls are written down, and what is refused."""

from __future__ import annotations

import re

import stablexla as sx
from tests.ops.building import build, refused

X, TOKEN = sx.f32[2], sx.Shape.token()


def call(*args, **named):
    return lambda x: sx.custom_call("f", x, *args, **named)


def test_the_specifications_example():
    b = sx.XlaBuilder("example")
    x, y = b.parameter(0, sx.f32[2]), b.parameter(1, sx.f32[2, 3])
    made = sx.custom_call("myfunc", (x, y), sx.f32[3, 3])
    assert str(made.shape) == "f32[3,3]"
    assert "stablehlo.custom_call @myfunc(%arg0, %arg1)" in str(b.build(made))


def test_parameters_by_keyword():
    made = build(lambda x: sx.custom_call(target_name="f", args=x, shape=X, opaque="abc", has_side_effect=True), X)
    assert 'backend_config = "abc"' in str(made)
    assert "has_side_effect = true" in str(made)
    assert "api_version" not in str(made)  # 1 is not printed


def test_tuples_tokens_and_attributes():
    shape = sx.Shape.tuple((X, TOKEN))
    made = build(
        lambda x: sx.custom_call(
            "f", (x, x.builder.create_token()), shape, {"axis": 1}, api_version="API_VERSION_TYPED_FFI"
        ),
        X,
    )
    assert "api_version = 4 : i32" in str(made)
    assert "backend_config = {axis = 1 : i64}" in str(made)
    assert made.result_shape == shape


def test_aliases():
    pair = sx.Shape.tuple((X, X))
    one = build(call(X, output_operand_aliasing=((0, 0),)), X)
    assert "output_tuple_indices = [], operand_index = 0" in str(one)
    assert "output_tuple_indices = [1], operand_index = 0" in str(
        build(call(pair, output_operand_aliasing=((1, 0),)), X)
    )
    assert "argument 0 is f32[2], result 0 f32[3]" in str(
        refused("", lambda x: sx.custom_call("f", x, sx.f32[3], output_operand_aliasing=((0, 0),)), X)
    )
    assert "no pair of result 0 and argument 1" in str(
        refused("", lambda x: sx.custom_call("f", x, X, output_operand_aliasing=((0, 1),)), X)
    )


def test_without_arguments():
    b = sx.XlaBuilder("test")
    assert str(b.custom_call("f", (), X).shape) == "f32[2]"
    assert "b.custom_call(target_name, (), shape)" in str(refused("", lambda x: sx.custom_call("f", (), X), X))


def test_refusals():
    for message, make in {
        "target_name must be a name": lambda x: sx.custom_call("", x, X),
        "shape must be a Shape": lambda x: sx.custom_call("f", x, "f32[2]"),
        "api_version must be one of": lambda x: sx.custom_call("f", x, X, api_version="1"),
        "opaque must be a text": lambda x: sx.custom_call("f", x, X, {"axis": 1}),
        "opaque must be a mapping": lambda x: sx.custom_call("f", x, X, "a", api_version="API_VERSION_TYPED_FFI"),
        "args[0] belongs to the builder 'other'": lambda x: x.builder.custom_call(
            "f", sx.XlaBuilder("other").parameter(0, X), X
        ),
    }.items():
        assert message in str(refused("", make, X))


def test_tuples_stand_as_their_arrays() -> None:
    pair, nested = sx.Shape.tuple((X, sx.s32[3])), sx.Shape.parse("(f32[2], (s32[3], (pred[])), ())")
    made = build(lambda p, x: sx.custom_call("f", (p, x), nested), pair, X)
    assert made.result_shape == nested
    assert "@f(%arg0, %arg1, %arg2)" in str(made)
    assert 'stablexla.arguments = "((f32[2], s32[3]), f32[2])"' in str(made)
    assert 'stablexla.result = "(f32[2], (s32[3], (pred[])), ())"' in str(made)
    flat = str(build(lambda x: sx.custom_call("f", x, pair), X))
    assert "stablexla." not in flat


def test_aliases_inside_of_tuples() -> None:
    pair, nested = sx.Shape.tuple((sx.s32[3], X)), sx.Shape.parse("(s32[3], (pred[], f32[2]))")
    make = lambda a, p: sx.custom_call("f", (a, p), nested, output_operand_aliasing=[((1, 1), (1, 1)), (0, (1, 0))])  # noqa: E731
    text = str(build(make, X, pair))
    assert "output_tuple_indices = [2], operand_index = 2" in text
    assert "output_tuple_indices = [0], operand_index = 1" in text
    for wrong in ([(1, 0)], [((1, 2), 0)], [(0, (1,))], [((0, 0), 0)], [((), 0)]):
        make = lambda a, p, w=wrong: sx.custom_call("f", (a, p), nested, output_operand_aliasing=w)  # noqa: E731
        assert "there is no pair" in str(refused("", make, X, pair))
    for wrong in (5, [0], [(0,)], ["ab"], [(0, 0, 0)], [(0.5, 0)]):
        make = lambda a, p, w=wrong: sx.custom_call("f", (a, p), nested, output_operand_aliasing=w)  # noqa: E731
        assert re.search(r"output_operand_aliasing\S* must be", str(refused("", make, X, pair)))


def test_a_single_argument_of_the_builders_method() -> None:
    assert "@f(%arg0)" in str(build(lambda x: x.builder.custom_call("f", x, X), X))


# ---- layouts and computations ----------------------------------------------------------------------------------------


def larger(element: str = "f32") -> sx.XlaComputation:
    b = sx.XlaBuilder("larger")
    return b.build(b.parameter(0, sx.Shape(element)) > b.parameter(1, sx.Shape(element)))


def test_layouts() -> None:
    make = lambda x, y: sx.custom_call_with_layout(  # noqa: E731
        "f", (x, y), "(f32[2,3]{0,1}, s32[4])", ["f32[3,2]{0,1}", sx.f32[()]]
    )
    made = build(make, sx.f32[3, 2], sx.f32[()])
    assert str(made.result_shape) == "(f32[2,3], s32[4])"
    assert "operand_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]" in str(made)
    assert "result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>]" in str(made)


def test_refused_layouts() -> None:
    def make(x, result="f32[2]", operands=("f32[2]",)):
        return sx.custom_call_with_layout("f", x, result, operands)

    for message, given in {
        "must be a Shape or XLA's text of one": {"result": 5},
        "shape_with_layout: 'f32[2' is no shape": {"result": "f32[2"},
        "must name each dimension of f32[2] once": {"result": "f32[2]{1}"},
        "and say no more": {"operands": ["f32[2]{0:T(128)}"]},
        "must be the shapes of the arguments": {"operands": ["f32[3]"]},
        "must be a sequence of shapes": {"operands": "f32[2]"},
    }.items():
        with_given = lambda x, g=given: make(x, **g)  # noqa: E731
        assert message in str(refused("", with_given, X))
    assert "must be the shapes of the arguments" in str(refused("", lambda x: make(x, operands=()), X))


def test_computations() -> None:
    make = lambda x: sx.custom_call_with_computation("f", x, larger(), X)  # noqa: E731
    text = str(build(make, X))
    assert "called_computations = [@larger]" in text
    assert "func.func private @larger(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<i1>" in text
    for wrong in (None, sx.gt, "larger"):
        refused("", lambda x, w=wrong: sx.custom_call_with_computation("f", x, w, X), X)
    both = lambda x: sx.custom_call_with_computation_and_layouts("f", x, larger(), "f32[2]{0}", ["f32[2]"])  # noqa: E731
    assert "called_computations = [@larger]" in str(build(both, X))
    assert "operand_layouts" in str(build(both, X))


def test_computations_in_functions_of_the_same_name() -> None:
    """A function that is taken in under another name is also called by that."""
    inner = build(lambda x: sx.custom_call_with_computation("f", x, larger(), X), X)
    text = str(build(lambda x: sx.custom_call_with_computation("f", sx.call(inner, x), larger("f64"), X), X))
    assert "called_computations = [@larger]" in text
    assert "called_computations = [@larger_1]" in text
    assert "func.func private @larger_1(%arg0: tensor<f64>" in text
