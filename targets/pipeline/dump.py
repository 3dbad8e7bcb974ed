"""Dumps of a compilation: the IR after every step in files, edited stages read back, prints, times, reproducers.

The knobs (`knobs.py`) turn each of these on.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import shlex
import tempfile
from dataclasses import field
from pathlib import Path
from time import perf_counter
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.dialects.caller import warn
from stablexla.dialects.contexts import diagnostics, stablehlo_context, upstream_context
from stablexla.dialects.display.tables import console, show_table
from stablexla.dialects.errors import CompileError, StablexlaError
from stablexla.dialects.held_arrays import with_elements
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import functions_of, symbol_of
from stablexla.lowering.support.types import tensor_type
from stablexla.targets.pipeline.driver import Watcher, side_after, side_of, users_files
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.messages import messages_of
from stablexla.targets.pipeline.options import DEFAULT_TARGET
from stablexla.targets.pipeline.passes import Side
from stablexla.targets.pipeline.pipelines import Element, Pipeline, Step
from stablexla.targets.pipeline.printing import Printer, Printing
from stablexla.targets.signature.signature import Signature, signature_of

SOURCE = "source.mlir"
_PROGRAM = re.compile(r"// program: (\{.*\})")
_HEADER = re.compile(r"// stage (?P<stage>[\w-]+): (?P<command>.*)")


@dataclass(frozen=True)
class Header:
    """The first lines of a dumped file.

    Attributes:
        stage: the step that the text was written after, or "source".
        command: the `stablexla-opt` command that made it, or, in a reproducer, that shows the failure.
        signature: of the program; what is lowered tells signed from unsigned integers no more. The second line.
    """

    stage: str
    command: str
    signature: Signature | None = None

    def __str__(self) -> str:
        lines = [f"// stage {self.stage}: {self.command}"]
        if self.signature is not None:
            lines.append(f"// program: {json.dumps(self.signature.plain())}")
        return "\n".join(lines)

    @property
    def target(self) -> str:
        """The target that the command names, or the default."""
        match = re.search(r"(?<!\S)--target[= ](\S+)", self.command)
        return match[1] if match else DEFAULT_TARGET

    @staticmethod
    def read(text: str) -> Header | None:
        """Parse the header of a dumped text; None when it has none."""
        first, _, rest = text.partition("\n")
        match = _HEADER.match(first)
        if match is None:
            return None
        return Header(match["stage"], match["command"], _signature(rest.split("\n", 1)[0]))


def _signature(line: str) -> Signature | None:
    match = _PROGRAM.match(line)
    if match is None:
        return None
    try:
        return Signature.of_plain(json.loads(match[1]))
    except (KeyError, TypeError, ValueError, StablexlaError):
        return None


def signature_or_none(module: Any) -> Signature | None:
    """Return the signature of a StableHLO module for a header; None where it has none that can be called."""
    if side_of(module) != "stablehlo":
        return None
    try:
        return signature_of(module)
    except StablexlaError:
        return None


def signature_as_written(module: Any) -> Signature | None:
    """Return the signature of a module that no header tells of, by the types of its `main`, as StableHLO reads these.

    In upstream's dialects an integer has no sign: i8 is taken for s8, and i1 for pred. None where there is no `main`,
    or one on something other than arrays of known extents.
    """
    if side_of(module) == "stablehlo":
        return signature_or_none(module)
    main = functions_of(module).get("main")
    if main is None:
        return None
    type_ = hlo_ir.FunctionType(hlo_ir.Type.parse(str(main.attributes["function_type"].value), stablehlo_context()))
    try:
        inputs, results = (tuple(map(tensor_type, types)) for types in (type_.inputs, type_.results))
    except StablexlaError:
        return None
    static = ((),) * len(inputs), ((),) * len(results)
    return Signature(symbol_of(module) or "main", inputs, results, ("",) * len(inputs), *static)


def command(file: str, step: Step) -> str:
    """Return the command line that runs a step on a file."""
    return f"stablexla-opt {shlex.quote(file)} --pass-pipeline={shlex.quote(step.text)}"


def reproducing(file: str, step: Step, pipeline: Pipeline) -> str:
    """Return the command line that reproduces a step's failure, in any folder."""
    return f"stablexla-opt {shlex.quote(file)} {reproducing_options(step, pipeline)}"


def reproducing_options(step: Step, pipeline: Pipeline) -> str:
    """Return the reproducer's options: files of the user's passes and rules, the passes, and the step's `leaves`."""
    text = re.sub(r"(?<=[{ ]script=)[^\s}'\"]+", lambda m: str(Path(m[0]).absolute()), step.text)
    words = [f"--load={shlex.quote(name)}" for name in users_files(step, pipeline)]
    words += [f"--rule={shlex.quote(f'{rule.name}={rule.label}')}" for rule in pipeline.rules_of(step)]
    words.append(f"--pass-pipeline={shlex.quote(text)}")
    if step.leaves is not None:
        words.append(f"--leaves={','.join(sorted(step.leaves))}")
    return " ".join(words)


def file_name(number: int, step: str) -> str:
    """Return the name of the file with the IR after a step; names sort in the order of the steps."""
    return f"{number:02}.{step}.mlir"


def assembly(module: Any, *, debug_info: bool = True) -> str:
    """Print a module as text that parses to the same module."""
    return str(with_elements(module).operation.get_asm(enable_debug_info=debug_info)).rstrip("\n") + "\n"


def program_folder(name: str, source: Any) -> str:
    """Return the name of a program's dump folder: its name and a hash of its IR."""
    digest = hashlib.sha256(assembly(source, debug_info=False).encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)[:100] or 'module'}-{digest}"


def parse_stage(text: str, side: Side, *, file: str) -> Any:
    """Parse a stage's text as a module.

    Raises:
        CompileError: it does not parse or verify.
    """
    kind, context = (hlo_ir, stablehlo_context()) if side == "stablehlo" else (ir, upstream_context())
    with diagnostics(context) as seen:
        try:
            return kind.Module.parse(text, context)
        except (ir.MLIRError, hlo_ir.MLIRError) as error:
            said = tuple(text.replace("from -:", f"from {file}:") for text in messages_of(error, seen))
            raise CompileError(f"{file} does not parse", diagnostics=said) from None


@dataclass
class KnobWatcher(Watcher):
    """Dumps, prints and times one program's compilation as the knobs demand.

    Attributes:
        name: the program's name.
        pipeline: the running pipeline.
        source: the module that the run begins with; read at once, if at all.
        signature: of the program; None where the source, in StableHLO, says it.
        times: seconds by step, and by whatever else is added.
        pass_times: for each step its passes and their seconds, where these were asked for.
        overrides: the files whose text took the place of what a step made, in the order of the steps.
    """

    name: str
    pipeline: Pipeline
    source: Any
    signature: Signature | None = None
    times: dict[str, float] = field(default_factory=dict)
    pass_times: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._prints = knobs.print_after_all
        self.pass_by_pass = self._prints or knobs.time == "passes"
        self._began = 0.0
        self._dump = knobs.dump
        self._override = knobs.override
        folder = program_folder(self.name, self.source) if self._dump or self._override else ""
        if self._override is not None:
            self._override /= folder
        if self._dump is not None:
            self._dump = self._dump / folder
            try:
                self._dump.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StablexlaError(f"nothing can be dumped to {self._dump}: {error.strerror}") from None
            self.signature = self.signature or signature_or_none(self.source)
            header = Header("source", f"the program {self.name} as it was given")
            self._write(self._dump / SOURCE, header, self.source)

    @property
    def sees_modules(self) -> bool:
        """Whether it reads or replaces modules, and not only times."""
        return self.pass_by_pass or self._dump is not None or self._override is not None

    def _write(self, path: Path, header: Header, module: Any) -> None:
        path.write_text(f"{header}\n{assembly(module)}")

    def _input_of(self, number: int) -> str:
        return SOURCE if number == 0 else file_name(number - 1, self.pipeline.names[number - 1])

    def replace(self, number: int, step: Step, module: Any) -> Any:
        if self._override is None:
            return module
        path = self._override / file_name(number, step.name)
        if not path.exists():
            return module
        self.overrides = tuple(dict.fromkeys((*self.overrides, str(path))))  # a run that failed is repeated
        return parse_stage(path.read_text(), side_after(self.pipeline, step.name), file=str(path))

    def after_step(self, number: int, step: Step, module: Any, seconds: float) -> None:
        self.times[step.name] = seconds
        if self._dump is not None:
            header = Header(step.name, command(self._input_of(number), step), self.signature)
            self._write(self._dump / file_name(number, step.name), header, module)

    def before_pass(self, step: Step, element: Element, module: Any) -> None:
        self._began = perf_counter()

    def after_pass(self, step: Step, element: Element, module: Any) -> None:
        seconds = perf_counter() - self._began
        name = re.sub(r"\{[^{}]*\}", "", element.text)  # without options
        self.pass_times.setdefault(step.name, []).append((name, seconds))
        if self._prints:
            Printer(Printing(after_all=True), self.name).after(step, element, module)

    def failed(self, number: int, step: Step, before: Any) -> str:
        try:
            folder = self._dump or Path(tempfile.mkdtemp(prefix="stablexla-"))
        except OSError:  # a process that may write nothing
            return ""
        path = (folder / f"{number:02}.{step.name}.repro.mlir").absolute()
        stage = "source" if number == 0 else self.pipeline.names[number - 1]
        self._write(path, Header(stage, reproducing(str(path), step, self.pipeline)), before)
        return str(path)

    def _warn_of_override(self) -> None:
        """Warn of a folder of edited stages that none of this program's is in."""
        folder = self._override
        if folder is None or self.overrides:
            return
        names = [file_name(number, step) for number, step in enumerate(self.pipeline.names)]
        if not folder.is_dir():
            there = sorted(path.name for path in folder.parent.iterdir()) if folder.parent.is_dir() else []
            near = difflib.get_close_matches(folder.name, there, n=1, cutoff=0.3)
            what = f"it has no folder {folder.name}" if folder.parent.is_dir() else "it is no folder"
            hint = f"; {near[0]} is that of another program" if near else ""
        else:
            others = sorted(path.name for path in folder.iterdir())
            what, hint = f"{folder.name} has {', '.join(others) or 'nothing'}", f"; stages are {', '.join(names)}"
        place = knobs.override
        warn(f"STABLEXLA_OVERRIDE={place} changes nothing of {self.name}: {what}{hint}")

    def finish(self) -> None:
        """Print the times, if the knobs demand them."""
        self._warn_of_override()
        if not knobs.time:
            return
        rows = []
        for name, seconds in self.times.items():
            rows.append((name, f"{seconds:.4f}"))
            if knobs.time == "passes":
                rows += [(f"  {its}", f"{taken:.4f}") for its, taken in self.pass_times.get(name, ())]
        rows.append(("all", f"{sum(self.times.values()):.4f}"))
        title = f"{self.name}: seconds by step"
        show_table(console(stderr=True), ("step", "seconds"), rows, numbers=("seconds",), title=title)


__all__ = [
    "SOURCE",
    "Header",
    "KnobWatcher",
    "assembly",
    "command",
    "file_name",
    "parse_stage",
    "program_folder",
    "side_of",
]
