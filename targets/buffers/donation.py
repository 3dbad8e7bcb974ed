"""Buffer donation: alias a result with the donated parameter whose memory it may overwrite.

An alias is a permission, not a duty: main is right when the caller passes one address for both, and when it passes two.
So a caller who does not donate pays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.context import DONATED
from stablexla.lowering.support.operations import is_tensor, terminator_of
from stablexla.targets.buffers.assignment import BufferAssignment
from stablexla.targets.buffers.buffer import Buffer
from stablexla.targets.codegen.calls import BufferPair


def donated_parameters(main: ir.Operation) -> dict[int, int]:
    """Return the donated parameters of `main`, each with the result that the program wants there; -1 for any."""
    if "arg_attrs" not in main.attributes:
        return {}
    found = {}
    for number, row in enumerate(ir.ArrayAttr(main.attributes["arg_attrs"])):
        for named in ir.DictAttr(row):
            if named.name == DONATED:
                found[number] = int(ir.IntegerAttr(named.attr).value)
    return found


def find_aliases(assignment: BufferAssignment) -> dict[int, int]:
    """Map each result to the donated parameter that it may alias: the one wanted, or else the first that fits."""
    block = assignment.main.regions[0].blocks[0]
    results = list(terminator_of(block).operands)
    donated = donated_parameters(assignment.main)
    operations = assignment.operations() if donated else {}
    pairs: dict[int, int] = {}
    for parameter, wanted in donated.items():
        first = [wanted] if 0 <= wanted < len(results) else []
        for result in [*first, *range(len(results))]:
            if result not in pairs:
                pair = _Pair(assignment, operations, block.arguments[parameter], assignment.result_buffer(result))
                if pair.may_be_one(results[result]):
                    pairs[result] = parameter
                    break
    return pairs


@dataclass(frozen=True)
class _Pair:
    """A parameter of `main` and a result's buffer: they may be one if that is read before this is written."""

    assignment: BufferAssignment
    operations: Mapping[int, ir.Operation]
    parameter: ir.Value
    target: Buffer

    @property
    def lies(self) -> Buffer:
        return self.assignment.buffer_of(self.parameter)

    def may_be_one(self, value: ir.Value) -> bool:
        """Return whether no def of the buffer, in which the value ends, precedes the last use of the parameter."""
        lies, block = self.lies, self.parameter.owner
        if not lies.bytes or lies.bytes != self.target.bytes or lies.role != "parameter":
            return False
        source = self.assignment.buffer_of(value)
        if source is not self.target:  # stored by a copy at the very end
            last = self.assignment.last_use(self.parameter, block)
            return source is lies or last < self.assignment.begin_of(terminator_of(block))
        return self._is_read_first(block)

    def _is_read_first(self, block: ir.Block) -> bool:
        """Return whether a block, when it writes the result, has read the parameter for the last time."""
        last, terminator = self.assignment.last_use(self.parameter, block), terminator_of(block)
        begin = self.assignment.begin_of(block.operations[0].operation)
        end = self.assignment.begin_of(terminator)
        first = min((start for start, _ in self.target.spans if begin <= start <= end), default=end)
        if last < first:
            return True
        op = self.operations[first]
        while op.block != block:
            op = op.parent.operation
        if op == terminator:  # of a branch: what it yields is copied where the conditional's results are
            copies = [copy for copy in self.assignment.copies[op] if copy.target.find() is self.target]
            return all(copy.source.find() is self.lies for copy in copies)
        if op.name == "scf.if" and last <= self.assignment.end_of(op):
            return all(self._is_read_first(each) for region in op.regions for each in region.blocks)
        return last == self.assignment.begin_of(op) and self._takes_its_place(op)

    def _takes_its_place(self, op: ir.Operation) -> bool:
        """Return whether the last user of the parameter may write the result in place."""
        assignment, lies, target = self.assignment, self.lies, self.target
        used = [i for i, v in enumerate(op.operands) if is_tensor(v) and assignment.operand_buffer(op, i) is lies]
        if any(c.source.find() is lies and c.target.find() is target for c in assignment.copies.get(op, ())):
            return op.name == "scf.while" or len(used) == 1
        if op.name != "func.call" or len(used) != 1:
            return False
        written = [i for i, v in enumerate(op.results) if is_tensor(v) and assignment.buffer_of(v) is target]
        return [BufferPair(i, used[0]) in assignment.calls[op].in_place for i in written] == [True]
