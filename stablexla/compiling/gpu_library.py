"""A GPU program as a shared library for C: its kernels, its constants and their launcher, by a C compiler."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from stablexla.compiling.ahead_of_time import prefix_of
from stablexla.compiling.gpu_header import header, library_header
from stablexla.compiling.gpu_kernels import check_launchable, constant_bytes, gpu_program
from stablexla.executable.executable import Executable
from stablexla.targets.gpu.launch.steps import GpuProgram
from stablexla.targets.llvm import toolchain

# What the launcher uses of the driver, so that no machine needs CUDA's headers to build the library.
_DRIVER = """\
#include <stddef.h>
#include <stdlib.h>

typedef enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2 } CUresult;
typedef unsigned long long CUdeviceptr;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
#define CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES 8
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2
#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
CUresult cuModuleLoadDataEx(CUmodule*, const void*, unsigned, int*, void**);
CUresult cuModuleUnload(CUmodule);
CUresult cuModuleGetFunction(CUfunction*, CUmodule, const char*);
CUresult cuFuncSetAttribute(CUfunction, int, int);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void**, void**);
CUresult cuMemAlloc(CUdeviceptr*, size_t);
CUresult cuMemFree(CUdeviceptr);
CUresult cuMemcpyHtoDAsync(CUdeviceptr, const void*, size_t, CUstream);
CUresult cuMemcpyDtoDAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuStreamSynchronize(CUstream);
"""

_SOURCE = """\
__asm__(".pushsection .rodata\\n.balign 64\\n"
        ".globl {name}_image\\n.hidden {name}_image\\n{name}_image: .incbin \\"{image}\\"\\n.balign 64\\n"
        ".globl {name}_constants\\n.hidden {name}_constants\\n{name}_constants: .incbin \\"{constants}\\"\\n"
        ".popsection\\n");
extern const char {name}_image[] __attribute__((visibility("hidden")));
extern const char {name}_constants[] __attribute__((visibility("hidden")));
#define EXPORTED __attribute__((visibility("default")))

struct {name} {{
  struct {name}_launcher launcher;
}};

EXPORTED int {name}_load(struct {name}** made) {{
  struct {name}* program = (struct {name}*)malloc(sizeof *program);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (program != NULL) result = {name}_launcher_load(&program->launcher, {name}_image, {name}_constants);
  if (result != CUDA_SUCCESS) {{
    free(program);
    program = NULL;
  }}
  *made = program;
  return (int)result;
}}

EXPORTED int {name}_run(const struct {name}* program, void* stream, const unsigned long long* arguments,
                        const unsigned long long* results) {{
  return (int){name}_launcher_run(&program->launcher, (CUstream)stream, arguments, results);
}}

EXPORTED int {name}_unload(struct {name}* program) {{
  const CUresult result = program == NULL ? CUDA_SUCCESS : {name}_launcher_unload(&program->launcher);
  free(program);
  return (int)result;
}}
"""


def write_library(
    executable: Executable,
    output: str | Path,
    *,
    header_file: str | Path | None = None,
    name: str = "",
    linker: str = "",
    link_arguments: Sequence[str] = (),
) -> GpuProgram:
    """Write a shared library that loads and launches a GPU program.

    The kernels are in it as PTX, which the driver compiles when they are loaded. The driver's functions stay open, for
    the program that links the library and libcuda.

    Args:
        executable: a program that was compiled for a GPU.
        output: the library.
        header_file: where to write its C header.
        name: the prefix of the functions; by default the output's name.
        linker: a C or C++ compiler; by default one that is found.
        link_arguments: further arguments for it, such as "-lcuda".

    Raises:
        CompileError: there is no compiler; a name that is none in C; the program needs the host while it runs; and as
            `Executable.ir`.
    """
    output = Path(output)
    name = prefix_of(name, output)
    program, signature = gpu_program(executable), executable._signature
    check_launchable(program, signature.num_devices, output)
    with tempfile.TemporaryDirectory(prefix="stablexla-") as temporary:
        folder = Path(temporary)
        image, constants, source = folder / "image", folder / "constants", folder / "library.c"
        image.write_bytes(program.ptx.encode() + b"\n\0")
        constants.write_bytes(constant_bytes(program))
        launcher = header(f"{name}_launcher", program, signature, executable.target).replace("#include <cuda.h>\n", "")
        source.write_text(_DRIVER + launcher + _SOURCE.format(name=name, image=image, constants=constants))
        toolchain.link_c(source, output, link_arguments, linker)
    if header_file is not None:
        Path(header_file).write_text(library_header(name, program, signature, executable.target))
    return program
