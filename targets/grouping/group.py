"""Grouping (fusion): which operations on tensors one kernel computes together.

Each operation gets an attribute `stablexla.group = "<kind>.<number>"`. An operation joins the group of an operand when
one loop nest over the same elements can compute both, and no use-def path between them leaves the group.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import field
from math import prod
from typing import Any

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import (
    defining,
    is_tensor,
    only_user,
    operations_named,
    program_of,
    walk,
    within,
)
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.effects import previous_effects
from stablexla.targets.grouping.loops import Loops, inputs_of, is_generic, loops_of
from stablexla.targets.grouping.matchers import body_names, users_of
from stablexla.targets.grouping.repeat import CHEAP
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.pipeline.steps import CAST

GROUP = "stablexla.group"
FACTOR = "stablexla.factor"
"""Attribute of a product and of what computes an operand of it in its kernel: one number (`join_factors.py`)."""
# Rows longer than this do not stay in the cache between row passes: such a reduction is a group of its own.
LONGEST_ROW = Gate("group.longest-row", 1 << 15, eager=2)
# Code size is compile time, and a kernel with more buffers than registers gains nothing.
MOST_OPERATIONS = 48
# The most operations of the paths from a product's results that reconverge.
MOST_AHEAD = 10
# Bytes that one kernel makes for another from which they are stored as such, rather than as the numbers they stand for.
LEAST_NARROW = Gate("group.least-narrow", 1 << 14, eager=1)
# Integer operations of one instruction each; PLAIN_IN_ONE of them count as one operation. The rounds of a random
# generator, over a hundred of them, need five registers; split into kernels they go through memory (jax.random.bits).
PLAIN = frozenset(
    f"arith.{name}" for name in ("addi", "subi", "andi", "ori", "xori", "shli", "shrui", "trunci", "extui")
)
PLAIN_IN_ONE = 8
# Kinds whose epilogue may hold element-wise operations on their results.
SUMS_OF_PRODUCTS = (Kind.CONTRACTION, Kind.CONVOLUTION)
CONTROL_FLOW = ("scf.while", "scf.if", "scf.for")
# Operations that stay in main: they do not sweep memory, or are control flow.
IN_MAIN = frozenset(
    [
        "tensor.collapse_shape",
        "tensor.expand_shape",
        "tensor.extract",
        "tensor.from_elements",
        "tensor.empty",
        "tensor.bitcast",
        CAST,
    ]
)


@dataclass
class Group:
    """Operations that one kernel computes.

    Attributes:
        kind: the kernel's kind.
        domain: extents of the loops over the elements.
        rows: number of leading loops that are not reduced; None as long as nothing is reduced.
        before: bit set of the groups that must have run before this one.
        plain: how many of the members are plain ones.
    """

    number: int
    kind: Kind
    domain: tuple[int, ...]
    rows: int | None = None
    members: list[ir.Operation] = field(default_factory=list)
    before: int = 0
    closed: bool = False
    plain: int = 0

    @property
    def label(self) -> str:
        return f"{self.kind.value}.{self.number}"

    @property
    def size(self) -> int:
        """Code size in operations."""
        return len(self.members) - self.plain + self.plain // PLAIN_IN_ONE


@module_pass("stablexla-group", "labels the operations that one kernel will compute together")
def group(module: ir.Module, *, alone: bool = False) -> None:
    """Label every operation on tensors of the program with its group.

    Args:
        alone: gives each operation a group of its own, to compare with fused code.
    """
    number = 0
    for block in [block for function in program_of(module) for block in blocks_of(function)]:
        grouping = BlockGrouping(block, number, alone=alone)
        grouping.run()
        number = grouping.next_number


def blocks_of(function: ir.Operation) -> Iterator[ir.Block]:
    """Yield the function's block and those of nested control flow, not the bodies of linalg operations."""
    holders = [function]

    def note(op: ir.Operation) -> ir.WalkResult:
        if op.name in CONTROL_FLOW:
            holders.append(op.operation)
        return ir.WalkResult.SKIP if op.name == "linalg.generic" else ir.WalkResult.ADVANCE

    if operations_named(function, *CONTROL_FLOW):  # most programs have none: a walk takes 1 us for each operation
        function.walk(note, ir.WalkOrder.PRE_ORDER)
    for holder in holders:
        for region in holder.regions:
            yield from region.blocks


class BlockGrouping:
    """Groups the operations of one block, in program order."""

    def __init__(self, block: ir.Block, first_number: int, *, alone: bool = False) -> None:
        self.next_number = first_number
        self._alone = alone
        self._block = block
        self._groups: dict[int, Group] = {}
        self._of: dict[Any, Group] = {}
        self._effects = previous_effects(block)
        self._needed: dict[ir.Operation, list[ir.Operation]] = {}
        self._factors: dict[int, list[ir.Operation]] = {}
        self._loops = functools.cache(loops_of)
        self._makers = functools.cache(_makers)

    def run(self) -> None:
        """Label the operations."""
        for view in self._block.operations:
            op = view.operation
            if FACTOR in op.attributes and not self._alone and classify(op) is not Kind.CONTRACTION:
                self._factors.setdefault(_factor_number(op), []).append(op)
            elif self._groupable(op):
                self._place(op)
        for op, found in self._of.items():
            with op.context:
                op.attributes[GROUP] = ir.StringAttr.get(found.label)

    @staticmethod
    def _groupable(op: ir.Operation) -> bool:
        # Initial values (tensor.empty and the linalg.fill of a reduction) follow the operation that they start.
        if op.name in IN_MAIN or op.name.startswith("scf.") or op.name == "linalg.fill":
            return False
        if op.name in ("arith.constant", "func.call"):
            return False
        return any(is_tensor(v) for v in op.results)

    def _place(self, op: ir.Operation) -> None:
        """Fuse an operation into the group of an operand, or start a new group."""
        kind = classify(op)
        loops = self._loops(op) if is_generic(op) else _loops_of_slice(op)
        producers = [] if self._alone else sorted(self._producers(op), key=_preference, reverse=True)
        home: Group | None = None
        for candidate in producers:
            if self._may_join(op, kind, loops, candidate):
                home = candidate
                break
        if home is None:
            home = self._new(kind, loops)
        self._join(op, kind, loops, home)
        for other in producers:
            if other is not home and other.number in self._groups and self._may_merge(other, home):
                self._merge(other, home)

    def _new(self, kind: Kind, loops: Loops | None) -> Group:
        domain = () if loops is None else loops.kept if kind in SUMS_OF_PRODUCTS else loops.extents
        made = Group(self.next_number, kind, domain)
        self._groups[made.number] = made
        self.next_number += 1
        return made

    def _producers(self, op: ir.Operation) -> list[Group]:
        """Return the producer groups of an operation's tensor operands, each once."""
        makers = map(self._of.get, self._makers(op))
        return list({made.number: made for made in makers if made is not None}.values())

    def _needs(self, op: ir.Operation) -> list[ir.Operation]:
        """Return operations of this block that define operands of the operation or of nested ones, each once.

        Those that read nothing themselves, such as constants, are left out: no group is above them.
        """
        found = self._needed.get(op)
        if found is None:
            makers = dict.fromkeys(self._makers(op))
            makers |= dict.fromkeys(defining(v) for inner in walk(op)[1:] for v in inner.operands)
            found = [maker for maker in makers if maker is not None and self._counts(maker)]
            if op in self._effects:
                found.append(self._effects[op])
            self._needed[op] = found
        return found

    def _counts(self, maker: ir.Operation) -> bool:
        reads = len(maker.operands) or len(maker.regions) or maker in self._of or maker in self._effects
        return bool(reads) and bool(maker.block == self._block)

    def _groups_above(self, makers: Iterable[ir.Operation]) -> Iterator[Group]:
        """Yield the groups of the given operations; for those that stay in main, the groups that they depend on."""
        pending, seen = list(makers), set()
        while pending:
            maker = pending.pop()
            if maker in seen:
                continue
            seen.add(maker)
            made = self._of.get(maker)
            if made is not None:
                yield made
            else:
                pending.extend(self._needs(maker))

    def _depends(self, op: ir.Operation) -> int:
        """Return the bit set of all groups that the operation depends on, also through operations that stay in main."""
        before = 0
        for made in self._groups_above(self._needs(op)):
            before |= made.before | 1 << made.number
        return before

    def _outside_path(self, operations: Iterable[ir.Operation], home: Group, other: Group | None = None) -> bool:
        """Whether operations also depend on `home` through one outside of `home` and of `other`."""
        second = home if other is None else other
        makers = dict.fromkeys(maker for op in operations for maker in self._needs(op))
        outside = [m for m in makers if (made := self._of.get(m)) is not home and made is not second]
        return self._reaches(outside, home, other)

    def _reaches(self, makers: Iterable[ir.Operation], home: Group, other: Group | None = None) -> bool:
        """Whether operations belong to `home` or depend on it, other than through `other`."""
        above = self._groups_above(makers)
        return any(made is home or (made is not other and made.before >> home.number & 1) for made in above)

    def _may_join(self, op: ir.Operation, kind: Kind, loops: Loops | None, home: Group) -> bool:
        if home.closed or home.size >= MOST_OPERATIONS or self._outside_path([op], home):
            return False
        if loops is None:
            return _continues_general(op, home)
        if not is_generic(op):
            return False
        if kind is Kind.MAP:
            return self._map_joins(op, loops, home) and not self._stays_narrow(op, home)
        if kind is Kind.ROW_REDUCTION:
            return self._row_reduction_joins(op, loops, home)
        if kind is Kind.REDUCTION:
            return home.kind is Kind.MAP and home.domain == loops.extents and self._absorbs(op, home)
        return False

    def _absorbs(self, op: ir.Operation, home: Group) -> bool:
        """Whether the group's results have no users but its own members and `op`."""
        inside = {*home.members, op}
        users = (user for member in home.members for result in member.results for user in users_of(result))
        return self._reads_in_place(op, home) and all(within(user, inside) for user in users)

    def _reconverges(self, op: ir.Operation, home: Group) -> bool:
        """Whether a few operations that may join a product after `op` leave it one result, as in x * logistic(x)."""
        path = [*home.members, op]
        most = min(len(home.members) + MOST_AHEAD, MOST_OPERATIONS)
        while self._reads_in_place(op, home) and len(path) < most:
            inside = {*path}
            uses = [(each, user) for each in path for result in each.results for user in users_of(result)]
            live = {each: user for each, user in uses if not within(user, inside)}
            if len(live) == 1:
                return True
            found = [user for each, user in uses if each in live and user not in inside]
            following = next((user for user in found if self._may_follow(user, inside, home)), None)
            if following is None:
                return False
            path.append(following)
        return False

    def _may_follow(self, op: ir.Operation, inside: set[ir.Operation], home: Group) -> bool:
        """Whether an operation computes each element from those of `inside`, and from what does not depend on these."""
        if op.block != self._block or classify(op) is not Kind.MAP or not is_generic(op):
            return False
        loops, makers = self._loops(op), self._makers(op)
        read = [number for number, maker in enumerate(makers) if maker in inside]
        if loops.extents != home.domain or any(loops.maps[number] != loops.identity for number in read):
            return False
        return not self._reaches((maker for maker in self._needs(op) if maker not in inside), home)

    def _stays_narrow(self, op: ir.Operation, home: Group) -> bool:
        """Whether an operation makes numbers of bytes that the group stores, for a reader that the group can't have.

        That one reads the bytes: a sum with another array, or a reduction. What makes bytes of the numbers again joins
        the group.
        """
        if not is_generic(op) or body_names(op) not in (["arith.uitofp"], ["arith.sitofp"]):
            return False
        if not self._operands_of(op, home) or op.operands[0].type.element_type.width != 8:
            return False
        if prod(self._loops(op).extents) < LEAST_NARROW():
            return False
        reader = only_user(op.results[0])
        while reader is not None and is_generic(reader) and classify(reader) is Kind.MAP:
            arrays = [v for v in inputs_of(reader) if is_tensor(v) and v.type.shape == op.results[0].type.shape]
            if len(arrays) != 1:
                return True
            if reader.results[0].type.element_type.width <= 8:
                return False
            reader = only_user(reader.results[0])
        return reader is not None and classify(reader) in (Kind.REDUCTION, Kind.ROW_REDUCTION)

    def _map_joins(self, op: ir.Operation, loops: Loops, home: Group) -> bool:
        if home.kind is Kind.ROW_REDUCTION:
            return self._fits_rows(op, loops, home)
        if home.domain != loops.extents:
            return False
        if home.kind is Kind.MAP:
            return self._reads_in_place(op, home)
        return home.kind in SUMS_OF_PRODUCTS and (self._absorbs(op, home) or self._reconverges(op, home))

    def _fits_rows(self, op: ir.Operation, loops: Loops, home: Group) -> bool:
        """Match a map over all elements, or over the rows, of a row group."""
        assert home.rows is not None
        rows, row = home.domain[: home.rows], home.domain[home.rows :]
        if home.rows == 0 or prod(row) > LONGEST_ROW() or loops.extents not in (home.domain, rows):
            return False
        for number in self._operands_of(op, home):
            shape, map_ = tuple(op.operands[number].type.shape), loops.maps[number]
            whole = map_ == loops.identity and shape == loops.extents
            by_row = loops.extents == home.domain and shape == rows and loops.dims[number] == tuple(range(home.rows))
            if not whole and not by_row:
                return False
        return True

    def _row_reduction_joins(self, op: ir.Operation, loops: Loops, home: Group) -> bool:
        rows = loops.reduced.index(True)
        if home.domain != loops.extents or not self._reads_in_place(op, home):
            return False
        if home.kind is Kind.MAP:
            return True
        length = prod(loops.extents[rows:])
        return home.kind is Kind.ROW_REDUCTION and home.rows == rows and rows > 0 and length <= LONGEST_ROW()

    def _operands_of(self, op: ir.Operation, home: Group) -> list[int]:
        """Return the numbers of the operands that the group computes."""
        return [n for n, maker in enumerate(self._makers(op)) if self._of.get(maker) is home]

    def _reads_in_place(self, op: ir.Operation, home: Group) -> bool:
        """Whether the operation reads the group's results only at its own index (identity maps)."""
        read = self._operands_of(op, home)
        if not read or not is_generic(op):
            return not read
        loops = self._loops(op)
        identity = loops.identity
        return all(loops.maps[number] == identity for number in read)

    def _join(self, op: ir.Operation, kind: Kind, loops: Loops | None, home: Group) -> None:
        if kind is Kind.ROW_REDUCTION and loops is not None:
            home.kind, home.rows = kind, loops.reduced.index(True)
        elif kind is Kind.REDUCTION:
            home.kind, home.closed = kind, True
        elif kind is Kind.TRANSPOSE:
            home.closed = True
        home.members.append(op)
        home.plain += _is_plain(op)
        self._of[op] = home
        self._add_before(home, self._depends(op) & ~(1 << home.number))
        if FACTOR in op.attributes:
            self._of.update(dict.fromkeys(self._factors.get(_factor_number(op), []), home))

    def _add_before(self, home: Group, before: int) -> None:
        more = home.before | before & ~(1 << home.number)
        if more == home.before:
            return
        home.before = more
        if len(home.members) == 1:
            return  # a new group: none comes after it yet
        for other in self._groups.values():
            if other.before >> home.number & 1:
                other.before |= home.before

    def _may_merge(self, one: Group, home: Group) -> bool:
        """Whether a second producer group may be merged: an element-wise one with the same domain."""
        if one.kind is not Kind.MAP or one.closed or one.size + home.size > MOST_OPERATIONS:
            return False
        if home.kind is Kind.GENERAL:
            return self._is_inserted(one, home) and not self._outside_path(home.members, one, home)
        if one.domain != home.domain:
            return False
        if home.kind in SUMS_OF_PRODUCTS:
            return self._is_of_epilogue(one, home) and not self._outside_path(home.members, one, home)
        if home.kind not in (Kind.MAP, Kind.ROW_REDUCTION) or home.rows == 0:
            return False
        in_place = all(self._reads_in_place(member, one) for member in home.members)
        return in_place and not self._outside_path(home.members, one, home)

    def _is_of_epilogue(self, one: Group, home: Group) -> bool:
        """Whether a group is of cheap operations that only the epilogue of a product reads, element by element."""
        if not _is_cheap(one):
            return False
        inside = {*one.members, *home.members}
        users = (user for member in one.members for result in member.results for user in users_of(result))
        in_place = all(self._reads_in_place(member, one) for member in home.members)
        return in_place and all(within(user, inside) for user in users)

    def _is_inserted(self, one: Group, home: Group) -> bool:
        """Whether the group's only users outside are insertions by `home` into an array that it concatenates."""
        inside = set(one.members)
        for member in one.members:
            for result in member.results:
                for use in result.uses:
                    user = use.owner.operation
                    inserted = user.name == "tensor.insert_slice" and self._of.get(user) is home
                    if not within(user, inside) and not (inserted and use.operand_number == 0):
                        return False
        first = next((member for member in home.members if member.name == "tensor.insert_slice"), None)
        below = defining(first.operands[1]) if first is not None else None
        return first is not None and (below is None or self._of.get(below) is not home or _is_background(below))

    def _merge(self, one: Group, home: Group) -> None:
        for op in one.members:
            self._of[op] = home
        home.members = [*one.members, *home.members]
        home.plain += one.plain
        del self._groups[one.number]
        bit = 1 << one.number
        self._add_before(home, one.before)
        for other in self._groups.values():
            if other.before & bit:
                other.before = other.before & ~bit | 1 << home.number | home.before
        home.before &= ~(bit | 1 << home.number)


def _factor_number(op: ir.Operation) -> int:
    return int(ir.IntegerAttr(op.attributes[FACTOR]).value)


def _makers(op: ir.Operation) -> list[ir.Operation | None]:
    """Return for each operand the operation that defines it, if one does."""
    return [defining(value) for value in op.operands]


def _preference(group: Group) -> tuple[bool, bool, int]:
    """Sort key of producer groups: row groups first, as they can absorb element-wise operations; then the latest.

    Those of cheap operations are last: the group of a product can absorb them.
    """
    return bool(group.rows), not _is_cheap(group), group.number


def _is_cheap(group: Group) -> bool:
    return group.kind is Kind.MAP and all(is_generic(op) and CHEAP.issuperset(body_names(op)) for op in group.members)


def _is_plain(op: ir.Operation) -> bool:
    """Whether an operation's body is a single plain integer operation."""
    return is_generic(op) and len(names := body_names(op)) == 1 and names[0] in PLAIN


def _loops_of_slice(op: ir.Operation) -> Loops | None:
    """Return the loops of a slice, which is fused like an element-wise operation; None for anything else."""
    if op.name != "tensor.extract_slice" or op.operands[0].type.rank != op.results[0].type.rank:
        return None
    extents = tuple(op.results[0].type.shape)
    return Loops(extents, (False,) * len(extents), (), 1)


def _is_background(op: ir.Operation) -> bool:
    """Match a fill: a generic that stores a splat."""
    return is_generic(op) and not any(is_tensor(v) for v in inputs_of(op))


def _continues_general(op: ir.Operation, home: Group) -> bool:
    """Match a tensor.insert_slice into the group's result that has no other user: one kernel stores both."""
    if op.name != "tensor.insert_slice":
        return False
    maker = defining(op.operands[1])
    if maker is None or maker not in home.members or home.kind not in (Kind.GENERAL, Kind.MAP):
        return False
    if len(home.members) > 1 and home.kind is Kind.MAP:
        return False
    if only_user(op.operands[1]) is None:
        return False
    home.kind = Kind.GENERAL
    return True


__all__ = ["FACTOR", "GROUP", "Group", "group"]
