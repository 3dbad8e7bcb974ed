"""Calls every public operation with every kind of wrong value for every parameter, and prints what is answered badly.

The calls to start from are those in the operations' own examples. What may come of a call is a `StablexlaError` that
names the operation and the parameter, or a result that verifies, where the value may be legal for the annotation of the
parameter. Run as a program, in a process whose memory and time are limited: `python -m tests.ops.wrong_arguments`.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import inspect
import io
import random
import resource
import signal
import sys
import types
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import stablexla as sx
from stablexla.builder.registry import REGISTRY
from stablexla.dialects.builds.stablehlo_version import has_stablehlo
from stablexla.dialects.system import mapped_bytes
from tests.ops.wrong_values import WRONG, Wrong

MEMORY = 1 << 30
"""Bytes of memory that the calls may take beyond what the process has when it begins."""
SECONDS = 10
"""Processor time that one call may take."""


ALSO_CALLED = {
    ("conditional", "pred"): "branch_index",
    ("conditional", "true_operand"): "branch_computations",
    ("conditional", "true_computation"): "branch_operands",
    ("map", "static_operands"): "computation",
}
"""Parameters that have another name in another form of the operation, or decide what another one must take."""


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

    def ops(self, other_than: Container[str] = ()) -> list[sx.XlaOp]:
        """The ops that are given for other parameters than these, and one of a builder whose method is called."""
        given = self.given.arguments.items()
        return [op for name, value in given if name not in other_than for op in _ops(value)]

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Its parameters."""
        return [each for each in self.given.signature.parameters.values() if each.name != "self"]

    def with_arguments(self, values: Mapping[str, object]) -> Any:
        """What the call gives with other values for some parameters."""
        parameters = self.given.signature.parameters
        several = inspect.Parameter.VAR_POSITIONAL
        given = {name: (value,) if parameters[name].kind is several else value for name, value in values.items()}
        changed = {**self.given.arguments, **given}
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
    found: dict[str, tuple[object, str]] = {
        name: (sx, name) for name in sx.__all__ if name in REGISTRY and has_stablehlo(REGISTRY[name].since or "0.9")
    }
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
        with contextlib.redirect_stdout(io.StringIO()):
            for example in doctest.DocTestParser().get_examples(function.__doc__ or ""):
                exec(compile(example.source, f"<example of {name}>", "exec"), namespace)
    finally:
        setattr(where, attribute, function)
    return recorded


def complaint(call: Call, wrongs: Mapping[str, Wrong], of: sx.XlaOp) -> str:
    """What is wrong with the answer to one call with these values, or ""."""
    values = {name: wrong.make(of) for name, wrong in wrongs.items()}
    annotations = {each.name: str(each.annotation) for each in call.parameters}
    may_be_legal = all(wrong.may_be_legal(annotations[name]) for name, wrong in wrongs.items())
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        made = call.with_arguments(values)
    except sx.StablexlaError as error:
        unseen = may_be_legal and any(value is None or isinstance(value, str) for value in values.values())
        return _complaint_of_error(error, call, () if unseen else tuple(values))
    except TooLong:
        return "does not end"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    foreign = {value.builder for value in values.values() if isinstance(value, sx.XlaOp)} - {of.builder}
    if foreign and isinstance(made, sx.XlaOp) and made.builder is not of.builder:
        may_be_legal &= made.builder in foreign and not call.ops(other_than=values)
    return "" if may_be_legal else "is taken"


def _complaint_of_error(error: sx.StablexlaError, call: Call, parameters: Sequence[str]) -> str:
    """An error names the operation and, of several values that are wrong, a parameter."""
    inside = error.operation in (*REGISTRY, "index") and any(map(callable, call.given.arguments.values()))
    if call.operation not in error.operation:
        return "" if inside else f"names the operation {error.operation!r}: {error.summary[:100]}"
    if not call.name:  # a value, which belongs to no operation yet
        return ""
    told = f"{error.summary} {' '.join(error.operands)}"
    names = [*parameters, *(ALSO_CALLED.get((call.name, name), name) for name in parameters)]
    if names and not any(name in told for name in names):
        return f"does not name the parameter: {error.summary[:100]}"
    return "is told at length" if len(str(error)) > 3000 else ""


def draws(call: Call, count: int) -> Iterator[dict[str, Wrong]]:
    """Each parameter with each kind of value, then `count` times several parameters with values drawn at random."""
    names = [parameter.name for parameter in call.parameters]
    yield from ({name: wrong} for name in names for wrong in WRONG)
    draw = random.Random(call.name)
    for _ in range(count if len(names) > 1 else 0):
        chosen = draw.sample(names, draw.randint(2, len(names)))
        yield {name: draw.choice(WRONG) for name in chosen}


def try_call(call: Call, count: int) -> Iterator[str]:
    """The complaint, or "", about each call with other arguments; what was accepted must verify."""
    builder = call.ops()[0].builder if call.ops() else sx.XlaBuilder("none")
    for wrongs in draws(call, count):
        found = complaint(call, wrongs, builder.create_token())
        told = ", ".join(f"{name} = {wrong.name}" for name, wrong in wrongs.items())
        yield f"{call.name or call.function}({told}) {found}" if found else ""
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
    if (used := mapped_bytes()) is not None:
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="operations; all, and the values that they take, without any")
    parser.add_argument("--draws", type=int, default=20, help="calls with several wrong values, for each call")
    options = parser.parse_args()
    found = functions()
    calls = {name: calls_in_example(name, *where) for name, where in found.items()}
    calls["values"] = calls_of_values()
    limit()
    answers = [f"{name} is not called by its example" for name, made in calls.items() if not made]
    answers += [
        each for name in options.names or calls for call in calls[name] for each in try_call(call, options.draws)
    ]
    complaints = [answer for answer in answers if answer]
    print("\n".join(complaints))
    print(f"{len(answers)} calls, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
