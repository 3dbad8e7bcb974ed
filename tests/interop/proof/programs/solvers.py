"""Solvers: differential equations with diffrax, JAX's own and one written here; roots and least squares."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.interop.proof import values as v
from tests.interop.proof.programs.registry import program, with_gradient

_START = np.array([1.0, 0.5], np.float32)
_RATES = np.array([1.1, 0.4, 0.4, 0.1], np.float32)


def _predators(t: Any, y: Any, rates: Any) -> Any:
    a, b, c, d = rates
    return jnp.stack([a * y[0] - b * y[0] * y[1], d * y[0] * y[1] - c * y[1]])


def _solve(solver: str, controller: Any = None, **keywords: Any) -> Any:
    import diffrax

    def solve(rates: Any, start: Any) -> Any:
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(_predators),
            getattr(diffrax, solver)(),
            t0=0.0,
            t1=4.0,
            dt0=0.1,
            y0=start,
            args=rates,
            saveat=diffrax.SaveAt(ts=jnp.linspace(0, 4, 9)),
            stepsize_controller=controller or diffrax.ConstantStepSize(),
            **keywords,
        )
        return found.ys

    return solve


@program("diffrax", "Tsit5 with an adaptive step")
def tsit5() -> tuple[Any, ...]:
    import diffrax

    return _solve("Tsit5", diffrax.PIDController(rtol=1e-4, atol=1e-6)), _RATES, _START


@program("diffrax", "Dopri5 with a fixed step")
def dopri5() -> tuple[Any, ...]:
    return _solve("Dopri5"), _RATES, _START


@program("diffrax", "Kvaerno3, implicit, with an adaptive step")
def kvaerno3() -> tuple[Any, ...]:
    import diffrax

    return _solve("Kvaerno3", diffrax.PIDController(rtol=1e-3, atol=1e-5)), _RATES, _START


@program("diffrax", "Tsit5: gradient by the rates, with checkpoints")
def tsit5_gradient() -> tuple[Any, ...]:
    import diffrax

    solve = _solve("Tsit5", diffrax.PIDController(rtol=1e-4, atol=1e-6), max_steps=256)
    return with_gradient(lambda rates, start: solve(rates, start)[-1].sum()), _RATES, _START


@program("diffrax", "a stochastic equation: Heun with a virtual Brownian tree")
def brownian() -> tuple[Any, ...]:
    import diffrax

    def solve(start: Any, key: Any) -> Any:
        path = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(), key=jax.random.wrap_key_data(key))
        drift = diffrax.ODETerm(lambda t, y, _: -y)
        noise = diffrax.ControlTerm(lambda t, y, _: jnp.asarray(0.3), path)
        terms = diffrax.MultiTerm(drift, noise)
        return diffrax.diffeqsolve(terms, diffrax.Heun(), 0.0, 1.0, 0.05, start).ys

    return solve, np.array(1.0, np.float32), v.key_data()


@program("jax", "jax.experimental.ode.odeint and its gradient")
def odeint() -> tuple[Any, ...]:
    from jax.experimental.ode import odeint as integrate

    def total(rates: Any, start: Any) -> Any:
        return integrate(lambda y, t, r: _predators(t, y, r), start, jnp.linspace(0.0, 2.0, 5), rates)[-1].sum()

    return with_gradient(total), _RATES, _START


@program("jax", "a Runge-Kutta method written out, 100 steps in a scan, and its gradient")
def runge_kutta() -> tuple[Any, ...]:
    def step(y: Any, _: Any, rates: Any) -> Any:
        h = 0.02
        k1 = _predators(0, y, rates)
        k2 = _predators(0, y + h / 2 * k1, rates)
        k3 = _predators(0, y + h / 2 * k2, rates)
        k4 = _predators(0, y + h * k3, rates)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y

    def total(rates: Any, start: Any) -> Any:
        return jax.lax.scan(lambda y, t: step(y, t, rates), start, None, length=100)[1].mean()

    return with_gradient(total), _RATES, _START


@program("optimistix", "a root by Newton's method, and a least-squares fit by Levenberg-Marquardt")
def roots() -> tuple[Any, ...]:
    import optimistix

    def find(start: Any, x: Any, y: Any) -> Any:
        newton = optimistix.Newton(rtol=1e-5, atol=1e-5)
        root = optimistix.root_find(lambda z, _: z**3 - 2 * z - 5, newton, start, throw=False).value
        solver = optimistix.LevenbergMarquardt(rtol=1e-4, atol=1e-4)
        fit = optimistix.least_squares(
            lambda p, xy: p[0] * jnp.exp(-p[1] * xy[0]) - xy[1], solver, jnp.array([1.0, 1.0]), args=(x, y), throw=False
        )
        return root, fit.value

    x = v.increasing(12)
    return find, np.array(2.0, np.float32), x, (2.5 * np.exp(-0.7 * x)).astype(np.float32)
