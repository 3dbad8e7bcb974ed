"""Random numbers: drawn from a distribution in each run, or as bits that follow from a state."""

from __future__ import annotations

import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.builder.checking import Operand, checking, same_element_type
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import FLOAT, INTEGER, PRED, REGISTRY, operation
from stablexla.dialects.shapes import Shape

__all__ = ["rng_bit_generator", "rng_normal", "rng_uniform"]

#: XLA's names of the algorithms, StableHLO's, and how many numbers their states have.
_ALGORITHMS = {
    "rng_default": ("DEFAULT", (2, 3)),
    "rng_three_fry": ("THREE_FRY", (2,)),
    "rng_philox": ("PHILOX", (2, 3)),
}


@operation("stablehlo.rng", PRED | INTEGER | FLOAT)
def rng_uniform(a: Operand, b: Operand, shape: Shape) -> XlaOp:
    """Numbers of the uniform distribution from `a` up to but not including `b`, different in each run.

    `Executable.seed` makes them repeatable. Where `b` is not above `a`, they are `a`.

    Args:
        a, b: scalars of the result's type.
        shape: the result's shape.

    Raises:
        ShapeError: (I1), (I2) bounds that are no scalars, or of another type than pred, integers or floats; (C1)
            element types that differ.

    Source: `RngUniform` of XLA's operation semantics; StableHLO `rng`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.rng_uniform(b.constant(0.0), b.constant(1.0), sx.f32[2, 3])
    XlaOp(stablehlo.rng, f32[2,3])
    """
    return _rng("rng_uniform", ("a", "b"), (a, b), shape, "UNIFORM")


@operation("stablehlo.rng", FLOAT)
def rng_normal(mu: Operand, sigma: Operand, shape: Shape) -> XlaOp:
    """Numbers of the normal distribution, different in each run. `Executable.seed` makes them repeatable.

    Args:
        mu: their mean, a scalar of the result's type.
        sigma: their standard deviation, likewise.
        shape: the result's shape.

    Raises:
        ShapeError: (I1), (I2) parameters that are no scalars; (C1) element types that differ; (C2) another type than
            floats.

    Source: `RngNormal` of XLA's operation semantics; StableHLO `rng`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.rng_normal(b.constant(0.0), b.constant(1.0), sx.f32[2, 3])
    XlaOp(stablehlo.rng, f32[2,3])
    """
    return _rng("rng_normal", ("mu", "sigma"), (mu, sigma), shape, "NORMAL", "C2")


def _rng(
    name: str,
    names: tuple[str, str],
    given: tuple[Operand, Operand],
    shape: Shape,
    distribution: str,
    floats: str = "",
) -> XlaOp:
    """`floats` is the number of the rule that the parameters must be floats, if there is such a one."""
    with checking(name, **dict(zip(names, given)), shape=shape) as rule:
        operands = rule.ops(**dict(zip(names, given)))
        for place, (called, op) in enumerate(zip(names, operands), start=1):
            rule(f"I{place}", op.shape.is_scalar, f"{called} must be a scalar, not {op.shape}")
        shape = rule.array_shape("shape", shape)
        if floats:
            given_type = operands[0].shape.element_type
            rule(floats, given_type.is_float, f"{names[0]} must be of floating-point type, not {given_type}")
        else:
            rule.types(**dict(zip(names, operands)))
        rule("C1", same_element_type(*operands), f"{' and '.join(names)} must have one element type")
        wanted = operands[0].shape.element_type
        rule("C1", shape.element_type is wanted, f"shape must be of the type {wanted} of {names[0]}, not {shape}")
    builder = operands[0].builder
    extents = builder.constant(np.array(shape.dimensions, np.int64))
    kind = stablehlo.RngDistributionAttr.get(distribution, builder.context)
    return builder.emit("stablehlo.rng", [*operands, extents], shape, {"rng_distribution": kind})


@operation("stablehlo.rng_bit_generator", INTEGER | FLOAT)
def rng_bit_generator(algorithm: str, initial_state: XlaOp, shape: Shape) -> XlaOp:
    """Random bits that follow from a state, and the state that comes after them.

    The same state gives the same bits. They are those of XLA: blocks of Threefry-2x32 or Philox-4x32 (Salmon et al.,
    SC 2011) under the first number of the state as key, counted from the second on.

    Args:
        algorithm: "rng_three_fry", "rng_philox", or "rng_default", which is Philox here.
        initial_state: u64[2]; for Philox also u64[3], the third number being the upper half of the counter.
        shape: of the bits: any integers or floats.

    Returns:
        The tuple of the next state and the bits.

    Raises:
        ShapeError: (I1) an unknown algorithm; (I2) a state that is no u64 array of one dimension; (C2) a state of a
            length that the algorithm has not; a shape of other elements.

    Source: `RngBitGenerator` of XLA's operation semantics; StableHLO `rng_bit_generator`.

    >>> state = sx.XlaBuilder("example").parameter(0, sx.u64[2])
    >>> state, bits = sx.rng_bit_generator("rng_three_fry", state, sx.u32[2, 3])
    >>> print(state.shape, bits.shape)
    u64[2] u32[2,3]
    """
    with checking("rng_bit_generator", algorithm=algorithm, initial_state=initial_state, shape=shape) as rule:
        name, lengths = _ALGORITHMS[rule.word("I1", "algorithm", algorithm, _ALGORITHMS)]
        state = rule.op("initial_state", initial_state)
        flat = state.shape.is_array and state.shape.rank == 1 and state.shape.element_type.name == "u64"
        rule("I2", flat, f"initial_state must be a u64 array of one dimension, not {state.shape}")
        fits = state.shape.size in lengths
        words = " or ".join(f"u64[{length}]" for length in lengths)
        rule("C2", fits, f"initial_state must be {words} for {algorithm}, not {state.shape}")
        shape = rule.array_shape("shape", shape)
        entry = REGISTRY["rng_bit_generator"]
        rule("", entry.allows(shape.element_type), f"shape must be of {entry.types_in_words} type, not {shape}")
        rule("", shape.is_static, f"shape must be static, not {shape}", "sx.set_dimension_size")
    kind = stablehlo.RngAlgorithmAttr.get(name, state.builder.context)
    both = Shape.tuple((state.shape, shape))
    return state.builder.emit("stablehlo.rng_bit_generator", [state], both, {"rng_algorithm": kind})
