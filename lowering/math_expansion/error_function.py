"""erf, erfc and erf_inv."""

from __future__ import annotations

from stablexla.lowering.math_expansion.exponential import exp_bounded, exp_short, expm1_reduced, reduce_exponent, scale
from stablexla.lowering.math_expansion.registry import expands
from stablexla.lowering.math_expansion.values import Real, polynomial, select, two_product

# erf(x) = x + x p(x**2)
_NEAR_SINGLE = (
    0.12837915122509003, -0.37612488865852356, 0.11281728744506836, -0.02676282823085785, 0.004987092688679695,
    -0.0005958049441687763,
)  # fmt: skip
_NEAR_DOUBLE = (
    0.1283791670955126, -0.376126389031841, 0.11283791670971109, -0.026866170648035224, 0.00522397765275067,
    -0.0008548328540139036, 0.00012055386386194284, -1.4926886882902622e-05, 1.6481157759105112e-06,
    -1.6558298694410923e-07, 1.602186745662154e-08, -1.6501002734894104e-09, 1.4409544033410994e-10,
)  # fmt: skip
# erfc(x) = exp(x p(x) - x)
_FAR_SINGLE = (
    -0.1285143345594406, -0.6357184052467346, -0.10526172071695328, 0.02288988046348095, -0.00321492669172585,
    0.000213980907574296,
)  # fmt: skip
_FAR_DOUBLE = (
    -0.12837911083275313, -0.636620252907474, -0.10277082612780009, 0.01912496223855625, 0.0002120407434394045,
    -0.0016926135255990982, 0.0005746641943173002, 9.707363046944502e-07, -9.548420635013449e-05,
    5.603750493749716e-05, -2.035102411993704e-05, 5.385157314148888e-06, -1.0781113149958057e-06,
    1.6302122250792204e-07, -1.81303887836468e-08, 1.402386704147467e-09, -6.744530910968451e-11,
    1.5187802508836566e-12,
)  # fmt: skip
# erfc(x) = p(q) exp(-x**2) / (1 + 2 x): q = (x - 2) / (x + 2) to 30 bits, q = (x - 4) / (x + 4) to 54
_TAIL_SHORT = (
    1.276978382683784, -0.09276382089575143, -0.16603052229411075, 0.16405104816805932, -0.05421781147184995,
    -0.008030939909687439, 0.008708958666289157, 0.001252903527120842, -0.001420346737883031,
    -0.0004008331566782661, 0.00016889932153614848, 7.920337239153e-05,
)  # fmt: skip
_TAIL_DOUBLE = (
    1.2329951186255526, -0.13962111684056316, 0.015379652102605898, 0.06809705425476287, -0.10103906603555139,
    0.09373283499622949, -0.06633036582837212, 0.037167515565448235, -0.016197733878524846, 0.005031969789345064,
    -0.0007577744539080869, -0.00019925602622368962, 0.00015062638949258286, -2.4400230392585767e-05,
    -1.1234159003671845e-05, 5.708996087068833e-06, 3.1345499507425536e-07, -8.19974907976588e-07,
    5.561129711021344e-08, 1.0151981428709616e-07, -8.220973325017812e-09, -8.441989857651864e-09,
)  # fmt: skip


def _near(a: Real) -> Real:
    """erf(a) for a <= 0.93 (f32) or 1 (f64)."""
    return a.fma(polynomial(a * a, a.format.pick(_NEAR_SINGLE, _NEAR_DOUBLE)), a)


@expands("math.erf")
def erf(x: Real) -> Real:
    """The error function."""
    limit, last = x.format.pick((0.93, 4.0), (1.0, 6.0))
    a = abs(x)
    t = a.at_most(last)
    logarithm = t.fma(polynomial(t, x.format.pick(_FAR_SINGLE, _FAR_DOUBLE)), -t)
    return select(a < limit, _near(a), 1.0 - exp_bounded(logarithm)).with_sign_of(x)


@expands("math.erfc")
def erfc(x: Real) -> Real:
    """1 - erf(x), without cancellation for large x."""
    if x.format.width == 32:
        return _erfc_short(x.to_double()).rounded_to(x.format)
    a = abs(x)
    t = a.at_most(28.0)
    # exp(-t**2) with the square as a pair
    square = two_product(t, t)
    shifted, r = reduce_exponent(-square.high, -square.low)
    # q = (t - 4) / (t + 4) by one division for both quotients
    over, twice = t + 4.0, t.fma(2.0, 1.0)
    inverse = 1.0 / (over * twice)
    q = (t - 4.0) * (twice * inverse)
    front = polynomial(q, _TAIL_DOUBLE) * (over * inverse)
    fraction = expm1_reduced(r)
    tail = scale(fraction, shifted) * front
    far = select(x < 0.0, 2.0 - tail, tail)
    return select(a < 0.5, 1.0 - _near(a).with_sign_of(x), far)


def _erfc_short(x: Real) -> Real:
    """erfc of an f32 in f64, to 30 bits."""
    t = abs(x).at_most(12.0)
    over, twice = t + 2.0, t.fma(2.0, 1.0)
    inverse = 1.0 / (over * twice)
    q = (t - 2.0) * (twice * inverse)
    tail = polynomial(q, _TAIL_SHORT) * (over * inverse) * exp_short(-(t * t))
    return select(x < 0.0, 2.0 - tail, tail)
