"""The other end of `reader.py`: a process that reads untrusted bytes with MLIR and XLA, and writes them anew.

It is started by its path and loads nothing of stablexla but the contexts, so that it is up soon. A request is the kind,
seconds, bytes of memory, and the data; the answer is bytecode, or an error's messages.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, Literal, TypeAlias

from stablexla.dialects.system import mapped_bytes
from stablexla.processes import wire
from stablexla.processes.serving import connect

_PATIENCE = 20
"""How many times as long a request may take by the clock."""
_LOG_BYTES = 16 << 20
"""How long its log may become."""
_RENEW = 16 << 20
"""Bytes read after which a context is thrown away: it keeps every constant that it ever saw."""


def _read_bytecode(data: bytes, context: Any) -> Any:
    import jaxlib.mlir.ir as ir

    return ir.Module.parse(data, context)


def _read_artifact(data: bytes, context: Any) -> Any:
    from jaxlib.mlir.dialects import stablehlo

    return stablehlo.deserialize_portable_artifact(context, data)


def _read_hlo_proto(data: bytes, context: Any) -> Any:
    from jaxlib import _jax

    return _read_mhlo(_jax.mlir.hlo_to_stablehlo(data), context)


def _read_mhlo(data: bytes, context: Any) -> Any:
    """Read a module of MHLO, StableHLO's ancestor, whose operations XLA still uses for some of its own."""
    import jaxlib.mlir.ir as ir
    from jaxlib import _jax
    from jaxlib.mlir.dialects import mhlo

    from stablexla.dialects.mhlo import rewrite_mhlo

    mhlo.register_mhlo_dialect(context)
    module = ir.Module.parse(data, context)
    rewrite_mhlo(module)
    left = _operations_of(module, "mhlo.")
    if not left:
        return module
    try:
        return ir.Module.parse(_jax.mlir.mhlo_to_stablehlo(_bytecode(module)), context)
    except Exception as error:
        raise ValueError(f"{NO_STABLEHLO}{', '.join(sorted(left))}") from error


def _bytecode(module: Any) -> bytes:
    out = BytesIO()
    module.operation.write_bytecode(out)
    return out.getvalue()


def _operations_of(module: Any, prefix: str) -> set[str]:
    import jaxlib.mlir.ir as ir

    names: set[str] = set()

    def look(op: Any) -> Any:
        if op.name.startswith(prefix):
            names.add(op.name)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return names


def _hlo_text_to_proto(data: bytes, context: Any) -> bytes:
    from jaxlib import _hlo

    return bytes(_hlo.hlo_module_from_text(data.decode()).as_serialized_hlo_module_proto())


def _write_hlo_proto(data: bytes, context: Any) -> bytes:
    return bytes(_computation(data).as_serialized_hlo_module_proto())


def _write_hlo_text(data: bytes, context: Any) -> bytes:
    import jaxlib.mlir.ir as ir

    text: str = _computation(data).as_hlo_text(print_large_constants=True)
    header, end, rest = text.partition("\n")
    attributes = ir.Module.parse(data, context).operation.attributes
    for name, said in (("mhlo.num_replicas", "replica_count"), ("mhlo.num_partitions", "num_partitions")):
        if name in attributes:
            header += f", {said}={ir.IntegerAttr(attributes[name]).value}"
    return (header + end + rest).encode()


def _computation(data: bytes) -> Any:
    from jaxlib import _jax

    return _jax.mlir.mlir_module_to_xla_computation(data, use_tuple_args=False, return_tuple=False)


def _read_upstream(data: bytes, context: Any) -> Any:
    import mlir.ir as ir

    return ir.Module.parse(data, context)


Kind: TypeAlias = Literal["upstream", "bytecode", "artifact", "hlo", "hlotext", "mhlo", "to-hlo", "to-text"]
NO_STABLEHLO = "no StableHLO for "
READERS: dict[Kind, Callable[[bytes, Any], Any]] = {
    "upstream": _read_upstream,
    "bytecode": _read_bytecode,
    "artifact": _read_artifact,
    "hlo": _read_hlo_proto,
    "mhlo": _read_mhlo,
}
WRITERS: dict[Kind, Callable[[bytes, Any], bytes]] = {
    "hlotext": _hlo_text_to_proto,
    "to-hlo": _write_hlo_proto,
    "to-text": _write_hlo_text,
}


def read(kind: Kind, data: bytes, contexts: Any) -> Any:
    """Return the module in the data, verified; for a kind that writes, bytes.

    Raises:
        ValueError: they hold none; the arguments are the messages.
    """
    context = contexts.upstream_context() if kind == "upstream" else contexts.stablehlo_context()
    # Diagnostics go to the handler alone: to put one that is no UTF-8 into an exception would end the process.
    context.emit_error_diagnostics = True
    with contexts.diagnostics(context) as seen:
        try:
            if kind in WRITERS:
                return WRITERS[kind](data, context)
            module = READERS[kind](data, context)
            module.operation.verify()
        except Exception as error:
            messages = [str(found) for found in seen if found.severity != "note"]
            raise ValueError(*(m for m in (*messages, str(error)) if m)) from None
        finally:
            context.emit_error_diagnostics = False
    return module


def serve(link: socket.socket, contexts: Any) -> None:
    """Answer until a new context is needed.

    Raises:
        Closed: the connection is closed.
    """
    total = 0
    while total < _RENEW:
        request = wire.receive(link)
        with _limits(request.values["seconds"], request.values["memory"]):
            kind, values, answer = _answer(request.values["kind"], request.data, contexts)
        total += len(request.data) if kind == wire.DONE else _RENEW
        wire.send(link, kind, values, answer)


def _answer(kind: Any, data: bytes, contexts: Any) -> tuple[str, dict[str, Any], bytes]:
    try:
        made = read(kind, data, contexts)
        return wire.DONE, {}, made if isinstance(made, bytes) else _bytecode(made)
    except ValueError as error:
        return wire.ERROR, {"messages": [str(a) for a in error.args]}, b""


@contextlib.contextmanager
def _limits(seconds: int, memory: int) -> Iterator[None]:
    """End the process when a request takes too long or too much memory, even when nobody waits for it.

    Memory has a limit where the system says how much is mapped already: on Linux.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if (mapped := mapped_bytes()) is not None:
        most = mapped + memory
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of processor time
    signal.alarm(_PATIENCE * seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if mapped is not None:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def main() -> None:
    """Serve the other end of a socket until that is closed."""
    link = connect()
    from stablexla.dialects import contexts

    resource.setrlimit(resource.RLIMIT_FSIZE, (_LOG_BYTES, _LOG_BYTES))

    with contextlib.suppress(wire.Closed):
        while True:
            with contexts.contexts_of_their_own():
                contexts.stablehlo_context()
                serve(link, contexts)


if __name__ == "__main__":
    main()
