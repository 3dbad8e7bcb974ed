"""The builder itself: shapes, constants, parameters, tuples, functions, locations, operators and what is refused.

Oracles: StableHLO's verifier and reference interpreter, and numpy for values.
"""

from __future__ import annotations

import gc
import operator
import pickle
import re
import threading

import jaxlib.mlir.ir as ir
import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.builder.constants import as_array, dense_attribute
from stablexla.dialects.constants import read_constant
from stablexla.dialects.contexts import stablehlo_context
from tests.ops.building import build, evaluate, refused, shape_of

ALL_TYPES = [t.name for t in sx.ELEMENT_TYPES]


class TestShape:
    def test_ways_to_write_one(self):
        assert sx.f32[2, 3] == sx.Shape("f32", (2, 3)) == sx.Shape(np.float32, [2, 3]) == sx.Shape(sx.f32, (2, 3))
        assert sx.f32[4] == sx.Shape("f32", (4,))
        assert sx.f32[()] == sx.Shape("f32") == sx.Shape("f32", ())
        assert sx.f32[()].is_scalar

    @pytest.mark.parametrize("name", ALL_TYPES)
    def test_every_element_type_is_exported(self, name):
        assert getattr(sx, name)[2].element_type.name == name
        assert str(getattr(sx, name)[2, 0]) == f"{name}[2,0]"

    @pytest.mark.parametrize("text", ["f32[2,3]", "pred[]", "token", "()", "(s32[], (f32[2], token), ())"])
    def test_text_reads_back(self, text):
        shape = sx.Shape.parse(text)
        assert str(shape) == text
        assert eval(repr(shape), {"Shape": sx.Shape}) == shape
        assert pickle.loads(pickle.dumps(shape)) == shape
        assert hash(sx.Shape.parse(text)) == hash(shape)

    def test_leaves_of_tuples(self):
        shape = sx.Shape.parse("(s32[], (f32[2], token), ())")
        assert shape.leaves == (sx.s32[()], sx.f32[2], sx.Shape.token())
        assert shape.leaf_count == 3
        assert [part.is_tuple for part in shape] == [False, True, True]
        assert shape.mlir == "tuple<tensor<i32>, tuple<tensor<2xf32>, !stablehlo.token>, tuple<>>"

    def test_different_shapes_differ(self):
        shapes = [
            sx.f32[2],
            sx.f32[2, 1],
            sx.s32[2],
            sx.Shape.tuple((sx.f32[2],)),
            sx.Shape.token(),
            sx.Shape.tuple(()),
        ]
        assert len(set(shapes)) == len(shapes)
        assert sx.f32[2] != "f32[2]"

    @pytest.mark.parametrize(
        "make",
        [
            lambda: sx.Shape("f33"),
            lambda: sx.Shape("f32", (-1,)),
            lambda: sx.Shape("f32", (1.5,)),
            lambda: sx.Shape("f32", 3),
            lambda: sx.Shape.parse("f32[2"),
            lambda: sx.Shape.parse("f32[2] f32"),
            lambda: sx.Shape.parse("(f32[2]"),
            lambda: sx.Shape.tuple((1,)),
            lambda: sx.Shape.tuple(()).element_type,
        ],
    )
    def test_refusals(self, make):
        with pytest.raises(sx.ShapeError):
            make()


class TestConstant:
    @pytest.mark.parametrize("name", ALL_TYPES)
    @pytest.mark.parametrize("dimensions", [(), (0,), (3,), (2, 3)])
    def test_every_type_keeps_its_bits(self, name, dimensions):
        """The attribute read back, for there are types that the interpreter does not take."""
        t = getattr(sx, name)
        bits = np.arange(np.prod(dimensions, dtype=int)).reshape(dimensions)
        array = (bits % 2).astype(t.dtype) if t.bits < 8 else (bits * 3 - 1).astype(t.dtype)
        b = sx.XlaBuilder("test")
        op = b.constant(array)
        assert op.shape == sx.Shape(t, dimensions)
        b.build(op)
        read = read_constant(op.values[0].owner, t, dimensions)
        assert (read.shape, read.dtype) == (array.shape, array.dtype)
        assert read.tobytes() == array.tobytes()

    @pytest.mark.parametrize(("name", "values"), [("s4", range(-8, 8)), ("u4", range(16)), ("s2", range(-2, 2))])
    def test_small_integers(self, name, values):
        attribute_type = ir.Type.parse(getattr(sx, name)[len(values)].mlir, stablehlo_context())
        attribute = dense_attribute(as_array(list(values), name), attribute_type)
        assert str(attribute).startswith(f"dense<[{', '.join(map(str, values))}]>")

    @pytest.mark.parametrize(
        ("value", "shape"),
        [
            (True, "pred[]"),
            (1, "s32[]"),
            (1.5, "f32[]"),
            (1j, "c64[]"),
            ([[1, 2], [3, 4]], "s32[2,2]"),
            ([1, 2.5], "f32[2]"),
            ([True, False], "pred[2]"),
            ([], "f32[0]"),
            (np.float64(1), "f64[]"),
            (np.int64([1]), "s64[1]"),
            (ml_dtypes.bfloat16(1), "bf16[]"),
            (np.zeros((2, 0), ml_dtypes.float8_e4m3fn), "f8e4m3fn[2,0]"),
        ],
    )
    def test_types_of_plain_values(self, value, shape):
        assert str(sx.XlaBuilder("test").constant(value).shape) == shape

    @pytest.mark.parametrize(
        ("value", "name", "expected"),
        [
            ([1, 2], "bf16", [1, 2]),
            (np.int8([1, -2]), "s4", [1, -2]),
            (2.5, "c128", 2.5),
            (np.inf, "f32", np.inf),
            (np.inf, "f16", np.inf),
            ([1.0, -np.inf], "f8e5m2", [1.0, -np.inf]),
            (65519, "f16", 65504),
            (6.9, "f4e2m1fn", 6),
            (-128, "s8", -128),
            (2**64 - 1, "u64", 2**64 - 1),
        ],
    )
    def test_conversions_that_keep_the_meaning(self, value, name, expected):
        array = as_array(value, name)
        assert array.dtype == getattr(sx, name).dtype
        np.testing.assert_array_equal(array, np.array(expected).astype(array.dtype))

    @pytest.mark.parametrize(
        ("value", "name"),
        [
            (128, "s8"),
            (-1, "u32"),
            (8, "s4"),
            (2**31, None),
            (2**70, None),
            (1.5, "s32"),
            (np.float32([1, 2]), "s32"),
            (1j, "f32"),
            (1, "pred"),
            (True, "f32"),
            ("1", None),
            ([[1], [2, 3]], None),
            (None, None),
            (object(), None),
        ],
    )
    def test_refusals(self, value, name):
        b = sx.XlaBuilder("test")
        with pytest.raises(sx.ShapeError, match="constant: "):
            b.constant(value, name)

    @pytest.mark.parametrize(
        ("value", "name", "message"),
        [
            (1e300, None, "1e+300 is out of the range of f32, -3.4028235e+38 to 3.4028235e+38"),
            (1e300, "bf16", "1e+300 is out of the range of bf16, -3.3895314e+38 to 3.3895314e+38"),
            ([1.0, -1e300], "f32", "-1e+300 is out of the range of f32"),
            (70000, "f16", "70000 is out of the range of f16, -65504 to 65504"),
            (np.float64([0, 1e300]), "f32", "1e+300 is out of the range of f32"),
            (ml_dtypes.bfloat16(2.0**100), "f16", "1.2676506002282294e+30 is out of the range of f16"),
            (1e9, "f8e4m3fn", "1000000000.0 is out of the range of f8e4m3fn, -448 to 448"),
            (np.inf, "f8e4m3fn", "inf is out of the range of f8e4m3fn"),
            (-1.0, "f8e8m0fnu", "-1.0 is out of the range of f8e8m0fnu, 5.8774718e-39 to 1.7014118e+38"),
            (7.1, "f4e2m1fn", "7.1 is out of the range of f4e2m1fn, -6 to 6"),
            (np.nan, "f6e3m2fn", "f6e3m2fn has no NaN"),
            (1e300j, None, "1e+300j is out of the range of c64"),
        ],
    )
    def test_numbers_that_would_become_infinite_or_nan(self, value, name, message):
        b = sx.XlaBuilder("test")
        with pytest.raises(sx.ShapeError, match=re.escape(f"constant: {message}")):
            b.constant(value, name)

    @pytest.mark.parametrize(
        "value", [np.ma.masked_array([1.0, 2.0]), [1, np.ma.masked], [[np.ma.masked_array([1.0, 2.0], [1, 0])]]]
    )
    def test_masked_arrays(self, value):
        with pytest.raises(sx.ShapeError, match=r"of a masked array[\s\S]*try: array\.filled"):
            sx.XlaBuilder("test").constant(value)
        with pytest.raises(sx.ShapeError):
            sx.XlaBuilder("test").parameter(0, sx.f32[2]) * value

    def test_an_infinity_is_written_as_one(self):
        with pytest.raises(sx.ShapeError, match=r"try: np\.inf, where infinity is meant"):
            sx.XlaBuilder("test").constant(1e300)
        with pytest.raises(sx.ShapeError) as raised:
            sx.XlaBuilder("test").constant(1e9, "f8e4m3fn")  # has none
        assert raised.value.hint == ""

    def test_memory_order_and_strides_do_not_matter(self):
        array = np.arange(12, dtype=np.int32).reshape(3, 4)
        for view in (array.T, array[::2, ::-1], np.asfortranarray(array)):
            np.testing.assert_array_equal(
                evaluate(lambda x, view=view: x + view_of(x, view), np.zeros_like(view)), view
            )

    def test_changing_the_array_afterwards_changes_nothing(self):
        array = np.zeros(3, np.int32)
        b = sx.XlaBuilder("test")
        op = b.constant(array)
        array[:] = 1
        assert "dense<0>" in str(b.build(op))


def view_of(x: sx.XlaOp, array: np.ndarray) -> sx.XlaOp:
    return x.builder.constant(array)


class TestParameters:
    def test_they_are_ordered_by_number(self):
        b = sx.XlaBuilder("test")
        second = b.parameter(1, sx.f32[3], "second")
        first = b.parameter(0, sx.Shape.tuple((sx.s32[()], sx.pred[2])), "first")
        third = b.parameter(2, sx.f32[3])
        computation = b.build(sx.tuple((second - third, first[0])))
        assert list(map(str, computation.parameter_shapes)) == ["(s32[], pred[2])", "f32[3]", "f32[3]"]
        assert computation.parameter_names == ("first", "second", "")
        text = str(computation)
        assert "%arg0: tensor<i32>, %arg1: tensor<2xi1>, %arg2: tensor<3xf32>, %arg3: tensor<3xf32>" in text
        assert "subtract %arg2, %arg3" in text

    def test_refusals(self):
        b = sx.XlaBuilder("test")
        x = b.parameter(2, sx.f32[3])
        for arguments in [(2, sx.f32[3]), (-1, sx.f32[3]), (1.5, sx.f32[3]), (0, "f32[3]")]:
            with pytest.raises(sx.ShapeError, match="parameter: "):
                b.parameter(*arguments)
        b.parameter(0, sx.f32[3])
        with pytest.raises(sx.ShapeError, match="parameter 1 is missing"):
            b.build(x)

    def test_name_is_its_location(self):
        text = build_named().text(locations=True)
        assert 'loc("the name"(' in text


def build_named() -> sx.XlaComputation:
    b = sx.XlaBuilder("test")
    return b.build(b.parameter(0, sx.f32[()], "the name"))


class TestTuples:
    def test_nested_tuples_are_flattened_and_remembered(self):
        def make(x, y):
            return sx.tuple((sx.tuple((x, y)), x.builder.empty_tuple(), sx.tuple((y,))))

        computation = build(make, sx.f32[2], sx.s32[()])
        assert str(computation.result_shape) == "((f32[2], s32[]), (), (s32[]))"
        assert "-> (tensor<2xf32>, tensor<i32>, tensor<i32>)" in str(computation)
        assert "tuple" not in str(computation)

    def test_elements(self):
        shape = sx.Shape.parse("(f32[2], (s32[], pred[3]), u8[])")
        b = sx.XlaBuilder("test")
        whole = b.parameter(0, shape)
        assert [element.shape for element in whole] == list(shape.tuple_shapes)
        assert len(whole) == 3
        assert whole[1][1].shape == sx.pred[3]
        assert whole[-1].values == sx.get_tuple_element(whole, 2).values
        first, (second, third), _ = whole
        assert [op.values[0].arg_number for op in (first, second, third)] == [0, 1, 2]

    def test_get_tuple_element_c1(self):
        refused("C1", lambda t: sx.get_tuple_element(t, 2), sx.Shape.tuple((sx.f32[2], sx.f32[2])))
        refused("C1", lambda t: sx.get_tuple_element(t, -1), sx.Shape.tuple((sx.f32[2], sx.f32[2])))

    def test_what_is_no_tuple(self):
        refused("", lambda x: sx.get_tuple_element(x, 0), sx.f32[2])
        refused("", lambda x: sx.tuple(()), sx.f32[2])
        refused("", lambda x: sx.tuple((x, 1)), sx.f32[2])
        b = sx.XlaBuilder("test")
        x = b.parameter(0, sx.f32[2])
        with pytest.raises(sx.ShapeError, match="can't be unpacked"):
            list(x)
        with pytest.raises(sx.ShapeError, match="no length"):
            len(x)


class TestBuild:
    def test_last_op_is_the_default_root_and_building_goes_on(self):
        b = sx.XlaBuilder("test")
        x = b.parameter(0, sx.f32[2])
        assert b.build().result_shape == sx.f32[2]
        y = x + 1
        first = b.build()
        assert "add" in str(first)
        b.parameter(1, sx.pred[3])
        second = b.build(y * y)
        assert "multiply" in str(second)
        assert "multiply" not in str(first)
        assert len(second.parameter_shapes) == 2

    def test_nothing_built(self):
        with pytest.raises(sx.ShapeError, match="nothing has been built"):
            sx.XlaBuilder("test").build()

    def test_root_of_another_builder(self):
        x = sx.XlaBuilder("one").constant(1)
        with pytest.raises(sx.ShapeError, match="builder 'one', not to 'two'"):
            sx.XlaBuilder("two").build(x)

    def test_what_does_not_verify(self, capfd):
        b = sx.XlaBuilder("wrong")
        x = b.parameter(0, sx.f32[2])
        good = x + x
        bad = b.emit("stablehlo.add", [x, x], sx.f32[3])
        with pytest.raises(sx.VerificationError) as raised:
            b.build(bad)
        assert "'stablehlo.add' op" in str(raised.value)
        assert __file__ in str(raised.value)
        with pytest.raises(sx.VerificationError):
            b.build(good)  # the wrong operation is still in there
        assert capfd.readouterr().err == ""

    def test_module_is_named_after_the_builder(self):
        assert "module @test" in str(build(lambda x: x, sx.f32[2]))
        b = sx.XlaBuilder("a b")
        assert 'module @"a b"' in str(b.build(b.constant(1)))

    def test_computation_can_be_copied_and_written(self):
        computation = build(lambda x: x + 1, sx.f32[2])
        copy = computation.copy_of_module()
        assert str(copy).strip() == str(computation)
        copy.body.operations[0].operation.erase()
        assert "add" in str(computation)
        assert str(ir.Module.parse(computation.bytecode(), stablehlo_context())).strip() == str(computation)


def branch_with_call(y: sx.XlaOp) -> sx.XlaOp:
    return sx.call(doubled, y)


def doubled(y: sx.XlaOp) -> sx.XlaOp:
    return y + y


class TestFunctions:
    def test_equal_computations_are_one_function(self):
        def make(x):
            return sx.call(doubled, x) + sx.call(lambda y: y + y, x) + sx.call(lambda y: y * y, x)

        text = str(build(make, sx.f32[2]))
        assert text.count("func.func private") == 2
        assert text.count("call @doubled(") == 2

    def test_different_functions_of_one_name_are_kept_apart(self):
        def make(x, y):
            return sx.call(doubled, x), sx.call(doubled, y)

        text = str(build(make, sx.f32[2], sx.s32[2]))
        assert "call @doubled(" in text
        assert "call @doubled_1(" in text

    def test_big_constants_tell_functions_apart(self):
        one, two = np.arange(1000.0), np.arange(1000.0)
        two[500] = 0

        def make(x):
            return [sx.call(lambda y, c=c: y + view_of(y, c), x) for c in (one, two, one)]

        assert str(build(make, sx.f64[1000])).count("func.func private") == 2
        values = evaluate(make, np.zeros(1000))
        np.testing.assert_array_equal(values, [one, two, one])

    def test_a_name_main_is_no_trouble(self):
        def main(x):
            return x + x

        def make(x):
            return sx.call(main, sx.call(lambda y: sx.call(main, y), x))

        assert evaluate(make, np.float32(1)) == 4

    def test_calls_inside_regions_and_functions(self):
        def make(x):
            inner = sx.call(lambda y: sx.conditional(y > 0, y, branch_with_call, y, lambda z: z * 3), x)
            return sx.conditional(x > 0, inner, branch_with_call, x, lambda z: z)

        computation = build(make, sx.f32[()])
        assert str(computation).count("func.func private @doubled") == 1
        assert [evaluate(make, np.float32(v)) for v in (1, -1)] == [4, -1]

    def test_one_computation_in_several_places(self):
        b = sx.XlaBuilder("sum")
        plus = b.build(b.parameter(0, sx.f32[()]) + b.parameter(1, sx.f32[()]))

        def make(x):
            zero = x.builder.constant(0.0)
            rows = sx.reduce(x, zero, plus, (1,))
            return sx.reduce(rows, zero, plus, (0,)), sx.call(plus, (zero, zero))

        assert evaluate(make, np.ones((3, 4), np.float32))[0] == 12
        assert "add" in str(plus)  # it is as it was

    def test_computation_of_another_thread(self):
        made = []

        def work():
            b = sx.XlaBuilder("elsewhere")
            x = b.parameter(0, sx.f32[2])
            made.append(b.build(sx.call(doubled, x)))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert evaluate(lambda x: sx.call(made[0], x), np.float32([1, 2])).tolist() == [2, 4]

    def test_functions_that_return_no_op(self):
        refused("", lambda x: sx.call(lambda y: 1.0, x), sx.f32[2])
        refused("", lambda x: sx.call(lambda y: None, x), sx.f32[2])
        refused("", lambda x: sx.call(1, x), sx.f32[2])

    def test_memory_survives_collections(self):
        """Blocks change their owner when computations become regions; a wrong owner would free them."""

        def make(x):
            for _ in range(20):
                state = sx.tuple((x.builder.constant(0), x))
                state = sx.while_(lambda s: s[0] < 3, lambda s: (s[0] + 1, sx.call(doubled, s[1])), state)
                x = sx.conditional(state[0] > 1, state[1], branch_with_call, x, lambda y: y)
                gc.collect()
            return x

        gc.freeze()  # what other tests left is not looked through each time
        try:
            computation = build(make, sx.f32[()])
            del make
            gc.collect()
        finally:
            gc.unfreeze()
        assert computation.module.operation.verify()
        assert str(computation).count("stablehlo.while") == 20


class TestLocations:
    def test_an_op_has_the_users_line(self):
        b = sx.XlaBuilder("test")
        x = b.parameter(0, sx.f32[2])
        y = helper(x)
        line = helper.__code__.co_firstlineno + 1
        assert str(y.values[0].owner.location) == f'loc("helper"("{__file__}":{line}:12))'

    def test_an_operator_and_the_ops_it_takes_have_it_too(self):
        b = sx.XlaBuilder("test")
        y = b.parameter(0, sx.f32[2]) * 2.0
        line = self.test_an_operator_and_the_ops_it_takes_have_it_too.__func__.__code__.co_firstlineno + 2
        broadcast = y.values[0].owner.operands[1].owner
        for op in (y.values[0].owner, broadcast, broadcast.operands[0].owner):
            assert f'"{__file__}":{line}:' in str(op.location)

    def test_a_traced_function_has_its_own_lines(self):
        text = build(lambda x: sx.call(doubled, x), sx.f32[2]).text(locations=True)
        assert f'"{__file__}":{doubled.__code__.co_firstlineno + 1}:' in text

    def test_module_level(self):
        scope = {}
        exec(compile("import stablexla as sx\nb = sx.XlaBuilder('t')\nc = b.constant(1)", "program.py", "exec"), scope)
        assert str(scope["c"].values[0].owner.location) == 'loc("program.py":3:5)'


def helper(x: sx.XlaOp) -> sx.XlaOp:
    return sx.add(x, x)


class TestOperators:
    @pytest.mark.parametrize(
        ("symbol", "name"),
        [
            (operator.add, "add"),
            (operator.sub, "subtract"),
            (operator.mul, "multiply"),
            (operator.truediv, "divide"),
            (operator.mod, "remainder"),
            (operator.pow, "power"),
            (operator.and_, "and"),
            (operator.or_, "or"),
            (operator.xor, "xor"),
            (operator.lshift, "shift_left"),
            (operator.rshift, "shift_right_arithmetic"),
            (operator.lt, "compare LT"),
            (operator.le, "compare LE"),
            (operator.gt, "compare GT"),
            (operator.ge, "compare GE"),
            (operator.eq, "compare EQ"),
            (operator.ne, "compare NE"),
        ],
    )
    def test_both_ways(self, symbol, name):
        assert f"stablehlo.{name}" in str(build(symbol, sx.s32[2], sx.s32[2]))
        x = np.int32([7, -2])
        for make in (lambda a: symbol(a, 3), lambda a: symbol(3, a)):
            if symbol in (operator.lshift, operator.rshift, operator.pow, operator.truediv, operator.mod):
                assert build(make, sx.s32[2]).result_shape == sx.s32[2]
            else:
                np.testing.assert_array_equal(evaluate(make, x), make(x))

    def test_order_of_a_number_on_the_left(self):
        assert evaluate(lambda x: 10 - x, np.int32(3)) == 7
        assert evaluate(lambda x: 10.0 / x, np.float32(4)) == 2.5
        assert evaluate(lambda x: 2.0**x, np.float32(3)) == 8
        assert evaluate(lambda x: 1 << x, np.int32(3)) == 8
        assert evaluate(lambda x: 10 % x, np.int32(4)) == 2
        assert not evaluate(lambda x: 3 > x, np.int32(4))  # noqa: SIM300

    def test_others(self):
        assert evaluate(lambda x: -x, np.int32(3)) == -3
        assert evaluate(lambda x: +x, np.int32(3)) == 3
        assert evaluate(lambda x: ~x, np.int32(3)) == -4
        assert evaluate(abs, np.int32(-3)) == 3
        assert evaluate(operator.rshift, np.uint8(128), np.uint8(7)) == 1
        assert evaluate(operator.rshift, np.int8(-128), np.int8(7)) == -1
        np.testing.assert_array_equal(evaluate(operator.matmul, np.eye(2, 3), np.ones((3, 1))), [[1], [1]])

    def test_numpy_leaves_the_operator_to_the_op(self):
        x = sx.XlaBuilder("test").parameter(0, sx.f32[2])
        assert repr(np.float32(2) * x) == "XlaOp(stablehlo.multiply, f32[2])"
        with pytest.raises(sx.ShapeError, match=r"b\.constant"):
            np.ones(2, np.float32) * x

    @pytest.mark.parametrize(
        ("make", "shape", "message"),
        [
            (lambda x: x + 1.5, "s32[2]", "add: a s32 constant can't be made of 1.5"),
            (lambda x: x + 2**31, "s32[2]", "2147483648 is out of the range of s32"),
            (lambda x: x - 300, "u8[2]", "300 is out of the range of u8, 0 to 255"),
            (lambda x: x * 1e300, "f32[2]", "multiply: rhs: 1e+300 is out of the range of f32"),
            (lambda x: sx.pad(x, 1e300, [(0, 1, 0)]), "f32[2]", "1e+300 is out of the range of f32"),
            (lambda x: x * 1j, "f32[2]", "a f32 constant can't be made of 1j"),
            (lambda x: x + True, "s32[2]", "a s32 constant can't be made of True"),
            (lambda x: x & 1, "pred[2]", "a pred constant can't be made of 1"),
            (lambda x: x + "1", "f32[2]", "rhs must be an XlaOp, not a str"),
            (lambda x: x == None, "f32[2]", "rhs must be an XlaOp, not None"),  # noqa: E711
        ],
    )
    def test_numbers_that_do_not_fit(self, make, shape, message):
        assert message in str(refused("", make, sx.Shape.parse(shape)))

    def test_no_truth_value(self):
        x = sx.XlaBuilder("test").parameter(0, sx.f32[2])
        with pytest.raises(sx.ShapeError, match="no truth value") as raised:
            assert x > 0
        assert "sx.select or sx.conditional" in str(raised.value)
        assert raised.value.source.text == "assert x > 0"
        assert len({x, x}) == 1

    @pytest.mark.parametrize(
        "index",
        [
            0,
            -1,
            (slice(None), 1),
            (1, 2, 3),
            slice(1, None),
            slice(None, None, 2),
            (..., 0),
            (0, ..., slice(0, 2)),
            (),
            ...,
        ],
    )
    def test_indexing(self, index):
        x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
        np.testing.assert_array_equal(evaluate(lambda a: a[index], x), x[index])

    @pytest.mark.parametrize("index", [2, -3, (0, 0, 0, 0), slice(None, None, -1), "0", (..., ...), 1.5])
    def test_indices_that_are_refused(self, index):
        refused("", lambda a: a[index], sx.s32[2, 3, 4])


class TestMessages:
    def test_all_five_parts(self):
        def make(floor, x):
            y = sx.clamp(floor, x, 1.0)
            return y * 2

        error = refused("C1", make, sx.f32[4], sx.f32[3, 4])
        line = make.__code__.co_firstlineno + 1
        assert str(error).splitlines() == [
            "clamp: min must be a scalar or have operand's dimensions (C1)",
            "  min      f32[4]",
            "  operand  f32[3,4]",
            "  max      1.0",
            f"  at {__file__}:{line} in make:  y = sx.clamp(floor, x, 1.0)",
            "  try: sx.broadcast_in_dim(min, (3, 4), (1,))",
        ]

    def test_different_builders(self):
        one, two = sx.XlaBuilder("one"), sx.XlaBuilder("two")
        with pytest.raises(sx.ShapeError, match="different builders, 'one' and 'two'"):
            sx.add(one.constant(1), two.constant(1))

    def test_what_is_no_op(self):
        with pytest.raises(sx.ShapeError, match=r"exp: operand must be an XlaOp, not 1\.0") as raised:
            sx.exp(1.0)
        assert raised.value.hint == "b.constant(value) makes an XlaOp of it"
        with pytest.raises(sx.ShapeError, match="add: lhs or rhs must be an XlaOp"):
            sx.add(1, 2)

    def test_negative_dimensions_are_told_as_the_operations_error(self):
        error = refused("", lambda x: sx.broadcast(x, (2, -1)), sx.f32[3])
        assert "broadcast: dimension 1 has the negative size -1" in str(error)


class TestEffects:
    def test_infeeds_without_tokens_follow_one_another(self):
        b = sx.XlaBuilder("test")
        first = b.infeed(sx.f32[2])
        second = b.infeed(sx.Shape.tuple((sx.s32[()], sx.pred[3])))
        text = str(b.build(sx.tuple((first, second))))
        assert text.count("create_token") == 1
        assert text.count("stablehlo.infeed") == 2

    def test_infeed_with_a_token(self):
        b = sx.XlaBuilder("test")
        data, token = b.infeed(sx.f32[2], b.create_token())
        assert token.shape.is_token
        assert b.build(data).result_shape == sx.f32[2]

    def test_infeed_c3(self):
        refused("C3", lambda x: x.builder.infeed(sx.f32[2], x), sx.f32[2])
        refused("C2", lambda x: x.builder.infeed(sx.Shape.parse("((f32[2]))")), sx.f32[2])

    def test_recv_and_ids(self):
        b = sx.XlaBuilder("test")
        root = sx.tuple((b.recv(sx.f32[2], 5), b.replica_id(), b.partition_id()))
        text = str(b.build(root))
        assert "channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>" in text
        assert text.splitlines()[1].endswith("-> (tensor<2xf32>, tensor<ui32>, tensor<ui32>) {")

    def test_recv_c3(self):
        refused("C3", lambda x: x.builder.recv(sx.Shape.token(), 1), sx.f32[2])


def test_iota_c1():
    refused("C1", lambda x: x.builder.iota(sx.s32[2], 1), sx.f32[2])
    refused("C1", lambda x: x.builder.iota(sx.s32[()], 0), sx.f32[2])
    refused("", lambda x: x.builder.iota(sx.pred[2], 0), sx.f32[2])


@pytest.mark.parametrize("name", ["s32", "u8", "f32", "bf16"])
@pytest.mark.parametrize("dimension", [0, 1])
def test_iota(name, dimension):
    dtype = getattr(sx, name).dtype
    expected = np.indices((4, 3))[dimension].astype(dtype)
    shape = sx.Shape(name, (4, 3))
    result = evaluate(lambda x: x.builder.iota(shape, dimension), np.float32(0))
    assert shape_of(result) == shape
    np.testing.assert_array_equal(result, expected)


def test_iota_of_a_type_and_a_size():
    np.testing.assert_array_equal(evaluate(lambda x: x.builder.iota(sx.u8, 5), np.float32(0)), np.arange(5))
    assert build(lambda x: x.builder.iota(sx.f32, 0), sx.f32[()]).result_shape == sx.f32[0]
    refused("", lambda x: x.builder.iota(sx.pred, 3), sx.f32[2])
    refused("", lambda x: x.builder.iota(sx.s32, (3,)), sx.f32[2])
    refused("", lambda x: x.builder.iota(sx.s32, -1), sx.f32[2])


def test_every_public_name_is_there():
    assert sx.__all__ == list(dict.fromkeys(sx.__all__))
    missing = [name for name in sx.__all__ if not hasattr(sx, name)]
    assert missing == []
