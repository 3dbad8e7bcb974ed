"""Matches attention in `main` and outlines it into kernels, before operations are grouped.

The operations between the two products must have no other users. Masks that are cheap, and larger than their operands,
are rematerialized inside the kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from itertools import islice
from math import prod

import mlir.ir as ir
from mlir.dialects import func

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.operations import is_tensor, only_user, program_of, within
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.match.attention import Attention, matched_attention
from stablexla.targets.codegen.match.attention_batches import open_batches
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.drop_unused import drop_unused
from stablexla.targets.grouping.group import blocks_of
from stablexla.targets.grouping.loops import inputs_of, is_generic, reduces
from stablexla.targets.grouping.matchers import GENERIC, body_names, made_by, users_of
from stablexla.targets.grouping.outline import function_of, text_of

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
            if any(map(reduces, _generics(block))):
                open_batches(_generics(block))
                made += _Finder(function, block, names, takes).run()
        for old, new in made:  # all at once: an operation's hash is that of its operands
            old.replace_all_uses_with(new)
        if made:
            drop_unused(function)


def _generics(block: ir.Block) -> list[ir.Operation]:
    return [view.operation for view in block.operations if is_generic(view.operation)]


class _Finder:
    """Pattern match of attentions in a block, which leaves the block's operations as they are.

    `names` maps the text of each kernel made so far to its name, "" for those that are no attention.
    """

    def __init__(
        self, main: ir.Operation, block: ir.Block, names: dict[str, str], takes: Callable[[Attention], bool]
    ) -> None:
        self._main, self._names, self._takes = main, names, takes
        self._operations = _generics(block)
        self._order = {op: n for n, op in enumerate(self._operations)}
        self._kind = functools.cache(classify)

    def run(self) -> list[tuple[ir.Value, ir.Value]]:
        """Return for each attention found its result, and that of the call inserted beside it."""
        found: list[tuple[ir.Value, ir.Value]] = []
        for op in self._operations:
            if reduces(op) and len(op.operands) == 3 and any(self._makers(op)) and self._kind(op) is Kind.CONTRACTION:
                calls = ((members[-1].results[0], self._call(members)) for members in self._candidates(op))
                found += islice(((result, call) for result, call in calls if call is not None), 1)
        return found

    def _call(self, members: list[ir.Operation]) -> ir.Value | None:
        """Outline these operations and call the kernel, if they are an attention that the emitter takes."""
        result = members[-1].results[0]
        with members[-1].context, ir.Location.fused([op.location for op in members]):
            function, inputs = function_of("attention", members, [result], self._main)
            name = self._name(function)
            if not name:
                return None
            with ir.InsertionPoint(members[-1]):
                made: ir.Value = func.CallOp([result.type], name, inputs).results[0]
        return made

    def _name(self, function: func.FuncOp) -> str:
        """Name a function; "" if it is no attention. Of equal ones only the first is analysed and kept."""
        text = text_of(function)
        if text not in self._names:
            with matched_attention(Kernel(function)) as attention:
                taken = attention is not None and self._takes(attention)
            self._names[text] = f"attention.{len(self._names)}" if taken else ""
            if taken:
                function.attributes["sym_name"] = ir.StringAttr.get(self._names[text])
                return self._names[text]
        erase(function.operation)
        return self._names[text]

    def _makers(self, op: ir.Operation) -> list[ir.Operation]:
        """Return the operations of this block that define an operation's inputs."""
        makers = (made_by(value, GENERIC) for value in inputs_of(op))
        return [maker for maker in makers if maker is not None and maker in self._order]

    def _candidates(self, last: ir.Operation) -> Iterator[list[ir.Operation]]:
        """Yield lists of operations that end with `last`: from another product on, through row operations."""
        for weights in self._makers(last):
            rows, products = self._behind(weights, last)
            for first in products:
                between = self._between(first, rows)
                if not self._looks_like_rows(between):
                    continue
                repeated = self._repeated(between, first)
                if len(between) + len(repeated) <= MOST_OPERATIONS:
                    members = self._by_use({first, *repeated, *between, last}, last)
                    followers = self._followers(last)
                    if followers:
                        yield [*members, *followers]
                    yield members

    def _by_use(self, members: set[ir.Operation], last: ir.Operation) -> list[ir.Operation]:
        """Order members by use-def chains from `last`: the same for equal layers, however they are interleaved."""
        found: list[ir.Operation] = []

        def visit(op: ir.Operation) -> None:
            for maker in self._makers(op):
                if maker in members and maker not in found:
                    visit(maker)
            found.append(op)

        visit(last)
        return found

    def _behind(self, first: ir.Operation, last: ir.Operation) -> tuple[list[ir.Operation], list[ir.Operation]]:
        """Follow use-def chains without other users: the row operations, and the products at their ends."""
        inside, rows, products = {last}, list[ir.Operation](), list[ir.Operation]()
        waiting = [self._order[first]]
        while waiting and len(rows) <= MOST_OPERATIONS:
            # In reverse program order: all users of this operation were visited before.
            waiting.sort()
            op = self._operations[waiting.pop()]
            kind = self._kind(op)
            if not all(within(user, inside) for v in op.results for user in users_of(v)):
                continue
            if kind is Kind.CONTRACTION:
                products.append(op)
            elif kind in ON_ROWS:
                inside.add(op)
                rows.append(op)
                waiting = list({*waiting, *(self._order[maker] for maker in self._makers(op))})
        return rows[::-1], products

    def _between(self, first: ir.Operation, rows: list[ir.Operation]) -> list[ir.Operation]:
        """Filter the operations that depend on the first product."""
        made = [first]
        for op in rows:
            if any(maker in made for maker in self._makers(op)):
                made.append(op)
        return made[1:]

    def _looks_like_rows(self, between: list[ir.Operation]) -> bool:
        """Whether rows are reduced and exponentiated, unlike network layers with sums over their last dimension."""
        if all(self._kind(op) is not Kind.ROW_REDUCTION for op in between):
            return False
        return any("math.exp" in body_names(op) for op in between)

    def _repeated(self, between: list[ir.Operation], first: ir.Operation) -> list[ir.Operation]:
        """Find operations to rematerialize inside: elementwise ones of smaller arrays or of none."""
        found: list[ir.Operation] = []
        inside = {*between, first}

        def take(op: ir.Operation) -> bool:
            if op in found or op in inside:
                return op in found
            if self._kind(op) is not Kind.MAP or len(op.results) != 1:
                return False
            size = _size(op.results[0])
            for value in filter(is_tensor, inputs_of(op)):
                # An operand as large as the result must be rematerialized too; otherwise load the result.
                maker = made_by(value, GENERIC)
                taken = maker is not None and maker in self._order and take(maker)
                if not taken and _size(value) * 2 > size:
                    return False
            found.append(op)
            return True

        for op in between:
            for maker in self._makers(op):
                before = len(found)
                if maker not in inside and (not take(maker) or len(found) > MOST_REPEATED):
                    del found[before:]
        return found

    def _followers(self, last: ir.Operation) -> list[ir.Operation]:
        """Collect the chain of transposes and unary elementwise operations behind `last`, each the only user."""
        found = [last]
        while (op := only_user(found[-1].results[0])) is not None and op in self._order:
            value = found[-1].results[0]
            if len(op.operands) != 2 or op.operands[0] != value or _size(op.results[0]) != _size(value):
                break
            if self._kind(op) not in (Kind.MAP, Kind.TRANSPOSE):
                break
            found.append(op)
        return found[1:]


def _size(value: ir.Value) -> int:
    return prod(value.type.shape)
