"""Runs a program by another implementation, in a process of its own: what it is compared with must not take us down.

StableHLO's reference interpreter comes with jaxlib; XLA:CPU is reached through jax.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
import numpy.typing as npt
from jaxlib.mlir.dialects import stablehlo

from stablexla.constants import dense_attribute
from stablexla.dialects.constants import dense_values
from stablexla.dialects.contexts import stablehlo_context
from stablexla.dialects.errors import ExecutionError
from stablexla.targets.signature import Signature, main_of, plain, signature_of

Array = npt.NDArray[Any]
ORACLES = ("reference", "xla")


def evaluate(oracle: str, module: ir.Module, signature: Signature, arguments: Sequence[Array]) -> list[Array]:
    """The results of a program by an oracle.

    Raises:
        ExecutionError: the oracle failed; some programs that are right make it.
    """
    with tempfile.TemporaryDirectory(prefix="stablexla-") as name:
        folder = Path(name)
        buffer = BytesIO()
        module.operation.write_bytecode(buffer)
        (folder / "program.mlirbc").write_bytes(buffer.getvalue())
        _save(folder / "arguments.npz", arguments)
        command = [sys.executable, "-m", "stablexla.tools.oracle", oracle, name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            hint = "pip install 'stablexla[jax]'" if "No module named 'jax'" in last else ""
            raise ExecutionError(f"{oracle} failed with exit code {done.returncode}: {last}", hint=hint)
        results = _load(folder / "results.npz")
    types = signature.results
    return [raw.view(t.element.dtype).reshape(t.shape) for raw, t in zip(results, types, strict=True)]


def _save(path: Path, arrays: Sequence[Array]) -> None:
    """As bytes: numpy's files do not know all the types."""
    np.savez(path, *(np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays))


def _load(path: Path) -> list[Array]:
    with np.load(path) as file:
        return [file[f"arr_{i}"] for i in range(len(file.files))]


def _reference(module: ir.Module, signature: Signature, arguments: Sequence[Array]) -> list[Array]:
    # Of quantised arrays the interpreter takes the integers.
    inputs = [plain(a.type) for a in main_of(module).regions[0].blocks[0].arguments]
    values = [dense_attribute(a, t) for a, t in zip(arguments, inputs, strict=True)]
    results = stablehlo.eval_module(module, values)
    return [dense_values(r, t.element, t.shape) for r, t in zip(results, signature.results, strict=True)]


def _xla(module: ir.Module, signature: Signature, arguments: Sequence[Array]) -> list[Array]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import jax
    from jaxlib import xla_client

    client = jax.devices("cpu")[0].client
    artifact = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())
    devices = xla_client.DeviceList(tuple(client.local_devices()))
    executable = client.compile_and_load(artifact, devices, xla_client.CompileOptions())
    with jax.enable_x64(True):
        buffers = [jax.device_put(a) for a in arguments]
        results = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [np.asarray(r[0]) for r in results]


def _main(oracle: str, name: str) -> None:
    folder = Path(name)
    module = ir.Module.parse((folder / "program.mlirbc").read_bytes(), stablehlo_context())
    signature = signature_of(module)
    raw = _load(folder / "arguments.npz")
    types = signature.parameters
    arguments = [a.view(t.element.dtype).reshape(t.shape) for a, t in zip(raw, types, strict=True)]
    run = {"reference": _reference, "xla": _xla}[oracle]
    _save(folder / "results.npz", run(module, signature, arguments))


if __name__ == "__main__":
    _main(*sys.argv[1:])
