"""Before grouping: loops get one form, and what the lowering left lazy is written out where memory needs it."""

from __future__ import annotations

import ctypes

import mlir.ir as ir
from mlir.dialects import arith, linalg, scf

from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import CompileError
from stablexla.lowering.support.kernels import EFFECT
from stablexla.lowering.support.operations import defining, is_tensor, main_of, remap, walk
from stablexla.targets.grouping.classify import is_generic, num_inputs
from stablexla.targets.grouping.repeat import repeat_cheap
from stablexla.targets.grouping.rolls import compute_through_rolls
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-prepare-groups", "turns splats into loops and repeats cheap producers before each reader")
def prepare_groups(module: ir.Module) -> None:
    """Drops unused operations, turns `tensor.splat` into `linalg.generic`, and gives each reader its own generator.

    Raises:
        CompileError: a loop whose condition hands on a value that it computed.
    """
    main = main_of(module)
    compute_through_rolls(main)
    drop_unused(main)
    for op in list(walk(main)):
        if op.name == "scf.while":
            _align(op)
    for op in list(walk(main)):
        if op.name == "tensor.splat":
            _write_out(op, op.operands[0])
        elif op.name == "arith.constant" and is_tensor(op.results[0]) and op.attributes["value"].is_splat:
            # The canonicaliser made it of a splat; as a constant it would be read from memory, element by element.
            with op.context, op.location, ir.InsertionPoint(op):
                element = op.results[0].type.element_type
                _write_out(op, arith.ConstantOp(element, op.attributes["value"].get_splat_value()).result)
    operations = list(walk(main))
    order = {_address(op): float(number) for number, op in enumerate(operations)}
    for op in operations:
        if is_generic(op) and _is_generator(op):
            _repeat_for_readers(op, order)
    repeat_cheap(main)


def _align(loop: ir.Operation) -> None:
    """Makes a loop carry the same values, in the same order, through its condition, its body and its results.

    The canonicaliser takes results away that nobody reads, though the condition still needs what they carry.
    """
    before, after = (region.blocks[0] for region in loop.regions)
    condition = before.operations[len(before.operations) - 1].operation
    arguments = list(before.arguments)
    go, *forwarded = condition.operands
    if forwarded == arguments:
        return
    types = [a.type for a in arguments]
    with loop.context, loop.location, ir.InsertionPoint(loop):
        made = scf.WhileOp(types, list(loop.operands))
    sources = [_source(value, before, list(made.results)) for value in forwarded]
    for old, (_, result) in zip(loop.results, sources, strict=True):
        old.replace_all_uses_with(result)
    new = [after.add_argument(t, loop.location) for t in types]
    for position, value in sources:
        after.arguments[0].replace_all_uses_with(value if position is None else new[position])
        after.erase_argument(0)
    with condition.location, ir.InsertionPoint(condition):
        scf.ConditionOp(go, arguments)
    erase(condition)
    before.append_to(made.before)
    after.append_to(made.after)
    erase(loop)


def _source(value: ir.Value, before: ir.Block, results: list[ir.Value]) -> tuple[int | None, ir.Value]:
    """Which argument of the condition a value that it hands on is, if any, and what stands for it after the loop."""
    arguments = list(before.arguments)
    if value in arguments:
        position = arguments.index(value)
        return position, results[position]
    maker = defining(value)
    if maker is not None and maker.block == before:
        raise CompileError(f"the condition of a loop hands on what it computed: {maker.name}")
    return None, value


def drop_unused(main: ir.Operation) -> None:
    """Removes operations without effects that nobody reads."""
    keep = ("func.func", "func.return", "scf.yield", "scf.condition", "scf.while", "scf.if", "scf.for")
    for op in reversed(list(walk(main))):
        if op.name in keep or not op.results:
            continue
        if EFFECT in op.attributes or (op.parent is not None and op.parent.name == "linalg.generic"):
            continue
        if all(next(iter(r.uses), None) is None for r in op.results):
            erase(op)


def _write_out(op: ir.Operation, scalar: ir.Value) -> None:
    """A tensor of equal elements as a loop that stores its scalar."""
    result = op.results[0].type
    rank = len(result.shape)
    maps = [ir.AffineMap.get(rank, 0, []), ir.AffineMap.get_identity(rank)]
    with op.context, op.location, ir.InsertionPoint(op):
        empty = ir.Operation.create("tensor.empty", results=[result]).result
        made = ir.Operation.create(
            "linalg.generic",
            results=[result],
            operands=[scalar, empty],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
                "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
            },
            regions=1,
        )
        element = result.element_type
        block = made.regions[0].blocks.append(element, element, arg_locs=[op.location] * 2)
        with ir.InsertionPoint(block):
            linalg.YieldOp([block.arguments[0]])
    op.results[0].replace_all_uses_with(made.result)
    erase(op)


def _is_generator(op: ir.Operation) -> bool:
    """Reads no array: an iota or a fill, cheaper to make again than to read from memory."""
    return len(op.results) == 1 and not any(is_tensor(v) for v in list(op.operands)[: num_inputs(op)])


def _repeat_for_readers(op: ir.Operation, order: dict[int, float]) -> None:
    """`order` numbers the operations: a module that was read from its text has other lists of uses."""
    users = {_address(user): user for user in (_loop_nest_of(use.owner.operation) for use in op.results[0].uses)}
    places = sorted(users, key=order.__getitem__)
    for place in places:
        user = users[place]
        if place == places[0] and user.block == op.block:
            continue
        with op.context, op.location, ir.InsertionPoint(user):
            copy = op.clone()
        remap(user, {op.results[0]: copy.operation.results[0]})
        order[_address(copy.operation)] = order[place] - 0.5


def _address(op: ir.Operation) -> int:
    """What an operation is known by: its hash is that of its operands, which change."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = get(op._CAPIPtr, b"mlir.ir.Operation._CAPIPtr")
    return address


def _loop_nest_of(op: ir.Operation) -> ir.Operation:
    """The linalg operation in whose body an operation stands, such as one that reads at computed places; or itself."""
    nest, inside = op, op
    while inside.parent is not None:
        inside = inside.parent.operation
        if inside.name.startswith("linalg."):
            nest = inside
    return nest
