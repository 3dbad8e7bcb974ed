"""Lower `main` to host code: launches, copies and scalar accesses of device memory become calls of the runtime.

Arrays of `main` are device addresses. Launch parameters, and scalars that are loaded or stored, pass through slots on
the stack, which are allocated once at the top of `main`.
"""

from __future__ import annotations

from math import prod

import mlir.ir as ir
from mlir.dialects import arith, func, llvm, memref

from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import CompileError
from stablexla.lowering.support.operations import constant_of, main_of, walk
from stablexla.targets.codegen.sizes import bytes_of, element_bytes
from stablexla.targets.gpu.launch.host_calls import HostCalls, is_host_call
from stablexla.targets.gpu.launch.launches import LaunchTable, kernel_of, launch_of, parameters_of
from stablexla.targets.gpu.ptx.to_ptx import ptx_of
from stablexla.targets.gpu.threads import constant
from stablexla.targets.host.symbols import declare, pointer_to, pointer_type
from stablexla.targets.pipeline.passes import module_pass

LAUNCH, COPY = "stablexla_gpu_launch", "stablexla_gpu_copy"
READ, WRITE = "stablexla_gpu_read", "stablexla_gpu_write"
SLOT_BYTES = 16
"""Bytes of a stack slot: the widest number, complex128."""


@module_pass("stablexla-launch-gpu", "lets main, as code of the host, launch kernels and copy by calls of the runtime")
def launch_gpu(module: ir.Module) -> None:
    """Lower `main`; the PTX and the table of its kernels become attributes of the module.

    Raises:
        CompileError: `main` does with an array what only a kernel can.
    """
    with module.context, ir.Location.unknown():
        table = LaunchTable(ptx_of(module), {})
        HostMain(main_of(module), table).write()
        for view in list(module.body.operations):
            if view.operation.name == "gpu.binary":
                erase(view.operation)
        if "gpu.container_module" in module.operation.attributes:
            del module.operation.attributes["gpu.container_module"]
        table.write(module)


class HostMain:
    """Rewrite one function."""

    def __init__(self, main: ir.Operation, table: LaunchTable) -> None:
        self._main = main
        self._kernels = table
        self._calls = HostCalls(main)
        self._block: ir.Block | None = None
        self._declared: dict[str, ir.FlatSymbolRefAttr] = {}

    def write(self) -> None:
        """Rewrite it. Raises CompileError, as `launch_gpu`."""
        operations = [op for op in walk(self._main) if op != self._main]
        launches = [op for op in operations if op.name == "gpu.launch_func"]
        with ir.InsertionPoint.at_block_begin(self._main.regions[0].blocks[0]), self._main.location:
            self._zero = constant(0)
            self._make_places(max([1, *(len(parameters_of(op)) for op in launches)]))
        for op in operations:
            with op.location, ir.InsertionPoint(op):
                self._rewrite(op)

    def _rewrite(self, op: ir.Operation) -> None:
        if self._block is None or op.block != self._block or len(op.regions):
            self._calls.forget()  # host copies valid before a loop may be stale in its second iteration
            self._block = op.block
        if op.name == "gpu.launch_func":
            self._launch(op)
        elif op.name == "memref.copy":
            self._copy(op)
        elif op.name == "memref.load":
            self._load(op)
        elif op.name == "memref.store":
            self._store(op)
        elif is_host_call(op, self._calls.functions):
            self._calls.write(op)
        elif op.name.startswith(("memref.alloc", "memref.dealloc", "vector.", "linalg.")):
            raise CompileError(f"{op.name} works on an array in main, where only kernels do")

    # ---- the stack -------------------------------------------------------------------------------------------------

    def _make_places(self, count: int) -> None:
        """Allocate stack slots for so many scalars, and the array of their addresses, which is constant."""
        i64 = ir.IntegerType.get_signless(64)
        self._places = memref.alloca(ir.MemRefType.get([count * SLOT_BYTES], _byte()), [], [], alignment=SLOT_BYTES)
        self._table = memref.alloca(ir.MemRefType.get([count], i64), [], [], alignment=SLOT_BYTES)
        first, self._addresses = pointer_to(self._places), pointer_to(self._table)
        self._pointers = [_moved(first, number * SLOT_BYTES) for number in range(count)]
        for number, pointer in enumerate(self._pointers):
            llvm.store(pointer, _moved(self._addresses, number * 8))

    def _put(self, value: ir.Value, number: int = 0) -> ir.Value:
        """Store a scalar, or the address of a buffer, in a slot; returns the slot's address."""
        if isinstance(value.type, ir.MemRefType):
            value = memref.extract_aligned_pointer_as_index(value)
        if isinstance(value.type, ir.IndexType):
            value = arith.index_cast(ir.IntegerType.get_signless(64), value)
        if _is_plain(value.type):
            llvm.store(value, self._pointers[number])
        else:
            memref.store(value, self._place(value.type, number), [self._zero])
        return self._pointers[number]

    def _taken(self, type_: ir.Type) -> ir.Value:
        """Load the scalar in the first slot."""
        if _is_plain(type_):
            return llvm.load(type_, self._pointers[0])
        return memref.load(self._place(type_, 0), [self._zero])

    def _place(self, type_: ir.Type, number: int) -> ir.Value:
        """Return a slot as a buffer of one element."""
        return memref.view(ir.MemRefType.get([1], type_), self._places, constant(number * SLOT_BYTES), [])

    # ---- operations ------------------------------------------------------------------------------------------------

    def _launch(self, op: ir.Operation) -> None:
        launch = launch_of(op)
        for number, value in enumerate(parameters_of(op)):
            self._put(value, number)
        kernel = self._kernels.number(kernel_of(op), launch.shared)
        numbers = [_i64(n) for n in (kernel, launch.blocks, launch.threads, launch.shared)]
        self._call(LAUNCH, [*numbers, self._addresses])
        erase(op)
        self._calls.forget()

    def _copy(self, op: ir.Operation) -> None:
        source, target = op.operands
        for buffer in (source, target):
            if not is_dense(ir.MemRefType(buffer.type)):
                raise CompileError(f"main copies {buffer.type}, whose elements do not lie one beside the other")
        if bytes_of(source.type):
            self._call(COPY, [pointer_to(target), pointer_to(source), _i64(bytes_of(source.type))])
        erase(op)
        self._calls.forget()

    def _load(self, op: ir.Operation) -> None:
        buffer, *indices = op.operands
        known = self._calls.on_host.get(buffer)
        if known is not None:  # a host function has just written it
            op.operands[0] = known
            return
        type_ = op.results[0].type
        self._call(READ, [self._pointers[0], _address(buffer, indices), _i64(element_bytes(type_))])
        op.results[0].replace_all_uses_with(self._taken(type_))
        erase(op)

    def _store(self, op: ir.Operation) -> None:
        value, buffer, *indices = op.operands
        self._call(WRITE, [_address(buffer, indices), self._put(value), _i64(element_bytes(value.type))])
        erase(op)
        self._calls.forget()

    def _call(self, name: str, arguments: list[ir.Value]) -> None:
        if name not in self._declared:  # looking for it takes longer than calling it
            self._declared[name] = declare(self._main, name, [a.type for a in arguments])
        func.CallOp([], self._declared[name], arguments)


# ---- buffers and numbers ---------------------------------------------------------------------------------------------


def is_dense(type_: ir.MemRefType) -> bool:
    """Return whether a buffer is contiguous and row-major."""
    strides, _ = type_.get_strides_and_offset()
    wanted = [prod(type_.shape[place + 1 :]) for place in range(len(type_.shape))]
    return all(n == 1 or s == w for n, s, w in zip(type_.shape, strides, wanted, strict=True)) or 0 in type_.shape


def _byte() -> ir.Type:
    return ir.IntegerType.get_signless(8)


def _moved(pointer: ir.Value, offset: int) -> ir.Value:
    return llvm.getelementptr(pointer_type(), pointer, [], [offset], _byte(), None) if offset else pointer


def _is_plain(type_: ir.Type) -> bool:
    """Return whether host code has scalars of a type natively."""
    return isinstance(type_, ir.IntegerType | ir.F64Type | ir.F32Type | ir.F16Type | ir.BF16Type)


def _address(buffer: ir.Value, indices: list[ir.Value]) -> ir.Value:
    """Return an element's address."""
    type_ = ir.MemRefType(buffer.type)
    if len(indices) > 1 or not is_dense(type_):
        raise CompileError(f"main reaches into {type_}, where it knows flat arrays alone")
    place = memref.extract_aligned_pointer_as_index(buffer)
    for index in indices:
        if constant_of(index) != 0:
            place = arith.addi(place, arith.muli(index, constant(element_bytes(type_.element_type))))
    i64 = ir.IntegerType.get_signless(64)
    return ir.Operation.create(
        "llvm.inttoptr", results=[pointer_type()], operands=[arith.index_cast(i64, place)]
    ).result


def _i64(value: int) -> ir.Value:
    return arith.ConstantOp(ir.IntegerType.get_signless(64), value).result
