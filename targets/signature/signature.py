"""Signature of a program, read from the StableHLO function `main` before it is lowered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.display.control_characters import escaped
from stablexla.dialects.dynamic_sizes import extents_of, is_unknown
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.errors import UnsupportedError, VerificationError
from stablexla.dialects.quantized_types import is_quantized, storage_of
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.operations import terminator_of
from stablexla.lowering.support.types import TensorType, is_token, tensor_type
from stablexla.targets.signature.interface import Signature as Signature  # it is named from here

_RESULT_INFO = "jax.result_info"
_NAME = re.compile(r'loc\("([^"/]+)"(?:\(.*\))?\)')  # where the program was written may follow
_ESCAPED = re.compile(rb"\\(?:([0-9A-F]{2})|\\)")


def signature_of(module: hlo_ir.Module) -> Signature:
    """Read the signature of a module; tokens are no part of it.

    Raises:
        VerificationError: there is no function `main`, or it has no body.
        UnsupportedError: several blocks, or a parameter or result that is no array of known extents.
    """
    block = body_of(module)
    terminator = terminator_of(block)
    return Signature(
        module_name(module),
        tuple(_type(a, f"parameter {i}") for i, a in enumerate(block.arguments) if not is_token(a.type)),
        tuple(_type(v, f"result {i}") for i, v in enumerate(terminator.operands) if not is_token(v.type)),
        tuple(argument_name(a) for a in block.arguments if not is_token(a.type)),
        tuple(extents_of(a.type)[1] for a in block.arguments if not is_token(a.type)),
        tuple(extents_of(v.type)[1] for v in terminator.operands if not is_token(v.type)),
        count_of(module, "replicas"),
        count_of(module, "partitions"),
        _result_names(module, terminator.operands),
    )


def _result_names(module: hlo_ir.Module, results: Sequence[Any]) -> tuple[str, ...]:
    """Return the path of each result that is no token in the tree that JAX's function returns, as `['out'][0]`.

    It is "" where JAX gives none, or no more than the result's number; `()` where all are "".
    """
    rows = main_of(module).attributes.get("res_attrs", ({},) * len(results))
    names = []
    for number, (row, value) in enumerate(zip(rows, results, strict=True)):
        path = escaped(_text(row[_RESULT_INFO])).removeprefix("result") if _RESULT_INFO in row else ""
        if not is_token(value.type):
            names.append("" if path == f"[{number}]" else path)
    return tuple(names) if any(names) else ()


def _text(attribute: Any) -> str:
    return attribute.value if isinstance(attribute, hlo_ir.StringAttr) else ""


def count_of(module: hlo_ir.Module, what: str) -> int:
    """Return the number of replicas or partitions in a module's attribute; 1 without one.

    Raises:
        VerificationError: what it says is no number.
    """
    name, attributes = f"mhlo.num_{what}", module.operation.attributes
    if name not in attributes:
        return 1
    if not isinstance(attributes[name], hlo_ir.IntegerAttr):
        raise VerificationError(f"the module's {name} is {attributes[name]}, which is no number")
    return int(hlo_ir.IntegerAttr(attributes[name]).value)


def _type(value: Any, what: str) -> TensorType:
    extents, dynamic = extents_of(value.type)
    try:
        return tensor_type(_with_extents(value.type, extents) if dynamic else plain(value.type))
    except UnsupportedError as error:
        raise UnsupportedError(f"{what} of main: {error.summary}") from None


def plain(type_: Any) -> Any:
    """Return the type with storage integers in place of quantized elements."""
    return _with_extents(type_, type_.shape) if is_quantized(type_) else type_


def _with_extents(type_: Any, extents: Sequence[int]) -> Any:
    unknown = hlo_ir.Location.unknown(type_.context)
    return hlo_ir.RankedTensorType.get(list(extents), storage_of(type_.element_type), loc=unknown)


def element_type_of(type_: Any) -> ElementType:
    """Return an array's element type in the signature, whatever its extents; the storage type of quantized elements.

    Raises:
        UnsupportedError: it is no array of one of XLA's element types.
    """
    return tensor_type(_with_extents(type_, ()) if isinstance(type_, hlo_ir.RankedTensorType) else type_).element


def argument_name(argument: Any) -> str:
    """Return a parameter's name, which producers keep as its location."""
    match = _NAME.fullmatch(str(argument.location))
    if match is None:
        return ""
    # MLIR prints bytes beyond ASCII in hexadecimal digits.
    name = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()) if found[1] else b"\\", match[1].encode())
    return name.decode(errors="replace")


def module_name(module: hlo_ir.Module) -> str:
    """Return the module's name, "main" when it has none."""
    return symbol_of(module) or "main"


def main_of(module: hlo_ir.Module) -> Any:
    """Return the function `main` of a module, as an operation.

    Raises:
        VerificationError: there is none.
    """
    names = []
    for op in module.body.operations:
        if op.operation.name == "func.func":
            names.append(symbol_of(op))
            if names[-1] == "main":
                return op.operation
    found = f"it has {', '.join('@' + n for n in names)}" if names else "it has no functions"
    raise VerificationError(
        f"the module has no function @main; {found}",
        hint=f'sx.compile(program, entry="{names[0]}")' if names else "name the entry function @main",
        option=f"--entry={names[0]}" if names else "",
    )


def outer_types(function: Any) -> list[Any]:
    """Return the types of a function's parameters and results."""
    type_ = hlo_ir.FunctionType(hlo_ir.TypeAttr(function.attributes["function_type"]).value)
    return [*type_.inputs, *type_.results]


def body_of(module: hlo_ir.Module) -> Any:
    """Return the only block of the function `main`.

    Raises:
        VerificationError: there is no function `main`, or it has no body.
        UnsupportedError: several blocks.
    """
    blocks = list(main_of(module).regions[0].blocks)
    if not blocks:
        raise VerificationError("the function @main has no body")
    if len(blocks) > 1:
        raise UnsupportedError("branches between the blocks of a function have no lowering", operation="@main")
    return blocks[0]


def needs_shapes(module: hlo_ir.Module) -> bool:
    """Whether `main` has parameters or results of unknown extents.

    Raises:
        VerificationError: there is no function `main`.
    """
    return any(map(is_unknown, outer_types(main_of(module))))
