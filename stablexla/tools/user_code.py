"""Code of the user's that the tools load: `--load`, `--rule` and `--pipeline`."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import traceback
from pathlib import Path

from stablexla.compiling.user_pipelines import lowering_rule
from stablexla.dialects.errors import CompileError, ParseError, StablexlaError
from stablexla.dialects.rules import LoweringRule, in_scope
from stablexla.targets.pipeline.passes import function_of
from stablexla.targets.pipeline.pipelines import Pipeline


def add_code_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that the functions here read."""
    add = parser.add_argument_group("rules, passes and pipelines of your own").add_argument
    add(
        "--load",
        action="append",
        default=[],
        metavar="FILE.py",
        help="run this first: it registers lowering rules, passes, custom calls",
    )
    help_ = "a lowering rule of a loaded file: stablehlo.tanh=my_file:my_rule"
    add("--rule", action="append", default=[], metavar="NAME=FUNCTION", help=help_)
    add("--pipeline", type=Path, metavar="FILE", help="compile by these steps, as str(pipeline) writes them")


def load_files(arguments: argparse.Namespace) -> None:
    """Run the files of `--load`, and warn of those with rules that have no effect.

    Raises:
        ParseError: as `load_python`.
        CompileError: as `rule_of`.
    """
    for file in arguments.load:
        load_python(file)
    warn_of_loaded(arguments)


def load_python(file: str) -> None:
    """Run a Python file, under its name as a module's, to register its passes and rules.

    Raises:
        ParseError: it cannot be read, or raises an exception.
    """
    name = Path(file).stem
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not Path(file).is_file():
        raise ParseError("is no Python file that can be loaded", file=file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except StablexlaError:
        raise
    except Exception as error:
        lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        place = f"{file}:{lines[-1].lineno}" if lines else file
        raise ParseError(f"{type(error).__name__}: {error}", file=place) from error


def warn_of_loaded(arguments: argparse.Namespace) -> None:
    """Warn of files that were loaded, and have rules that neither they nor `--rule` register."""
    registered = (*in_scope(), *map(rule_of, arguments.rule))
    for file in arguments.load:
        found = vars(sys.modules.get(Path(file).stem, sys))
        for name, rule in found.items():
            if isinstance(rule, LoweringRule) and rule not in registered:
                print(
                    f"warning: {file}: the rule {name} of {rule.name} is not registered, and has no effect\n"
                    f"  try: @sx.lowers({rule.name!r}), or --rule={rule.name}={Path(file).stem}:{name}",
                    file=sys.stderr,
                )


def rule_of(text: str) -> LoweringRule:
    """Return the lowering rule in `stablehlo.tanh=my_file:my_rule`.

    Raises:
        CompileError: there is no such function, or no such operation.
    """
    name, _, label = text.partition("=")
    found = function_of(label)
    rule: LoweringRule = lowering_rule(name, found.function if isinstance(found, LoweringRule) else found)
    return rule


def read_pipeline(path: Path) -> Pipeline:
    """Read the pipeline of a file.

    Raises:
        CompileError: it cannot be read, or is none.
    """
    try:
        return Pipeline.parse(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise CompileError(f"{path} cannot be read as a pipeline: {error}") from None
