"""Source locations of StableHLO's context, translated to upstream's: part by part, each once."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir


class Locations:
    """Translate locations; the frames that many have in common are translated once.

    What the bindings do not take apart, as those of older jaxlib none, goes through text, which takes a hundred times
    as long.
    """

    def __init__(self) -> None:
        self._known: dict[Any, ir.Location] = {}

    def of(self, location: Any) -> ir.Location:
        """Return a location in upstream's context, which is the current one."""
        attribute = location.attr
        found = self._known.get(attribute)
        if found is None:
            found = self._known[attribute] = self._translated(location)
        return found

    def _translated(self, location: Any) -> ir.Location:
        match type(location).__name__:
            case "FileLineColLoc":
                start = location.start_line, location.start_col
                end = location.end_line, location.end_col
                return ir.Location.file(location.filename, *start, *(() if start == end else end))
            case "NameLoc":
                return ir.Location.name(location.name_str, self.of(location.child_loc))
            case "CallSiteLoc":
                return ir.Location.callsite(self.of(location.callee), [self.of(location.caller)])
            case "UnknownLoc":
                return ir.Location.unknown()
            case _:
                return _parsed(location)


def _parsed(location: hlo_ir.Location) -> ir.Location:
    text = str(location)
    try:
        return ir.Location.from_attr(ir.Attribute.parse(text))
    except ir.MLIRError:  # a location that wraps an attribute of StableHLO's own context
        return ir.Location.name(text)
