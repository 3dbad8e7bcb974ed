"""Expansion of bounded dynamic dimensions to static arrays of the bounds, with the sizes as scalars.

Values are changed in place: an array takes the static type of its bounds, and `Expansion.sizes` holds the scalars.
Elements beyond a size are undefined; the rules in `rules.py` mask them where an operation would read them. Sizes of
parameters of `main` become further parameters, those of results further results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jaxlib.mlir.ir as ir

import stablexla.dialects.dynamic_rules  # noqa: F401  (fills the registry of sizes)
from stablexla.dialects.dynamic_sizes import Extents, Refusal, Size, Sizes, Use, extents_of, result_sizes
from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.hlo import emit, tensor
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.bounded.values import Scalar, size_type
from stablexla.lowering.support.context import place_of

Rule = Callable[["Site"], None]
EXPANSIONS: dict[str, Rule] = {}
"""Expansion rule of each operation; one without a rule only takes the static types."""


def expands(*names: str) -> Callable[[Rule], Rule]:
    """Register the expansion of operations of these names."""

    def register(rule: Rule) -> Rule:
        for name in names:
            assert name not in EXPANSIONS, f"two expansions of {name}"
            EXPANSIONS[name] = rule
        return rule

    return register


@dataclass(frozen=True)
class Declared:
    """The type of a value in the source: extents, or bounds where dynamic, and the dynamic dimensions."""

    extents: Extents
    dynamic: tuple[int, ...]

    @classmethod
    def of(cls, type_: Any) -> Declared:
        return cls(*extents_of(type_))


class Site:
    """One operation that is being expanded, with the insertion point before it.

    Attributes:
        op: the operation; its operands have static types already.
        declared: each result's type in the source.
        use: the operation for the size rules.
    """

    def __init__(self, op: Any, all_sizes: Expansion) -> None:
        self.op, self.expansion = op, all_sizes
        self.declared = [Declared.of(r.type) for r in op.results]
        operands = [extents_of(v.type)[0] for v in op.operands]
        sizes = [all_sizes.sizes_of(v) for v in op.operands]
        self.use = Use(op.name, operands, [d.extents for d in self.declared], sizes, op.attributes)

    def sizes(self, operand: int) -> Sizes:
        """Return the sizes of an operand's dynamic dimensions."""
        return self.use.sizes[operand]

    def set_operand(self, number: int, value: Any) -> None:
        """Replace an operand of the operation."""
        self.op.operands[number] = value

    def static_types(self) -> list[Any]:
        """Return the types of the results with bounds as extents."""
        return [tensor(r.type, d.extents) if d.dynamic else r.type for r, d in zip(self.op.results, self.declared)]

    def keep(self) -> None:
        """Keep the operation, with static types."""
        found = result_sizes(self.use)
        results = list(zip(self.op.results, self.static_types(), self.declared, strict=True))
        for (result, type_, declared), own in zip(results, found, strict=True):
            if declared.dynamic:
                result.set_type(type_)
            self.expansion.note(result, declared, own)

    def replace(self, values: Sequence[Any], sizes: Sequence[Sizes] | None = None) -> None:
        """Replace the results by values of static types; their sizes are by the size rule, if not given."""
        found = result_sizes(self.use) if sizes is None else sizes
        for result, value, declared, own in zip(self.op.results, values, self.declared, found, strict=True):
            result.replace_all_uses_with(value)
            self.expansion.note(value, declared, own)
        self.expansion.dead.append(self.op)

    def again(self, operands: Sequence[Any]) -> Any:
        """Clone the operation on other operands, its only result of static type."""
        attributes = {name: self.op.attributes[name] for name in self.op.attributes}
        return emit(self.op.name, operands, self.static_types(), attributes)


class Expansion:
    """The arrays of a program that have dynamic dimensions, and their sizes."""

    def __init__(self) -> None:
        self._sizes: dict[ir.Value, dict[int, Scalar]] = {}
        self.dead: list[Any] = []
        """Dead operations, erased at the end: a value that is a key of the sizes must not be freed before."""
        self.passed_through: list[Any] = []
        """Operations whose result is replaced by their first operand at the end."""

    def sizes_of(self, value: ir.Value) -> Mapping[int, Scalar]:
        """Return the sizes of a value's dynamic dimensions."""
        return self._sizes.get(value, {})

    def size(self, value: Any, dimension: int) -> Scalar:
        """Return the size of a value's dimension, a constant where it is static."""
        return self.sizes_of(value).get(dimension) or Scalar.of(int(value.type.shape[dimension]))

    def note(self, value: ir.Value, declared: Declared, sizes: Mapping[int, Size]) -> None:
        """Record the sizes of a new value. A dimension declared dynamic without a size has its bound."""
        known: dict[int, Size | int] = {place: declared.extents[place] for place in declared.dynamic}
        known.update(sizes)
        if known:
            self._sizes[value] = {place: Scalar.of(size) for place, size in sorted(known.items())}

    def block(self, block: Any) -> None:
        """Expand the operations of a block in order, nested ones included; its terminator belongs to its owner."""
        for view in list(block.operations)[:-1]:
            op = view.operation
            with op.location, ir.InsertionPoint(op):
                self._operation(op)

    def _operation(self, op: Any) -> None:
        touched = op.name == "stablehlo.set_dimension_size" or any(v in self._sizes for v in op.operands)
        if touched or any(extents_of(r.type)[1] for r in op.results):
            site = Site(op, self)
            try:
                EXPANSIONS.get(op.name, Site.keep)(site)
            except Refusal as refusal:
                raise self._unsupported(site, refusal) from None
            if op.name in OWN_REGIONS:
                return
        for region in op.regions:
            for block in region.blocks:
                self.block(block)

    def _unsupported(self, site: Site, refusal: Refusal) -> UnsupportedError:
        shown = {}
        for number, value in enumerate(site.op.operands):
            sizes = self.sizes_of(value)
            extents = enumerate(extents_of(value.type)[0])
            shown[f"operand {number}"] = f"[{','.join(f'<={n}' if i in sizes else str(n) for i, n in extents)}]"
        where = place_of(site.op.location)
        return UnsupportedError(refusal.summary + where, operation=site.op.name, operands=shown, hint=refusal.hint)

    def finish(self) -> None:
        """Erase the dead operations."""
        for op in self.passed_through:
            op.results[0].replace_all_uses_with(op.operands[0])
        for op in [*self.dead, *self.passed_through]:
            erase(op)
        self._sizes.clear()


OWN_REGIONS = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
"""Operations whose expansion rule expands their regions itself."""


def expand_main(main: Any) -> None:
    """Expand the function `main`, into which all calls are inlined.

    Raises:
        UnsupportedError: an operation that supports no dynamic dimension.
    """
    block = main.regions[0].blocks[0]
    results = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results
    declared = [Declared.of(t) for t in results]
    expansion = Expansion()
    with main.location:
        for argument in list(block.arguments):
            _enter(expansion, block, argument)
        expansion.block(block)
        end = list(block.operations)[-1].operation
        _leave(expansion, block, end, declared)
        expansion.finish()
    _set_signature(main, block)


def _enter(expansion: Expansion, block: Any, argument: Any) -> None:
    """Give a parameter of main its static type; append its sizes to the parameters."""
    declared = Declared.of(argument.type)
    if declared.dynamic:
        argument.set_type(tensor(argument.type, declared.extents))
        sizes = {place: Scalar(block.add_argument(size_type(), argument.location)) for place in declared.dynamic}
        expansion.note(argument, declared, sizes)


def _leave(expansion: Expansion, block: Any, end: Any, declared: Sequence[Declared]) -> None:
    """Append the sizes of main's results to its results."""
    with ir.InsertionPoint(end):
        given = list(end.operands)
        sizes = [expansion.size(value, place).value for value, d in zip(given, declared) for place in d.dynamic]
        ir.Operation.create("func.return", operands=[*given, *sizes])
    erase(end)


def _set_signature(main: Any, block: Any) -> None:
    end = list(block.operations)[-1].operation
    inputs, results = [a.type for a in block.arguments], [v.type for v in end.operands]
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
    for name, types in (("arg_attrs", inputs), ("res_attrs", results)):
        if name in main.attributes:
            given = list(ir.ArrayAttr(main.attributes[name]))
            main.attributes[name] = ir.ArrayAttr.get([*given, *[ir.DictAttr.get({})] * (len(types) - len(given))])
