"""Load a GPU program: from a module with `main` in LLVM's dialect and kernels in PTX to a callable function.

Machine code of `main` is generated here; that of the kernels at the first run, for the GPU present.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.caller import warn
from stablexla.targets.gpu.emit import ON_HOST
from stablexla.targets.gpu.launch.gpu_code import GpuCode
from stablexla.targets.gpu.launch.launches import LaunchTable
from stablexla.targets.llvm.engine import machine_code
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.runtime._runtime import GpuFunction
from stablexla.targets.signature.signature import Signature


def load(module: ir.Module, signature: Signature, options: CompileOptions, chip: str) -> GpuFunction:
    """Compile and load the program, ready to be called.

    Raises:
        CompileError: the module is not what the pipeline leaves; something in it has no translation.
    """
    cpu = CpuOptions.of(options)
    _warn_of_host(module, signature.name)
    table = LaunchTable.take(module)
    found = machine_code(module, signature, cpu)
    made = GpuCode(found.code, table.ptx, chip, tuple(table.shared_bytes.items()))
    return made.function(
        signature.name,
        signature.parameter_specs(),
        signature.result_specs(),
        arena_bytes=found.entry.arena_bytes,
        constants=found.entry.constants,
        aliases=found.entry.aliases,
        host=found.host,
        flush_denormals=cpu.flush_denormals,
        places=found.places,
    )


def _warn_of_host(module: ir.Module, name: str) -> None:
    """Warn of kernels that do not run on the GPU; removes the list from the module."""
    attributes = module.operation.attributes
    if ON_HOST not in attributes:
        return
    names = dict.fromkeys(ir.StringAttr(each).value for each in ir.ArrayAttr(attributes[ON_HOST]))
    del attributes[ON_HOST]
    warn(f"{name}: run on the host, not on the GPU: {', '.join(names)}")
