"""The pipeline of NVIDIA GPUs, as a value: the CPU's down to the kernels, then gpu, nvvm and PTX; then `main` alone."""

from __future__ import annotations

from stablexla.targets.cpu.options import CpuOptions
from stablexla.targets.cpu.pipeline import BUFFERS, TENSOR, cpu_pipeline
from stablexla.targets.cpu.to_llvm import LLVM, TO_LLVM
from stablexla.targets.gpu import (  # noqa: F401  (they register passes)
    assign,
    attention_find,
    carried,
    denormals,
    emit,
    emulate,
    host_main,
    outline,
    overlaps,
    scalars,
    sink_conversions,
    sink_producers,
    to_ptx,
    wide_shifts,
)
from stablexla.targets.gpu.chips import GpuName, generation
from stablexla.targets.options import CompileOptions
from stablexla.targets.pipeline import LOWER, Pipeline, Step

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


def gpu_pipeline(name: GpuName, options: CompileOptions) -> Pipeline:
    """The steps that take a StableHLO module to PTX for a chip, or to the CPU, when it is emulated."""
    common = cpu_pipeline(CompileOptions()).up_to("kernels").steps
    kernels = common[-1].passes.replace("stablexla-find-attention", f"stablexla-find-gpu-attention{{chip={name.chip}}}")
    kernels = kernels.replace("stablexla-group", "stablexla-sink-conversions,stablexla-sink-producers,stablexla-group")
    level = 3 if options.opt_level is None else options.opt_level
    tensor = common[-2].passes.replace(LOWER, f"{LOWER}{{whole-sorts=true}}")
    program = common[-3].passes.replace("decompose-composites", "decompose-composites{target=gpu}")
    main = BUFFERS_OF_MAIN.format(1 if name.emulated else CpuOptions.of(options).most_threads)
    steps = [
        *common[:-3],
        Step("stablehlo", program),
        Step("tensor", tensor, TENSOR),
        Step("kernels", kernels, TENSOR),
        Step("buffers", f"{ON_DEVICE},stablexla-map-kernels{{{_options(name)}}},{main}", MAPPED),
        Step("gpu", "stablexla-outline-gpu,stablexla-expand-angles,canonicalize,cse", MAPPED),
    ]
    if name.emulated:
        steps += [
            Step("emulated", "stablexla-emulate-gpu", BUFFERS),
            Step("llvm", ",".join([*TO_LLVM, "stablexla-emulate-threads"]), LLVM),
        ]
        return Pipeline(str(name), steps)
    attach = f"nvvm-attach-target{{chip={name.chip} features=+ptx{name.ptx} O={level}}}"
    flush = "stablexla-flush-denormals," if options.flush_denormals else ""
    prepared = f"{flush}stablexla-clamp-shifts,stablexla-share-outside,stablexla-check-nvvm{{chip={name.chip}}}"
    steps += [
        Step(
            "nvvm",
            f"{EXPAND.format(_to_bf16(name))},stablexla-math-to-intrinsics,{attach},gpu.module({TO_NVVM})",
            NVVM,
        ),
        Step("ptx", f"{prepared},gpu-module-to-binary{{format=isa}}", NVVM),
        Step("host", "stablexla-launch-gpu,cse", BUFFERS),
        Step("llvm", ",".join(TO_LLVM), LLVM),
    ]
    return Pipeline(str(name), steps)


def plain_pipeline(target: str, options: CompileOptions) -> Pipeline:
    """The same with as little as can be done to a program: nothing folded, and all kernels by the general path."""
    name = GpuName.parse(target)
    pipeline = gpu_pipeline(name, options)
    mapped = pipeline["buffers"].passes.replace(_options(name), f"{_options(name)} general-only=true")
    return pipeline.with_step("tensor", f"{LOWER}{{whole-sorts=true}}").with_step("buffers", mapped)


def _options(name: GpuName) -> str:
    """The target as options of `stablexla-map-kernels`."""
    return f"chip={name.chip} ptx={name.ptx}" + (" emulated=true" if name.emulated else "")


def _to_bf16(name: GpuName) -> str:
    """How an f32 becomes a bf16: `cvt.rn.bf16.f32` came with sm_80, and no GPU's own NaN has zeros below."""
    return "instruction" if generation(name.chip) >= 80 else "any-nans"
