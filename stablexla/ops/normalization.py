"""Batch normalization: in training, for inference, and its gradient."""

from __future__ import annotations

import jaxlib.mlir.ir as ir

from stablexla.builder.checking import Rules, checking, same_element_type
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import FLOAT, operation
from stablexla.dialects.shapes import Shape

__all__ = ["batch_norm_grad", "batch_norm_inference", "batch_norm_training"]


@operation("stablehlo.batch_norm_training", FLOAT)
def batch_norm_training(operand: XlaOp, scale: XlaOp, offset: XlaOp, epsilon: float, feature_index: int) -> XlaOp:
    """`operand` normalized to mean 0 and variance 1 for each feature, then scaled and shifted by feature.

    Args:
        operand: an array of floats.
        scale, offset: a number for each feature.
        epsilon: is added to the variance before its root is taken.
        feature_index: the dimension of the features; mean and variance are over all other ones.

    Returns:
        The tuple (output, batch_mean, batch_var).

    Raises:
        ShapeError: (C1) no such dimension; (C2) element types differ; (C3, C4) `scale` or `offset` has not a number for
            each feature.

    Source: `BatchNormTraining` of XLA's operation semantics; StableHLO `batch_norm_training`.

    >>> b = sx.XlaBuilder("example")
    >>> x, scale, offset = b.parameter(0, sx.f32[8, 5]), b.parameter(1, sx.f32[5]), b.parameter(2, sx.f32[5])
    >>> y, mean, variance = sx.batch_norm_training(x, scale, offset, 1e-5, 1)
    >>> print(y.shape, mean.shape, variance.shape)
    f32[8,5] f32[5] f32[5]
    """
    with checking("batch_norm_training", operand=operand, scale=scale, offset=offset) as rule:
        x, *features = _floats(rule, operand=operand, scale=scale, offset=offset)
        attributes, feature = _attributes(rule, x, epsilon, feature_index)
        _check_feature(rule, "C3", "scale", features[0], feature)
        _check_feature(rule, "C4", "offset", features[1], feature)
    result = Shape.tuple((x.shape, feature, feature))
    return x.builder.emit("stablehlo.batch_norm_training", [x, *features], result, attributes)


@operation("stablehlo.batch_norm_inference", FLOAT)
def batch_norm_inference(
    operand: XlaOp,
    scale: XlaOp,
    offset: XlaOp,
    mean: XlaOp,
    variance: XlaOp,
    epsilon: float,
    feature_index: int,
) -> XlaOp:
    """`operand` normalized as by `batch_norm_training`, with a given mean and variance.

    Args:
        operand: an array of floats.
        scale, offset, mean, variance: a number for each feature.
        epsilon: is added to the variance before its root is taken.
        feature_index: the dimension of the features.

    Raises:
        ShapeError: (C1) no such dimension; (C2) element types differ; (C3 to C6) `scale`, `offset`, `mean` or
            `variance` has not a number for each feature.

    Source: `BatchNormInference` of XLA's operation semantics; StableHLO `batch_norm_inference`.

    >>> b = sx.XlaBuilder("example")
    >>> x, f = b.parameter(0, sx.f32[8, 5]), b.parameter(1, sx.f32[5])
    >>> sx.batch_norm_inference(x, f, f, f, f, 1e-5, 1)
    XlaOp(stablehlo.batch_norm_inference, f32[8,5])
    """
    given = {"operand": operand, "scale": scale, "offset": offset, "mean": mean, "variance": variance}
    with checking("batch_norm_inference", **given) as rule:
        x, *features = _floats(rule, **given)
        attributes, feature = _attributes(rule, x, epsilon, feature_index)
        names = ("scale", "offset", "mean", "variance")
        for number, name, op in zip(("C3", "C4", "C5", "C6"), names, features):
            _check_feature(rule, number, name, op, feature)
    return x.builder.emit("stablehlo.batch_norm_inference", [x, *features], x.shape, attributes)


@operation("stablehlo.batch_norm_grad", FLOAT)
def batch_norm_grad(
    operand: XlaOp,
    scale: XlaOp,
    mean: XlaOp,
    variance: XlaOp,
    grad_output: XlaOp,
    epsilon: float,
    feature_index: int,
) -> XlaOp:
    """The gradients of `batch_norm_training` with respect to its operand, scale and offset.

    Args:
        operand: an array of floats.
        scale, mean, variance: a number for each feature.
        grad_output: the gradient with respect to the output, of the operand's shape.
        epsilon: is added to the variance.
        feature_index: the dimension of the features.

    Returns:
        The tuple (grad_operand, grad_scale, grad_offset).

    Raises:
        ShapeError: (C1) no such dimension; (C2) element types differ; (C3) `grad_output` of another shape; (C4) `mean`
            or `variance` of another shape than `scale`; (C5) `scale` has not a number for each feature.

    Source: `BatchNormGrad` of XLA's operation semantics; StableHLO `batch_norm_grad`.

    >>> b = sx.XlaBuilder("example")
    >>> x, f, g = b.parameter(0, sx.f32[8, 5]), b.parameter(1, sx.f32[5]), b.parameter(2, sx.f32[8, 5])
    >>> print(sx.batch_norm_grad(x, f, f, f, g, 1e-5, 1).shape)
    (f32[8,5], f32[5], f32[5])
    """
    given = {"operand": operand, "scale": scale, "mean": mean, "variance": variance, "grad_output": grad_output}
    with checking("batch_norm_grad", **given) as rule:
        x, *features, grad = _floats(rule, **given)
        attributes, feature = _attributes(rule, x, epsilon, feature_index)
        rule("C3", grad.shape.with_dynamic(()) == x.shape.with_dynamic(()), "grad_output must have operand's shape")
        for name, op in zip(("mean", "variance"), features[1:]):
            rule("C4", op.shape == features[0].shape, f"{name} must have scale's shape")
        _check_feature(rule, "C5", "scale", features[0], feature)
    result = Shape.tuple((x.shape, feature, feature))
    return x.builder.emit("stablehlo.batch_norm_grad", [x, *features, grad], result, attributes)


def _floats(rule: Rules, **given: object) -> list[XlaOp]:
    """The operands: arrays of one floating-point type (C2)."""
    ops = rule.ops(**{name: rule.op(name, value) for name, value in given.items()})
    rule.types(**dict(zip(given, ops)))
    rule("C2", same_element_type(*ops), f"{', '.join(given)} must have the same element type")
    return ops


def _attributes(rule: Rules, x: XlaOp, epsilon: object, feature_index: object) -> tuple[dict[str, object], Shape]:
    """C1; the attributes, and the shape of what has a number for each feature."""
    place = rule.integer("feature_index", feature_index)
    rule.place("C1", place, x.shape.rank, f"feature_index: {place} is no dimension of operand")
    with ir.Location.unknown(x.builder.context):
        attribute = ir.FloatAttr.get(ir.F32Type.get(), rule.number("epsilon", epsilon))
    feature = Shape(x.shape.element_type, (x.shape.dimensions[place],))
    return {"epsilon": attribute, "feature_index": place}, feature


def _check_feature(rule: Rules, number: str, name: str, op: XlaOp, wanted: Shape) -> None:
    rule(number, op.shape == wanted, f"{name} must be {wanted}, a number for each feature")
