"""The program that JAX traced, with all floats in double precision: what both results are approximations of.

The numbers drawn from random bits, the limits of iterations and the constants stay those of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core
from jax.extend.core import primitives as p

from tests.interop.proof.calls import leaves_of
from tests.interop.proof.judge import is_float
from tests.interop.proof.values import Array

_NARROW_INSIDE = {p.bitcast_convert_type_p.name, "nextafter", "reduce_precision"}
"""About the bits of a type: computed in the type that they had."""
_CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""Where primitives that are only calls keep what they call."""
_CALLS = {
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "remat",
    "remat2",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
} | {
    "composite",
    "custom_lin",
}


class NotExact(Exception):
    """Something has no meaning in double precision."""


def exact_results(function: Callable[..., Any], arrays: Sequence[Array]) -> list[Array]:
    """The leaves of the function's results, floats among them in double precision; [] where there is no such thing.

    Where the program holds what cannot be made wide, the function is traced again with double precision allowed.
    """
    closed = jax.make_jaxpr(function)(*arrays)
    for wide in (lambda *a: _evaluate(closed, a), function):
        try:
            with jax.enable_x64(True):
                return leaves_of(jax.jit(wide)(*map(_wide_array, arrays)))
        except Exception:
            continue
    return []


def _evaluate(closed: Any, arguments: Sequence[Any]) -> list[Any]:
    """The results of a program on wide arguments."""
    values: dict[Any, Any] = {}
    constants = [_wide(c) if hasattr(c, "dtype") else c for c in closed.consts]
    for variables, given in ((closed.jaxpr.constvars, constants), (closed.jaxpr.invars, arguments)):
        values |= dict(zip(variables, given, strict=True))

    def read(atom: Any) -> Any:
        return _wide(np.asarray(atom.val, atom.aval.dtype)) if isinstance(atom, core.Literal) else values[atom]

    for equation in closed.jaxpr.eqns:
        results = _apply(equation, [read(atom) for atom in equation.invars])
        values |= dict(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in closed.jaxpr.outvars]


def _apply(equation: Any, operands: list[Any]) -> list[Any]:
    name, parameters = equation.primitive.name, dict(equation.params)
    if name in _CALLS:
        return _evaluate(_closed(next(parameters[k] for k in _CALLED if k in parameters)), operands)
    if name in _WITH_PROGRAMS:
        return _WITH_PROGRAMS[name](equation, operands)
    if name in _NARROW_INSIDE or name.startswith("random_"):
        narrow = [_as(x, atom.aval) for x, atom in zip(operands, equation.invars, strict=True)]
        return [_wide(x) for x in _bind(equation, narrow, parameters)]
    for key in ("new_dtype", "dtype", "preferred_element_type"):
        if parameters.get(key) is not None and is_float(np.dtype(parameters[key])):
            parameters[key] = _wide_dtype(np.dtype(parameters[key]))
    if "precision" in parameters:
        parameters["precision"] = None
    if any(hasattr(value, "eqns") or hasattr(value, "jaxpr") for value in parameters.values()):
        raise NotExact(name)
    return [_wide(x) for x in _bind(equation, operands, parameters)]


def _bind(equation: Any, operands: list[Any], parameters: dict[str, Any]) -> list[Any]:
    found = equation.primitive.bind(*operands, **parameters)
    return list(found) if equation.primitive.multiple_results else [found]


# ---- primitives that hold programs ---------------------------------------------------------------------------------


def _scan(equation: Any, operands: list[Any]) -> list[Any]:
    q = equation.params
    if "ft_in" in q:  # from JAX 0.11 on
        fixed, start, each = ([*part] for part in q["ft_in"].update(operands).unpack())
    else:
        constants, last_carried = q["num_consts"], q["num_consts"] + q["num_carry"]
        fixed, start, each = operands[:constants], operands[constants:last_carried], operands[last_carried:]
    carried = len(start)

    def step(carry: Any, x: Any) -> Any:
        found = _evaluate(q["jaxpr"], [*fixed, *carry, *x])
        return found[:carried], found[carried:]

    last, all_ = jax.lax.scan(step, start, each, length=q["length"], reverse=q["reverse"])
    return [*last, *all_]


def _while(equation: Any, operands: list[Any]) -> list[Any]:
    q = equation.params
    first, second = q["cond_nconsts"], q["cond_nconsts"] + q["body_nconsts"]
    of_condition, of_body, start = operands[:first], operands[first:second], operands[second:]

    def holds(state: Any) -> Any:
        return _evaluate(q["cond_jaxpr"], [*of_condition, *state])[0]

    def step(state: Any) -> Any:
        """A loop of `jax.vmap` has a condition for each row, and goes on where it holds."""
        rows = holds(state)
        after = _evaluate(q["body_jaxpr"], [*of_body, *state])
        if rows.ndim == 0:
            return after
        return [
            jax.lax.select(jax.lax.broadcast_in_dim(rows, x.shape, tuple(range(rows.ndim))), y, x)
            for x, y in zip(state, after, strict=True)
        ]

    found: list[Any] = jax.lax.while_loop(lambda state: holds(state).any(), step, list(start))
    return found


def _cond(equation: Any, operands: list[Any]) -> list[Any]:
    branches = [lambda *x, b=branch: _evaluate(b, x) for branch in equation.params["branches"]]
    return list(jax.lax.switch(operands[0], branches, *operands[1:]))


def _linear_solve(equation: Any, operands: list[Any]) -> list[Any]:
    q = equation.params
    lengths, programs = q["const_lengths"], q["jaxprs"]
    before = sum(lengths[: lengths._fields.index("solve")])
    constants = operands[before : before + lengths.solve]
    return _evaluate(programs.solve, [*constants, *operands[sum(lengths) :]])


def _reduce(equation: Any, operands: list[Any]) -> list[Any]:
    q, half = equation.params, len(operands) // 2
    closed = _closed(q["jaxpr"]) if "consts" not in q else core.ClosedJaxpr(q["jaxpr"], q["consts"])

    def combine(a: Any, b: Any) -> Any:
        return tuple(_evaluate(closed, [*a, *b]))

    return list(jax.lax.reduce(tuple(operands[:half]), tuple(operands[half:]), combine, q["dimensions"]))


def _gamma(equation: Any, operands: list[Any]) -> list[Any]:
    """The sampler's own program: it draws numbers of the type that it is asked for."""
    from jax._src.random.core import _gamma_impl

    narrow = [_as(x, atom.aval) for x, atom in zip(operands, equation.invars, strict=True)]
    closed = jax.make_jaxpr(lambda key, a: _gamma_impl(key, a, log_space=equation.params["log_space"], use_vmap=True))(
        *narrow
    )
    return _evaluate(closed, [_wide(x) for x in narrow])


def _scatter(equation: Any, operands: list[Any]) -> list[Any]:
    q = dict(equation.params)
    function = getattr(jax.lax, equation.primitive.name.replace("-", "_"))
    return [
        function(
            *operands,
            q["dimension_numbers"],
            indices_are_sorted=q["indices_are_sorted"],
            unique_indices=q["unique_indices"],
            mode=q["mode"],
        )
    ]


_WITH_PROGRAMS: dict[str, Callable[[Any, list[Any]], list[Any]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "linear_solve": _linear_solve,
    "custom_linear_solve": _linear_solve,
    "reduce": _reduce,
    "random_gamma": _gamma,
    **dict.fromkeys(("scatter", "scatter-add", "scatter_add", "scatter_min", "scatter_max", "scatter_mul"), _scatter),
}


# ---- types ---------------------------------------------------------------------------------------------------------


def _closed(program: Any) -> Any:
    return program if hasattr(program, "consts") else core.ClosedJaxpr(program, ())


def _wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.complex128 if dtype.kind == "c" else np.float64)


def _wide_array(array: Array) -> Array:
    return array.astype(_wide_dtype(array.dtype)) if is_float(array.dtype) else array


def _wide(value: Any) -> Any:
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended) or not is_float(np.dtype(value.dtype)):
        return value
    return jax.lax.convert_element_type(value, _wide_dtype(np.dtype(value.dtype)))


def _as(value: Any, aval: Any) -> Any:
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended) or value.dtype == aval.dtype:
        return value
    return jax.lax.convert_element_type(value, aval.dtype)
