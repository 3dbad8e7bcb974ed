"""Partition a module in LLVM's dialect into modules that are compiled in parallel.

`main` is the last of them, alone with what only it uses; it calls the kernels of the others by symbol. A function that
several kernels call is in one module, too, and is compiled once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import field

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.operations import operations_named
from stablexla.targets.llvm.entry import PACKED_MAIN
from stablexla.targets.llvm.llvm_c import object_file
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.llvm.parallel_calls import is_of_launches

# A module costs something by itself, about a fifth of LLVM's work on so many operations (1 to 2 ms, where a thousand
# operations take 30): less than a second core saves. More parts than threads are made for load balance, since nobody
# knows beforehand how long each takes.
LEAST_OPERATIONS = Gate("split-module.least-operations", 250, eager=10)
PARTS_FOR_EACH_THREAD = 6
# Programs up to this size compile fast with any passes.
MOST_OF_SMALL = Gate("split-module.most-of-small", 1500, eager=10)
# LLVM's instruction selection at level 0 counts what is left of a block at each call: its time grows with the square of
# a block's length.
MOST_OF_BLOCK = Gate("split-module.most-of-block", 1000, eager=10)
# Attributes by which an operation references a symbol.
_REFERENCES = {
    "func.call": "callee",
    "func.constant": "value",
    "llvm.call": "callee",
    "llvm.mlir.addressof": "global_name",
}
# Operations on buffers that have others in them.
_NESTS = (
    "affine.for",
    "affine.if",
    *(f"scf.{name}" for name in ["execute_region", "for", "forall", "if", "index_switch", "parallel", "while"]),
)
_OURS = frozenset(["main", PACKED_MAIN])


@dataclass(frozen=True)
class ModulePart:
    """A module to be compiled.

    Attributes:
        module: the module.
        is_straight: whether it is straight-line code, so that there is nothing to optimise.
        is_of_small: whether it is of a program so small that LLVM may take its time.
    """

    module: ir.Module
    is_straight: bool = False
    is_of_small: bool = True

    def object_file(self, cpu: CpuOptions) -> bytes:
        """Compile it; straight-line code that runs once gains nothing by optimization."""
        level = 0 if self.is_straight else cpu.opt_level
        return object_file(self.module, level, unroll=self.is_of_small, cpu=cpu.cpu)


@dataclass
class Symbol:
    """A function or global: the operation, how many operations are in it, and the symbols that they reference."""

    op: ir.Operation
    name: str
    weight: int = 0
    names: set[str] = field(default_factory=set)
    is_function: bool = True

    @staticmethod
    def of(op: ir.Operation) -> Symbol:
        """Read a function, on buffers or in LLVM's dialect, or a global."""
        users = ((user, _REFERENCES[user.name]) for user in operations_named(op, *_REFERENCES))
        names = {ir.FlatSymbolRefAttr(user.attributes[name]).value for user, name in users if name in user.attributes}
        weight = 1
        if len(op.regions):  # a walk takes 1 us for each operation
            nests = [op] if op.name == "llvm.func" else operations_named(op, "func.func", *_NESTS)
            weight += sum(len(block.operations) for nest in nests for region in nest.regions for block in region.blocks)
        return Symbol(op, symbol_of(op), weight, names, op.name in ("llvm.func", "func.func"))

    @property
    def is_declaration(self) -> bool:
        """Whether it is a function without a body."""
        return self.is_function and not self.op.regions[0].blocks


@dataclass
class _Bin:
    """The symbols of one part."""

    names: set[str] = field(default_factory=set)
    roots: list[str] = field(default_factory=list)
    load: int = 0


def split_module(
    module: ir.Module, threads: int, *, is_rest: bool = False, of_small: bool = False
) -> list[ModulePart]:
    """Return the parts, the heaviest first and that of `main` last; the module itself, when it is too small.

    A long main without loops is a part of its own whatever the kernels are, as it is not optimised.

    Args:
        threads: how many parts may be compiled at once.
        is_rest: whether it is what is left of a bigger one.
        of_small: whether that is so small that LLVM may take its time.
    """
    symbols = _symbols(module)
    weight = sum(s.weight for name, s in symbols.items() if not (name in _OURS or is_of_launches(name)))
    movable = all(s.is_function or "constant" in s.op.attributes for s in symbols.values())
    is_small = weight < MOST_OF_SMALL() and (of_small or not is_rest)
    gains = threads > 1 and (weight >= 2 * LEAST_OPERATIONS() or is_rest)
    entry = "main" if "main" in symbols else PACKED_MAIN
    main = symbols.get(entry)
    is_straight = main is not None and len(main.op.regions[0].blocks) == 1
    is_long = main is not None and is_straight and main.weight >= MOST_OF_SMALL()
    if not movable or main is None or not (gains or is_long):
        return [ModulePart(module, is_of_small=is_small)]
    apart, in_main = _roots(symbols, entry)
    shared = _shared(symbols, apart, entry)
    apart = [name for name in apart if name not in shared]
    # A file may call functions of those before it: shared functions come first, with all that they reference.
    bins = _pack({root: _closure(symbols, [root]) for root in shared}, symbols, threads)
    bins += _pack({root: _closure(symbols, [root], shared) for root in apart}, symbols, threads)
    parts = []
    for each in bins:
        outside = _named(symbols, each.names).intersection(shared) - each.names
        made = _module(module, symbols, each.names, declared=outside, exported=set(each.roots))
        parts.append(ModulePart(made, is_of_small=is_small))
    own = _closure(symbols, in_main, {*apart, *shared}) | _OURS.intersection(symbols)
    outside = _named(symbols, own).intersection([*apart, *shared]) - own
    alone = _module(module, symbols, own, declared=outside, exported=set(_OURS))
    if is_straight:
        _cut_blocks(next(view.operation for view in alone.body.operations if symbol_of(view) == entry))
    return [*parts, ModulePart(alone, is_straight=is_straight, is_of_small=is_small)]


def _symbols(module: ir.Module) -> dict[str, Symbol]:
    symbols = (Symbol.of(view.operation) for view in module.body.operations)
    return {symbol.name: symbol for symbol in symbols}


def _roots(symbols: dict[str, Symbol], main: str) -> tuple[list[str], list[str]]:
    """Split the symbols that main references, itself or by launchers, into kernels and what stays with it."""
    launches = {name for name in symbols[main].names if is_of_launches(name)}
    named = sorted(_named(symbols, [main, *launches]))
    apart = [n for n in named if symbols[n].is_function and not (symbols[n].is_declaration or n in launches)]
    return apart, [n for n in named if n not in apart]


def _shared(symbols: dict[str, Symbol], apart: Iterable[str], main: str) -> list[str]:
    """Return the functions with bodies that have more than one caller."""
    seen = Counter(name for user in {main, *_closure(symbols, apart)} for name in symbols[user].names)
    twice = sorted(name for name, count in seen.items() if count > 1)
    return [name for name in twice if symbols[name].is_function and not symbols[name].is_declaration]


def _named(symbols: dict[str, Symbol], users: Iterable[str]) -> set[str]:
    """Return the symbols that any of the users references."""
    return {name for user in users for name in symbols[user].names}


def _closure(symbols: dict[str, Symbol], names: Iterable[str], without: Iterable[str] = ()) -> set[str]:
    """Return the transitive closure of symbol references; symbols in `without` only where listed in `names`."""
    found: set[str] = set()
    left_out = set(without)
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(symbols[name].names - left_out)
    return found


def _pack(closures: dict[str, set[str]], symbols: dict[str, Symbol], threads: int) -> list[_Bin]:
    """Balance the load (greedy bin packing): place the roots, the heaviest first, each into the least loaded bin."""
    weights = {root: sum(symbols[name].weight for name in closure) for root, closure in closures.items()}
    wanted = sum(weights.values()) // LEAST_OPERATIONS()
    bins = [_Bin() for _ in range(max(1, min(PARTS_FOR_EACH_THREAD * threads, wanted)))]

    def added(to: _Bin, root: str) -> int:
        return sum(symbols[name].weight for name in closures[root] - to.names)

    for root in sorted(closures, key=lambda r: (-weights[r], r)):
        best = min(bins, key=lambda b: b.load + added(b, root))
        best.load += added(best, root)
        best.names |= closures[root]
        best.roots.append(root)
    return sorted((b for b in bins if b.roots), key=lambda b: -b.load)


def _module(
    module: ir.Module, symbols: dict[str, Symbol], names: set[str], *, declared: Iterable[str], exported: set[str]
) -> ir.Module:
    """Build a module of some of the symbols, in the order of the whole one."""
    with module.context, ir.Location.unknown():
        made = ir.Module.create()
        for name, value in dict(module.operation.attributes.items()).items():
            made.operation.attributes[name] = value
        external, outside = ir.Attribute.parse("#llvm.linkage<external>"), set(declared)
        with ir.InsertionPoint(made.body):
            for name, symbol in symbols.items():
                if name in outside:
                    declare(symbol.op)
                elif name in names:
                    copy = symbol.op.clone().operation
                    if name in exported:
                        copy.attributes["linkage"] = external
        return made


def _cut_blocks(function: ir.Operation) -> None:
    """Cut the long blocks of a function into blocks that follow one another."""
    for block in list(function.regions[0].blocks):
        operations = [view.operation for view in block.operations]
        for start in reversed(range(MOST_OF_BLOCK(), len(operations), MOST_OF_BLOCK())):
            following = function.regions[0].blocks.append()
            for op in operations[start:]:
                following.append(op)
            with ir.Location.unknown(function.context), ir.InsertionPoint(block):
                branch = ir.Operation.create("llvm.br", successors=[following])
            operations[start:] = [branch]


def declare(function: ir.Operation) -> ir.Operation:
    """Create a declaration of a function that another module defines, at the insertion point; return it."""
    kept = {n: function.attributes[n] for n in ("sym_name", "function_type", "CConv") if n in function.attributes}
    if function.name == "llvm.func":
        kept["linkage"] = ir.Attribute.parse("#llvm.linkage<external>")
    else:
        kept["sym_visibility"] = ir.StringAttr.get("private")
    return ir.Operation.create(function.name, attributes=kept, regions=1)
