"""The arguments of a compilation as one value, and what is asked of a program before anybody reads it.

Nothing here needs an MLIR: a program that is in the cache starts without.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stablexla.targets.pipeline.options import DEFAULT_TARGET, MAIN, CompileOptions

if TYPE_CHECKING:
    from stablexla.builder.computation import XlaComputation
    from stablexla.interop.loading import Program

STAGE = b"// stage "
"""The beginning of texts that another run has written (`staged.py`)."""
_HEADER = 100
"""More bytes than the first word of the line with a stage's name has."""
_LOWERED = re.compile(rb"// stage (?!source:)[\w-]+: ")
BIG = 8 << 20
"""Bytes of constants above which a program is compiled in contexts of its own."""


class Request(NamedTuple):
    """The arguments of `sx.compile` as one value."""

    program: Program
    entry: str = MAIN
    target: str = DEFAULT_TARGET
    num_replicas: int | None = None
    num_partitions: int | None = None
    options: CompileOptions = CompileOptions()

    @property
    def computation(self) -> XlaComputation | None:
        """The program, if it is one of the builder's and compiled as a whole: its parameters have names and trees."""
        from stablexla.builder.computation import XlaComputation

        return self.program if isinstance(self.program, XlaComputation) and self.entry == MAIN else None


def is_lowered(program: Program) -> bool:
    """Return whether a program's text, or its file's, begins as one that another run has lowered."""
    start: bytes | bytearray = b""
    if isinstance(program, str):
        start = program[:_HEADER].encode(errors="replace")
    elif isinstance(program, (bytes, bytearray)):
        start = program[:_HEADER]
    elif isinstance(program, Path) and program.is_file():  # a pipe would have to be read for good
        with suppress(OSError), program.open("rb") as opened:  # for `sx.load` to complain of
            start = opened.read(_HEADER)
    return _LOWERED.match(start) is not None


def constant_bytes(program: Program) -> int:
    """Return about how many bytes a program's constants take."""
    if isinstance(program, Path):
        return program.stat().st_size if program.is_file() else 0
    if isinstance(program, (str, bytes, bytearray, memoryview)):
        return len(program)
    import jaxlib.mlir.ir as hlo_ir

    module = module_of(program)
    return _bytes_in(module) if isinstance(module, hlo_ir.Module) else 0


def module_of(program: Program) -> Any:
    """Return a computation's module, and anything else as it is."""
    builder = sys.modules.get("stablexla.builder.computation")
    return program.module if builder is not None and isinstance(program, builder.XlaComputation) else program


def _bytes_in(module: Any) -> int:
    """Return about how many bytes the module's constants take: four for each element."""
    from stablexla.targets.stablehlo.inlining import operations_of

    return sum(4 * _stored_elements(op) for op in operations_of(module, "stablehlo.constant"))


def _stored_elements(constant: Any) -> int:
    from stablexla.dialects.constants import is_splat
    from stablexla.dialects.held_arrays import value_of

    count: int = prod(constant.results[0].type.shape)
    return 1 if count > 1 and is_splat(value_of(constant)) else count
