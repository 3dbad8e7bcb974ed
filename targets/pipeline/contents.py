"""What a module holds: by this the driver skips passes that would find nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from stablexla.dialects.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import jaxlib.mlir.ir as hlo_ir


@dataclass(frozen=True)
class Contents:
    """A summary of a module of StableHLO.

    Attributes:
        names: of its operations.
        types: of its functions' arguments and results, and of constants.
    """

    names: frozenset[str]
    types: frozenset[Any]

    @staticmethod
    def of(module: hlo_ir.Module) -> Contents:
        """Walk a module."""
        import jaxlib.mlir.ir as hlo_ir  # processes that load programs know of passes, and have no MLIR

        names, types = set[str](), set[Any]()

        def look(op: Any) -> Any:
            name = op.name
            names.add(name)
            if name == "func.func":
                signature = hlo_ir.FunctionType(hlo_ir.TypeAttr(op.attributes["function_type"]).value)
                types.update(signature.inputs, signature.results)
            elif name == "stablehlo.constant":
                types.add(op.results[0].type)
            return hlo_ir.WalkResult.ADVANCE

        module.operation.walk(look)
        return Contents(frozenset(names), frozenset(types))

    def has(self, *names: str) -> bool:
        """Whether there is an operation of any of the names, or of the dialect that one ending in "." says."""
        dialects = tuple(name for name in names if name.endswith("."))
        return not self.names.isdisjoint(names) or (bool(dialects) and any(n.startswith(dialects) for n in self.names))

    def has_type(self, of_kind: Callable[[Any], bool]) -> bool:
        """Whether any of the types is of a kind."""
        return any(map(of_kind, self.types))


Looks = Callable[[Contents], bool]


def for_any(names: Collection[str]) -> Looks:
    """Return the test for operations of any of these names, as many as there are when it is made."""
    return lambda held: held.has(*names)
