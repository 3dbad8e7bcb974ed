"""The C header that launches a GPU program by the CUDA driver's API: its steps as tables, and the loop over them.

Also the header of a library that holds such a launcher.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stablexla.compiling.c_header import words_of
from stablexla.compiling.gpu_manifest import ARRAY_ALIGNMENT, constant_offsets, names_of
from stablexla.targets.gpu.launch.steps import CopyStep, GpuProgram, LaunchStep, Place, Scalar, Step
from stablexla.targets.signature.interface import Signature

_HEAD = """\
/* {summary}
 * Made by stablexla {version} for {target}. {needs}
 *
 * Arrays are in the memory of the GPU, dense, in row-major order, at addresses that are multiples of {alignment}; an
 * element of less than a byte lies in a byte. A result may not overlap anything else{aliased}.
 *
 * The functions work in the current context and return the driver's CUresult: 0 is CUDA_SUCCESS, and
 * CUDA_ERROR_INVALID_VALUE also stands for an address of the caller that is NULL or not aligned. */
#ifndef {guard}
#define {guard}

"""

_LIBRARY = """\
#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_NUM_PARAMETERS {num_parameters}
#define {upper}_NUM_RESULTS {num_results}
{sizes}

/* A loaded program. Its memory for temporaries is in it: runs of one must be in order, as on one stream. */
struct {name};

/* Load the kernels and allocate memory. */
int {name}_load(struct {name}** program);

/* Queue one run on a CUstream; nothing is waited for. The addresses are CUdeviceptr.
 *   arguments: {parameters}
 *   results: {results} */
int {name}_run(const struct {name}* program, void* stream, const unsigned long long* arguments,
               const unsigned long long* results);

/* Free what {name}_load allocated. No run may be under way. */
int {name}_unload(struct {name}* program);

#ifdef __cplusplus
}}
#endif

#endif
"""

_TEMPLATE = """\
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#define {upper}_NUM_PARAMETERS {num_parameters}
#define {upper}_NUM_RESULTS {num_results}
#define {upper}_ARENA_BYTES {arena_bytes}
#define {upper}_CONSTANT_BYTES {constant_bytes}
{sizes}

/* A loaded program. Its memory for temporaries is in it: runs of one must be in order, as on one stream. */
struct {name} {{
  CUmodule module;
  CUfunction kernels[{kernel_room}];
  CUdeviceptr constants;
  CUdeviceptr arena;
}};

struct {name}_place {{
  int buffer; /* parameters, constants, results, the arena; behind them, a number instead of an address */
  uint64_t offset;
}};

/* Free what {name}_load allocated. No run may be under way. */
static inline CUresult {name}_unload(struct {name}* program) {{
  CUresult result = CUDA_SUCCESS, next;
  if (program->arena != 0 && (next = cuMemFree(program->arena)) != CUDA_SUCCESS) result = next;
  if (program->constants != 0 && (next = cuMemFree(program->constants)) != CUDA_SUCCESS) result = next;
  if (program->module != NULL && (next = cuModuleUnload(program->module)) != CUDA_SUCCESS) result = next;
  program->arena = program->constants = 0;
  program->module = NULL;
  return result;
}}

/* Load the kernels and allocate memory. `image` is the cubin, or the PTX with a 0 behind it; `constants` the content of
 * the file of constants, or NULL where {upper}_CONSTANT_BYTES is 0. Both may be freed afterwards. */
static inline CUresult {name}_load(struct {name}* program, const void* image, const void* constants) {{
  static const struct {{
    const char* name;
    int shared;
  }} kernels[] = {{
{kernels}
  }};
  CUresult result = CUDA_SUCCESS;
  int i;
  program->module = NULL;
  program->constants = program->arena = 0;
  if (image == NULL || (constants == NULL && {upper}_CONSTANT_BYTES != 0)) return CUDA_ERROR_INVALID_VALUE;
  if ({num_kernels} != 0) result = cuModuleLoadDataEx(&program->module, image, 0, NULL, NULL);
  for (i = 0; result == CUDA_SUCCESS && i < {num_kernels}; ++i) {{
    result = cuModuleGetFunction(&program->kernels[i], program->module, kernels[i].name);
    if (result == CUDA_SUCCESS && kernels[i].shared != 0)
      result = cuFuncSetAttribute(program->kernels[i], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  kernels[i].shared);
  }}
  if (result == CUDA_SUCCESS && {upper}_ARENA_BYTES != 0) result = cuMemAlloc(&program->arena, {upper}_ARENA_BYTES);
  if (result == CUDA_SUCCESS && {upper}_CONSTANT_BYTES != 0) {{
    result = cuMemAlloc(&program->constants, {upper}_CONSTANT_BYTES);
    if (result == CUDA_SUCCESS)
      result = cuMemcpyHtoDAsync(program->constants, constants, {upper}_CONSTANT_BYTES, NULL);
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(NULL);
  }}
  if (result != CUDA_SUCCESS) {name}_unload(program);
  return result;
}}

/* Queue one run on a stream; nothing is waited for.
 *   arguments: {parameters}
 *   results: {results} */
static inline CUresult {name}_run(const struct {name}* program, CUstream stream, const CUdeviceptr* arguments,
                                  const CUdeviceptr* results) {{
  enum {{ COPY = -1, WRITE = -2, NUM_ARRAYS = {num_arrays}, NUM_BUFFERS = {num_buffers}, NUM_STEPS = {num_steps} }};
  static const struct {{
    int blocks, threads, shared;
  }} launches[] = {{
{launches}
  }};
  static const struct {{
    int launch, places; /* COPY, WRITE or a kernel; places from this one on */
    size_t count;       /* of places, or of bytes */
  }} steps[] = {{
{steps}
  }};
  static const struct {name}_place places[] = {{
{places}
  }};
  static const uint64_t sizes[] = {{{bytes}}};
  static const uint64_t constants[] = {{{constants}}};
  uint64_t addresses[NUM_BUFFERS + 1], values[{most_arguments}];
  void* parameters[{most_arguments}];
  CUresult result = CUDA_SUCCESS;
  int i, k, buffer = 0;
  for (i = 0; i < {upper}_NUM_PARAMETERS; ++i) addresses[buffer++] = arguments[i];
  for (i = 0; i < {upper}_NUM_RESULTS; ++i) addresses[buffer++] = results[i];
  for (i = 0; i < NUM_ARRAYS; ++i)
    if (sizes[i] != 0 && (addresses[i] == 0 || addresses[i] % {alignment} != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (i = 0; i < {num_constants}; ++i) addresses[buffer++] = program->constants + constants[i];
  addresses[buffer++] = program->arena;
  addresses[buffer] = 0; /* of places that are numbers */
  for (i = 0; result == CUDA_SUCCESS && i < NUM_STEPS; ++i) {{
    const struct {name}_place* place = &places[steps[i].places];
    if (steps[i].launch == COPY) {{
      const CUdeviceptr to = addresses[place[0].buffer] + place[0].offset;
      const CUdeviceptr from = addresses[place[1].buffer] + place[1].offset;
      if (to != from) result = cuMemcpyDtoDAsync(to, from, steps[i].count, stream);
    }} else if (steps[i].launch == WRITE) {{
      const CUdeviceptr to = addresses[place[0].buffer] + place[0].offset;
      result = cuMemcpyHtoDAsync(to, &place[1].offset, steps[i].count, stream);
    }} else {{
      for (k = 0; k < (int)steps[i].count; ++k) {{
        values[k] = addresses[place[k].buffer] + place[k].offset;
        parameters[k] = &values[k];
      }}
      result = cuLaunchKernel(program->kernels[steps[i].launch], (unsigned)launches[steps[i].launch].blocks, 1, 1,
                              (unsigned)launches[steps[i].launch].threads, 1, 1,
                              (unsigned)launches[steps[i].launch].shared, stream, parameters, NULL);
    }}
  }}
  return result;
}}

#endif
"""


def header(name: str, program: GpuProgram, signature: Signature, target: str) -> str:
    """Return the text of the header for a program that is a list of steps; its functions begin with `name`."""
    return _filled(_TEMPLATE, "It needs cuda.h and libcuda alone.", name, program, signature, target)


def library_header(name: str, program: GpuProgram, signature: Signature, target: str) -> str:
    """Return the text of the header of a library whose functions begin with `name`."""
    needs = "The library calls libcuda alone; the program that uses it links that."
    return _filled(_LIBRARY, needs, name, program, signature, target)


def _filled(template: str, needs: str, name: str, program: GpuProgram, signature: Signature, target: str) -> str:
    specs, names = [*signature.parameter_specs(), *signature.result_specs()], names_of(signature)
    num_parameters, num_results = map(len, names)
    offsets, constant_bytes = constant_offsets(program)
    numbers = {kernel: number for number, kernel in enumerate(program.launches)}
    tables = _Tables(numbers, num_parameters, num_results, len(program.constants))
    for step in program.steps:
        tables.add(step)
    arguments = [len(step.arguments) for step in program.steps if isinstance(step, LaunchStep)]
    return (_HEAD + template).format(
        **words_of(name, signature, names),
        needs=needs,
        target=target,
        alignment=ARRAY_ALIGNMENT,
        aliased=_aliased(program, *names),
        arena_bytes=program.arena_bytes,
        constant_bytes=constant_bytes,
        kernel_room=max(1, len(numbers)),
        num_kernels=len(numbers),
        kernels=_rows(f'{{"{kernel}", {at.shared}}}' for kernel, at in program.launches.items()) or '    {"", 0},',
        parameters=", ".join(names[0]) or "none",
        results=", ".join(names[1]) or "none",
        num_arrays=len(specs),
        num_buffers=tables.arena + 1,
        num_steps=len(tables.steps),
        launches=_rows(f"{{{at.blocks}, {at.threads}, {at.shared}}}" for at in program.launches.values())
        or "    {0, 0, 0},",
        steps=_rows(tables.steps) or "    {0, 0, 0},",
        places=_rows(tables.places) or "    {0, 0},",
        bytes=", ".join(str(spec.nbytes) for spec in specs) or "0",
        constants=", ".join(map(str, offsets)) or "0",
        num_constants=len(offsets),
        most_arguments=max([1, *arguments]),
    )


class _Tables:
    """The rows of the tables of steps and places, as text; equal lists of places are written once.

    Attributes:
        arena: the number of the arena among the buffers.
    """

    def __init__(self, kernels: Mapping[str, int], parameters: int, results: int, constants: int) -> None:
        self.steps: list[str] = []
        self.places: list[str] = []
        self._kernels = kernels
        self._known: dict[tuple[str, ...], int] = {}
        self._first = {"parameter": 0, "result": parameters, "constant": parameters + results}
        self.arena = self._first["arena"] = parameters + results + constants

    def add(self, step: Step) -> None:
        """Write a step's rows."""
        if isinstance(step, LaunchStep):
            self._add(str(self._kernels[step.kernel]), step.arguments, len(step.arguments))
        elif isinstance(step, CopyStep):
            self._add("COPY", (step.target, step.source), step.target.nbytes)
        else:
            self._add("WRITE", (step.target, step.value), len(step.value.data))

    def _add(self, kind: str, operands: Iterable[Place | Scalar], count: int) -> None:
        rows = tuple(self._row(operand) for operand in operands)
        first = self._known.setdefault(rows, len(self.places))
        if first == len(self.places):
            self.places += rows
        self.steps.append(f"{{{kind}, {first}, {count}}}")

    def _row(self, operand: Place | Scalar) -> str:
        if isinstance(operand, Scalar):
            return f"{{{self.arena + 1}, UINT64_C({int.from_bytes(operand.data, 'little')})}}"
        return f"{{{self._first[operand.base] + operand.number}, UINT64_C({operand.offset})}}"


def _rows(rows: Iterable[str]) -> str:
    return "\n".join(f"    {row}," for row in rows)


def _aliased(program: GpuProgram, parameters: Sequence[str], results: Sequence[str]) -> str:
    """Return the exceptions to the rule that results overlap nothing."""
    found = [f"{results[result]} may be {parameters[given]}" for result, given in program.aliases.items()]
    return f"; but {', '.join(found)}" if found else ""
