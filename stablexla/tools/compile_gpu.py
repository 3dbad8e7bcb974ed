"""`stablexla-compile` for GPUs: a library, or the kernels in a file and their manifest; a C header on demand."""

from __future__ import annotations

import argparse

from stablexla.compiling.compiler import compile
from stablexla.interop.load import Program
from stablexla.tools.common import compile_options

SUFFIXES = (".ptx", ".cubin", ".so")


def write_kernels(program: Program, given: argparse.Namespace) -> int:
    """Write the file of `--output`, in the form of its suffix, the manifest of kernels, and the file of `--header`.

    Raises:
        CompileError: as `stablexla.compiling.gpu_kernels.write_kernels`, `gpu_library.write_library` and `sx.compile`.
    """
    from stablexla.compiling import gpu_kernels, gpu_library  # which import the GPU's passes

    executable = compile(program, target=given.target, options=compile_options(given))
    names = {"header_file": given.header, "name": given.name}
    if given.output.suffix == ".so":
        gpu_library.write_library(executable, given.output, **names, linker=given.linker, link_arguments=given.link_arg)
    else:
        gpu_kernels.write_kernels(executable, given.output, **names)
    return 0
