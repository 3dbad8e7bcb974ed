"""From a program and JAX's compile options to what the table says of an executable; the same from saved bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla import distributed
from stablexla.compiling.cache import surroundings
from stablexla.compiling.compiler import compile as compile_program
from stablexla.dialects.caller import warn
from stablexla.dialects.custom_calls import OF_THIS_PROCESS
from stablexla.dialects.errors import CompileError, LoadError, StablexlaError, UnsupportedError
from stablexla.executable.executable import Executable
from stablexla.executable.saved import executable_of
from stablexla.executable.saving import contents_for_others
from stablexla.interop.encodings.formats import to_bytecode
from stablexla.interop.jax.callbacks import release_with
from stablexla.interop.jax.ffi import use_targets_of
from stablexla.interop.loading import load
from stablexla.lowering.support.context import ALIASING, DONOR
from stablexla.lowering.support.operations import main_of, terminator_of
from stablexla.lowering.support.types import is_token
from stablexla.pjrt.layouts import apply_layouts, logical, minor_to_major
from stablexla.pjrt.messages import Options, Override, shardings
from stablexla.targets.pipeline.driver import copy_of, run_pipeline
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.runtime import container
from stablexla.targets.signature.array_sharding import ArraySharding
from stablexla.targets.signature.signature import body_of
from stablexla.targets.stablehlo.inlining import operations_of
from stablexla.targets.stablehlo.meshes import call_target

# By PJRT_Buffer_Type, from 1 on.
# fmt: off
_TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64", "bfloat16", "complex64", "complex128", "float8_e5m2", "float8_e4m3fn", "float8_e4m3b11fnuz",
    "float8_e5m2fnuz", "float8_e4m3fnuz", "int4", "uint4", "token", "int2", "uint2", "float8_e4m3", "float8_e3m4",
    "float8_e8m0fnu", "float4_e2m1fn", "int1", "uint1", "float6_e2m3fn", "float6_e3m2fn",
)
# fmt: on
NUMBERS = {name: number for number, name in enumerate(_TYPES, 1)}
TOKEN = NUMBERS["token"]
_OF_XLA = ("exec_time_optimization_effort", "memory_fitting_effort", "memory_fitting_level", "optimization_level")
_EMPTY, _LAST = b"module { func.func public @main() { return } }", "stablexla_end_of_options"
_PARTITION = (
    "stablehlo: builtin.module(stablexla-drop-unreachable,stablexla-partition,stablexla-resolve-mesh-groups,"
    "stablexla-drop-shardings)"
)
_NOT_HERE = {
    **dict.fromkeys(("pipeline", "rules", "schedules"), "which is no string or number"),
    "check": "as the plugin cannot tell what was found",
}
_MEMORY_KIND = "mhlo.memory_kind"
_FEEDS = ("stablehlo.infeed", "stablehlo.outfeed")
_INSTEAD_OF_FEEDS = "jax.experimental.io_callback"
TIME_LIMIT = 300.0
"""Seconds for which a device waits for those of other processes, which may compile meanwhile."""
FORMATS = ("mlir", "hlo", "hlo_with_config")
"""Formats of PJRT_Program: MLIR as text, bytecode or an artifact; an HloModuleProto, also with its configuration."""
_SAVED = "pjrt"
"""What a saved program has beside an executable's contents."""
_SHARDINGS = {"argument": "parameter_shardings", "result": "output_shardings"}
_KEPT = "a program that JAX kept"


class OptionError(StablexlaError):
    """One of JAX's `compiler_options` that is unknown, or has a value that it cannot have."""


def compiled(code: bytes, form: str, options: bytes, count: int) -> dict[str, Any]:
    """Compile a program for some of `count` devices, and describe it to the table.

    Raises:
        StablexlaError: it cannot be done.
    """
    executable, plain = compiled_for_others(code, form, options, count)
    return _described(executable, _options(options, count), plain)


def compiled_for_others(code: bytes, form: str, options: bytes, count: int) -> tuple[Executable, dict[str, Any]]:
    """Compile a program, perhaps for devices of another process; return it with what an executable does not know.

    Raises:
        StablexlaError: it cannot be done.
    """
    if form not in FORMATS:
        raise UnsupportedError(f"a program in the format {form!r}", hint=f"one of {', '.join(FORMATS)}")
    how = _options(options, count)
    module = load(code, trusted=True)
    for name in _FEEDS:
        if operations_of(module, name):
            raise UnsupportedError(f"{name}: JAX has no function that feeds a plugin's device", hint=_INSTEAD_OF_FEEDS)
    calls = [call_target(call) for call in operations_of(module, "stablehlo.custom_call")]
    use_targets_of(calls)
    donated = _donated(module)
    orders = apply_layouts(module)
    executable = compile_program(
        module,
        num_replicas=how.num_replicas,
        num_partitions=how.num_partitions,
        options=_compile_options(how.overrides),
    )
    release_with(executable._function, [name for name in calls if name.startswith(OF_THIS_PROCESS)])
    executable._source = code  # MLIR's module belongs to this thread
    arguments, returned = body_of(module).arguments, terminator_of(body_of(module)).operands
    plain = {
        "options": options.hex(),
        "donated": donated,
        "arguments": [is_token(value.type) for value in arguments],
        "results": [is_token(value.type) for value in returned],
        "output_kinds": _memory_kinds(module, len(returned)),
        "argument_orders": orders[0],
        "result_orders": orders[1],
        "fingerprint": hashlib.sha256(code + options).hexdigest(),
    }
    for what, known in (("argument", executable.input_shardings), ("result", executable.output_shardings)):
        written = _shardings(plain, what, known, how.num_partitions)
        plain[_SHARDINGS[what]] = [each.hex() for each in written]
    return executable, plain


def saved(executable: Executable, plain: dict[str, Any]) -> bytes:
    """Write an executable, and what `compiled` found, for `loaded`.

    Raises:
        UnsupportedError: the program calls functions of this process.
    """
    description, sections = contents_for_others(executable)
    return b"".join(container.pieces({**description, _SAVED: plain}, sections))


def loaded(data: bytes, options: bytes, count: int) -> dict[str, Any]:
    """Describe a saved executable to the table, for other compile options if there are any.

    Raises:
        LoadError: as `load_executable`; or it was not saved by `saved`.
        UnsupportedError: it is for more devices than there are.
    """
    file = container.parse(data, _KEPT)
    plain = file.description.get(_SAVED)
    if plain is None:
        raise LoadError(f"{_KEPT}: it was not made by the plugin")
    options = options or bytes.fromhex(plain["options"])
    return _described(executable_of(file, _KEPT), _options(options, count), {**plain, "options": options.hex()})


def marked(executable: Executable, plain: dict[str, Any], count: int, first: int) -> dict[str, Any]:
    """Compile a program once more, with a mark before and after each call, for traces.

    Args:
        executable, plain: as `compiled` describes them.
        count: of devices.
        first: the number of the first mark.

    Returns:
        A description of the machine code, and the calls by their marks: the kernel, whether it is one thread's share,
        the phase, the operation and the line.

    Raises:
        StablexlaError: it cannot be done, as of a program that was saved without its source.
    """
    from stablexla.inspection.profiling.profile import with_marks

    again, calls = with_marks(executable, first, apply_layouts)
    named = [(call, call.kernel_and_phase) for call in calls]
    return {
        "function": again._function,
        "run": _runner(again, _options(bytes.fromhex(plain["options"]), count)),
        "calls": [(kernel, call.is_share, phase, call.operation, call.line) for call, (kernel, phase) in named],
    }


def loaded_for_others(data: bytes) -> Executable:
    """Load a saved executable, perhaps for devices of another process.

    Raises:
        LoadError: as `load_executable`.
    """
    return executable_of(container.parse(data, _KEPT), _KEPT)


def costs(executable: Executable) -> list[tuple[str, float]]:
    """Return flops of one call, and bytes that its kernels read and write; the program is compiled once more."""
    kernels = executable.explain().kernels
    moved = sum(len(kernel.calls) * (kernel.cost.read + kernel.cost.written) for kernel in kernels)
    flops = sum(len(kernel.calls) * (kernel.cost.flops or 0) for kernel in kernels)
    return [("flops", float(flops)), ("bytes accessed", float(moved))]


def partitioned(executable: Executable) -> bytes:
    """Return the program of one partition, with its collectives; XLA has no operations of Shardy's."""
    with executable._contexts():
        return to_bytecode(run_pipeline(copy_of(executable._source, here=True), Pipeline.parse(_PARTITION)))


def fingerprint(count: int) -> int:
    """Return a number of 64 bits for this compiler, on this kind of machine, for so many devices."""
    return int.from_bytes(hashlib.sha256(repr((count, surroundings())).encode()).digest()[:8], "little")


def _options(data: bytes, count: int) -> Options:
    how = Options.parse(data)
    if any(device >= count for device in how.devices):
        raise UnsupportedError(f"devices {how.devices}, where there are {count}", hint="STABLEXLA_NUM_DEVICES=N")
    return how


def _compile_options(overrides: Mapping[str, Override]) -> CompileOptions | None:
    """Return the options that JAX's `compiler_options` name; those of XLA are checked and named in a warning.

    Raises:
        OptionError: an option is neither of this compiler nor of XLA, or has a value that it cannot have.
    """
    known = {field.name for field in fields(CompileOptions)} - _NOT_HERE.keys()
    others = sorted(set(overrides) - known)
    for name in others:
        if name in _NOT_HERE:
            way_out = f"stablexla.interop.jax.jit(function, options=sx.CompileOptions({name}=...))"
            raise OptionError(f"compiler_options cannot hold {name}, {_NOT_HERE[name]}", hint=way_out)
        if not name.startswith("xla_") and name not in _OF_XLA:
            near = get_close_matches(name, known, 1)
            raise OptionError(f"No such compile option: '{name}'", hint=near[0] if near else "")
    _check_xlas({name: overrides[name] for name in others if name not in _OF_XLA})
    if others:
        warn(f"stablexla has no compiler options {', '.join(others)}")
    ours = {name: value for name, value in overrides.items() if name in known}
    try:
        return CompileOptions(**ours) if ours else None  # type: ignore[arg-type]
    except CompileError as error:
        raise OptionError(f"compiler_options: {error.summary}", hint=error.hint) from None


def _check_xlas(options: Mapping[str, Override]) -> None:
    """Have XLA look at its own options, in jaxlib.

    Raises:
        OptionError: as XLA says it.
    """
    if not options:
        return
    from jaxlib import xla_client

    client, how = xla_client.make_cpu_client(), xla_client.CompileOptions()
    how.env_option_overrides = [*options.items(), (_LAST, "")]  # in their order, and nothing is compiled
    try:
        client.compile_and_load(_EMPTY, xla_client.DeviceList(tuple(client.local_devices()[:1])), how)
    except RuntimeError as error:
        if _LAST not in str(error):
            raise OptionError(str(error).removeprefix("INVALID_ARGUMENT: ")) from None


def _described(executable: Executable, how: Options, plain: dict[str, Any]) -> dict[str, Any]:
    function = executable._function
    takes = [number for number, each in enumerate(plain["arguments"]) if not each]
    dtypes = (spec.dtype for spec in function.results)
    return {
        "function": function,
        "executable": executable,
        "run": _runner(executable, how),
        "plain": plain,
        "text": b"" if how.num_partitions > 1 else executable.source_bytes,
        "fingerprint": plain["fingerprint"],
        "assignment": how.assignment(),
        "num_replicas": how.num_replicas,
        "num_partitions": how.num_partitions,
        "devices": list(how.devices),
        "num_arguments": len(plain["arguments"]),
        "takes": takes,
        "argument_types": [NUMBERS[str(spec.dtype)] for spec in function.parameters],
        "donated": _used_up(function, takes, plain),
        "output_kinds": plain["output_kinds"],
        "output_types": [TOKEN if each else NUMBERS[str(next(dtypes))] for each in plain["results"]],
        "code_bytes": _code_bytes(executable),
        "argument_layouts": minor_to_major(plain["argument_orders"]),
        "output_layouts": minor_to_major(plain["result_orders"]),
        **{name: [bytes.fromhex(each) for each in plain[name]] for name in _SHARDINGS.values()},
    }


def _shardings(
    plain: Mapping[str, Any], what: str, known: Sequence[ArraySharding] | None, partitions: int
) -> list[bytes]:
    are_tokens: list[bool] = plain[f"{what}s"]
    if known is not None:
        orders = [o for o, is_token in zip(plain[f"{what}_orders"], are_tokens, strict=True) if not is_token]
        known = [logical(sharding, order) for sharding, order in zip(known, orders, strict=True)]
    return shardings(are_tokens, known, partitions)


def _runner(executable: Executable, how: Options) -> Callable[[list[list[Any]]], Any]:
    """Return what runs the program on this process's devices, given their arguments.

    Raises:
        UnsupportedError: this process has none of them.
    """
    from stablexla.pjrt.table import num_devices

    own = distributed.process_index()
    processes = [device // num_devices() if distributed.process_count() > 1 else own for device in how.devices]
    if own not in processes:
        raise UnsupportedError(
            f"{executable.name}: process {own} has none of the devices {', '.join(map(str, how.devices))}; processes "
            f"{', '.join(map(str, sorted(set(processes))))} have them",
            hint="call the function in those processes alone, by jax.process_index()",
        )
    if len(processes) > 1:
        executable._devices.place(processes, how.devices)
    executable.collective_timeout = TIME_LIMIT
    return executable._devices.run_here


def _memory_kinds(module: ir.Module, count: int) -> list[str]:
    """Return the kind of memory that each result is to be in."""
    rows = main_of(module).attributes.get("res_attrs", ({},) * count)
    return [row[_MEMORY_KIND].value if _MEMORY_KIND in row else "device" for row in rows]


def _donated(module: ir.Module) -> dict[str, list[int]]:
    """Return the numbers of the donated arguments: those that JAX gives to a result, and those that may be given."""
    rows = main_of(module).attributes.get("arg_attrs", ())
    return {name: [number for number, row in enumerate(rows) if name in row] for name in (ALIASING, DONOR)}


def _used_up(function: Any, takes: Sequence[int], plain: Mapping[str, Any]) -> list[int]:
    """Return the arrays that are gone after a call. As XLA has it: a donor where a result has as many bytes."""
    free = [prod(spec.shape) * spec.dtype.itemsize for spec in function.results]
    found = []
    for number, place in enumerate(takes):
        spec = function.parameters[number]
        size = prod(spec.shape) * spec.dtype.itemsize
        if place in plain["donated"][ALIASING] or (place in plain["donated"][DONOR] and size in free):
            found.append(number)
            if size in free:
                free.remove(size)
    return found


def _code_bytes(executable: Executable) -> int:
    code = executable._function.keep_alive
    return sum(map(len, code.object_files())) if hasattr(code, "object_files") else 0
