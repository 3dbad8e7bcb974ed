"""The parser of the tools' command lines: `--version`, usage errors of two lines, lists of targets and chips."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from stablexla.dialects.builds.installed import installed_version
from stablexla.dialects.builds.pins import PINS
from stablexla.targets.registry import target_names
from stablexla.version import VERSION

USAGE = 2
"""The exit code of wrong usage."""


class UsageError(Exception):
    """Options that contradict each other."""


class Parser(argparse.ArgumentParser):
    """A parser of a tool, whose help ends with examples.

    Abbreviated options are not taken: a new option would make them ambiguous.
    """

    def __init__(self, prog: str, description: str, examples: str, usage: str | None = None) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_argument("--version", action=Printed, text=versions, help="print the versions, and end")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; unknown options are an error that names the nearest one that there is."""
        given, rest = super().parse_known_args(args, namespace)
        if rest:
            known = [option for action in self._actions for option in action.option_strings]
            near = get_close_matches(rest[0].partition("=")[0], known, 1, cutoff=0.75)
            what = "there is no option" if rest[0].startswith("-") else "one argument too many:"
            self.error(f"{what} {rest[0]}", near[0] if near else "")
        return given, rest

    def error(self, message: str, hint: str = "") -> NoReturn:
        """Print two lines, and end with 2."""
        sys.exit(self.refuse(message, hint))

    def refuse(self, message: str, hint: str = "") -> int:
        """Print what was wrong and a way out; return the exit code."""
        print(f"{self.prog}: {message}\n  try: {hint or f'{self.prog} --help'}", file=sys.stderr)
        return USAGE


class Printed(argparse.Action):
    """An option that prints a text and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, text: Any, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help, default=argparse.SUPPRESS)
        self._text = text

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(self._text())
        parser.exit()


def versions() -> str:
    """Return a line with the versions of stablexla, of the MLIRs under it, and of Python."""
    names = {pin.package: installed_version(pin.package) for pin in PINS}
    mlir, jaxlib = names["xtc-mlir-python-bindings"], names["jaxlib"]
    return f"stablexla {VERSION} (jaxlib {jaxlib}, MLIR and LLVM {mlir}, Python {platform.python_version()})"


def list_of_targets() -> str:
    """Return a line for each target, with an example of its name."""
    gpu = "gpu:sm_90 or gpu:sm_90,ptx80: NVIDIA's GPUs; gpu alone is the one that is there. --list-chips has the chips"
    lines = {"cpu": "cpu: this machine's processor", "gpu": gpu}
    return "\n".join(lines.get(name, name) for name in target_names())


def list_of_chips() -> str:
    """Return a line for each chip of a GPU, with the oldest version of PTX that has it."""
    from stablexla.targets.gpu.chips import CHIPS

    return "\n".join(f"gpu:{chip:<8}  PTX {version / 10} or newer" for chip, version in CHIPS.items())
