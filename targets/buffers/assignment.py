"""Buffer assignment: the memory of each array of `main`.

Kernels store to buffers given by the caller, so copies are elided here: results go straight to the caller's buffers, an
elementwise kernel may overwrite a dead operand in place, loop-carried arrays keep one buffer each for all iterations,
and all temporaries share one arena by live ranges. Where a kernel packs an array that a loop does not change, that is
done once, before the loop. Positions are numbers in program order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import callee_of
from stablexla.lowering.support.operations import defining, is_inside, is_tensor, main_of, terminator_of
from stablexla.targets.buffers.arena import arena_buffers, plan_arena, plan_guarded_arena
from stablexla.targets.buffers.buffer import Buffer
from stablexla.targets.buffers.ping_pong import BufferCycle, copies_after_rotation, find_buffer_cycles
from stablexla.targets.codegen.calls import KernelCall, Packing, call_of, packed_inputs
from stablexla.targets.codegen.sizes import bytes_of
from stablexla.targets.pipeline.steps import CAST

# Rotations of more buffers are settled place by place.
LONGEST_WRITTEN_OUT = Gate("assignment.longest-written-out", 4, eager=1)
ALIASES = frozenset(["tensor.collapse_shape", "tensor.expand_shape", "tensor.bitcast", CAST])


@dataclass(frozen=True)
class Copy:
    """A copy of an array of a tensor type at some program point of main."""

    source: Buffer
    target: Buffer
    type: ir.Type


@dataclass(frozen=True)
class PingPong:
    """Ping-pong buffers: at the end of an iteration each takes the next one's address, the last the first's.

    Attributes:
        buffers: in their order at the loop's entry, to which they return after it.
        settling: copies that restore the order after a rotation by 1, 2, ... places; of many buffers by 1 place only,
            which is repeated, as the copies for each number of places would be quadratically many.
    """

    buffers: tuple[Buffer, ...]
    settling: tuple[tuple[Copy, ...], ...]

    @property
    def is_settled_stepwise(self) -> bool:
        return len(self.settling) < len(self.buffers) - 1


def viewed_array(value: ir.Value) -> ir.Value:
    """Return the array that a value is a view of."""
    maker = defining(value)
    while maker is not None and maker.name in ALIASES:
        value = maker.operands[0]
        maker = defining(value)
    return value


def block_of(value: ir.Value) -> ir.Block:
    """Return the block that makes a value, or whose argument it is."""
    owner = value.owner
    return owner if isinstance(owner, ir.Block) else owner.operation.block


def users_of(array: ir.Value) -> Iterator[ir.Operation]:
    """Yield the operations that use an array or a view of it."""
    for use in array.uses:
        user = use.owner.operation
        if user.name in ALIASES:
            yield from users_of(user.results[0])
        else:
            yield user


def _is_only_packed(value: ir.Value) -> bool:
    """Whether all calls that use an array, as it is or reshaped, have it packed already."""
    for use in value.uses:
        user = use.owner.operation
        if user.name in ALIASES:
            if not _is_only_packed(user.results[0]):
                return False
        elif user.name != "func.call" or all(p.packing.input != use.operand_number for p in packed_inputs(user)):
            return False
    return any(True for _ in value.uses)


@dataclass(frozen=True)
class PackedAhead:
    """A call's phase that packs an array which a loop around the call does not change."""

    packing: Packing
    call: ir.Operation
    buffer: Buffer


def loop_that_keeps(op: ir.Operation, value: ir.Value) -> ir.Operation | None:
    """Return the outermost loop around an operation that runs it in each iteration and does not change an array."""
    array, found = viewed_array(value), None
    while (loop := op.parent.operation).name == "scf.while" and not is_inside(array, loop):
        op = found = loop
    return found


class BufferAssignment:
    """Buffer assignment of `main`; then `buffer_of` tells each array's buffer, and `copies` the copies."""

    def __init__(self, module: ir.Module, guard: str = "") -> None:
        self.main = main_of(module)
        self._guard = guard
        self.calls: dict[ir.Operation, KernelCall] = {}
        self.copies: dict[ir.Operation, list[Copy]] = {}
        self.scratch: dict[ir.Operation, list[Buffer]] = {}
        self.unread: dict[tuple[ir.Operation, int], Buffer] = {}
        self.rotations: dict[ir.Operation, list[PingPong]] = {}
        self.ahead: dict[ir.Operation, list[PackedAhead]] = {}
        self.packed: dict[ir.Operation, set[str]] = {}
        self.constants: list[ir.Attribute] = []
        self._numbers: dict[ir.Attribute, int] = {}
        self.arena_bytes = 0
        self._results: list[Buffer] = []
        self._symbols = ir.SymbolTable(module.operation)
        self._buffers: dict[ir.Value, Buffer] = {}
        self._begin: dict[ir.Operation, int] = {}
        self._end: dict[ir.Operation, int] = {}
        self._last_uses: dict[ir.Value, dict[ir.Block, int]] = {}
        self._overwrote: dict[ir.Value, ir.Value] = {}
        self._position = 0
        self._number(self.main)
        self._run()

    def buffer_of(self, value: ir.Value) -> Buffer:
        """Return the array's buffer."""
        return self._buffers[viewed_array(value)].find()

    def operand_buffer(self, op: ir.Operation, number: int) -> Buffer:
        """Return the buffer of a call's operand; if the call does not read it, some other memory."""
        return self.unread.get((op, number)) or self.buffer_of(op.operands[number])

    def result_buffer(self, number: int) -> Buffer:
        """Return the caller's buffer for a result."""
        return self._results[number]

    def begin_of(self, op: ir.Operation) -> int:
        """Return the position of an operation."""
        return self._begin[op]

    def end_of(self, op: ir.Operation) -> int:
        """Return the position behind an operation's regions."""
        return self._end[op]

    def last_use(self, value: ir.Value, block: ir.Block) -> int:
        """Return the position of an array's last use in a block; 0 when there is none."""
        return self._last_use(value, block)

    def operations(self) -> dict[int, ir.Operation]:
        """Return all operations by their positions."""
        return {position: op for op, position in self._begin.items()}

    # ---- positions ------------------------------------------------------------------------------------------------

    def _number(self, op: ir.Operation) -> None:
        self._position += 1
        self._begin[op] = self._position
        if len(op.regions) and not op.name.startswith("linalg."):  # iterating none ends by an exception in C++, 2 us
            for region in op.regions:
                for block in region.blocks:
                    for view in block.operations:
                        self._number(view.operation)
        self._position += 1
        self._end[op] = self._position

    def _last_use(self, value: ir.Value, block: ir.Block) -> int:
        """Return the position of the array's last use in a block; one inside a loop or branch lasts until its end."""
        if value not in self._last_uses:  # kept, as each call asks for that of each operand
            last: dict[ir.Block, int] = {}
            home = block_of(value)
            for user, position in self._users(value):
                while user.block != home:
                    last[user.block] = max(position, last.get(user.block, 0))
                    user = user.parent.operation
                    position = self._end[user]
                last[home] = max(position, last.get(home, 0))
            self._last_uses[value] = last
        return self._last_uses[value].get(block, 0)

    def _users(self, value: ir.Value) -> Iterator[tuple[ir.Operation, int]]:
        """Yield the operations that use an array or a view of it, and until which position of their block they do."""
        for user in users_of(value):
            yield user, self._begin[user]

    # ---- operations ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        block = self.main.regions[0].blocks[0]
        for i, argument in enumerate(block.arguments):
            self._buffers[argument] = Buffer("parameter", bytes_of(argument.type), i)
        self._block(block)
        terminator = terminator_of(block)
        copies = []
        for i, value in enumerate(terminator.operands):
            found = self.buffer_of(value)
            if found.role == "arena":
                found.role, found.number = "result", i
            else:
                copies.append(Copy(found, Buffer("result", bytes_of(value.type), i), value.type))
            self._results.append(found if found.role == "result" and found.number == i else copies[-1].target)
        self.copies[terminator] = copies
        everything = list(self._everything())
        guarded = bool(self._guard)
        self.arena_bytes = plan_guarded_arena(everything, self._guard) if guarded else plan_arena(everything)

    def _block(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            if op.name == "func.call":
                self._call(op, block)
            elif op.name == "scf.while":
                self._while(op, block)
            elif op.name == "scf.if":
                self._if(op, block)
            elif op.name == "arith.constant" and is_tensor(op.results[0]):
                if not _is_only_packed(op.results[0]):
                    self._buffers[op.results[0]] = self._constant(op.attributes["value"])
            elif op.name in ("tensor.from_elements", "tensor.empty"):
                self._new(op.results[0], self._begin[op], block)
            elif op.name not in ALIASES and any(is_tensor(v) for v in op.results):
                raise CompileError(
                    f"{op.name} makes an array in main, where only calls of kernels do",
                    hint="loops of a pass of your own, or of a schedule, behind the step 'kernels'",
                    option="--transform-at=kernels for a schedule; a pass of your own behind the step 'kernels'",
                )

    def _constant(self, value: ir.Attribute) -> Buffer:
        self._numbers.setdefault(value, len(self.constants))
        self.constants.append(value)
        return Buffer("constant", bytes_of(value.type), len(self.constants) - 1)

    def _packed(self, value: ir.Attribute) -> Buffer:
        """Return the buffer of a packed constant, shared by all calls with an equal one."""
        number = self._numbers.get(value)
        return self._constant(value) if number is None else Buffer("constant", bytes_of(value.type), number)

    def _new(self, value: ir.Value, first: int, block: ir.Block) -> Buffer:
        last = max(first, self._last_use(value, block))
        made = Buffer("arena", bytes_of(value.type), spans=[(first, last)])
        self._buffers[value] = made
        return made

    def _call(self, op: ir.Operation, block: ir.Block) -> None:
        call = self.calls[op] = call_of(op, self._symbols)
        here = self._begin[op]
        self.scratch[op] = [Buffer("arena", bytes_of(t), spans=[(here, here)]) for t in call.scratch]
        for packed in packed_inputs(op):
            # Packed at compile time; the kernel does not read the original input.
            buffer = self.unread[op, packed.packing.input] = self._packed(packed.value)
            self.scratch[op][packed.packing.scratch] = buffer
        done = self.packed[op] = {packed.packing.function for packed in packed_inputs(op)}
        for packing in call.packs:
            loop = loop_that_keeps(op, op.operands[packing.input])
            if loop is not None and packing.function not in done:
                self.scratch[op][packing.scratch] = self._ahead(op, packing, loop)
                done.add(packing.function)
        copies = []
        for i, value in enumerate(op.results):
            made = self._new(value, here, block)
            taken = self._overwritten(op, call, i, block)
            if taken is not None:
                self._take_over(value, taken)
            else:
                copies += [
                    Copy(self.buffer_of(op.operands[pair.input]), made, value.type)
                    for pair in call.updates
                    if pair.result == i
                ]
        self.copies[op] = copies

    def _ahead(self, op: ir.Operation, packing: Packing, loop: ir.Operation) -> Buffer:
        """Return the buffer of what is packed before a loop, shared by all calls that pack the same array alike."""
        array, rows = viewed_array(op.operands[packing.input]), self.ahead.setdefault(loop, [])
        for row in rows:
            if row.packing == packing and viewed_array(row.call.operands[packing.input]) == array:
                return row.buffer
        made = self.scratch[op][packing.scratch]
        made.spans = [(self._begin[loop], self._end[loop])]
        rows.append(PackedAhead(packing, op, made))
        return made

    def _overwritten(self, op: ir.Operation, call: KernelCall, result: int, block: ir.Block) -> ir.Value | None:
        """Return a dead operand that the result may overwrite in place."""
        here, size = self._begin[op], bytes_of(op.results[result].type)
        for pair in (*call.updates, *call.in_place):
            value = op.operands[pair.input]
            if pair.result != result or not is_tensor(value):
                continue
            found = self.buffer_of(value)
            if found.role != "arena" or found.bytes != size or self._dies_after(found, value, op, block) > here:
                continue
            arrays = (i for i, v in enumerate(op.operands) if is_tensor(v))
            twice = sum(1 for i in arrays if self.operand_buffer(op, i) is found) > 1
            taken = any(self.buffer_of(r) is found for r in list(op.results)[:result])
            if not twice and not taken:
                return value
        return None

    def _dies_after(self, buffer: Buffer, value: ir.Value, op: ir.Operation, block: ir.Block) -> int:
        """Return the last use of the buffer's present contents.

        The buffer of a loop-carried array outlives the body, but its contents do not: inside the body only uses of the
        block argument count. An array from outside of a branch is dead there if nothing uses it after the conditional;
        the other branch does not run.
        """
        source = viewed_array(value)
        home, here = block_of(source), block
        while here != home:
            around = here.owner.operation
            here = around.block
            if around.name != "scf.if" or self._last_use(source, here) > self._end[around]:
                return buffer.last + 1  # needed in the loop's next iteration, or after the conditional
        return self._last_use(source, block)

    def _take_over(self, value: ir.Value, array: ir.Value) -> None:
        """Place an array in the memory of one that is dead."""
        self._merge(self.buffer_of(value), self.buffer_of(array))
        self._overwrote[value] = viewed_array(array)

    def _merge(self, one: Buffer, into: Buffer) -> None:
        into.spans += one.spans
        one.owner = into

    def temporaries(self) -> dict[Buffer, str]:
        """Return the buffers of the arena, each with the first array that it holds, in words."""
        words: dict[Buffer, str] = {}
        for value, buffer in self._buffers.items():
            words.setdefault(buffer.find(), f"{value.type} of {_maker(value)}")
        for op, buffers in self.scratch.items():
            for number, buffer in enumerate(buffers):
                words.setdefault(buffer.find(), f"scratch {number} of {callee_of(op)}")
        return {buffer: words.get(buffer, "a copy's") for buffer in arena_buffers(self._everything())}

    # ---- control flow ------------------------------------------------------------------------------------------------

    def _while(self, op: ir.Operation, block: ir.Block) -> None:
        before, after = (region.blocks[0] for region in op.regions)
        first, last = self._begin[op], self._end[op]
        carried: dict[int, Buffer] = {}
        starts = []
        for i, value in enumerate(op.operands):
            if not is_tensor(value):
                continue
            span = (first, max(last, self._last_use(op.results[i], block)))
            held = self.buffer_of(value)
            dead = held.role == "arena" and self._dies_after(held, value, op, block) <= first
            if dead and all(held is not other for other in carried.values()):
                held.spans.append(span)
                self._overwrote[op.results[i]] = viewed_array(value)
            else:
                held = Buffer("arena", bytes_of(value.type), spans=[span])
                starts.append(Copy(self.buffer_of(value), held, value.type))
            carried[i] = held
            for array in (before.arguments[i], after.arguments[i], op.results[i]):
                self._buffers[array] = held
        self.copies[op] = starts
        self._block(before)
        self._block(after)
        self._yield(op, after, carried)

    def _yield(self, op: ir.Operation, after: ir.Block, carried: dict[int, Buffer]) -> None:
        """Place each loop-carried array's next value in its buffer at the end of the body."""
        terminator = terminator_of(after)
        moves = []
        for i, held in carried.items():
            value = terminator.operands[i]
            found = self.buffer_of(value)
            if found is held.find() and viewed_array(value) == after.arguments[i]:
                continue
            if self._lands_in(value, found, after.arguments[i], held.find(), after, list(carried.values())):
                if found is not held.find():
                    self._merge(found, held.find())
            else:
                moves.append(Copy(found, held.find(), value.type))
        self.rotations[op] = [self._rotation(op, circle, moves) for circle in self._circles(op, after, moves)]
        rotated = {buffer for rotation in self.rotations[op] for buffer in rotation.buffers}
        moves = [move for move in moves if move.target.find() not in rotated]
        self.copies[terminator] = self._in_order(moves, self._begin[terminator])

    def _circles(self, op: ir.Operation, after: ir.Block, moves: list[Copy]) -> list[BufferCycle]:
        """Find buffers for ping-pong rotation in place of copies."""
        terminator = terminator_of(after)
        made = [v for v in terminator.operands if is_tensor(v)]
        own = {
            self.buffer_of(v) for v in made if (maker := defining(viewed_array(v))) is not None and maker.block == after
        }
        held = {self.buffer_of(v) for v in after.arguments if is_tensor(v)}

        def is_spare(buffer: Buffer) -> bool:
            return buffer.role == "arena" and buffer in own - held and buffer.first > self._begin[op]

        wanted = {move.target.find(): move.source.find() for move in moves if move.target.bytes}
        return find_buffer_cycles(wanted, is_spare)

    def _rotation(self, op: ir.Operation, circle: BufferCycle, moves: list[Copy]) -> PingPong:
        first, last = self._begin[op], self._end[op]
        for buffer in circle:
            buffer.spans.append((first, last))
        types = {move.target.find(): move.type for move in moves}
        stepwise = len(circle) > LONGEST_WRITTEN_OUT()
        if stepwise:  # arrays pass through spare buffers too
            any_type = next(types[buffer] for buffer in circle if buffer in types)
            types = {buffer: types.get(buffer, any_type) for buffer in circle}
        back = [
            [
                Copy(source, target, types[target])
                for source, target in copies_after_rotation(circle, places)
                if target in types
            ]
            for places in range(1, 2 if stepwise else len(circle))
        ]
        return PingPong(tuple(circle), tuple(tuple(self._in_order(each, last)) for each in back))

    @staticmethod
    def _in_order(moves: list[Copy], here: int) -> list[Copy]:
        """Order copies so that none overwrites another's source; a temporary breaks a cycle."""
        waiting, ordered = dict(enumerate(moves)), []
        readers: dict[Buffer, set[int]] = defaultdict(set)
        writers: dict[Buffer, list[int]] = defaultdict(list)
        for number, move in waiting.items():
            readers[move.source.find()].add(number)
            writers[move.target.find()].append(number)

        def is_free(number: int) -> bool:
            return number in waiting and readers[waiting[number].target.find()] <= {number}

        free = [number for number in waiting if is_free(number)]  # a heap
        while waiting:
            if not free:
                first = next(iter(waiting))
                held = waiting[first].target.find()
                middle = Buffer("arena", waiting[first].source.bytes, spans=[(here, here)])
                ordered.append(Copy(held, middle, waiting[first].type))
                readers[middle] = readers.pop(held)
                waiting |= {n: Copy(middle, waiting[n].target, waiting[n].type) for n in readers[middle]}
                free.append(first)
            number = heappop(free)
            move = waiting.pop(number)
            ordered.append(move)
            readers[move.source.find()].discard(number)
            for other in filter(is_free, writers[move.source.find()]):
                if other not in free:
                    heappush(free, other)
        return ordered

    def _lands_in(
        self, value: ir.Value, found: Buffer, argument: ir.Value, held: Buffer, after: ir.Block, carried: list[Buffer]
    ) -> bool:
        """Whether the body may compute the value in the loop-carried buffer itself."""
        source = viewed_array(value)
        maker = defining(source)
        if found.role != "arena" or maker is None or maker.block != after or found.bytes != held.bytes:
            return False
        if found is held:
            return True  # computed in place over the argument, or carried by an inner loop
        if any(found is other.find() for other in carried) or self._last_use(argument, after) >= found.first:
            return False
        return self._is_free(held, found, self._begin[after.owner.operation])

    @staticmethod
    def _is_free(held: Buffer, found: Buffer, begin: int) -> bool:
        """Whether no array that was placed in a buffer after `begin` is live there with those of another buffer."""
        inside = [span for span in held.spans if span[0] > begin]
        return all(end < found.first or found.last < start for start, end in inside)

    def _if(self, op: ir.Operation, block: ir.Block) -> None:
        branches = [block for region in op.regions for block in region.blocks]  # without results, maybe only one
        for branch in branches:
            self._block(branch)
        arrays = [i for i, value in enumerate(op.results) if is_tensor(value)]
        for i in arrays:
            self._new(op.results[i], self._begin[op], block)
        for i, array in self._kept_by(op, arrays, branches, block).items():
            self._take_over(op.results[i], array)
        for branch in branches:
            terminator = terminator_of(branch)
            copies, used = [], set()
            for i in arrays:
                value, held = terminator.operands[i], self.buffer_of(op.results[i])
                found = self.buffer_of(value)
                if found is not held:
                    if found not in used and self._made_in_place(op, i, branch):
                        self._merge(found, held)
                    else:
                        copies.append(Copy(found, held, value.type))
                used.add(self.buffer_of(value))
            self.copies[terminator] = self._in_order(copies, self._begin[terminator])

    def _kept_by(
        self, op: ir.Operation, arrays: list[int], branches: list[ir.Block], block: ir.Block
    ) -> dict[int, ir.Value]:
        """Map results of a conditional to arrays from before it in whose memory branches leave them.

        Such an array is dead afterwards; a branch yields it as it is, or what overwrote it. Of several arrays that
        one is taken which the most branches keep, as the others have to copy.
        """
        votes: Counter[tuple[int, ir.Value]] = Counter()
        for branch in branches:
            for i in arrays:
                array = self._before(op, terminator_of(branch).operands[i])
                if array is not None and self._dies_after(self.buffer_of(array), array, op, block) <= self._end[op]:
                    votes[i, array] += 1
        kept: dict[int, ir.Value] = {}
        for (i, array), _ in votes.most_common():
            if i not in kept and array not in kept.values():
                kept[i] = array
        return kept

    def _before(self, op: ir.Operation, value: ir.Value) -> ir.Value | None:
        """Return the array from before a conditional in whose memory a branch leaves a value; None if there is none."""
        source: ir.Value | None = viewed_array(value)
        while source is not None and is_inside(source, op):
            source = self._overwrote.get(source)
        return source if source is not None and self.buffer_of(source).role == "arena" else None

    def _made_in_place(self, op: ir.Operation, result: int, branch: ir.Block) -> bool:
        """Whether a branch may compute the conditional's result in its buffer, where an array from before may lie."""
        value = terminator_of(branch).operands[result]
        maker = defining(viewed_array(value))
        found, held = self.buffer_of(value), self.buffer_of(op.results[result])
        if found.role != "arena" or maker is None or maker.block != branch or found.first < self._begin[op]:
            return False
        before = self._overwrote.get(op.results[result])
        if before is not None and self._last_use(before, branch) >= found.first:
            return False
        return self._is_free(held, found, self._begin[op])

    def _everything(self) -> Iterator[Buffer]:
        """Yield all buffers, each at least once."""
        yield from self._buffers.values()
        for buffers in self.scratch.values():
            yield from buffers
        settled = (list(copies) for each in self.rotations.values() for r in each for copies in r.settling)
        for copies in (*self.copies.values(), *settled):
            for copy in copies:
                yield copy.source
                yield copy.target


def _maker(value: ir.Value) -> str:
    """Return what an array is made by: the kernel, or the operation."""
    maker = defining(value)
    if maker is None:
        return "a loop"
    return callee_of(maker) if maker.name == "func.call" else maker.name
