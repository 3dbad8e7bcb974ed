"""Host callbacks: Python functions that a program calls on its arrays, and infeed, outfeed and channel queues.

The native runtime calls a handler with two tuples of arrays: inputs, read-only, and outputs to be filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.custom_calls import find_custom_call
from stablexla.dialects.errors import CompileError, ExecutionError
from stablexla.dialects.shapes import Shape
from stablexla.targets.runtime._runtime import ArraySpec
from stablexla.targets.runtime.arguments import fit_at
from stablexla.targets.runtime.assertions import check
from stablexla.targets.runtime.host_devices import DeviceQueues, current_device, is_stopped, naming_device
from stablexla.targets.runtime.queues import CHANNELS, Item, ItemQueue, text_of

Arrays = tuple[npt.NDArray[Any], ...]
Handler = Callable[[Arrays, Arrays], None]
Call = Mapping[str, Any]

TIME_LIMIT = 60.0
"""Default time limit of a wait on an empty queue, in seconds."""


class Host:
    """Host callbacks and queues of one executable.

    Attributes:
        calls: what the program calls, as plain values.
        callbacks: for each of the program's calls the handler, and its input and output arrays.
        time_limit: of a wait on an empty queue, in seconds; None is unlimited.
    """

    def __init__(self, program: str, calls: Sequence[Call], num_devices: int = 1) -> None:
        self.program = program
        self.calls = tuple(calls)
        self.num_devices = num_devices
        self.time_limit: float | None = TIME_LIMIT
        self._infeed, self._outfeed = DeviceQueues(num_devices), DeviceQueues(num_devices)
        self._sent: dict[int, DeviceQueues] = {}
        self._awaited: dict[int, DeviceQueues] = {}
        self._wanted: dict[int | None, list[tuple[ArraySpec, ...]]] = {}
        self._kept: list[object] = []
        self._feeds_out = any(call["call"] == "outfeed" for call in calls)
        self.callbacks = [self._callback(call) for call in calls]

    def described(self) -> list[Call]:
        """Return the calls for another process, which may have no MLIR."""
        if not any(call["call"] == "ffi" for call in self.calls):
            return list(self.calls)
        from stablexla.targets.runtime.ffi import with_form

        return [with_form(call) if call["call"] == "ffi" else call for call in self.calls]

    # ---- the caller's side -----------------------------------------------------------------------------------------

    def put(self, value: object, channel: int | None = None, device: int = 0) -> None:
        """Put an item into a device's infeed, or into a channel that the program receives from on it."""
        if channel not in self._wanted:
            what = "infeed" if channel is None else f"recv from the caller on channel {channel}"
            raise ExecutionError(f"{self.program}: the program has no {what}")
        queues, place = (
            (self._infeed, "the infeed") if channel is None else (self._awaited[channel], f"channel {channel}")
        )
        place += f" of device {device}" if self.num_devices > 1 else ""
        queues[device].put(self._fitted(value, self._wanted[channel], place))

    def get(self, channel: int | None = None, device: int = 0) -> Item:
        """Wait for the next item of a device's outfeed, or of a channel that the program sends on there."""
        if not self._feeds_out if channel is None else channel not in self._sent:
            what = "outfeed" if channel is None else f"send to the caller on channel {channel}"
            raise ExecutionError(f"{self.program}: the program has no {what}")
        queues, name = (self._outfeed, "transfer_from_outfeed") if channel is None else (self._sent[channel], "send")
        where = f" on device {device}" if self.num_devices > 1 else ""
        what = f"{self.program} has put nothing out{where}"
        return queues[device].get(self.time_limit, name, what, "is the program running?")

    def _fitted(self, value: object, forms: Sequence[tuple[ArraySpec, ...]], place: str) -> Item:
        """Convert the value to one of the tuples of arrays that the program reads."""
        leaves = list(value) if isinstance(value, (tuple, list)) else [value]
        if any(isinstance(leaf, (tuple, list)) for leaf in leaves):
            raise ExecutionError(f"{self.program}: {place} takes arrays and tuples of arrays, no nested tuples")
        first: ExecutionError | None = None
        for specs in forms:
            try:
                return self._arrays(leaves, specs, f"{self.program}: {place}")
            except ExecutionError as error:
                first = first or error
        assert first is not None
        if len(forms) == 1:
            raise first
        takes = ", or ".join(map(_form, forms))
        raise ExecutionError(f"{self.program}: {place} takes {takes}, and none of these came") from first

    @staticmethod
    def _arrays(leaves: Sequence[object], specs: Sequence[ArraySpec], place: str) -> Item:
        if len(leaves) != len(specs):
            came = "one array" if len(leaves) == 1 else f"{len(leaves)} arrays"
            raise ExecutionError(f"{place} takes {_form(specs)}, but {came} came")
        return tuple(fit_at(leaf, spec, place) for leaf, spec in zip(leaves, specs, strict=True))

    # ---- the program's side ----------------------------------------------------------------------------------------

    def _callback(self, call: Call) -> tuple[Handler, list[ArraySpec], list[ArraySpec]]:
        inputs, outputs = ([_spec(text) for text in call[side]] for side in ("inputs", "outputs"))
        handler = HANDLERS[call["call"]](self, call, outputs)
        if self.num_devices > 1 and call["call"] != "ffi":
            handler = naming_device(handler, self.program)
        return handler, inputs, outputs

    def _function(self, call: Call, outputs: list[ArraySpec]) -> Handler:
        """Return the handler of a custom call's Python function."""
        function = find_custom_call(call["target"]).function
        if function is None:
            raise CompileError(f"custom_call: {call['target']!r} has become a C function since it was lowered")
        place = f"custom call {call['target']!r}"
        given, made = (Shape.parse(call[key]) for key in ("arguments", "result"))
        if any(part.is_tuple for part in (*given.tuple_shapes, *made.tuple_shapes)):
            function = partial(_on_tuples, function, given, made, place)
        return _calling(function, _keywords(call), place, outputs)

    def _assertion(self, call: Call, outputs: list[ArraySpec]) -> Handler:
        """Return the handler of a shape assertion."""
        return lambda given, _: check(call["text"], given)

    def _ffi(self, call: Call, outputs: list[ArraySpec]) -> Any:
        """Instantiate a handler of XLA's foreign function interface, which the runtime calls without Python."""
        from stablexla.targets.runtime.ffi import ffi_call  # few programs have any

        target = find_custom_call(call["target"])
        if not target.stages:
            raise CompileError(f"custom_call: {call['target']!r} has become another function since it was lowered")
        self._kept.append(target)
        return ffi_call(target, call)

    def _composite(self, call: Call, outputs: list[ArraySpec]) -> Handler:
        """Return the handler of a composite's function."""
        from stablexla.dialects.composites import REGISTERED  # it imports an MLIR

        name, version = call["target"], call["version"]
        kernels = (REGISTERED.get(key) for key in ((name, version, "cpu"), (name, version)))
        kernel = next((k for k in kernels if k is not None and isinstance(k.rule, partial)), None)  # rules are no calls
        if kernel is None or not callable(kernel.keep):
            raise CompileError(f"composite: the kernel for {call['target']!r} is registered no more")
        return _calling(kernel.keep, _keywords(call), f"composite {call['target']!r}", outputs)

    def _infeed_handler(self, call: Call, outputs: list[ArraySpec]) -> Handler:
        forms = self._wanted.setdefault(None, [])
        if tuple(outputs) not in forms:
            forms.append(tuple(outputs))
        return self._reading(self._infeed, "infeed", call, "executable.transfer_to_infeed(value{device})")

    def _outfeed_handler(self, call: Call, outputs: list[ArraySpec]) -> Handler:
        return lambda given, _: self._outfeed.here().put(given)

    def _send_handler(self, call: Call, outputs: list[ArraySpec]) -> Handler:
        channel = call["channel"]
        if not call["host"]:
            target = CHANNELS[channel]
            return lambda given, _: target.put(given)
        targets = self._sent.setdefault(channel, DeviceQueues(self.num_devices))
        return lambda given, _: targets.here().put(given)

    def _recv_handler(self, call: Call, outputs: list[ArraySpec]) -> Handler:
        channel = call["channel"]
        if not call["host"]:
            return self._reading(CHANNELS[channel], "recv", call, "another program, or this one, sends first")
        self._wanted.setdefault(channel, []).append(tuple(outputs))
        sources = self._awaited.setdefault(channel, DeviceQueues(self.num_devices))
        return self._reading(sources, "recv", call, f"executable.transfer_to_channel({channel}, value{{device}})")

    def _reading(self, source: ItemQueue | DeviceQueues, operation: str, call: Call, hint: str) -> Handler:
        """Return a handler that fills the arrays from a queue."""
        where = f"channel {call['channel']}" if "channel" in call else "the infeed"

        def read(_: Arrays, wanted: Arrays) -> None:
            queue = source.here() if isinstance(source, DeviceQueues) else source
            several = self.num_devices > 1
            way_out = hint.format(device=f", device={current_device()}" if several else "")
            what = f"{where} is empty{call['place']}"
            item = queue.get(self.time_limit, operation, what, way_out, is_stopped)
            fits = [(a.dtype, a.shape) for a in item] == [(a.dtype, a.shape) for a in wanted]
            if not fits:
                summary = f"{where} holds {text_of(item)}, where {text_of(wanted)} is read{call['place']}"
                raise ExecutionError(summary, operation=operation)
            for target, array in zip(wanted, item, strict=True):
                np.copyto(target, array)

        return read


HANDLERS: dict[str, Callable[[Host, Call, list[ArraySpec]], Handler]] = {
    "function": Host._function,
    "assertion": Host._assertion,
    "ffi": Host._ffi,
    "composite": Host._composite,
    "infeed": Host._infeed_handler,
    "outfeed": Host._outfeed_handler,
    "send": Host._send_handler,
    "recv": Host._recv_handler,
}


def _calling(function: Callable[..., Any], keywords: dict[str, Any], place: str, specs: Sequence[ArraySpec]) -> Handler:
    """Return a handler that calls a user's function, and stores its checked results."""
    count = len(specs)

    def call(given: Arrays, wanted: Arrays) -> None:
        made = function(*given, **keywords)
        results = made if isinstance(made, (tuple, list)) else () if made is None and not count else (made,)
        if len(results) != count:
            raise ExecutionError(f"{place} must return {_form(specs)}, but it returned {len(results)} results")
        for number, (target, result, spec) in enumerate(zip(wanted, results, specs, strict=True)):
            which = "the result" if count == 1 else f"result {number}"
            np.copyto(target, fit_at(result, spec, f"{which} of {place}"))

    return call


def _on_tuples(
    function: Callable[..., Any], given: Shape, result: Shape, place: str, *arrays: Any, **keywords: Any
) -> tuple[Any, ...]:
    """Call a function of nested tuples on flat arrays."""
    return tuple(_leaves(function(*given.nested(arrays), **keywords), result, f"the result of {place}"))


def _leaves(value: Any, shape: Shape, which: str) -> Iterator[Any]:
    """Flatten the arrays in a function's result, from left to right."""
    if not shape.is_tuple:
        yield value
        return
    count = len(shape.tuple_shapes)
    if not isinstance(value, (tuple, list)) or len(value) != count:
        raise ExecutionError(f"{which} must be a tuple of {count}, {shape}, but it is {_told(value)}")
    for number, (part, inner) in enumerate(zip(value, shape.tuple_shapes, strict=True)):
        yield from _leaves(part, inner, f"element {number} of {which}")


def _told(value: object) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, (tuple, list)) else f"a {type(value).__name__}"


def _keywords(call: Call) -> dict[str, Any]:
    if call["keywords"] == "{}":
        return {}
    import jaxlib.mlir.ir as hlo_ir  # not before it is needed: it takes long

    from stablexla.dialects.attributes.plain_values import plain
    from stablexla.dialects.contexts import stablehlo_context

    return dict(plain(hlo_ir.Attribute.parse(call["keywords"], stablehlo_context())))


def _spec(text: str) -> ArraySpec:
    shape = Shape.parse(text)
    return ArraySpec(shape.element_type.dtype, shape.dimensions)


def _form(specs: Sequence[ArraySpec]) -> str:
    return str(specs[0]) if len(specs) == 1 else f"({', '.join(map(str, specs))})"
