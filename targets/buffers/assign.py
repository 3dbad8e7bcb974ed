"""The pass that rewrites `main` from tensors to buffers, by the buffer assignment.

Afterwards `main` takes flat memrefs: parameters, constants, results, the arena; tensors are gone from the module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import mlir.ir as ir
from mlir.dialects import arith, func, memref, scf, ub

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.kernels import COMBINER, EFFECT, KIND
from stablexla.lowering.support.operations import clone_with, is_tensor, terminator_of
from stablexla.targets.buffers.assignment import ALIASES, BufferAssignment, Copy, PackedAhead, PingPong
from stablexla.targets.buffers.buffer import Buffer
from stablexla.targets.buffers.copies import BufferCopies, as_bytes, bytes_type
from stablexla.targets.buffers.donation import find_aliases
from stablexla.targets.buffers.guards import KernelGuards
from stablexla.targets.codegen.calls import PARALLEL_GRAIN, KernelCall, Phase
from stablexla.targets.codegen.emission import viewed
from stablexla.targets.codegen.kernel import flat_type
from stablexla.targets.codegen.sizes import bytes_of
from stablexla.targets.pipeline.passes import module_pass

# Operations without code: views of memory, and uninitialized arrays.
PLACES = ALIASES | {"tensor.empty"}
ROLE, VALUE = "stablexla.role", "stablexla.value"
ALIAS = "stablexla.alias"


@module_pass(
    "stablexla-assign-buffers", "gives each array of main a buffer: the caller's, a constant's, or a part of the arena"
)
def assign_buffers(module: ir.Module, *, num_threads: int = 0, guard: str = "") -> None:
    """Rewrite `main` to buffers and drop the kernels' functions on tensors.

    Args:
        num_threads: the most chunks of a call, and so the most threads that share it; with 1, no call is marked
            parallel, and 0 leaves it to the number of worker threads.
        guard: "ends" or "starts" of arrays meet a page that nobody may touch, and main says which kernel runs; "apart"
            gives each array memory of its own as well, and guards nothing.
    """
    with module.context, ir.Location.unknown():
        assignment = BufferAssignment(module, guard)
        BufferedMain(assignment, num_threads, KernelGuards(module if guard in ("ends", "starts") else None)).write()
        erase(assignment.main)
        for view in list(module.body.operations):
            if KIND in view.operation.attributes or COMBINER in view.operation.attributes:
                erase(view.operation)


class BufferedMain:
    """Builder of the buffered `main` beside the one on tensors."""

    def __init__(self, assignment: BufferAssignment, num_threads: int, guards: KernelGuards | None = None) -> None:
        self._assignment = assignment
        self._aliases = find_aliases(assignment)
        self._num_threads = num_threads
        self._guards = guards or KernelGuards()
        self._values: dict[ir.Value, ir.Value] = {}
        self._views: dict[tuple[str, int, ir.Type], ir.Value] = {}
        self._arguments: dict[tuple[str, int], ir.Value] = {}
        self._moving: dict[Buffer, ir.Value] = {}
        self._numbers: dict[int, ir.Value] = {}
        self._zero: ir.Value | None = None

    def write(self) -> None:
        old = self._assignment.main
        block = old.regions[0].blocks[0]
        results = [v.type for v in terminator_of(block).operands]
        constants = self._assignment.constants
        byte = ir.IntegerType.get_signless(8)
        rows: list[tuple[str, ir.Type]] = [("parameter", flat_type(a.type)) for a in block.arguments]
        rows += [("constant", ir.MemRefType.get([bytes_of(c.type)], byte)) for c in constants]
        rows += [("result", flat_type(t)) for t in results]
        rows.append(("arena", ir.MemRefType.get([self._assignment.arena_bytes], byte)))
        with ir.InsertionPoint(old):
            made = func.FuncOp("main", ir.FunctionType.get([t for _, t in rows], []), visibility="public")
        made.attributes["arg_attrs"] = _argument_attributes([role for role, _ in rows], constants, self._aliases)
        self._copying = BufferCopies(made.operation)
        self._entry = made.add_entry_block()
        counts: dict[str, int] = {}
        for (role, _), argument in zip(rows, self._entry.arguments, strict=True):
            number = counts.get(role, 0)
            counts[role] = number + 1
            self._arguments[role, number] = argument
        with ir.InsertionPoint(self._entry):
            self._anchor = arith.ConstantOp(ir.IndexType.get(), 0).operation
            self._zero = self._anchor.results[0]
            if self._guards.is_on:
                self._guards.announce(self._arguments["arena", 0], self._assignment.temporaries())
            self._block(block)
            self._copy(self._assignment.copies[terminator_of(block)])
            func.ReturnOp([])

    # ---- buffers as values -----------------------------------------------------------------------------------------

    def _view(self, buffer: Buffer, type_: ir.Type) -> ir.Value:
        """Return the buffer as a flat memref of a type; hoisted to the top of main unless it is a ping-pong buffer."""
        buffer = buffer.find()
        if buffer in self._moving:
            return memref.view(type_, self._moving[buffer], self._zero, [])
        if buffer.role in ("parameter", "result"):
            whole = self._arguments[buffer.role, buffer.number]
            return whole if whole.type == type_ else viewed(whole, type_)
        number = buffer.number if buffer.role == "constant" else 0
        key = (f"{buffer.role} {number}", buffer.offset, type_)  # of all buffers that lie there, one after the other
        if key not in self._views:
            whole = self._arguments[buffer.role, number]
            with ir.InsertionPoint(self._anchor):
                self._views[key] = memref.view(type_, whole, self._number(buffer.offset), [])
        return self._views[key]

    def _place(self, buffer: Buffer) -> ir.Value:
        """Return the buffer as bytes, at its current address."""
        buffer = buffer.find()
        if buffer in self._moving:
            return self._moving[buffer]
        if buffer.role in ("parameter", "result"):
            return as_bytes(self._arguments[buffer.role, buffer.number])
        return self._view(buffer, bytes_type(buffer.bytes))

    def _array(self, value: ir.Value) -> ir.Value:
        return self._view(self._assignment.buffer_of(value), flat_type(value.type))

    def _copy(self, copies: Sequence[Copy]) -> None:
        """Emit copies of one program point, in order."""
        for copy in copies:
            if copy.source.find() is not copy.target.find() and copy.target.bytes:
                type_ = flat_type(copy.type)
                source, target = self._view(copy.source, type_), self._view(copy.target, type_)
                if self._may_be_one(copy):
                    differ = arith.cmpi(arith.CmpIPredicate.ne, _address(source), _address(target))
                    with ir.InsertionPoint(scf.IfOp(differ).then_block):
                        self._copy_whole(source, target)
                        scf.YieldOp([])
                else:
                    self._copy_whole(source, target)

    def _copy_whole(self, source: ir.Value, target: ir.Value) -> None:
        with self._guards.around("a copy"):
            shared = self._copying.write(source, target)
            if shared is not None:
                self._share(*shared)

    def _may_be_one(self, copy: Copy) -> bool:
        """Whether parameter and result may alias: the caller may donate the parameter's memory."""
        source, target = copy.source.find(), copy.target.find()
        return (source.role, target.role) == ("parameter", "result") and self._aliases.get(
            target.number
        ) == source.number

    # ---- operations ------------------------------------------------------------------------------------------------

    def _block(self, block: ir.Block) -> None:
        operations = [v.operation for v in block.operations]
        for op in operations[:-1]:
            with op.location:
                self._operation(op)

    def _operation(self, op: ir.Operation) -> None:
        if op.name == "func.call":
            self._call(op)
        elif op.name == "scf.while":
            self._while(op)
        elif op.name == "scf.if":
            self._if(op)
        elif op.name == "tensor.extract":
            index = self._linear_index(op)
            self._values[op.results[0]] = memref.load(self._array(op.operands[0]), [index])
        elif op.name == "tensor.from_elements":
            memref.store(self._values[op.operands[0]], self._array(op.results[0]), [self._zero])
        elif op.name in PLACES or (op.name == "arith.constant" and is_tensor(op.results[0])):
            return
        else:
            clone_with(op, self._values)

    def _linear_index(self, op: ir.Operation) -> ir.Value:
        index = self._zero
        for extent, position in zip(op.operands[0].type.shape, list(op.operands)[1:], strict=True):
            scaled = arith.muli(index, arith.ConstantOp(ir.IndexType.get(), extent).result)
            index = arith.addi(scaled, self._values[position])
        return index

    def _call(self, op: ir.Operation) -> None:
        call = self._assignment.calls[op]
        self._copy(self._assignment.copies[op])
        if EFFECT not in op.attributes and all(0 in v.type.shape for v in op.results):
            return
        operands = [self._operand(op, i) for i in range(len(op.operands))]
        operands += [self._array(v) for v in op.results]
        operands += [self._view(b, t) for b, t in zip(self._assignment.scratch[op], call.scratch, strict=True)]
        if self._guards.is_on:
            self._guards.fill(self._unwritten(op, call, operands))
        for phase in call.phases:
            if phase.function not in self._assignment.packed[op]:
                self._phase(phase, operands)

    def _unwritten(self, op: ir.Operation, call: KernelCall, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the arrays whose contents no kernel may rely on: all results and scratch, unless something is there.

        That is what is updated or overwritten in place, a parameter's memory that was donated, and what was packed.
        """
        given = {self._assignment.operand_buffer(op, i) for i, v in enumerate(op.operands) if is_tensor(v)}
        kept = {pair.result for pair in call.updates}
        for i, value in enumerate(op.results):
            buffer = self._assignment.buffer_of(value)
            if buffer in given or (buffer.role == "result" and buffer.number in self._aliases):
                kept.add(i)
        done = self._assignment.packed[op]
        packed = {packing.scratch for packing in call.packs if packing.function in done}
        first = len(op.operands)
        results = [operands[first + i] for i in range(len(op.results)) if i not in kept]
        first += len(op.results)
        return results + [operands[first + i] for i in range(len(call.scratch)) if i not in packed]

    def _phase(self, phase: Phase, operands: Sequence[ir.Value]) -> None:
        if phase.items:
            high = self._number(phase.items)
            with self._guards.around(phase.function):
                made = func.CallOp([], phase.function, [*operands, self._zero, high])
                self._share(made.operation, phase.items, phase.grain)

    def _number(self, number: int) -> ir.Value:
        """Return a constant at the top of main."""
        if number not in self._numbers:
            with ir.InsertionPoint(self._anchor):
                self._numbers[number] = arith.ConstantOp(ir.IndexType.get(), number).result
        return self._numbers[number]

    def _pack_ahead(self, ahead: PackedAhead) -> None:
        """Pack what a loop does not change: the phase uses two buffers only, the input and what it makes of it."""
        op, packing = ahead.call, ahead.packing
        call = self._assignment.calls[op]
        phase = next(phase for phase in call.phases if phase.function == packing.function)
        types = [flat_type(v.type) if is_tensor(v) else v.type for v in (*op.operands, *op.results)]
        operands = [ub.poison(t) for t in (*types, *call.scratch)]
        operands[packing.input] = self._operand(op, packing.input)
        operands[len(types) + packing.scratch] = self._view(ahead.buffer, call.scratch[packing.scratch])
        if self._guards.is_on:
            self._guards.fill([operands[len(types) + packing.scratch]])
        self._phase(phase, operands)

    def _share(self, call: ir.Operation, items: int, grain: int) -> None:
        """Mark a call as a parallel-for, if its items exceed the grain."""
        # Dynamic scheduling hands out one grain at a time: no more grains than threads allowed, no more threads.
        grain = max(1, grain, -(-items // self._num_threads) if self._num_threads else 1)
        if items > grain:
            call.attributes[PARALLEL_GRAIN] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), grain)

    def _operand(self, op: ir.Operation, number: int) -> ir.Value:
        value = op.operands[number]
        if not is_tensor(value):
            return self._values[value]
        return self._view(self._assignment.operand_buffer(op, number), flat_type(value.type))

    def _while(self, op: ir.Operation) -> None:
        self._copy(self._assignment.copies[op])
        for ahead in self._assignment.ahead.get(op, ()):
            self._pack_ahead(ahead)
        scalars = [i for i, v in enumerate(op.operands) if not is_tensor(v)]
        rotations = self._assignment.rotations[op]
        moving = [buffer.find() for rotation in rotations for buffer in rotation.buffers]
        places = [self._place(buffer) for buffer in moving]
        starts = [*(self._values[op.operands[i]] for i in scalars), *places]
        types = [v.type for v in starts]
        loop = scf.WhileOp(types, starts)
        outside = dict(self._moving)
        for old, new in zip(op.regions, (loop.before, loop.after), strict=True):
            source = old.blocks[0]
            block = new.blocks.append(*types, arg_locs=[op.location] * len(types))
            arguments = list(block.arguments)
            self._values.update(zip([source.arguments[i] for i in scalars], arguments, strict=False))
            self._moving.update(zip(moving, arguments[len(scalars) :], strict=True))
            terminator = terminator_of(source)
            with ir.InsertionPoint(block):
                self._block(source)
                if terminator.name == "scf.condition":
                    forwarded = [self._values[terminator.operands[i + 1]] for i in scalars]
                    scf.ConditionOp(
                        self._values[terminator.operands[0]], [*forwarded, *(self._moving[b] for b in moving)]
                    )
                else:
                    yielded = [self._values[terminator.operands[i]] for i in scalars]
                    self._copy(self._assignment.copies[terminator])
                    scf.YieldOp([*yielded, *self._moved_on(rotations)])
        self._moving = outside
        results = list(loop.results)
        self._values.update(zip([op.results[i] for i in scalars], results, strict=False))
        self._settle(rotations, places, results[len(scalars) :])

    def _moved_on(self, rotations: Sequence[PingPong]) -> list[ir.Value]:
        """Return the ping-pong buffers' addresses for the next iteration."""
        found = []
        for rotation in rotations:
            first, *others = [self._moving[buffer.find()] for buffer in rotation.buffers]
            found += [*others, first]
        return found

    def _settle(self, rotations: Sequence[PingPong], before: Sequence[ir.Value], after: Sequence[ir.Value]) -> None:
        """Copy loop results back where the ping-pong buffers do not end at their initial addresses."""
        begin = 0
        for rotation in rotations:
            places = slice(begin, begin := begin + len(rotation.buffers))
            if rotation.is_settled_stepwise:
                self._turn_back(rotation, before[places], after[places])
                continue
            for other, copies in zip(before[places][1:], rotation.settling, strict=True):
                moved = arith.cmpi(arith.CmpIPredicate.eq, _address(after[places][0]), _address(other))
                with ir.InsertionPoint(scf.IfOp(moved).then_block):
                    self._copy(copies)
                    scf.YieldOp([])

    def _turn_back(self, rotation: PingPong, before: Sequence[ir.Value], after: Sequence[ir.Value]) -> None:
        """Copy all arrays of a rotation one place back, until the first is at its initial address."""
        types = [buffer.type for buffer in after]
        loop = scf.WhileOp(types, list(after))
        blocks = [
            r.blocks.append(*types, arg_locs=[ir.Location.current] * len(types)) for r in (loop.before, loop.after)
        ]
        with ir.InsertionPoint(blocks[0]):
            first, *others = blocks[0].arguments
            is_moved = arith.cmpi(arith.CmpIPredicate.ne, _address(first), _address(before[0]))
            scf.ConditionOp(is_moved, [first, *others])
        with ir.InsertionPoint(blocks[1]):
            (copies,) = rotation.settling
            self._copy(copies)
            *others, last = blocks[1].arguments
            scf.YieldOp([last, *others])

    def _if(self, op: ir.Operation) -> None:
        scalars = [i for i, v in enumerate(op.results) if not is_tensor(v)]
        made = scf.IfOp(self._values[op.operands[0]], [op.results[i].type for i in scalars], has_else=True)
        for old, block in zip(op.regions, (made.then_block, made.else_block), strict=True):
            if not len(old.blocks):  # an absent else
                with ir.InsertionPoint(block):
                    scf.YieldOp([])
                continue
            source = old.blocks[0]
            terminator = terminator_of(source)
            with ir.InsertionPoint(block):
                self._block(source)
                self._copy(self._assignment.copies[terminator])
                scf.YieldOp([self._values[terminator.operands[i]] for i in scalars])
        self._values.update(zip([op.results[i] for i in scalars], made.results, strict=True))


def _address(buffer: ir.Value) -> ir.Value:
    return memref.extract_aligned_pointer_as_index(buffer)


def _argument_attributes(
    roles: Sequence[str], constants: Sequence[ir.Attribute], aliases: Mapping[int, int]
) -> ir.ArrayAttr:
    rows: list[ir.Attribute] = []
    counts: Counter[str] = Counter()
    for role in roles:
        row: dict[str, ir.Attribute] = {ROLE: ir.StringAttr.get(role)}
        number = counts[role]
        counts[role] += 1
        if role == "constant":
            row[VALUE] = constants[number]
        elif role == "result" and number in aliases:
            row[ALIAS] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), aliases[number])
        rows.append(ir.DictAttr.get(row))
    return ir.ArrayAttr.get(rows)
