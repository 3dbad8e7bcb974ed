"""Instrument a program with time marks before and after each kernel call, for profiles and traces.

Runs last, on LLVM's dialect: the timed code is the code that runs without it.
"""

from __future__ import annotations

import re

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.source_files import frames_in, short_name
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.math.functions import PREFIX
from stablexla.lowering.support.operations import defining, walk
from stablexla.targets.llvm.check_stops import is_check, last_part
from stablexla.targets.llvm.parallel_calls import LAUNCH, TASK
from stablexla.targets.pipeline.passes import module_pass

MARK, TIMED = "stablexla_mark", "stablexla.timed"
_OF_KERNEL = re.compile(r"(.+?_\d+)_impl(?:_(.+))?")


@dataclass(frozen=True)
class TimedCall:
    """An instrumented call: 2 * its number is passed to the mark before it, 2 * its number + 1 to the one after it.

    Attributes:
        function: the callee, as a kernel's function on buffers.
        is_share: whether it is one thread's share of a call that several threads work on.
        operation: the name that the program's origin gave to what it computes last, as `jit(f)/tanh`; or "".
        line: the user's file and line of that; or "".
    """

    function: str
    is_share: bool
    operation: str = ""
    line: str = ""

    @property
    def kernel_and_phase(self) -> tuple[str, str]:
        """The kernel of the function on buffers, or another function's own name; and what tells its phases apart.

        >>> names = "row_0_impl_parts", "row_0_impl", "stablexla_collective"
        >>> [TimedCall(name, False).kernel_and_phase for name in names]
        [('row_0', 'parts'), ('row_0', ''), ('stablexla_collective', '')]
        """
        found = _OF_KERNEL.fullmatch(self.function)
        return (found[1], found[2] or "") if found else (self.function, "")


@module_pass("stablexla-time-calls", "puts a mark of the time before and after each call in main, and in each thread")
def time_calls(module: ir.Module, *, first: int = 0) -> None:
    """Instrument the calls, listed in an attribute of the module in the order of their numbers.

    Args:
        first: added to all marks; an even number.
    """
    timed: list[TimedCall] = []
    with module.context, ir.Location.unknown():
        for view in list(module.body.operations):
            function = view.operation
            if function.name == "llvm.func" and function.regions[0].blocks:
                name = symbol_of(function)
                if name == "main" or name.endswith(TASK):
                    _time_calls_in(function, name.endswith(TASK), timed, first)
        if timed:
            with ir.InsertionPoint.at_block_begin(module.body):
                declared = ir.Module.parse(f"llvm.func @{MARK}(i64)")
                for view in declared.body.operations:
                    view.operation.clone()
        rows = [("share" if t.is_share else "call", t.function, t.operation, t.line) for t in timed]
        module.operation.attributes[TIMED] = ir.ArrayAttr.get(
            [ir.ArrayAttr.get([ir.StringAttr.get(word) for word in row]) for row in rows]
        )


def take_timed(module: ir.Module) -> list[TimedCall]:
    """Return the list of instrumented calls; it is removed from the module."""
    rows = [[ir.StringAttr(word).value for word in row] for row in ir.ArrayAttr(module.operation.attributes[TIMED])]
    del module.operation.attributes[TIMED]
    return [TimedCall(function, kind == "share", operation, line) for kind, function, operation, line in rows]


def _time_calls_in(function: ir.Operation, is_task: bool, timed: list[TimedCall], first: int) -> None:
    for op in walk(function):
        if op.name == "llvm.call" and "callee" in op.attributes and not (is_check(op) or _is_elementary(op)):
            number = first + 2 * len(timed)
            timed.append(TimedCall(_called(op), is_task, *_origin(op.location)))
            with ir.InsertionPoint(op):
                _mark(number)
            following = _after(op)
            with ir.InsertionPoint(following):
                _mark(number + 1)


def _origin(location: ir.Location) -> tuple[str, str]:
    """Return the name and the line of what a call computes last; "" for what the location lacks."""
    last = last_part(location)
    frames = [frame for frame in frames_in(str(last)) if frame.file != "-"]  # the module's own text
    line = f"{short_name(frames[-1].file)}:{frames[-1].line}" if frames else ""
    return last.name_str if last.is_a_name() else "", line


def _is_elementary(op: ir.Operation) -> bool:
    """Return whether a call is of an elementary function, which is part of what calls it."""
    return str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value).startswith(PREFIX)


def _called(op: ir.Operation) -> str:
    """Return the function that does the work: for a parallel call the one that its tasks call."""
    name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
    if name.startswith(LAUNCH):
        task = defining(op.operands[0])
        assert task is not None
        return str(ir.FlatSymbolRefAttr(task.attributes["global_name"]).value).removesuffix(TASK)
    return str(name)


def _after(op: ir.Operation) -> ir.Operation:
    operations = [v.operation for v in op.block.operations]
    return operations[operations.index(op) + 1]


def _mark(number: int) -> None:
    i64 = ir.IntegerType.get_signless(64)
    value = ir.Operation.create(
        "llvm.mlir.constant", results=[i64], attributes={"value": ir.IntegerAttr.get(i64, number)}
    ).result
    ir.Operation.create(
        "llvm.call",
        operands=[value],
        attributes={
            "callee": ir.FlatSymbolRefAttr.get(MARK),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        },
    )
