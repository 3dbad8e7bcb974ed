"""What an executable tells of its kernels, read from the attributes that the passes leave on them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.kernels import KIND
from stablexla.targets.codegen.calls import IMPL, KernelCall
from stablexla.targets.pipeline.driver import Watcher
from stablexla.targets.pipeline.pipelines import Element, Step


@dataclass(frozen=True)
class KernelSummary:
    """One kernel of a program.

    Attributes:
        name: of its function.
        kind: which loops it has ("loop", "row", "reduce", "contraction" ...).
        path: "emitted" when explicit vectors were written for it, "general" when MLIR's own passes made its loops.
        items: work items of all its phases.
        calls: places from which it is called.
    """

    name: str
    kind: str
    path: str
    items: int
    calls: int

    def _repr_html_(self) -> str:
        from stablexla.dialects.display.html_table import html_table

        cells = (self.name, self.kind, self.path, str(self.items), str(self.calls))
        return html_table(("kernel", "kind", "path", "items", "calls"), [cells], ("items", "calls"))


class KernelWatcher(Watcher):
    """Notes the kernels after the last pass that leaves any, of a program that has been compiled before."""

    pass_by_pass = True
    verify_each = False

    def __init__(self) -> None:
        self.kernels: tuple[KernelSummary, ...] = ()

    def after_pass(self, step: Step, element: Element, module: Any) -> None:
        functions = [op.operation for op in module.body.operations if KIND in op.operation.attributes]
        if not element.is_python or not functions:
            return
        calls: Counter[str] = Counter()

        def count(op: Any) -> Any:
            if op.name == "func.call":
                calls[ir.FlatSymbolRefAttr(op.attributes["callee"]).value] += 1
            return ir.WalkResult.ADVANCE

        module.operation.walk(count)
        self.kernels = tuple(_summary(f, calls) for f in functions)


def _summary(function: Any, calls: Counter[str]) -> KernelSummary:
    attributes = function.attributes
    path, items = "", 0
    if IMPL in attributes:
        call = KernelCall.of(function)
        path, items = call.path, sum(phase.items for phase in call.phases)
    return KernelSummary(
        symbol_of(function), ir.StringAttr(attributes[KIND]).value, path, items, calls[symbol_of(function)]
    )
