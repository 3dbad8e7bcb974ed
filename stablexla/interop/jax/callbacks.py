"""Python callbacks of JAX: each custom call of a program is bound to the function that JAX keeps for it.

In a program's text a callback is a number. The function itself lives in the process that traced it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.custom_calls import OF_THIS_PROCESS, ON_PARTS, TARGETS, CustomCallTarget
from stablexla.interop.jax.required import internals, jax
from stablexla.interop.loading import load
from stablexla.lowering.rules.calls.jax_calls import CALLBACKS, ON_BUFFERS, PARTITIONED
from stablexla.lowering.support.types import is_token, tensor_type
from stablexla.targets.stablehlo.inlining import operations_of

Callback = Callable[..., Any]

_ALIASES = "output_operand_aliases"


class _Context:
    """The execution context that a function of `buffer_callback` gets, with the fields of XLA's on a CPU."""

    def __init__(self) -> None:
        from jax.experimental.buffer_callback import ExecutionStage

        self.stage = ExecutionStage.EXECUTE

    @property
    def stream(self) -> Any:
        """Raise JaxRuntimeError: there is no GPU."""
        raise jax().errors.JaxRuntimeError("UNIMPLEMENTED: XLA FFI GPU context is not available")


class _Buffer(np.ndarray[Any, Any]):
    """An array that a function of `buffer_callback` reads or writes."""

    @property
    def writeable(self) -> bool:
        """Whether it is a result."""
        return self.flags.writeable


_numbers = count()


def bind_callbacks(module: ir.Module, callbacks: Sequence[Callback]) -> tuple[ir.Module, list[str]]:
    """Return the module with a unique name for each callback, and those names, registered as custom calls."""
    if not callbacks:
        return module, []
    module = load(module)
    names = []
    for call in operations_of(module, "stablehlo.custom_call"):
        target = str(ir.StringAttr(call.attributes["call_target_name"]).value)
        if target not in CALLBACKS:
            continue
        config = ir.DictAttr(call.attributes["mhlo.backend_config"])
        callback = callbacks[int(ir.IntegerAttr(config["index"]).value)]
        names.append(f"{OF_THIS_PROCESS}{next(_numbers)}")
        takes_token = len(call.operands) > 0 and is_token(call.operands[0].type)
        function = _on_buffers(callback, call) if target == ON_BUFFERS else _function(callback, takes_token)
        TARGETS[names[-1]] = CustomCallTarget(names[-1], function=function)
        _rename(call, names[-1])
        if target == PARTITIONED:
            call.attributes[ON_PARTS] = ir.UnitAttr.get(call.context)
    return module, names


def release_with(owner: object, names: Sequence[str]) -> None:
    """Unregister the functions of those names when `owner` is collected."""
    for name in names:
        weakref.finalize(owner, TARGETS.pop, name, None).atexit = False


def _rename(call: Any, name: str) -> None:
    with call.context:
        call.attributes["call_target_name"] = ir.StringAttr.get(name)
    for key in ("mhlo.backend_config", "backend_config", "api_version", _ALIASES):
        if key in call.attributes:
            del call.attributes[key]


def _function(callback: Callback, takes_token: bool) -> Callback:
    """Return the callback as a function on arrays. Its arguments are copies, since JAX may keep them."""

    def call(*arrays: Any) -> tuple[Any, ...]:
        copies = [np.array(array) for array in arrays]
        if takes_token:
            return tuple(_called(callback, None, *copies)[1:])
        return tuple(_called(callback, *copies))

    return call


def _on_buffers(callback: Callback, call: Any) -> Callback:
    """Return a callback that writes into arrays as a function that returns them; an alias begins as its operand."""
    types = [tensor_type(result.type) for result in call.results]
    origins: dict[int, int] = {}
    for attribute in call.attributes.get(_ALIASES, ()):
        alias = stablehlo.OutputOperandAlias(attribute)
        origins[next(iter(alias.output_tuple_indices), 0)] = alias.operand_index
    context = _Context()

    def call_on_buffers(*arrays: Any) -> tuple[Any, ...]:
        results = [
            np.array(arrays[origins[i]]) if i in origins else np.empty(type_.shape, type_.element.dtype)
            for i, type_ in enumerate(types)
        ]
        operands = [np.array(array) for array in arrays]
        for i, origin in origins.items():
            operands[origin] = results[i].view()  # one memory
        for operand in operands:
            operand.setflags(write=False)
        _called(callback, context, *(array.view(_Buffer) for array in (*operands, *results)))
        return tuple(results)

    return call_on_buffers


def _called(callback: Callback, *arguments: Any) -> Any:
    """Call a callback without the mesh and the trace of the caller, whose thread this may be: XLA's do not see them."""
    if internals().no_trace_under_way():
        with jax().set_mesh(None):
            return callback(*arguments)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(callback, *arguments).result()
