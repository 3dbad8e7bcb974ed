"""What a program takes and gives, read from the StableHLO function `main` before it is lowered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.dynamic_sizes import extents_of
from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.errors import UnsupportedError, VerificationError
from stablexla.lowering.types import TensorType, is_token, tensor_type
from stablexla.targets.runtime import ArraySpec

_NAME = re.compile(r'loc\("([^"/]+)"\)')


@dataclass(frozen=True)
class Signature:
    """A program's name, and the type and name of each parameter and result.

    Attributes:
        parameters, results: the types; where extents are known only at run time, with their bounds.
        dynamic_parameters, dynamic_results: of each its dynamic dimensions; `()` when no array has any.
    """

    name: str
    parameters: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    parameter_names: tuple[str, ...] = ()
    dynamic_parameters: tuple[tuple[int, ...], ...] = ()
    dynamic_results: tuple[tuple[int, ...], ...] = ()

    @property
    def is_static(self) -> bool:
        """Every extent is known."""
        return not any(self.dynamic_parameters) and not any(self.dynamic_results)

    def parameter_specs(self) -> list[ArraySpec]:
        """The parameters for the native runtime: the arrays, and the sizes of all dynamic dimensions."""
        names = self.parameter_names or ("",) * len(self.parameters)
        specs = [_spec(t, name) for t, name in zip(self.parameters, names, strict=True)]
        return specs + _sizes(self.dynamic_parameters)

    def result_specs(self) -> list[ArraySpec]:
        """The results for the native runtime, with the sizes of all dynamic dimensions behind them."""
        return [_spec(t, "") for t in self.results] + _sizes(self.dynamic_results)

    def __str__(self) -> str:
        parameters = ", ".join(_texts(self.parameters, self.dynamic_parameters))
        return f"({parameters}) -> ({', '.join(_texts(self.results, self.dynamic_results))})"


def _sizes(dynamic: tuple[tuple[int, ...], ...]) -> list[ArraySpec]:
    return [_spec(TensorType(BY_NAME["s32"], ()), "") for dimensions in dynamic for _ in dimensions]


def _texts(types: tuple[TensorType, ...], dynamic: tuple[tuple[int, ...], ...]) -> list[str]:
    """The types as XLA writes them: f32[<=8,3]."""
    return [
        f"{t.element}[{','.join(f'<={n}' if i in places else str(n) for i, n in enumerate(t.shape))}]"
        for t, places in zip(types, dynamic or ((),) * len(types), strict=True)
    ]


def _spec(type_: TensorType, name: str) -> ArraySpec:
    return ArraySpec(type_.element.dtype, type_.shape, name)


def signature_of(module: hlo_ir.Module) -> Signature:
    """Reads the signature of a module; tokens are no part of it.

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
        tuple(_type(a, f"parameter {i}") for i, a in enumerate(block.arguments) if not is_token(a.type)),
        tuple(_type(v, f"result {i}") for i, v in enumerate(terminator.operands) if not is_token(v.type)),
        tuple(_name(a) for a in block.arguments if not is_token(a.type)),
        tuple(extents_of(a.type)[1] for a in block.arguments if not is_token(a.type)),
        tuple(extents_of(v.type)[1] for v in terminator.operands if not is_token(v.type)),
    )


def _type(value: Any, what: str) -> TensorType:
    extents, dynamic = extents_of(value.type)
    try:
        return tensor_type(value.type if not dynamic else _static(value.type, extents))
    except UnsupportedError as error:
        raise UnsupportedError(f"{what} of main: {error.summary}") from None


def _static(type_: Any, extents: tuple[int, ...]) -> Any:
    """The tensor type with these extents."""
    unknown = hlo_ir.Location.unknown(type_.context)
    return hlo_ir.RankedTensorType.get(list(extents), type_.element_type, loc=unknown)


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
