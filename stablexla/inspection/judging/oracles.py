"""Other implementations of StableHLO, each in a child process that stays alive.

An abort or a timeout is an outcome like any other. The child is this file, run as a program.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from stablexla.processes.questions import Child, Refusal, first_lines, serve

Array = npt.NDArray[Any]
Arrays = list[Array]

NAMES = {"interpreter": "interpreter", "reference": "interpreter", "xla": "xla"}
"""What users call the oracles; the first name of each is ours."""


class Oracle:
    """StableHLO's reference interpreter ("interpreter") or XLA on the CPU ("xla").

    Threads may share one; they are served one after the other.
    """

    def __init__(self, name: str, timeout: float = 600.0) -> None:
        self.name = name
        self._child = Child(__name__, name, timeout)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the child ahead of time: it takes a second."""
        self._child.start()

    def run(self, module: Any, arguments: Sequence[Array]) -> Arrays | Refusal:
        """Return the results of a module's `main`; the module stays unchanged."""
        from stablexla.inspection.judging.oracle_forms import form_for, joined

        try:
            form = form_for(self.name, module)
        except Exception as error:  # a pass of jaxlib's that does not take it
            return Refusal(type(error).__name__, str(error))
        buffer = BytesIO()
        form.module.operation.write_bytecode(buffer)
        with self._lock:
            found = self._child.ask((buffer.getvalue(), [np.ascontiguousarray(a) for a in arguments]))
        return found if isinstance(found, Refusal) else joined(found, form.results)

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_shared: dict[str, Oracle] = {}


def shared_oracle(name: str) -> Oracle:
    """Return the oracle of that name that all comparisons of this process share; its child ends with the process."""
    return _shared.setdefault(name, Oracle(name))


# ---- the child -------------------------------------------------------------------------------------------------------


def _interpreter(data: bytes, arguments: Arrays) -> Arrays:
    import jaxlib.mlir.ir as ir
    from jaxlib.mlir.dialects import stablehlo

    from stablexla.builder.constants import dense_attribute
    from stablexla.dialects.constants import dense_values
    from stablexla.dialects.contexts import stablehlo_context
    from stablexla.lowering.support.types import tensor_type
    from stablexla.targets.signature.signature import main_of, plain

    module = ir.Module.parse(data, stablehlo_context())
    block = main_of(module).regions[0].blocks[0]
    terminator = block.operations[len(block.operations) - 1].operation
    # Of quantised arrays the interpreter takes and gives the integers.
    values = [dense_attribute(a, plain(v.type)) for a, v in zip(arguments, block.arguments, strict=True)]
    types = [tensor_type(plain(v.type)) for v in terminator.operands]
    results = stablehlo.eval_module(module, values)
    return [dense_values(r, t.element, t.shape) for r, t in zip(results, types, strict=True)]


_compiled: dict[bytes, Any] = {}


def _xla(data: bytes, arguments: Arrays) -> Arrays:
    import jax

    executable = _compiled.get(data)
    if executable is None:
        _compiled.clear()
        executable = _compiled[data] = _xla_executable(data)
    with jax.enable_x64(True):
        buffers = [jax.device_put(a) for a in arguments]
        results = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [np.asarray(r[0]) for r in results]


def _xla_executable(data: bytes) -> Any:
    import jax
    import jaxlib.mlir.ir as ir
    from jaxlib import xla_client
    from jaxlib.mlir.dialects import stablehlo

    from stablexla.dialects.contexts import stablehlo_context

    module = ir.Module.parse(data, stablehlo_context())
    artifact = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())
    with suppress(ImportError, AttributeError):
        from jaxlib.cpu import _lapack

        _lapack.initialize()  # jax does so where it lowers a call of LAPACK
    client = jax.devices("cpu")[0].client
    devices = xla_client.DeviceList(tuple(client.local_devices()))
    return client.compile_and_load(artifact, devices, xla_client.CompileOptions())


IMPLEMENTATIONS: dict[str, Callable[[bytes, Arrays], Arrays]] = {"interpreter": _interpreter, "xla": _xla}


def _import_all() -> None:
    import stablexla

    assert stablexla


def _told(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "jax":
        return "jax is not installed: pip install 'stablexla[jax]'"
    return first_lines(error)


def _answer(name: str, question: tuple[bytes, Arrays]) -> Arrays:
    return [np.asarray(r) for r in IMPLEMENTATIONS[name](*question)]


if __name__ == "__main__":
    serve(_import_all, partial(_answer, sys.argv[1]), _told)
