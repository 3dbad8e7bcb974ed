"""Configurations as attributes: frozen dataclasses, printed as dictionaries by the names of their fields.

Encoding and decoding are derived from the fields' types: bools, integers, strings, MLIR types and attributes, and
tuples, string-keyed dictionaries and dataclasses of these. A field that is None is not printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import mlir.ir as ir

from stablexla.dialects.contexts import kept_with_contexts
from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass

T = TypeVar("T")
_NAMES = {bool: "a boolean", int: "an integer", str: "a string", ir.Type: "a type"}


def config_attribute(value: object) -> ir.Attribute:
    """Encode a configuration, or one of its fields."""
    kind = type(value)  # of most fields; asking for each kind in turn takes longer than encoding
    if kind is int:
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if kind is str:
        return ir.StringAttr.get(value)
    if kind is bool:
        return ir.BoolAttr.get(value)
    if is_dataclass(value):
        given = ((name, getattr(value, name)) for name in _fields(cast(Any, kind)))
        return ir.DictAttr.get({name: config_attribute(each) for name, each in given if each is not None})
    if isinstance(value, Mapping):
        return ir.DictAttr.get({name: config_attribute(each) for name, each in value.items()})
    if isinstance(value, ir.Type):
        return ir.TypeAttr.get(value)
    if isinstance(value, ir.Attribute):
        return value
    assert isinstance(value, Sequence), value
    return ir.ArrayAttr.get([config_attribute(each) for each in value])


def config_value(attribute: ir.Attribute) -> Any:
    """Decode an attribute to plain values: a dataclass is a dictionary, without the fields that are None."""
    if isinstance(attribute, ir.DictAttr):
        return {named.name: config_value(named.attr) for named in attribute}
    if isinstance(attribute, ir.ArrayAttr):
        return tuple(config_value(each) for each in attribute)
    return attribute.value


def read_config(cls: type[T], attribute: ir.Attribute, place: str) -> T:
    """Decode a configuration, of equal attributes once for each thread: what is returned must not be changed.

    Args:
        place: what it is the configuration of, for messages.

    Raises:
        CompileError: a field is missing, unknown or of another type; so may text be that was written by hand.
    """
    known = kept_with_contexts("configs")
    key = cls, attribute
    if key not in known:
        known[key] = _read_config(cls, attribute, place)
    found: T = known[key]
    return found


def _read_config(cls: type[T], attribute: ir.Attribute, place: str) -> T:
    wanted = _fields(cast(Any, cls))
    given = {named.name: named.attr for named in _checked(attribute, ir.DictAttr, place, "a dictionary")}
    for name in given:
        if name not in wanted:
            near = get_close_matches(name, wanted, n=1) or wanted
            raise CompileError(f"{place} has a field {name!r}, and {cls.__name__} does not", hint=" or ".join(near))
    for name, field in wanted.items():
        if field.required and name not in given:
            raise CompileError(f"{place} lacks the field {name!r} of {cls.__name__}")
    return cls(**{name: _read(wanted[name].type, each, f"{place}.{name}") for name, each in given.items()})


@dataclass(frozen=True)
class _Field:
    """A field of a configuration: its type, None left out, and whether it has no default."""

    type: Any
    required: bool


@cache
def _fields(cls: Any) -> dict[str, _Field]:
    types = get_type_hints(cls)
    return {field.name: _Field(_given(types[field.name]), field.default is MISSING) for field in fields(cls)}


def _given(type_: Any) -> Any:
    """Return the type of an optional field when it is there."""
    if get_origin(type_) is UnionType:
        (type_,) = (each for each in get_args(type_) if each is not NoneType)
    return type_


def _read(type_: Any, attribute: ir.Attribute, place: str) -> Any:
    """Decode an attribute as a field's type."""
    if is_dataclass(type_):
        return read_config(cast(type, type_), attribute, place)
    if get_origin(type_) is tuple:
        rows = _checked(attribute, ir.ArrayAttr, place, "a list")
        return tuple(_read(get_args(type_)[0], each, f"{place}[{i}]") for i, each in enumerate(rows))
    if get_origin(type_) is dict:
        named = _checked(attribute, ir.DictAttr, place, "a dictionary")
        return {each.name: _read(get_args(type_)[1], each.attr, f"{place}.{each.name}") for each in named}
    if type_ is ir.Attribute:
        return attribute
    value = getattr(attribute, "value", None)
    if type(value) is not type_ and not (type_ is ir.Type and isinstance(value, ir.Type)):
        raise CompileError(f"{place} is {attribute}, not {_NAMES[type_]}")
    return value


def _checked(attribute: ir.Attribute, kind: Any, place: str, name: str) -> Any:
    if not isinstance(attribute, kind):
        raise CompileError(f"{place} is {attribute}, not {name}")
    return attribute
