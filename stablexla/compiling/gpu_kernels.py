"""Ahead-of-time compilation for GPUs: kernels as PTX or a cubin, their manifest, and a C header that launches them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from stablexla.compiling.ahead_of_time import prefix_of
from stablexla.compiling.gpu_header import header
from stablexla.compiling.gpu_manifest import constant_offsets, manifest
from stablexla.dialects.errors import CompileError
from stablexla.executable.executable import Executable
from stablexla.targets.gpu.chips import GpuName
from stablexla.targets.gpu.launch.main_to_steps import program_of
from stablexla.targets.gpu.launch.steps import GpuProgram
from stablexla.targets.gpu.ptx.cubin import assemble
from stablexla.targets.pipeline.driver import Watcher
from stablexla.targets.pipeline.pipelines import Step

MANIFEST, CONSTANTS = ".json", ".constants"
"""Suffixes of the files beside the kernels."""


def write_kernels(
    executable: Executable, output: str | Path, *, header_file: str | Path | None = None, name: str = ""
) -> GpuProgram:
    """Write the kernels of a GPU program, and beside them the manifest `.json`, and `.constants` if there are any.

    Args:
        executable: a program that was compiled for a GPU.
        output: the file of the kernels, which ends in .ptx or .cubin.
        header_file: where to write a C header that launches the kernels by the driver's API.
        name: the prefix of the header's functions; by default the output's name.

    Raises:
        CompileError: there is no ptxas for a cubin, or it does not know the chip; a name that is none in C; the
            program needs the host while it runs, so that no header can launch it; and as `Executable.ir`.
    """
    output = Path(output)
    name = prefix_of(name, output)
    program, signature = gpu_program(executable), executable._signature
    if header_file is not None:
        check_launchable(program, signature.num_devices, output)
    chip = GpuName.parse(executable.target).chip
    if output.suffix == ".cubin":
        _write_cubin(program.ptx, chip, output)
    else:
        output.write_text(program.ptx + "\n")
    constants = output.with_suffix(CONSTANTS) if program.constants else None
    if constants is not None:
        constants.write_bytes(constant_bytes(program))
    described = manifest(program, signature, name=name, target=executable.target, image=output, constants=constants)
    output.with_suffix(MANIFEST).write_text(manifest_text(described))
    if header_file is not None:
        Path(header_file).write_text(header(name, program, signature, executable.target))
    return program


def gpu_program(executable: Executable) -> GpuProgram:
    """Return the kernels of a GPU program, and the steps that run them.

    Raises:
        CompileError: the program's pipeline makes no PTX.
    """
    watcher = _AfterPtx()
    executable._watch(watcher, "ptx")
    if watcher.program is None:
        raise CompileError(f"{executable.name}: the pipeline has no step ptx", hint='sx.pipeline("gpu") has it')
    return watcher.program


class _AfterPtx(Watcher):
    """Reads the program where the kernels are PTX and `main` still launches them by name."""

    program: GpuProgram | None = None

    def after_step(self, number: int, step: Step, module: Any, seconds: float) -> None:
        if step.name == "ptx":
            self.program = program_of(module)


def manifest_text(described: dict[str, Any]) -> str:
    """Return a manifest as JSON, with a line for each row of its lists."""
    lines = []
    for key, value in described.items():
        if isinstance(value, list) and value:
            rows = ",\n".join(f"    {json.dumps(row)}" for row in value)
            lines.append(f"  {json.dumps(key)}: [\n{rows}\n  ]")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def check_launchable(program: GpuProgram, devices: int, output: Path) -> None:
    """Check that C can launch a program.

    Raises:
        CompileError: it runs on several devices, or needs the host while it runs.
    """
    manifest = output.with_suffix(MANIFEST).name
    hint = (
        f"-o {output.with_suffix('.ptx').name} without the header: {manifest} describes the kernels; or Python runs it"
    )
    if devices > 1:
        raise CompileError(f"the program is for {devices} devices, and a launcher in C is for one", hint=hint)
    if program.obstacle is not None:
        raise CompileError(f"nothing in C can launch the program: {program.obstacle}", hint=hint)


def _write_cubin(ptx: str, chip: str, output: Path) -> None:
    made = assemble(ptx, chip)
    if made is None:
        raise CompileError(f"{output}: there is no ptxas that knows {chip}", hint="pip install stablexla[gpu]")
    output.write_bytes(made)


def constant_bytes(program: GpuProgram) -> bytes:
    """Return the constants of a program, at the offsets of the manifest."""
    offsets, size = constant_offsets(program)
    data = bytearray(size)
    for offset, array in zip(offsets, program.constants, strict=True):
        data[offset : offset + array.nbytes] = np.ascontiguousarray(array).tobytes()
    return bytes(data)
