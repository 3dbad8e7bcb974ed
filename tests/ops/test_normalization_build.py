"""What the builder emits for batch normalization, and what it refuses."""

from __future__ import annotations

import pytest

import stablexla as sx
from tests.ops.building import build, refused

X, F = sx.f32[4, 3, 5], sx.f32[3]


def training(x, scale, offset):
    return sx.batch_norm_training(x, scale, offset, 1e-5, 1)


def inference(x, *features):
    return sx.batch_norm_inference(x, *features, 1e-5, 1)


def gradient(x, scale, mean, variance, grad):
    return sx.batch_norm_grad(x, scale, mean, variance, grad, 1e-5, 1)


class TestTraining:
    def test_shapes(self):
        made = build(training, X, F, F)
        assert made.result_shape == sx.Shape.tuple((X, F, F))
        assert '"stablehlo.batch_norm_training"' in str(made)
        assert "epsilon = 9.99999974E-6 : f32, feature_index = 1" in str(made)

    def test_parameters_by_name(self):
        build(
            lambda x, f: sx.batch_norm_training(operand=x, scale=f, offset=f, epsilon=0, feature_index=2),
            X,
            sx.f32[5],
        )

    @pytest.mark.parametrize("t", ["f8e4m3fn", "bf16", "f16", "f32", "f64"])
    def test_every_type_verifies(self, t):
        shape, features = sx.Shape(t, (2, 3)), sx.Shape(t, (3,))
        build(training, shape, features, features)
        build(inference, shape, *[features] * 4)
        build(gradient, shape, *[features] * 3, shape)

    def test_batch_norm_training_i1(self):
        refused("I1", training, sx.s32[4, 3], sx.s32[3], sx.s32[3])

    def test_batch_norm_training_c1(self):
        refused("C1", lambda x, f: sx.batch_norm_training(x, f, f, 1e-5, 3), X, F)
        refused("C1", lambda x, f: sx.batch_norm_training(x, f, f, 1e-5, -1), X, F)

    def test_batch_norm_training_c2(self):
        refused("C2", training, X, sx.f64[3], sx.f64[3])

    def test_batch_norm_training_c3(self):
        error = refused("C3", training, X, sx.f32[4], F)
        assert "scale must be f32[3], a number for each feature" in str(error)

    def test_batch_norm_training_c4(self):
        refused("C4", training, X, F, sx.f32[3, 1])

    def test_epsilon_is_a_number(self):
        refused("", lambda x, f: sx.batch_norm_training(x, f, f, "small", 1), X, F)


class TestInference:
    def test_shapes(self):
        assert build(inference, X, F, F, F, F).result_shape == X

    def test_batch_norm_inference_c1(self):
        refused("C1", lambda x, f: sx.batch_norm_inference(x, f, f, f, f, 1e-5, 3), X, F)

    def test_batch_norm_inference_c2(self):
        refused("C2", inference, X, F, F, F, sx.f16[3])

    @pytest.mark.parametrize("place", range(4))
    def test_batch_norm_inference_c3_to_c6(self, place):
        """The tests batch_norm_inference_c3, batch_norm_inference_c4, batch_norm_inference_c5 and
        batch_norm_inference_c6: each operand in turn has numbers for other features."""
        features = [F] * 4
        features[place] = sx.f32[5]
        refused(f"C{place + 3}", inference, X, *features)


class TestGradient:
    def test_shapes(self):
        assert build(gradient, X, F, F, F, X).result_shape == sx.Shape.tuple((X, F, F))

    def test_batch_norm_grad_c1(self):
        refused("C1", lambda x, f: sx.batch_norm_grad(x, f, f, f, x, 1e-5, 3), X, F)

    def test_batch_norm_grad_c2(self):
        refused("C2", gradient, X, F, F, F, sx.f64[4, 3, 5])

    def test_batch_norm_grad_c3(self):
        refused("C3", gradient, X, F, F, F, sx.f32[4, 3])

    def test_batch_norm_grad_c4(self):
        refused("C4", gradient, X, F, sx.f32[4], F, X)

    def test_batch_norm_grad_c5(self):
        refused("C5", gradient, X, sx.f32[4], sx.f32[4], sx.f32[4], X)
