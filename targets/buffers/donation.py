"""Buffer donation: alias a result with the donated parameter whose memory it may overwrite.

An alias is a permission, not a duty: main is right when the caller passes one address for both, and when it passes two.
So a caller who does not donate pays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlir.ir as ir

from stablexla.lowering.support.donation import DONATED
from stablexla.lowering.support.operations import is_tensor, terminator_of
from stablexla.targets.codegen.calls import BufferPair

if TYPE_CHECKING:
    from stablexla.targets.buffers.assignment import Buffer, BufferAssignment


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
    pairs: dict[int, int] = {}
    for parameter, wanted in donated_parameters(assignment.main).items():
        first = [wanted] if 0 <= wanted < len(results) else []
        for result in [*first, *range(len(results))]:
            if result not in pairs and _may_overwrite(assignment, block.arguments[parameter], results[result], result):
                pairs[result] = parameter
                break
    return pairs


def _may_overwrite(assignment: BufferAssignment, parameter: ir.Value, value: ir.Value, result: int) -> bool:
    """Return whether no def of the result's buffer precedes the last use of the parameter."""
    lies = assignment.buffer_of(parameter)
    target = assignment.result_buffer(result)
    if not lies.bytes or lies.bytes != target.bytes or lies.role != "parameter":
        return False
    block = parameter.owner
    terminator = terminator_of(block)
    last = assignment.last_use(parameter)
    if assignment.buffer_of(value) is not target:  # stored by a copy at the very end
        source = assignment.buffer_of(value)
        return source is lies or last < assignment.begin_of(terminator)
    if target.first != last:
        return target.first > last
    op = next(v.operation for v in block.operations if assignment.begin_of(v.operation) == last)
    return _takes_its_place(assignment, op, lies, target)


def _takes_its_place(assignment: BufferAssignment, op: ir.Operation, lies: Buffer, target: Buffer) -> bool:
    """Return whether the last user of the parameter may write the result in place."""
    used = [i for i, v in enumerate(op.operands) if is_tensor(v) and assignment.operand_buffer(op, i) is lies]
    if any(c.source.find() is lies and c.target.find() is target for c in assignment.copies.get(op, ())):
        return op.name == "scf.while" or len(used) == 1
    if op.name != "func.call" or len(used) != 1:
        return False
    written = [i for i, v in enumerate(op.results) if is_tensor(v) and assignment.buffer_of(v) is target]
    return [BufferPair(i, used[0]) in assignment.calls[op].in_place for i in written] == [True]
