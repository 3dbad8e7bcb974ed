"""The numbers of replicas and partitions of a compilation: the caller's, the module's, or one.

The numbers are attributes of the compiled module, which the steps of the pipeline read.
"""

from __future__ import annotations

import jaxlib.mlir.ir as ir

from stablexla.dialects.errors import CompileError
from stablexla.targets.pipeline.driver import copy_of
from stablexla.targets.signature.signature import count_of

Counts = tuple[int, int]
"""Replicas and partitions."""
MOST = 2**31 - 1


def counts_of(module: ir.Module, num_replicas: int | None, num_partitions: int | None) -> Counts:
    """Return the numbers of replicas and partitions.

    Raises:
        CompileError: no number from 1 on, or more devices than 32 bits can count.
    """
    replicas = _count(module, "replicas", num_replicas)
    partitions = _count(module, "partitions", num_partitions)
    if replicas * partitions > MOST:
        raise CompileError(f"{replicas} replicas of {partitions} partitions are more devices than 32 bits can count")
    return replicas, partitions


def with_counts(module: ir.Module, counts: Counts) -> ir.Module:
    """Return the module if it has these numbers already, otherwise a copy with them."""
    if counts == (count_of(module, "replicas"), count_of(module, "partitions")):
        return module
    copy: ir.Module = copy_of(module)
    i32 = ir.IntegerType.get_signless(32, copy.context)
    for what, count in zip(("replicas", "partitions"), counts, strict=True):
        copy.operation.attributes[f"mhlo.num_{what}"] = ir.IntegerAttr.get(i32, count)
    return copy


def _count(module: ir.Module, what: str, given: int | None) -> int:
    count = count_of(module, what) if given is None else given
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
        raise CompileError(f"num_{what} must be a number from 1 on, not {count!r}")
    return count
