"""Programs whose arrays lie in parts on several devices, made into the program that each of the devices runs."""

from stablexla.targets.stablehlo.partition.sharded import Partitioned as Partitioned
from stablexla.targets.stablehlo.partition.sharded import is_sharded as is_sharded
from stablexla.targets.stablehlo.partition.sharded import partitioned as partitioned

__all__ = ["Partitioned", "is_sharded", "partitioned"]
