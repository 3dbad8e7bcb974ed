"""The functions of XLA's header xla_builder.h by state: their names here, or why they are absent.

Their list is third_party/xla_builder.toml. A function is here under its name in snake case, as `sx.name` or as the
builder's method `b.name`, or as `HERE` says; all others have a reason in `ABSENT`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stablexla as sx

LIST = Path(__file__).resolve().parents[1] / "third_party/xla_builder.toml"

_CONSTANT = "`b.constant`"
_WITH_LAYOUT = "`b.constant`; a constant's layout changes no value"
_SEVERAL = "`sx.{}` of several arrays"
_LISTED = "`sx.{}`: `replica_groups` lists what a device list counts out"

HERE = {
    "ConstantLiteral": _CONSTANT,
    "ConstantR0": _CONSTANT,
    "ConstantR1": f"{_CONSTANT}; of one value `sx.broadcast`",
    "ConstantR2": _CONSTANT,
    "ConstantFromArray": _CONSTANT,
    "ConstantFromArrayWithLayout": _WITH_LAYOUT,
    "ConstantR2FromArray2D": _CONSTANT,
    "ConstantR2FromArray2DWithLayout": _WITH_LAYOUT,
    "ConstantR3FromArray3D": _CONSTANT,
    "ConstantR3FromArray3DWithLayout": _WITH_LAYOUT,
    "ConstantR4FromArray4D": _CONSTANT,
    "ConstantR4FromArray4DWithLayout": _WITH_LAYOUT,
    "RaggedAllToAllWithDeviceList": _LISTED.format("ragged_all_to_all"),
    "AllGatherWithDeviceList": _LISTED.format("all_gather"),
    "AllGatherTuple": _SEVERAL.format("all_gather"),
    "AllGatherTupleWithDeviceList": _SEVERAL.format("all_gather"),
    "AllReduceWithDeviceList": _LISTED.format("all_reduce"),
    "AllReduceTuple": _SEVERAL.format("all_reduce"),
    "AllReduceTupleWithDeviceList": _SEVERAL.format("all_reduce"),
    "ReduceScatterWithDeviceList": _LISTED.format("reduce_scatter"),
    "AllToAllWithDeviceList": _LISTED.format("all_to_all"),
    "AllToAllTuple": "`sx.all_to_all_tuple`; the form that splits its operand is `sx.all_to_all`",
    "AllToAllTupleWithDeviceList": _LISTED.format("all_to_all_tuple"),
    "CollectiveBroadcastWithDeviceList": _LISTED.format("collective_broadcast"),
    "CreateDefaultConvDimensionNumbers": "`sx.ConvDimensionNumbers.default`",
    "GetShape": "`op.shape`",
    "GetShapePtr": "`op.shape`",
    "GetOperandShapes": "`op.shape` of each",
    "GetProgramShape": "`parameter_shapes` and `result_shape` of what `b.build` gives",
    "OpToString": "`repr(op)`; `str(b.build(op))` is all that it depends on",
    "SetOpMetadata": "`b.set_op_metadata`",
    "builder": "`op.builder`",
    "IsIdenticalTo": "`op is other`",
    "operator-": "`-`",
    "operator+": "`+`",
    "operator*": "`*`",
    "operator/": "`/`",
    "operator%": "`%`",
    "operator~": "`~`",
    "operator&": "`&`",
    "operator|": "`\\|`",
    "operator^": "`^`",
    "operator<<": "`<<`",
    "operator>>": "`>>`",
    "XlaScopedShardingAssignment": "`with b.scoped_sharding(...)`",
    "XlaScopedFrontendAttributesAssignment": "`with b.scoped_frontend_attributes(...)`",
    "XlaScopedOpMetadataAssignment": "`with b.scoped_op_metadata(...)`",
}
"""Names here that are not XLA's in snake case, as Markdown."""

_RAISES = "an operation that breaks a rule raises `sx.ShapeError` where it is written: there is no builder in error"
_ORIGINAL = "StableHLO has no place for original values, which XLA's debugger reads"
_DYNAMIC_CONV = (
    "custom calls that only XLA's dynamic padder knows; `sx.conv_general_dilated` takes dynamic dimensions with given "
    "padding, and padding that follows from sizes at run time is not there"
)
_NO_HANDLES = "no op and no computation is without a builder or invalid: what cannot be made is not made"

ABSENT = {
    "CustomCallWithConvDnums": "StableHLO's custom_call has no window and no convolution's dimensions; put them into "
    "`opaque`",
    "ConvKernelGrad": "the header declares it as a friend alone; a kernel's gradient is `sx.conv_general_dilated` with "
    "other dimension numbers",
    "DynamicConvForward": _DYNAMIC_CONV,
    "DynamicConvInputGrad": _DYNAMIC_CONV,
    "DynamicConvKernelGrad": _DYNAMIC_CONV,
    "SetOriginalValue": _ORIGINAL,
    "ClearOriginalValue": _ORIGINAL,
    "original_value": _ORIGINAL,
    "XlaScopedOriginalValueAssignment": _ORIGINAL,
    "set_die_immediately_on_error": _RAISES,
    "BuildAndNoteError": _RAISES,
    "first_error": _RAISES,
    "GetCurrentStatus": _RAISES,
    "ReportError": _RAISES,
    "ReportErrorOrReturn": _RAISES,
    "Validate": "`sx.ConvDimensionNumbers` is checked where it is made and used",
    "valid": _NO_HANDLES,
    "IsUninitialized": _NO_HANDLES,
}
"""Why a function is not here."""

GROUPS_ABSENT = {"internal::XlaBuilderFriend": "for XLA's own compiler and tests, on operations that passes make"}
"""Why none of a group's functions is here."""

PARAMETERS_ABSENT = {
    "ConvertSpmdFullToShardShape": "`single_dim` but -1; `unspecified_dims`",
    "ConvertSpmdShardToFullShape": "`single_dim` but -1; `unspecified_dims`",
    "CustomCall": "`literal`, `schedule`: StableHLO has no place for them",
    "SetUpAlias": "`must_alias`: a caller may always keep its arguments",
    "Parameter": "`replicated_at_leaf_buffers`: StableHLO has no place for it",
    "SetOpMetadata": "`op_type`: StableHLO's locations have no place for it",
    "Build": "`remove_dynamic_dimensions`: sizes at run time are kept",
}
"""Parameters of functions that are here otherwise."""


@dataclass(frozen=True)
class Function:
    """A function of the header.

    Attributes:
        group: what it is a member of, or "functions", "operators".
        here: what it is here, as Markdown; "" where it is absent.
        reason: why it is absent.
    """

    name: str
    group: str
    here: str
    reason: str


def header() -> dict[str, Any]:
    """The list as it is kept."""
    return tomllib.loads(LIST.read_text())


def functions() -> Iterator[Function]:
    """All functions, in the order of the header."""
    for group, names in header()["names"].items():
        for name in names:
            found = HERE.get(name) or _looked_up(name, group)
            reason = "" if found else ABSENT.get(name) or GROUPS_ABSENT.get(group, "")
            yield Function(name, group, found, reason)


def _looked_up(name: str, group: str) -> str:
    """The function of that name in snake case, if there is one."""
    plain = snake_case(name)
    for spelled in (plain, f"{plain}_"):
        if group == "functions" and spelled in sx.__all__:
            return f"`sx.{spelled}`"
        if group in ("functions", "XlaBuilder") and (hasattr(sx.XlaBuilder, spelled) or spelled == "name"):
            return f"`b.{spelled}`"
    return ""


def snake_case(name: str) -> str:
    """XLA's name as it is written here.

    >>> snake_case("AllToAllTuple"), snake_case("TopK"), snake_case("Log1p")
    ('all_to_all_tuple', 'top_k', 'log1p')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def gaps() -> list[str]:
    """Functions with no state, and reasons that are out of date."""
    found = list(functions())
    names = {f.name for f in found}
    gaps = [f"{f.name} of xla_builder.h: neither here nor absent for a reason" for f in found if not f.here + f.reason]
    gaps += [f"{f.name} is here as {f.here}, and has a reason why not" for f in found if f.here and f.name in ABSENT]
    known = {*HERE, *ABSENT, *PARAMETERS_ABSENT}
    return gaps + [f"{name}: no function of xla_builder.h" for name in sorted(known - names)]
