"""Error functions: erf, erfc and erf_inv."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.math.exponential import (
    exp,
    exp_bounded,
    exp_short,
    expm1_reduced,
    factors,
    raised_magic,
    reduce_exponent,
)
from stablexla.lowering.math.logarithm import log, log_of_normal, log_short
from stablexla.lowering.math.registry import (
    emitter,
    expands,
    expands_operation,
    is_real,
    is_rounded_to_bf16,
)
from stablexla.lowering.math.values import Real, Scope, polynomial, select, two_product

# erf(x) = x + x p(x**2 - 1/2) in f32: rounding errors of the polynomial's inner terms count half as much as without
# the shift
_NEAR_SINGLE = (
    -0.034531258046627045, -0.2810722291469574, 0.07940980046987534, -0.018282804638147354, 0.0034817911218851805,
    -0.0005670433747582138, 7.535931217717007e-05,
)  # fmt: skip
# erf(x) = x + x p(x**2)
_NEAR_DOUBLE = (
    0.1283791670955126, -0.376126389031841, 0.11283791670971109, -0.026866170648035224, 0.00522397765275067,
    -0.0008548328540139036, 0.00012055386386194284, -1.4926886882902622e-05, 1.6481157759105112e-06,
    -1.6558298694410923e-07, 1.602186745662154e-08, -1.6501002734894104e-09, 1.4409544033410994e-10,
)  # fmt: skip
# erfc(x) = p(x - 1.25)**3 in f32: no exponential, and below 1/2 a cube root has a digit more
_FAR_SINGLE = (
    0.42561596632003784, -0.43522411584854126, 0.09897598624229431, 0.045856039971113205, -0.021310752257704735,
    -0.003227551933377981, 0.0035307591315358877, -0.0007509716670028865, 4.988208820577711e-05,
)  # fmt: skip
# erfc(x) = exp(x p(x) - x)
_FAR_DOUBLE = (
    -0.12837911083275313, -0.636620252907474, -0.10277082612780009, 0.01912496223855625, 0.0002120407434394045,
    -0.0016926135255990982, 0.0005746641943173002, 9.707363046944502e-07, -9.548420635013449e-05,
    5.603750493749716e-05, -2.035102411993704e-05, 5.385157314148888e-06, -1.0781113149958057e-06,
    1.6302122250792204e-07, -1.81303887836468e-08, 1.402386704147467e-09, -6.744530910968451e-11,
    1.5187802508836566e-12,
)  # fmt: skip
# erfc(x) = exp(-x**2) p(x) / q(x) to 33 bits, and to 21; benchmarks/fit_rationals.py
_TAIL_SHORT = (
    (
        0.9999999999219296, 1.4333341589917754, 0.9995240691531825, 0.401726677123387, 0.09261784589297264,
        0.009985983007899447,
    ),
    (
        1.0, 2.5617133154290928, 2.890108240260559, 1.8534020656354906, 0.7209149514159755, 0.16415975592321796,
        0.017699717460267297,
    ),
)  # fmt: skip
_TAIL_SHORTEST = (
    (0.9999996148525077, 1.0252857900663364, 0.47931973427060554, 0.09683197715536762),
    (1.0, 2.1536378935871476, 1.9097435486257517, 0.8490123368471342, 0.1716495428046864),
)
# erfc(x) = p(q) exp(-x**2) / (1 + 2 x): q = (x - 4) / (x + 4)
_TAIL_DOUBLE = (
    1.2329951186255526, -0.13962111684056316, 0.015379652102605898, 0.06809705425476287, -0.10103906603555139,
    0.09373283499622949, -0.06633036582837212, 0.037167515565448235, -0.016197733878524846, 0.005031969789345064,
    -0.0007577744539080869, -0.00019925602622368962, 0.00015062638949258286, -2.4400230392585767e-05,
    -1.1234159003671845e-05, 5.708996087068833e-06, 3.1345499507425536e-07, -8.19974907976588e-07,
    5.561129711021344e-08, 1.0151981428709616e-07, -8.220973325017812e-09, -8.441989857651864e-09,
)  # fmt: skip
# erf_inv(x) = x p(w - centre) with w = -log(1 - x**2); for large w, x p(sqrt(w) - centre)
_INVERSE_SHORT = (
    1.5014093516924656, 0.24664027578612696, -0.004177324636585837, -0.0012527048773015963,
    0.00021826355793825311, -4.998759484266204e-06, -3.426012300056905e-06, 4.796987880414879e-07,
    1.6457241138637542e-08, -1.1023211395613716e-08, 4.370313808751791e-10, 1.3285930654417076e-10,
)  # fmt: skip
_INVERSE_SHORT_TAIL = (
    3.0336365746966845, 1.0046924523032723, 0.005973147992064479, -0.004294467308287574,
    0.0029510869361745974, -0.0019905100246711284, 0.00107719585724629, -0.00036669532404466236,
    -9.351942816638059e-06, 0.00010924262013547575, -5.7290231870403895e-05, -3.779799446723207e-06,
    8.764362790998397e-06,
)  # fmt: skip
_INVERSE_DOUBLE = (
    1.6536545626831027, 0.24015818242558828, -0.006033670871427554, -0.0007407025341541195,
    0.00018673420802327027, -1.3882523395360061e-05, -1.3654691825336633e-06, 4.2347881855627367e-07,
    -2.9070384667883442e-08, -4.1126616275293846e-09, 1.0512195106198628e-09, -5.414253387970737e-11,
    -1.2977372629246415e-11, 2.6303925713049013e-12, -8.106844889713538e-14, -3.99963568169278e-14,
    6.578065347577398e-15, -4.212314298672555e-17, -1.2824063747175506e-16, 1.5707175291880665e-17,
    1.0211018284065898e-18, -3.554263575061035e-19, 3.8478218487189525e-21, 3.338497045250901e-21,
    -8.369154972532728e-23,
)  # fmt: skip
_INVERSE_DOUBLE_TAIL = (
    3.0053844217676815, 1.004345991887224, 0.006349948204842294, -0.004642385025806276, 0.0032441616031459257,
    -0.0021809216894017906, 0.0011484361858988862, -0.00035220038033908043, -3.7890572035419146e-05,
    0.00010901763057745743, -5.6252913247410653e-05, 7.567185966720557e-06, 7.789600572267049e-06,
    -5.558762610569275e-06, 1.2940345285690991e-06, 4.175070397497146e-07, -4.427238666712822e-07,
    1.165440584979492e-07, 2.5501428650692892e-08, -1.659044099364646e-08,
)  # fmt: skip
_INVERSE_DOUBLE_FAR = (
    4.970271912386428, 1.0102587488037909, -0.00020942315286532733, -0.00018146097300401754,
    6.517872545495371e-05, -1.6722222180610414e-05, 3.7803991577380453e-06, -8.042279050006027e-07,
    1.7157143587624654e-07, -4.242233439514639e-08, 1.4928980786538775e-08, -7.223318128088568e-09,
    3.800070738006344e-09, -1.8446902529001193e-09, 7.372440407617882e-10, -2.423279505646448e-10,
    7.965383052882889e-11, -1.1677916028669658e-11, -1.1147280630463746e-11, 4.320888590028965e-12,
)  # fmt: skip


def _near(a: Real) -> Real:
    """erf(a) of an f64 for a <= 1."""
    return a.fma(polynomial(a * a, _NEAR_DOUBLE), a)


@expands("math.erf")
def erf(x: Real) -> Real:
    """The error function."""
    a = abs(x)
    if x.format.width == 32:
        return _erf_single(a).or_sign_of(x)
    t = a.at_most(6.0)
    far = 1.0 - exp_bounded(t.fma(polynomial(t, _FAR_DOUBLE), -t))
    return select(a < 1.0, _near(a), far).with_sign_of(x)


def _erf_single(a: Real) -> Real:
    """erf of a non-negative f32; from 3.93 on it is 1."""
    near = a.fma(polynomial(a.fma(a, -0.5), _NEAR_SINGLE), a)
    root = polynomial(a.at_most(3.93) - 1.25, _FAR_SINGLE)
    far = (-(root * root)).fma(root, 1.0)
    return select(a < 1.0848, near, far)


@expands_operation("math.erfc")
def erfc_operation(scope: Scope, operation: ir.Operation) -> list[ir.Value] | None:
    """Expand erfc to the precision that its result is rounded to."""
    if not is_real(operation.operands[0].type):
        return None
    x = Real(scope.format_of(operation.operands[0].type), operation.operands[0])
    return [(_erfc_for_bf16(x) if is_rounded_to_bf16(operation) else erfc(x)).ssa]


def erfc(x: Real) -> Real:
    """1 - erf(x), without cancellation for large x."""
    if x.format.width == 32:
        return _erfc_short(x)
    a = abs(x)
    t = a.at_most(27.31)  # exp(-t**2) rounds to 0
    # exp(-t**2) with the square as a pair
    square = two_product(t, t)
    shifted, r = reduce_exponent(-square.high, -square.low, raised_magic(x.format))
    fraction = expm1_reduced(r)
    # q = (t - 4) / (t + 4) and 1 / (1 + 2 t) by one division; the second is then corrected
    over, twice = t + 4.0, t.fma(2.0, 1.0)
    inverse = 1.0 / (over * twice)
    q = (t - 4.0) * (twice * inverse)
    last = over * inverse
    lost = t.fma(2.0, 1.0 - twice)
    last = last.fma((-last).fma(twice, 1.0) - last * lost, last)
    front = two_product(polynomial(q, _TAIL_DOUBLE), last)
    first, second = factors(shifted)
    tail = (front.high + front.high.fma(fraction, front.low)) * first * second
    far = select(x < 0.0, 2.0 - tail, tail)
    return select(a < 0.5, 1.0 - _near(a).with_sign_of(x), far)


def _erfc_short(x: Real) -> Real:
    """erfc of an f32, computed in f64 to 30 bits."""
    t = abs(x).at_most(12.0).to_double()
    sign = x.format.real(1.0).with_sign_of(x).to_double()
    top, bottom = (polynomial(t, part) for part in _TAIL_SHORT)
    tail = top * exp_short(-(t * t)) / bottom
    # for negative x, 2 - tail
    return tail.fma(sign, 1.0 - sign).rounded_to(x.format)


def _erfc_for_bf16(x: Real) -> Real:
    """erfc of an f32 by f32 alone, to 17 bits: the square is rounded."""
    t = abs(x).at_most(12.0)
    top, bottom = (polynomial(t, part) for part in _TAIL_SHORTEST)
    tail = top * exp(-(t * t)) / bottom
    return select(x < 0.0, 2.0 - tail, tail)


@emitter
def erf_inv_of_drawn(x: Real) -> Real:
    """The inverse of erf in (-1, 1), of f32 in f32: its errors are far below the steps of random numbers."""
    return x * _inverse_factor(-log_of_normal((-x).fma(x, 1.0)))


def _inverse_factor(w: Real) -> Real:
    tail = polynomial(w.sqrt() - 3.2, _INVERSE_SHORT_TAIL)
    return select(w < 5.0, polynomial(w - 2.5, _INVERSE_SHORT), tail)


@emitter
def erf_inv(x: Real) -> Real:
    """The inverse of erf: infinite at -1 and 1, NaN beyond."""
    wide = x.to_double()
    if x.format.width == 32:
        factor = _inverse_factor(-log_short((-wide).fma(wide, 1.0)))
    else:
        w = -log((1.0 - wide) * (wide + 1.0))
        root = w.sqrt()
        tail = polynomial(root - 3.171875, _INVERSE_DOUBLE_TAIL)
        tail = select(root < 4.0, tail, polynomial(root - 5.119140625, _INVERSE_DOUBLE_FAR))
        factor = select(w < 6.25, polynomial(w - 3.125, _INVERSE_DOUBLE), tail)
    value = wide * select(abs(wide).equals(1.0), float("inf"), factor)
    return value.rounded_to(x.format)
