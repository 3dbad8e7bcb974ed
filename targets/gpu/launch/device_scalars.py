"""Scalars on the device: kernels load them there themselves, so that `main` need not synchronize to read them.

A scalar that `main` would load, compute with and pass to a kernel, or store again, is computed by the kernel, or by one
of a single thread. Conditions of loops and branches stay scalars of the host. `DeviceAssignment` keeps the loaded
buffers live until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

import mlir.ir as ir
from mlir.dialects import func

from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import clone_with, defining, main_of, walk
from stablexla.targets.gpu.threads import LAUNCH, Launch, constant, in_first_thread, launched_functions
from stablexla.targets.pipeline.passes import module_pass

_PURE = ("arith.", "math.", "complex.", "index.")
_READS = ("tensor.extract", "memref.load")


def is_scalar_computation(op: ir.Operation) -> bool:
    """Return whether an operation of main computes a scalar from scalars, or loads one, without side effects."""
    return (op.name.startswith(_PURE) or op.name in _READS) and not len(op.regions)


def users_of(op: ir.Operation) -> list[ir.Operation]:
    """Return the users of a scalar that `op` makes, through computations."""
    found: dict[ir.Operation, None] = {}
    seen, waiting = {op}, [op]
    while waiting:
        for result in waiting.pop().results:
            for use in result.uses:
                user = use.owner.operation
                if not is_scalar_computation(user):
                    found[user] = None
                elif user not in seen:
                    seen.add(user)
                    waiting.append(user)
    return list(found)


@module_pass("stablexla-scalars-on-device", "lets kernels read the numbers that are on the device and go to kernels")
def scalars_on_device(module: ir.Module) -> None:
    """Move scalar computations into kernels; to be run between buffer assignment and outlining into a GPU module."""
    with module.context, ir.Location.unknown():
        _Scalars(module).write()


@dataclass
class _Slice:
    """Backward slice of some values, to be cloned into a kernel.

    Attributes:
        ops: the computations, in order.
        leaves: live-ins of these and the values: buffers, and scalars of the host.
    """

    ops: list[ir.Operation] = field(default_factory=list)
    leaves: list[ir.Value] = field(default_factory=list)

    def key(self, values: Iterable[ir.Value]) -> str:
        """Return a text that is equal for equivalent slices."""
        texts: list[str] = []
        names = {leaf: f"leaf{number}:{leaf.type}" for number, leaf in enumerate(self.leaves)}
        for number, op in enumerate(self.ops):
            operands = ",".join(names[v] for v in op.operands)
            attributes = sorted((name, str(value)) for name, value in dict(op.attributes.items()).items())
            texts.append(f"{op.name}({operands}){attributes}:{[str(v.type) for v in op.results]}")
            names.update((v, f"op{number}.{place}") for place, v in enumerate(op.results))
        return ";".join([*texts, *(names[v] for v in values)])


class _Scalars:
    """Rewrite one module."""

    def __init__(self, module: ir.Module) -> None:
        self._main = main_of(module)
        self._functions = launched_functions(module)
        operations = walk(self._main)
        self._order = {op: number for number, op in enumerate(operations)}
        self._on_host = {op for op in operations if op.name == "memref.load" and self._is_needed(op)}
        self._known: dict[ir.Value, bool] = {}
        self._made: dict[tuple[str, str], str] = {}
        self._done: list[ir.Operation] = []

    def _is_needed(self, load: ir.Operation) -> bool:
        """Return whether the host must know a load's value."""
        return not all(reader.name == "memref.store" or self._is_launch(reader) for reader in users_of(load))

    def _is_launch(self, op: ir.Operation) -> bool:
        return op.name == "func.call" and ir.FlatSymbolRefAttr(op.attributes["callee"]).value in self._functions

    def _is_known(self, value: ir.Value) -> bool:
        """Return whether the host has a scalar anyway."""
        if value not in self._known:
            maker = defining(value)
            if maker is None or not is_scalar_computation(maker) or maker in self._on_host:
                self._known[value] = True
            else:
                numbers = (v for v in maker.operands if not isinstance(v.type, ir.MemRefType))
                self._known[value] = maker.name != "memref.load" and all(map(self._is_known, numbers))
        return self._known[value]

    def _slice(self, values: Iterable[ir.Value]) -> _Slice:
        made = _Slice()
        seen: set[ir.Value] = set()

        def take(value: ir.Value) -> None:
            if value in seen:
                return
            seen.add(value)
            maker = defining(value)
            is_constant = maker is not None and maker.name == "arith.constant"
            if isinstance(value.type, ir.MemRefType) or (self._is_known(value) and not is_constant):
                made.leaves.append(value)
                return
            assert maker is not None
            for operand in maker.operands:
                take(operand)
            made.ops.append(maker)

        for value in values:
            take(value)
        return made

    def write(self) -> None:
        """Rewrite calls and stores, block by block."""
        stores: list[ir.Operation] = []
        for op in list(self._order):
            ends = not is_scalar_computation(op) and op.name not in ("memref.store", "memref.view")
            if stores and (ends or op.block != stores[0].block):
                self._store(stores)
                stores = []
            if op.name == "memref.store":
                stores.append(op)
            elif self._is_launch(op):
                self._call(op)
        for op in self._done:
            erase(op)

    # ---- launches --------------------------------------------------------------------------------------------------

    def _call(self, op: ir.Operation) -> None:
        numbers = [
            place
            for place, value in enumerate(list(op.operands)[:-2])
            if not isinstance(value.type, ir.MemRefType) and not self._is_known(value)
        ]
        if not numbers:
            return
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        wanted = [op.operands[place] for place in numbers]
        needed = self._slice(wanted)
        key = (name, f"{numbers} {needed.key(wanted)}")
        if key not in self._made:
            label = f"{name}_with_{len(self._made)}"
            self._made[key] = label
            self._specialize(self._functions[name], label, dict(zip(numbers, wanted, strict=True)), needed)
        *given, low, high = op.operands
        kept = [value for place, value in enumerate(given) if place not in numbers]
        with op.location, ir.InsertionPoint(op):
            func.CallOp([], self._made[key], [*kept, *needed.leaves, low, high])
        self._done.append(op)

    @staticmethod
    def _specialize(source: ir.Operation, name: str, replaced: dict[int, ir.Value], needed: _Slice) -> None:
        """Emit a variant of a function that computes some of its scalar parameters by itself."""
        arguments = list(source.regions[0].blocks[0].arguments)
        rows = list(ir.ArrayAttr(source.attributes["arg_attrs"]))
        buffer = next(row for row, a in zip(rows, arguments, strict=True) if isinstance(a.type, ir.MemRefType))
        kept = [place for place in range(len(arguments) - 2) if place not in replaced]
        types = [arguments[place].type for place in kept]
        types += [*(leaf.type for leaf in needed.leaves), *(a.type for a in arguments[-2:])]
        with source.location, ir.InsertionPoint(source):
            made = func.FuncOp(name, ir.FunctionType.get(types, []), visibility="private")
        own = [buffer if isinstance(leaf.type, ir.MemRefType) else ir.DictAttr.get({}) for leaf in needed.leaves]
        made.attributes["arg_attrs"] = ir.ArrayAttr.get([*(rows[place] for place in kept), *own, *rows[-2:]])
        made.attributes[LAUNCH] = source.attributes[LAUNCH]
        new = list(made.add_entry_block().arguments)
        outside = dict(zip(needed.leaves, new[len(kept) : -2], strict=True))
        inside = dict(zip((arguments[place] for place in kept), new, strict=False))
        inside.update(zip(arguments[-2:], new[-2:], strict=True))
        with ir.InsertionPoint(made.entry_block):
            _clone(needed.ops, outside)
            inside.update((arguments[place], outside[value]) for place, value in replaced.items())
            _clone((view.operation for view in source.regions[0].blocks[0].operations), inside)

    # ---- stores ----------------------------------------------------------------------------------------------------

    def _store(self, stores: list[ir.Operation]) -> None:
        """Emit one single-thread kernel for consecutive stores, unless the host knows all stored values."""
        if all(self._is_known(v) for op in stores for v in op.operands if not isinstance(v.type, ir.MemRefType)):
            return
        needed = self._slice(v for op in stores for v in op.operands)
        ops = sorted([*needed.ops, *stores], key=lambda op: self._order[op])
        name = f"scalars_{sum(1 for _, text in self._made if not text)}"
        self._made[name, ""] = name
        index = ir.IndexType.get()
        types = [*(leaf.type for leaf in needed.leaves), index, index]
        with ir.InsertionPoint(self._main):
            made = func.FuncOp(name, ir.FunctionType.get(types, []), visibility="private")
        made.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get({})] * len(types))
        Launch.for_items(1).write(made.operation)
        mapping = dict(zip(needed.leaves, made.add_entry_block().arguments, strict=False))
        with ir.InsertionPoint(made.entry_block):
            in_first_thread(lambda: _clone(ops, mapping))
            func.ReturnOp([])
        *_, last = stores
        with last.location, ir.InsertionPoint(last):
            func.CallOp([], name, [*needed.leaves, constant(0), constant(1)])
        self._done += stores


def _clone(ops: Iterable[ir.Operation], mapping: dict[ir.Value, ir.Value]) -> None:
    for op in ops:
        clone_with(op, mapping)
