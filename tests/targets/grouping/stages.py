"""Programs taken some way along the CPU's pipeline, for tests that look at what a pass left."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.interop.loading import load
from stablexla.targets.cpu.pipeline import cpu_pipeline
from stablexla.targets.pipeline import steps
from stablexla.targets.pipeline.driver import copy_of, run_pipeline
from stablexla.targets.pipeline.pipelines import Step

PREPARE, GROUP, EMIT = ",".join(steps.PREPARE), "stablexla-group", "stablexla-emit-kernels"


def grouped(text: str) -> ir.Module:
    """A StableHLO program with its operations labelled, before they are outlined."""
    pipeline = cpu_pipeline().with_step("kernels", f"{PREPARE},{GROUP}").up_to("kernels")
    return run_pipeline(copy_of(load(text)), pipeline)


def outlined(text: str, *, without: str = "") -> ir.Module:
    """A StableHLO program as calls of kernels, without one of the passes."""
    pipeline = cpu_pipeline().up_to("kernels")
    return run_pipeline(copy_of(load(text)), pipeline.without_pass(without) if without else pipeline)


def emitted(text: str, *, general_only: bool = False) -> ir.Module:
    """A StableHLO program whose kernels have their loops, before buffers are assigned."""
    passes = EMIT + ("{general-only=true}" if general_only else "")
    pipeline = cpu_pipeline().up_to("kernels").inserting(Step("emit", passes), after="kernels")
    return run_pipeline(copy_of(load(text)), pipeline)
