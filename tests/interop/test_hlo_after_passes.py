"""HLO as XLA:CPU's passes leave it gives what XLA gives: fusions, layouts, and what partitioning made of a program.

Oracle: the very executable that the HLO was taken from.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import stablexla as sx
from tests.comparison import assert_same
from tests.interop.hlo_oracle import after_passes, ours
from tests.interop.jax_programs import random_array
from tests.interop.proof.programs import PROGRAMS


def _positive(x: Any) -> Any:
    return x @ x.T + 6 * jnp.eye(6)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def _pooled(x: Any) -> Any:
    return (lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME") ** 2).sum()


X = random_array(np.float32, 6, 6)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (
        lambda x, w: jax.nn.softmax(jnp.tanh(x @ w) + jnp.arange(8) * 1.5),
        (X, random_array(np.float32, 6, 8)),
    ),
    "transposes": (
        lambda x: jnp.transpose(jnp.transpose(x, (2, 0, 1)) * 2, (1, 2, 0)).reshape(8, -1).T,
        (random_array(np.float32, 4, 6, 8),),
    ),
    "bytes": (lambda x: lax.bitcast_convert_type(x.astype(jnp.uint8).reshape(9, 4), jnp.float32), (X * 50 + 128,)),
    "top_k": (lambda x: (lax.top_k(x, 3), lax.top_k(-x, 2)), (X,)),
    "order": (lambda x: (jnp.sort(x, axis=0), jnp.argsort(x, axis=1), jnp.median(x)), (X,)),
    "LAPACK": (lambda x: (jnp.linalg.cholesky(_positive(x)), jnp.linalg.solve(_positive(x), x)), (X,)),
    "Fourier": (lambda x: jnp.abs(jnp.fft.fft2(x)), (X,)),
    "loop": (lambda x: lax.scan(lambda c, a: (c * 0.5 + a, c), jnp.zeros(6), x), (X,)),
    "branch": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), (X,)),
    "places": (lambda x: x.at[jnp.array([0, 5, 0])].add(x[jnp.array([1, 2, 3])]), (X,)),
    "bits": (lambda key: jax.random.normal(jax.random.wrap_key_data(key), (5, 7)), (np.array([1, 2], np.uint32),)),
    "short floats": (lambda x: (x.astype(jnp.bfloat16) @ x.astype(jnp.bfloat16)).astype(jnp.float32), (X,)),
    "attention": (_attention, tuple(random_array(np.float32, 2, 7, 3, 8, seed=s) for s in range(3))),
    "gradient of a window": (jax.grad(_pooled), (random_array(np.float32, 1, 7, 7, 2),)),
    "calls in parallel": (lambda x: jnp.exp(-x * x).sum(1), (random_array(np.float32, 2048, 512),)),
}
FEW = ["equinox.mlp_gradient", "optax.adamw", "jax.odeint"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    _same(*after_passes(function, *arguments))


@pytest.mark.parametrize("name", FEW)
def test_a_program_of_a_library(name: str) -> None:
    function, arguments = PROGRAMS[f"programs.{name}"].make()
    _same(*after_passes(function, *arguments))


def _same(text: str, arguments: list[np.ndarray], right: list[np.ndarray]) -> None:
    assert "is_scheduled=true" in text
    for actual, wanted in zip(ours(text, arguments), right, strict=True):
        assert_same(actual, wanted, ulp=8, scale=2e-6)


DUMPING = """
import jax, sys
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
x = np.arange(64, dtype=np.float32).reshape(8, 8) % 7

def spread(x): return jax.nn.softmax(x @ x.T)
def ordered(x): return jnp.sort(x, axis=0)
def numbered(x): return jax.shard_map(lambda x: x + jax.lax.axis_index("a"), mesh=mesh,
                                      in_specs=P("a", "b"), out_specs=P("a", "b"))(x)
def single(x): return jnp.tanh(x @ x).sum(0) + jnp.arange(8) * jnp.asarray(np.linspace(0, 1, 8), jnp.float32)

def parts(a): return [np.asarray(s.data) for s in sorted(a.addressable_shards, key=lambda s: s.device.id)]
given = jax.device_put(x, NamedSharding(mesh, P("a", "b")))
made = {f.__name__: parts(jax.jit(f)(given)) for f in (spread, ordered, numbered)}
np.savez(sys.argv[1], x=x, single=jax.jit(single)(x), **{k: np.stack(v) for k, v in made.items()})
"""


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What XLA dumps of programs for one device and for four."""
    folder = tmp_path_factory.mktemp("dumped")
    flags = "--xla_force_host_platform_device_count=4 --xla_dump_hlo_as_text --xla_dump_hlo_as_proto"
    env = {**os.environ, "XLA_FLAGS": f"{flags} --xla_dump_large_constants --xla_dump_to={folder}"}
    subprocess.run([sys.executable, "-c", DUMPING, str(folder / "made.npz")], env=env, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("stage", ["before_optimizations.txt", "cpu_after_optimizations.txt"])
def test_dumps_for_one_device(stage: str, dumped: Path) -> None:
    made = np.load(dumped / "made.npz")
    (path,) = dumped.glob(f"*jit_single.{stage}")
    assert_same(sx.compile(path)(made["x"]), made["single"], ulp=8)


@pytest.mark.parametrize("name", ["spread", "ordered", "numbered"])
def test_dumps_of_what_was_partitioned(name: str, dumped: Path) -> None:
    """Each device's program, whose parameters still say how they were sharded."""
    made = np.load(dumped / "made.npz")
    (path,) = dumped.glob(f"*jit_{name}.cpu_after_optimizations.txt")
    executable = sx.compile(path)
    assert (executable.num_replicas, executable.num_partitions) == (1, 4)
    x = made["x"]
    results = executable.execute_replicated([[x[a : a + 4, b : b + 4]] for a in (0, 4) for b in (0, 4)])
    for (actual,), wanted in zip(results, made[name], strict=True):
        assert_same(actual, wanted, ulp=8, scale=1e-6)


def test_a_dumped_proto(dumped: Path) -> None:
    made = np.load(dumped / "made.npz")
    (path,) = dumped.glob("*jit_single.*after_optimizations.hlo.pb")
    assert_same(sx.compile(path)(made["x"]), made["single"], ulp=8)
