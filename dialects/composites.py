"""The registry of composite operations that a lowering can take whole, by name and element type.

A `stablehlo.composite` stays a call until a target is known. One that has a kernel here keeps its name and is lowered
by it; every other one is replaced by its decomposition, which always comes along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from stablexla.dialects.element_types import BY_MLIR, ElementType


@dataclass(frozen=True)
class CompositeKernel:
    """A way to lower a composite without its decomposition.

    Attributes:
        name: the composite's name, such as `chlo.erf`.
        accepts: whether it takes operands of this element type.
        rule: the lowering rule; its form belongs to the lowering.
        versions: versions of the composite that it knows.
    """

    name: str
    accepts: Callable[[ElementType], bool]
    rule: Callable[..., Any]
    versions: frozenset[int]


COMPOSITES: dict[str, CompositeKernel] = {}


def composite_kernel(
    *names: str, accepts: Callable[[ElementType], bool], versions: Iterable[int] = (0, 1)
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a rule for composites of these names."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert name not in COMPOSITES, f"two kernels for the composite {name}"
            COMPOSITES[name] = CompositeKernel(name, accepts, rule, frozenset(versions))
        return rule

    return register


def kernel_for(name: str, version: int, operand_types: Iterable[Any]) -> CompositeKernel | None:
    """The kernel that takes a composite with operands of these (StableHLO) types, if there is one."""
    found = COMPOSITES.get(name)
    if found is None or version not in found.versions:
        return None
    elements = [BY_MLIR.get(str(getattr(t, "element_type", t))) for t in operand_types]
    return found if elements and all(e is not None and found.accepts(e) for e in elements) else None
