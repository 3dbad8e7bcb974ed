"""Reproducers: the module before the step that crashed."""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.dialects.contexts import contexts_of_their_own, stablehlo_context, upstream_context
from stablexla.targets.pipeline.dump import Header, assembly


def keep_reproducer(bytecode: Path, number: int, before: str, name: str, options: str) -> str:
    """Write the module before the step, as text, to a folder that stays, with the command that fails again.

    Args:
        bytecode: the module as the other process left it.
        number: of the step.
        before: the stage that the module is in.
        name: of the step.
        options: those of the command, as `reproducing_options` gives them.

    Returns:
        The path of the file; "" when there is nothing to write.
    """
    try:
        data = bytecode.read_bytes()
        with contexts_of_their_own():
            module = _parse(data)
            text = assembly(module)
    except (OSError, ValueError, ir.MLIRError, hlo_ir.MLIRError):
        return ""
    file = f"{number:02}.{re.sub(r'[^A-Za-z0-9]+', '_', name)}.repro.mlir"
    path = Path(tempfile.mkdtemp(prefix="stablexla-")) / file
    header = Header(before, f"stablexla-opt {shlex.quote(str(path))} {options}")
    path.write_text(f"{header}\n{text}")
    return str(path)


def _parse(data: bytes) -> Any:
    """Parse a module of either MLIR."""
    try:
        return hlo_ir.Module.parse(data, stablehlo_context())
    except (ValueError, hlo_ir.MLIRError):
        return ir.Module.parse(data, upstream_context())
