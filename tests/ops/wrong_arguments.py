"""Calls every public operation with every kind of wrong value for every parameter, and prints what is answered badly.

The calls to start from are those in the operations' own examples. What may come of a call is a `StablexlaError` that
names the operation and the parameter, or a result that verifies, where the value may be legal for the annotation of the
parameter. Run as a program, in a process whose memory and time are limited: `python -m tests.ops.wrong_arguments`.
"""

from __future__ import annotations

import doctest
import inspect
import resource
import signal
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import stablexla as sx
from stablexla.ops.registry import REGISTRY
from tests.ops.wrong_values import WRONG, Wrong

MEMORY = 1 << 30
"""Bytes of memory that the calls may take beyond what the process has when it begins."""
SECONDS = 10
"""Processor time that one call may take."""


ALSO_CALLED = {
    ("conditional", "pred"): "branch_index",
    ("conditional", "true_operand"): "branch_computations",
    ("conditional", "true_computation"): "branch_operands",
}
"""Parameters that have another name in another form of the operation."""


class TooLong(BaseException):
    """A call did not end; no handler of exceptions may hold it."""


@dataclass(frozen=True)
class Call:
    """A call of an operation that its example makes."""

    name: str
    function: Callable[..., Any]
    given: inspect.BoundArguments

    @property
    def operation(self) -> str:
        """How errors name it."""
        return self.name.rpartition(".")[2]

    def ops(self, other_than: str = "") -> list[sx.XlaOp]:
        """The ops that are given for other parameters than one, and one of a builder whose method is called."""
        given = self.given.arguments.items()
        return [op for name, value in given if name != other_than for op in _ops(value)]

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Its parameters."""
        return [each for each in self.given.signature.parameters.values() if each.name != "self"]

    def with_argument(self, name: str, value: object) -> Any:
        """What the call gives with another value for a parameter."""
        several = self.given.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        changed = {**self.given.arguments, name: (value,) if several else value}
        bound = inspect.BoundArguments(self.given.signature, changed)  # type: ignore[arg-type]  # any mapping will do
        return self.function(*bound.args, **bound.kwargs)


def _ops(value: object) -> Iterator[sx.XlaOp]:
    if isinstance(value, sx.XlaOp):
        yield value
    elif isinstance(value, sx.XlaBuilder):
        yield value.create_token()
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _ops(item)


def functions() -> dict[str, tuple[object, str]]:
    """Everything that is called, by name, with its owner and its name there."""
    found: dict[str, tuple[object, str]] = {name: (sx, name) for name in sx.__all__ if name in REGISTRY}
    return found | {f"XlaBuilder.{name}": (sx.XlaBuilder, name) for name in METHODS}


def calls_of_values() -> list[Call]:
    """Calls of what makes the values that operations take, and of the operators of ops."""
    b = sx.XlaBuilder("values")
    x, pair = b.parameter(0, sx.f32[2, 3]), b.parameter(1, sx.Shape.tuple((sx.f32[2], sx.s32[()])))
    made = {
        sx.XlaBuilder: ("values",),
        sx.Shape: ("f32", (2, 3)),
        sx.Shape.tuple: ((sx.f32[2],),),
        sx.Shape.parse: ("f32[2,3]",),
        sx.f32[2].with_element_type: ("s32",),
        sx.f32[2].with_dimensions: ((2, 3),),
        sx.f32[2, 3].with_dynamic: ((0,),),
        sx.f32.__getitem__: ((2, 3),),
        sx.element_type: ("f32",),
        sx.DotDimensionNumbers: ((0,), (0,), (1,), (1,)),
        sx.GatherDimensionNumbers: ((1,), (0,), (0,), 1),
        sx.ScatterDimensionNumbers: ((1,), (0,), (0,), 1),
        sx.ConvDimensionNumbers: (0, 1, (2,), 0, 1, (2,), 0, 1, (2,)),
        sx.ConvDimensionNumbers.of: ("NHWC", "HWIO", "NHWC"),
        sx.ConvDimensionNumbers.default: (2,),
        sx.PaddingConfig: (((0, 0, 0),),),
        x.__add__: (1.0,),
        x.__pow__: (x,),
        x.__rsub__: (1.0,),
        x.__eq__: (x,),
        x.__getitem__: (0,),
        pair.__getitem__: (0,),
    }
    return [Call("", function, inspect.signature(function).bind(*given)) for function, given in made.items()]


METHODS = (
    "parameter", "constant", "iota", "infeed", "recv", "custom_call", "call", "build",
)  # fmt: skip


def calls_in_example(name: str, owner: Any, attribute: str) -> list[Call]:
    """The calls of one function that its docstring's example makes."""
    function = getattr(owner, attribute)
    signature, recorded = inspect.signature(function), []

    def record(*args: Any, **named: Any) -> Any:
        given = signature.bind(*args, **named)
        recorded.append(Call(name, function, given))
        return function(*args, **named)

    proxy = types.SimpleNamespace(**{public: getattr(sx, public) for public in sx.__all__})
    namespace = {"sx": proxy, "np": np}
    where = proxy if owner is sx else owner
    setattr(where, attribute, record)
    try:
        for example in doctest.DocTestParser().get_examples(function.__doc__ or ""):
            exec(compile(example.source, f"<example of {name}>", "exec"), namespace)
    finally:
        setattr(where, attribute, function)
    return recorded


def complaint(call: Call, parameter: inspect.Parameter, wrong: Wrong, of: sx.XlaOp) -> str:
    """What is wrong with the answer to one call, or ""."""
    value = wrong.make(of)
    may_be_legal = wrong.may_be_legal(str(parameter.annotation))
    try:
        made = call.with_argument(parameter.name, value)
    except sx.StablexlaError as error:
        unseen = may_be_legal and (value is None or isinstance(value, str))
        return _complaint_of_error(error, call, "" if unseen else parameter.name)
    except TooLong:
        return "does not end"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    if isinstance(value, sx.XlaOp) and isinstance(made, sx.XlaOp) and made.builder is not of.builder:
        may_be_legal &= made.builder is value.builder and not call.ops(other_than=parameter.name)
    return "" if may_be_legal else "is taken"


def _complaint_of_error(error: sx.StablexlaError, call: Call, parameter: str) -> str:
    inside = error.operation in (*REGISTRY, "index") and any(map(callable, call.given.arguments.values()))
    if call.operation not in error.operation:
        return "" if inside else f"names the operation {error.operation!r}: {error.summary[:100]}"
    if not call.name:  # a value, which belongs to no operation yet
        return ""
    told = f"{error.summary} {' '.join(error.operands)}"
    if parameter not in told and ALSO_CALLED.get((call.name, parameter), parameter) not in told:
        return f"does not name the parameter: {error.summary[:100]}"
    return "is told at length" if len(str(error)) > 3000 else ""


def try_call(call: Call) -> Iterator[str]:
    """The complaints about one call with each argument exchanged; what was accepted must verify."""
    builder = call.ops()[0].builder if call.ops() else sx.XlaBuilder("none")
    for parameter in call.parameters:
        for wrong in WRONG:
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            found = complaint(call, parameter, wrong, builder.create_token())
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if found:
                yield f"{call.name or call.function}({parameter.name}: {parameter.annotation} = {wrong.name}) {found}"
    try:
        builder.build(builder.create_token())
    except sx.ShapeError as error:
        if "is missing" not in error.summary:  # a parameter's number may be any
            raise
    except sx.VerificationError as error:
        yield f"{call.name} takes what does not verify: {error.summary[:300]}"


def limit() -> None:
    """Bounds the memory of this process, and the time of a call."""

    def end(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGVTALRM, end)
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))


def main() -> int:
    found = functions()
    calls = {name: calls_in_example(name, *where) for name, where in found.items()}
    calls["values"] = calls_of_values()
    complaints = [f"{name} is not called by its example" for name, made in calls.items() if not made]
    limit()
    count = 0
    for name in sys.argv[1:] or calls:
        for call in calls[name]:
            count += len(call.parameters) * len(WRONG)
            complaints += try_call(call)
    print("\n".join(complaints))
    print(f"{count} calls, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
