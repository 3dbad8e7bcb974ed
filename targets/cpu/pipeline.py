"""The pipeline of the CPU, as a value."""

from __future__ import annotations

from stablexla.dialects.composites import COMPOSITES
from stablexla.targets import (  # noqa: F401  (they register passes)
    bounded,
    channel_order,
    find_scans,
    inlining,
    legalize_chlo,
    lowering_passes,
    ruled,
    transform,
)
from stablexla.targets.computations import expand  # noqa: F401
from stablexla.targets.cpu import assign, attention_find, emit, mpi_dialect, packed_constants, timing  # noqa: F401
from stablexla.targets.cpu.options import CpuOptions
from stablexla.targets.cpu.to_llvm import LLVM, TO_LLVM
from stablexla.targets.imports import (  # noqa: F401
    bounds,
    chlo_rest,
    chlo_scan,
    einsum,
    mesh_groups,
    quantized,
    ragged_dot,
    ragged_exchanges,
    random_states,
    reachable,
    shapes,
    shardings,
    static_results,
)
from stablexla.targets.kernels import group, hoist, outline, prepare, turn  # noqa: F401
from stablexla.targets.options import CompileOptions
from stablexla.targets.partition import sharded  # noqa: F401
from stablexla.targets.pipeline import LOWER, Pipeline, Step

TENSOR = frozenset({"func", "linalg", "tensor", "scf", "arith", "math", "complex"})
BUFFERS = frozenset({"func", "memref", "vector", "scf", "arith", "math", "complex", "ub", "affine", "llvm", "amx"}) | {
    "builtin.unrealized_conversion_cast"  # between a buffer of complex numbers and one of their parts
}
# Operations of CHLO that are lowered whole; the others are legalised to StableHLO.
WHOLE = ",".join(name for name in COMPOSITES if name.startswith("chlo."))


def cpu_pipeline(options: CompileOptions = CompileOptions()) -> Pipeline:  # noqa: B008  (a frozen value)
    """The steps that take a StableHLO module to LLVM's dialect for this machine."""
    cpu = CpuOptions.of(options)
    features = f" features={'+'.join(cpu.features)}" if cpu.features else ""
    steps = [
        Step(
            "stablehlo",
            "stablexla-drop-unreachable,stablexla-partition,stablexla-resolve-mesh-groups,stablexla-drop-shardings,"
            "stablexla-refine-shapes,stablexla-replace-imported,stablexla-expand-ragged-exchanges,"
            f"stablexla-legalize-quantized,stablexla-expand-bounded,stablehlo-wrap-in-composite{{op-names={WHOLE}}},"
            "stablexla-keep-ruled,stablexla-decompose-composites,stablexla-inline-calls,stablexla-order-channels,"
            "stablexla-legalize-chlo,cse,stablexla-find-scans,stablexla-expand-computations",
        ),
        Step("tensor", f"{LOWER},canonicalize,cse", TENSOR),
        Step(
            "kernels",
            "stablexla-prepare-groups,stablexla-find-attention,stablexla-turn-products,stablexla-hoist-products,"
            "stablexla-group,stablexla-outline",
            TENSOR,
        ),
        Step(
            "buffers",
            f"stablexla-emit-kernels{{vector-bits={cpu.vector_bits}{features}}},stablexla-pack-constants,"
            f"stablexla-assign-buffers{{num-threads={cpu.most_threads}}}",
            BUFFERS,
        ),
        Step("llvm", ",".join(TO_LLVM), LLVM),
    ]
    return Pipeline("cpu", steps)
