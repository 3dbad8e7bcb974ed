"""The pass that makes calls of kernels a list of numbers, which the runtime carries out.

A `main` of a hundred calls is thousands of operations in LLVM's dialect: a descriptor of each buffer, the parts of
those descriptors, a task for each kernel. Where the code of kernels is made apart, all that is left of their calls is
data, as the thunks of XLA's CPU backend are. `stablexla_run_calls` of `targets/runtime/cpp/core/call_list.h` says what
the numbers are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

import mlir.ir as ir
import numpy as np

from stablexla.dialects.choices import Gate
from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import callee_of, symbol_of
from stablexla.lowering.support.operations import constant_of, defining, float_bits, operations_named
from stablexla.targets.codegen.calls import PARALLEL_GRAIN
from stablexla.targets.codegen.emission import buffer_from_address
from stablexla.targets.codegen.kernel import ELSEWHERE
from stablexla.targets.codegen.runtime_calls import PLACES, RUN_CALLS, call_runtime, number_of
from stablexla.targets.llvm.entry import CONTRACT
from stablexla.targets.llvm.forwarded import FORWARDED, Argument, Forwarded, Function, Table
from stablexla.targets.llvm.list_object import CallList
from stablexla.targets.llvm.split_module import Symbol
from stablexla.targets.pipeline.passes import module_pass

_FUNCTIONS, _CALLS = "stablexla_functions", "stablexla_calls"
MOST_ARGUMENTS = 24
"""Arguments of a kernel, without the range of its items, that the runtime can pass: `kMostArguments` there."""
MOST_FLOATS = 4
"""Floats among them: `kMostFloats`."""
# Arguments that are in registers on all machines whose stack is packed.
_IN_REGISTERS = 8
# What an argument is that is no buffer, as there: an integer, the place of one that main computes, a function's number,
# the lengths of tables, of numbers and of pairs, a float's bits, and the place of those of one that main computes.
_INTEGER, _COMPUTED, _FUNCTION, _NUMBERS, _PAIRS, _FLOAT, _COMPUTED_FLOAT = -1, -2, -3, -4, -5, -6, -7
LEAST_CALLS = Gate("call-list.least-calls", 4, eager=1)
"""With fewer the module is left as it is, as main is short enough then, unless kernels become none by the list."""

_TABLES = """
llvm.func @{run}(!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, !llvm.ptr)
{declared}
llvm.mlir.global internal constant @{functions}() {{addr_space = 0 : i32}} : !llvm.array<{count} x ptr> {{
  %t0 = llvm.mlir.poison : !llvm.array<{count} x ptr>
  {filled}
  llvm.return %t{count} : !llvm.array<{count} x ptr>
}}
llvm.mlir.global internal constant @{calls}(dense<"0x{numbers}"> : tensor<{length}xi64>) {{addr_space = 0 : i32}}
  : !llvm.array<{length} x i64>
"""
_FILLED = """%f{i} = llvm.mlir.addressof @{name} : !llvm.ptr
  %t{next} = llvm.insertvalue %f{i}, %t{i}[{i}] : !llvm.array<{count} x ptr>"""


@module_pass(
    "stablexla-list-calls", "makes calls of kernels whose code is elsewhere a list that the runtime carries out"
)
def list_calls(module: ir.Module) -> None:
    """Put a call of the runtime in the place of each run of such calls in `main`, which then takes one argument.

    That is the array which `CompiledFunction` hands over, for each buffer the address of a cell with its address; the
    calling contract is an attribute of `main` from here on. Numbers that `main` computes are handed over in an array
    of its own. A `main` that is nothing else, in a module without other code, becomes data: see `CallList`. A kernel
    stays a function that is called where one of its calls is in a loop or a branch, takes a half, a narrower float or a
    complex number, or takes more than the runtime passes. What a kernel that is `FORWARDED` calls is called in its
    place, unless other code of the module refers to it, too.
    """
    functions = {symbol_of(view): view.operation for view in module.body.operations}
    main = functions.get("main")
    elsewhere = {name for name, function in functions.items() if ELSEWHERE in function.attributes}
    forwarded = _forwarded(functions)
    if main is None or main.name != "func.func" or not (elsewhere or forwarded):
        return
    if len(main.regions[0].blocks) != 1:
        return
    with module.context, ir.Location.unknown():
        listed = _ListedMain(main, forwarded)
        kernels = listed.read(elsewhere, functions)
        if len(listed.calls) < LEAST_CALLS() and kernels.isdisjoint(forwarded):
            return
        for name in {*kernels, *listed.functions}:
            erase(functions[name])
        listed.write(module)


def _forwarded(functions: dict[str, ir.Operation]) -> dict[str, Forwarded]:
    """Return the kernels that forward their calls to functions without code here."""
    noted = {name: Forwarded.noted(op) for name, op in functions.items() if FORWARDED in op.attributes}
    return {
        name: forwarded
        for name, forwarded in noted.items()
        if not any(_has_code(functions[called]) for called in forwarded.names)
    }


def _has_code(op: ir.Operation) -> bool:
    return len(op.regions) > 0 and len(op.regions[0].blocks) > 0


@dataclass(eq=False)
class _ListedMain:
    """The calls of `main` that are listed, and what they are made to.

    Attributes:
        main: the function.
        forwarded: the kernels in whose place others are called.
        calls: their numbers, by operation.
        functions: what is called, and functions whose addresses are passed, numbered.
        computed: the numbers that main computes for them, numbered.
    """

    main: ir.Operation
    forwarded: dict[str, Forwarded]
    calls: dict[ir.Operation, list[int]] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    computed: dict[ir.Value, int] = field(default_factory=dict)
    _known: dict[ir.Value, tuple[int, int] | None] = field(default_factory=dict)

    def read(self, elsewhere: set[str], functions: dict[str, ir.Operation]) -> set[str]:
        """Find the calls, of kernels that are elsewhere or forwarded; return the kernels.

        Args:
            functions: those of the module.
        """
        for number, argument in enumerate(self.main.regions[0].blocks[0].arguments):
            self._known[argument] = number, 0
        found: dict[str, dict[ir.Operation, list[Any] | None]] = {}
        for call in operations_named(self.main, "func.call"):
            name = callee_of(call)
            if name in elsewhere or name in self.forwarded:
                is_here = call.block == self.main.regions[0].blocks[0]
                found.setdefault(name, {})[call] = self._numbers(call, name) if is_here else None
        kernels = {name for name, calls in found.items() if None not in calls.values()}
        kernels = self._without_shared(kernels, functions)
        for name, calls in found.items():
            for call, numbers in calls.items() if name in kernels else ():
                assert numbers is not None
                self.calls[call] = [self._number(n.name) if isinstance(n, Function) else n for n in numbers]
        if self.computed:  # some of them by calls that are not listed
            given = {value for call in self.calls for value in call.operands}
            self.computed = {value: place for value, place in self.computed.items() if value in given}
        return kernels

    def _without_shared(self, kernels: set[str], functions: dict[str, ir.Operation]) -> set[str]:
        """Leave out kernels whose functions other code of the module refers to: it needs their declarations."""
        while True:
            rest = [op for name, op in functions.items() if name not in kernels and op != self.main and _has_code(op)]
            referenced = set[str]().union(*(Symbol.of(op).names for op in rest))
            left = {n for n in kernels if not (n in self.forwarded and self.forwarded[n].names & referenced)}
            if left == kernels:
                return kernels
            kernels = left

    def _number(self, name: str) -> int:
        return self.functions.setdefault(name, len(self.functions))

    def _numbers(self, call: ir.Operation, name: str) -> list[Any] | None:
        """Return the numbers of a call, functions in the place of theirs; None for a call that cannot be listed."""
        *arguments, low, high = (self._argument(value) for value in call.operands)
        if _is_packed(call):
            return None
        if low != (_INTEGER, 0) or high is None or high[0] != _INTEGER:
            return None
        pairs = [pair for pair in arguments if pair is not None]
        if len(pairs) != len(arguments):
            return None
        called, given = name, [list(pair) for pair in pairs]
        if name in self.forwarded:
            forwarded = self.forwarded[name]
            if forwarded.is_of_one and high[1] != 1:
                return None
            called, given = forwarded.function, [_given(each, pairs) for each in forwarded.arguments]
        floats = sum(each[0] in (_FLOAT, _COMPUTED_FLOAT) for each in given)
        if len(given) > MOST_ARGUMENTS or floats > MOST_FLOATS:
            return None
        marked = PARALLEL_GRAIN in call.attributes
        grain = ir.IntegerAttr(call.attributes[PARALLEL_GRAIN]).value if marked else 0
        return [Function(called), high[1], grain, number_of(name), len(given), *(n for each in given for n in each)]

    def _argument(self, value: ir.Value) -> tuple[int, int] | None:
        """Return the buffer that a value is a part of and its offset, or which kind of integer it is, or None."""
        if value not in self._known:
            self._known[value] = self._read(value)
        return self._known[value]

    def _read(self, value: ir.Value) -> tuple[int, int] | None:
        maker = defining(value)
        if maker is None:
            return None
        is_float = isinstance(value.type, ir.F32Type | ir.F64Type)
        is_bits = isinstance(value.type, ir.BF16Type)  # in LLVM's dialect it is an integer: see bf16_as_bits.py
        match maker.name:
            case "arith.constant" if is_float or is_bits:
                bits = float_bits(maker.attributes["value"])
                return _FLOAT if is_float else _INTEGER, bits - (bits >> 63 << 64)
            case "arith.constant":
                number = constant_of(value)
                return None if number is None else (_INTEGER, number)
            case "ub.poison":  # an argument that the kernel does not read
                return (_INTEGER, 0) if isinstance(value.type, ir.MemRefType) else None
            case "memref.view":
                place, offset = self._argument(maker.operands[0]), constant_of(maker.operands[1])
                return None if place is None or offset is None else (place[0], place[1] + offset)
            case "builtin.unrealized_conversion_cast":  # one of `viewed`
                return self._argument(maker.operands[0]) if len(maker.operands) == 1 else None
            case _ if is_bits or isinstance(value.type, ir.IntegerType | ir.IndexType):
                return _COMPUTED, self.computed.setdefault(value, len(self.computed))
            case _ if is_float:
                return _COMPUTED_FLOAT, self.computed.setdefault(value, len(self.computed))
            case _:
                return None

    def write(self, module: ir.Module) -> None:
        """Replace the calls, and main's arguments; or main, where there is nothing else."""
        if self._is_all(module):
            self._write_data(module)
        else:
            self._write_code(module)

    def _is_all(self, module: ir.Module) -> bool:
        """Whether the calls are all that main does, and it is all that has code."""
        others = (view.operation for view in module.body.operations if view.operation != self.main)
        if self.computed or any(op.name != "func.func" or _has_code(op) for op in others):
            return False
        operations = (view.operation for view in self.main.regions[0].blocks[0].operations)
        return all(op in self.calls or op.name == "func.return" or _is_pure(op) for op in operations)

    def _write_data(self, module: ir.Module) -> None:
        declared = ir.Module.parse("llvm.func @main(!llvm.ptr)")
        with ir.InsertionPoint(self.main):
            made = declared.body.operations[0].operation.clone().operation
        if "arg_attrs" in self.main.attributes:
            made.attributes[CONTRACT] = self.main.attributes["arg_attrs"]
        run = [op for view in self.main.regions[0].blocks[0].operations if (op := view.operation) in self.calls]
        numbers = np.array([number for call in run for number in self.calls[call]], np.int64)
        CallList(list(self.functions), numbers, _places(run)).note(made)
        erase(self.main)

    def _write_code(self, module: ir.Module) -> None:
        block = self.main.regions[0].blocks[0]
        pointer = ir.Type.parse("!llvm.ptr")
        count = len(block.arguments)
        whole = block.add_argument(pointer, ir.Location.unknown())
        with ir.InsertionPoint.at_block_begin(block):
            place = _array_of(1 + max(self.computed.values(), default=-1))
        run: list[ir.Operation] = []
        numbers: list[int] = []
        for view in list(block.operations):
            op = view.operation
            if op in self.calls:
                run.append(op)
            elif run and not _is_pure(op):
                with ir.InsertionPoint(op):
                    numbers += self._run(run, len(numbers), whole, place)
                run = []
        self._add_tables(module, numbers)
        _drop_unused(block)
        with ir.InsertionPoint.at_block_begin(block):
            for number, argument in enumerate(list(block.arguments)[:count]):
                if next(iter(argument.uses), None) is not None:
                    argument.replace_all_uses_with(_loaded(whole, number, argument.type))
        for number in reversed(range(count)):
            block.erase_argument(number)
        attributes = self.main.attributes
        attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([pointer], []))
        if "arg_attrs" in attributes:
            attributes[CONTRACT] = attributes["arg_attrs"]
            del attributes["arg_attrs"]

    def _run(self, run: Sequence[ir.Operation], start: int, whole: ir.Value, place: ir.Value) -> list[int]:
        """Emit the call that carries out others, which are erased; return their numbers.

        Args:
            place: of the numbers that are computed.
        """
        numbers = [number for call in run for number in self.calls[call]]
        i64 = ir.IntegerType.get_signless(64)
        tables = [_create("llvm.mlir.addressof", global_name=ir.FlatSymbolRefAttr.get(n)) for n in (_FUNCTIONS, _CALLS)]
        tables[1] = _element(tables[1], start)
        length = _create("llvm.mlir.constant", i64, value=ir.IntegerAttr.get(i64, len(numbers)))
        for value in dict.fromkeys(value for call in run for value in call.operands if value in self.computed):
            ir.Operation.create("llvm.store", operands=[_wide(value), _element(place, self.computed[value])])
        made = call_runtime(RUN_CALLS, [*tables, length, whole, place])
        made.attributes[PLACES] = _places(run)
        for call in run:
            erase(call)
        return numbers

    def _add_tables(self, module: ir.Module, numbers: Sequence[int]) -> None:
        """Add the globals, and declarations of the functions, by their names alone."""
        count = len(self.functions)
        text = _TABLES.format(
            run=RUN_CALLS,
            declared="\n".join(f"llvm.func @{name}()" for name in self.functions),
            functions=_FUNCTIONS,
            calls=_CALLS,
            count=count,
            filled="\n  ".join(
                _FILLED.format(i=i, next=i + 1, name=name, count=count) for name, i in self.functions.items()
            ),
            numbers=np.array(numbers, np.int64).tobytes().hex(),
            length=len(numbers),
        )
        with ir.InsertionPoint.at_block_begin(module.body):
            for view in ir.Module.parse(text).body.operations:
                view.operation.clone()


def _places(calls: Iterable[ir.Operation]) -> ir.ArrayAttr:
    """Return the kernels, each with the location of its last call, as an error says it."""
    places = {callee_of(call): call.location.attr for call in calls}
    return ir.ArrayAttr.get([ir.ArrayAttr.get([ir.StringAttr.get(name), at]) for name, at in places.items()])


def _given(argument: Any, pairs: Sequence[tuple[int, int]]) -> list[Any]:
    """Return the numbers of an argument of what a kernel forwards to, from the pairs of its own arguments."""
    match argument:
        case Argument():
            return list(pairs[argument.number])
        case Function():
            return [_FUNCTION, argument]
        case Table() if argument.is_constant:
            return [_NUMBERS, len(argument.entries), *argument.entries]
        case Table():
            return [_PAIRS, len(argument.entries), *(n for entry in argument.entries for n in _given(entry, pairs))]
        case _:
            return [_INTEGER, argument]


def _is_packed(call: ir.Operation) -> bool:
    """Return whether an argument on the stack may have less than eight bytes there: so it is on macOS."""
    operands = call.operands
    behind = (operands[number].type for number in range(_IN_REGISTERS, len(operands)))
    return any(isinstance(type_, ir.IntegerType | ir.BF16Type) and type_.width < 64 for type_ in behind)


def _is_pure(op: ir.Operation) -> bool:
    """Return whether an operation neither reads nor writes memory, as far as main has such."""
    return op.name.startswith(("arith.", "complex.", "math.", "ub.")) or op.name in (
        "memref.view",
        "builtin.unrealized_conversion_cast",
    )


def _drop_unused(block: ir.Block) -> None:
    """Erase the views and constants that listed calls alone used."""
    for view in reversed(list(block.operations)):
        if _is_pure(view.operation) and all(next(iter(r.uses), None) is None for r in view.operation.results):
            erase(view.operation)


def _loaded(whole: ir.Value, number: int, type_: ir.MemRefType) -> ir.Value:
    """Emit a buffer of main as a memref: its address is in a cell, whose address `whole` has."""
    return buffer_from_address(_create("llvm.load", None, _create("llvm.load", None, _element(whole, number))), type_)


def _array_of(count: int) -> ir.Value:
    """Emit an array of so many integers on the stack; null for none."""
    if not count:
        return _create("llvm.mlir.zero")
    i64 = ir.IntegerType.get_signless(64)
    length = _create("llvm.mlir.constant", i64, value=ir.IntegerAttr.get(i64, count))
    return _create("llvm.alloca", None, length, elem_type=ir.TypeAttr.get(i64))


def _wide(value: ir.Value) -> ir.Value:
    """Emit a number in 64 bits, of which a kernel reads as many as it has."""
    i64 = ir.IntegerType.get_signless(64)
    if isinstance(value.type, ir.FloatType):
        value = _create("arith.bitcast", ir.IntegerType.get_signless(value.type.width), value)
    if value.type == i64:
        return value
    return _create("arith.index_cast" if isinstance(value.type, ir.IndexType) else "arith.extui", i64, value)


def _element(array: ir.Value, number: int) -> ir.Value:
    """Emit the address of an element of 64 bits."""
    return _create(
        "llvm.getelementptr",
        None,
        array,
        rawConstantIndices=ir.DenseI32ArrayAttr.get([number]),
        elem_type=ir.TypeAttr.get(ir.IntegerType.get_signless(64)),
    )


def _create(name: str, result: ir.Type | None = None, *operands: ir.Value, **attributes: ir.Attribute) -> ir.Value:
    """Create an operation, with a pointer as its result if no type is given."""
    type_ = ir.Type.parse("!llvm.ptr") if result is None else result
    return ir.Operation.create(name, results=[type_], operands=operands, attributes=attributes).result
