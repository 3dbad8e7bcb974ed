"""SPMD partitioning: a program on sharded arrays becomes the program that each device runs on its parts."""

from stablexla.targets.stablehlo.partition.sharded import Partitioned as Partitioned
from stablexla.targets.stablehlo.partition.sharded import is_sharded as is_sharded
from stablexla.targets.stablehlo.partition.sharded import partitioned as partitioned

__all__ = ["Partitioned", "is_sharded", "partitioned"]
