"""Resolve the external symbols of generated code when it is loaded: C functions of custom calls, and the host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple
from typing import Any

import mlir.ir as ir

from stablexla.dialects.custom_calls import C_FUNCTION, CustomCallTarget, find_custom_call
from stablexla.lowering.rules.devices.devices import CollectiveConfig
from stablexla.lowering.support.configs import config_value, read_config
from stablexla.targets.host.calls import HOST_CALLS
from stablexla.targets.host.collective import COLLECTIVES
from stablexla.targets.runtime.host import Host

RANDOM_KEY = "stablexla_next_random_key"


def c_functions(declared: Iterable[str]) -> dict[str, CustomCallTarget]:
    """Look up the targets of custom calls among a module's declarations, by symbol.

    Raises:
        CompileError: one that is not registered.
    """
    names = [name for name in declared if name.startswith(C_FUNCTION)]
    return {name: find_custom_call(name.removeprefix(C_FUNCTION)) for name in names}


def take_host(module: ir.Module, name: str, declared: Iterable[str], num_devices: int = 1) -> Host | None:
    """Return the host handlers that a module's code calls, or None; the module loses the list of host calls."""
    attributes = module.operation.attributes
    calls: list[dict[str, Any]] = []
    if HOST_CALLS in attributes:
        calls = [config_value(call) for call in ir.ArrayAttr(attributes[HOST_CALLS])]
        del attributes[HOST_CALLS]
    return Host(name, calls, num_devices) if calls or RANDOM_KEY in declared else None


def take_collectives(module: ir.Module) -> list[dict[str, Any]]:
    """Return the module's collectives in the order of their numbers; the list is removed from the module."""
    attributes = module.operation.attributes
    if COLLECTIVES not in attributes:
        return []
    found = [_for_runtime(each) for each in ir.ArrayAttr(attributes[COLLECTIVES])]
    del attributes[COLLECTIVES]
    return found


def _for_runtime(collective: ir.Attribute) -> dict[str, Any]:
    """Return a collective as the native runtime reads it, which has each copy as a tuple."""
    copies = read_config(CollectiveConfig, collective, COLLECTIVES).copies
    return {**config_value(collective), "copies": tuple(map(astuple, copies))}
