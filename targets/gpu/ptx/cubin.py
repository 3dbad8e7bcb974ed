"""Cubins (machine code of a GPU) from PTX, by ptxas where there is one; else the driver compiles the PTX."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from stablexla.dialects.errors import CompileError, ExecutionError
from stablexla.targets.gpu.chips import compute_capability
from stablexla.targets.pipeline.knobs import IS_PRIVILEGED, knobs

PACKAGES = ("nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc-cu13", "nvidia-cuda-nvcc")
_UNKNOWN = ("is not defined for option 'gpu-name'", "Unsupported .version")
"""Messages of ptxas for a chip or a PTX version that it does not know."""


def find_ptxas() -> str | None:
    """Return the path of ptxas: STABLEXLA_PTXAS, else that of NVIDIA's package, or one on the path; "none" is none."""
    if knobs.ptxas is None:
        return _installed_ptxas()
    return None if str(knobs.ptxas) == "none" else str(knobs.ptxas)


@functools.cache
def _installed_ptxas() -> str | None:
    for package in PACKAGES:
        try:
            found = [str(f.locate()) for f in files(package) or () if f.name == "ptxas"]
        except PackageNotFoundError:
            continue
        if found:
            return found[0]
    return None if IS_PRIVILEGED else shutil.which("ptxas")  # PATH is the caller's


def assemble(ptx: str, chip: str) -> bytes | None:
    """Assemble PTX into a cubin for a chip; None without a ptxas that knows the chip and the PTX version.

    Raises:
        CompileError: ptxas refuses the text, or cannot be run.
    """
    done = _run(ptx, chip)
    return None if done is None else done[0]


def ptxas_report(ptx: str, chip: str) -> str | None:
    """Return what ptxas reports of each kernel: registers, spilled bytes, shared memory. None as for `assemble`.

    Raises:
        CompileError: as `assemble`.
    """
    done = _run(ptx, chip, ["-v"])
    return None if done is None else done[1]


def assembly_chip(made_for: str, chip: str) -> str:
    """Return the chip to assemble PTX for: the device's, or the PTX's own if that is architecture-specific.

    Raises:
        ExecutionError: the device cannot run it.
    """
    check_chip(made_for, chip)
    return made_for if made_for[-1:].isalpha() else chip


def check_chip(made_for: str, chip: str) -> None:
    """Raise ExecutionError where a device of one chip cannot run PTX for another."""
    fits = compute_capability(made_for) == compute_capability(chip) if made_for[-1:].isalpha() else True
    if not fits or compute_capability(made_for) > compute_capability(chip):
        raise ExecutionError(
            f"the program was compiled for {made_for}, which a GPU of {chip} cannot run",
            hint='target="gpu" takes the chip of the GPU that is there',
        )


def _run(ptx: str, chip: str, arguments: Sequence[str] = ()) -> tuple[bytes, str] | None:
    """Run ptxas; return the cubin and its messages."""
    ptxas = find_ptxas()
    if ptxas is None:
        return None
    with tempfile.TemporaryDirectory(prefix="stablexla-") as folder:
        source, made = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
        source.write_text(ptx)
        command = [ptxas, f"-arch={chip}", *arguments, str(source), "-o", str(made)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
        except OSError as error:
            raise CompileError(f"{ptxas} cannot be run: {error.strerror}") from None
        said = done.stdout + done.stderr
        if done.returncode == 0 and made.is_file():
            return made.read_bytes(), said
    if any(words in said for words in _UNKNOWN):
        return None
    raise CompileError(f"ptxas refuses the PTX for {chip}", diagnostics=tuple(said.strip().splitlines()[:20]))
