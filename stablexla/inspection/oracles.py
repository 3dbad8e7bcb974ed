"""Other implementations of StableHLO, each in a child process that serves for as long as it lives.

What aborts or hangs there is an outcome like any other. The child is this file, run as a program: it imports what it
needs once and runs programs in forks of itself, so that one that died is soon replaced.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import IO, Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = list[Array]

NAMES = {"interpreter": "interpreter", "reference": "interpreter", "xla": "xla"}
"""What users call the oracles; the first name of each is ours."""


@dataclass(frozen=True)
class Refusal:
    """A program that gave no results.

    Attributes:
        kind: the class of the exception, `died` or `timeout`.
        message: what was said.
    """

    kind: str
    message: str

    def __str__(self) -> str:
        if self.kind == "died":
            return f"it crashed ({self.message})"
        if self.kind == "timeout":
            return f"no answer in {self.message}"
        return self.message.strip().splitlines()[0] if self.message.strip() else self.kind


class Oracle:
    """StableHLO's reference interpreter ("interpreter") or XLA on the CPU ("xla").

    Threads may share one; they are served one after the other.
    """

    def __init__(self, name: str, timeout: float = 600.0) -> None:
        self.name = name
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._lock = threading.Lock()

    def start(self) -> None:
        """Starts the child, which takes a second; whoever asks later does not wait so long."""
        if self._process is None:
            environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
            lifeline, self._lifeline = os.pipe()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, self.name, str(lifeline)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # the child and its forks are one group
                pass_fds=(lifeline,),
            )
            os.close(lifeline)

    def run(self, module: Any, arguments: Sequence[Array]) -> Arrays | Refusal:
        """The results of a module's `main`, which is left as it is."""
        from stablexla.inspection.oracle_forms import form_for, joined

        try:
            form = form_for(self.name, module)
        except Exception as error:  # a pass of jaxlib's that does not take it
            return Refusal(type(error).__name__, str(error))
        buffer = BytesIO()
        form.module.operation.write_bytecode(buffer)
        with self._lock:
            found = self._ask((buffer.getvalue(), [np.ascontiguousarray(a) for a in arguments]))
        return found if isinstance(found, Refusal) else joined(found, form.results)

    def _ask(self, question: Any) -> Arrays | Refusal:
        self.start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _send(process.stdin, question)
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                if not selector.select(self._timeout):
                    self.close()
                    return Refusal("timeout", f"{self._timeout:.0f} seconds")
            answer: Arrays | Refusal = _receive(process.stdout)
        except (BrokenPipeError, EOFError):
            code = process.wait(10)
            self.close()
            return Refusal("died", f"exit code {code}")
        except BaseException:  # the answer would come to the next question
            self.close()
            raise
        return answer

    def close(self) -> None:
        """Ends the child."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
            os.close(self._lifeline)
            self._process = None

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_shared: dict[str, Oracle] = {}


def shared_oracle(name: str) -> Oracle:
    """The oracle of that name that all comparisons of this process share; its child ends with the process."""
    return _shared.setdefault(name, Oracle(name))


def _send(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message)
    pipe.write(struct.pack("<q", len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    (size,) = struct.unpack("<q", _read(pipe, 8))
    return pickle.loads(_read(pipe, size))


def _read(pipe: IO[bytes], size: int) -> bytes:
    """So many bytes: an unbuffered pipe gives what is there."""
    parts = []
    while size:
        parts.append(pipe.read(size))
        if not parts[-1]:
            raise EOFError
        size -= len(parts[-1])
    return b"".join(parts)


# ---- the child -------------------------------------------------------------------------------------------------------


def _interpreter(data: bytes, arguments: Arrays) -> Arrays:
    import jaxlib.mlir.ir as ir
    from jaxlib.mlir.dialects import stablehlo

    from stablexla.constants import dense_attribute
    from stablexla.dialects.constants import dense_values
    from stablexla.dialects.contexts import stablehlo_context
    from stablexla.lowering.types import tensor_type
    from stablexla.targets.signature import main_of, plain

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


def _replace_the_dead(answers: IO[bytes]) -> None:
    """Returns in a fork, which is to serve; when it dies, says so and makes another."""
    while True:
        child = os.fork()
        if child == 0:
            return
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            sys.exit(0)
        _send(answers, Refusal("died", f"exit code {os.waitstatus_to_exitcode(status)}"))


def _serve(name: str, lifeline: int) -> None:
    from stablexla.isolation.child import end_with

    # It may be deep in a long computation when its parent ends.
    end_with(lifeline, whole_group=True)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print must not mix with the answers
    questions = os.fdopen(0, "rb", buffering=0)  # a fork must not read ahead of what it answers
    import stablexla

    assert stablexla
    _replace_the_dead(answers)
    while True:
        try:
            data, arguments = _receive(questions)
        except EOFError:
            os._exit(0)
        try:
            answer: Any = [np.asarray(r) for r in IMPLEMENTATIONS[name](data, arguments)]
        except Exception as error:
            answer = Refusal(type(error).__name__, _told(error))
        _send(answers, answer)


def _told(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "jax":
        return "jax is not installed: pip install 'stablexla[jax]'"
    lines = str(error).strip().splitlines() or [""]
    return "\n".join(lines[:6])[:1500]


if __name__ == "__main__":
    sys.modules["stablexla.inspection.oracles"] = sys.modules["__main__"]  # one class Refusal for both names
    Refusal.__module__ = "stablexla.inspection.oracles"
    _serve(sys.argv[1], int(sys.argv[2]))
