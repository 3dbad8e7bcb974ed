"""The pipeline of the CPU, as a value."""

from __future__ import annotations

from stablexla.dialects.composites import COMPOSITES
from stablexla.targets.buffers import assign  # noqa: F401
from stablexla.targets.codegen.match import attention_find  # noqa: F401
from stablexla.targets.cpu import emit, packed_constants  # noqa: F401
from stablexla.targets.grouping import group, hoist, outline, prepare  # noqa: F401
from stablexla.targets.grouping import transpose_products as turn
from stablexla.targets.host import mpi_dialect  # noqa: F401
from stablexla.targets.llvm import timing  # noqa: F401
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.llvm.to_llvm import LLVM, TO_LLVM
from stablexla.targets.pipeline import lowering_passes, transform  # noqa: F401
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import LOWER, Pipeline, Step
from stablexla.targets.stablehlo import bounded, channel_order, find_scans, inlining, legalize_chlo, ruled  # noqa: F401
from stablexla.targets.stablehlo.computations import expand  # noqa: F401
from stablexla.targets.stablehlo.imports import (  # noqa: F401
    chlo_rest,
    chlo_scan,
    einsum,
    mesh_groups,
    ragged_dot,
    ragged_exchanges,
    random_states,
    reachable,
    shardings,
)
from stablexla.targets.stablehlo.imports.quantized import quantized  # noqa: F401
from stablexla.targets.stablehlo.imports.shapes import bounds, static_results  # noqa: F401
from stablexla.targets.stablehlo.imports.shapes import refinement as shapes
from stablexla.targets.stablehlo.partition import sharded  # noqa: F401

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
