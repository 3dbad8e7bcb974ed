"""The parameter `result_accuracy` of elementary functions, checked."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.builder.checking import Rules
from stablexla.builder.op import XlaOp
from stablexla.builder.source import user_line
from stablexla.dialects.attributes.result_accuracy import ResultAccuracy
from stablexla.dialects.errors import UnsupportedError

#: The error that is allowed, or "DEFAULT" or "HIGHEST".
Accuracy = ResultAccuracy | str


def checked_accuracy(rule: Rules, given: Accuracy, x: XlaOp, name: str) -> ir.Attribute:
    """StableHLO's attribute.

    Raises:
        ShapeError: no accuracy, negative numbers, or none at all.
        UnsupportedError: results of the error function would not keep to it.
    """
    spelled = '"DEFAULT", "HIGHEST" or a ResultAccuracy'
    if isinstance(given, str):
        rule("", given in ("DEFAULT", "HIGHEST"), f"result_accuracy must be {spelled}, not {given!r}")
        return ResultAccuracy(mode=given).attribute(x.builder.context)
    rule("", isinstance(given, ResultAccuracy), f"result_accuracy must be {spelled}", "sx.ResultAccuracy(ulps=4)")
    numbers: tuple[Any, ...] = (given.atol, given.rtol, given.ulps)
    fits = all(isinstance(number, float | int) and number >= 0 for number in numbers) and isinstance(numbers[2], int)
    rule("", fits, "atol, rtol and ulps must be numbers from 0 on, and ulps an integer")
    rule("", given.ulps < 2**63, "ulps must be below 2^63")
    modes = ("TOLERANCE", "DEFAULT", "HIGHEST")
    rule("", given.mode in modes, f"the mode must be {' or '.join(modes)}, not {given.mode!r}")
    some = "must be above 0" if given.mode == "TOLERANCE" else f"must be 0 in the mode {given.mode}"
    rule("", any(numbers) == (given.mode == "TOLERANCE"), f"atol, rtol or ulps {some}")
    unmet = given.unmet(name, x.shape.element_type) if name == "erf" else ""
    if unmet:  # of the others the lowering says it, to programs from elsewhere too
        raise UnsupportedError(unmet, operation=name, operands={"operand": x.shape}, source=user_line())
    return ResultAccuracy(float(given.atol), float(given.rtol), given.ulps, given.mode).attribute(x.builder.context)
