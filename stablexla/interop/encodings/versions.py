"""Versions of StableHLO: those that this build reads and writes, their names, and features that are too new.

A portable artifact names the StableHLO version that can read it; its operations have versions of their own.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.builds.stablehlo_version import INSTALLED, parts
from stablexla.dialects.contexts import diagnostics, stablehlo_context
from stablexla.dialects.errors import UnsupportedError
from stablexla.targets.pipeline.driver import copy_of
from stablexla.targets.pipeline.messages import messages_of

MINIMUM: str = stablehlo.get_minimum_version()
CURRENT: str = INSTALLED
NAMES = ("minimum", "current", "week-4", "week-12")
"""Names of versions; the weeks are the ages of consumers that can read them."""

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_ILLEGAL = re.compile(r"error: failed to legalize operation '(vhlo\.\w+)'")
_LAST_BEFORE_1 = 20
"""StableHLO went from 0.20 to 1.0."""


@cache
def targets() -> tuple[str, ...]:
    """Return every version that can be written, without patch levels, the oldest first."""
    (_, first, _), (major, last, _) = parts(MINIMUM), parts(CURRENT)
    before = [f"0.{minor}.0" for minor in range(first, _LAST_BEFORE_1 + 1)] if parts(MINIMUM)[0] == 0 else []
    return (*before, *(f"{major}.{minor}.0" for minor in range(last + 1)))


def resolve(name: str) -> str:
    """Return the version of a name.

    Args:
        name: `minimum`, `current`, `week-4`, `week-12`, or a version such as `1.3.0` or `1.3`.

    Raises:
        UnsupportedError: there is no such version, or this build cannot write it.

    >>> resolve("current") == CURRENT, resolve("1.3")
    (True, '1.3.0')
    """
    ages = stablehlo.StablehloCompatibilityRequirement
    known: dict[str, str] = {
        "minimum": MINIMUM,
        "current": CURRENT,
        "week-4": stablehlo.get_version_from_compatibility_requirement(ages.WEEK_4),
        "week-12": stablehlo.get_version_from_compatibility_requirement(ages.WEEK_12),
    }
    version = known.get(name, f"{name}.0" if name.count(".") == 1 else name)
    if not _VERSION.fullmatch(version):
        raise UnsupportedError(f"{name!r} is no version", hint=f"{', '.join(NAMES)}, or one such as {CURRENT}")
    if not parts(MINIMUM) <= parts(version) <= parts(CURRENT):
        raise UnsupportedError(
            f"StableHLO {version} cannot be written: this build writes {MINIMUM} to {CURRENT}",
            hint=f"one of {', '.join(NAMES)}, or an X.Y.Z between the two",
        )
    return version


def serialise(module: ir.Module, target: str = "current", *, allow_other_dialects: bool = False) -> bytes:
    """Return a portable artifact of a module, readable by StableHLO of the version `target` and later.

    Args:
        module: a module of StableHLO, which stays unchanged.
        target: as `resolve` takes it.
        allow_other_dialects: write operations of dialects without compatibility promises unchanged.

    Raises:
        UnsupportedError: the version cannot be written, or does not have something in the module; the error says what,
            and which is the oldest that has all of it.
    """
    version = resolve(target)
    try:
        return _serialise(module, version, allow_other_dialects)
    except _CannotError as failure:
        said = str(failure)
    oldest = next((v for v in targets() if parts(v) > parts(version) and _can(module, v, allow_other_dialects)), "")
    if oldest:
        raise UnsupportedError(
            f"StableHLO {version} does not have all that the program uses: {said}",
            hint=f"--target-version={oldest}, the oldest version that has all of it",
        )
    raise UnsupportedError(
        f"the program cannot be a portable artifact: {said}",
        hint="bytecode or text, which hold every dialect, or --allow-other-dialects",
    )


class _CannotError(Exception):
    """A version of StableHLO lacks a feature."""


def _serialise(module: ir.Module, version: str, allow_other_dialects: bool) -> bytes:
    context: Any = module.context
    with diagnostics(context) as seen:
        try:
            # A module that cannot be written is left half converted.
            artifact: bytes = stablehlo.serialize_portable_artifact(copy_of(module), version, allow_other_dialects)
        except (ir.MLIRError, ValueError) as error:
            raise _CannotError(_what(messages_of(error, seen)[0])) from None
    return artifact


def _what(said: str) -> str:
    """Return what could not be written, by its name in VHLO when MLIR says only that it is illegal."""
    match = _ILLEGAL.match(said)
    place = said.partition("\n    from ")[2]
    return match[1] + (f" ({place})" if place else "") if match else said.removeprefix("error: ")


def _can(module: ir.Module, version: str, allow_other_dialects: bool) -> bool:
    try:
        _serialise(module, version, allow_other_dialects)
    except _CannotError:
        return False
    return True


def is_known(operation: str) -> bool:
    """Return whether this build has an operation of that name."""
    return bool(stablehlo_context().is_registered_operation(operation))
