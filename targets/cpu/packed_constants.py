"""Operand packing at compile time: constant weights are packed once, not in every call.

A kernel whose first phase only packs such an operand is called without that phase: its machine code is run here, and
the packed panel replaces the constant. Where that code is made while others are emitted, the panel is filled when the
program is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlir.ir as ir
import numpy as np
from mlir.dialects import arith, func, memref, scf, ub

from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.erasing import erase
from stablexla.dialects.held_arrays import elements_attribute, held_array, holds_arrays, leave_pages
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import callee_of
from stablexla.dialects.tensor_types import TensorType
from stablexla.lowering.support.configs import config_attribute
from stablexla.lowering.support.operations import constant_attribute, is_tensor, main_of, operations_named
from stablexla.lowering.support.storage import constant
from stablexla.targets.buffers.assignment import loop_that_keeps, viewed_array
from stablexla.targets.codegen.calls import PACKED, PackedInput, Packing, Phase, call_of
from stablexla.targets.codegen.kernel import ELSEWHERE
from stablexla.targets.codegen.sizes import bytes_of
from stablexla.targets.llvm.early_code import EarlyCode, borrowed_code, taken_from
from stablexla.targets.llvm.engine import load
from stablexla.targets.llvm.entry import ROLE
from stablexla.targets.llvm.forwarded import FORWARDED, Argument, Forwarded
from stablexla.targets.llvm.to_llvm import LLVM, TO_LLVM
from stablexla.targets.pipeline.driver import run_pipeline
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.pipeline.pipelines import Pipeline, Step
from stablexla.targets.signature.interface import Signature

ALIGNMENT = 64
"""Of packed arrays, in bytes, as of results."""

Inputs = dict[str, frozenset[int]]
"""Numbers of some inputs, of each kernel that `main` calls."""


def constant_and_lasting_inputs(module: ir.Module) -> tuple[Inputs, Inputs]:
    """Return the inputs that are constants in every call, and those that every call takes from outside of its loop.

    The latter, constants among them, are packed once for many calls.
    """
    constants: Inputs = {}
    lasting: Inputs = {}
    for op in _calls(module):
        name, operands = callee_of(op), list(enumerate(op.operands))
        here = frozenset(i for i, value in operands if _constant(value) is not None)
        kept = here
        if op.parent.operation.name == "scf.while":
            kept |= {i for i, value in operands if is_tensor(value) and loop_that_keeps(op, value) is not None}
        constants[name], lasting[name] = constants.get(name, here) & here, lasting.get(name, kept) & kept
    return constants, lasting


@module_pass("stablexla-pack-constants", "packs constants as their kernels want them, so that no call has to")
def pack_constants(module: ir.Module) -> None:
    """Pack constant operands and attach the packed bytes to each call of a kernel of `main`."""
    if not any("stablexla.impl" in view.operation.attributes for view in module.body.operations):
        return
    symbols = ir.SymbolTable(module.operation)
    wanted = []
    needed: set[str] = set()
    works: dict[tuple[str, ir.Attribute], _Work] = {}
    for op in _calls(module):
        call = call_of(op, symbols)
        for packing in call.packs:
            value = _constant(op.operands[packing.input])
            if value is None:
                needed.add(packing.function)
                continue
            phase = next(phase for phase in call.phases if phase.function == packing.function)
            arguments = len(op.operands) + len(op.results)
            work = _Work(phase, packing, value, arguments + packing.scratch, call.scratch[packing.scratch])
            wanted.append((op, packing, works.setdefault((packing.function, value), work)))
    if not wanted:
        return
    made = dict(zip(works, _run(module, symbols, list(works.values())), strict=True))
    with module.context:
        for op, packing, work in wanted:
            packed = PackedInput(packing, made[work.phase.function, work.value])
            before = list(op.attributes[PACKED]) if PACKED in op.attributes else []
            op.attributes[PACKED] = ir.ArrayAttr.get([*before, config_attribute(packed)])
        for name in {work.phase.function for work in works.values()} - needed:
            erase(symbols[name].operation)


def _calls(module: ir.Module) -> list[ir.Operation]:
    return operations_named(main_of(module), "func.call")


def _constant(value: ir.Value) -> ir.Attribute | None:
    """Return the constant behind an array, looking through reshapes, or None."""
    return constant_attribute(viewed_array(value)) if is_tensor(value) else None


# --- running packing phases ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """A packing phase to be run on a constant.

    Attributes:
        place: index of the scratch buffer among the arguments of the phase's function.
        type: of that buffer.
    """

    phase: Phase
    packing: Packing
    value: Any
    place: int
    type: Any


def _run(module: ir.Module, symbols: ir.SymbolTable, works: Sequence[_Work]) -> list[ir.Attribute]:
    """Return the packed operands as bytes, which are packed here or when the program is loaded."""
    early = taken_from(module)
    later = [early is not None and _is_filled_later(work, symbols) for work in works]
    now = iter(_packed_now(module, symbols, [w for w, is_later in zip(works, later, strict=True) if not is_later]))
    return [
        _filled_later(early, work, symbols) if early is not None and is_later else next(now)
        for work, is_later in zip(works, later, strict=True)
    ]


def _is_filled_later(work: _Work, symbols: ir.SymbolTable) -> bool:
    """Whether the code is elsewhere, and nobody reads the bytes before the program does."""
    attributes = symbols[work.phase.function].operation.attributes
    scalars = [type_ for type_ in _inputs(work.phase.function, symbols)[:-2] if not isinstance(type_, ir.MemRefType)]
    is_elsewhere = ELSEWHERE in attributes or FORWARDED in attributes
    return is_elsewhere and not scalars and holds_arrays(bytes_of(work.type))


def _filled_later(early: EarlyCode, work: _Work, symbols: ir.SymbolTable) -> ir.Attribute:
    """Hold zeros that the phase packs the constant into as soon as its code is loaded."""
    phase, size = work.phase, bytes_of(work.type)
    function = symbols[phase.function].operation
    count = len(_inputs(phase.function, symbols)) - 2
    if FORWARDED in function.attributes:
        called = Forwarded.noted(function)
    else:
        called = Forwarded(phase.function, [Argument(number) for number in range(count)])
    # Bytes that a phase leaves unwritten are the executable's, too, and must not be what was in memory.
    packed = np.zeros(size + ALIGNMENT, np.uint8)
    first = -packed.ctypes.data % ALIGNMENT
    packed = packed[first : first + size]  # vectors of a panel cross no cache lines

    def fill(address: Callable[[str], int]) -> None:
        given = _array(work.value)
        buffers = [0] * count  # the phase uses two only
        buffers[work.packing.input], buffers[work.place] = given.ctypes.data, packed.ctypes.data
        called.call(buffers, phase.items, address)
        leave_pages(given)

    early.when_loaded.append(fill)
    return elements_attribute(packed, _type(size))


def _packed_now(module: ir.Module, symbols: ir.SymbolTable, works: Sequence[_Work]) -> list[ir.Attribute]:
    """Compile the phases and run each on its constants, one at a time."""
    if not works:
        return []
    firsts = {work.phase.function: work for work in reversed(works)}
    phases = list(firsts.values())
    with module.context, ir.Location.unknown():
        program = ir.Module.create()
        with ir.InsertionPoint(program.body):
            for name in _called(set(firsts), symbols):
                symbols[name].operation.clone()
            _write_main(phases, symbols)
    with borrowed_code(program, module) as options, module.context, ir.Location.unknown():
        run_pipeline(program, Pipeline("pack", [Step("llvm", ",".join(TO_LLVM), LLVM)]), is_trusted=True)
        # A function takes arrays for all parameters: of the phases that do not run, their first constants, unread.
        given = [_array(work.value) for work in phases]
        sizes = [bytes_of(work.type) for work in phases]
        parameters = map(_bytes, (len(phases), *(array.size for array in given)))
        function = load(program, Signature("pack", tuple(parameters), tuple(map(_bytes, sizes))), options)

        def packed(work: _Work) -> np.ndarray[Any, Any]:
            place, array = phases.index(firsts[work.phase.function]), _array(work.value)
            runs = np.zeros(len(phases), np.uint8)
            runs[place] = 1
            made = function.execute([runs, *given[:place], array, *given[place + 1 :]])[place]
            leave_pages(array)
            return made

        return [elements_attribute(array, _type(array.size)) for array in map(packed, works)]


def _type(size: int) -> ir.Type:
    return ir.RankedTensorType.get([size], ir.IntegerType.get_signless(8))


def _array(value: ir.Attribute) -> np.ndarray[Any, Any]:
    """Return the bytes of a constant."""
    held = held_array(value)
    return np.ascontiguousarray(np.asarray(value) if held is None else held).reshape(-1).view(np.uint8)


def _bytes(count: int) -> TensorType:
    return TensorType(BY_NAME["u8"], (count,))


def _called(names: set[str], symbols: ir.SymbolTable) -> list[str]:
    """Return functions and their transitive callees."""
    found: list[str] = []
    waiting = sorted(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.append(name)
            inner = operations_named(symbols[name].operation, "func.call")
            waiting += [ir.FlatSymbolRefAttr(op.attributes["callee"]).value for op in inner]
    return found


def _write_main(works: Sequence[_Work], symbols: ir.SymbolTable) -> None:
    """Write a single-threaded `main` that packs a constant for each phase; the bytes before say which phases run."""
    index = ir.IndexType.get()
    byte = ir.IntegerType.get_signless(8)
    roles = [*["parameter"] * (1 + len(works)), *["result"] * len(works), "arena"]
    taken = [_inputs(work.phase.function, symbols) for work in works]
    types = [ir.MemRefType.get([len(works)], byte)]
    types += [inputs[work.packing.input] for inputs, work in zip(taken, works, strict=True)]
    types += [*(work.type for work in works), ir.MemRefType.get([0], byte)]
    main = func.FuncOp("main", ir.FunctionType.get(types, []))
    main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get({ROLE: ir.StringAttr.get(r)}) for r in roles])
    arguments = list(main.add_entry_block().arguments)
    with ir.InsertionPoint(main.entry_block):
        for number, work in enumerate(works):
            phase = work.phase
            runs = memref.load(arguments[0], [arith.ConstantOp(index, number).result])
            branch = scf.IfOp(arith.cmpi(arith.CmpIPredicate.ne, runs, constant(byte, 0)))
            with ir.InsertionPoint(branch.then_block):
                made = arguments[1 + len(works) + number]
                _clear(made)
                operands = [ub.poison(t) for t in taken[number]]  # the phase uses two buffers only
                operands[work.packing.input] = arguments[1 + number]
                operands[work.place] = made
                operands[-2:] = [arith.ConstantOp(index, n).result for n in (0, phase.items)]
                func.CallOp([], phase.function, operands)
                scf.YieldOp([])
        func.ReturnOp([])


def _clear(buffer: ir.Value) -> None:
    """Zero a buffer: bytes that a phase leaves unwritten get into the module, and must not be what was in memory."""
    from mlir.dialects import llvm  # a dialect that a first compilation does without

    i64, byte = ir.IntegerType.get_signless(64), ir.IntegerType.get_signless(8)
    number = arith.index_cast(i64, memref.extract_aligned_pointer_as_index(buffer))
    address = llvm.inttoptr(ir.Type.parse("!llvm.ptr"), number)
    llvm.intr_memset(address, constant(byte, 0), constant(i64, bytes_of(buffer.type)), False)


def _inputs(function: str, symbols: ir.SymbolTable) -> list[ir.Type]:
    return list(ir.TypeAttr(symbols[function].operation.attributes["function_type"]).value.inputs)
