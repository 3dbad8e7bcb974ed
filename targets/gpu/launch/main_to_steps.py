"""Evaluate `main` at compile time: a list of steps for programs that are to run without its machine code.

Addresses are known as places in the buffers that `main` takes, so that loops and branches whose conditions are
integers of the host are carried out here. A program that asks the device or the host for a number it depends on has no
such list.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import mlir.ir as ir
import numpy as np

from stablexla.lowering.support.operations import main_of, operations_named, terminator_of
from stablexla.targets.codegen.sizes import bytes_of, element_bytes
from stablexla.targets.gpu.emit import ON_HOST
from stablexla.targets.gpu.launch.host_calls import functions_of_host
from stablexla.targets.gpu.launch.host_integers import evaluate, width_of
from stablexla.targets.gpu.launch.host_main import is_dense
from stablexla.targets.gpu.launch.launches import kernel_of, launch_of, parameters_of
from stablexla.targets.gpu.launch.steps import (
    CopyStep,
    GpuProgram,
    LaunchStep,
    Obstacle,
    Place,
    Scalar,
    Step,
    WriteStep,
)
from stablexla.targets.gpu.ptx.to_ptx import ptx_of
from stablexla.targets.llvm.entry import argument_roles, entry_of
from stablexla.targets.pipeline.messages import place_of

LONGEST = 1 << 16
"""Steps and iterations of loops that are carried out; a longer program has no list."""

_FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


class _Unknown:
    """A scalar that is known only when the program runs."""


_UNKNOWN = _Unknown()
_Value = Place | int | _Unknown


class _Stopped(Exception):
    """`main` cannot be carried out any further."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(str(obstacle))
        self.obstacle = obstacle


def program_of(module: ir.Module) -> GpuProgram:
    """Return the program in a module after the step `ptx`: its kernels, and what `main` does with them.

    Raises:
        CompileError: the module holds no PTX or no `main` of the calling contract.
    """
    main = main_of(module)
    entry = entry_of(main)
    launches = {kernel_of(op): launch_of(op) for op in operations_named(main, "gpu.launch_func")}
    found = _MainEvaluation(module, main)
    obstacle = None
    try:
        found.run()
    except _Stopped as stopped:
        obstacle = stopped.obstacle
    arena = list(main.regions[0].blocks[0].arguments)[-1]
    steps = () if obstacle is not None else tuple(found.steps)
    return GpuProgram(ptx_of(module), launches, entry.constants, bytes_of(arena.type), entry.aliases, steps, obstacle)


class _MainEvaluation:
    """Carry out `main`; `steps` are those so far."""

    def __init__(self, module: ir.Module, main: ir.Operation) -> None:
        self.steps: list[Step] = []
        self._main = main
        self._length = 0
        self._on_host = functions_of_host(module)
        attributes = module.operation.attributes
        rows = ir.ArrayAttr(attributes[ON_HOST]) if ON_HOST in attributes else ()
        self._host_names = ", ".join(dict.fromkeys(ir.StringAttr(row).value for row in rows))
        self._values: dict[ir.Value, _Value] = {}

    def run(self) -> None:
        """Carry it out. Raises _Stopped."""
        counts: dict[str, int] = {}
        block = self._main.regions[0].blocks[0]
        for argument, role in zip(block.arguments, argument_roles(self._main), strict=True):
            number = counts.get(role, 0)
            counts[role] = number + 1
            self._values[argument] = Place(role, number, 0, bytes_of(argument.type))
        self._block(block)

    def _block(self, block: ir.Block) -> list[_Value]:
        """Carry out a block; returns the operands of its terminator."""
        *operations, end = block.operations
        for view in operations:
            self._operation(view.operation)
        return [self._values[v] for v in end.operation.operands]

    def _operation(self, op: ir.Operation) -> None:
        match op.name:
            case "gpu.launch_func":
                arguments = tuple(self._argument(op, v) for v in parameters_of(op))
                self._add(op, LaunchStep(kernel_of(op), arguments))
            case "memref.copy":
                self._copy(op)
            case "memref.store":
                value, buffer, *indices = op.operands
                self._add(op, WriteStep(self._element(op, buffer, indices), self._scalar(op, value)))
            case "scf.while":
                self._while(op)
            case "scf.for":
                self._for(op)
            case "scf.if":
                self._if(op)
            case "func.call":
                self._call(op)
            case _:
                self._compute(op)

    # ---- steps -----------------------------------------------------------------------------------------------------

    def _add(self, op: ir.Operation, step: Step) -> None:
        self._count(op)
        self.steps.append(step)

    def _count(self, op: ir.Operation) -> None:
        self._length += 1
        if self._length > LONGEST:
            raise self._stopped(op, f"the program has more than {LONGEST} steps and iterations of loops")

    def _argument(self, op: ir.Operation, value: ir.Value) -> Place | Scalar:
        found = self._values[value]
        return found if isinstance(found, Place) else self._scalar(op, value)

    def _scalar(self, op: ir.Operation, value: ir.Value) -> Scalar:
        return Scalar(str(value.type), self._integer(op, value).to_bytes(element_bytes(value.type), "little"))

    def _copy(self, op: ir.Operation) -> None:
        source, target = (self._place(op, v) for v in op.operands)
        if not all(is_dense(ir.MemRefType(v.type)) for v in op.operands):
            raise self._stopped(op, "copies an array that is not contiguous")
        if source.nbytes and source != target:
            self._add(op, CopyStep(target, source))

    def _element(self, op: ir.Operation, buffer: ir.Value, indices: Sequence[ir.Value]) -> Place:
        place, size = self._place(op, buffer), element_bytes(ir.MemRefType(buffer.type).element_type)
        if len(indices) > 1:
            raise self._stopped(op, "reaches into an array of several dimensions")
        offset = sum(self._integer(op, index) * size for index in indices)
        return Place(place.base, place.number, place.offset + offset, size)

    def _call(self, op: ir.Operation) -> None:
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        named = self._host_names if name in self._on_host and self._host_names else name
        raise _Stopped(Obstacle(named, "runs on the host, not on the GPU", _at(op)))

    # ---- control flow ----------------------------------------------------------------------------------------------

    def _while(self, op: ir.Operation) -> None:
        before, after = (region.blocks[0] for region in op.regions)
        carried = [self._values[v] for v in op.operands]
        while True:
            self._count(op)
            self._bind(before.arguments, carried)
            condition, *passed = self._block(before)
            if not self._known(op, condition, terminator_of(before).operands[0]):
                break
            self._bind(after.arguments, passed)
            carried = self._block(after)
        self._bind(op.results, passed)

    def _for(self, op: ir.Operation) -> None:
        low, high, step = (self._integer(op, v) for v in list(op.operands)[:3])
        body = op.regions[0].blocks[0]
        carried = [self._values[v] for v in list(op.operands)[3:]]
        for number in range(low, high, max(step, 1)):
            self._count(op)
            self._bind(body.arguments, [number, *carried])
            carried = self._block(body)
        self._bind(op.results, carried)

    def _if(self, op: ir.Operation) -> None:
        taken = op.regions[0 if self._integer(op, op.operands[0]) else 1]
        if len(taken.blocks):
            self._bind(op.results, self._block(taken.blocks[0]))

    def _bind(self, targets: Sequence[ir.Value], values: Sequence[_Value]) -> None:
        self._values.update(zip(targets, values, strict=True))

    # ---- values ----------------------------------------------------------------------------------------------------

    def _compute(self, op: ir.Operation) -> None:
        if len(op.regions) or not len(op.results):
            raise self._stopped(op, "has no form in a list of steps")
        operands = [self._values[v] for v in op.operands]
        first = operands[0] if operands else _UNKNOWN
        made: _Value = _UNKNOWN
        if op.name == "arith.constant":
            made = _constant(op)
        elif op.name == "arith.select" and not isinstance(first, Place | _Unknown):
            made = operands[1] if first else operands[2]
        elif isinstance(op.results[0].type, ir.MemRefType):
            made = self._view(op)
        elif op.name == "memref.extract_aligned_pointer_as_index":
            made = first
        elif op.name == "arith.cmpi" and all(isinstance(v, Place) for v in operands):
            made = self._compared(op)
        else:
            known = [v for v in operands if isinstance(v, int)]
            if len(known) == len(operands):
                found = evaluate(op, known)
                made = _UNKNOWN if found is None else found
        for result in op.results:
            self._values[result] = made

    def _view(self, op: ir.Operation) -> Place:
        """Return an array of `main` that is part of another one, or the same one of another type."""
        place, offset = self._place(op, op.operands[0]), 0
        if op.name == "memref.view":
            offset = self._integer(op, op.operands[1])
        elif op.name not in ("builtin.unrealized_conversion_cast", "memref.cast"):
            raise self._stopped(op, "has no form in a list of steps")
        return Place(place.base, place.number, place.offset + offset, bytes_of(op.results[0].type))

    def _compared(self, op: ir.Operation) -> _Value:
        """Return whether two addresses are equal. Buffers of `main` are distinct, but for donated parameters."""
        a, b = (self._place(op, v) for v in op.operands)
        same = (a.base, a.number, a.offset) == (b.base, b.number, b.offset)
        if {a.base, b.base} == {"parameter", "result"}:
            return _UNKNOWN
        predicate = int(ir.IntegerAttr(op.attributes["predicate"]).value)
        return {0: int(same), 1: int(not same)}.get(predicate, _UNKNOWN)

    def _place(self, op: ir.Operation, value: ir.Value) -> Place:
        found = self._values[value]
        if not isinstance(found, Place):
            raise self._stopped(op, "depends on an address that is known when the program runs")
        return found

    def _integer(self, op: ir.Operation, value: ir.Value) -> int:
        return self._known(op, self._values[value], value)

    def _known(self, op: ir.Operation, found: _Value, value: ir.Value) -> int:
        if isinstance(found, int):
            return found
        if op.name in ("scf.while", "scf.for", "scf.if"):
            raise self._stopped(op, f"{_KINDS[op.name]} depends on a number that is known when the program runs")
        raise self._stopped(op, f"needs a {value.type} that is known when the program runs")

    def _stopped(self, op: ir.Operation, message: str) -> _Stopped:
        return _Stopped(Obstacle(op.name, message, _at(op)))


_KINDS = {"scf.while": "the loop's condition", "scf.for": "the number of iterations", "scf.if": "the branch"}


def _at(op: ir.Operation) -> str:
    return place_of(str(op.location)).partition(":  ")[0]


def _constant(op: ir.Operation) -> _Value:
    """Return the bits of an `arith.constant`."""
    attribute, type_ = op.attributes["value"], op.results[0].type
    if isinstance(type_, ir.IntegerType | ir.IndexType):
        return int(ir.IntegerAttr(attribute).value) & ((1 << width_of(type_)) - 1)
    if not isinstance(type_, ir.FloatType) or str(type_) not in _FLOATS:
        return _UNKNOWN
    text = str(attribute)
    if text.startswith("0x"):  # infinities and NaNs, whose bits a number of Python's would lose
        return int(text.split()[0], 16)
    number = np.array(ir.FloatAttr(attribute).value, _FLOATS[str(type_)])
    return int.from_bytes(number.tobytes(), "little")
