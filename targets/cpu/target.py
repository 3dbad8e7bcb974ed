"""The CPU of this machine as a target."""

from __future__ import annotations

from stablexla.targets.buffers.assignment import BufferAssignment
from stablexla.targets.cpu.pipeline import cpu_pipeline, plain_pipeline
from stablexla.targets.kinds import no_target
from stablexla.targets.llvm.early_code import early_code
from stablexla.targets.llvm.engine import load
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.registry import Target


def target(text: str) -> Target:
    """The target `cpu`, which has no variants.

    Raises:
        CompileError: the text says more than `cpu`.
    """
    if text != "cpu":
        raise no_target(text)
    return Target(
        "cpu",
        cpu_pipeline,
        load,
        plain=plain_pipeline,
        assignment=BufferAssignment,
        ahead=lambda options: early_code(CpuOptions.of(options)),
    )
