"""Pass that makes one private function of equal stretches of a program, so that they are lowered and grouped once.

`stablexla-inline-repeats` puts their kernels' calls in the place of each call, before buffers are assigned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir
from jaxlib.mlir.dialects import func as hlo_func

from stablexla.dialects import hlo
from stablexla.dialects.erasing import erase
from stablexla.dialects.symbols import functions_of
from stablexla.lowering.support.operations import defining
from stablexla.lowering.support.repeats import PART, place_name
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.inlining import all_operations
from stablexla.targets.stablehlo.nesting import check_lowered_nesting
from stablexla.targets.stablehlo.repeats.dataflow import CONSTANT, Dataflow, Node, Structures, captured
from stablexla.targets.stablehlo.repeats.search import Repeat, find_repeats

STEM = "part"
WITH_BLOCKS = frozenset(["stablehlo.case", "stablehlo.if", "stablehlo.while"])


@module_pass(
    "stablexla-find-repeats",
    "makes one function of equal stretches of the program, such as the layers of a model",
    side="stablehlo",
)
def find_and_share(module: hlo_ir.Module) -> None:
    """Replace equal stretches of `main`, and of its loops' bodies, by calls of a function."""
    functions = functions_of(module)
    if "main" not in functions:
        return
    check_lowered_nesting(functions["main"])
    structures = Structures(functions)
    names = _names(functions)
    for block in list(_blocks(functions["main"])):
        flow = Dataflow(block, structures)
        # All are read before the first is written, which erases what others read.
        now: dict[Any, Any] = {}
        found = [_Sharing(module, flow, repeat, now) for repeat in find_repeats(flow)]
        for sharing in found:
            with module.context, hlo_ir.Location.unknown():
                sharing.write(next(names))
        for value in reversed(flow.made_again if found else {}):
            if next(iter(value.uses), None) is None:
                erase(value.owner)


def _names(functions: dict[str, Any]) -> Iterator[str]:
    number = 0
    while True:
        if f"{STEM}_{number}" not in functions:
            yield f"{STEM}_{number}"
        number += 1


def _blocks(op: Any) -> Iterator[Any]:
    """Yield the blocks of a function, and of control flow in it; inner ones first."""
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                if view.operation.name in WITH_BLOCKS:
                    yield from _blocks(view.operation)
            yield block


class _Sharing:
    """Makes a function of the first of a block's equal stretches and calls it in the place of each.

    `now` maps results of the block's stretches that are calls by now to those of the calls.
    """

    def __init__(self, module: hlo_ir.Module, flow: Dataflow, repeat: Repeat, now: dict[Any, Any]) -> None:
        self._module, self._flow, self._repeat, self._now = module, flow, repeat, now
        starts = range(repeat.start, repeat.end, repeat.length)
        self._stretches = [flow.nodes[start : start + repeat.length] for start in starts]
        self._together = list(zip(*self._stretches, strict=True))
        # A parameter stands for what the stretches read at the same places.
        self._parameters: dict[tuple[Any, ...], int] = {}
        for nodes in self._together:
            for number, (maker, _) in enumerate(nodes[0].slots):
                read = tuple(node.values[number] for node in nodes)
                if maker < repeat.start and _constant(read) is None:
                    self._parameters.setdefault(read, len(self._parameters))

    def write(self, name: str) -> None:
        """Create the function, call it for each stretch, and erase the operations."""
        self._write_function(name)
        for number, nodes in enumerate(self._stretches):
            self._write_call(name, number, nodes)
        for nodes in reversed(self._stretches):
            for node in reversed(nodes):
                erase(node.op)

    def _write_function(self, name: str) -> None:
        first = self._stretches[0]
        results = [first[offset].op.results[position] for offset, position in self._repeat.results]
        given = [self._now.get(read[0], read[0]).type for read in self._parameters]
        type_ = hlo_ir.FunctionType.get(given, [r.type for r in results])
        with hlo_ir.InsertionPoint.at_block_begin(self._module.body):
            function = hlo_func.FuncOp(name, type_, visibility="private")
        function.attributes[PART] = hlo_ir.UnitAttr.get()
        with hlo_ir.InsertionPoint(function.add_entry_block()):
            copies = _Copies(self._flow)
            for number, nodes in enumerate(self._together):
                copies.add(nodes[0], number, self._given(nodes, function.arguments))
            hlo_func.ReturnOp([copies.values[result] for result in results])

    def _given(self, nodes: Sequence[Node], arguments: Sequence[Any]) -> list[Any]:
        """Return for each value that an operation reads the argument that stands for it; None where none does."""
        reads = (tuple(node.values[number] for node in nodes) for number in range(len(nodes[0].values)))
        numbers = (self._parameters.get(read) for read in reads)
        return [None if number is None else arguments[number] for number in numbers]

    def _write_call(self, name: str, number: int, nodes: Sequence[Node]) -> None:
        results = [nodes[offset].op.results[position] for offset, position in self._repeat.results]
        places = [place for i, node in enumerate(nodes) for place in _places(i, node.op)]
        operands = [self._now.get(read[number], read[number]) for read in self._parameters]
        with hlo_ir.Location.fused(places), hlo_ir.InsertionPoint(nodes[-1].op):
            call = hlo.operation(
                "func.call", operands, [r.type for r in results], {"callee": hlo_ir.FlatSymbolRefAttr.get(name)}
            )
        for old, new in zip(results, call.results, strict=True):
            old.replace_all_uses_with(new)
        self._now.update(zip(results, call.results, strict=True))


def _constant(read: Sequence[Any]) -> Any:
    """Return the constant that all stretches read at one place, if it is one."""
    maker = defining(read[0])
    same = maker is not None and maker.name == CONSTANT and all(value == read[0] for value in read)
    return maker if same else None


class _Copies:
    """Copies of a stretch's operations at the insertion point, with what is made again before its first reader."""

    def __init__(self, flow: Dataflow) -> None:
        self.values: dict[Any, Any] = {}
        self._flow = flow
        # By the value, and by what stands for the numbers of which it is made.
        self._again: dict[tuple[Any, ...], Any] = {}

    def add(self, node: Node, number: int, given: Sequence[Any]) -> None:
        """Copy an operation.

        Args:
            number: its place in the stretch.
            given: for each of its values, what stands for it in place of a copy.
        """
        outside = iter(given)
        count = len(node.values) - node.numbers
        # A constant from outside the block has no argument: it is made again.
        read = zip(node.values[count:], given[count:], strict=True)
        numbers = {number: argument for number, argument in read if argument is not None}
        operands = [self._stand_in(value, outside, numbers) for value in node.op.operands]
        inside = captured(node.op) if len(node.op.regions) else []
        inner = {value: self._stand_in(value, outside, numbers) for value in inside}
        copy = node.op.clone().operation
        for op, place in zip(_nested(copy), _places(number, node.op), strict=True):
            op.location = place
        _set_operands(copy, operands)
        for op in all_operations(copy)[:-1] if inner else ():
            _set_operands(op, [inner.get(value, value) for value in op.operands])
        self.values.update(zip(node.op.results, copy.results, strict=True))

    def _stand_in(self, value: Any, outside: Iterator[Any], numbers: Mapping[Any, Any]) -> Any:
        if value in self._flow.made_again:
            return self._made_again(value, numbers)
        given = next(outside)
        if given is not None:
            return given
        return self.values[value] if value in self.values else self._made_again(value, numbers)

    def _made_again(self, value: Any, numbers: Mapping[Any, Any]) -> Any:
        """Copy what makes a value, with what that reads, unless that was done before."""
        if value in numbers:
            return numbers[value]
        key = (value, *(numbers.get(number) for number in self._flow.numbers.get(value, ())))
        if key not in self._again:
            operands = [self._made_again(operand, numbers) for operand in value.owner.operands]
            copy = value.owner.clone().operation
            _set_operands(copy, operands)
            self._again[key] = copy.results[0]
        return self._again[key]


def _nested(op: Any) -> list[Any]:
    """Return an operation, and those nested in it."""
    return all_operations(op)[::-1] if len(op.regions) else [op]


def _places(number: int, op: Any) -> list[Any]:
    """Return the locations of an operation of a stretch, and of those nested in it, each with a name of its own."""
    return [hlo_ir.Location.name(place_name(number, n), inner.location) for n, inner in enumerate(_nested(op))]


def _set_operands(op: Any, operands: Sequence[Any]) -> None:
    for number, value in enumerate(operands):
        op.operands[number] = value
