"""Registry of kernels for composite operations, by name, version and operand types.

A `stablehlo.composite` stays a call until a target is known. One that has a kernel here is kept and lowered to it;
every other one is replaced by its decomposition, which the module always holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.attributes.plain_values import plain
from stablexla.dialects.element_types import BY_MLIR, ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import rule_for
from stablexla.dialects.shapes import Shape

Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class CompositeKernel:
    """A lowering of a composite without its decomposition.

    Attributes:
        name: the composite's name, such as `chlo.erf`.
        accepts: whether it takes operands of these shapes under these attributes.
        rule: the lowering rule; its form belongs to the lowering.
        versions: versions of the composite that it knows.
        keep: objects that the rule references, such as a user's function.
    """

    name: str
    accepts: Callable[[Sequence[Shape], Attributes], bool]
    rule: Callable[..., Any]
    versions: frozenset[int]
    keep: object = None


COMPOSITES: dict[str, CompositeKernel] = {}
"""Built-in kernels of the lowering, by name."""

Key = tuple[str, int] | tuple[str, int, str]
REGISTERED: dict[Key, CompositeKernel] = {}
"""Kernels registered at run time, by name, version, and target if specific to one; they take precedence."""
TARGET = "stablexla.target"
"""Attribute of a composite: the kind of target that the program is compiled for; without it, the CPU."""


def composite_kernel(
    *names: str, accepts: Callable[[ElementType], bool], versions: Iterable[int] = (0, 1)
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule for composites of these names whose operands all have accepted element types."""

    def takes(shapes: Sequence[Shape], attributes: Attributes) -> bool:
        return bool(shapes) and all(accepts(shape.element_type) for shape in shapes)

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert name not in COMPOSITES, f"two kernels for the composite {name}"
            COMPOSITES[name] = CompositeKernel(name, takes, rule, frozenset(versions))
        return rule

    return register


def kernel_of(op: Any) -> CompositeKernel | None:
    """Return the kernel for a `stablehlo.composite`, if there is one."""
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
    """Return the name and version of a composite."""
    name = str(hlo_ir.StringAttr(op.attributes["name"]).value)
    return name, int(hlo_ir.IntegerAttr(op.attributes["version"]).value) if "version" in op.attributes else 0


def attributes_of(op: Any) -> dict[str, Any]:
    """Return the attributes of a composite as plain values."""
    if "composite_attributes" not in op.attributes:
        return {}
    return {named.name: plain(named.attr) for named in hlo_ir.DictAttr(op.attributes["composite_attributes"])}


def _shape(type_: Any) -> Shape | None:
    """Return the shape of a static array; None for anything else."""
    if not isinstance(type_, hlo_ir.RankedTensorType) or not type_.has_static_shape:
        return None
    element = BY_MLIR.get(str(type_.element_type))
    return None if element is None else Shape(element, type_.shape)
