"""The registry of composite operations that a lowering can take whole, by name, version and what they are used on.

A `stablehlo.composite` stays a call until a target is known. One that has a kernel here keeps its name and is lowered
by it; every other one is replaced by its decomposition, which always comes along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.attributes.plain_values import plain
from stablexla.dialects.element_types import BY_MLIR, ElementType
from stablexla.dialects.rules import rule_for
from stablexla.dialects.shapes import Shape

Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class CompositeKernel:
    """A way to lower a composite without its decomposition.

    Attributes:
        name: the composite's name, such as `chlo.erf`.
        accepts: whether it takes operands of these shapes under these attributes.
        rule: the lowering rule; its form belongs to the lowering.
        versions: versions of the composite that it knows.
        keep: what the rule refers to, such as a user's function.
    """

    name: str
    accepts: Callable[[Sequence[Shape], Attributes], bool]
    rule: Callable[..., Any]
    versions: frozenset[int]
    keep: object = None


COMPOSITES: dict[str, CompositeKernel] = {}
"""The kernels that the lowering itself has, by name."""

Key = tuple[str, int] | tuple[str, int, str]
REGISTERED: dict[Key, CompositeKernel] = {}
"""Those that were registered while it runs, by name and version, and the target if they are of one; they go first."""
TARGET = "stablexla.target"
"""Attribute of a composite: the kind of target that the program is compiled for; without it, the CPU."""


def composite_kernel(
    *names: str, accepts: Callable[[ElementType], bool], versions: Iterable[int] = (0, 1)
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a rule for composites of these names, if all their operands have element types that it accepts."""

    def takes(shapes: Sequence[Shape], attributes: Attributes) -> bool:
        return bool(shapes) and all(accepts(shape.element_type) for shape in shapes)

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert name not in COMPOSITES, f"two kernels for the composite {name}"
            COMPOSITES[name] = CompositeKernel(name, takes, rule, frozenset(versions))
        return rule

    return register


def kernel_of(op: Any) -> CompositeKernel | None:
    """The kernel that takes a `stablehlo.composite`, if there is one."""
    name, version = name_and_version(op)
    mine = rule_for(op)
    if mine is not None:
        return CompositeKernel(name, lambda shapes, attributes: True, mine.function, frozenset([version]), mine)
    shapes = [_shape(value.type) for value in op.operands]
    target = str(hlo_ir.StringAttr(op.attributes[TARGET]).value) if TARGET in op.attributes else "cpu"
    for found in (REGISTERED.get((name, version, target)), REGISTERED.get((name, version)), COMPOSITES.get(name)):
        if found is None or version not in found.versions or None in shapes:
            continue
        if found.accepts([shape for shape in shapes if shape is not None], attributes_of(op)):
            return found
    return None


def name_and_version(op: Any) -> tuple[str, int]:
    """What a composite is called."""
    name = str(hlo_ir.StringAttr(op.attributes["name"]).value)
    return name, int(hlo_ir.IntegerAttr(op.attributes["version"]).value) if "version" in op.attributes else 0


def attributes_of(op: Any) -> dict[str, Any]:
    """The attributes of a composite as plain values."""
    if "composite_attributes" not in op.attributes:
        return {}
    return {named.name: plain(named.attr) for named in hlo_ir.DictAttr(op.attributes["composite_attributes"])}


def _shape(type_: Any) -> Shape | None:
    """The shape of an array of known extents; None for anything else."""
    if not isinstance(type_, hlo_ir.RankedTensorType) or not type_.has_static_shape:
        return None
    element = BY_MLIR.get(str(type_.element_type))
    return None if element is None else Shape(element, type_.shape)
