"""The general path of kernels: any operations on tensors, through upstream's bufferization and linalg's loops.

It is correct for everything and fast for little; emitters take what matters for speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import mlir.ir as ir
from mlir.dialects import bufferization, func, memref, tensor

from stablexla.dialects.choices import Gate
from stablexla.dialects.contexts import pass_manager
from stablexla.dialects.erasing import erase
from stablexla.lowering.support.generic import copy_buffer
from stablexla.lowering.support.kernels import INDEPENDENT
from stablexla.lowering.support.operations import clone_with, defining, operations_named, terminator_of, walk
from stablexla.targets.codegen.kernel import UNBOUNDED, Emitted, Kernel, flat_type
from stablexla.targets.codegen.sizes import bytes_of
from stablexla.targets.codegen.sums.general import block_general_sums
from stablexla.targets.grouping.classify import Kind
from stablexla.targets.grouping.loops import loops_of, num_inputs, reads_outputs

FUSE = "func.func(linalg-fuse-elementwise-ops)"
# No tensor is left afterwards; memref.copy would become a call of a slow C function, so copies are loops too.
BUFFERIZE = "eliminate-empty-tensors,one-shot-bufferize,canonicalize,cse,canonicalize"
LOOPS = "convert-linalg-to-loops,canonicalize,cse"
# Grain: fewer elements than these are not worth a second thread; bodies on this path are slow.
GRAIN_ELEMENTS = Gate("general.grain-elements", 4096, eager=1)
# The most that the iterations of a loop may allocate on the stack of their thread.
STACK_BYTES = Gate("general.stack-bytes", 1 << 18, eager=64)


def emit_general(kernels: Sequence[Kernel]) -> list[Emitted]:
    """Emit the functions of all given kernels, in one run of the passes."""
    if not kernels:
        return []
    with kernels[0].func.context, ir.Location.unknown():
        module, updates = bufferize_kernels(kernels)
        block_general_sums(module)
        run_passes(module, LOOPS)
        emitted = []
        for kernel, view, update in zip(kernels, list(module.body.operations), updates, strict=True):
            independent = kernel.kind == Kind.MAP.value or _made_independent(kernel, view.operation)
            scratch = allocations_to_scratch(view.operation)
            items = _take_range(view.operation) if independent else 1
            grain = max(1, items * GRAIN_ELEMENTS() // max(1, _elements(kernel)))
            mark_noalias(view.operation)
            if operations_named(view.operation, "scf.while"):
                view.operation.attributes[UNBOUNDED] = ir.UnitAttr.get()
            move_before(view.operation, kernel.func.operation)
            emitted.append(Emitted(items=items, grain=grain, scratch=scratch, updates=update))
    return emitted


def bufferize_kernels(
    kernels: Sequence[Kernel], prepare: Callable[[ir.Module], None] = lambda module: None
) -> tuple[ir.Module, list[tuple[tuple[int, int], ...]]]:
    """Bufferize kernels: build a module of functions that do the kernels' work on flat buffers, in linalg's operations.

    Args:
        prepare: changes the module before it is bufferized.

    Returns:
        The module, and for each function which results update which inputs.
    """
    module = ir.Module.create()
    updates = [_build(module, kernel) for kernel in kernels]
    for op in operations_named(module.operation, "linalg.generic"):
        if reads_outputs(op) and not any(loops_of(op).reduced):
            _read_as_inputs(op)
    run_passes(module, FUSE)
    prepare(module)
    separate_empties(module)
    run_passes(module, BUFFERIZE)
    write_copies_out(module)
    return module, updates


def write_copies_out(module: ir.Module) -> None:
    """Replace copies of buffers by operations of linalg, and so by loops."""
    for op in operations_named(module.operation, "memref.copy"):
        with op.location, ir.InsertionPoint(op):
            copy_buffer(op.operands[0], op.operands[1])
        erase(op)


def _read_as_inputs(op: ir.Operation) -> None:
    """Make the outputs that a map reads inputs of it.

    Fused with what has more loops it would be computed several times, each time on what it has written.
    """
    block, maps = op.regions[0].blocks[0], list(op.attributes["indexing_maps"])
    inputs, outputs = num_inputs(op), len(op.results)
    with op.location, ir.InsertionPoint(op):
        places = [tensor.empty(r.type.shape, r.type.element_type) for r in op.results]
        made = ir.Operation.create(
            op.name,
            results=[r.type for r in op.results],
            operands=[*op.operands, *places],
            attributes={
                **dict(op.attributes.items()),
                "indexing_maps": ir.ArrayAttr.get([*maps, *maps[inputs:]]),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([inputs + outputs, outputs]),
            },
            regions=1,
        )
        block.append_to(made.regions[0])
        for result in op.results:
            block.add_argument(result.type.element_type, op.location)
    for old, new in zip(op.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    erase(op)


def run_passes(module: ir.Module, passes: str) -> None:
    """Run a textual pass pipeline on a module."""
    pass_manager("upstream", f"builtin.module({passes})").run(module.operation)


def separate_empties(module: ir.Module) -> None:
    """Give each use of an empty or filled tensor its own def, or two arrays would be bufferized as one."""
    for name in ("linalg.fill", "tensor.empty"):
        operations = walk(module.operation)
        order = {op: number for number, op in enumerate(operations)}  # use lists are no part of a module's text
        for op in operations:
            if op.name == name:
                uses = [(order[use.owner.operation], use.operand_number, use.owner) for use in op.results[0].uses]
                for place, operand, owner in sorted(uses, key=lambda use: use[:2])[1:]:
                    with ir.InsertionPoint(op):
                        owner.operands[operand] = op.clone().results[0]
                    order[owner.operation] = place  # an operation's hash is that of its operands


def move_before(op: ir.Operation, place: ir.Operation) -> None:
    """Move an operation of another module before one of this module."""
    with ir.InsertionPoint(place):
        op.clone()
    erase(op)


def _build(module: ir.Module, kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """Clone the kernel's operations between views of its flat buffers; return which results update which inputs."""
    updates = _updated_inputs(kernel)
    index = ir.IndexType.get()
    results = [v.type for v in kernel.results]
    types = [flat_type(v.type) for v in kernel.inputs] + [flat_type(t) for t in results] + [index, index]
    with ir.InsertionPoint(module.body):
        made = func.FuncOp(kernel.impl_name, ir.FunctionType.get(types, []), visibility="public")
    made.attributes["no_inline"] = ir.UnitAttr.get()
    block = made.add_entry_block()
    count = len(kernel.inputs)
    with ir.InsertionPoint(block):
        targets = [_shaped(b, t) for b, t in zip(block.arguments[count:], results, strict=False)]
        mapping: dict[ir.Value, ir.Value] = {}
        for i, value in enumerate(kernel.inputs):
            changed = next((r for r, source in updates if source == i), None)
            mapping[value] = (
                _as_tensor(_shaped(block.arguments[i], value.type), value.type, writable=False)
                if changed is None
                else _as_tensor(targets[changed], value.type, writable=True)
            )
        for op in kernel.ops:
            clone_with(op, mapping)
        for target, value in zip(targets, kernel.results, strict=True):
            bufferization.materialize_in_destination(None, mapping[value], target, restrict=True, writable=True)
        func.ReturnOp([])
    return updates


def _shaped(buffer: ir.Value, type_: ir.Type) -> ir.Value:
    """View a flat buffer with a tensor's extents; scalars are left alone."""
    if not isinstance(type_, ir.RankedTensorType):
        return buffer
    shape = list(type_.shape)
    strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    result = ir.MemRefType.get(shape, type_.element_type)
    return ir.Operation.create(
        "memref.reinterpret_cast",
        results=[result],
        operands=[buffer],
        attributes={
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
            "static_offsets": ir.DenseI64ArrayAttr.get([0]),
            "static_sizes": ir.DenseI64ArrayAttr.get(shape),
            "static_strides": ir.DenseI64ArrayAttr.get(strides),
        },
    ).result


def _as_tensor(buffer: ir.Value, type_: ir.Type, *, writable: bool) -> ir.Value:
    if not isinstance(type_, ir.RankedTensorType):
        return buffer
    return bufferization.to_tensor(type_, buffer, restrict=True, writable=writable or None)


def _updated_inputs(kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """Find results that are an input with some elements replaced, by nested insertions or in loops."""
    found = []
    for r, value in enumerate(kernel.results):
        before = _before_changes(value)
        if before in kernel.inputs and before != value:
            found.append((r, kernel.inputs.index(before)))
    return tuple(found)


def _before_changes(value: ir.Value) -> ir.Value:
    """Follow insertions, loops that carry the array and branches back to the array before them."""
    maker = defining(value)
    while maker is not None and maker.name in ("tensor.insert_slice", "tensor.insert", "scf.for", "scf.if"):
        number = list(maker.results).index(value)
        if maker.name == "scf.if":
            block = maker.regions[1].blocks[0]
            value = terminator_of(block).operands[number]
        else:  # a loop's first three operands are its bounds and the step
            value = maker.operands[3 + number if maker.name == "scf.for" else 1]
        maker = defining(value)
    return value


def _elements(kernel: Kernel) -> int:
    return max((prod(v.type.shape) for v in kernel.results), default=0)


def _take_range(function: ir.Operation) -> int:
    """Restrict the function's one outermost loop, whose iterations are independent, to the work items [lo, hi).

    Returns:
        Its trip count; 1 when there is no such loop, and the function stays as it is.
    """
    block = function.regions[0].blocks[0]
    loops = [v.operation for v in block.operations if v.operation.name == "scf.for"]
    if len(loops) != 1 or len(loops[0].operands) != 3:
        return 1
    bounds = [defining(v) for v in loops[0].operands]
    if not all(b is not None and b.name == "arith.constant" for b in bounds):
        return 1
    low, high, step = (ir.IntegerAttr(b.attributes["value"]).value for b in bounds if b is not None)
    if (low, step) != (0, 1):
        return 1
    *_, lo, hi = block.arguments
    loops[0].operands[0], loops[0].operands[1] = lo, hi
    return int(high)


def _made_independent(kernel: Kernel, function: ir.Operation) -> bool:
    """Move allocations onto each thread's stack; return whether the outermost loop's iterations may run in parallel."""
    if INDEPENDENT not in kernel.func.attributes:
        return False
    allocations = operations_named(function, "memref.alloc")
    if sum(bytes_of(op.results[0].type) for op in allocations) > STACK_BYTES():
        return False
    for op in allocations:
        with op.location, ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]):
            local = memref.AllocaOp(op.results[0].type, [], [], alignment=64)
        op.results[0].replace_all_uses_with(local.result)
        erase(op)
    for op in list(walk(function)):
        if op.name == "memref.dealloc":
            erase(op)
    return True


def mark_noalias(function: ir.Operation) -> None:
    """Mark the buffer arguments noalias, so that LLVM can vectorize.

    A result that updates an input occupies the input's buffer; the function reads it there, and not as the input.
    """
    types = [a.type for a in function.regions[0].blocks[0].arguments]
    noalias, none = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()}), ir.DictAttr.get({})
    rows = [noalias if isinstance(t, ir.MemRefType) else none for t in types]
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(rows)


def allocations_to_scratch(function: ir.Operation) -> tuple[tuple[str, int], ...]:
    """Turn each allocation into a scratch argument before %lo and %hi, so that a call allocates nothing."""
    scratch: list[tuple[str, int]] = []
    block = function.regions[0].blocks[0]
    for op in list(walk(function)):
        if op.name not in ("memref.alloc", "memref.dealloc"):
            continue
        if op.name == "memref.alloc":
            type_ = ir.MemRefType(op.results[0].type)
            flat = ir.MemRefType.get([prod(type_.shape)], type_.element_type)
            argument = _insert_argument(block, flat, op.location)
            with op.location, ir.InsertionPoint.at_block_begin(block):
                tensor_like = ir.RankedTensorType.get(type_.shape, type_.element_type)
                op.results[0].replace_all_uses_with(_shaped(argument, tensor_like))
            scratch.append((str(type_.element_type), prod(type_.shape)))
        erase(op)
    types = [a.type for a in block.arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    return tuple(scratch)


def _insert_argument(block: ir.Block, type_: ir.Type, location: ir.Location) -> ir.Value:
    """Insert an argument before %lo and %hi."""
    *_, low, high = block.arguments
    index = ir.IndexType.get()
    new_low, new_high = (block.add_argument(index, location) for _ in range(2))
    low.replace_all_uses_with(new_low)
    high.replace_all_uses_with(new_high)
    position = len(block.arguments) - 4
    block.erase_argument(position + 1)
    argument = block.arguments[position]
    argument.set_type(type_)
    return argument
