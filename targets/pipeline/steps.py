"""Steps with which the pipelines of all targets begin, parametrized by what differs between targets."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from stablexla.dialects.discovery import import_all
from stablexla.targets.pipeline.pipelines import LOWER, Step

TENSOR = frozenset({"func", "linalg", "tensor", "scf", "arith", "math", "complex"})
CAST = "builtin.unrealized_conversion_cast"
"""Between an array of complex numbers and one of their parts, in the same memory."""
BUFFERS = frozenset(
    {"func", "memref", "vector", "scf", "arith", "math", "complex", "ub", "affine", "llvm", "amx", CAST}
)
"""Dialects left after the steps `tensor` and `kernels`, and after `buffers`."""
PREPARE = (
    "stablexla-compute-through-rolls",
    "stablexla-drop-unused",
    "stablexla-align-loops",
    "stablexla-write-out-splats",
    "stablexla-repeat-generators",
    "stablexla-repeat-cheap",
)
"""Passes before grouping: canonical loops, and lazy splats materialized where they must be stored."""
_COMMON = ("pipeline", "stablehlo", "grouping", "buffers", "host", "llvm")


@functools.cache
def register_passes(*targets: str) -> None:
    """Import the packages of passes and emitters: those that all targets share, and those of the given targets."""
    for folder in (*_COMMON, *targets):
        import_all(f"stablexla.targets.{folder}")


def stablehlo_step(target: str = "", *, channels_last: bool = False, sum_integers: bool = False) -> Step:
    """Return the step from imported programs to one StableHLO function without composites to be decomposed.

    Args:
        target: whose kernels for composites count, where it has fewer than others.
        channels_last: whether convolutional networks in NCHW are computed in NHWC.
        sum_integers: whether products of dequantized bytes sum integers.
    """
    quantized = "stablexla-sum-integers," * sum_integers
    decompose = "stablexla-decompose-composites" + (f"{{target={target}}}" if target else "")
    passes = (
        "stablexla-drop-unreachable,stablexla-partition,stablexla-resolve-mesh-groups,stablexla-drop-shardings,"
        "stablexla-refine-shapes,stablexla-replace-imported,stablexla-expand-ragged-exchanges,"
        "stablexla-legalize-quantized,stablexla-expand-bounded,"
        f"stablexla-keep-ruled,{decompose},stablexla-inline-calls,stablexla-order-channels,"
        f"stablexla-legalize-chlo,cse,{quantized}stablexla-find-scans,stablexla-mask-updates,"
        "stablexla-flatten-indices,stablexla-drop-padding-taps,stablexla-merge-concatenates,stablexla-expand-computations"
    )
    return Step("stablehlo", passes + (",stablexla-channels-last" if channels_last else ""))


def tensor_step(*, whole_sorts: bool = False, find_repeats: bool = True) -> Step:
    """Return the step from StableHLO to linalg on tensors.

    Args:
        whole_sorts: makes each sort one kernel.
        find_repeats: makes functions of equal parts of the program; the step to kernels inlines them.
    """
    first = "stablexla-find-repeats," if find_repeats else ""
    return Step("tensor", f"{first}{lower(whole_sorts)},canonicalize,cse", TENSOR)


def lower(whole_sorts: bool = False) -> str:
    """Spell the pass that lowers StableHLO to linalg on tensors."""
    return f"{LOWER}{{whole-sorts=true}}" if whole_sorts else LOWER


def kernels_step(find_attention: str = "", before_grouping: Sequence[str] = ()) -> Step:
    """Return the step from linalg on tensors to kernels: private functions that `main` calls.

    Args:
        find_attention: the target's pass that matches attention and makes kernels of it, where it has one.
        before_grouping: the target's passes that run before grouping.
    """
    products = ("stablexla-turn-products", "stablexla-hoist-products")
    passes = (*PREPARE, find_attention, *products, *before_grouping, "stablexla-group", "stablexla-outline")
    passes = (*passes, "stablexla-inline-repeats")
    return Step("kernels", ",".join(filter(None, passes)), TENSOR | {CAST})
