"""What results are compared with: StableHLO's reference interpreter and XLA:CPU, both run on a module's text.

The interpreter aborts the process on complex results and for some dynamic programs; XLA:CPU flushes denormals and lacks
some element types. Tests say which of the two they trust, or give a reference of their own.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.builder.constants import dense_attribute
from stablexla.dialects.constants import dense_values
from stablexla.dialects.contexts import stablehlo_context
from stablexla.lowering.support.types import tensor_type
from tests.tree import ROOT

Arrays = Sequence[Any]
Oracle = Callable[[str, Arrays], list[np.ndarray]]

KEPT = ROOT / "build" / "oracles"
"""Answers by program and arguments, for the runs to come: `make clean` removes them."""
_LARGEST = 1 << 20


def kept(oracle: Oracle) -> Oracle:
    """Asks once for each program and arguments, but for large ones."""

    @functools.wraps(oracle)
    def asked(text: str, args: Arrays) -> list[np.ndarray]:
        arrays = [np.asarray(a) for a in args]
        if sum(a.nbytes for a in arrays) > _LARGEST:
            return oracle(text, args)
        key = hashlib.sha256(f"{oracle.__name__} {version('jaxlib')} {text}".encode())
        for a in arrays:
            key.update(f"{a.dtype} {a.shape}".encode() + a.tobytes())
        file = KEPT / key.hexdigest()
        if file.exists():
            found: list[np.ndarray] = pickle.loads(file.read_bytes())
            return found
        made = oracle(text, args)
        if sum(a.nbytes for a in made) <= _LARGEST:
            KEPT.mkdir(parents=True, exist_ok=True)
            own = file.with_suffix(f".{os.getpid()}")  # several workers ask
            own.write_bytes(pickle.dumps(made))
            own.rename(file)
        return made

    return asked


@kept
def interpreter(text: str, args: Arrays) -> list[np.ndarray]:
    """The reference interpreter's results."""
    module = hlo_ir.Module.parse(text, stablehlo_context())
    inputs, outputs = _signature(module)
    values = [dense_attribute(np.ascontiguousarray(a), t) for a, t in zip(args, inputs, strict=True)]
    results = stablehlo.eval_module(module, values)
    types = [tensor_type(t) for t in outputs]
    return [dense_values(r, t.element, t.shape) for r, t in zip(results, types, strict=True)]


@kept
def xla(text: str, args: Arrays) -> list[np.ndarray]:
    """XLA:CPU's results."""
    import jax

    executable = xla_executable(text)
    with jax.enable_x64(True):
        buffers = [jax.device_put(np.asarray(a)) for a in args]
        results = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [np.asarray(r[0]) for r in results]


@functools.lru_cache(maxsize=64)
def xla_executable(text: str) -> Any:
    """A module compiled by XLA:CPU."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import jax
    from jaxlib import xla_client

    client = jax.devices("cpu")[0].client
    artifact = stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version())
    devices = xla_client.DeviceList(tuple(client.local_devices()))
    return client.compile_and_load(artifact, devices, xla_client.CompileOptions())


def _signature(module: hlo_ir.Module) -> tuple[list[Any], list[Any]]:
    for op in module.body.operations:
        if hlo_ir.StringAttr(op.attributes["sym_name"]).value == "main":
            signature = hlo_ir.FunctionType(hlo_ir.TypeAttr(op.attributes["function_type"]).value)
            return list(signature.inputs), list(signature.results)
    raise AssertionError("no main")
