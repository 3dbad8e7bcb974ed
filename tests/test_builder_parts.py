"""What a builder has besides operations: shardings, origins, free attributes, aliases, builders in builders, constants.

Oracles: the text that XLA reads (its own reader of StableHLO, by jaxlib), numpy, and what donation does to an argument.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.comparison import assert_same
from tests.ops.building import build, refused

X = sx.f32[4, 3]
ROWS, COLUMNS = "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"


def hlo(computation: sx.XlaComputation) -> str:
    """XLA's own text for the module."""
    from jaxlib import _hlo, _jax

    made = _jax.mlir.mlir_module_to_xla_computation(computation.bytecode(), use_tuple_args=False, return_tuple=False)
    return str(made.get_hlo_module().to_string(_hlo.HloPrintOptions()))


def line_of(text: str, operation: str) -> str:
    return next(line for line in text.splitlines() if f" {operation}(" in line)


# ---- shardings -------------------------------------------------------------------------------------------------------


class TestShardings:
    def test_of_parameters_operations_and_results(self) -> None:
        def make(x: sx.XlaOp) -> sx.XlaOp:
            b = x.builder
            b.set_instruction_sharding(x, ROWS)
            y = sx.neg(x)
            b.set_sharding(COLUMNS)
            z = sx.abs(y)
            b.clear_sharding()
            return sx.exp(z) + sx.abs(z)

        computation = build(make, X)
        text = str(computation)
        assert f'%arg0: tensor<4x3xf32> {{mhlo.sharding = "{ROWS}"}}' in text
        assert text.count(COLUMNS) == 1
        assert f"sharding={ROWS}" in line_of(hlo(computation), "parameter")
        assert f"sharding={COLUMNS}" in line_of(hlo(computation), "abs")
        assert "sharding" not in line_of(hlo(computation), "exponential")
        result = build(lambda x: (x.builder.set_sharding(ROWS), sx.neg(x))[1], X)
        assert f'-> (tensor<4x3xf32> {{mhlo.sharding = "{ROWS}"}})' in str(result)

    def test_what_is_set(self) -> None:
        b = sx.XlaBuilder("test")
        assert b.sharding is None
        b.set_sharding(ROWS)
        assert b.swap_sharding(COLUMNS) == ROWS
        with b.scoped_sharding(None):
            assert b.sharding is None
            x = b.parameter(0, X)
            with pytest.raises(ValueError, match="inside"), b.scoped_sharding(ROWS):
                raise ValueError("inside")
            assert b.sharding is None
        assert b.sharding == COLUMNS
        assert b.get_op_sharding(x) is None
        assert b.get_op_sharding(sx.neg(x)) == COLUMNS
        b.set_instruction_sharding(x, ROWS)
        assert b.get_op_sharding(x) == ROWS
        b.set_instruction_sharding(x, None)
        assert b.get_op_sharding(x) is None

    def test_of_tuples(self) -> None:
        """Each of several results has its own; XLA reads them as those of a tuple."""
        b = sx.XlaBuilder("test")
        x = b.parameter(0, sx.Shape.tuple((X, X)))
        b.set_instruction_sharding(x[0], ROWS)
        assert b.get_op_sharding(x) == f"{{{ROWS}, {{unknown}}}}"
        with b.scoped_sharding(ROWS):
            first, second = sx.sort((x[0], x[1]), lambda a, c, *_: a < c, 1)
        b.set_instruction_sharding(second, "{replicated}")
        assert b.get_op_sharding(sx.tuple((first, second))) == f"{{{ROWS}, {{replicated}}}}"
        assert f'mhlo.sharding = "{{{ROWS}, {{replicated}}}}"' in str(b.build(first))

    def test_programs_run_in_parts(self) -> None:
        """The constraint on an operation changes how the array lies, and no value."""
        a, v = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([1, 2, 4], np.float32)

        def program(x: sx.XlaOp, v: sx.XlaOp) -> list[sx.XlaOp]:
            b = x.builder
            b.set_instruction_sharding(x, ROWS)
            y = sx.add(x, v, broadcast_dimensions=(1,))
            with b.scoped_sharding("{devices=[1,2]<=[2]}"):
                turned = sx.transpose(y, (1, 0))
            with b.scoped_sharding("{replicated}"):
                total = sx.reduce_all(turned * turned, b.constant(0.0), sx.add)
            return [turned, sx.exp(y * 0.0), total]

        computation = build(program, X, sx.f32[3])
        sharded, plain = sx.compile(computation, num_partitions=2), sx.compile(computation)
        assert "tensor<2x3xf32>" in sharded.ir("stablehlo")
        wanted = (a + v).T, np.ones_like(a), ((a + v) ** 2).sum()
        for results in (sharded(a, v), plain(a, v)):
            for found, right in zip(results, wanted, strict=True):
                assert_same(found, np.asarray(right))

    def test_one_on_an_operation_says_where_its_result_lies(self) -> None:
        """Nothing else in the program speaks of devices: without it each would have all of the array."""
        computation = build(lambda x: sx.neg(_sharded(sx.exp(x), ROWS)), X)
        text = sx.compile(computation, num_partitions=2).ir("stablehlo")
        assert re.search(r"stablehlo.negate %\d+ : tensor<2x3xf32>", text), text

    @pytest.mark.parametrize("text", ["{devices=[2,1]<=[4]}", "{devices=[2,1]1,1}", "{devices=[2,1]<=[2]T(1)}"])
    def test_devices_that_do_not_fit_the_tiles(self, text: str) -> None:
        error = refused("", lambda x: x.builder.set_sharding(text), X)
        assert "sharding" in error.summary
        if error.hint:
            build(lambda x: (x.builder.set_sharding(eval(error.hint)), sx.neg(x))[1], X)

    def test_one_for_fewer_dimensions_is_refused_where_it_is_attached(self) -> None:
        flat = "{devices=[2]<=[2]}"
        refused("", lambda x: x.builder.set_instruction_sharding(x, flat), X)
        refused("", lambda x: (x.builder.set_sharding(flat), sx.neg(x)), X)
        total = build(lambda x: (x.builder.set_sharding(flat), sx.reduce(x, 0.0, sx.add, (0,)))[1], X)
        assert flat in str(total)

    def test_one_over_other_devices_than_there_are(self) -> None:
        computation = build(lambda x: sx.neg(_sharded(sx.exp(x), "{devices=[4,1]<=[4]}")), X)
        with pytest.raises(sx.UnsupportedError, match=r"is compiled for 2\n  from .*test_builder_parts") as raised:
            sx.compile(computation, num_partitions=2)
        assert eval(raised.value.hint, {"sx": sx, "program": computation}).num_partitions == 4

    def test_the_line_of_a_with_is_the_users(self) -> None:
        b = sx.XlaBuilder("test")
        with pytest.raises(sx.ShapeError) as raised, b.scoped_sharding("replicated"):
            pass
        assert raised.value.source is not None
        assert raised.value.source.file == __file__

    @pytest.mark.parametrize("wrong", ["replicated", "", 5, [ROWS], f"{{{ROWS}, {ROWS}}}", b"{replicated}"])
    def test_refusals(self, wrong: Any) -> None:
        refused("", lambda x: x.builder.set_sharding(wrong), X)
        refused("", lambda x: x.builder.set_instruction_sharding(x, wrong), X)
        refused("", lambda x: x.builder.get_op_sharding(sx.XlaBuilder("other").constant(1)), X)


def _sharded(op: sx.XlaOp, sharding: str) -> sx.XlaOp:
    op.builder.set_instruction_sharding(op, sharding)
    return op


# ---- origins and free attributes -------------------------------------------------------------------------------------


class TestMetadata:
    def test_xla_reads_it(self) -> None:
        def make(x: sx.XlaOp) -> sx.XlaOp:
            b = x.builder
            b.set_op_metadata(sx.OpMetadata("dense/neg", "model.py", 7))
            y = sx.neg(x)
            b.set_one_shot_op_metadata(sx.OpMetadata("dense/exp"))
            z = sx.abs(sx.exp(y))
            b.clear_op_metadata()
            return sx.sin(z)

        text = hlo(build(make, X))
        assert 'op_name="dense/neg"' in line_of(text, "negate")
        assert 'op_name="dense/exp"' in line_of(text, "exponential")
        assert 'op_name="dense/neg"' in line_of(text, "abs")
        assert "dense" not in line_of(text, "sine")

    def test_errors_name_it(self) -> None:
        """The program's own error, when it is compiled, says where the framework's operation is."""

        def make(x: sx.XlaOp) -> sx.XlaOp:
            with x.builder.scoped_op_metadata(sx.OpMetadata("dense/call", "model.py", 7)):
                return sx.custom_call("no_such_function_of_the_test", x, X)

        with pytest.raises(sx.CompileError, match=r"model\.py:7 in dense/call"):
            sx.compile(build(make, X))

    def test_what_is_set(self) -> None:
        b, first, second = sx.XlaBuilder("test"), sx.OpMetadata("a"), sx.OpMetadata("b", "f.py", 3)
        assert b.swap_op_metadata(first) is None
        with b.scoped_op_metadata(second):
            x = b.constant(1.0)
            with b.scoped_op_metadata(None):
                y = x + x
        assert b.swap_op_metadata(None) == first
        text = b.build(sx.tuple((x, y))).text(locations=True)
        assert re.search(r'loc\("b"\(.*\)\)', text)
        assert '"f.py":3:0' in text
        assert 'loc("a"' not in text

    @pytest.mark.parametrize("wrong", ["a", 5, None, sx.OpMetadata(op_name=5), sx.OpMetadata("a", "b", -1)])  # type: ignore[arg-type]
    def test_refusals(self, wrong: Any) -> None:
        refused("", lambda x: x.builder.set_one_shot_op_metadata(wrong), X)
        if wrong is not None:
            refused("", lambda x: x.builder.set_op_metadata(wrong), X)


class TestFrontendAttributes:
    def test_xla_reads_them(self) -> None:
        def make(x: sx.XlaOp) -> sx.XlaOp:
            b = x.builder
            b.set_frontend_attributes({"layer": "3", "kind": "dense"})
            y = sx.neg(x)
            b.clear_frontend_attributes()
            z = sx.exp(y)
            b.set_instruction_frontend_attribute(z, "n", "1")
            b.set_instruction_frontend_attribute(z, "n", "2")
            b.set_instruction_frontend_attribute(y, "n", "5")
            return sx.sin(z)

        text = hlo(build(make, X))
        assert 'frontend_attributes={kind="dense",layer="3",n="5"}' in line_of(text, "negate")
        assert 'frontend_attributes={n="2"}' in line_of(text, "exponential")
        assert "frontend_attributes" not in line_of(text, "sine")

    def test_of_parameters(self) -> None:
        with_one = lambda x: (x.builder.set_instruction_frontend_attribute(x, "a", "b"), sx.neg(x))[1]  # noqa: E731
        assert 'frontend_attributes={a="b"}' in line_of(hlo(build(with_one, X)), "parameter")

    def test_what_is_set(self) -> None:
        b = sx.XlaBuilder("test")
        assert b.frontend_attributes == {}
        b.set_frontend_attributes({"a": "1"})
        with b.scoped_frontend_attributes({"b": "2"}):
            assert b.frontend_attributes == {"b": "2"}
        assert b.swap_frontend_attributes({}) == {"a": "1"}

    @pytest.mark.parametrize("wrong", ["a", 5, None, {"a": 1}, {1: "a"}, {"": "a"}, [("a", "b")]])
    def test_refusals(self, wrong: Any) -> None:
        refused("", lambda x: x.builder.set_frontend_attributes(wrong), X)
        refused("", lambda x: x.builder.set_instruction_frontend_attribute(x, "a", 5), X)
        refused("", lambda x: x.builder.set_instruction_frontend_attribute(x, "", "a"), X)


# ---- aliases ---------------------------------------------------------------------------------------------------------


class TestAliases:
    def donated(self, b: sx.XlaBuilder, root: sx.XlaOp, *arguments: np.ndarray) -> list[Any]:
        return list(sx.compile(b.build(root)).execute(list(arguments), donate=True))

    def test_the_result_has_the_memory_of_the_parameter(self) -> None:
        for form in ("alias", "donor", "neither"):
            b = sx.XlaBuilder("test")
            x, y = b.parameter(0, sx.f32[1024]), b.parameter(1, sx.f32[1024])
            if form == "alias":
                b.set_up_alias((1,), 1)
            elif form == "donor":
                b.add_buffer_donor(1)
            room = np.ones(1024 + 16, np.float32)  # of which a part begins where 64 divides the address
            a, c = np.zeros(1024, np.float32), room[-room.__array_interface__["data"][0] // 4 % 16 :][:1024]
            address = c.__array_interface__["data"][0]
            total, twice = self.donated(b, sx.tuple((sx.reduce_all(x, b.constant(0.0), sx.add), y * 2)), a, c)
            assert total == 0
            assert np.asarray(twice)[5] == 2
            taken = np.asarray(twice).__array_interface__["data"][0] == address
            assert taken == (form != "neither")

    def test_leaves_of_tuples(self) -> None:
        b = sx.XlaBuilder("test")
        p = b.parameter(1, sx.Shape.parse("(s32[], (f32[8], f32[8]))"), "p")
        x = b.parameter(0, sx.f32[8])
        b.set_up_alias((1, 0), 1, (1, 1))
        b.add_buffer_donor(0)
        root = sx.tuple((p[0], sx.tuple((p[1][1] + x, x))))
        text = str(b.build(root))
        assert "%arg0: tensor<8xf32> {jax.buffer_donor = true}, %arg1: tensor<i32>, %arg2: tensor<8xf32>, " in text
        assert "%arg3: tensor<8xf32> {tf.aliasing_output = 1 : i32}" in text

    def test_xla_reads_them(self) -> None:
        b = sx.XlaBuilder("test")
        x, y = b.parameter(0, X), b.parameter(1, X)
        b.set_up_alias((1,), 0)
        b.add_buffer_donor(1)
        text = hlo(b.build(sx.tuple((y, x + y))))
        assert "input_output_alias={ {1}: (0, {}, may-alias) }" in text
        assert "buffer_donor={ (1, {}) }" in text

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda b: b.set_up_alias((), 2), "there is no parameter 2"),
            (lambda b: b.set_up_alias((2,), 0), "output_index (2,) is no array of the result"),
            (lambda b: b.set_up_alias((), 0), "output_index () is no array of the result"),
            (lambda b: b.set_up_alias((0,), 0, (0,)), "param_index (0,) is no array of parameter 0"),
            (lambda b: b.set_up_alias((1,), 0), "the result is f32[2], the parameter f32[4,3]"),
            (lambda b: (b.set_up_alias((0,), 0), b.set_up_alias((0,), 1)), "has a parameter's memory already"),
            (lambda b: (b.set_up_alias((0,), 0), b.add_buffer_donor(0)), "parameter 0 gives its memory away twice"),
            (lambda b: b.add_buffer_donor(5), "there is no parameter 5"),
            (lambda b: b.set_up_alias((0,), 0, (), "must_alias"), "a caller may keep its arguments"),
            (lambda b: b.set_up_alias((0,), 0, (), 3), "kind must be 'may_alias'"),
            (lambda b: b.set_up_alias(0, 0), "output_index must be a sequence of integers"),
            (lambda b: b.set_up_alias((0,), "x"), "param_number must be an integer"),
            (lambda b: b.add_buffer_donor(0, 5), "param_index must be a sequence of integers"),
        ],
    )
    def test_refusals(self, make: Any, message: str) -> None:
        b = sx.XlaBuilder("test")
        x, _ = b.parameter(0, X), b.parameter(1, X)

        def build() -> None:
            make(b)
            b.build(sx.tuple((x + x, b.constant([1.0, 2.0]))))

        with pytest.raises(sx.ShapeError) as raised:
            build()
        assert message in str(raised.value)


# ---- parts -----------------------------------------------------------------------------------------------------------


class TestSubBuilders:
    def test_a_loop_of_built_computations(self) -> None:
        b = sx.XlaBuilder("outer")
        state = sx.Shape.tuple((sx.s32[()], sx.f32[2]))
        test, step = b.create_sub_builder("test"), b.create_sub_builder("step")
        s = test.parameter(0, state)
        condition = test.build_sub_computation(s[0] < 5)
        s = step.parameter(0, state)
        body = step.build_sub_computation(sx.tuple((s[0] + 1, s[1] * 2)))
        loop = sx.while_(condition, body, sx.tuple((b.constant(0), b.parameter(0, sx.f32[2]))))
        assert_same(sx.compile(b.build(loop[1]))(np.ones(2, np.float32)), np.full(2, 32, np.float32))

    def test_the_last_operation_is_the_root(self) -> None:
        b = sx.XlaBuilder("outer")
        sub = b.create_sub_builder("twice")
        sub.add_buffer_donor(0)  # means nothing in a part
        _ = sub.parameter(0, X) * 2
        assert str(sub.build_sub_computation()) == str(sub.build())
        made = b.add_sub_computation(sub.build())
        y = b.call(made, b.parameter(0, X))
        assert_same(sx.compile(b.build(y))(np.ones((4, 3), np.float32)), np.full((4, 3), 2, np.float32))

    def test_refusals(self) -> None:
        refused("", lambda x: x.builder.build_sub_computation(), X)
        refused("", lambda x: x.builder.add_sub_computation("twice"), X)
        refused("", lambda x: x.builder.create_sub_builder(5), X)


class TestConstants:
    def cases(self) -> dict[str, tuple[bool, sx.XlaOp]]:
        b = sx.XlaBuilder("test")
        x, five = b.parameter(0, X), b.constant(2.0) + 3.0
        random = sx.rng_uniform(five, five + 1.0, sx.f32[2])
        add = lambda a, c: a + c  # noqa: E731
        loop = lambda start: sx.while_(lambda s: s < 10.0, lambda s: s + 1.0, start)  # noqa: E731
        noisy = lambda a: a + sx.rng_uniform(a, a + 1.0, sx.f32[()])  # noqa: E731
        key = b.constant(np.zeros(2, np.uint64))
        return {
            "a constant": (True, five),
            "an iota": (True, b.iota(sx.s32[4], 0)),
            "a tuple": (True, sx.tuple((five, five))),
            "a reduction": (True, sx.reduce(b.iota(sx.f32[4], 0), five, add, (0,))),
            "a loop": (True, loop(five)),
            "a call": (True, sx.call(add, (five, five))),
            "a composite": (True, sx.composite_call(five, "my.neg", None, sx.neg)),
            "bits of a given state": (True, sx.rng_bit_generator("rng_three_fry", key, sx.u32[2])),
            "a parameter": (False, x),
            "a sum with one": (False, sx.neg(x) + five),
            "a tuple with one": (False, sx.tuple((five, x))),
            "a loop over one": (False, loop(sx.reduce_all(x, five, add))),
            "random numbers": (False, random),
            "what is made of them": (False, sx.abs(random)),
            "a number of the device": (False, b.replica_id()),
            "data from outside": (False, b.infeed(sx.f32[2])),
            "a custom call": (False, sx.custom_call("f", five, sx.f32[2])),
            "a sum over devices": (False, sx.all_reduce(five, add)),
            "a call of random numbers": (False, sx.call(noisy, (five,))),
            "a call of such a call": (False, sx.call(lambda a: sx.call(noisy, (a,)), (five,))),
            "a loop with random numbers": (False, sx.while_(lambda s: s < 10.0, noisy, five)),
            "a branch that reads one": (False, sx.conditional(five > 1.0, x, sx.neg, x, sx.abs)),
        }

    def test_is_constant(self) -> None:
        for name, (wanted, op) in self.cases().items():
            assert op.builder.is_constant(op) == wanted, name

    def test_they_can_be_computed_alone(self) -> None:
        """Without parameters; no operation that the value does not need is left."""
        for name, (wanted, op) in self.cases().items():
            if not wanted:
                with pytest.raises(sx.ShapeError, match="root_op depends on a parameter"):
                    op.builder.build_constant_sub_graph(op)
                continue
            made = op.builder.build_constant_sub_graph(op)
            assert made.parameter_shapes == ()
            assert made.result_shape == op.shape
            main = str(made.main)
            assert "infeed" not in main, name
            assert "%arg0" not in main.split("{")[0], name
            sx.compile(made)()

    def test_their_values(self) -> None:
        b = sx.XlaBuilder("test")
        x = b.parameter(0, sx.f32[3])
        weights = sx.reduce(b.iota(sx.f32[4, 3], 0), b.constant(1.0), lambda a, c: a + c, (0,))
        y = x * weights
        assert_same(sx.compile(b.build_constant_sub_graph(weights))(), np.full(3, 7, np.float32))
        assert_same(sx.compile(b.build(y))(np.ones(3, np.float32)), np.full(3, 7, np.float32))
        refused("", lambda x: sx.XlaBuilder("other").is_constant(x), X)
