"""The declarations of the PJRT C API beside those of the package pypjrt, which are checked against XLA's header."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stablexla.targets import runtime

abi = pytest.importorskip("pypjrt._abi.pjrt_0_114")
HEADER = (Path(str(runtime.__file__)).parent / "cpp" / "pjrt" / "pjrt_abi.h").read_text()
MORE = {"PLUGIN_Profiler_Api": 3 * 8}  # functions since, which a caller asks for by the size of the table
TYPES = {
    "std::size_t": ctypes.c_size_t,
    "std::int64_t": ctypes.c_int64,
    "std::uint64_t": ctypes.c_uint64,
    "int": ctypes.c_int,
    "bool": ctypes.c_bool,
    "float": ctypes.c_float,
    "PJRT_Buffer_Type": ctypes.c_int,
    "PJRT_Event_OnReadyCallback": ctypes.c_void_p,
}


def structures() -> Iterator[tuple[str, str]]:
    """The structures of arguments: name and fields, as they are written."""
    for name, base, line, lines in re.findall(
        r"^struct (PJRT_\w+(?= :)|PLUGIN_\w+)( : Args)? \{(?:(.*)\};|((?:\n  .*)+)\n\};)$", HEADER, re.M
    ):
        yield name, f"{'std::size_t struct_size; void* extension_start;' if base else ''}{line or lines}"


def fields(text: str, known: dict[str, Any]) -> list[tuple[str, Any]]:
    """The fields of a structure with the types of ctypes; those of a union are one field."""
    union = re.search(r"union \{(.*?)\n  \};", text, re.S)
    if union is not None:
        inner = type("Inner", (ctypes.Union,), {"_fields_": fields(union[1], known)})
        before, after = text[: union.start()], text[union.end() :]
        return [*fields(before, known), ("union", inner), *fields(after, known)]
    found = []
    for declaration in filter(None, map(str.strip, text.split(";"))):
        declared = re.fullmatch(r"(.+?)\s*\(?\*?(\w+)(?:\)\(.*\))?", declaration)
        assert declared is not None, declaration
        type_ = declared[1].removeprefix("const ").strip()
        found.append((declared[2], ctypes.c_void_p if "*" in declaration else {**TYPES, **known}[type_]))
    return found


def declared() -> dict[str, Any]:
    """All structures as ctypes lays them out."""
    made: dict[str, Any] = {}
    for name, text in structures():
        if name != "PJRT_Api":
            made[name] = type(name, (ctypes.Structure,), {"_fields_": fields(text, made)})
    return made


@pytest.mark.parametrize("name", [name for name, _ in structures() if name != "PJRT_Api"])
def test_layout(name: str) -> None:
    ours, theirs = declared()[name], getattr(abi, name)
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs) - MORE.get(name, 0)
    offsets = {field: getattr(ours, field).offset for field, _ in ours._fields_ if field != "union"}
    assert offsets == {field: getattr(theirs, field).offset for field in offsets}


def test_every_structure_is_read() -> None:
    assert len(declared()) == HEADER.count(" : Args {") - 1 + HEADER.count("struct PLUGIN_Profiler_") - 1


def test_the_functions_in_their_order() -> None:
    assert re.findall(r" X\((\w+)\)", HEADER) == [name.removeprefix("PJRT_") for name in abi.FUNCTIONS]
