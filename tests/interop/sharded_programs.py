"""Programs on arrays that lie on the eight devices of a mesh; run as a program, it compares all with `jax.jit`.

It prints a line of JSON for each program: its name, and what went wrong, or null. How many devices there are is said to
JAX in the environment, before it starts.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

DEVICES = 8
ENVIRONMENT = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}", "JAX_PLATFORMS": "cpu"}
PROGRAMS: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {}
GENERATOR = np.random.default_rng(0)


def numbers(*shape: int) -> Any:
    return GENERATOR.standard_normal(shape).astype(np.float32)


X, W = numbers(8, 16), numbers(16, 32)
INDICES = np.array([3, 1, 7, 2], np.int32)


def mesh(order: Any = range(DEVICES), sizes: tuple[int, ...] = (2, 4), kind: Any = AxisType.Auto) -> Mesh:
    """The mesh "x" by "y"."""
    devices = np.array(jax.devices())[list(order)].reshape(sizes)
    return Mesh(devices, ("x", "y")[: len(sizes)], axis_types=(kind,) * len(sizes))


def at(array: Any, *spec: Any, on: Mesh | None = None) -> Any:
    """The array on the devices of the mesh."""
    return jax.device_put(array, NamedSharding(on or mesh(), P(*spec)))


def constrained(value: Any, *spec: Any) -> Any:
    return lax.with_sharding_constraint(value, NamedSharding(mesh(), P(*spec)))


def mapped(function: Any, taken: Any, given: Any, **settings: Any) -> Any:
    settings = {"mesh": mesh(), "check_vma": False, **settings}
    return jax.shard_map(function, in_specs=taken, out_specs=given, **settings)


def program(function: Any) -> Any:
    """Enters what makes a function and its arguments."""
    PROGRAMS[function.__name__] = function
    return function


TOGETHER = 6
"""So many programs there are of functions of X; a program for each would take longer to compile."""


def of_x(functions: dict[str, Any]) -> None:
    """A program of X, cut both ways, and of four indices; its results are named."""

    def function(x: Any, i: Any) -> Any:
        return {name: each(x, i) for name, each in functions.items()}

    PROGRAMS["-".join(functions)] = lambda: (function, (at(X, "y", "x"), at(INDICES, "x")))


# ---- automatic partitioning --------------------------------------------------------------------------------------

OF_X: dict[str, Any] = {
    "take": lambda x, i: x[i],
    "add_at": lambda x, i: x.at[i].add(1.0),
    "fft": lambda x, i: jnp.fft.fft(x),
    "cholesky": lambda x, i: jnp.linalg.cholesky(x @ x.T + jnp.eye(8) * 9),
    "loop": lambda x, i: lax.fori_loop(0, 3, lambda j, v: jnp.sin(v) + j, x),
    "cond": lambda x, i: lax.cond(x[0, 0] > 0, lambda: x * 2, lambda: x * 3),
    "concatenate": lambda x, i: jnp.concatenate([x, x], 0),
    "reverse": lambda x, i: x[::-1, 1:9],
    "random": lambda x, i: x + jax.random.normal(jax.random.key(0), (8, 16)),
    "pad": lambda x, i: jnp.pad(x, ((1, 1), (0, 3))),
    "iota": lambda x, i: jnp.arange(128.0).reshape(8, 16) + x,
    "iotas": lambda x, i: (lax.iota(jnp.int8, 8)[:, None] + x, lax.broadcasted_iota(jnp.int32, (8, 16), 1) * x),
    "rng": lambda x, i: constrained(lax.rng_uniform(0.0, 1.0, (8, 16)), "x", "y") < 2,
    "bits": lambda x, i: lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.uint8), jnp.float32),
    "windows": lambda x, i: lax.reduce_window(x, 0.0, lax.add, (3, 3), (1, 1), "SAME"),
    "running": lambda x, i: (jnp.cumsum(x, 0), jnp.cumsum(x, 1)),
    "sorts": lambda x, i: (jnp.argsort(x, 0), jnp.sort(x, 1)),
    "roll": lambda x, i: jnp.roll(x, 1, 0),
    "argmax": lambda x, i: (jnp.argmax(x, 0), jnp.argmax(x, 1)),
    "reductions": lambda x, i: (jnp.prod(x), x.min(1), (x > 0).any(0), jnp.isnan(x).all(), x.max(), (x > 0).sum()),
    "where": lambda x, i: (jnp.where(x > 0, x, 0.0), jnp.clip(x, -1, 1)),
    "slice_at": lambda x, i: lax.dynamic_slice(x, (i[0], 0), (3, 16)),
    "update_at": lambda x, i: lax.dynamic_update_slice(x, jnp.ones((2, 16)), (i[0], 0)),
    "products": lambda x, i: (jnp.einsum("ab,cb->ac", x, x), jnp.einsum("ab,ac->bc", x, x), jnp.dot(x[0], x[1])),
    "scan": lambda x, i: lax.scan(lambda c, v: (c + v, c * v), jnp.zeros(16), x),
    "one_hot": lambda x, i: jax.nn.one_hot(i, 8) @ x,
    "normalised": lambda x, i: (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(0, keepdims=True) + 1e-5),
    "narrow": lambda x, i: (x.astype(jnp.bfloat16) + 1, x.astype(jnp.float16).max(0)),
    "reshapes": lambda x, i: (x.reshape(16, 8), x.reshape(2, 4, 16), x.reshape(-1), x.reshape(1, 8, 16, 1)),
    "blocks": lambda x, i: x.reshape(4, 2, 8, 2).transpose(0, 2, 1, 3).reshape(32, 4),
    "while": lambda x, i: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, jnp.cos(c[1])), (0, x)),
    "erf": lambda x, i: jax.scipy.special.erf(x) + lax.lgamma(x),
    "complex": lambda x, i: lax.complex(x, x * 2).conj().imag.sum(1),
    "split": lambda x, i: jnp.split(x, 4, 1),
    "empty": lambda x, i: (x[:0].sum(), x.reshape(8, 16)[:, :0].reshape(0, 4)),
}
for first in range(TOGETHER):
    of_x(dict(list(OF_X.items())[first::TOGETHER]))


@program
def softmax() -> Any:
    return lambda x, w: jax.nn.softmax(jnp.tanh(x @ w)).sum(0), (at(X, "x", None), at(W, None, "y"))


@program
def constraints() -> Any:
    def function(x: Any, w: Any) -> Any:
        h = constrained(x @ w, "x", "y")
        return h.T, constrained(constrained(x, "x", "y"), "y", "x"), constrained(constrained(x, None, "y"), "y", None)

    return function, (at(X, "y", "x"), at(W, "x", None))


@program
def permuted_axes() -> Any:
    return lambda x: constrained(constrained(x * 2, ("x", "y")), ("y", "x")), (X,)


@program
def uneven() -> Any:
    return lambda x: constrained(x * 2 + 1, "y", "x").sum(0), (numbers(7, 5),)


@program
def training() -> Any:
    def function(w: Any, x: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.square(jnp.maximum(x @ w, 0))))(w)
        return loss, constrained(w - 0.1 * gradient, ("x", "y"))

    return function, (at(W, ("x", "y"), None), at(numbers(64, 16), ("x", "y"), None))


@program
def convolution() -> Any:
    def function(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    gradient = jax.grad(lambda x, w: function(x, w).sum(), (0, 1))
    return gradient, (at(numbers(8, 6, 6, 4), "x", None, None, "y"), at(numbers(3, 3, 4, 8), None, None, None, "y"))


@program
def attention() -> Any:
    def function(q: Any, k: Any, v: Any) -> Any:
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k)), v)

    return function, tuple(at(numbers(4, 8, 4, 2), "x", None, "y") for _ in range(3))


@program
def embedding() -> Any:
    gradient = jax.grad(lambda e, i: (e[i] ** 2).sum())
    return gradient, (at(X, None, "y"), at(np.arange(8, dtype=np.int32) % 5, "x"))


@program
def batched() -> Any:
    def function(x: Any, i: Any, a: Any) -> Any:
        spd = a @ a.transpose(0, 2, 1) + 4 * jnp.eye(4)
        return jnp.take_along_axis(x, i, 1), jnp.linalg.cholesky(spd), lax.top_k(x, 3)

    indices = np.tile(np.arange(4), (8, 1)).astype(np.int32)
    return function, (at(X, "x", None), at(indices, "x", None), at(numbers(8, 4, 4), ("x", "y")))


@program
def explicit() -> Any:
    """A mesh on which types say how arrays lie."""
    on = mesh(kind=AxisType.Explicit)
    return lambda x: (jnp.sin(x) @ jnp.ones((16, 3)), x.sum(1)), (at(X, "x", None, on=on),)


@program
def six_devices() -> Any:
    on = mesh(range(6), (2, 3))
    x = numbers(6, 12)
    return lambda x: (x @ x.T, x.reshape(2, 3, 12).sum(1), x.sum()), (at(x, ("x", "y"), None, on=on),)


@program
def start() -> Any:
    """A sum that does not start at zero. It is compared with one device: XLA counts the start once for each part."""
    return lambda x: lax.reduce(x, 1.5, lax.add, (0,)), (at(X, "y", "x"),)


@program
def donated() -> Any:
    return lambda x: x + 1, (at(X, "x", "y"),)


@program
def donated_and_moved() -> Any:
    """The result lies otherwise than the argument whose memory it could take."""
    return lambda x: constrained(x + 1, "y", "x"), (at(X, "x", "y"),)


@program
def callback() -> Any:
    kind = jax.ShapeDtypeStruct(X.shape, X.dtype)
    return lambda x: jax.pure_callback(lambda v: np.asarray(v) * 2, kind, x) + 1, (at(X, "x", "y"),)


CALLS: list[Any] = []


@program
def effect() -> Any:
    """It happens once, on the whole array."""

    def called(v: Any) -> Any:
        CALLS.append(v.shape)
        return np.float32(v.sum())

    return lambda x: io_callback(called, jax.ShapeDtypeStruct((), np.float32), x) + x, (at(X, "x", "y"),)


@program
def effect_of_parts() -> Any:
    """It happens on each device, on its own part."""

    def function(x: Any) -> Any:
        number = lax.axis_index(("x", "y")).astype(np.float32)
        return io_callback(lambda v, n: np.asarray(v) * n, jax.ShapeDtypeStruct(x.shape, x.dtype), x, number)

    return mapped(function, P("x", "y"), P("x", "y")), (X,)


# ---- shard_map ---------------------------------------------------------------------------------------------------


@program
def sums() -> Any:
    def function(x: Any) -> Any:
        both = lax.psum(x, ("x", "y"))
        return lax.psum(x, "x"), lax.psum(x, "y"), both, lax.pmean(x, "x"), lax.pmax(x, "y"), lax.pmin(x, "y")

    given = (P(None, "y"), P("x"), P(), P(None, "y"), P("x"), P("x"))
    return mapped(function, P("x", "y"), given), (X,)


@program
def gathers() -> Any:
    def function(x: Any) -> Any:
        scattered = lax.psum_scatter(x, "y", scatter_dimension=0, tiled=True)
        return lax.all_gather(x, "y", tiled=True, axis=1), lax.all_gather(x, "x"), scattered

    return mapped(function, P("x", "y"), (P("x"), P(None, None, "y"), P(("x", "y")))), (X,)


@program
def exchanges() -> Any:
    def function(x: Any) -> Any:
        sent = lax.ppermute(x, "y", [(0, 1), (1, 2), (2, 3)])
        return lax.all_to_all(x, "y", 0, 1, tiled=True), sent

    return mapped(function, P("x", "y"), (P(("x", "y")), P("x", "y"))), (X,)


@program
def positions() -> Any:
    def function(x: Any) -> Any:
        return x + lax.axis_index("x") * 10 + lax.axis_index("y") + 100 * lax.axis_index(("x", "y"))

    return mapped(function, P("x", "y"), P("x", "y")), (X,)


@program
def other_order() -> Any:
    """A mesh whose devices stand in another order than JAX numbers them."""
    on = mesh([0, 2, 4, 6, 1, 3, 5, 7])
    inner = mapped(lambda x: lax.psum(x, "y") + lax.axis_index("x"), P("x", "y"), P("x"), mesh=on)
    return lambda x: inner(x) + 1, (at(X, "x", "y", on=on),)


@program
def one_axis() -> Any:
    """The other axis is left to the partitioner, also in the region."""

    def inner(x: Any) -> Any:
        return lax.psum(jnp.tanh(x @ x.T), "x") + lax.axis_index("x") * 0

    other = mapped(lambda x: lax.psum(x, "y"), P(None, "y"), P(), axis_names={"y"})
    auto = mapped(inner, P("x"), P(), axis_names={"x"})
    return lambda x: (auto(jnp.sin(x)) * 2, other(jnp.sin(x)) * 2), (at(X, "x", "y"),)


@program
def nested() -> Any:
    def deep(y: Any) -> Any:
        return lax.psum(y, "y") * 2 + lax.axis_index("y") * 0

    def function(x: Any) -> Any:
        inner = jax.shard_map(deep, in_specs=P(None, "y"), out_specs=P(), axis_names={"y"}, check_vma=False)
        return lax.psum(inner(x), "x")

    return mapped(function, P("x"), P(), axis_names={"x"}), (at(X, "x", "y"),)


@program
def ring() -> Any:
    def step(carry: Any, _: Any) -> Any:
        carry = lax.ppermute(carry, "y", [(k, (k + 1) % 4) for k in range(4)])
        return carry, lax.psum(carry, "x")

    inner = mapped(lambda x: lax.scan(step, x, jnp.arange(3)), P("x", "y"), (P("x", "y"), P(None, None, "y")))
    return inner, (X,)


@program
def gradient() -> Any:
    inner = mapped(lambda v: lax.pmean(jnp.sum(v**2), ("x", "y")), P("x", "y"), P())
    return jax.grad(lambda x: inner(x).sum()), (X,)


def gspmd(name: str) -> None:
    """The same program as GSPMD's texts and custom calls."""
    PROGRAMS[f"gspmd_{name}"] = PROGRAMS[name]


for name in (
    "softmax",
    "constraints",
    "positions",
    "sums",
    "other_order",
    "one_axis",
    "six_devices",
    "effect_of_parts",
):
    gspmd(name)


def compare(name: str) -> str | None:
    from stablexla.interop.jax import jit

    jax.config.update("jax_use_shardy_partitioner", not name.startswith("gspmd_"))
    function, arguments = PROGRAMS[name]()
    settings = {"donate_argnums": 0} if name.startswith("donated") else {}
    ours = jit(function, **settings)
    copies = [jax.device_put(np.asarray(a), a.sharding) if isinstance(a, jax.Array) else a for a in arguments]
    if name == "start":
        arguments = tuple(map(np.asarray, arguments))
    wanted = jax.tree.leaves_with_path(jax.jit(function, **settings)(*arguments))
    got = jax.tree.leaves(ours(*copies))
    if name.startswith("donated") and not copies[0].is_deleted():
        return "the donated array is still there"
    if name == "effect" and CALLS != [(8, 16), (8, 16)]:
        return f"called for {CALLS}"
    for (path, want), result in zip(wanted, got, strict=True):
        where = jax.tree_util.keystr(path)
        if name != "start" and len(result.sharding.device_set) != len(want.sharding.device_set):
            return f"{where} on {result.sharding}, not {want.sharding}"
        if (result.shape, result.dtype, result.aval.weak_type) != (want.shape, want.dtype, want.aval.weak_type):
            return f"{where} {result.aval}, not {want.aval}"
        close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-5, err_msg=where)
        close(np.asarray(result).astype(complex), np.asarray(want).astype(complex))
        for shard in result.addressable_shards:
            close(np.asarray(shard.data).astype(complex), np.asarray(want)[shard.index].astype(complex))
    return None


def main() -> None:
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or PROGRAMS:
        try:
            problem = compare(name)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        print(json.dumps([name, problem]), flush=True)


if __name__ == "__main__":
    main()
