"""The kernels of a GPU program in a file: PTX, or ptxas's cubin."""

from __future__ import annotations

import argparse
from pathlib import Path

from stablexla.compiling.compiler import compile
from stablexla.dialects.errors import CompileError
from stablexla.interop.load import load_bytes
from stablexla.tools.common import compile_options, read_input

SUFFIXES = (".ptx", ".cubin")


def write_kernels(given: argparse.Namespace) -> int:
    """Write the file of `--output`, in the form of its suffix.

    Raises:
        CompileError: there is no ptxas for a cubin, or it does not know the chip; and as `sx.compile`.
    """
    data, file = read_input(given.file)
    executable = compile(load_bytes(data, file), entry=given.entry, target=given.target, options=compile_options(given))
    ptx = executable.ir("ptx")
    if given.output.suffix == ".ptx":
        given.output.write_text(ptx + "\n")
    else:
        given.output.write_bytes(_cubin(ptx, executable.target, given.output))
    return 0


def _cubin(ptx: str, target: str, output: Path) -> bytes:
    from stablexla.targets.gpu.chips import GpuName
    from stablexla.targets.gpu.ptx.cubin import assemble

    chip = GpuName.parse(target).chip
    made = assemble(ptx, chip)
    if made is None:
        raise CompileError(f"{output}: there is no ptxas that knows {chip}", hint="pip install stablexla[gpu]")
    return made
