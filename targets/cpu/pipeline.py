"""The pipeline of the CPU, as a value."""

from __future__ import annotations

from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.llvm.to_llvm import LLVM, TO_LLVM
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import LOWER, Pipeline, Step
from stablexla.targets.pipeline.steps import BUFFERS, kernels_step, register_passes, stablehlo_step, tensor_step


def cpu_pipeline(options: CompileOptions = CompileOptions()) -> Pipeline:  # noqa: B008  (a frozen value)
    """The steps that take a StableHLO module to LLVM's dialect for this machine."""
    register_passes("cpu")
    cpu = CpuOptions.of(options)
    features = f" features={'+'.join(cpu.features)}" if cpu.features else ""
    guard = f" guard={cpu.guard}" if cpu.guard else ""
    precision = "stablexla-keep-precision," * options.excess_precision
    buffers = (
        f"{precision}stablexla-emit-kernels{{vector-bits={cpu.vector_bits}{features}}},stablexla-pack-constants,"
        f"stablexla-read-before-updates,stablexla-assign-buffers{{num-threads={cpu.most_threads}{guard}}}"
    )
    narrow = f"stablexla-turn-narrow-products{{vector-bits={cpu.vector_bits}}}"
    products = [narrow, "stablexla-widen-in-products", "stablexla-join-factors"]
    steps = [
        stablehlo_step(channels_last=True, sum_integers=True),
        tensor_step(find_repeats=options.find_repeats),
        kernels_step("stablexla-split-complex-products,stablexla-find-attention", products),
        Step("buffers", buffers, BUFFERS),
        Step("llvm", ",".join(TO_LLVM), LLVM),
    ]
    return Pipeline("cpu", steps).with_choices(options.choices or knobs.choices)


def plain_pipeline(options: CompileOptions) -> Pipeline:
    """The same with as little as can be done to a program: nothing folded, one thread, kernels by the general path."""
    buffers = "stablexla-emit-kernels{general-only=true},stablexla-assign-buffers{num-threads=1}"
    return cpu_pipeline(options).with_step("tensor", LOWER).with_step("buffers", buffers)
