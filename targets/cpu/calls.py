"""How `main` calls a kernel: the functions to call, their work items, and what the buffers must satisfy."""

from __future__ import annotations

from dataclasses import dataclass

import mlir.ir as ir

IMPL = "stablexla.impl"


@dataclass(frozen=True)
class Phase:
    """One function of a kernel, called for all its items before the next phase begins."""

    function: str
    items: int
    grain: int


@dataclass(frozen=True)
class KernelCall:
    """What is written on a kernel about its calls; see `Emitted`."""

    phases: tuple[Phase, ...]
    scratch: tuple[ir.Type, ...]
    in_place: tuple[tuple[int, int], ...]
    updates: tuple[tuple[int, int], ...]


def call_of(op: ir.Operation, symbols: ir.SymbolTable) -> KernelCall:
    """Reads it for a `func.call`."""
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
    )


def _pairs(attribute: ir.Attribute) -> tuple[tuple[int, int], ...]:
    pairs = [tuple(ir.DenseI64ArrayAttr(p)) for p in ir.ArrayAttr(attribute)]
    return tuple((int(a), int(b)) for a, b in pairs)
