"""`stablexla-compile` for GPUs: the kernels in a file, their manifest beside it, and a C header on demand."""

from __future__ import annotations

import argparse

from stablexla.compiling.compiler import compile
from stablexla.interop.load import Program
from stablexla.tools.common import compile_options

SUFFIXES = (".ptx", ".cubin")


def write_kernels(program: Program, given: argparse.Namespace) -> int:
    """Write the file of `--output`, in the form of its suffix, its manifest, and the file of `--header`.

    Raises:
        CompileError: as `stablexla.compiling.gpu_kernels.write_kernels` and `sx.compile`.
    """
    from stablexla.compiling import gpu_kernels  # which imports the GPU's passes

    executable = compile(program, target=given.target, options=compile_options(given))
    gpu_kernels.write_kernels(executable, given.output, header_file=given.header, name=given.name)
    return 0
