"""Calling convention between `main` and a kernel: functions, work items, constraints on buffers."""

from __future__ import annotations

from dataclasses import dataclass

import mlir.ir as ir

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

    @property
    def attributes(self) -> dict[str, ir.Attribute]:
        """The phase as attributes."""
        i64 = ir.IntegerType.get_signless(64)
        numbers = {"input": self.input, "scratch": self.scratch}
        found: dict[str, ir.Attribute] = {key: ir.IntegerAttr.get(i64, number) for key, number in numbers.items()}
        return {**found, "function": ir.StringAttr.get(self.function)}


@dataclass(frozen=True)
class KernelCall:
    """The calling convention noted on a kernel; see `Emitted`."""

    phases: tuple[Phase, ...]
    scratch: tuple[ir.Type, ...]
    in_place: tuple[tuple[int, int], ...]
    updates: tuple[tuple[int, int], ...]
    packs: tuple[Packing, ...] = ()


def call_of(op: ir.Operation, symbols: ir.SymbolTable) -> KernelCall:
    """Read the calling convention of a `func.call`'s callee."""
    name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
    impl = ir.DictAttr(symbols[name].operation.attributes[IMPL])
    phases = [ir.DictAttr(p) for p in ir.ArrayAttr(impl["phases"])]
    return KernelCall(
        phases=tuple(
            Phase(
                ir.StringAttr(p["function"]).value,
                ir.IntegerAttr(p["items"]).value,
                ir.IntegerAttr(p["grain"]).value,
            )
            for p in phases
        ),
        scratch=tuple(ir.TypeAttr(t).value for t in ir.ArrayAttr(impl["scratch"])),
        in_place=_pairs(impl["in_place"]),
        updates=_pairs(impl["updates"]),
        packs=tuple(map(packing_of, ir.ArrayAttr(impl["packs"]))) if "packs" in impl else (),
    )


def compile_time_packings(op: ir.Operation) -> list[tuple[Packing, ir.Attribute]]:
    """Return the packing phases of a call that are done at compile time, each with its result."""
    rows = ir.ArrayAttr(op.attributes[PACKED]) if PACKED in op.attributes else ()
    return [(packing_of(row), ir.DictAttr(row)["value"]) for row in rows]


def packing_of(attribute: ir.Attribute) -> Packing:
    """Read a packing phase from its attributes."""
    row = ir.DictAttr(attribute)
    numbers = (ir.IntegerAttr(row[key]).value for key in ("input", "scratch"))
    return Packing(ir.StringAttr(row["function"]).value, *numbers)


def _pairs(attribute: ir.Attribute) -> tuple[tuple[int, int], ...]:
    pairs = [tuple(ir.DenseI64ArrayAttr(p)) for p in ir.ArrayAttr(attribute)]
    return tuple((int(a), int(b)) for a, b in pairs)
