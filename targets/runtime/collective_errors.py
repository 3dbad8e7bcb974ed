"""Errors of runs over several devices that end early: deadlocks, failures, time limits.

The native runtime passes the facts and their sentences (`device_errors.cpp`); this module makes exceptions of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from stablexla.dialects.errors import CollectiveError, ExecutionError

_HINTS = {"time limit": "executable.collective_timeout = seconds"}


def raise_for_several(program: str, devices: int) -> NoReturn:
    """Refuse a call as if for one device."""
    raise ExecutionError(f"{program}: it is a program for {devices} devices", hint="executable.execute_replicated(...)")


def raise_wrong_devices(program: str, devices: int, here: int, count: int) -> NoReturn:
    """Refuse arguments for another number of devices than this process has."""
    rows = f"{count} rows of arguments for {here} of them in this process"
    raise ExecutionError(f"{program}: it is a program for {devices} devices, but {rows} came")


def raise_no_threads(program: str, said: str) -> NoReturn:
    """Report a lack of threads: devices cannot share one, as they wait for each other."""
    raise ExecutionError(f"{program}: {said}")


def raise_stopped(program: str, configs: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> NoReturn:
    """Raise the error that says why the devices stopped.

    Args:
        program: its name.
        configs: the program's collectives.
        facts: the `kind` of the reason and its `summary`, the `number` of the collective, the `group` of its devices,
            those that have `arrived`, and where the others are, which are `missing`.
    """
    config = configs[facts["number"]] if facts["number"] >= 0 else {}
    raise CollectiveError(
        f"{program}: {facts['summary']}",
        operation=str(config.get("op", "execute_replicated" if facts["kind"] == "transport" else "")),
        place=str(config.get("place", "")),
        group=facts["group"],
        arrived=facts["arrived"],
        missing=facts["missing"],
        hint=_HINTS.get(facts["kind"], ""),
    )
