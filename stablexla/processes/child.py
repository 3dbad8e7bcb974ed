"""The compiling process: it receives programs, reports its step, and sends saved programs or errors back."""

from __future__ import annotations

import importlib
import socket
import sys
import traceback
from collections.abc import Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from stablexla.builder.computation import XlaComputation
from stablexla.compiling.composite_kernels import register_composite_kernel
from stablexla.compiling.core import OpenProgram, compile_watched
from stablexla.compiling.request import Request
from stablexla.dialects import rules
from stablexla.dialects.composites import REGISTERED
from stablexla.dialects.custom_calls import TARGETS, CustomCallTarget
from stablexla.dialects.rules import LoweringRule
from stablexla.dialects.shapes import Shape
from stablexla.executable.saving import contents
from stablexla.interop.encodings.formats import to_bytecode
from stablexla.interop.loading import load_bytes
from stablexla.processes import wire
from stablexla.processes.serving import answer_all, connect
from stablexla.processes.wire import Message
from stablexla.targets.pipeline.dump import KnobWatcher, reproducing_options
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.options import DEFAULT_TARGET, CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline, Step
from stablexla.targets.pipeline.standard_error import leave_for_others
from stablexla.targets.registry import find_target
from stablexla.targets.runtime import container
from stablexla.targets.runtime.host import HANDLERS


def main() -> None:
    """Serve the other end of a socket until that is closed."""
    link = connect()
    find_target(DEFAULT_TARGET).pipeline(CompileOptions())  # with its imports, which are no part of a program's time
    leave_for_others()
    wire.send(link, wire.READY, {})
    answer_all(link, partial(answer, link))


def answer(link: socket.socket, request: Message) -> None:
    """Execute a request."""
    try:
        values, data = _compile(link, request)
    except Exception as error:
        said = wire.values_of(error)
        if not said["class"]:
            said["trace"] = traceback.format_exc()
        wire.send(link, wire.ERROR, said)
    else:
        wire.send(link, wire.DONE, values, data)


def _compile(link: socket.socket, request: Message) -> tuple[dict[str, Any], bytes]:
    """Return the compiled program as a file's contents; the source, when shapes come with the arguments."""
    values = request.values
    for module in values["modules"]:
        importlib.import_module(module)
    options = _options(values["options"], values["rules"])  # this imports modules too
    _register(values["custom_calls"], values["composites"])
    folder = None if values["folder"] is None else Path(values["folder"])
    with knobs.scoped(**_knobs(values["knobs"]), cache=None):  # that is the business of the other process
        how = {name: values[name] for name in ("entry", "target", "num_replicas", "num_partitions")}
        asked = Request(_program(values["program"], request.data), **how, options=options)
        made = compile_watched(asked, _watcher(link, folder))
    sys.stderr.flush()
    if isinstance(made, OpenProgram):
        return {"waits": made.counts}, to_bytecode(made.source)
    return {"overrides": made._overrides}, b"".join(container.pieces(*contents(made)))


def _program(values: Mapping[str, Any], data: bytes) -> Any:
    kind = values["kind"]
    if kind == "text":
        return data.decode("utf-8", "surrogatepass")
    if kind == "bytes":
        return data
    if kind == "path":
        return Path(values["path"])
    module = load_bytes(data, trusted=True)  # the asking process wrote it
    if kind == "module":
        return module
    shapes = [Shape.parse(text) for text in values["parameter_shapes"]]
    result = Shape.parse(values["result_shape"])
    return XlaComputation(values["name"], module, shapes, values["parameter_names"], result)


def _options(values: Mapping[str, Any], rules: list[list[str]]) -> Any:
    pipeline = None if values["pipeline"] is None else Pipeline.parse(values["pipeline"])
    return CompileOptions(**{**values, "pipeline": pipeline, "rules": [_rule(*rule) for rule in rules]})


def _rule(name: str, module: str, path: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return LoweringRule(name, found.function if isinstance(found, LoweringRule) else found)


def _knobs(values: Mapping[str, Any]) -> dict[str, Any]:
    paths = ("dump", "override")
    return {name: Path(value) if name in paths and value is not None else value for name, value in values.items()}


def _register(custom_calls: Mapping[str, str], composites: list[list[Any]]) -> None:
    """Register stubs for the other process's functions, none of which is called here.

    Registrations of imported user modules do not apply here.
    """
    stands_for: dict[str, dict[str, Any]] = {
        "c": {"address": 1},
        "ffi": {"stages": (1, 1, 1, 1)},
        "python": {"function": _elsewhere},
    }
    TARGETS.clear()
    TARGETS.update({name: CustomCallTarget(name, **stands_for[kind]) for name, kind in custom_calls.items()})
    HANDLERS["ffi"] = lambda host, call, outputs: _elsewhere
    rules.unregister_all()  # those that hold come with the options
    REGISTERED.clear()
    for name, version, *target in composites:
        register_composite_kernel(name, version, _elsewhere, target=target[0] if target else None)


def _elsewhere(*arguments: object, **keywords: object) -> None:
    raise AssertionError("this function belongs to another process")


def _watcher(link: socket.socket, folder: Path | None) -> Any:
    """Return a watcher class: it reports every pass, and writes the module before each step to the folder, if any."""

    class ProgressWatcher(KnobWatcher):
        def __post_init__(self) -> None:
            super().__post_init__()
            self._prints, self.pass_by_pass = self.pass_by_pass, True
            self._begin(0, self.source)

        def after_step(self, number: int, step: Any, module: Any, seconds: float) -> None:
            super().after_step(number, step, module, seconds)
            self._begin(number + 1, module)

        def before_pass(self, step: Any, element: Any, module: Any) -> None:
            wire.send(link, wire.PASS, {"pass": element.text})

        def after_pass(self, step: Any, element: Any, module: Any) -> None:
            if self._prints:
                super().after_pass(step, element, module)

        def _begin(self, number: int, module: Any) -> None:
            names = [*self.pipeline.names, ""]
            if folder is not None:
                buffer = BytesIO()
                module.operation.write_bytecode(buffer)
                (folder / "before").write_bytes(buffer.getvalue())
            before = "source" if number == 0 else names[number - 1]
            step = self.pipeline.steps[number] if names[number] else Step("rest", "")
            options = reproducing_options(step, self.pipeline)
            where = {"stage": names[number], "number": number, "before": before, "options": options}
            wire.send(link, wire.STAGE, {**where, "pipeline": self.pipeline.name})

    return ProgressWatcher
