"""Calling convention between `main` and a kernel: functions, work items, constraints on buffers."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.configs import read_config
from stablexla.targets.codegen.refusals import Refusal
from stablexla.targets.codegen.schedule import ScheduleNote

IMPL = "stablexla.impl"
PACKED = "stablexla.packed"
PARALLEL_GRAIN = "stablexla.grain"
"""Attribute of a call whose work items threads may share: the smallest number of them that is worth a thread."""


@dataclass(frozen=True)
class Phase:
    """One function of a kernel, run for all its work items before the next phase starts."""

    function: str
    items: int
    grain: int


@dataclass(frozen=True)
class Packing:
    """A phase that only packs an input into a scratch buffer."""

    function: str
    input: int
    scratch: int


@dataclass(frozen=True)
class PackedInput:
    """A packing phase that was run at compile time, and the bytes of its scratch buffer."""

    packing: Packing
    value: ir.Attribute


@dataclass(frozen=True)
class BufferPair:
    """A result and an input that share a buffer."""

    result: int
    input: int


@dataclass(frozen=True)
class KernelCall:
    """The calling convention noted on a kernel; see `Emitted`. `path` is what emitted it: "emitted", "general".

    `refusal` is why a kernel is on the general path, `schedule` how its loops were emitted, where that is a value.
    """

    path: str
    phases: tuple[Phase, ...]
    scratch: tuple[ir.Type, ...]
    in_place: tuple[BufferPair, ...]
    updates: tuple[BufferPair, ...]
    packs: tuple[Packing, ...]
    refusal: Refusal | None = None
    schedule: ScheduleNote | None = None

    @staticmethod
    def of(kernel: ir.Operation) -> KernelCall:
        """Read the calling convention of a kernel's function."""
        return read_config(KernelCall, kernel.attributes[IMPL], IMPL)


def call_of(op: ir.Operation, symbols: ir.SymbolTable) -> KernelCall:
    """Read the calling convention of a `func.call`'s callee."""
    return KernelCall.of(symbols[ir.FlatSymbolRefAttr(op.attributes["callee"]).value].operation)


def packed_inputs(op: ir.Operation) -> list[PackedInput]:
    """Return the packing phases of a call that were run at compile time."""
    rows = ir.ArrayAttr(op.attributes[PACKED]) if PACKED in op.attributes else ()
    return [read_config(PackedInput, row, PACKED) for row in rows]
