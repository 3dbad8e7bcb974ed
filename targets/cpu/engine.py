"""From a module in LLVM's dialect to a function that can be called, by upstream's execution engine and our runtime."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import mlir.ir as ir
from mlir.execution_engine import ExecutionEngine

from stablexla.dialects.contexts import diagnostics
from stablexla.dialects.errors import CompileError
from stablexla.targets.cpu.entry import take_entry
from stablexla.targets.cpu.foreign_load import addresses as addresses_of
from stablexla.targets.cpu.foreign_load import c_functions, take_host
from stablexla.targets.cpu.options import CpuOptions
from stablexla.targets.cpu.symbol_table import addresses
from stablexla.targets.knobs import knobs
from stablexla.targets.messages import messages_of
from stablexla.targets.options import CompileOptions
from stablexla.targets.runtime import CompiledFunction, library_path, set_num_threads
from stablexla.targets.runtime.saved_code import EngineCode
from stablexla.targets.signature import Signature
from stablexla.targets.standard_error import captured_stderr

STAGE = "machine code"


def load(module: ir.Module, signature: Signature, options: CompileOptions) -> CompiledFunction:
    """The machine code of a module, ready to be called. `module` loses the attributes of the contract.

    The function keeps the engine alive; the module and its context are needed no more.

    Raises:
        CompileError: something in the module has no translation, or it names a symbol that is nowhere defined.
    """
    if knobs.num_threads is not None:
        set_num_threads(knobs.num_threads)
    cpu = CpuOptions.of(options)
    entry = take_entry(module)
    if (entry.parameters, entry.results) != (len(signature.parameter_specs()), len(signature.result_specs())):
        raise CompileError(
            f"main has {entry.parameters} parameters and {entry.results} results, where the program is {signature}"
        )
    declared = declared_functions(module)
    host = take_host(module, signature.name, declared)
    targets = c_functions(declared)
    engine, address = _machine_code(module, cpu.opt_level, {**addresses(declared), **addresses_of(targets)})
    return CompiledFunction(
        signature.name,
        address,
        signature.parameter_specs(),
        signature.result_specs(),
        arena_bytes=entry.arena_bytes,
        constants=entry.constants,
        aliases=entry.aliases,
        flush_denormals=cpu.flush_denormals,
        keep_alive=EngineCode(engine, targets),
        host=host,
    )


def _machine_code(
    module: ir.Module, opt_level: int, symbols: dict[str, ctypes.c_void_p]
) -> tuple[ExecutionEngine, int]:
    engine, address, said = None, 0, []
    # The JIT tells of unknown symbols on standard error only, and gives a null address.
    with captured_stderr() as printed, diagnostics(module.context) as seen:
        try:
            engine = ExecutionEngine(module, opt_level, _libraries(module), enable_object_dump=True)
            for name, pointer in symbols.items():
                engine.raw_register_runtime(name, pointer)
            address = engine.raw_lookup("main")
        except (ir.MLIRError, RuntimeError) as error:
            said = [*messages_of(error, seen), str(error)]
    if not address:
        raise CompileError("cpu: no machine code", stage=STAGE, diagnostics=(*said, *printed))
    if printed:
        os.write(2, "\n".join([*printed, ""]).encode())
    return engine, address


def _libraries(module: ir.Module) -> list[str]:
    """The shared libraries that the module's declarations may need."""
    libraries = [library_path()]
    if "memrefCopy" in declared_functions(module):
        libraries.append(str(Path(ir.__file__).parent / "lib" / "libmlir_c_runner_utils.so"))
    return libraries


def declared_functions(module: ir.Module) -> list[str]:
    """The functions that the module calls but does not have."""
    return [
        ir.StringAttr(op.operation.attributes["sym_name"]).value
        for op in module.body.operations
        if op.operation.name == "llvm.func" and not op.operation.regions[0].blocks
    ]
