"""`stablexla-run --check`: options, report and files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stablexla.dialects.display.control_characters import escaped
from stablexla.dialects.errors import CompileError
from stablexla.dialects.value_checks import ERRORS, WORDS, kinds_of
from stablexla.executable.executable import Executable
from stablexla.targets.runtime.arguments import parameter_place
from stablexla.tools.common import FAILED

HELP = """
checking:
  --check reports the first operation in the order of the program that makes a NaN of operands that are none: its place
  in the source, the index, the operands' values there, and the iterations of the loops around it.
  --check=KIND,... takes
    nan, inf, overflow, all        NaN; infinities of finite operands; these without poles, such as 1/0; the first two
    division, indices, shifts      integers divided by zero, indices out of range, shifts by the width or more; of these
                                   it only warns
  The program is run without checks as well only if none of the first four is found: it might never end.
"""


def add_check_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `check` reads."""
    group = parser.add_argument_group("checking")
    kinds = f"find the first operation that makes one of {', '.join(WORDS)} (default: nan)"
    group.add_argument("--check", nargs="?", const="nan", type=_kinds, metavar="KIND,...", help=kinds)
    group.add_argument("--check-dir", type=Path, metavar="DIR", help="where the operation alone and its operands go")


def _kinds(text: str) -> str:
    try:
        kinds_of(text)
    except CompileError as error:
        raise argparse.ArgumentTypeError(error.summary) from None
    return text


def check(executable: Executable, inputs: Sequence[Any], arguments: argparse.Namespace) -> int:
    """Check, print, and return the exit code."""
    if not arguments.json:
        for line in _not_finite(executable, inputs):
            print(line)
    found = executable.check(inputs, arguments.check, time_limit=arguments.time_limit)
    if found is None:
        print(json.dumps(None) if arguments.json else f"{escaped(executable.name)}: nothing found ({arguments.check})")
        return 0
    path = None if arguments.check_dir is None else found.save(arguments.check_dir)
    alone = f"{path}, with inputs.npz" if path else "--check-dir writes it"
    print(found.as_json() if arguments.json else f"{escaped(executable.name)}: {found.report(alone)}")
    return FAILED if found.kind in ERRORS else 0


def _not_finite(executable: Executable, inputs: Sequence[Any]) -> list[str]:
    """Return a line for each input that has a NaN or an infinity: what comes of them is no finding of a check."""
    lines = []
    rows = [inputs] if executable.num_devices == 1 or executable.input_shardings else inputs
    for device, own in enumerate(rows):
        for i, (array, spec) in enumerate(zip(own, executable.parameters)):
            with np.errstate(invalid="ignore"):
                wide = np.asarray(array) if array.dtype.kind in "biuc" else np.asarray(array).astype(np.float64)
            counts = {"NaN": np.isnan(wide).sum(), "infinite": np.isinf(wide).sum()}
            if what := " and ".join(f"{count} {word}" for word, count in counts.items() if count):
                place = (f"device {device}, " if len(rows) > 1 else "") + parameter_place(i, spec.name)
                lines.append(escaped(f"{place}: {what} of {wide.size} elements are given so"))
    return lines
