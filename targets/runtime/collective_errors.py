"""Errors of runs over several devices that end early: deadlocks, failures, time limits.

The native runtime passes the facts as plain values; this module makes sentences of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from stablexla.dialects.errors import CollectiveError, ExecutionError

Config = Mapping[str, Any]


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


def raise_stopped(program: str, configs: Sequence[Config], facts: Mapping[str, Any]) -> NoReturn:
    """Raise the error that says why the devices stopped.

    Args:
        program: its name.
        configs: the program's collectives.
        facts: `kind`, the `device` that noticed, the `number` of its collective, the `group`, the state of all devices.
    """
    config = configs[facts["number"]] if facts["number"] >= 0 else {}
    summary, hint = SENTENCES[facts["kind"]](configs, config, facts)
    arrived, missing = _arrivals(configs, config, facts)
    raise CollectiveError(
        f"{program}: {summary}",
        operation=str(config.get("op", "execute_replicated" if facts["kind"] == "transport" else "")),
        place=str(config.get("place", "")),
        group=tuple(facts["group"]),
        arrived=arrived,
        missing=missing,
        hint=hint,
    )


def _deadlock(configs: Sequence[Config], config: Config, facts: Mapping[str, Any]) -> tuple[str, str]:
    return f"devices wait for others which do not come any more{_channel(config)}", ""


def _late(configs: Sequence[Config], config: Config, facts: Mapping[str, Any]) -> tuple[str, str]:
    waited = f"device {facts['device']} has waited for {facts['seconds']:g} s{_channel(config)}"
    return waited, "executable.collective_timeout = seconds"


def _outer(configs: Sequence[Config], config: Config, facts: Mapping[str, Any]) -> tuple[str, str]:
    return "stopped, because the run of several devices that it was called from has stopped", ""


def _mismatch(configs: Sequence[Config], config: Config, facts: Mapping[str, Any]) -> tuple[str, str]:
    source, target = facts["group"]
    return f"device {source} sent other arrays than device {target} receives{_channel(config)}", ""


def _unreceived(configs: Sequence[Config], config: Config, facts: Mapping[str, Any]) -> tuple[str, str]:
    rows = facts["unreceived"]
    _, source, target = rows[0]
    more = f", nor {len(rows) - 1} others" if len(rows) > 1 else ""
    return f"what device {source} sent to device {target} was never received{more}{_channel(config)}", ""


def _transport(configs: Sequence[Config], config: Config, facts: Mapping[str, Any]) -> tuple[str, str]:
    return str(facts["said"]), ""


SENTENCES = {
    "deadlock": _deadlock,
    "time limit": _late,
    "outer": _outer,
    "mismatch": _mismatch,
    "unreceived": _unreceived,
    "transport": _transport,
}


def _arrivals(
    configs: Sequence[Config], config: Config, facts: Mapping[str, Any]
) -> tuple[tuple[int, ...], dict[int, str]]:
    """Return the members of the group that have arrived, and where the others are."""
    if facts["kind"] in ("transport",):
        return tuple(facts["arrived"]), dict(facts["missing"])
    if facts["kind"] in ("unreceived", "mismatch", "outer"):
        return (), {}
    states = {device: (state, at) for device, state, at in facts["devices"]}
    candidates = facts["group"][1:] if config.get("op") == "recv" else facts["group"]  # from whom, to whom
    arrived = tuple(d for d in candidates if states.get(d, ("", -1)) == ("waiting", facts["number"]))
    rest = [d for d in facts["group"] if d not in arrived]
    return arrived, {d: _where(configs, *states.get(d, ("elsewhere", -1))) for d in rest}


def _where(configs: Sequence[Config], state: str, at: int) -> str:
    """Describe a device's position in words."""
    if state == "elsewhere":
        return "is in another process"
    if at < 0:
        return {"running": "has come to no collective yet", "finished": "has finished", "failed": "has failed"}[state]
    collective = f"{configs[at]['op']} {str(configs[at].get('place', '')).strip()}".strip()
    if state == "waiting":
        return f"waits at {collective}"
    verb = {"running": "runs", "finished": "has finished", "failed": "has failed"}[state]
    return f"{verb}, last seen at {collective}"


def _channel(config: Config) -> str:
    return f", on channel {config['channel']}" if config.get("op") in ("send", "recv") else ""
