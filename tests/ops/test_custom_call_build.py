"""How custom calls are written down, and what is refused."""

from __future__ import annotations

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
        "args[0] must be an array or a token": lambda x: sx.custom_call("f", sx.tuple((x, x)), X),
        "shape must be a Shape": lambda x: sx.custom_call("f", x, "f32[2]"),
        "shape must be that of an array, or of a tuple of arrays": lambda x: sx.custom_call(
            "f", x, sx.Shape.parse("((f32[2]))")
        ),
        "api_version must be one of": lambda x: sx.custom_call("f", x, X, api_version="1"),
        "opaque must be a text": lambda x: sx.custom_call("f", x, X, {"axis": 1}),
        "opaque must be a mapping": lambda x: sx.custom_call("f", x, X, "a", api_version="API_VERSION_TYPED_FFI"),
        "args[0] belongs to the builder 'other'": lambda x: x.builder.custom_call(
            "f", sx.XlaBuilder("other").parameter(0, X), X
        ),
    }.items():
        assert message in str(refused("", make, X))
