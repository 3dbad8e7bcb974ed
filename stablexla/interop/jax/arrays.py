"""Arrays between JAX and stablexla: views where memory can be shared, and cache keys of argument types."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.errors import CompileError, ExecutionError
from stablexla.interop.jax.required import internals, jax

Array: TypeAlias = npt.NDArray[Any]
Returns: TypeAlias = Literal["jax", "numpy"]
Maker: TypeAlias = Callable[[Array], Any]


def check_returns(returns: object) -> None:
    """Refuse another word than those of `Returns`."""
    if returns not in get_args(Returns):
        raise CompileError(f'returns is "jax" or "numpy", not {told(returns)}', hint='returns="numpy"')


def signature_of(leaf: Any) -> object:
    """Return JAX's cache key of an argument: an array's type with its weakness, a number's Python type."""
    kind = type(leaf)
    if kind is np.ndarray:
        return leaf.dtype, leaf.shape
    if kind in (float, int, bool, complex):
        return kind
    return jax().typeof(leaf)


def to_host(leaf: Any, dtype: np.dtype[Any]) -> Array:
    """Return an argument as a numpy array, of the program's element type where JAX would accept it."""
    if isinstance(leaf, internals().Ref):
        leaf = contents_of(leaf)
    if is_key(leaf):
        leaf = base_of_keys(leaf)
    if isinstance(leaf, (bool, int, float, complex)) and not isinstance(leaf, np.generic):
        return np.asarray(leaf, dtype)
    if isinstance(leaf, jax().ShapeDtypeStruct):
        raise ExecutionError(f"a run takes arrays, and {leaf} has no values", hint="explain(...), which runs nothing")
    array: Array = np.asarray(leaf)
    if array.dtype == jax().dtypes.float0:
        return array.astype(bool)
    if array.dtype != dtype and jax().dtypes.canonicalize_dtype(array.dtype) == dtype:
        return array.astype(dtype)
    return array


def is_key(value: Any) -> bool:
    """Return whether an array holds random keys of the new style."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and not isinstance(dtype, np.dtype) and is_key_type(dtype)


def base_of_keys(keys: Any) -> Any:
    """Return the array of numbers under random keys, itself where `jax.random.key_data` returns a copy."""
    return keys._base_array


def is_key_type(dtype: Any) -> bool:
    """Return whether an element type of JAX is that of random keys."""
    return bool(jax().dtypes.issubdtype(dtype, jax().dtypes.prng_key))


def contents_of(reference: Any) -> Any:
    """Return the array that a `jax.Ref` holds."""
    return reference._refs._buf


def replace_contents(reference: Any, array: Any) -> None:
    """Store another array of its type in a `jax.Ref`, committed to the device of the previous one."""
    held = contents_of(reference)
    held._replace_with(jax().device_put(array, held.sharding) if held._committed else array)


def maker(aval: Any, returns: Returns) -> Maker:
    """Return the conversion of a result's numpy array to the caller's type."""
    if aval.dtype == jax().dtypes.float0:
        return lambda array: np.zeros(array.shape, jax().dtypes.float0)
    if is_key_type(aval.dtype):
        return _key_maker(aval.dtype)
    if returns == "numpy":
        return lambda array: array
    type_of, put = internals().ShapedArray, internals().put
    devices, sharding = _cpu()
    if not all(isinstance(size, int) for size in aval.shape):  # symbolic: the argument decides
        return lambda array: put(type_of(array.shape, array.dtype, aval.weak_type), sharding, [array], devices, False)
    plain = type_of(aval.shape, aval.dtype, aval.weak_type)
    return lambda array: put(plain, sharding, [array], devices, False)


def _key_maker(dtype: Any) -> Maker:
    implementation = str(dtype._impl.name)
    wrap = jax().random.wrap_key_data
    return lambda array: wrap(array, impl=implementation)


@cache
def _cpu() -> tuple[list[Any], Any]:
    device = jax().local_devices(backend="cpu")[0]
    return [device], jax().sharding.SingleDeviceSharding(device)
