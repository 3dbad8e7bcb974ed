"""Wrappers of jaxlib's functions that serve its own CPU client alone: Python callbacks, FFI targets, DLPack copies."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from stablexla.dialects.caller import user_frame
from stablexla.pjrt.table import waiting
from stablexla.targets.runtime._runtime import pjrt_stop

_POINTER_OF = ctypes.pythonapi.PyCapsule_GetPointer
_NAME_OF = ctypes.pythonapi.PyCapsule_GetName
_POINTER_OF.restype, _POINTER_OF.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_NAME_OF.restype, _NAME_OF.argtypes = ctypes.c_char_p, [ctypes.py_object]


class _Tensor(ctypes.Structure):
    """DLTensor, the description of an array."""

    _fields_ = [
        ("data", ctypes.c_size_t),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


_BEFORE_TENSOR = {b"dltensor": 0, b"dltensor_versioned": 32}
"""Bytes of DLManagedTensor before its description: version, owner, deleter and flags, from DLPack 1.0 on."""


def bind_in_jax() -> None:
    """Let JAX do for this platform what it does for XLA's CPU."""
    _bind_targets()
    _bind_callbacks()
    _bind_tensors()
    _bind_partitioning()
    _bind_inspection()
    _bind_waits()


def _is_ours(client: Any) -> bool:
    return "stablexla" in client.platform_version


def _bind_targets() -> None:
    """Where XLA's CPU has no client, targets wait for one, and are not to be seen."""
    from jaxlib import xla_client

    xla_client.register_custom_call_handler("cpu", xla_client._xla.register_custom_call_target)
    xla_client.register_custom_type_handler("cpu", xla_client._xla.register_custom_type)


def _bind_callbacks() -> None:
    """Let programs name functions of this process, as those of `interop.jax` do; note who waits for the compiler."""
    from jax._src import compiler

    compile_and_load = _raising(compiler.backend_compile_and_load)

    @wraps(compile_and_load)
    def with_callbacks(
        backend: Any, module: Any, executable_devices: Any, options: Any, host_callbacks: Sequence[Any]
    ) -> Any:
        if not _is_ours(backend):
            return compile_and_load(backend, module, executable_devices, options, host_callbacks)
        if host_callbacks:
            from stablexla.interop.jax.callbacks import bind_callbacks

            module, _ = bind_callbacks(module, host_callbacks)  # the compiled program releases them
        if (frame := user_frame()) is None:
            return compile_and_load(backend, module, executable_devices, options, [])
        waiting.append(frame)
        try:
            return compile_and_load(backend, module, executable_devices, options, [])
        finally:
            waiting.remove(frame)

    compiler.backend_compile_and_load = with_callbacks


def _bind_tensors() -> None:
    """Make the copies that `from_dlpack` asks for: jaxlib refuses to ask a plugin for them.

    The table gives a view of a tensor, or a copy of one that programs cannot read in its place.
    """
    import jax
    from jaxlib import _jax

    tensor_to_buffer = _jax.dlpack_managed_tensor_to_buffer

    @wraps(tensor_to_buffer)
    def with_copies(tensor: Any, device: Any, stream: Any = None, copy: bool | None = None, *more: Any) -> Any:
        if copy is None or not _is_ours(device.client):
            return tensor_to_buffer(tensor, device, stream, copy, *more)
        address = _address_of(tensor)
        array = tensor_to_buffer(tensor, device, stream, None, *more)
        is_view = array.unsafe_buffer_pointer() == address
        if copy and is_view:
            return jax.device_put(array, device, may_alias=False)
        if not copy and not is_view and array.size:
            why = "the elements are not aligned, or not in the order of rows"
            raise ValueError(f"from_dlpack with copy=False: {why}; set copy=True or copy=None")
        return array

    _jax.dlpack_managed_tensor_to_buffer = with_copies


def _bind_partitioning() -> None:
    """Lower functions of `custom_partitioning` as others: jaxlib asks for their own partitioning in XLA alone."""
    from jax._src import core, custom_partitioning
    from jax._src.interpreters import mlir

    primitive = custom_partitioning.custom_partitioning_p
    partitioned = custom_partitioning._custom_partitioning_lowering_rule

    def lowered(ctx: Any, *values: Any, call: Any, **more: Any) -> Any:
        devices = _devices_of(ctx.module_context.axis_context)
        if devices and _is_ours(devices[0].client):
            return mlir.lower_fun(core.jaxpr_as_fun(call), multiple_results=True)(ctx, *values)
        return partitioned(ctx, *values, call=call, **more)

    mlir.register_lowering(primitive, lowered)


def _bind_inspection() -> None:
    """Note the functions of `inspect_array_sharding` for the partitioner."""
    from jaxlib import xla_client

    from stablexla.dialects.custom_calls import INSPECTORS
    from stablexla.pjrt.messages import shardings

    encode = xla_client.encode_inspect_sharding_callback

    @wraps(encode)
    def encode_and_note(callback: Any) -> bytes:
        def tell(sharding: Any) -> None:
            message = xla_client.OpSharding()
            message.ParseFromString(shardings([False], [sharding], len(sharding.parts))[0])
            callback(xla_client.HloSharding.from_proto(message))

        key: bytes = encode(callback)
        INSPECTORS[key] = tell
        return key

    xla_client.encode_inspect_sharding_callback = encode_and_note


def _bind_waits() -> None:
    """Stop the runs that are waited for when a signal ends the wait: jaxlib handles signals there, and tells nobody."""
    from jaxlib import _jax, xla_client

    array = xla_client.ArrayImpl
    for owner, name in [
        (array, "block_until_ready"),
        (array, "_single_device_array_to_np_array_did_copy"),
        (array, "_to_np_array_did_copy"),  # from jaxlib 0.11 on
        (xla_client, "batched_block_until_ready"),
        (_jax, "buffer_to_dlpack_managed_tensor"),
    ]:
        if hasattr(owner, name):
            setattr(owner, name, _raising(getattr(owner, name), on_signal=pjrt_stop))


def _raising(call: Any, on_signal: Callable[[], object] = lambda: None) -> Any:
    """Raise what a signal's handler raised inside of the table in place of the table's error, and call `on_signal`."""

    @wraps(call, ("__name__", "__doc__"))  # methods of jaxlib's have no more
    def raising(*arguments: Any, **more: Any) -> Any:
        try:
            return call(*arguments, **more)
        except (RuntimeError, TypeError, ValueError):  # of a run that failed, of a deleted array
            try:
                _begin()
            except BaseException as raised:
                raise raised from None
            raise
        except BaseException:
            on_signal()
            raise

    return raising


def _begin() -> None:
    """Do nothing: Python raises what is pending where a function begins."""


def _devices_of(context: Any) -> Sequence[Any]:
    """Return the devices that a program is lowered for; none where they are not known yet."""
    mesh = getattr(context, "mesh", None)
    return getattr(context, "device_assignment", None) or getattr(mesh, "_flat_devices_tuple", None) or ()


def _address_of(tensor: Any) -> int:
    """Return the address of the first element of a capsule's tensor."""
    name = _NAME_OF(tensor)
    described = _Tensor.from_address(_POINTER_OF(tensor, name) + _BEFORE_TENSOR[name])
    return int(described.data + described.byte_offset)
