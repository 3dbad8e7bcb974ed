"""What the builder emits for random numbers, and what it refuses."""

from __future__ import annotations

import pytest

import stablexla as sx
from tests.ops.building import build, refused


class TestUniform:
    def test_text(self):
        text = str(build(lambda a, b: sx.rng_uniform(a, b, sx.f32[2, 3]), sx.f32[()], sx.f32[()]))
        assert "stablehlo.rng %arg0, %arg1" in text
        assert "distribution = UNIFORM" in text
        assert "dense<[2, 3]> : tensor<2xi64>" in text

    def test_numbers_become_constants(self):
        made = build(lambda a: sx.rng_uniform(a, 1, sx.f64[4]), sx.f64[()])
        assert made.result_shape == sx.f64[4]

    def test_every_type_verifies(self):
        for t in sx.ELEMENT_TYPES:
            if not t.is_complex:
                for shape in (t[()], t[0], t[2, 3, 4]):
                    made = build(lambda a, b: sx.rng_uniform(a, b, shape), t[()], t[()])  # noqa: B023
                    assert made.result_shape == shape

    def test_rng_uniform_i1(self):
        error = refused("I1", lambda a, b: sx.rng_uniform(a, b, sx.f32[2]), sx.f32[1], sx.f32[()])
        assert "a must be a scalar, not f32[1]" in str(error)
        refused("I1", lambda a, b: sx.rng_uniform(a, b, sx.c64[2]), sx.c64[()], sx.c64[()])

    def test_rng_uniform_i2(self):
        error = refused("I2", lambda a, b: sx.rng_uniform(a, b, sx.f32[2]), sx.f32[()], sx.f32[1])
        assert "b must be a scalar, not f32[1]" in str(error)

    def test_rng_uniform_c1(self):
        error = refused("C1", lambda a, b: sx.rng_uniform(a, b, sx.f32[2]), sx.f32[()], sx.f64[()])
        assert "a and b must have one element type" in str(error)
        error = refused("C1", lambda a, b: sx.rng_uniform(a, b, sx.f64[2]), sx.f32[()], sx.f32[()])
        assert "shape must be of the type f32 of a, not f64[2]" in str(error)

    def test_shapes_that_are_none(self):
        tuple_shape = sx.Shape.tuple((sx.f32[2],))
        for shape in (tuple_shape, (2, 3)):
            refused("", lambda a: sx.rng_uniform(a, a, shape), sx.f32[()])  # noqa: B023
        refused("", lambda a: sx.rng_uniform(0.0, 1.0, sx.f32[2]), sx.f32[()])


class TestNormal:
    def test_text(self):
        text = str(build(lambda m, s: sx.rng_normal(mu=m, sigma=s, shape=sx.bf16[()]), sx.bf16[()], sx.bf16[()]))
        assert "distribution = NORMAL" in text
        assert "dense<> : tensor<0xi64>" in text

    def test_rng_normal_i1(self):
        refused("I1", lambda m, s: sx.rng_normal(m, s, sx.f32[2]), sx.f32[1], sx.f32[()])

    def test_rng_normal_i2(self):
        refused("I2", lambda m, s: sx.rng_normal(m, s, sx.f32[2]), sx.f32[()], sx.f32[1])

    def test_rng_normal_c1(self):
        refused("C1", lambda m, s: sx.rng_normal(m, s, sx.f32[2]), sx.f32[()], sx.f64[()])
        refused("C1", lambda m: sx.rng_normal(m, 1.0, sx.bf16[2]), sx.f32[()])

    @pytest.mark.parametrize("name", ["s32", "pred", "c64"])
    def test_rng_normal_c2(self, name):
        error = refused("C2", lambda m, s: sx.rng_normal(m, s, sx.Shape(name, (2,))), sx.Shape(name), sx.Shape(name))
        assert f"mu must be of floating-point type, not {name}" in str(error)


class TestBitGenerator:
    @pytest.mark.parametrize(
        ("algorithm", "length", "word"),
        [
            ("rng_default", 2, "DEFAULT"),
            ("rng_default", 3, "DEFAULT"),
            ("rng_three_fry", 2, "THREE_FRY"),
            ("rng_philox", 2, "PHILOX"),
            ("rng_philox", 3, "PHILOX"),
        ],
    )
    def test_text(self, algorithm, length, word):
        made = build(
            lambda s: sx.rng_bit_generator(algorithm=algorithm, initial_state=s, shape=sx.u16[2, 3]), sx.u64[length]
        )
        assert f"algorithm =  {word}" in str(made) or f"algorithm = {word}" in str(made)
        assert made.result_shape == sx.Shape.tuple((sx.u64[length], sx.u16[2, 3]))

    def test_it_unpacks(self):
        made = build(lambda s: sx.rng_bit_generator("rng_philox", s, sx.u32[()])[1], sx.u64[2])
        assert made.result_shape == sx.u32[()]

    def test_every_type_verifies(self):
        for t in sx.ELEMENT_TYPES:
            if t.is_integer or t.is_float:
                build(lambda s: sx.rng_bit_generator("rng_three_fry", s, t[3]), sx.u64[2])  # noqa: B023

    def test_rng_bit_generator_i1(self):
        error = refused("I1", lambda s: sx.rng_bit_generator("mersenne", s, sx.u32[2]), sx.u64[2])
        assert "algorithm must be rng_default, rng_three_fry or rng_philox, not 'mersenne'" in str(error)
        refused("I1", lambda s: sx.rng_bit_generator(["rng_philox"], s, sx.u32[2]), sx.u64[2])

    @pytest.mark.parametrize("shape", [sx.u32[4], sx.s64[2], sx.u64[()], sx.u64[1, 2]], ids=str)
    def test_rng_bit_generator_i2(self, shape):
        error = refused("I2", lambda s: sx.rng_bit_generator("rng_philox", s, sx.u32[2]), shape)
        assert "initial_state must be a u64 array of one dimension" in str(error)

    @pytest.mark.parametrize(
        ("algorithm", "length", "words"),
        [
            ("rng_three_fry", 3, "u64[2] for rng_three_fry"),
            ("rng_philox", 4, "u64[2] or u64[3] for rng_philox"),
            ("rng_default", 1, "u64[2] or u64[3] for rng_default"),
        ],
    )
    def test_rng_bit_generator_c2(self, algorithm, length, words):
        error = refused("C2", lambda s: sx.rng_bit_generator(algorithm, s, sx.u32[2]), sx.u64[length])
        assert f"initial_state must be {words}, not u64[{length}]" in str(error)

    @pytest.mark.parametrize("shape", [sx.pred[2], sx.c64[2], sx.Shape.tuple((sx.u32[2],)), (2,)], ids=str)
    def test_shapes_that_are_none(self, shape):
        refused("", lambda s: sx.rng_bit_generator("rng_philox", s, shape), sx.u64[2])
