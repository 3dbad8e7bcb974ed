"""The JIT: from a module in LLVM's dialect to a callable function, by LLVM's code generator and our loader."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import mlir.ir as ir

from stablexla.dialects.contexts import diagnostics
from stablexla.dialects.errors import CompileError, LoadError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import symbol_of
from stablexla.targets.codegen.machine import host_target
from stablexla.targets.host.bindings import c_functions, take_collectives, take_host
from stablexla.targets.llvm.check_stops import places_of_list, take_places
from stablexla.targets.llvm.code_threads import object_files
from stablexla.targets.llvm.early_code import taken_from
from stablexla.targets.llvm.entry import EntryContract, pack_entry, take_entry
from stablexla.targets.llvm.list_object import CallList
from stablexla.targets.llvm.llvm_c import LlvmError
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.llvm.split_module import split_module
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.messages import messages_of
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.standard_error import captured_stderr
from stablexla.targets.runtime import CompiledFunction, mpi_symbols, processor, set_num_threads
from stablexla.targets.runtime.host import Host
from stablexla.targets.runtime.saved_code import LoadedCode
from stablexla.targets.signature.signature import Signature

STAGE = "machine code"


def load(module: ir.Module, signature: Signature, options: CompileOptions) -> CompiledFunction:
    """Compile and load a module as a callable function. `module` loses the attributes of the calling contract.

    The function keeps the code alive; the module and its context are needed no more.

    Raises:
        CompileError: something in the module has no translation, or it names a symbol that is nowhere defined.
    """
    cpu = CpuOptions.of(options)
    found = machine_code(module, signature, cpu)
    return CompiledFunction(
        signature.name,
        found.code.entry,
        signature.parameter_specs(),
        signature.result_specs(),
        arena_bytes=found.entry.arena_bytes,
        constants=found.entry.constants,
        aliases=found.entry.aliases,
        flush_denormals=cpu.flush_denormals,
        keep_alive=found.code,
        host=found.host,
        collectives=found.collectives,
        num_devices=signature.num_devices,
        places=found.places,
        guard=cpu.guard,
    )


@dataclass(frozen=True)
class MachineCode:
    """The loaded code of a module, its entry contract, what it needs of the host, and where it can be stopped."""

    entry: EntryContract
    code: LoadedCode
    host: Host | None
    collectives: list[dict[str, Any]]
    places: dict[int, str]


def machine_code(module: ir.Module, signature: Signature, cpu: CpuOptions) -> MachineCode:
    """Compile and load the machine code of a module, which loses the attributes of the calling contract.

    Raises:
        CompileError: as `load`.
    """
    missing = processor.LEVELS.get(cpu.cpu, frozenset()) - processor.features()
    if missing:
        raise CompileError(
            f"code for {cpu.cpu} needs {', '.join(sorted(missing))}, which this processor does not have",
            hint="a C library (stablexla-compile -o libmodel.so), which is not loaded where it is compiled",
        )
    if knobs.num_threads is not None:
        set_num_threads(knobs.num_threads)
    entry, calls = take_entry(module), CallList.take(module)
    if (entry.parameters, entry.results) != (len(signature.parameter_specs()), len(signature.result_specs())):
        raise CompileError(
            f"main has {entry.parameters} parameters and {entry.results} results, where the program is {signature}"
        )
    declared = declared_functions(module)
    host = take_host(module, signature.name, declared, signature.num_devices)
    collectives = take_collectives(module)
    mpi_symbols.check_world(collectives, signature.num_devices)
    c_functions(declared)  # an unregistered function is an error before anything is compiled
    early = taken_from(module)
    kept = {} if early is None else early.kept_names
    places = take_places(module, kept) if calls is None else places_of_list(calls.places, kept)
    return MachineCode(entry, _machine_code(module, cpu, calls), host, collectives, places)


def _machine_code(module: ir.Module, cpu: CpuOptions, calls: CallList | None) -> LoadedCode:
    said = []
    with captured_stderr() as printed, diagnostics(module.context) as seen:
        try:
            files = _object_files(module, cpu) if calls is None else _files_of_list(module, calls)
            code = LoadedCode(files, processor.LEVELS.get(cpu.cpu, processor.features()))
            if (early := taken_from(module)) is not None:
                early.use(code.address)
        except (ir.MLIRError, LlvmError, LoadError, RuntimeError) as error:
            said = [*messages_of(error, seen), str(error)]
    if said:
        raise CompileError("cpu: no machine code", stage=STAGE, diagnostics=(*said, *printed))
    if printed:
        os.write(2, "\n".join([*printed, ""]).encode())
    return code


def _files_of_list(module: ir.Module, calls: CallList) -> list[bytes]:
    """Return the object files of what was taken from the module, and the list's, which is all that is left of it."""
    early = taken_from(module)
    return [*([] if early is None else early.results([])), calls.object_file(processor.machine())]


def _object_files(module: ir.Module, cpu: CpuOptions) -> list[bytes]:
    """Compile the parts of the module to object files, that of `main` last."""
    pack_entry(module)
    threads, early = host_target().num_threads, taken_from(module)
    rest = {} if early is None else {"is_rest": early.has_taken, "of_small": early.is_of_small}
    parts = split_module(module, threads, **rest)
    jobs = [partial(part.object_file, cpu) for part in parts]
    return object_files(module.context, jobs, threads) if early is None else early.results(jobs)


def declared_functions(module: ir.Module) -> Sequence[str]:
    """Return the symbols that the module declares, and that are not defined in it or in what was taken from it."""
    early = taken_from(module)
    taken = frozenset() if early is None else early.symbols
    functions = (view.operation for view in module.body.operations if view.operation.name == "llvm.func")
    return [symbol_of(op) for op in functions if not op.regions[0].blocks and symbol_of(op) not in taken]
