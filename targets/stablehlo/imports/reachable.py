"""Dead function elimination: functions not reachable from `main` are dropped before any check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.dialects.symbols import functions_of
from stablexla.targets.pipeline.passes import module_pass


@module_pass(
    "stablexla-drop-unreachable",
    "drops the functions that main does not need, public ones too: any of them may be the entry of another compilation",
    side="stablehlo",
)
def drop_unreachable(module: ir.Module) -> None:
    """Erase functions not reachable from `main` by symbols in attributes; does nothing without `main`."""
    functions = functions_of(module)
    if functions.keys() <= {"main"}:
        return
    reached, waiting = set[str](), [name for name in functions if name == "main"]
    while waiting:
        name = waiting.pop()
        if name in functions and name not in reached:
            reached.add(name)
            waiting.extend(_named_by(functions[name]))
    for name, function in functions.items():
        if reached and name not in reached:
            erase(function)


def _named_by(function: Any) -> list[str]:
    """Return the symbols in the attributes of all operations of a function."""
    found: list[str] = []

    def look(op: Any) -> Any:
        for name in op.attributes.keys():  # noqa: SIM118  (not of a dict)
            with suppress(TypeError):  # of a constant of complex numbers, which the bindings cannot return
                found.extend(_symbols(op.attributes[name]))
        return ir.WalkResult.ADVANCE

    function.walk(look)
    return found


def _symbols(attribute: Any) -> Iterator[str]:
    if isinstance(attribute, ir.FlatSymbolRefAttr):
        yield str(attribute.value)
    elif isinstance(attribute, ir.ArrayAttr):
        for each in attribute:
            yield from _symbols(each)
    elif isinstance(attribute, ir.DictAttr):
        for named in attribute:
            yield from _symbols(named.attr)
