"""Rematerializes generators: an iota or a fill is made again before each of its users, so that it can fuse with it."""

from __future__ import annotations

import ctypes

import mlir.ir as ir

from stablexla.lowering.support.operations import is_tensor, program_of, remap, walk
from stablexla.targets.grouping.loops import is_generic, num_inputs
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-repeat-generators", "makes an iota or a fill again before each of its users")
def repeat_generators(module: ir.Module) -> None:
    """Clone every `linalg.generic` without tensor inputs for each of its users but the first."""
    operations = [op for function in program_of(module) for op in walk(function)]
    order = {_address(op): float(number) for number, op in enumerate(operations)}
    for op in operations:
        if is_generic(op) and _is_generator(op):
            _repeat_for_readers(op, order)


def _is_generator(op: ir.Operation) -> bool:
    """Match an operation without tensor inputs (iota, fill): cheaper to rematerialize than to load."""
    return len(op.results) == 1 and not any(is_tensor(v) for v in list(op.operands)[: num_inputs(op)])


def _repeat_for_readers(op: ir.Operation, order: dict[int, float]) -> None:
    """Clone `op` for its users by `order`, the program order: a parsed module has its use lists in another one."""
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
    """Return the operation's address as its key: its hash depends on its operands, which change."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = get(op._CAPIPtr, b"mlir.ir.Operation._CAPIPtr")
    return address


def _loop_nest_of(op: ir.Operation) -> ir.Operation:
    """Return the linalg operation whose body contains `op`, such as a gather; or `op` itself."""
    nest, inside = op, op
    while inside.parent is not None:
        inside = inside.parent.operation
        if inside.name.startswith("linalg."):
            nest = inside
    return nest
