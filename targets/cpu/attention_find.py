"""The pass that finds attention in `main` and moves it into functions of its own, before operations are grouped.

What stands between the two products must be read by nobody else. Masks that are cheap to make, and larger than what
they are made from, are made again inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import mlir.ir as ir
from mlir.dialects import func

from stablexla.lowering.kernels import KIND
from stablexla.lowering.operations import body_of, defining, is_tensor, main_of, within
from stablexla.targets.cpu.attention import fits
from stablexla.targets.cpu.attention_match import reading
from stablexla.targets.cpu.kernel import Kernel
from stablexla.targets.cpu.target import host_target
from stablexla.targets.kernels.classify import Kind, classify, is_generic
from stablexla.targets.kernels.group import blocks_of
from stablexla.targets.kernels.outline import function_of
from stablexla.targets.kernels.prepare import drop_unused
from stablexla.targets.passes import module_pass

# Operations between the products; code size is compile time.
MOST_OPERATIONS = 48
# Of these, at most so many may be made again for each row instead of being read.
MOST_REPEATED = 16


@module_pass("stablexla-find-attention", "moves softmax(q k) v, or any other function of rows between two products")
def find_attention(module: ir.Module) -> None:
    """Makes a kernel of each attention that the CPU's emitter takes."""
    main = main_of(module)
    number = 0
    for block in list(blocks_of(main)):
        for op in [view.operation for view in block.operations]:
            if is_generic(op) and classify(op) is Kind.CONTRACTION:
                number += _make_kernel(module, main, op, number)
    if number:
        drop_unused(main)


def _make_kernel(module: ir.Module, main: ir.Operation, last: ir.Operation, number: int) -> bool:
    """Makes a kernel that ends with the product `last` and what follows it, if there is an attention."""
    for members in _candidates(last):
        order = {view.operation: n for n, view in enumerate(last.block.operations)}
        members.sort(key=order.__getitem__)

        def new(inputs: Sequence[ir.Type], results: Sequence[ir.Type], kind: str) -> func.FuncOp:
            type_ = ir.FunctionType.get(list(inputs), list(results))
            with ir.InsertionPoint(main):
                made = func.FuncOp(f"attention.{number}", type_, visibility="private")
            made.attributes[KIND] = ir.StringAttr.get(kind)
            return made

        result = members[-1].results[0]
        with last.context, ir.Location.fused([op.location for op in members]):
            function, inputs = function_of("attention", members, [result], new)
            with reading(Kernel(function)) as attention:
                taken = attention is not None and fits(attention, host_target())
            if not taken:
                function.operation.erase()
                continue
            with ir.InsertionPoint(members[-1]):
                call = func.CallOp([result.type], function.name.value, inputs)
            result.replace_all_uses_with(call.results[0])
        return True
    return False


# --- what belongs to it ---------------------------------------------------------------------------------------


def _candidates(last: ir.Operation) -> Iterator[list[ir.Operation]]:
    """Operations that end with `last`: from another product on, through rows that are reduced and exponentials."""
    for weights in list(last.operands)[:2]:
        behind = _behind(weights, last.block)
        for first in [op for op in behind if classify(op) is Kind.CONTRACTION]:
            between = _between(first, [op for op in behind if op is not first])
            if not between or not _looks_like_rows(between) or not _read_only_inside([first, *between], last):
                continue
            repeated = _repeated(between, first)
            if len(between) + len(repeated) <= MOST_OPERATIONS:
                members = [first, *repeated, *between, last]
                followers = _followers(last)
                yield from ([*members, *followers], members) if followers else (members,)


def _behind(value: ir.Value, block: ir.Block) -> list[ir.Operation]:
    """Operations of a block that a value is made by, up to products."""
    found: list[ir.Operation] = []
    waiting = [value]
    while waiting and len(found) <= 2 * MOST_OPERATIONS:
        op = defining(waiting.pop())
        if op is None or op in found or not is_generic(op) or op.block != block:
            continue
        found.append(op)
        if classify(op) in (Kind.MAP, Kind.ROW_REDUCTION, Kind.TRANSPOSE):
            waiting += op.operands
    return found


def _between(first: ir.Operation, behind: list[ir.Operation]) -> list[ir.Operation]:
    """Those operations that depend on the first product."""
    found: list[ir.Operation] = []
    made = {first}
    changed = True
    while changed:
        changed = False
        for op in behind:
            if op not in made and any(defining(v) in made for v in op.operands):
                made.add(op)
                found.append(op)
                changed = True
    return found


def _looks_like_rows(between: list[ir.Operation]) -> bool:
    """Whether rows are reduced and raised to powers. Layers of a network, with sums over the last one, are not."""
    kinds = {classify(op) for op in between}
    if Kind.ROW_REDUCTION not in kinds or not kinds <= {Kind.MAP, Kind.ROW_REDUCTION, Kind.TRANSPOSE}:
        return False
    return any(inner.name == "math.exp" for op in between for inner in body_of(op))


def _read_only_inside(made: list[ir.Operation], last: ir.Operation) -> bool:
    inside = {*made, last}
    return all(within(use.owner.operation, inside) for op in made for v in op.results for use in v.uses)


def _repeated(between: list[ir.Operation], first: ir.Operation) -> list[ir.Operation]:
    """Operations beside the rows that are made again inside: elementwise ones, of smaller arrays or of none."""
    found: list[ir.Operation] = []
    inside = {*between, first}

    def take(op: ir.Operation | None) -> bool:
        if op is None or op in found or op in inside:
            return op is not None and op in found
        if not is_generic(op) or op.block != first.block or classify(op) is not Kind.MAP or len(op.results) != 1:
            return False
        size = _size(op.results[0])
        for value in list(op.operands)[:-1]:
            # What is as large as the result must itself be made inside, or it is the result that is read.
            if is_tensor(value) and not take(defining(value)) and _size(value) * 2 > size:
                return False
        found.append(op)
        return True

    for op in between:
        for value in list(op.operands)[:-1]:
            before = len(found)
            outside = is_tensor(value) and defining(value) not in inside
            if outside and (not take(defining(value)) or len(found) > MOST_REPEATED):
                del found[before:]
    return found


def _size(value: ir.Value) -> int:
    return prod(value.type.shape)


def _followers(last: ir.Operation) -> list[ir.Operation]:
    """Transposes and elementwise operations of one array that follow, one after the other, as the only readers."""
    found: list[ir.Operation] = []
    value = last.results[0]
    while True:
        users = {use.owner.operation for use in value.uses}
        if len(users) != 1:
            return found
        (op,) = users
        arrays = [v for v in list(op.operands)[:-1] if is_tensor(v)]
        if not is_generic(op) or op.block != last.block or classify(op) not in (Kind.MAP, Kind.TRANSPOSE):
            return found
        if len(op.operands) != 2 or arrays != [value] or prod(op.results[0].type.shape) != _size(value):
            return found
        found.append(op)
        value = op.results[0]
