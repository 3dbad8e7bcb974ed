"""Information about a file: form, versions, size, functions and operations; also of unreadable files."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import field
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.errors import StablexlaError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import symbol_of
from stablexla.interop.encodings import bytecode
from stablexla.interop.encodings.exported import find_exported
from stablexla.interop.encodings.formats import Format, recognise
from stablexla.interop.encodings.version_errors import stablehlo_version, unknown_operations
from stablexla.interop.loading import load_bytes


@dataclass
class Function:
    """A function of a program: its name, its type as MLIR writes it, and whether others may call it."""

    name: str
    type: str
    public: bool = True


@dataclass
class Information:
    """The facts known about a file; unknown ones are empty.

    Attributes:
        file, form, size: its name, form, and bytes.
        producer: the writer's name.
        stablehlo: the version of StableHLO that it was written for.
        bytecode: the version of MLIR's encoding.
        module: the program's name.
        attributes: of the module, as text.
        functions: in the order of the file.
        operations: how many there are of each, by name; those of nested regions too; none when it cannot be read.
        unknown: names of operations in it that this build does not have.
        problem: why it cannot be read.
    """

    file: str
    form: Format
    size: int
    producer: str = ""
    stablehlo: str = ""
    bytecode: int | None = None
    module: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    unknown: list[str] = field(default_factory=list)
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the same, for `json.dumps`."""
        functions = [{"name": f.name, "type": f.type, "public": f.public} for f in self.functions]
        return {
            **vars(self),
            "form": self.form.value,
            "functions": functions,
            "operations": dict(sorted(self.operations.items())),
        }


def inform(data: bytes, file: str) -> Information:
    """Return the known facts about a file; never an error.

    >>> found = inform(b"func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }", "a.mlir")
    >>> found.form.value, found.functions[0].type, dict(found.operations)
    ('text', '(tensor<2xf32>) -> tensor<2xf32>', {'func.return': 1})
    """
    found = Information(file, recognise(data), len(data))
    encoded = data
    if found.form is Format.EXPORTED and (exported := find_exported(data)) is not None:
        found.module, encoded = exported.name, exported.artifact
    if encoded.startswith(bytecode.MAGIC):
        _add_header(found, encoded)
    try:
        _add_module(found, load_bytes(data, file))
    except StablexlaError as error:
        found.problem = error.on_command_line()
        _add_tables(found, encoded)
    return found


def _add_header(found: Information, data: bytes) -> None:
    try:
        found.bytecode, found.producer = bytecode.read_header(data)
    except bytecode.MalformedError:
        return
    found.stablehlo = stablehlo_version(found.producer)


def _add_module(found: Information, module: ir.Module) -> None:
    for name, value in dict(module.operation.attributes.items()).items():
        if name == "sym_name":
            found.module = str(ir.StringAttr(value).value)
        else:
            found.attributes[name] = _short(str(value))
    for op in module.body.operations:
        if op.operation.name == "func.func":
            hidden = "sym_visibility" in op.attributes and str(op.attributes["sym_visibility"]) == '"private"'
            found.functions.append(Function(symbol_of(op), str(op.attributes["function_type"].value), not hidden))

    def count(op: Any) -> Any:
        found.operations[op.name] += 1
        return ir.WalkResult.ADVANCE

    module.operation.walk(count)
    for name in ("builtin.module", "func.func"):  # they are reported by name
        del found.operations[name]


def _add_tables(found: Information, data: bytes) -> None:
    """Add what bytecode says of itself when MLIR cannot read the file."""
    with contextlib.suppress(bytecode.MalformedError):
        found.unknown = unknown_operations(bytecode.read_bytecode(data))


def _short(text: str, width: int = 200) -> str:
    return text if len(text) <= width else text[: width - 4] + " ..."
