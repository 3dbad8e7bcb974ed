"""From a module in LLVM's dialect to a function that can be called, by upstream's execution engine and our runtime."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import mlir.ir as ir
from mlir.execution_engine import ExecutionEngine
from mlir.passmanager import PassManager

from stablexla.dialects.contexts import diagnostics
from stablexla.dialects.errors import CompileError
from stablexla.targets.cpu.entry import take_entry
from stablexla.targets.cpu.foreign_load import addresses as addresses_of
from stablexla.targets.cpu.foreign_load import c_functions, take_host
from stablexla.targets.cpu.jit import find_function, make_engine
from stablexla.targets.cpu.options import CpuOptions
from stablexla.targets.cpu.partition import Part, partition
from stablexla.targets.cpu.symbol_table import addresses
from stablexla.targets.cpu.target import host_target
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
    engines, address = _machine_code(module, cpu.opt_level, {**addresses(declared), **addresses_of(targets)})
    return CompiledFunction(
        signature.name,
        address,
        signature.parameter_specs(),
        signature.result_specs(),
        arena_bytes=entry.arena_bytes,
        constants=entry.constants,
        aliases=entry.aliases,
        flush_denormals=cpu.flush_denormals,
        keep_alive=EngineCode(engines, targets),
        host=host,
    )


def _machine_code(
    module: ir.Module, opt_level: int, symbols: dict[str, ctypes.c_void_p]
) -> tuple[list[ExecutionEngine], int]:
    """The engines, that of `main` last, and the address of `main`."""
    engines: list[ExecutionEngine] = []
    address, said = 0, []
    # The JIT tells of unknown symbols on standard error only, and gives a null address.
    with captured_stderr() as printed, diagnostics(module.context) as seen:
        try:
            libraries = _libraries(module)
            threads = host_target().num_threads
            *others, main = partition(module, threads)
            level = 0 if main.is_straight else opt_level
            with _workers(module.context, min(threads, len(others))) as workers:
                code = [workers.submit(_compile, part, opt_level, libraries, symbols) for part in others]
                if main.is_straight:
                    PassManager.parse("builtin.module(canonicalize)", module.context).run(main.module.operation)
                engine = make_engine(main.module, level, libraries)
                for made, functions in (each.result() for each in code):
                    engines.append(made)
                    symbols = {**symbols, **functions}
            _register(engine, symbols)
            engines.append(engine)
            address = find_function(engine, "main", packed=True)
        except (ir.MLIRError, RuntimeError) as error:
            said = [*messages_of(error, seen), str(error)]
    if not address:
        raise CompileError("cpu: no machine code", stage=STAGE, diagnostics=(*said, *printed))
    if printed:
        os.write(2, "\n".join([*printed, ""]).encode())
    return engines, address


@contextmanager
def _workers(context: ir.Context, count: int) -> Iterator[ThreadPoolExecutor]:
    """So many threads to work on modules of one context, which they may share for as long."""
    context.enable_multithreading(count > 0)
    try:
        with ThreadPoolExecutor(max(1, count)) as executor:
            yield executor
    finally:
        context.enable_multithreading(False)


def _compile(
    part: Part, opt_level: int, libraries: Sequence[str], symbols: dict[str, ctypes.c_void_p]
) -> tuple[ExecutionEngine, dict[str, ctypes.c_void_p]]:
    """The engine of a part, and where the functions are that it exports."""
    engine = make_engine(part.module, opt_level, libraries)
    _register(engine, symbols)
    found = {name: find_function(engine, name) for name in part.exports}
    if not all(found.values()):
        raise RuntimeError(f"no machine code for {', '.join(name for name, address in found.items() if not address)}")
    return engine, {name: ctypes.c_void_p(address) for name, address in found.items()}


def _register(engine: ExecutionEngine, symbols: dict[str, ctypes.c_void_p]) -> None:
    for name, pointer in symbols.items():
        engine.raw_register_runtime(name, pointer)


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
