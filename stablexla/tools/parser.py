"""The parser of the tools' command lines: `--version`, usage errors of two lines, help, lists of targets and chips."""

from __future__ import annotations

import argparse
import platform
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from stablexla.dialects.builds.installed import installed_version
from stablexla.dialects.builds.pins import PINS
from stablexla.targets.kinds import kind_of, target_names
from stablexla.version import VERSION

USAGE = 2
"""The exit code of wrong usage."""


class UsageError(Exception):
    """Options that contradict each other."""


class Parser(argparse.ArgumentParser):
    """A parser of a tool, whose help ends with examples.

    Abbreviated options are not taken: a new option would make them ambiguous.
    """

    hints: Mapping[str, str] = {}
    """Options of mlir-opt alone, and what to write here."""
    passes: Callable[[], Iterable[str]] | None = None
    """Names of passes, where the tool takes them as options."""

    def __init__(self, prog: str, description: str, examples: str, usage: str | None = None) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=examples,
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
        )
        self.add_argument("--version", action=Printed, text=versions, help="print the versions, and end")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; unknown options are an error that names the nearest one that there is."""
        given, rest = super().parse_known_args(args, namespace)
        if rest:
            known = [option for action in self._actions for option in action.option_strings]
            name = rest[0].partition("=")[0]
            near = [self.hints.get(f"--{name.lstrip('-')}"), *get_close_matches(name, known, 1, cutoff=0.75)]
            if self.passes and not any(near):
                near = [
                    f"-{found}" for found in get_close_matches(name.lstrip("-"), list(self.passes()), 1, cutoff=0.75)
                ]
                near.append(f"{self.prog} --show-passes, or --load=FILE.py for a pass of your own")
            what = "there is no option" if rest[0].startswith("-") else "one argument too many:"
            self.error(f"{what} {rest[0]}", next(filter(None, near), ""))
        return given, rest

    def given(self, arguments: argparse.Namespace, names: Iterable[str]) -> Iterator[str]:
        """Yield the options among these, by their names in `arguments`, that have another value than by default."""
        for name in names:
            if getattr(arguments, name) != self.get_default(name):
                yield f"--{name.replace('_', '-')}"

    def error(self, message: str, hint: str = "") -> NoReturn:
        """Print two lines, and end with 2."""
        sys.exit(self.refuse(message, hint))

    def refuse(self, message: str, hint: str = "") -> int:
        """Print what was wrong and a way out; return the exit code."""
        print(f"{self.prog}: {message}\n  try: {hint or f'{self.prog} --help'}", file=sys.stderr)
        return USAGE


class _HelpFormatter(argparse.HelpFormatter):
    """Fits descriptions and examples to the terminal's width as well, 80 columns where there is none."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return fitted(text, width)


_ROW = re.compile(r"(?P<left> +\S.*?) {2,}(?P<right>\S.*)")
_CONTINUED = re.compile(r" {20,}(?P<right>\S.*)")
_COMMAND = re.compile(r" +(?:stablexla-|python |cc |c\+\+ |[A-Z_]+=)")


def fitted(text: str, width: int) -> str:
    """Return a text of paragraphs and tables, wrapped to a width.

    A line is a paragraph, a command, or a row of a table: two columns with two blanks or more between them, or the
    second one alone, which goes on with the row before it.
    """
    return "\n\n".join("\n".join(_fitted_block(block.split("\n"), width)) for block in text.split("\n\n"))


def _fitted_block(lines: Sequence[str], width: int) -> Iterator[str]:
    rows: list[tuple[str, str]] = []
    for line in lines:
        more, row = _CONTINUED.fullmatch(line), _ROW.fullmatch(line)
        if more is not None and rows:
            rows[-1] = rows[-1][0], f"{rows[-1][1]} {more['right']}".lstrip()
        else:
            rows.append((row["left"], row["right"]) if row is not None else (line, ""))
    column = max((len(left) for left, right in rows if right and len(left) <= width // 2), default=8) + 2
    for left, right in rows:
        notes = textwrap.wrap(right, width - column, break_on_hyphens=False) if right else []
        if notes and len(left) <= column - 2:
            yield f"{left:<{column}}{notes.pop(0)}"
        else:
            yield from _fitted_line(left, width)
        yield from (" " * column + note for note in notes)


def _fitted_line(line: str, width: int) -> Iterator[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    is_command = _COMMAND.match(line) is not None
    parts = textwrap.wrap(
        line.strip(),
        width - 2 * is_command,  # the backslash
        initial_indent=indent,
        subsequent_indent=indent + "  " * is_command,
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from (part + " \\" * is_command for part in parts[:-1])
    yield parts[-1] if parts else ""


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
    return "\n".join(kind_of(name).summary for name in target_names())


def list_of_chips() -> str:
    """Return a line for each chip of a GPU, with the oldest version of PTX that has it."""
    from stablexla.targets.gpu.chips import CHIPS

    return "\n".join(f"gpu:{chip:<8}  PTX {version / 10} or newer" for chip, version in CHIPS.items())
