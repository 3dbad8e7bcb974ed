"""Follows which array each byte of memory holds while `main` runs as its buffers were assigned.

Knows nothing of life times: every write leaves a mark of its own on the bytes that it covers, and every read must find
there the mark of the array that the program means. Loops run a given number of times, branches are taken at random.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import mlir.ir as ir
import numpy as np

from stablexla.lowering.support.operations import is_tensor
from stablexla.targets.buffers.assignment import ALIASES, BufferAssignment, Copy, viewed_array
from stablexla.targets.buffers.buffer import Buffer
from stablexla.targets.buffers.donation import find_aliases
from stablexla.targets.codegen.calls import BufferPair
from stablexla.targets.codegen.sizes import bytes_of

Place = tuple[tuple[str, int], int, int]


class Shadow:
    """One run of a program on marks instead of numbers; if `donated`, results lie where parameters that they may alias
    do."""

    def __init__(self, assignment: BufferAssignment, seed: int, *, donated: bool = False) -> None:
        self._assignment = assignment
        self._aliases = find_aliases(assignment) if donated else {}
        self._random = random.Random(seed)
        self._memory: dict[tuple[str, int], np.ndarray] = {}
        self._marks: dict[ir.Value, int] = {}
        self._moving: dict[Buffer, Buffer] = {}
        self._last_mark = 0
        self.reads = 0

    def run(self) -> None:
        """Runs `main`; an assertion fails at the first read of what was overwritten or never written."""
        block = self._assignment.main.regions[0].blocks[0]
        for argument in block.arguments:
            self._write(argument)
        self._block(block)
        terminator = _terminator(block)
        self._copy(self._assignment.copies[terminator])
        for number, value in enumerate(terminator.operands):
            place = self._space("result", number), 0, bytes_of(value.type)
            self._expect(place, self._mark(value), f"result {number}")

    # ---- memory ---------------------------------------------------------------------------------------------------

    def _space(self, role: str, number: int) -> tuple[str, int]:
        """The memory of a parameter, constant or result."""
        return ("parameter", self._aliases[number]) if role == "result" and number in self._aliases else (role, number)

    def _place(self, buffer: Buffer, size: int) -> Place:
        found = self._moving.get(buffer.find(), buffer.find())
        assert size <= found.bytes, f"{size} bytes in a buffer of {found.bytes}"
        if found.role != "arena":
            return self._space(found.role, found.number), 0, size
        assert found.offset >= 0
        assert found.offset + size <= self._assignment.arena_bytes, "the arena is too small"
        assert found.offset % 64 == 0
        return ("arena", 0), found.offset, size

    def _place_of(self, value: ir.Value) -> Place:
        return self._place(self._assignment.buffer_of(value), bytes_of(value.type))

    def _bytes(self, place: Place) -> np.ndarray:
        space, offset, size = place
        if space not in self._memory:
            whole = self._assignment.arena_bytes if space[0] == "arena" else size
            self._memory[space] = np.zeros(whole, np.int64)
        return self._memory[space][offset : offset + size]

    def _new_mark(self) -> int:
        self._last_mark += 1
        return self._last_mark

    def _mark(self, value: ir.Value) -> int:
        return self._marks[viewed_array(value)]

    def _write(self, value: ir.Value) -> None:
        self._marks[viewed_array(value)] = mark = self._new_mark()
        self._bytes(self._place_of(value))[:] = mark

    def _expect(self, place: Place, mark: int, what: object) -> None:
        self.reads += 1
        held = self._bytes(place)
        assert (held == mark).all(), f"{what} at {place} was overwritten: {np.unique(held)} instead of {mark}"

    def _read(self, value: ir.Value) -> None:
        self._expect(self._place_of(value), self._mark(value), value)

    def _copy(self, copies: list[Copy]) -> None:
        for copy in copies:
            size = bytes_of(copy.type)
            moved = self._bytes(self._place(copy.source, size)).copy()
            assert len(np.unique(moved)) <= 1, "a copy of parts of several arrays"
            self._bytes(self._place(copy.target, size))[:] = moved

    # ---- the program ----------------------------------------------------------------------------------------------

    def _block(self, block: ir.Block) -> None:
        for view in list(block.operations)[:-1]:
            self._operation(view.operation)

    def _operation(self, op: ir.Operation) -> None:
        if op.name == "func.call":
            self._call(op)
        elif op.name == "scf.while":
            self._while(op)
        elif op.name == "scf.if":
            self._if(op)
        elif op.name in ALIASES:
            return
        else:
            for value in filter(is_tensor, op.operands):
                self._read(value)
            for value in filter(is_tensor, op.results):
                self._write(value)

    def _call(self, op: ir.Operation) -> None:
        call = self._assignment.calls[op]
        self._copy(self._assignment.copies[op])
        updated = {pair.input for pair in call.updates}
        for pair in call.updates:
            mark = self._mark(op.operands[pair.input])
            self._expect(self._place_of(op.results[pair.result]), mark, "what an update begins with")
        for i, value in enumerate(op.operands):
            if is_tensor(value) and i not in updated:
                self._read(value)
        self._check_apart(op, {*call.in_place, *call.updates})
        for buffer in self._assignment.scratch[op]:
            self._bytes(self._place(buffer, buffer.bytes))[:] = self._new_mark()
        for value in op.results:
            self._write(value)

    def _check_apart(self, op: ir.Operation, shared: set[BufferPair]) -> None:
        """While a kernel runs, what it writes overlaps nothing but what it may overwrite in place."""
        results = [self._place_of(v) for v in op.results]
        written = results + [self._place(b, b.bytes) for b in self._assignment.scratch[op]]
        for w, place in enumerate(written):
            assert not any(_overlap(place, other) for other in written[:w]), f"{op} writes twice to {place}"
            for i, value in enumerate(op.operands):
                if is_tensor(value) and _overlap(place, self._place_of(value)):
                    allowed = BufferPair(w, i) in shared and place == self._place_of(value)
                    assert allowed, f"{op} destroys its operand {i} by what it writes at {place}"

    def _while(self, op: ir.Operation) -> None:
        before, after = (region.blocks[0] for region in op.regions)
        arrays = [i for i, v in enumerate(op.operands) if is_tensor(v)]
        marks = {i: self._mark(op.operands[i]) for i in arrays}
        self._copy(self._assignment.copies[op])
        turns = self._random.randint(0, 5)
        outside = dict(self._moving)
        for turn in range(turns + 1):
            self._hold([before.arguments[i] for i in arrays], marks.values())
            self._block(before)
            if turn == turns:
                break
            self._hold([after.arguments[i] for i in arrays], marks.values())
            self._block(after)
            terminator = _terminator(after)
            marks = {i: self._mark(terminator.operands[i]) for i in arrays}
            self._copy(self._assignment.copies[terminator])
            self._rotate(op)
        self._moving = outside
        for rotation in self._assignment.rotations[op]:
            gone = turns % len(rotation.buffers)
            self._copy(list(rotation.settling[gone - 1]) if gone else [])
        self._hold([op.results[i] for i in arrays], marks.values())

    def _rotate(self, op: ir.Operation) -> None:
        """Each buffer takes the place of the next one."""
        for rotation in self._assignment.rotations[op]:
            buffers = [buffer.find() for buffer in rotation.buffers]
            places = [self._moving.get(buffer, buffer) for buffer in buffers]
            self._moving.update(zip(buffers, [*places[1:], places[0]], strict=True))

    def _hold(self, values: Iterable[ir.Value], marks: Iterable[int]) -> None:
        """Values that stand for arrays that were made elsewhere; those must be where these are looked for."""
        for value, mark in zip(values, marks, strict=True):
            self._marks[value] = mark
            self._read(value)

    def _if(self, op: ir.Operation) -> None:
        block = op.regions[self._random.randint(0, 1)].blocks[0]
        self._block(block)
        terminator = _terminator(block)
        self._copy(self._assignment.copies[terminator])
        pairs = [(v, r) for v, r in zip(terminator.operands, op.results, strict=True) if is_tensor(r)]
        self._hold([result for _, result in pairs], [self._mark(value) for value, _ in pairs])


def _terminator(block: ir.Block) -> ir.Operation:
    return block.operations[len(block.operations) - 1].operation


def _overlap(one: Place, other: Place) -> bool:
    return one[0] == other[0] and one[1] < other[1] + other[2] and other[1] < one[1] + one[2]
