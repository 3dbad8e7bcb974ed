"""A StableHLO program as a list of the operations of `main`, with calls inlined.

Derived programs return other values, begin later, or hold single operations on given operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.places import Place, place_of, within_call
from stablexla.dialects.symbols import functions_of
from stablexla.lowering.support.types import TensorType, is_token, tensor_type
from stablexla.targets.pipeline.driver import copy_of
from stablexla.targets.signature.signature import main_of
from stablexla.targets.stablehlo.inlining import (
    bound_calls,
    clone,
    decompose_composites,
    inline_call,
    inline_calls,
    operations_of,
)

# Operations whose results say nothing about an implementation, or which are no computation.
SOURCES = ("stablehlo.constant",)
CONTROL = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
# Operations whose results differ between implementations by design.
UNREPEATABLE = {
    "stablehlo.rng": "its numbers are drawn anew each time",
    "stablehlo.infeed": "reads what the caller put in",
    "stablehlo.recv": "reads what the caller sent",
    "stablehlo.custom_call": "what it does is said by its target",
    "stablehlo.replica_id": "depends on the device",
    "stablehlo.partition_id": "depends on the device",
}
MOST_CONSTANT_ELEMENTS = 64
"""Of a constant that stays one in programs of single operations."""
_OPERATION = re.compile(r"(?:stablehlo|chlo|func)\.(\w+)")


class ProgramOperation:
    """An operation of the program with its regions."""

    def __init__(self, number: int, op: Any) -> None:
        self.number = number
        self.op = op
        self.results: list[Any] = [r for r in op.results if not is_token(r.type)]

    @property
    def name(self) -> str:
        """The operation's name with its dialect, of a composite the composite's."""
        if self.op.name == "stablehlo.composite":
            return str(ir.StringAttr(self.op.attributes["name"]).value)
        return str(self.op.name)

    @property
    def operation(self) -> str:
        """The name without the dialect."""
        return self.name.rsplit(".", 1)[-1]

    @cached_property
    def text(self) -> str:
        """MLIR's text of it, large constants left out."""
        return str(self.op.get_asm(large_elements_limit=16, enable_debug_info=False))

    @cached_property
    def operations(self) -> frozenset[str]:
        """Names of all operations in it, without their dialects."""
        return frozenset(_OPERATION.findall(self.text))

    @cached_property
    def place(self) -> Place:
        """Where it comes from."""
        return place_of(self.op.location)

    @cached_property
    def reads(self) -> list[Any]:
        """Its operands, then the captured values of its regions, each once."""
        return list(dict.fromkeys(_captured(self.op)))

    @property
    def is_judged(self) -> bool:
        """Whether it has results that can be compared."""
        return bool(self.results) and not self.why_not

    @property
    def why_not(self) -> str:
        """Why its results are not compared; empty when they are."""
        if self.op.name in UNREPEATABLE:
            return UNREPEATABLE[self.op.name]
        if any(is_token(v.type) for v in (*self.op.operands, *self.op.results)):
            return "takes or gives a token"
        if self.op.name == "stablehlo.rng_bit_generator" and "DEFAULT" in self.text:
            return "its algorithm is the implementation's own"
        if {"infeed", "rng", "custom_call", "recv"} & self.operations and self.op.name in CONTROL:
            return "holds an operation that cannot be repeated"
        return ""

    def __repr__(self) -> str:
        return f"Unit({self.number}, {self.name})"


class FlatProgram:
    """The operations of a module's `main`, in order.

    Attributes:
        module: the module, which is this object's own.
        units: the operations.
        arguments: the parameters that are arrays.
        returns: the values that are returned, tokens left out.
    """

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        block = main_of(module).regions[0].blocks[0]
        *operations, terminator = (view.operation for view in block.operations)
        self.block = block
        self.units = [ProgramOperation(i, op) for i, op in enumerate(operations)]
        self.arguments: list[Any] = [a for a in block.arguments if not is_token(a.type)]
        self.returns: list[Any] = [v for v in terminator.operands if not is_token(v.type)]
        self.unit_of: dict[Any, ProgramOperation] = {r: u for u in self.units for r in u.op.results}

    @staticmethod
    def of(source: ir.Module) -> FlatProgram:
        """Return the program with calls inlined, and composites too unless they have a kernel."""
        module = copy_of(source, here=True)
        decompose_composites(module)
        bound_calls(module)
        _remember_calls(module)
        inline_calls(module)
        return FlatProgram(module)

    @staticmethod
    def of_region(region: Any, outside: Sequence[Any], source: FlatProgram) -> FlatProgram:
        """Return a region's block as a program; captured values become further parameters."""
        block = region.blocks[0]
        with source.module.context, ir.Location.unknown():
            maker = _ModuleBuilder(source.module)
            taken = [*block.arguments, *outside]
            maker.begin([v.type for v in taken], [_location_of(v) for v in taken])
            mapping = dict(zip(taken, maker.arguments, strict=True))
            *operations, terminator = (view.operation for view in block.operations)
            for op in operations:
                maker.add(op, mapping)
            made = maker.end([mapping[v] for v in terminator.operands])
        return FlatProgram(made)

    def type_of(self, value: Any) -> TensorType:
        """Return a value's type."""
        return tensor_type(value.type)

    def bytes_of(self, value: Any) -> int:
        """Return the bytes of a value as a numpy array."""
        type_ = self.type_of(value)
        return type_.size * type_.element.bytes

    def is_constant(self, value: Any) -> bool:
        """Return whether a constant makes the value."""
        unit = self.unit_of.get(value)
        return unit is not None and unit.op.name in SOURCES

    # ---- programs made of it ---------------------------------------------------------------------------------------

    def returning(self, values: Sequence[Any], *, given: Sequence[Any] | None = None) -> ir.Module:
        """Return the program with other results; operations without users are dropped, effects before them stay.

        Args:
            values: of this program, none of them a token.
            given: values that are parameters in the place of the program's own; what makes them is left out.
        """
        last = max((self.unit_of[v].number for v in values if v in self.unit_of), default=-1)
        known = set(given or ())
        kept = self._needed(values, last, known, effects=given is None)
        taken = list(self.block.arguments) if given is None else list(given)
        with self.module.context, ir.Location.unknown():
            maker = _ModuleBuilder(self.module)
            maker.begin([v.type for v in taken], [_location_of(v) for v in taken])
            mapping = dict(zip(taken, maker.arguments, strict=True))
            for unit in kept:
                before = {r: mapping[r] for r in unit.op.results if r in known}
                maker.add(unit.op, mapping)
                mapping.update(before)
            return maker.end([mapping[v] for v in values])

    def _needed(self, values: Sequence[Any], last: int, known: set[Any], *, effects: bool) -> list[ProgramOperation]:
        wanted = {v for v in values if v not in known}
        kept = []
        for unit in reversed(self.units[: last + 1]):
            if (effects and _has_effect(unit)) or any(r in wanted for r in unit.op.results):
                kept.append(unit)
                wanted |= {v for v in unit.reads if v not in known}
        return kept[::-1]

    def needed(self, values: Sequence[Any], given: Sequence[Any]) -> list[ProgramOperation]:
        """Return the operations of `returning(values, given=...)`."""
        last = max((self.unit_of[v].number for v in values if v in self.unit_of), default=-1)
        return self._needed(values, last, set(given), effects=False)

    def used(self, values: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """Return which `given` values and parameters `returning(values, given=...)` reads."""
        kept = self.needed(values, [*given, *self.arguments])
        read = {v for unit in kept for v in unit.reads} | set(values)
        return [v for v in dict.fromkeys([*self.arguments, *given]) if v in read]

    def live_at(self, number: int) -> list[Any]:
        """Return the live values at an operation: those that it, later ones or the caller use."""
        later = {v for unit in self.units[number:] for v in unit.reads} | set(self.returns)
        made = [r for unit in self.units[:number] for r in unit.results if not self.is_small_constant(r)]
        return [v for v in [*self.arguments, *made] if v in later]

    def is_small_constant(self, value: Any, most: float = MOST_CONSTANT_ELEMENTS) -> bool:
        """Return whether a value is a constant of at most so many elements."""
        return self.is_constant(value) and self.type_of(value).size <= most

    def apart(self, units: Sequence[ProgramOperation], *, constants: float = MOST_CONSTANT_ELEMENTS) -> Replay:
        """Return a program in which each operation reads only parameters, and constants of at most so many elements."""
        read = dict.fromkeys(v for unit in units for v in unit.reads)
        taken = [v for v in read if not self.is_small_constant(v, constants)]
        with self.module.context, ir.Location.unknown():
            maker = _ModuleBuilder(self.module)
            maker.begin([v.type for v in taken], [_location_of(v) for v in taken])
            mapping = dict(zip(taken, maker.arguments, strict=True))
            results = []
            for unit in units:
                own = dict(mapping)
                for value in unit.reads:
                    if value not in own:
                        maker.add(self.unit_of[value].op, mapping)
                        own[value] = mapping[value]
                maker.add(unit.op, own)
                results += [own[r] for r in unit.results]
            return Replay(maker.end(results), taken)


@dataclass(frozen=True)
class Replay:
    """A program of single operations, and the values of its parameters."""

    module: ir.Module
    taken: list[Any]


class _ModuleBuilder:
    """A module with one function `main`, filled from another module."""

    def __init__(self, source: ir.Module) -> None:
        self._source = source
        self.module = ir.Module.create(ir.Location.unknown(source.context))
        for name, value in dict(source.operation.attributes.items()).items():
            self.module.operation.attributes[name] = value
        self._functions = functions_of(source)

    def begin(self, types: Sequence[Any], locations: Sequence[Any]) -> None:
        """Create the function with its parameters."""
        with ir.InsertionPoint(self.module.body):
            self._main = ir.Operation.create(
                "func.func",
                attributes={
                    "sym_name": ir.StringAttr.get("main"),
                    "function_type": ir.TypeAttr.get(ir.FunctionType.get(list(types), [])),
                    "sym_visibility": ir.StringAttr.get("public"),
                },
                regions=1,
            )
        self.block = self._main.regions[0].blocks.append(*types, arg_locs=list(locations))
        self.arguments: list[Any] = list(self.block.arguments)

    def add(self, op: Any, mapping: dict[Any, Any]) -> None:
        """Copy an operation; the mapping maps its operands, and receives its results."""
        copy_into(self.block, op, mapping)

    def end(self, results: Sequence[Any]) -> ir.Module:
        """Return the values from `main`; the module is complete."""
        with ir.InsertionPoint(self.block):
            ir.Operation.create("func.return", operands=list(results))
        types = [a.type for a in self.arguments]
        self._main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [v.type for v in results]))
        self._add_functions()
        return self.module

    def _add_functions(self) -> None:
        """Add the decompositions of composites."""
        there = {"main"}
        waiting = [self._main]
        while waiting:
            for inner in _walk(waiting.pop()):
                for key in ("decomposition", "callee"):
                    if key in inner.attributes and inner.name in ("stablehlo.composite", "func.call"):
                        name = str(ir.FlatSymbolRefAttr(inner.attributes[key]).value)
                        if name not in there:
                            there.add(name)
                            copy = self._functions[name].clone()
                            self.module.body.append(copy)
                            waiting.append(copy.operation)


def make_module(source: ir.Module, types: Sequence[Any], fill: Callable[[list[Any]], list[Any]]) -> ir.Module:
    """Return a module whose `main` is filled by a function from its parameters to its results.

    It is called inside the context, an insertion point and a location.
    """
    with source.context, ir.Location.unknown():
        maker = _ModuleBuilder(source)
        maker.begin(types, [ir.Location.unknown()] * len(types))
        with ir.InsertionPoint(maker.block):
            results = fill(maker.arguments)
        return maker.end(results)


def alone(source: ir.Module, op: Any) -> ir.Module:
    """Return a module whose `main` is one operation of another module, on parameters."""
    taken = list(dict.fromkeys(_captured(op)))
    with source.context, ir.Location.unknown():
        maker = _ModuleBuilder(source)
        maker.begin([v.type for v in taken], [ir.Location.unknown()] * len(taken))
        mapping = dict(zip(taken, maker.arguments, strict=True))
        maker.add(op, mapping)
        return maker.end([mapping[r] for r in op.results if not is_token(r.type)])


def copy_into(block: Any, op: Any, mapping: dict[Any, Any]) -> None:
    """Copy an operation to a block's end; the mapping maps its operands, and receives its results."""
    with ir.InsertionPoint(block):
        clone(op, mapping)


def _walk(op: Any) -> list[Any]:
    found: list[Any] = []

    def note(inner: Any) -> ir.WalkResult:
        found.append(inner.operation)
        return ir.WalkResult.ADVANCE

    op.operation.walk(note, ir.WalkOrder.PRE_ORDER)
    return found


def _captured(op: Any) -> Iterator[Any]:
    """Return the operands, then the captured values of the operation's regions."""
    yield from op.operands
    if not len(op.regions):
        return
    inside = _walk(op)
    known = set(inside)
    for inner in inside[1:]:
        for value in inner.operands:
            owner = value.owner
            holder = owner.owner.operation if isinstance(owner, ir.Block) else owner.operation
            if holder not in known:
                yield value


def _has_effect(unit: ProgramOperation) -> bool:
    names = unit.operations & {"infeed", "outfeed", "send", "recv", "custom_call", "rng"}
    return bool(names) or any(is_token(r.type) for r in unit.op.results)


def _location_of(value: Any) -> Any:
    """Return a parameter's location, which holds its name; other values become parameters without one."""
    return value.location if isinstance(value.owner, ir.Block) else ir.Location.unknown(value.context)


def _remember_calls(module: ir.Module) -> None:
    """Inline the calls in `main`, level by level, and keep them in the locations.

    The rest, such as recursive calls, is left to the pass on calls.
    """
    functions = functions_of(module)
    for _ in range(MOST_LEVELS):
        calls = operations_of(main_of(module), "func.call")
        if not calls:
            return
        for call in calls:
            function = functions.get(str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value))
            if function is None or len(function.regions[0].blocks) != 1:
                raise UnsupportedError("a call of a function without a body", operation="func.call")
            inline_call(call, function, partial(_seen_from, call.location))


def _seen_from(call: Any, inner: Any) -> Any:
    return within_call(inner, call)


MOST_LEVELS = 64
