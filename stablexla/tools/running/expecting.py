"""`stablexla-run --expect`: results are compared with files, element by element."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from stablexla.dialects.element_types import BY_DTYPE
from stablexla.dialects.errors import ExecutionError
from stablexla.lowering.support.types import TensorType
from stablexla.tools.common import FAILED
from stablexla.tools.running.inputs import from_file
from stablexla.tools.running.on_devices import numbered
from stablexla.tools.terminal import print_error

Array = npt.NDArray[Any]
HELP = """
expected results:
  --expect FILE.npy is given once for each result, in order; {device} is replaced as in inputs. An element is right
  where |result - expected| <= A + R * |expected|, and where both are NaN. Integers are exact. Where one is wrong, the
  first is shown, and the exit code is 1. With --json, they are a list on standard output.
"""
_LEAST, _STEPS = 1e-5, 8


def add_expect_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of expected results."""
    group = parser.add_argument_group("expected results")
    help_ = "a result's right numbers; see below"
    group.add_argument("--expect", action="append", default=[], metavar="FILE.npy", help=help_)
    help_ = (
        f"how far floats may be off, relative to the expected ones (default: {_LEAST:g}; {_STEPS} steps of small types)"
    )
    group.add_argument("--rtol", type=_tolerance, metavar="R", help=help_)
    group.add_argument(
        "--atol", type=_tolerance, default=0.0, metavar="A", help="how far they may be off besides (default: 0)"
    )


def read_expected(types: Sequence[TensorType], devices: int, arguments: argparse.Namespace) -> list[list[Array]]:
    """Return the arrays of the files, for each device in turn; none where nothing is expected.

    Raises:
        ExecutionError: a file that cannot be read, or more or fewer files than results.
    """
    files: list[str] = arguments.expect
    if not files:
        return []
    if len(files) != len(types):
        raise ExecutionError(f"--expect: {len(files)} given for {len(types)} results", hint="--expect once for each")
    return [
        [from_file(Path(numbered(name, d)), type_, f"result {i}") for i, (name, type_) in enumerate(zip(files, types))]
        for d in range(devices)
    ]


def expect(
    results: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]], arguments: argparse.Namespace
) -> int:
    """Compare the results of all devices with what `read_expected` gave; return the exit code.

    Raises:
        ExecutionError: an expected array is of another type or shape than the result.
    """
    found = []
    for device, (own, right) in enumerate(zip(results, expected, strict=True)):
        for i, (array, wanted) in enumerate(zip(own, right, strict=True)):
            place = f"device {device}, result {i}" if len(results) > 1 else f"result {i}"
            file = numbered(arguments.expect[i], device)
            if (wanted.dtype, wanted.shape) != (array.dtype, array.shape):
                given = f"{wanted.dtype.name}{list(wanted.shape)}"
                raise ExecutionError(f"{place} is {array.dtype.name}{list(array.shape)}, and {file} has {given}")
            if (wrong := difference(array, wanted, arguments.rtol, arguments.atol)) is not None:
                found.append({"device": device, "result": i, "file": file, **wrong._asdict()})
                print_error(f"{place} is not that of {file}: {wrong}")
    if arguments.json:
        print(json.dumps(found, indent=2))
    elif not found:
        print(f"all {sum(map(len, results))} results are as expected")
    return FAILED if found else 0


def _tolerance(text: str) -> float:
    number = float(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"a tolerance is 0 or more, not {text}")
    return number


class Difference(NamedTuple):
    """Wrong elements of a result: how many of how many, and where the first is; numbers are texts."""

    wrong: int
    elements: int
    first: list[int]
    value: str
    expected: str

    def __str__(self) -> str:
        count = f"{self.wrong} of {self.elements} elements are wrong, the first"
        return f"{count} at {self.first}: {self.value} instead of {self.expected}"


def difference(array: Array, wanted: Array, rtol: float | None = None, atol: float = 0.0) -> Difference | None:
    """Compare a result with the expected array; None where all elements are right.

    >>> print(difference(np.array([1, 3, 5]), np.array([1, 2, 4])))
    2 of 3 elements are wrong, the first at [1]: 3 instead of 2
    >>> print(difference(np.array([1.0, 2.0]), np.array([1.0, 2.00001]), 1e-4))
    None
    """
    right = array == wanted
    element = BY_DTYPE[array.dtype]
    if not (element.is_integer or element.is_pred):
        wide = np.complex128 if array.dtype.kind == "c" else np.float64
        one, other = array.astype(wide), wanted.astype(wide)
        part = array.real.dtype
        steps = float(ml_dtypes.finfo(part).eps) * _STEPS  # type: ignore[no-untyped-call]
        with np.errstate(all="ignore"):
            allowed = atol + (max(_LEAST, steps) if rtol is None else rtol) * np.abs(other)
            near = np.isfinite(one) & np.isfinite(other) & (np.abs(one - other) <= allowed)
        right = right | near | (np.isnan(one) & np.isnan(other))
    right = np.asarray(right)
    if right.all():
        return None
    index = tuple(int(i) for i in np.argwhere(~right)[0])
    wrong = right.size - int(np.count_nonzero(right))
    return Difference(wrong, right.size, list(index), str(array[index]), str(wanted[index]))
