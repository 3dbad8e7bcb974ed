"""The pipeline of NVIDIA GPUs, as a value: to kernels as for the CPU, then gpu, nvvm and PTX; then `main` alone."""

from __future__ import annotations

from stablexla.targets.gpu.chips import GpuName, compute_capability
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.llvm.to_llvm import LLVM, TO_LLVM
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline, Step
from stablexla.targets.pipeline.steps import BUFFERS, kernels_step, lower, register_passes, stablehlo_step, tensor_step

MAPPED = BUFFERS | {"gpu", "nvvm"}
NVVM = MAPPED | {"llvm"}

EXPAND = "stablexla-expand-math,stablexla-expand-small-floats{{to-bf16={}}}"
ON_DEVICE = "stablexla-carry-on-device"
BUFFERS_OF_MAIN = (
    "stablexla-assign-device-buffers{{num-threads={}}},stablexla-scalars-on-device,stablexla-tell-overlaps"
)
# In the functions of the GPU module alone; `main` stays as it is.
TO_NVVM = (
    "expand-strided-metadata,lower-affine,"
    "convert-vector-to-scf{full-unroll=true},lower-affine,convert-scf-to-cf,"
    "convert-complex-to-llvm,convert-math-to-llvm,"
    "convert-gpu-to-nvvm{use-bare-ptr-memref-call-conv=1},reconcile-unrealized-casts"
)


def gpu_pipeline(name: GpuName, options: CompileOptions, *, general_only: bool = False) -> Pipeline:
    """The steps that take a StableHLO module to PTX for a chip.

    Args:
        general_only: sends all kernels through the general path.
    """
    register_passes("gpu")
    find_attention = f"stablexla-find-gpu-attention{{chip={name.chip}}}"
    level = 3 if options.opt_level is None else options.opt_level
    mapped = f"chip={name.chip} ptx={name.ptx}" + " general-only=true" * general_only
    main = BUFFERS_OF_MAIN.format(CpuOptions.of(options).most_threads)
    attach = f"nvvm-attach-target{{chip={name.chip} features=+ptx{name.ptx} O={level}}}"
    flush = "stablexla-flush-denormals," if options.flush_denormals else ""
    precision = "stablexla-keep-precision," * options.excess_precision
    prepared = f"{flush}stablexla-clamp-shifts,stablexla-share-outside,stablexla-check-nvvm{{chip={name.chip}}}"
    steps = [
        stablehlo_step("gpu"),
        tensor_step(whole_sorts=True, find_repeats=options.find_repeats),
        kernels_step(find_attention, ["stablexla-sink-conversions", "stablexla-sink-producers"]),
        Step("buffers", f"{precision}{ON_DEVICE},stablexla-map-kernels{{{mapped}}},{main}", MAPPED),
        Step("gpu", "stablexla-outline-gpu,stablexla-expand-angles,canonicalize,cse", MAPPED),
        Step(
            "nvvm",
            f"{EXPAND.format(_to_bf16(name))},stablexla-math-to-intrinsics,{attach},gpu.module({TO_NVVM})",
            NVVM,
        ),
        Step("ptx", f"{prepared},gpu-module-to-binary{{format=isa}}", NVVM),
        Step("host", "stablexla-launch-gpu,cse", BUFFERS),
        Step("llvm", ",".join(TO_LLVM), LLVM),
    ]
    return Pipeline(str(name), steps).with_choices(options.choices or knobs.choices)


def plain_pipeline(target: str, options: CompileOptions) -> Pipeline:
    """The same with as little as can be done to a program: nothing folded, and all kernels by the general path."""
    return gpu_pipeline(GpuName.parse(target), options, general_only=True).with_step("tensor", lower(whole_sorts=True))


def _to_bf16(name: GpuName) -> str:
    """How an f32 becomes a bf16: `cvt.rn.bf16.f32` came with sm_80, and no GPU's own NaN has zeros below."""
    return "instruction" if compute_capability(name.chip) >= 80 else "any-nans"
