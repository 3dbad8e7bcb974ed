"""Keep loop-carried and branch-selected scalars on the device where the host need not know them.

Such a scalar becomes an array of one element before buffer assignment. Conditions of loops and branches stay on the
host, and so does what the host computes without a load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import arith, scf, tensor

from stablexla.dialects.erasing import erase
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.kernels import KIND
from stablexla.lowering.support.operations import defining, is_tensor, main_of, walk
from stablexla.targets.gpu.launch.device_scalars import is_scalar_computation
from stablexla.targets.host.emitters import HOST_EMITTERS
from stablexla.targets.pipeline.passes import module_pass

_NOT_ASKING = frozenset(["func.func", "func.call", "func.return", "scf.while", "scf.yield", "tensor.from_elements"])
"""Operations that need no scalar on the host, or only pass it on."""


@module_pass("stablexla-carry-on-device", "has loops carry numbers in device memory where the host need not know them")
def carry_on_device(module: ir.Module) -> None:
    """Rewrite `main`; to be run while it is on tensors."""
    with module.context, ir.Location.unknown():
        flow = _Flow(module)
        wanted = {op: places for op in flow.holders if (places := flow.places(op))}
        for op, places in reversed(wanted.items()):  # inner ones first
            (_loop if op.name == "scf.while" else _branch)(op, places)
        if wanted:
            _forget_boxes(main_of(module))


class _Flow:
    """Data-flow analysis: which scalars of `main` the host must know, and which it could only load from the device.

    Attributes:
        holders: the loops and branches of `main`, outer ones first.
    """

    def __init__(self, module: ir.Module) -> None:
        main = main_of(module)
        operations = walk(main)
        self.holders = [op for op in operations if op.name in ("scf.while", "scf.if")]
        self._host_kernels = {
            symbol_of(view)
            for view in module.body.operations
            if KIND in view.operation.attributes
            and ir.StringAttr(view.operation.attributes[KIND]).value in HOST_EMITTERS
        }
        self._needed = self._spread([v for op in operations for v in self._asked(op)], self._sources)
        read = [v for op in operations if op.name == "tensor.extract" for v in op.results]
        self._read = self._spread(read, self._targets)

    def places(self, op: ir.Operation) -> list[int]:
        """Return which results of a loop or branch are to be kept on the device, with all their sources."""
        families = {place: self._family(op, place) for place, v in enumerate(op.results) if not is_tensor(v)}
        return [place for place, family in families.items() if family & self._read and not family & self._needed]

    def _family(self, op: ir.Operation, place: int) -> set[ir.Value]:
        found = {op.results[place]}
        for region in op.regions if op.name == "scf.while" else ():
            found.add(region.blocks[0].arguments[place])
        return found

    def _asked(self, op: ir.Operation) -> list[ir.Value]:
        """Return the scalars an operation needs on the host; loops without kernels run there too, as it is fastest."""
        if op.name == "scf.while" and all(inner.name != "func.call" for inner in walk(op)):
            inside = [argument for region in op.regions for argument in region.blocks[0].arguments]
            return [v for v in (*op.operands, *op.results, *inside) if not is_tensor(v)]
        if op.name in ("scf.condition", "scf.if"):
            return [op.operands[0]]
        if op.name == "func.call" and ir.FlatSymbolRefAttr(op.attributes["callee"]).value in self._host_kernels:
            return list(op.operands)
        return [] if is_scalar_computation(op) or op.name in _NOT_ASKING else list(op.operands)

    @staticmethod
    def _spread(start: Sequence[ir.Value], step: Callable[[ir.Value], Sequence[ir.Value]]) -> set[ir.Value]:
        found, waiting = set[ir.Value](), list(start)
        while waiting:
            value = waiting.pop()
            if value not in found and not is_tensor(value):
                found.add(value)
                waiting += step(value)
        return found

    @staticmethod
    def _sources(value: ir.Value) -> list[ir.Value]:
        """Return the values that flow into one."""
        maker = defining(value)
        if maker is not None:
            if is_scalar_computation(maker):
                return list(maker.operands)
            if maker.name in ("scf.while", "scf.if"):
                return _given(maker, value.result_number)
            return []
        block = value.owner
        holder = block.owner.operation
        if holder.name != "scf.while":
            return []
        if block == holder.regions[0].blocks[0]:
            return [holder.operands[value.arg_number], _last(holder.regions[1]).operands[value.arg_number]]
        return [_last(holder.regions[0]).operands[value.arg_number + 1]]

    @staticmethod
    def _targets(value: ir.Value) -> list[ir.Value]:
        """Return the values that one flows into."""
        found: list[ir.Value] = []
        for use in value.uses:
            user, number = use.owner.operation, use.operand_number
            if is_scalar_computation(user):
                found += user.results
            elif user.name == "scf.while":
                found.append(user.regions[0].blocks[0].arguments[number])
            elif user.name == "scf.condition" and number:
                holder = user.parent.operation
                found += [holder.regions[1].blocks[0].arguments[number - 1], holder.results[number - 1]]
            elif user.name == "scf.yield":
                holder = user.parent.operation
                inside = holder.name == "scf.while"
                found.append(holder.regions[0].blocks[0].arguments[number] if inside else holder.results[number])
        return found


def _given(op: ir.Operation, place: int) -> list[ir.Value]:
    """Return the values that become a result of a loop or branch."""
    if op.name == "scf.while":
        return [_last(op.regions[0]).operands[place + 1]]
    return [_last(region).operands[place] for region in op.regions if len(region.blocks)]


def _last(region: ir.Region) -> ir.Operation:
    operations = region.blocks[0].operations
    return operations[len(operations) - 1].operation


# ---- rewriting -------------------------------------------------------------------------------------------------------


def _boxed(value: ir.Value) -> ir.Value:
    """Return the array of a scalar; memory holds a truth value as a byte."""
    if value.type == ir.IntegerType.get_signless(1):
        value = arith.extui(ir.IntegerType.get_signless(8), value)
    return tensor.from_elements(ir.RankedTensorType.get([], value.type), [value])


def _unboxed(value: ir.Value, type_: ir.Type, place: ir.InsertionPoint) -> None:
    """Replace the uses of a scalar of that type by the element of the array that it has become."""
    users = [(use.owner.operation, use.operand_number) for use in value.uses]
    if users:
        with place:
            element = tensor.extract(value, [])
            if element.type != type_:
                element = arith.cmpi(arith.CmpIPredicate.ne, element, arith.constant(element.type, 0))
        for user, number in users:
            user.operands[number] = element


def _forget_boxes(main: ir.Operation) -> None:
    """Fold an array made of the element of an array of one element to that array."""
    for op in walk(main):
        if op.name == "tensor.from_elements" and op.results[0].type.rank == 0:
            maker = defining(op.operands[0])
            if maker is not None and maker.name == "tensor.extract" and maker.operands[0].type == op.results[0].type:
                op.results[0].replace_all_uses_with(maker.operands[0])
                erase(op)


def _box_operands(op: ir.Operation, numbers: Sequence[int]) -> None:
    with op.location, ir.InsertionPoint(op):
        for number in numbers:
            op.operands[number] = _boxed(op.operands[number])


def _loop(op: ir.Operation, places: list[int]) -> None:
    _box_operands(op, places)
    _box_operands(_last(op.regions[0]), [place + 1 for place in places])
    _box_operands(_last(op.regions[1]), places)
    with op.location, ir.InsertionPoint(op):
        made = scf.WhileOp([v.type for v in op.operands], list(op.operands))
    for old, new in zip(op.regions, made.operation.regions, strict=True):
        block = old.blocks[0]
        block.append_to(new)
        for place in places:
            argument = block.arguments[place]
            scalar = argument.type
            argument.set_type(op.operands[place].type)
            _unboxed(argument, scalar, ir.InsertionPoint.at_block_begin(block))
    _replace(op, made.operation, places)


def _branch(op: ir.Operation, places: list[int]) -> None:
    types = [v.type for v in op.results]
    for region in op.regions:
        _box_operands(_last(region), places)
        for place in places:
            types[place] = _last(region).operands[place].type
    with op.location, ir.InsertionPoint(op):
        made = ir.Operation.create("scf.if", results=types, operands=list(op.operands), regions=2)
    for old, new in zip(op.regions, made.regions, strict=True):
        old.blocks[0].append_to(new)
    _replace(op, made, places)


def _replace(op: ir.Operation, made: ir.Operation, places: list[int]) -> None:
    for number, (old, new) in enumerate(zip(op.results, made.results, strict=True)):
        scalar = old.type
        old.replace_all_uses_with(new)
        if number in places:
            with op.location:
                _unboxed(new, scalar, ir.InsertionPoint(op))
    erase(op)
