"""The parameter `result_accuracy` of elementary functions, checked."""

from __future__ import annotations

from numbers import Real

import jaxlib.mlir.ir as ir

from stablexla.checking import Rules
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.result_accuracy import ResultAccuracy
from stablexla.op import XlaOp
from stablexla.source import user_line

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
    numbers = (given.atol, given.rtol, given.ulps)
    fits = all(isinstance(number, Real) and number >= 0 for number in numbers) and isinstance(given.ulps, int)
    rule("", fits, "atol, rtol and ulps must not be negative, and ulps an integer")
    modes = ("TOLERANCE", "DEFAULT", "HIGHEST")
    rule("", given.mode in modes, f"the mode must be {' or '.join(modes)}, not {given.mode!r}")
    some = "must be above 0" if given.mode == "TOLERANCE" else f"must be 0 in the mode {given.mode}"
    rule("", any(numbers) == (given.mode == "TOLERANCE"), f"atol, rtol or ulps {some}")
    unmet = given.unmet(name, x.shape.element_type) if name == "erf" else ""
    if unmet:  # of the others the lowering says it, to programs from elsewhere too
        raise UnsupportedError(unmet, operation=name, operands={"operand": x.shape}, source=user_line())
    return ResultAccuracy(float(given.atol), float(given.rtol), given.ulps, given.mode).attribute(x.builder.context)
