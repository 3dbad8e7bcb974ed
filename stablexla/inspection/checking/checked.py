"""Executables that check every run, and single checked runs: `executable.check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy.typing as npt

from stablexla.builder.computation import XlaComputation
from stablexla.compiling.core import contexts_for, leaf_names
from stablexla.compiling.device_counts import counts_of, with_counts
from stablexla.compiling.known_shapes import with_known_shapes
from stablexla.compiling.staged import StagedText
from stablexla.dialects.caller import warn
from stablexla.dialects.errors import CheckError, CheckWarning, ExecutionError, UnsupportedError
from stablexla.dialects.value_checks import kinds_of
from stablexla.executable.executable import Executable
from stablexla.inspection.checking.checker import SPECIALIZE, UNKNOWN_SIZES, Checker, Subject
from stablexla.inspection.checking.finding import CheckFinding
from stablexla.interop.loading import Program, load
from stablexla.targets.pipeline.options import MAIN, CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.registry import find_target
from stablexla.targets.signature.signature import needs_shapes, signature_of
from stablexla.targets.stablehlo.inlining import operations_of

Array = npt.NDArray[Any]
_QUEUES = ("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv")


class CheckedExecutable(Executable):
    """A program that raises where an operation makes a NaN or an infinity; `CompileOptions(check=...)` makes it.

    Its stages and kernels are those of the program without checks. Arguments are never donated.
    """

    def __init__(self, subject: Subject, options: CompileOptions, computation: XlaComputation | None) -> None:
        self._checker = Checker(subject, kinds_of(options.check), options)
        first = self._checker.first
        super().__init__(
            subject.source,
            subject.signature,
            first._function,
            first.pipeline,
            target=subject.target,
            num_replicas=subject.counts[0],
            num_partitions=subject.counts[1],
            computation=computation,
            options=options,
            shardings=None if first._shardings is None else (first._shardings[0], first._shardings[1]),
        )
        self._checkers[kinds_of(options.check)] = self._checker
        self._is_plain = False
        self._run = lambda leaves: self._run_checked([leaves])[0]

    def execute(
        self, arguments: Sequence[object], *, donate: bool = False, time_limit: float | None = None
    ) -> list[Array]:
        """Run the program, as `Executable.execute`.

        Raises:
            CheckError: an operation made what the program is checked for.
        """
        leaves = arguments if self._tree is None else self._tree.arguments(arguments)
        return self._run_checked([leaves], time_limit)[0]

    def execute_replicated(
        self,
        arguments: Sequence[Sequence[object] | None],
        *,
        gather: bool = True,
        donate: bool = False,
        time_limit: float | None = None,
    ) -> Any:
        """Run the program on all devices, as `Executable.execute_replicated`; the first device's finding is raised."""
        return self._run_checked([self._leaves_of(own) for own in arguments], time_limit)

    def _leaves_of(self, arguments: Sequence[object] | None) -> Sequence[object]:
        if arguments is None:
            raise UnsupportedError(f"{self.name}: checks of a program that runs in several processes")
        return arguments if self._tree is None else self._tree.arguments(arguments)

    def _run_checked(self, arguments: Sequence[Sequence[object]], time_limit: float | None = None) -> list[list[Array]]:
        _refuse_placed(self)
        results, finding, warning = self._checker.run(arguments, time_limit)
        if warning is not None:
            warn(f"{self.name}: {warning}", CheckWarning)
        if finding is not None:
            raise CheckError(f"{self.name}: {finding}", finding=finding)
        return results

    def save(self, path: str | Path, *, key: bytes | None = None, source: bool = True) -> NoReturn:
        """Refuse: a saved program has no checks.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            f"{self.name}: a program with checks cannot be saved", hint="compile it without CompileOptions(check=...)"
        )


def check(executable: Executable, arguments: Sequence[Any], kinds: object) -> CheckFinding | None:
    """Run a program once with checks; as `Executable.check`."""
    words = kinds_of(() if kinds is None else kinds)
    _refuse_placed(executable)
    checker = executable._checkers.get(words) or _checker_of(executable, words)
    tree = executable._tree
    devices = _of_each_device(executable, arguments)
    _, finding, warning = checker.run([own if tree is None else tree.arguments(own) for own in devices])
    return finding or warning


def _refuse_placed(executable: Executable) -> None:
    """Raise UnsupportedError where `executable.processes` was set: the checked programs have equal shares."""
    if executable._devices.is_placed:
        raise UnsupportedError(
            f"{executable.name}: checks of a program with processes of its own",
            hint="another executable of the program, without executable.processes = [...]",
        )


def _of_each_device(executable: Executable, arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments of each device; those of a program on sharded arrays are whole ones."""
    count = executable.num_devices
    if count == 1 or executable._shardings is not None:
        return [arguments]
    if len(arguments) != count or not all(own is None or isinstance(own, (list, tuple)) for own in arguments):
        raise ExecutionError(
            f"{executable.name}: the program runs on {count} devices, each with a list of arguments of its own",
            hint="executable.check([arguments of device 0, arguments of device 1, ...])",
        )
    return list(arguments)


def _checker_of(executable: Executable, words: tuple[str, ...]) -> Checker:
    """Return the checked programs for an executable that has none for these kinds."""
    source, options = executable._stablehlo, executable._compile_options or CompileOptions()
    if needs_shapes(source):  # its pipeline begins with the step that gives them
        with executable._contexts():
            source = with_known_shapes(source, executable.pipeline) or source
        own = executable.pipeline
        options = replace(options, pipeline=Pipeline(own.name, own.steps[1:], own.rules))
    for name in _QUEUES:
        if operations_of(source, name):
            raise UnsupportedError(
                f"{executable.name}: a run beside the executable's own, which has the queue of {name}",
                hint="sx.compile(program, options=sx.CompileOptions(check=...))",
            )
    counts = executable.num_replicas, executable.num_partitions
    made = Checker(Subject(source, executable._signature, executable.target, counts), words, options)
    executable._checkers[words] = made
    return made


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
