"""Cutting a module in LLVM's dialect into modules that are compiled at the same time.

`main` is the last of them, alone with what only it needs; it calls the kernels of the others by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import mlir.ir as ir

# An execution engine takes about 7 ms to make, and LLVM about 80 us for an operation of these modules: a module of
# this many operations costs a tenth more than the same as a part of another. More parts than threads are made, since
# nobody knows beforehand how long each takes.
LEAST_OPERATIONS, PARTS_FOR_EACH_THREAD = 1000, 4
# Attributes by which an operation names a function or a global.
_REFERENCES = {"llvm.call": "callee", "llvm.mlir.addressof": "global_name"}


@dataclass(frozen=True)
class Part:
    """A module to be compiled.

    Attributes:
        module: the module.
        exports: its functions that `main`'s part calls.
        is_straight: whether it has no loop and no branch, so that there is nothing to optimise.
    """

    module: ir.Module
    exports: tuple[str, ...] = ()
    is_straight: bool = False


@dataclass
class _Symbol:
    """A function or global: the operation, how many operations are in it, and what they name."""

    op: ir.Operation
    weight: int = 0
    names: set[str] = field(default_factory=set)
    is_function: bool = True

    @property
    def is_declaration(self) -> bool:
        return self.is_function and not self.op.regions[0].blocks


def partition(module: ir.Module, threads: int) -> list[Part]:
    """The parts, the heaviest first and that of `main` last; the module itself, when it is too small.  `module` loses its operations else.

    Args:
        threads: how many parts may be compiled at once.
    """
    symbols = _symbols(module)
    weight = sum(s.weight for name, s in symbols.items() if name != "main")
    count = 1 if threads < 2 else min(PARTS_FOR_EACH_THREAD * threads, weight // LEAST_OPERATIONS)
    movable = all(s.is_function or "constant" in s.op.attributes for s in symbols.values())
    if count < 2 or "main" not in symbols or not movable:
        return [Part(module)]
    apart, in_main = _roots(symbols)
    bins = _pack({root: _closure(symbols, [root]) for root in apart}, symbols, min(count, len(apart)))
    if len(bins) < 2:
        return [Part(module)]
    parts = [_part(module, symbols, names, roots) for names, roots in bins]
    # What main calls is only declared there; what several parts need is in each of them.
    own = _closure(symbols, in_main) | {"main"}
    is_straight = len(symbols["main"].op.regions[0].blocks) == 1
    alone = _module(module, symbols, own, declared=apart, exported={"main"})
    return [*parts, Part(alone, is_straight=is_straight)]


def _symbols(module: ir.Module) -> dict[str, _Symbol]:
    found: dict[str, _Symbol] = {}
    for view in module.body.operations:
        op = view.operation
        here = _Symbol(op, is_function=op.name == "llvm.func")
        found[ir.StringAttr(op.attributes["sym_name"]).value] = here

        def note(inner: ir.Operation, here: _Symbol = here) -> ir.WalkResult:
            here.weight += 1
            attribute = _REFERENCES.get(inner.name)
            if attribute is not None and attribute in inner.attributes:
                here.names.add(ir.FlatSymbolRefAttr(inner.attributes[attribute]).value)
            return ir.WalkResult.ADVANCE

        op.walk(note)
    return found


def _roots(symbols: dict[str, _Symbol]) -> tuple[list[str], list[str]]:
    """What main names: functions with bodies, and the rest, which stays with it."""
    named = sorted(symbols["main"].names)
    apart = [n for n in named if symbols[n].is_function and not symbols[n].is_declaration]
    return apart, [n for n in named if n not in apart]


def _closure(symbols: dict[str, _Symbol], names: Iterable[str]) -> set[str]:
    """The names, and all that is named by what they name."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(symbols[name].names)
    return found


def _pack(closures: dict[str, set[str]], symbols: dict[str, _Symbol], count: int) -> list[tuple[set[str], list[str]]]:
    """Spreads the roots, the heaviest first, each where the sum is then least: what a part needs, and its roots."""
    bins: list[tuple[set[str], list[str]]] = [(set(), []) for _ in range(count)]
    loads = [0] * count

    def added(number: int, root: str) -> int:
        return sum(symbols[name].weight for name in closures[root] - bins[number][0])

    weights = {root: sum(symbols[name].weight for name in closure) for root, closure in closures.items()}
    for root in sorted(closures, key=lambda r: (-weights[r], r)):
        best = min(range(count), key=lambda number: loads[number] + added(number, root))
        loads[best] += added(best, root)
        bins[best][0].update(closures[root])
        bins[best][1].append(root)
    order = sorted(range(count), key=lambda number: -loads[number])
    return [bins[number] for number in order if bins[number][1]]


def _part(module: ir.Module, symbols: dict[str, _Symbol], names: set[str], roots: list[str]) -> Part:
    return Part(_module(module, symbols, names, declared=(), exported=set(roots)), tuple(roots))


def _module(
    module: ir.Module, symbols: dict[str, _Symbol], names: set[str], *, declared: Iterable[str], exported: set[str]
) -> ir.Module:
    """A module of some of the symbols, in the order of the whole one."""
    with module.context, ir.Location.unknown():
        made = ir.Module.create()
        for name, value in dict(module.operation.attributes.items()).items():
            made.operation.attributes[name] = value
        with ir.InsertionPoint(made.body):
            outside = set(declared)
            for name, symbol in symbols.items():
                if name in outside:
                    _declare(symbol.op)
                elif name in names:
                    copy = symbol.op.clone().operation
                    if name in exported:
                        copy.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<external>")
        return made


def _declare(function: ir.Operation) -> None:
    """A declaration of a function that is elsewhere."""
    kept = {
        name: function.attributes[name]
        for name in ("sym_name", "function_type", "CConv")
        if name in function.attributes
    }
    external = ir.Attribute.parse("#llvm.linkage<external>")
    ir.Operation.create("llvm.func", attributes={**kept, "linkage": external}, regions=1)
