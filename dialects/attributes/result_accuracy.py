"""`result_accuracy` of elementary functions: the error bound that a program demands, and whether it is met here.

Functions have one implementation each, whose errors docs/numerics.md lists; DEFAULT and HIGHEST select that one.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir
import ml_dtypes
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.element_types import ElementType
from stablexla.dialects.lazy_dataclass import dataclass

# In ulps, rounded up from docs/numerics.md. Types below 32 bits, and c64, are computed in the next
# wider one and rounded once.
_UNITS = {"f32": 2, "f64": 3, "c128": 5}
_UNIT_OF_SQRT = 1
_AT_MOST_ONE = ("cosine", "logistic", "sine", "tanh", "erf")
"""Real functions with results in [-1, 1]."""


@dataclass(frozen=True)
class ResultAccuracy:
    """Error bound of a result: |result - exact| <= max(|exact| * max(rtol, ulps * epsilon), atol).

    `epsilon` is the distance from 1 to the next number of the result's type. In a mode other than "TOLERANCE" the
    numbers are 0.

    >>> sx.ResultAccuracy(ulps=4)
    ResultAccuracy(atol=0.0, rtol=0.0, ulps=4, mode='TOLERANCE')
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0
    mode: str = "TOLERANCE"

    @classmethod
    def read(cls, attribute: Any) -> ResultAccuracy:
        """Read StableHLO's attribute."""
        found = stablehlo.ResultAccuracyAttr(attribute)
        return cls(found.atol, found.rtol, found.ulps, found.mode)

    def attribute(self, context: ir.Context) -> ir.Attribute:
        """Create StableHLO's attribute."""
        return stablehlo.ResultAccuracyAttr.get(self.atol, self.rtol, self.ulps, self.mode, context)

    def unmet(self, name: str, element: ElementType) -> str:
        """Return why the function (by StableHLO's name) exceeds the bound in this type, or ""."""
        if self.mode != "TOLERANCE":
            return ""
        units = _UNIT_OF_SQRT if name == "sqrt" and not element.is_complex else _UNITS.get(element.name, 1)
        finfo: Any = ml_dtypes.finfo  # it has no types
        epsilon = float(finfo(element.part.dtype).eps)
        bound = units * epsilon
        if max(self.rtol, self.ulps * epsilon) >= bound:
            return ""
        if name in _AT_MOST_ONE and not element.is_complex and self.atol >= bound:
            return ""
        unit = "unit" if units == 1 else "units"
        return f"{self} asks for more than {name} of {element} has: its error is up to {units} {unit} in the last place"
