"""Matches attention in `main` and outlines it into kernels, before operations are grouped.

The operations between the two products must have no other users. Masks that are cheap, and larger than their operands,
are rematerialized inside the kernel.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from math import prod

import mlir.ir as ir
from mlir.dialects import func

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.kernels import KIND
from stablexla.lowering.support.operations import body_of, defining, is_tensor, program_of, within
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.match.attention import Attention, matched_attention
from stablexla.targets.codegen.match.attention_batches import open_batches
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.drop_unused import drop_unused
from stablexla.targets.grouping.group import blocks_of
from stablexla.targets.grouping.loops import is_generic
from stablexla.targets.grouping.outline import PROVISIONAL, function_of

# Operations between the products; code size is compile time.
MOST_OPERATIONS = 48
# Of these, at most so many may be rematerialized for each row instead of loaded.
MOST_REPEATED = 16
# Kinds of operations that a row function may consist of.
ON_ROWS = (Kind.MAP, Kind.ROW_REDUCTION, Kind.TRANSPOSE)


def outline_attentions(module: ir.Module, takes: Callable[[Attention], bool]) -> None:
    """Outline each attention that `takes` accepts into a kernel."""
    names: dict[str, str] = {}
    for function in program_of(module):
        made: list[tuple[ir.Value, ir.Value]] = []
        for block in list(blocks_of(function)):
            open_batches(block)
            made += _Finder(function, block, names, takes).run()
        for old, new in made:  # all at once: an operation's hash is that of its operands
            old.replace_all_uses_with(new)
        if made:
            drop_unused(function)


class _Finder:
    """Pattern match of attentions in a block, which leaves the block's operations as they are.

    `names` maps the text of each kernel made so far to its name, "" for those that are no attention.
    """

    def __init__(
        self, main: ir.Operation, block: ir.Block, names: dict[str, str], takes: Callable[[Attention], bool]
    ) -> None:
        self._main, self._names, self._takes = main, names, takes
        self._operations = [view.operation for view in block.operations if is_generic(view.operation)]
        self._order = {op: n for n, op in enumerate(self._operations)}
        self._kinds: dict[ir.Operation, Kind] = {}

    def run(self) -> list[tuple[ir.Value, ir.Value]]:
        """Return for each attention found its result, and that of the call inserted beside it."""
        found = []
        for op in self._operations:
            made = self._maker(op.operands[0]) or self._maker(op.operands[1]) if len(op.operands) == 3 else None
            if made is None or self._kind(op) is not Kind.CONTRACTION:
                continue
            for members in self._candidates(op):
                call = self._call(members)
                if call is not None:
                    found.append((members[-1].results[0], call))
                    break
        return found

    def _call(self, members: list[ir.Operation]) -> ir.Value | None:
        """Outline these operations and call the kernel, if they are an attention that the emitter takes."""

        def new(inputs: Sequence[ir.Type], results: Sequence[ir.Type], kind: str) -> func.FuncOp:
            type_ = ir.FunctionType.get(list(inputs), list(results))
            with ir.InsertionPoint(self._main):
                made = func.FuncOp(PROVISIONAL, type_, visibility="private")
            made.attributes[KIND] = ir.StringAttr.get(kind)
            return made

        result = members[-1].results[0]
        with members[-1].context, ir.Location.fused([op.location for op in members]):
            function, inputs = function_of("attention", members, [result], new)
            name = self._name(function)
            if not name:
                return None
            with ir.InsertionPoint(members[-1]):
                made: ir.Value = func.CallOp([result.type], name, inputs).results[0]
        return made

    def _name(self, function: func.FuncOp) -> str:
        """Name a function; "" if it is no attention. Of equal ones only the first is analysed and kept."""
        text = function.operation.get_asm(enable_debug_info=False, use_local_scope=True, assume_verified=True)
        if text not in self._names:
            with matched_attention(Kernel(function)) as attention:
                taken = attention is not None and self._takes(attention)
            self._names[text] = f"attention.{len(self._names)}" if taken else ""
            if taken:
                function.attributes["sym_name"] = ir.StringAttr.get(self._names[text])
                return self._names[text]
        erase(function.operation)
        return self._names[text]

    def _kind(self, op: ir.Operation) -> Kind:
        found = self._kinds.get(op)
        if found is None:
            found = self._kinds[op] = classify(op)
        return found

    def _maker(self, value: ir.Value) -> ir.Operation | None:
        """Return the operation of this block that defines a value."""
        op = defining(value)
        return op if op is not None and op in self._order else None

    def _candidates(self, last: ir.Operation) -> Iterator[list[ir.Operation]]:
        """Yield lists of operations that end with `last`: from another product on, through row operations."""
        for weights in list(last.operands)[:2]:
            rows, products = self._behind(weights, last)
            for first in products:
                between = self._between(first, rows)
                if not self._looks_like_rows(between):
                    continue
                repeated = self._repeated(between, first)
                if len(between) + len(repeated) <= MOST_OPERATIONS:
                    members = self._by_use({first, *repeated, *between}, last)
                    followers = self._followers(last)
                    yield from ([*members, last, *followers], [*members, last])[0 if followers else 1 :]

    def _by_use(self, members: set[ir.Operation], last: ir.Operation) -> list[ir.Operation]:
        """Order members by use-def chains from `last`: the same for equal layers, however they are interleaved."""
        found: list[ir.Operation] = []

        def visit(op: ir.Operation) -> None:
            for value in op.operands:
                maker = self._maker(value)
                if maker is not None and maker in members and maker not in found:
                    visit(maker)
            if op in members:
                found.append(op)

        visit(last)
        return found

    def _behind(self, value: ir.Value, last: ir.Operation) -> tuple[list[ir.Operation], list[ir.Operation]]:
        """Follow use-def chains without other users: the row operations, and the products at their ends."""
        inside, rows, products = {last}, list[ir.Operation](), list[ir.Operation]()
        waiting: list[int] = []

        def add(value: ir.Value) -> None:
            op = self._maker(value)
            if op is not None and -self._order[op] not in waiting:
                heapq.heappush(waiting, -self._order[op])

        add(value)
        while waiting and len(rows) <= MOST_OPERATIONS:
            op = self._operations[-heapq.heappop(waiting)]
            kind = self._kind(op)
            # In reverse program order: all users of this operation were visited before.
            if not all(within(use.owner.operation, inside) for v in op.results for use in v.uses):
                continue
            if kind is Kind.CONTRACTION:
                products.append(op)
            elif kind in ON_ROWS:
                inside.add(op)
                rows.append(op)
                for operand in op.operands:
                    add(operand)
        return rows[::-1], products

    def _between(self, first: ir.Operation, rows: list[ir.Operation]) -> list[ir.Operation]:
        """Filter the operations that depend on the first product."""
        made, found = {first}, []
        for op in rows:
            if any((maker := self._maker(v)) is not None and maker in made for v in op.operands):
                made.add(op)
                found.append(op)
        return found

    def _looks_like_rows(self, between: list[ir.Operation]) -> bool:
        """Whether rows are reduced and exponentiated, unlike network layers with sums over their last dimension."""
        if all(self._kind(op) is not Kind.ROW_REDUCTION for op in between):
            return False
        return any(inner.name == "math.exp" for op in between for inner in body_of(op))

    def _repeated(self, between: list[ir.Operation], first: ir.Operation) -> list[ir.Operation]:
        """Find operations to rematerialize inside: elementwise ones of smaller arrays or of none."""
        found: list[ir.Operation] = []
        inside = {*between, first}

        def take(op: ir.Operation | None) -> bool:
            if op is None or op in found or op in inside:
                return op is not None and op in found
            if self._kind(op) is not Kind.MAP or len(op.results) != 1:
                return False
            size = _size(op.results[0])
            for value in list(op.operands)[:-1]:
                # An operand as large as the result must be rematerialized too; otherwise load the result.
                if is_tensor(value) and not take(self._maker(value)) and _size(value) * 2 > size:
                    return False
            found.append(op)
            return True

        for op in between:
            for value in list(op.operands)[:-1]:
                before = len(found)
                maker = self._maker(value)
                if maker is not None and maker not in inside and (not take(maker) or len(found) > MOST_REPEATED):
                    del found[before:]
        return found

    def _followers(self, last: ir.Operation) -> list[ir.Operation]:
        """Collect the chain of transposes and unary elementwise operations behind `last`, each the only user."""
        found: list[ir.Operation] = []
        value = last.results[0]
        while True:
            users = [use.owner.operation for use in value.uses]
            if len(users) != 1 or users[0] not in self._order:
                return found
            (op,) = users
            arrays = [v for v in list(op.operands)[:-1] if is_tensor(v)]
            if len(op.operands) != 2 or arrays != [value] or self._kind(op) not in (Kind.MAP, Kind.TRANSPOSE):
                return found
            if _size(op.results[0]) != _size(value):
                return found
            found.append(op)
            value = op.results[0]


def _size(value: ir.Value) -> int:
    return prod(value.type.shape)
