"""Compilation with checks of values: `CompileOptions(check=...)`."""

from __future__ import annotations

from dataclasses import replace

from stablexla.builder.computation import XlaComputation
from stablexla.compiling.core import contexts_for, leaf_names
from stablexla.compiling.device_counts import counts_of, with_counts
from stablexla.compiling.staged import StagedText
from stablexla.dialects.errors import UnsupportedError
from stablexla.inspection.checking.checked import CheckedExecutable
from stablexla.inspection.checking.checker import SPECIALIZE, UNKNOWN_SIZES, Subject
from stablexla.interop.entry import MAIN
from stablexla.interop.load import Program, load
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.registry import find_target
from stablexla.targets.signature.signature import needs_shapes, signature_of


def compile_checked(
    program: Program,
    entry: str,
    target: str,
    num_replicas: int | None,
    num_partitions: int | None,
    options: CompileOptions,
) -> CheckedExecutable:
    """Compile a program that checks its runs.

    Raises:
        UnsupportedError: a program in the text of a later stage, or with sizes at run time.
    """
    if StagedText.of(program) is not None:
        raise UnsupportedError("checks of a program that is lowered already", hint="compile the program in StableHLO")
    with contexts_for(program):
        source = load(program, entry=entry)
        counts = counts_of(source, num_replicas, num_partitions)
        source = with_counts(source, counts)
        if needs_shapes(source):
            raise UnsupportedError(UNKNOWN_SIZES, hint=SPECIALIZE)
        signature = signature_of(source)
        built = program if isinstance(program, XlaComputation) and entry == MAIN else None
        if built is not None:
            signature = replace(signature, parameter_names=leaf_names(built))
        subject = Subject(source, signature, find_target(target).name, counts)
        return CheckedExecutable(subject, options, built)
