"""Conversion of VHLO text, the versioned copy of StableHLO in artifacts, to StableHLO."""

from __future__ import annotations

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.contexts import diagnostics
from stablexla.dialects.errors import UnsupportedError
from stablexla.interop.encodings.formats import to_bytecode
from stablexla.targets.pipeline.messages import messages_of


def to_stablehlo(module: ir.Module) -> ir.Module:
    """Return the module itself, or, when its functions are VHLO's, one of StableHLO.

    Raises:
        UnsupportedError: something in it is in no version of StableHLO that this build reads.
    """
    if not any(op.operation.name.startswith("vhlo.") for op in module.body.operations):
        return module
    context = module.context
    with diagnostics(context) as seen:
        try:
            made: ir.Module = stablehlo.deserialize_portable_artifact(context, to_bytecode(module))
        except (ir.MLIRError, ValueError) as error:
            raise UnsupportedError(f"VHLO that is no StableHLO: {messages_of(error, seen)[0]}") from None
    return made
