"""PyTorch's modules and graphs as executables: exported programs, and the backend of `torch.compile`.

docs/pytorch.md shows both; docs/decisions/0057-pytorch-on-the-builder.md has the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stablexla.interop.torch.dynamo import backend as backend
    from stablexla.interop.torch.exported import to_stablehlo as to_stablehlo
    from stablexla.interop.torch.program import TorchProgram as TorchProgram
    from stablexla.interop.torch.program import compile as compile
    from stablexla.interop.torch.program import from_exported as from_exported

__all__ = ["TorchProgram", "backend", "compile", "from_exported", "to_stablehlo"]

_MODULES = {"backend": "dynamo", "TorchProgram": "program", "compile": "program", "from_exported": "program"}
_FOR_TOOLS = ("held_by", "load_exported", "portable_module", "save_state", "stablehlo_of")


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: without PyTorch this module alone can be imported."""
    if name not in __all__ and name not in _FOR_TOOLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from stablexla.dialects.errors import StablexlaError

    try:
        import_module("torch")
    except ImportError as error:
        hint = "pip install 'stablexla[torch]'"
        raise StablexlaError(f"torch cannot be imported: {error}", hint=hint) from error
    module = _MODULES.get(name, "exported")
    globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return globals()[name]
