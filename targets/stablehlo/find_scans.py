"""Pass that replaces each associative scan written as a tree of slices and combines by one composite.

The tree becomes the composite's decomposition, and the combiner a function that the composite names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir
from jaxlib.mlir.dialects import func as hlo_func

from stablexla.dialects import hlo
from stablexla.dialects.erasing import erase
from stablexla.lowering.rules.associative_scan import NAME
from stablexla.targets.pipeline.contents import for_any
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.scan_trees import Node, Tree, trees_of


@module_pass(
    "stablexla-find-scans",
    "makes one operation of each tree of slices and combinations that JAX writes for an associative scan",
    side="stablehlo",
    acts_on=for_any(["stablehlo.pad"]),
)
def find_scans(module: hlo_ir.Module) -> None:
    """Rewrite scan trees as composites; the combine order changes, as an associative scan allows."""
    for tree in trees_of(module):
        with module.context, hlo_ir.Location.unknown():
            _Rewrite(module, tree).run()


class _Rewrite:
    """Replaces one scan tree by a composite."""

    def __init__(self, module: hlo_ir.Module, tree: Tree) -> None:
        self.module, self.tree = module, tree
        self.operations = set(tree.operations)
        self.inputs, self.uniforms = list(tree.arrays), tree.uniforms
        # Values that the composite's results replace: (number of the array, value).
        self.replaced = list(tree.results)
        self.backwards = self._take_reversals()

    def _take_reversals(self) -> bool:
        """Fold reversals of all arrays and results into a scan from the other end."""
        dimension = self.tree.dimension
        uses = [(n, use.owner.operation) for n, value in self.replaced for use in value.uses]
        sources = [array.owner for array in self.inputs]
        if not uses or not all(_reverses(op, dimension) for op in [*sources, *(op for _, op in uses)]):
            return False
        self.operations |= {source.operation for source in sources} | {op for _, op in uses}
        self.inputs = [source.operands[0] for source in sources]
        self.replaced = [(n, op.results[0]) for n, op in uses]
        return True

    def run(self) -> None:
        """Rewrite the tree, unless a result is used before all are defined, or depends on an operation outside it."""
        makers = [value.owner.operation for _, value in self.replaced]
        last = makers[0]
        for maker in makers[1:]:
            if maker.block != last.block:
                return
            last = maker if last.is_before_in_block(maker) else last
        if any(not _comes_after(use.owner, last) for _, value in self.replaced for use in value.uses):
            return
        numbers = sorted({number for number, _ in self.replaced})
        results = [next(v for n, v in self.replaced if n == number) for number in numbers]
        operands = [*self.inputs, *self.uniforms]
        copied = _in_order(results, set(operands), self.operations)
        if copied is None:
            return
        attributes = {
            "arrays": hlo.i64(len(self.inputs)),
            "backwards": hlo_ir.BoolAttr.get(self.backwards),
            "combination": hlo_ir.FlatSymbolRefAttr.get(self._combination()),
            "dimension": hlo.i64(self.tree.dimension),
            "returned": hlo.i64s(numbers),
        }
        with last.location, hlo_ir.InsertionPoint(last):
            named = {
                "name": hlo_ir.StringAttr.get(NAME),
                "composite_attributes": hlo_ir.DictAttr.get(attributes),
                "decomposition": hlo_ir.FlatSymbolRefAttr.get(self._decomposition(operands, results, copied)),
            }
            made = hlo.operation("stablehlo.composite", operands, [value.type for value in results], named)
        for number, value in self.replaced:
            value.replace_all_uses_with(made.results[numbers.index(number)])
        for op in reversed(list(dict.fromkeys([*copied, *makers]))):  # each once, users first
            if not any(True for result in op.results for _ in result.uses):
                erase(op)

    def _function(self, stem: str, arguments: Sequence[Any], results: Sequence[Any]) -> Any:
        """Create a private function of these types."""
        symbols = hlo_ir.SymbolTable(self.module.operation)
        number = 0
        while f"{stem}_{number}" in symbols:
            number += 1
        type_ = hlo_ir.FunctionType.get(list(arguments), list(results))
        with hlo_ir.InsertionPoint(self.module.body):
            made = hlo_func.FuncOp(f"{stem}_{number}", type_, visibility="private")
            made.add_entry_block()
        return made

    def _combination(self) -> str:
        """Create the combiner of two elements, as scalars; return the function's name."""
        arrays = [_scalar(array) for array in self.inputs]
        given = [*arrays, *arrays, *(value.type for value in self.uniforms)]
        function = self._function("scan_combination", given, arrays)
        arguments = list(function.arguments)
        count, nodes = len(arrays), self.tree.nodes
        made: dict[int, Any] = {}

        def write(node: Node) -> Any:
            if node.kind in ("left", "right"):
                return arguments[node.array + count * (node.kind == "right")]
            if node.kind == "uniform":
                if node.value in self.uniforms:
                    return arguments[2 * count + self.uniforms.index(node.value)]
                number = hlo_ir.DenseElementsAttr(node.value.owner.attributes["value"]).get_splat_value()
                value = hlo_ir.DenseElementsAttr.get_splat(_scalar(node.value), number)
                return hlo.emit("stablehlo.constant", [], [_scalar(node.value)], {"value": value})
            op = node.operation
            operands = [made[operand] for operand in node.operands]
            return hlo.emit(op.name, operands, [_scalar(op.results[0])], dict(op.attributes.items()))

        with hlo_ir.InsertionPoint(function.entry_block):
            for number, node in enumerate(nodes):  # operands come before their users
                made[number] = write(node)
            hlo_func.ReturnOp([made[number] for number in self.tree.combined])
        return str(function.name.value)

    def _decomposition(self, operands: Sequence[Any], results: Sequence[Any], copied: Iterable[Any]) -> str:
        """Clone the tree's operations into a function; return its name."""
        function = self._function("scan_tree", [v.type for v in operands], [v.type for v in results])
        copies = dict(zip(operands, function.arguments, strict=True))
        with hlo_ir.InsertionPoint(function.entry_block):
            for op in copied:
                copy = op.clone().operation
                for number, operand in enumerate(op.operands):
                    copy.operands[number] = copies[operand]
                copies.update(zip(op.results, copy.results, strict=True))
            hlo_func.ReturnOp([copies[value] for value in results])
        return str(function.name.value)


def _scalar(value: Any) -> Any:
    """Return the scalar type of one element."""
    return hlo.tensor(value.type, [])


def _reverses(owner: Any, dimension: int) -> bool:
    """Whether an operation reverses that dimension alone."""
    if isinstance(owner, hlo_ir.Block) or owner.name != "stablehlo.reverse":
        return False
    return list(hlo_ir.DenseI64ArrayAttr(owner.attributes["dimensions"])) == [dimension]


def _comes_after(user: Any, op: Any) -> bool:
    """Whether an operation, or the one that it is nested in, comes after another one."""
    user = user.operation
    while user.block != op.block:
        user = user.parent.operation
    return bool(op.is_before_in_block(user)) or user == op


def _in_order(values: Iterable[Any], given: set[Any], known: set[Any]) -> list[Any] | None:
    """Return the operations that compute values from those given, in topological order; None if one is not known.

    An empty array may come from any operation.
    """
    found: dict[Any, None] = {}
    waiting = [(value, False) for value in values]
    while waiting:
        value, ready = waiting.pop()
        if value in given:
            continue
        if isinstance(value.owner, hlo_ir.Block) or value.owner.operation not in known:
            return None
        op = value.owner.operation
        if not ready and op in found:
            continue
        if ready:
            found[op] = None
        else:
            waiting += [(value, True), *((operand, False) for operand in op.operands)]
    return list(found)
