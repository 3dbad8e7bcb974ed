"""Manual partitioning: conversions between whole arrays and each partition's shard."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stablexla.builder.checking import Rules, checking
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.shapes import Shape

__all__ = ["convert_spmd_full_to_shard_shape", "convert_spmd_shard_to_full_shape"]

_TILES = re.compile(r"\{devices=\[([\d,]+)\][^{}]*\}")


@operation("stablehlo.custom_call", family="collectives")
def convert_spmd_full_to_shard_shape(input: XlaOp, single_dim: int, manual_sharding: str) -> XlaOp:
    """The partition's shard of an array, as an array of that shape, to compute with by hand.

    Operations on it do on each partition what they say; collectives over a channel exchange between them.

    Args:
        input: an array that is sharded over the partitions.
        single_dim: -1: all of its dimensions become those of the part.
        manual_sharding: its sharding, in XLA's text: "{devices=[2,1]<=[2]}".

    Raises:
        ShapeError: a single dimension; a sharding that does not cut the array into equal parts.

    Source: `ConvertSpmdFullToShardShape` of XLA's builder; the custom calls @Sharding and @SPMDFullToShardShape.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[4, 3])
    >>> sx.convert_spmd_full_to_shard_shape(x, -1, "{devices=[2,1]<=[2]}")
    XlaOp(stablehlo.custom_call, f32[2,3])
    """
    given = {"input": input, "single_dim": single_dim, "manual_sharding": manual_sharding}
    with checking("convert_spmd_full_to_shard_shape", **given) as rule:
        x = rule.op("input", input)
        part = _shard_shape(rule, x.shape, single_dim, manual_sharding)
    return _crossing(x, manual_sharding, "SPMDFullToShardShape", "{manual}", part)


@operation("stablehlo.custom_call", family="collectives")
def convert_spmd_shard_to_full_shape(input: XlaOp, output_shape: Shape, single_dim: int, manual_sharding: str) -> XlaOp:
    """The array whose shards the partitions have computed by hand.

    Args:
        input: the partition's part.
        output_shape: of the whole array.
        single_dim: -1: all dimensions were those of the part.
        manual_sharding: the array's sharding, in XLA's text: "{devices=[2,1]<=[2]}".

    Raises:
        ShapeError: a single dimension; a sharding that does not cut the whole into parts of the input's shape.

    Source: `ConvertSpmdShardToFullShape` of XLA's builder; the custom calls @Sharding and @SPMDShardToFullShape.

    >>> part = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.convert_spmd_shard_to_full_shape(part, sx.f32[4, 3], -1, "{devices=[2,1]<=[2]}")
    XlaOp(stablehlo.custom_call, f32[4,3])
    """
    given = {"input": input, "output_shape": output_shape, "manual_sharding": manual_sharding}
    with checking("convert_spmd_shard_to_full_shape", **given) as rule:
        x = rule.op("input", input)
        part = _shard_shape(rule, rule.shape("output_shape", output_shape), single_dim, manual_sharding)
        rule("", x.shape == part, f"input must be a part of {output_shape}, which is {part}")
    return _crossing(x, "{manual}", "SPMDShardToFullShape", manual_sharding, output_shape)


def _crossing(x: XlaOp, before: str, target: str, after: str, shape: Shape) -> XlaOp:
    with x.builder.scoped_sharding(before):
        noted = x.builder.custom_call("Sharding", (x,), x.shape)
    with x.builder.scoped_sharding(after):
        return x.builder.custom_call(target, (noted,), shape)


def _shard_shape(rule: Rules, whole: Shape, single_dim: int, sharding: object) -> Shape:
    """The shape of a shard."""
    single = rule.integer("single_dim", single_dim)
    rule("", single == -1, "single_dim must be -1: all dimensions at once")
    rule("", whole.is_array and whole.is_static, f"{whole} must be that of an array of known size")
    found = _TILES.fullmatch(rule.text("manual_sharding", sharding))
    if found is None:
        rule.broken("", f"manual_sharding must be a sharding in tiles, not {told(sharding)}", '"{devices=[2,1]<=[2]}"')
    tiles = [int(n) for n in found[1].split(",")]
    rule("", len(tiles) >= whole.rank, f"manual_sharding must have a number for each dimension of {whole}")
    return whole.with_dimensions(_cut(rule, whole.dimensions, tiles))


def _cut(rule: Rules, sizes: Sequence[int], tiles: Sequence[int]) -> list[int]:
    even = all(tile > 0 and size % tile == 0 for size, tile in zip(sizes, tiles))
    rule("", even, f"manual_sharding must cut {list(sizes)} into equal parts, and {list(tiles)} does not")
    return [size // tile for size, tile in zip(sizes, tiles)]
