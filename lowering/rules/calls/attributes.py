"""Attributes of a custom call: its API version, and the attributes that are passed to the callee.

JAX writes the attributes of typed calls beside the operation's own, as `mhlo.backend_config` with the API version 1.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.attributes.plain_values import plain
from stablexla.lowering.support.context import LoweringContext

BESIDE, CONFIG = "mhlo.backend_config", "backend_config"
ORIGINAL, STATUS_RETURNING, UNIFIED, TYPED_FFI = 1, 2, 3, 4
NAMES = {
    0: "API_VERSION_UNSPECIFIED",
    ORIGINAL: "API_VERSION_ORIGINAL",
    STATUS_RETURNING: "API_VERSION_STATUS_RETURNING",
    UNIFIED: "API_VERSION_STATUS_RETURNING_UNIFIED",
    TYPED_FFI: "API_VERSION_TYPED_FFI",
}


def api_version(ctx: LoweringContext) -> int:
    """Return the version of XLA's custom-call convention by which the callee is called."""
    if _dictionary(ctx) is not None:
        return TYPED_FFI
    version = int(ctx.attributes["api_version"]) if "api_version" in ctx.attributes else ORIGINAL
    return version or ORIGINAL


def attributes_of_call(ctx: LoweringContext) -> dict[str, Any]:
    """Return the call's attributes by name, as plain Python values."""
    found = _dictionary(ctx)
    return {} if found is None else dict(plain(found))


def keywords_of_call(ctx: LoweringContext) -> str:
    """Return a Python callee's keyword arguments, as the text of a dictionary attribute."""
    found = _dictionary(ctx)
    if found is not None:
        return str(found)
    text = ctx.attributes[CONFIG] if CONFIG in ctx.attributes else None  # noqa: SIM401  (no dictionary)
    return "{opaque = " + str(text) + "}" if text is not None and hlo_ir.StringAttr(text).value else "{}"


def _dictionary(ctx: LoweringContext) -> Any:
    for name in (BESIDE, CONFIG):
        if name in ctx.attributes and isinstance(ctx.attributes[name], hlo_ir.DictAttr):
            return ctx.attributes[name]
    return None
