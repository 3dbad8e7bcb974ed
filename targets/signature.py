"""What a program takes and gives, read from the StableHLO function `main` before it is lowered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.errors import UnsupportedError, VerificationError
from stablexla.lowering.types import TensorType, tensor_type
from stablexla.targets.runtime import ArraySpec

_NAME = re.compile(r'loc\("([^"/]+)"\)')


@dataclass(frozen=True)
class Signature:
    """A program's name, and the type and name of each parameter and result."""

    name: str
    parameters: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    parameter_names: tuple[str, ...] = ()

    def parameter_specs(self) -> list[ArraySpec]:
        """The parameters for the native runtime."""
        names = self.parameter_names or ("",) * len(self.parameters)
        return [_spec(t, name) for t, name in zip(self.parameters, names, strict=True)]

    def result_specs(self) -> list[ArraySpec]:
        """The results for the native runtime."""
        return [_spec(t, "") for t in self.results]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parameters))}) -> ({', '.join(map(str, self.results))})"


def _spec(type_: TensorType, name: str) -> ArraySpec:
    return ArraySpec(type_.element.dtype, type_.shape, name)


def signature_of(module: hlo_ir.Module) -> Signature:
    """Reads the signature of a module.

    Raises:
        VerificationError: there is no function `main`, or it has no body.
        UnsupportedError: several blocks, or a parameter or result that is no array of known extents.
    """
    main = main_of(module)
    blocks = list(main.regions[0].blocks)
    if not blocks:
        raise VerificationError("the function @main has no body")
    if len(blocks) > 1:
        raise UnsupportedError("branches between the blocks of a function have no lowering", operation="@main")
    block = blocks[0]
    terminator = block.operations[len(block.operations) - 1].operation
    return Signature(
        module_name(module),
        tuple(_type(a, f"parameter {i}") for i, a in enumerate(block.arguments)),
        tuple(_type(v, f"result {i}") for i, v in enumerate(terminator.operands)),
        tuple(_name(a) for a in block.arguments),
    )


def _type(value: Any, what: str) -> TensorType:
    try:
        return tensor_type(value.type)
    except UnsupportedError as error:
        raise UnsupportedError(f"{what} of main: {error.summary}") from None


def _name(argument: Any) -> str:
    """A parameter's name, which producers keep as its location."""
    match = _NAME.fullmatch(str(argument.location))
    return match[1] if match else ""


def module_name(module: hlo_ir.Module) -> str:
    """The module's name, "main" when it has none."""
    attributes = module.operation.attributes
    return str(hlo_ir.StringAttr(attributes["sym_name"]).value) if "sym_name" in attributes else "main"


def main_of(module: hlo_ir.Module) -> Any:
    """The function `main` of a module, as an operation.

    Raises:
        VerificationError: there is none.
    """
    names = []
    for op in module.body.operations:
        if op.operation.name == "func.func":
            names.append(str(hlo_ir.StringAttr(op.attributes["sym_name"]).value))
            if names[-1] == "main":
                return op.operation
    found = f"it has {', '.join('@' + n for n in names)}" if names else "it has no functions"
    raise VerificationError(f"the module has no function @main; {found}", hint="name the entry function @main")
