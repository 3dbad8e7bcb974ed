"""The target `upstream`: from StableHLO to a result without emitters, schedules and a runtime.

StableHLO becomes linalg on tensors by the rules of `lowering/`, as for all targets; the rest is upstream's: one-shot
bufferization, loops, LLVM's dialect, MLIR's execution engine. Of stablexla's there are besides only the expansions of
elementary functions and narrow floats, and the small passes below. It is slow, and its results are a second opinion on
those of the target `cpu`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import mlir.ir as ir
import numpy as np
import numpy.typing as npt
from mlir.execution_engine import ExecutionEngine

from stablexla.dialects.errors import CompileError, UnsupportedError
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.kernels import KIND
from stablexla.targets.codegen.general import separate_empties, write_copies_out
from stablexla.targets.host.emitters import HOST_EMITTERS
from stablexla.targets.kinds import no_target
from stablexla.targets.llvm.to_llvm import LLVM
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.pipeline.pipelines import Pipeline, Step
from stablexla.targets.pipeline.steps import register_passes, stablehlo_step, tensor_step
from stablexla.targets.registry import Target
from stablexla.targets.runtime.arguments import fit, raise_wrong_count
from stablexla.targets.signature.signature import Signature

Array = npt.NDArray[Any]

# Arrays are allocated where they are made, and freed behind their last use; results are arguments.
BUFFERS = (
    "stablexla-begin-upstream",
    "eliminate-empty-tensors",
    "stablexla-separate-empties",
    "empty-tensor-to-alloc-tensor",
    "one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map "
    "allow-return-allocs-from-loops=true}",
    "buffer-results-to-out-params{modify-public-functions=true}",
    "buffer-deallocation-pipeline",
    "stablexla-copy-in-loops",
    "canonicalize",
    "cse",
)
LOOPS = ("convert-linalg-to-loops", "canonicalize", "cse")
TO_LLVM = (
    "stablexla-expand-math",
    "stablexla-expand-small-floats",
    "func.func(llvm-request-c-wrappers)",
    "convert-scf-to-cf",
    "expand-strided-metadata",
    "lower-affine",
    "convert-func-to-llvm",
    "convert-to-llvm",
    "reconcile-unrealized-casts",
    "stablexla-bf16-as-bits",
)


@module_pass("stablexla-begin-upstream", "refuses calls of the host, and keeps the program from writing its arguments")
def begin(module: ir.Module) -> None:
    """Mark the arguments of main as read-only.

    Raises:
        UnsupportedError: a kernel for which the runtime would call the host, of which upstream has nothing.
    """
    for view in module.body.operations:
        if symbol_of(view) == "main":
            read_only = ir.DictAttr.get({"bufferization.writable": ir.BoolAttr.get(False)})
            count = len(view.operation.regions[0].blocks[0].arguments)
            view.operation.attributes["arg_attrs"] = ir.ArrayAttr.get([read_only] * count)
        kind = ir.StringAttr(view.operation.attributes[KIND]).value if KIND in view.operation.attributes else ""
        if kind in HOST_EMITTERS:
            raise UnsupportedError(
                f"the target upstream has no runtime, which {kind} of @{symbol_of(view)} calls", hint='target="cpu"'
            )


@module_pass("stablexla-separate-empties", "gives each use of an empty or filled array one of its own")
def own_empties(module: ir.Module) -> None:
    """Or two arrays would be bufferized as one."""
    separate_empties(module)


@module_pass("stablexla-copy-in-loops", "makes copies of buffers operations of linalg, and so loops")
def copy_in_loops(module: ir.Module) -> None:
    """Replace memref.copy, which would become a call of a function of MLIR's runner."""
    write_copies_out(module)


def upstream_pipeline(options: CompileOptions = CompileOptions()) -> Pipeline:  # noqa: B008  (a frozen value)
    """The steps that take a StableHLO module to LLVM's dialect by upstream's passes."""
    register_passes("upstream")
    steps = [
        stablehlo_step(),
        tensor_step(find_repeats=False),
        Step("buffers", ",".join(BUFFERS)),
        Step("loops", ",".join(LOOPS)),
        Step("llvm", ",".join(TO_LLVM), LLVM),
    ]
    return Pipeline("upstream", steps)


class UpstreamFunction:
    """A program in MLIR's execution engine, called with numpy arrays."""

    host = keep_alive = None
    arena_bytes = 0

    def __init__(self, module: ir.Module, signature: Signature) -> None:
        self.name, self.num_devices = signature.name, signature.num_devices
        self.parameters, self.results = signature.parameter_specs(), signature.result_specs()
        self.aliases: dict[int, int] = {}
        self.constants: list[Array] = []
        self._engine = ExecutionEngine(module, opt_level=1)
        self._main = self._engine.lookup("main")

    def __call__(self, *arguments: object) -> Any:
        """Run the program; a single result is not in a tuple."""
        made = self.execute(arguments)
        return made[0] if len(made) == 1 else tuple(made)

    def execute(self, arguments: Sequence[object], donate: bool = False) -> list[Array]:
        """Run the program.

        Raises:
            ExecutionError: arguments that do not fit.
        """
        if len(arguments) != len(self.parameters):
            raise_wrong_count(self.name, self.parameters, len(arguments))
        given = [fit(value, spec, self.name, i) for i, (value, spec) in enumerate(zip(arguments, self.parameters))]
        made = [np.empty(spec.shape, spec.dtype) for spec in self.results]
        descriptors = [ctypes.pointer(_descriptor(array)) for array in (*given, *made)]
        self._main((ctypes.c_void_p * len(descriptors))(*map(ctypes.addressof, descriptors)))
        return made

    def seed(self, number: int) -> None:
        """There are no random numbers without a runtime."""


def _descriptor(array: Array) -> ctypes.Array[ctypes.c_int64]:
    """Return MLIR's descriptor of an array: twice its address, an offset, sizes and strides."""
    sizes = list(array.shape)
    strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    numbers = [array.ctypes.data, array.ctypes.data, 0, *sizes, *strides]
    return (ctypes.c_int64 * len(numbers))(*numbers)


def load(module: ir.Module, signature: Signature, options: CompileOptions) -> UpstreamFunction:
    """Compile a module in LLVM's dialect, and return its main as a function of arrays."""
    if signature.num_devices > 1:
        raise UnsupportedError("the target upstream runs programs for one device", hint='target="cpu"')
    try:
        return UpstreamFunction(module, signature)
    except RuntimeError as error:
        raise CompileError(f"upstream: {error}") from None


def target(text: str) -> Target:
    """The target `upstream`, which has no variants.

    Raises:
        CompileError: the text says more.
    """
    if text != "upstream":
        raise no_target(text)
    ignored = ("opt_level", "vector_bits", "num_threads", "target_cpu", "schedules", "excess_precision")
    refused = ("flush_denormals", "choices")
    return Target("upstream", upstream_pipeline, load, is_saved=False, ignores=ignored, refuses=refused)
