"""Products of arrays that are stored as small floats with scales for blocks of them (MX formats, NVFP4)."""

from __future__ import annotations

from stablexla.builder.checking import Rules, checking
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import FLOAT, operation
from stablexla.dialects.element_types import ElementType
from stablexla.ops.contraction import DotDimensionNumbers, Precision, _dot
from stablexla.ops.control import composite_call
from stablexla.ops.conversion import convert_element_type
from stablexla.ops.shape import broadcast_in_dim, reshape

__all__ = ["scaled_dot"]


@operation("stablehlo.composite", FLOAT, family="contraction")
def scaled_dot(
    lhs: XlaOp,
    rhs: XlaOp,
    lhs_scale: XlaOp,
    rhs_scale: XlaOp,
    dimension_numbers: DotDimensionNumbers,
    precision_config: Precision | None = None,
    preferred_element_type: str | ElementType | None = None,
) -> XlaOp:
    """`dot_general` of operands times their scales, each scale for a block along the contracting dimensions.

    Elements and scales are converted to bf16, and multiplied there, before the product: the composite "xla.scaled_dot",
    as XLA and JAX decompose it.

    Args:
        lhs: an array of floats, such as f8e4m3fn or f4e2m1fn.
        rhs: an array of floats.
        lhs_scale: floats such as f8e8m0fnu, of the dimensions of `lhs` but for contracting ones, whose sizes divide
            those of `lhs`: each scale is that of the elements of a block.
        rhs_scale: those of `rhs`.
        dimension_numbers: `DotDimensionNumbers`.
        precision_config: as of `dot_general`.
        preferred_element_type: the type to sum in and to give; bf16 without it.

    Raises:
        ShapeError: (I1 to I4) an operand that is no array of floats; scales of other dimensions; and as `dot_general`.

    Source: `ScaledDot` of XLA's builder; `jax.lax.scaled_dot`.

    >>> b = sx.XlaBuilder("example")
    >>> x, y = b.parameter(0, sx.f8e4m3fn[2, 64]), b.parameter(1, sx.f8e4m3fn[4, 64])
    >>> s, t = b.parameter(2, sx.f8e8m0fnu[2, 2]), b.parameter(3, sx.f8e8m0fnu[4, 2])
    >>> sx.scaled_dot(x, y, s, t, sx.DotDimensionNumbers((1,), (1,)), preferred_element_type="f32")
    XlaOp(stablehlo.composite, f32[2,4])
    """
    given = {"lhs": lhs, "rhs": rhs, "lhs_scale": lhs_scale, "rhs_scale": rhs_scale}
    with checking("scaled_dot", **given, dimension_numbers=dimension_numbers) as rule:
        x, y, s, t = rule.ops(**{name: rule.op(name, op) for name, op in given.items()})
        rule.types(lhs=x, rhs=y, lhs_scale=s, rhs_scale=t)
        numbers = dimension_numbers
        rule("", isinstance(numbers, DotDimensionNumbers), "dimension_numbers must be DotDimensionNumbers")
        of_lhs = rule.integers("lhs_contracting_dimensions", numbers.lhs_contracting_dimensions)
        of_rhs = rule.integers("rhs_contracting_dimensions", numbers.rhs_contracting_dimensions)
        _check_scale(rule, "lhs", x, s, of_lhs)
        _check_scale(rule, "rhs", y, t, of_rhs)

    def product(x: XlaOp, y: XlaOp, s: XlaOp, t: XlaOp) -> XlaOp:
        return _dot("scaled_dot", _scaled(x, s), _scaled(y, t), numbers, precision_config, preferred_element_type)

    return composite_call((x, y, s, t), "xla.scaled_dot", {}, product)


def _check_scale(rule: Rules, name: str, x: XlaOp, scale: XlaOp, contracting: tuple[int, ...]) -> None:
    same = scale.shape.rank == x.shape.rank
    rule("", same, f"{name}_scale must have the rank of {name}, {x.shape.rank}, not {scale.shape.rank}")
    for place, (size, count) in enumerate(zip(x.shape.dimensions, scale.shape.dimensions)):
        if place in contracting:
            fits = size % count == 0 if count else size == 0
            rule("", fits, f"the {count} scales along dimension {place} of {name} must divide its size {size}")
        else:
            rule("", size == count, f"dimension {place} of {name}_scale must have size {size} as {name}, not {count}")


def _scaled(x: XlaOp, scale: XlaOp) -> XlaOp:
    """The elements times the scales of their blocks, in bf16."""
    blocks: list[int] = []
    for size, count in zip(x.shape.dimensions, scale.shape.dimensions):
        blocks += [count, size // count if count else 1]
    spread = broadcast_in_dim(convert_element_type(scale, "bf16"), blocks, range(0, len(blocks), 2))
    return convert_element_type(x, "bf16") * reshape(spread, x.shape.dimensions)
