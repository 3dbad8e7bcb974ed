"""XLA:CPU on HLO itself: it takes what its own conversion makes of a module, fusions and bitcasts included."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxlib import _hlo, _jax, xla_client

import stablexla as sx
from stablexla.targets.signature.signature import signature_of

Arrays = list[np.ndarray]


@functools.lru_cache(maxsize=8)
def compiled_by_xla(text: str) -> Any:
    """The executable of a module for one device."""
    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    client = jax.devices("cpu")[0].client
    devices = xla_client.DeviceList(tuple(client.local_devices()[:1]))
    return client.compile_and_load(_jax.mlir.hlo_to_stablehlo(proto), devices, xla_client.CompileOptions())


def xla(text: str, arguments: Sequence[np.ndarray]) -> Arrays:
    """What XLA:CPU gives for a module of HLO."""
    with jax.enable_x64(True):
        results = compiled_by_xla(text).execute_sharded([jax.device_put(a) for a in arguments])
        return [np.asarray(r[0]) for r in results.disassemble_into_single_device_arrays()]


def after_passes(function: Callable[..., Any], *arguments: Any) -> tuple[str, Arrays, Arrays]:
    """A function as XLA:CPU's passes leave it, the arrays that this takes, and what it gives."""
    compiled = jax.jit(function).lower(*arguments).compile()
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    text = compiled.runtime_executable().hlo_modules()[0].to_string(options)
    leaves = [np.asarray(_bits(leaf)) for leaf in jax.tree.leaves(arguments)]
    kept = sorted(compiled._executable._kept_var_idx)
    results = [np.asarray(_bits(leaf)) for leaf in jax.tree.leaves(compiled(*arguments))]
    return text, [leaves[i] for i in kept], results


def _bits(leaf: Any) -> Any:
    """Random keys as the integers that they are."""
    is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def arguments_of(module: Any, seed: int = 0) -> Arrays:
    """Arrays for the parameters of a module: normal numbers, and small integers."""
    rng = np.random.default_rng(seed)
    arrays = []
    for type_ in signature_of(module).parameters:
        element, shape = type_.element, type_.shape
        values: Any = rng.integers(0, 3, shape)
        if element.is_float or element.is_complex:
            values = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if element.is_complex else 0)
        arrays.append(np.asarray(values).astype(element.dtype))
    return arrays


def ours(text: str, arguments: Sequence[np.ndarray]) -> Arrays:
    """What stablexla gives for it."""
    return sx.compile(text).execute(list(arguments))
