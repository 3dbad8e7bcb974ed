"""One row of facts for each operation: element-wise or not, exactness between implementations, how it is fuzzed.

Every list of operations elsewhere is derived from `TRAITS`: the rule for sizes at run time (`dynamic_rules.py`), the
dimensions that are cut over devices (`targets/stablehlo/partition/factors.py`), the operations that checks for NaN look
at (`targets/stablehlo/checks`), the tolerances of the judge (`stablexla/inspection/judging`), and the statements that
the fuzzer draws (`tests/fuzz/families/elementwise.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stablexla.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class OpTraits:
    """The facts of one operation that more than one part of the compiler depends on.

    Attributes:
        is_elementwise: every result has the operands' shape; scalars among the operands are broadcast. Then sizes at
            run time are those of the operands, and every dimension can be cut over devices.
        is_cut_alike: every dimension of operands and results can be cut over devices; element-wise operations need
            not say so.
        arity: the number of operands with which the fuzzer draws it: 1 or 2.
        is_exact: every implementation rounds a float result correctly, so that any difference is a fault.
        linear_in: the operands in which floats' results are linear, all together; () stands for all operands, None for
            none. A sum of which each device has a summand may go through such an operation.
        is_multilinear: it is linear in each of these by itself, with the others fixed.
        adds_up: the result is a sum, whose rounding depends on the order.
        xla_ulp: of a function that is approximated, XLA:CPU's error in units in the last place, in f32 and f64.
        complex_ulp: of a function of complex numbers, how far the result may be from the exact value, in units in the
            last place of its larger part.
        algorithm_units: of an algorithm with divisions, the error of the whole, relative to the result's largest
            number.
        makes: the values that results may hold where no operand does: `nan`, `inf`, or `pole` for infinities that are
            no overflow; of complex numbers all of these, unless it is empty.
        carries: the values of an operand that are sure to show in the result, on numbers that are real or else
            `complex`: `nan`, and `inf` as itself or as a NaN.
        drawn: the element types on which the fuzzer draws it, with operands and result of one type: words of `pred`,
            `integer`, `signed`, `float` and `complex`. `fraction:float` says that the result of whole numbers may be
            none, `ulp:float` that the last bits differ between implementations.
    """

    is_elementwise: bool = False
    is_cut_alike: bool = False
    arity: int = 1
    is_exact: bool = False
    linear_in: tuple[int, ...] | None = None
    is_multilinear: bool = False
    adds_up: bool = False
    xla_ulp: tuple[int, int] | None = None
    complex_ulp: float | None = None
    algorithm_units: int | None = None
    makes: str = "nan inf"
    carries: str = ""
    drawn: str = ""

    def __post_init__(self) -> None:
        unknown = set(self.drawn.split()) - DRAWN
        if unknown or self.arity not in (1, 2):
            raise ValueError(f"a row of op_traits: arity {self.arity}, drawn on {sorted(unknown) or self.drawn!r}")

    def is_drawn_on(self, *words: str) -> bool:
        """Whether `drawn` has one of these words."""
        return not set(words).isdisjoint(self.drawn.split())


_TYPES = ("pred", "integer", "signed", "float", "complex")
DRAWN = frozenset(f"{result}{type_}" for result in ("", "fraction:", "ulp:") for type_ in _TYPES)
"""The words that `OpTraits.drawn` is made of."""


def elementwise(arity: int = 1, **facts: Any) -> OpTraits:
    """The row of an operation on each element by itself."""
    return OpTraits(is_elementwise=True, arity=arity, **facts)


_FUNCTION = "ulp:float ulp:complex"
_NUMBERS = "integer float complex"
_ALL = "nan inf complex"

TRAITS: dict[str, OpTraits] = {
    # StableHLO's element-wise operations
    "stablehlo.abs": elementwise(
        is_exact=True, complex_ulp=4.0, makes="complex", carries="nan inf", drawn="signed float"
    ),
    "stablehlo.add": elementwise(2, is_exact=True, linear_in=(), carries=_ALL, drawn=_NUMBERS),
    "stablehlo.and": elementwise(2, drawn="pred integer"),
    "stablehlo.atan2": elementwise(2, xla_ulp=(2, 1), complex_ulp=4.0, carries="nan", drawn="ulp:float"),
    "stablehlo.cbrt": elementwise(xla_ulp=(1, 4), complex_ulp=5.0, makes="complex", carries="nan inf", drawn=_FUNCTION),
    "stablehlo.ceil": elementwise(is_exact=True, makes="", carries="nan inf", drawn="float"),
    "stablehlo.clamp": elementwise(is_exact=True, makes=""),
    "stablehlo.compare": elementwise(is_exact=True),
    "stablehlo.complex": elementwise(is_exact=True, makes=""),
    "stablehlo.convert": elementwise(is_exact=True, linear_in=(), carries="nan inf"),
    "stablehlo.cosine": elementwise(xla_ulp=(1, 1), complex_ulp=4.0, carries="nan inf", drawn=_FUNCTION),
    "stablehlo.count_leading_zeros": elementwise(drawn="integer"),
    "stablehlo.divide": elementwise(
        2,
        is_exact=True,
        complex_ulp=4.0,
        linear_in=(0,),
        is_multilinear=True,
        carries="nan inf",
        drawn="fraction:float ulp:complex",
    ),
    "stablehlo.exponential": elementwise(xla_ulp=(6, 2), complex_ulp=4.0, makes="inf", carries="nan", drawn=_FUNCTION),
    "stablehlo.exponential_minus_one": elementwise(
        xla_ulp=(6, 4), complex_ulp=4.0, makes="inf", carries="nan", drawn=_FUNCTION
    ),
    "stablehlo.floor": elementwise(is_exact=True, makes="", carries="nan inf", drawn="float"),
    "stablehlo.imag": elementwise(is_exact=True, linear_in=(), makes=""),
    "stablehlo.is_finite": elementwise(),
    "stablehlo.log": elementwise(xla_ulp=(2, 1), complex_ulp=4.0, makes="nan pole", carries="nan inf", drawn=_FUNCTION),
    "stablehlo.log_plus_one": elementwise(
        xla_ulp=(3, 128), complex_ulp=4.0, makes="nan pole", carries="nan inf", drawn=_FUNCTION
    ),
    "stablehlo.logistic": elementwise(xla_ulp=(3, 3), complex_ulp=8.0, makes="complex", carries="nan", drawn=_FUNCTION),
    "stablehlo.map": elementwise(),
    "stablehlo.maximum": elementwise(2, is_exact=True, makes="", carries="nan", drawn="pred integer float"),
    "stablehlo.minimum": elementwise(2, is_exact=True, makes="", carries="nan", drawn="pred integer float"),
    "stablehlo.multiply": elementwise(
        2, is_exact=True, complex_ulp=2.0, linear_in=(), is_multilinear=True, carries="nan inf", drawn=_NUMBERS
    ),
    "stablehlo.negate": elementwise(is_exact=True, linear_in=(), makes="", carries=_ALL, drawn=_NUMBERS),
    "stablehlo.not": elementwise(drawn="pred integer"),
    "stablehlo.or": elementwise(2, drawn="pred integer"),
    "stablehlo.popcnt": elementwise(drawn="integer"),
    "stablehlo.power": elementwise(2, xla_ulp=(1, 1), complex_ulp=8.0, drawn=_FUNCTION),
    "stablehlo.real": elementwise(is_exact=True, linear_in=(), makes=""),
    "stablehlo.reduce_precision": elementwise(is_exact=True, makes="inf", carries="nan inf"),
    "stablehlo.remainder": elementwise(2, is_exact=True, carries="nan inf", drawn="fraction:float"),
    "stablehlo.round_nearest_afz": elementwise(is_exact=True, makes="", carries="nan inf", drawn="float"),
    "stablehlo.round_nearest_even": elementwise(is_exact=True, makes="", carries="nan inf", drawn="float"),
    "stablehlo.rsqrt": elementwise(xla_ulp=(2, 2), complex_ulp=4.0, makes="nan pole", carries="nan", drawn=_FUNCTION),
    "stablehlo.select": elementwise(is_exact=True, linear_in=(1, 2), makes=""),
    "stablehlo.shift_left": elementwise(2, drawn="integer"),
    "stablehlo.shift_right_arithmetic": elementwise(2, drawn="integer"),
    "stablehlo.shift_right_logical": elementwise(2, drawn="integer"),
    "stablehlo.sign": elementwise(
        is_exact=True, complex_ulp=4.0, makes="", carries="nan", drawn="signed float fraction:complex"
    ),
    "stablehlo.sine": elementwise(xla_ulp=(1, 1), complex_ulp=4.0, carries="nan inf", drawn=_FUNCTION),
    "stablehlo.sqrt": elementwise(xla_ulp=(1, 1), complex_ulp=4.0, carries="nan inf", drawn=_FUNCTION),
    "stablehlo.subtract": elementwise(2, is_exact=True, linear_in=(), carries=_ALL, drawn=_NUMBERS),
    "stablehlo.tan": elementwise(xla_ulp=(2, 1), complex_ulp=4.0, carries="nan inf", drawn=_FUNCTION),
    "stablehlo.tanh": elementwise(xla_ulp=(5, 7), complex_ulp=4.0, makes="complex", carries="nan", drawn=_FUNCTION),
    "stablehlo.xor": elementwise(2, drawn="pred integer"),
    # CHLO's
    "chlo.acos": elementwise(carries="nan inf"),
    "chlo.acosh": elementwise(carries="nan inf"),
    "chlo.asin": elementwise(carries="nan inf"),
    "chlo.asinh": elementwise(carries="nan inf"),
    "chlo.atan": elementwise(carries="nan"),
    "chlo.atanh": elementwise(makes="nan pole", carries="nan inf"),
    "chlo.bessel_i1e": elementwise(),
    "chlo.conj": elementwise(),
    "chlo.cosh": elementwise(carries="nan inf"),
    "chlo.digamma": elementwise(makes="nan pole"),
    "chlo.erf": elementwise(xla_ulp=(6, 1), makes="complex", carries="nan"),
    "chlo.erf_inv": elementwise(xla_ulp=(65, 10), makes="nan pole"),
    "chlo.erfc": elementwise(makes="complex", carries="nan"),
    "chlo.is_inf": elementwise(),
    "chlo.is_neg_inf": elementwise(),
    "chlo.is_pos_inf": elementwise(),
    "chlo.lgamma": elementwise(makes="nan pole"),
    "chlo.mulhi": elementwise(2),
    "chlo.next_after": elementwise(2),
    "chlo.polygamma": elementwise(2, makes="nan pole"),
    "chlo.sinh": elementwise(carries="nan inf"),
    "chlo.square": elementwise(carries="nan inf"),
    "chlo.tan": elementwise(xla_ulp=(2, 1), complex_ulp=4.0, carries="nan inf"),
    "chlo.zeta": elementwise(2, makes="nan pole"),
    # operations that move elements
    "mhlo.copy": OpTraits(is_exact=True),
    "stablehlo.bitcast_convert": OpTraits(is_exact=True),
    "stablehlo.broadcast_in_dim": OpTraits(is_exact=True, linear_in=(), makes="", carries=_ALL),
    "stablehlo.concatenate": OpTraits(is_exact=True, linear_in=(), makes="", carries=_ALL),
    "stablehlo.dynamic_slice": OpTraits(is_exact=True, linear_in=(0,), makes=""),
    "stablehlo.dynamic_update_slice": OpTraits(is_exact=True, linear_in=(0, 1), makes="", carries=_ALL),
    "stablehlo.gather": OpTraits(is_exact=True, linear_in=(0,), makes=""),
    "stablehlo.iota": OpTraits(is_exact=True, makes=""),
    "stablehlo.pad": OpTraits(is_exact=True, linear_in=(), makes=""),
    "stablehlo.reshape": OpTraits(is_exact=True, makes="", carries=_ALL),
    "stablehlo.reverse": OpTraits(is_exact=True, linear_in=(), makes="", carries=_ALL),
    "stablehlo.slice": OpTraits(is_exact=True, linear_in=(), makes=""),
    "stablehlo.sort": OpTraits(is_exact=True, makes=""),
    "stablehlo.transpose": OpTraits(is_exact=True, linear_in=(), makes="", carries=_ALL),
    # sums
    "stablehlo.convolution": OpTraits(adds_up=True),
    "stablehlo.dot": OpTraits(adds_up=True, carries="nan inf"),
    "stablehlo.dot_general": OpTraits(adds_up=True, linear_in=(), is_multilinear=True, carries="nan inf"),
    "stablehlo.fft": OpTraits(adds_up=True),
    "stablehlo.reduce": OpTraits(adds_up=True, linear_in=(0,)),
    "stablehlo.reduce_window": OpTraits(adds_up=True),
    "stablehlo.scatter": OpTraits(adds_up=True),
    "stablehlo.select_and_scatter": OpTraits(adds_up=True),
    # algorithms
    "stablehlo.cholesky": OpTraits(algorithm_units=64),
    "stablehlo.triangular_solve": OpTraits(algorithm_units=256),
    "stablehlo.batch_norm_training": OpTraits(algorithm_units=64),
    "stablehlo.batch_norm_inference": OpTraits(algorithm_units=16),
    "stablehlo.batch_norm_grad": OpTraits(algorithm_units=256),
    # collectives on whole arrays
    "stablehlo.all_reduce": OpTraits(is_cut_alike=True),
    "stablehlo.collective_broadcast": OpTraits(is_cut_alike=True, makes=""),
    "stablehlo.collective_permute": OpTraits(is_cut_alike=True, makes=""),
    "stablehlo.collective_reduce": OpTraits(is_cut_alike=True),
    # others that make no number, but begin or hand one on
    "stablehlo.optimization_barrier": OpTraits(makes="", carries=_ALL),
    **dict.fromkeys(("stablehlo.all_gather", "stablehlo.all_to_all", "stablehlo.broadcast"), OpTraits(makes="")),
    **dict.fromkeys(("stablehlo.dynamic_broadcast_in_dim", "stablehlo.dynamic_gather"), OpTraits(makes="")),
    **dict.fromkeys(("stablehlo.dynamic_pad", "stablehlo.dynamic_reshape"), OpTraits(makes="")),
    **dict.fromkeys(("stablehlo.get_tuple_element", "stablehlo.real_dynamic_slice"), OpTraits(makes="")),
    **dict.fromkeys(("stablehlo.torch_index_select", "stablehlo.constant", "stablehlo.infeed"), OpTraits(makes="")),
    **dict.fromkeys(("stablehlo.recv", "stablehlo.rng", "stablehlo.rng_bit_generator"), OpTraits(makes="")),
}
"""The facts by the operation's name. An operation without a row is not element-wise, and has none of the others."""


def operations(holds: Callable[[OpTraits], object]) -> tuple[str, ...]:
    """The names of the operations whose row satisfies a predicate, in the table's order."""
    return tuple(name for name, traits in TRAITS.items() if holds(traits))


def bare(name: str) -> str:
    """A name without its dialect: `add` of `stablehlo.add`."""
    return name.partition(".")[2]
