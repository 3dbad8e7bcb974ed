"""What the builder emits for dot and dot_general, and what it refuses.

Oracles: the reference interpreter, numpy's einsum, and the examples that XLA's operation semantics prints.
"""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from tests.ops.building import build, evaluate, refused

Numbers = sx.DotDimensionNumbers


class TestDot:
    @pytest.mark.parametrize(
        ("lhs", "rhs", "result"),
        [((3,), (3,), ()), ((2, 3), (3,), (2,)), ((2, 3), (3, 4), (2, 4)), ((3,), (3, 4), (4,))],
    )
    def test_ranks(self, lhs, rhs, result):
        x, y = (np.arange(np.prod(s), dtype=np.float32).reshape(s) for s in (lhs, rhs))
        computed = evaluate(sx.dot, x, y)
        assert computed.shape == result
        np.testing.assert_array_equal(computed, x @ y)

    def test_nothing_to_sum(self):
        """Built alone: the interpreter aborts on contracted dimensions of size 0."""
        assert build(sx.dot, sx.f32[2, 0], sx.f32[0, 3]).result_shape == sx.f32[2, 3]

    @pytest.mark.parametrize("name", ["s8", "u32", "bf16", "f64", "c64", "pred"])
    def test_types(self, name):
        dtype = sx.element_type(name).dtype
        x, y = (np.arange(1, 5).reshape(2, 2) % 3).astype(dtype), np.eye(2).astype(dtype)
        np.testing.assert_array_equal(evaluate(sx.dot, x, y), x)

    def test_refusals(self):
        refused("", lambda x, y: sx.dot(x, y), sx.f32[1, 2, 3], sx.f32[3])
        refused("", lambda x, y: sx.dot(x, y), sx.f32[()], sx.f32[3])
        refused("", lambda x, y: sx.dot(x, 2.0), sx.f32[3], sx.f32[3])
        refused("C10", lambda x, y: x @ y, sx.f32[2, 3], sx.f32[2, 3])


class TestDotGeneral:
    def test_examples_of_the_description(self):
        x, y = np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([[1, 1, 1], [2, 2, 2]])
        result = evaluate(lambda a, b: sx.dot_general(a, b, Numbers([1], [1])), x, y)
        np.testing.assert_array_equal(result, [[6.0, 12.0], [15.0, 30.0]])
        x = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2)
        y = np.stack([np.eye(2, dtype=np.float32)] * 2)
        result = evaluate(lambda a, b: sx.dot_general(a, b, Numbers([2], [1], [0], [0])), x, y)
        np.testing.assert_array_equal(result, x)

    @pytest.mark.parametrize(
        ("lhs", "rhs", "numbers", "einsum"),
        [
            ((2, 3, 4), (4, 3, 5), Numbers([1, 2], [1, 0]), "abc,cbd->ad"),
            ((2, 3, 4, 5), (5, 3, 2, 6), Numbers([3], [0], [0, 1], [2, 1]), "abcd,dbae->abce"),
            ((2, 3), (4,), Numbers([], []), "ab,c->abc"),
            ((2, 3), (2, 3), Numbers([], [], [0, 1], [0, 1]), "ab,ab->ab"),
        ],
    )
    def test_values(self, lhs, rhs, numbers, einsum):
        x, y = (np.arange(np.prod(s), dtype=np.float32).reshape(s) for s in (lhs, rhs))
        result = evaluate(lambda a, b: sx.dot_general(a, b, numbers), x, y)
        np.testing.assert_array_equal(result, np.einsum(einsum, x, y))

    def test_preferred_element_type(self):
        def make(x, y):
            return sx.dot_general(x, y, Numbers([0], [0]), preferred_element_type="s32")

        assert evaluate(make, np.int8([100, 100]), np.int8([100, 100])) == 20000
        refused("", lambda x, y: sx.dot(x, y, preferred_element_type="f32"), sx.s8[2], sx.s8[2])
        refused("", lambda x, y: sx.dot(x, y, preferred_element_type="bf16"), sx.f32[2], sx.f32[2])
        refused("", lambda x, y: sx.dot(x, y, preferred_element_type="what"), sx.f32[2], sx.f32[2])

    @pytest.mark.parametrize(
        ("config", "text"), [("HIGHEST", "[HIGHEST, HIGHEST]"), (("HIGH", "DEFAULT"), "[HIGH, DEFAULT]")]
    )
    def test_precision(self, config, text):
        assert f"precision = {text}" in str(build(lambda x, y: sx.dot(x, y, config), sx.f32[2], sx.f32[2]))

    @pytest.mark.parametrize(
        ("rule", "lhs", "rhs", "numbers"),
        [
            ("C1", (2, 3), (2, 3), Numbers([], [], [0], [])),
            ("C2", (2, 3), (2, 3), Numbers([0], [])),
            ("C3", (2, 3), (2, 3), Numbers([0], [0], [0], [1])),
            ("C4", (2, 3), (2, 3), Numbers([0], [0], [1], [0])),
            ("C5", (2, 3), (2, 3), Numbers([], [], [2], [1])),
            ("C6", (2, 3), (2, 3), Numbers([-1], [1])),
            ("C7", (2, 3), (2, 3), Numbers([], [], [1], [2])),
            ("C8", (2, 3), (2, 3), Numbers([1], [-1])),
            ("C9", (2, 3), (3, 2), Numbers([], [], [0], [0])),
            ("C10", (2, 3), (2, 3), Numbers([1], [0])),
        ],
        ids=lambda value: f"dot_general_{value.lower()}" if isinstance(value, str) else "",
    )
    def test_refusals(self, rule, lhs, rhs, numbers):
        error = refused(rule, lambda x, y: sx.dot_general(x, y, numbers), sx.Shape("f32", lhs), sx.Shape("f32", rhs))
        assert error.operation == "dot_general"

    def test_dot_general_c11(self):
        refused("C11", lambda x, y: sx.dot(x, y, ("HIGH",)), sx.f32[2], sx.f32[2])

    def test_dot_general_i7(self):
        refused("I7", lambda x, y: sx.dot(x, y, "BEST"), sx.f32[2], sx.f32[2])

    def test_dot_general_c13(self):
        refused("C13", lambda x, y: sx.dot_general(x, y, Numbers([0], [0])), sx.f32[2], sx.f64[2])

    def test_wrong_numbers(self):
        refused("", lambda x: sx.dot_general(x, x, ((0,), (0,))), sx.f32[2])
        refused("", lambda x: sx.dot_general(x, x, Numbers(["a"], ["a"])), sx.f32[2])
