"""Complex numbers as two values, their real and imaginary part, each of which may be a vector."""

from __future__ import annotations

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value


@dataclass(frozen=True)
class Complex:
    """The real and imaginary part of a complex number, or of one in each lane."""

    re: Value
    im: Value

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.re - other.re, self.im - other.im)

    def __mul__(self, other: Complex) -> Complex:
        re = cg.fma(self.re, other.re, -(self.im * other.im))
        return Complex(re, cg.fma(self.re, other.im, self.im * other.re))

    @property
    def parts(self) -> tuple[Value, Value]:
        return self.re, self.im

    def conjugate(self) -> Complex:
        return Complex(self.re, -self.im)

    def times_i(self, sign: int) -> Complex:
        """Return the product with i, or with -i."""
        return Complex(-self.im, self.re) if sign > 0 else Complex(self.im, -self.re)

    def scaled(self, factor: float) -> Complex:
        return self if factor == 1.0 else Complex(self.re * factor, self.im * factor)

    def plus(self, factor: Value, other: Complex) -> Complex:
        """Return self + factor * other, for a real factor, by FMA."""
        return Complex(cg.fma(factor, other.re, self.re), cg.fma(factor, other.im, self.im))

    def reversed(self) -> Complex:
        """Return the lanes in reverse order."""
        if not self.re.lanes:
            return self
        order = list(range(self.re.lanes))[::-1]
        return Complex(cg.shuffle(self.re, self.re, order), cg.shuffle(self.im, self.im, order))
