"""Programs of several devices on XLA:CPU and on StableHLO's reference interpreter, both in one child process.

XLA:CPU is made to have eight devices. It takes partitions only of programs whose sharding it may choose; a manual
computation around the whole leaves it nothing to choose. The interpreter needs a thread for each process of the grid,
and is told of more cores than there are (affinity.c); it knows no empty `replica_groups`.
"""

from __future__ import annotations

import atexit
import functools
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np

from stablexla.processes.questions import Child, Refusal, serve

DEVICES = 8
Arguments = Sequence[Sequence[np.ndarray]]
"""For each device, in the order of their flattened numbers, the arguments of `main`."""
Results = list[list[np.ndarray]]


class OracleError(AssertionError):
    """An oracle gave no results; the message says why."""


def xla(text: str, arguments: Arguments, replicas: int, partitions: int = 1) -> Results:
    """XLA:CPU's results on each device.

    Raises:
        OracleError: it refused the program, ended or took longer than a minute.
    """
    return _ask("xla", text, arguments, replicas, partitions)


def interpreter(text: str, arguments: Arguments, replicas: int, partitions: int = 1) -> Results:
    """The reference interpreter's results on each device; raises as `xla` does."""
    return _ask("interpreter", text, arguments, replicas, partitions)


@functools.cache
def _child() -> Child:
    child = Child("tests.distributed.xla_oracle", "oracles", 60)
    atexit.register(child.close)
    return child


def _ask(oracle: str, text: str, arguments: Arguments, replicas: int, partitions: int) -> Results:
    given = [[np.asarray(a) for a in of_one] for of_one in arguments]
    assert len(given) == replicas * partitions
    found = _child().ask((oracle, text, given, replicas, partitions))
    if isinstance(found, Refusal):
        raise OracleError(f"{oracle}: {found.kind}: {found.message}")
    results: Results = found
    return results


# ---- in the child ----------------------------------------------------------------------------------------------------


def _imports() -> None:
    """All that takes time before a first program, but threads, which a fork would lose."""
    import jax

    import tests.oracles

    assert jax
    assert tests.oracles


def _answer(question: tuple[str, str, Arguments, int, int]) -> Results:
    oracle, *rest = question
    return {"xla": _run_on_xla, "interpreter": _run_on_the_interpreter}[oracle](*rest)


def _parsed(text: str) -> hlo_ir.Module:
    from jaxlib.mlir._mlir_libs import _stablehlo

    from stablexla.dialects.contexts import stablehlo_context

    context = stablehlo_context()
    if "interpreter" not in vars(_parsed):
        _stablehlo.register_interpreter_dialect(context)
        context.enable_multithreading(True)  # the interpreter has a thread for each device, and all make types in it
        vars(_parsed)["interpreter"] = True
    return hlo_ir.Module.parse(text, context)


def _with_main_renamed(text: str) -> tuple[str, list[hlo_ir.Type], list[hlo_ir.Type]]:
    """The functions' text with `main` as `body`, and the types that it takes and gives."""
    module = _parsed(text)
    for op in module.body.operations:
        if hlo_ir.StringAttr(op.attributes["sym_name"]).value == "main":
            kind = hlo_ir.FunctionType(hlo_ir.TypeAttr(op.attributes["function_type"]).value)
            op.attributes["sym_name"] = hlo_ir.StringAttr.get("body", module.context)
            op.attributes["sym_visibility"] = hlo_ir.StringAttr.get("private", module.context)
            functions = "\n".join(str(f) for f in module.body.operations)
            return functions, list(kind.inputs), list(kind.results)
    raise AssertionError("no main")


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))


def _all_manual(text: str, partitions: int) -> str:
    """The program inside a manual computation over the partitions; every array is a whole of its own on each."""
    functions, inputs, outputs = _with_main_renamed(text)
    parameters = _listed([f"%p{i}: {t}" for i, t in enumerate(inputs)])
    inner = _listed([f"%a{i}: {t}" for i, t in enumerate(inputs)])
    shardings = [
        _listed([f"<@mesh, [{_listed(['{}'] * hlo_ir.RankedTensorType(t).rank)}]>" for t in types])
        for types in (inputs, outputs)
    ]
    kind = f"({_listed(inputs)}) -> ({_listed(outputs)})"
    many = f":{len(outputs)}" if len(outputs) > 1 else ""
    results = [_listed([f"%{n}#{i}" if many else f"%{n}" for i in range(len(outputs))]) for n in "rc"]
    return f"""
    sdy.mesh @mesh = <["d"={partitions}]>
    {functions}
    func.func public @main({parameters}) -> ({_listed(outputs)}) {{
      %r{many} = sdy.manual_computation({_listed([f"%p{i}" for i in range(len(inputs))])})
          in_shardings=[{shardings[0]}] out_shardings=[{shardings[1]}] manual_axes={{"d"}} ({inner}) {{
        %c{many} = func.call @body({_listed([f"%a{i}" for i in range(len(inputs))])}) : {kind}
        sdy.return {results[1]} : {_listed(outputs)}
      }} : {kind}
      func.return {results[0]} : {_listed(outputs)}
    }}"""


def _run_on_xla(text: str, arguments: Arguments, replicas: int, partitions: int) -> Results:
    import jax

    executable = _xla_executable(text, replicas, partitions)
    devices = jax.devices("cpu")[: replicas * partitions]
    # As far as JAX knows, all devices have the same; each has its own.
    whole = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(devices), ("d",)), jax.sharding.PartitionSpec())
    with jax.enable_x64(True):
        buffers = [
            jax.make_array_from_single_device_arrays(
                parts[0].shape, whole, [jax.device_put(a, d) for a, d in zip(parts, devices, strict=True)]
            )
            for parts in zip(*arguments, strict=True)
        ]
        results = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [[np.asarray(r[d]) for r in results] for d in range(len(devices))]


@functools.lru_cache(maxsize=64)
def _xla_executable(text: str, replicas: int, partitions: int) -> Any:
    import jax
    from jaxlib import xla_client

    options = xla_client.CompileOptions()
    build = options.executable_build_options
    for place in (options, build):
        place.num_replicas, place.num_partitions = replicas, partitions
    build.use_spmd_partitioning = build.use_shardy_partitioner = partitions > 1
    grid = np.arange(replicas * partitions).reshape(replicas, partitions)
    options.device_assignment = xla_client.DeviceAssignment.create(grid)
    code = io.BytesIO()
    _parsed(_all_manual(text, partitions) if partitions > 1 else text).operation.write_bytecode(code)
    devices = jax.devices("cpu")
    used = xla_client.DeviceList(tuple(devices[: replicas * partitions]))
    return devices[0].client.compile_and_load(code.getvalue(), used, options)


def _run_on_the_interpreter(text: str, arguments: Arguments, replicas: int, partitions: int) -> Results:
    from tests import oracles

    functions, inputs, outputs = _with_main_renamed(text)
    count = replicas * partitions
    parameters = _listed([f"%a{d}_{i}: {t}" for d in range(count) for i, t in enumerate(inputs)])
    names = _listed([f"%a{d}_{i}" for d in range(count) for i in range(len(inputs))])
    given = _listed([_listed(outputs)] * count)
    many = f":{count * len(outputs)}" if count * len(outputs) > 1 else ""
    results = _listed([f"%r#{i}" if many else "%r" for i in range(count * len(outputs))])
    programs = _listed([f"[{_listed(['@body'] * partitions)}]"] * replicas)
    whole = f"""
    {functions}
    func.func @main({parameters}) -> ({given}) {{
      %r{many} = "interpreter.run_parallel"({names}) {{programs = [{programs}]}}
        : ({_listed([_listed(inputs)] * count if inputs else [])}) -> ({given})
      func.return {results} : {given}
    }}"""
    _parsed(whole)
    found = oracles.interpreter(whole, [a for of_one in arguments for a in of_one])
    return [found[d * len(outputs) : (d + 1) * len(outputs)] for d in range(count)]


def _with_many_cores(compiler: str) -> None:
    """Starts this program again, with the library of affinity.c in front of the others."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "affinity.so"
        source = Path(__file__).with_name("affinity.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(library)], check=True, timeout=60)
        kept = os.open(library, os.O_RDONLY)  # the file itself may go
        os.set_inheritable(kept, True)
    os.environ["LD_PRELOAD"] = f"/proc/self/fd/{kept}"
    os.execv(sys.executable, [sys.executable, "-m", "tests.distributed.xla_oracle", *sys.argv[1:]])


if __name__ == "__main__":
    found = shutil.which(os.environ.get("CC", "cc"))
    if found and "LD_PRELOAD" not in os.environ:
        _with_many_cores(found)
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    serve(_imports, _answer)
