"""The PJRT table called directly: out of order, with what is deleted, not there or too long."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stablexla.pjrt.compiling import NUMBERS
from stablexla.pjrt.table import _answer as answer
from stablexla.targets.runtime._runtime import pjrt_table

abi = pytest.importorskip("pypjrt._abi.pjrt_0_114")
INVALID_ARGUMENT, FAILED_PRECONDITION, UNIMPLEMENTED = 3, 9, 12
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
F32 = NUMBERS["float32"]


class Table:
    """Calls functions by name with keyword arguments; an error is returned as its code and message."""

    def __init__(self) -> None:
        capsule = pjrt_table(answer, 2, "stablexla test", [1, 2, 3], [0, 9, 0], True)
        self.api = abi.PJRT_Api.from_address(pointer_of(capsule, b"pjrt_c_api"))

    def call(self, name: str, **values: Any) -> Any:
        args = getattr(abi, f"PJRT_{name}_Args", abi.PJRT_Event_Await_Args)()
        args.struct_size = ctypes.sizeof(args)
        for key, value in values.items():
            setattr(args, key, value)
        function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(getattr(self.api, f"PJRT_{name}"))
        error = function(ctypes.addressof(args))
        return args if not error else self._read(error)

    def _read(self, error: int) -> tuple[int, str]:
        code, said = self.call("Error_GetCode", error=error).code, abi.PJRT_Error_Message_Args()
        said.error = error
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.api.PJRT_Error_Message)(ctypes.addressof(said))
        text = ctypes.string_at(said.message, said.message_size).decode()
        gone = abi.PJRT_Error_Destroy_Args()
        gone.error = error
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.api.PJRT_Error_Destroy)(ctypes.addressof(gone))
        return code, text


@pytest.fixture
def table() -> Iterator[SimpleNamespace]:
    made = Table()
    client = made.call("Client_Create").client
    devices = made.call("Client_Devices", client=client)
    first = ctypes.cast(devices.devices, ctypes.POINTER(ctypes.c_void_p))[0]
    yield SimpleNamespace(call=made.call, client=client, device=first, api=made.api, count=devices.num_devices)
    made.call("Client_Destroy", client=client)


def layout_of(*minor_to_major: int, tiles: int = 0) -> Any:
    layout = abi.PJRT_Buffer_MemoryLayout()
    layout.order = (ctypes.c_int64 * len(minor_to_major))(*minor_to_major)  # kept as long as the layout
    layout.tiled.minor_to_major = ctypes.addressof(layout.order)
    layout.tiled.minor_to_major_size, layout.tiled.num_tiles = len(minor_to_major), tiles
    return layout


def put(table: Any, array: np.ndarray[Any, Any], semantics: int = 0, layout: Any = None) -> Any:
    dims = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*array.strides)
    return table.call(
        "Client_BufferFromHostBuffer",
        client=table.client,
        data=array.ctypes.data,
        type=F32,
        dims=ctypes.addressof(dims),
        num_dims=array.ndim,
        byte_strides=ctypes.addressof(strides),
        num_byte_strides=array.ndim,
        host_buffer_semantics=semantics,
        device=table.device,
        device_layout=None if layout is None else ctypes.addressof(layout),
    )


def program(table: Any, text: str) -> Any:
    code = ctypes.create_string_buffer(text.encode(), len(text))
    form = ctypes.create_string_buffer(b"mlir", 4)
    args = abi.PJRT_Program()
    args.struct_size = ctypes.sizeof(args)
    args.code, args.code_size = ctypes.addressof(code), len(text)
    args.format, args.format_size = ctypes.addressof(form), 4
    return table.call("Client_Compile", client=table.client, program=ctypes.addressof(args))


def execute(table: Any, executable: Any, *buffers: Any) -> Any:
    row = (ctypes.c_void_p * len(buffers))(*buffers)
    rows, results = (ctypes.c_void_p * 1)(ctypes.addressof(row)), (ctypes.c_void_p * 1)()
    outputs = (ctypes.c_void_p * 1)(ctypes.addressof(results))
    done = table.call(
        "LoadedExecutable_Execute",
        executable=executable,
        argument_lists=ctypes.addressof(rows),
        num_devices=1,
        num_args=len(buffers),
        output_lists=ctypes.addressof(outputs),
    )
    return done if isinstance(done, tuple) else results[0]


def get(table: Any, buffer: Any, shape: tuple[int, ...], layout: Any = None) -> Any:
    array = np.zeros(shape, np.float32)
    host = None if layout is None else ctypes.addressof(layout)
    done = table.call("Buffer_ToHostBuffer", src=buffer, dst=array.ctypes.data, dst_size=array.nbytes, host_layout=host)
    if isinstance(done, tuple):
        return done
    table.call("Event_Destroy", event=done.event)
    return array


DOUBLE = """func.func public @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.add %x, %x : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_program_from_end_to_end(table: Any) -> None:
    assert table.count == 2
    given = put(table, X)
    made = program(table, DOUBLE)
    result = execute(table, made.executable, given.buffer)
    np.testing.assert_array_equal(get(table, result, (2, 3)), 2 * X)
    for buffer in (given.buffer, result):
        table.call("Buffer_Destroy", buffer=buffer)
    table.call("Event_Destroy", event=given.done_with_host_buffer)
    table.call("LoadedExecutable_Destroy", executable=made.executable)


def test_strides(table: Any) -> None:
    for array in (X.T, X[:, ::-1], X[:, ::2]):
        given = put(table, array)
        np.testing.assert_array_equal(get(table, given.buffer, array.shape), array)
        table.call("Event_Destroy", event=given.done_with_host_buffer)
        table.call("Buffer_Destroy", buffer=given.buffer)


COLUMNS = """func.func public @main(%x: tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"})
    -> (tensor<3x2xf32> {mhlo.layout_mode = "{1,0}"}) {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}"""


@pytest.mark.parametrize("array", [X, X.T, X[:, ::-1]])
def test_an_array_by_columns(table: Any, array: np.ndarray[Any, Any]) -> None:
    given = put(table, array, layout=layout_of(0, 1))
    np.testing.assert_array_equal(get(table, given.buffer, array.T.shape), array.T)  # its memory as it is
    np.testing.assert_array_equal(get(table, given.buffer, array.shape, layout_of(1, 0)), array)
    found = table.call("Buffer_GetMemoryLayout", buffer=given.buffer).layout.tiled
    assert list(ctypes.cast(found.minor_to_major, ctypes.POINTER(ctypes.c_int64))[:2]) == [0, 1]
    for buffer in (put(table, array).buffer, put(table, array, layout=layout_of(1, 0)).buffer):
        np.testing.assert_array_equal(get(table, buffer, array.shape), array)
        np.testing.assert_array_equal(get(table, buffer, array.T.shape, layout_of(0, 1)), array.T)


def test_an_array_by_columns_is_lent(table: Any) -> None:
    given = put(table, X.T, semantics=2, layout=layout_of(0, 1))
    assert table.call("Buffer_OpaqueDeviceMemoryDataPointer", buffer=given.buffer).device_memory_ptr == X.ctypes.data
    table.call("Buffer_Delete", buffer=given.buffer)


def test_layouts_that_are_none(table: Any) -> None:
    assert put(table, X, layout=layout_of(0, 1, tiles=1))[0] == UNIMPLEMENTED
    for order in ((0,), (0, 0), (1, 2), (2, 1, 0)):
        text = f"the layout {{{','.join(map(str, order))}}} of an array of another rank"
        assert put(table, X, layout=layout_of(*order)) == (INVALID_ARGUMENT, text)


def test_a_program_on_columns(table: Any) -> None:
    made = program(table, COLUMNS)
    given = put(table, X, layout=layout_of(0, 1))
    np.testing.assert_array_equal(get(table, execute(table, made.executable, given.buffer), (3, 2)), X.T)
    assert execute(table, made.executable, put(table, X).buffer) == (
        INVALID_ARGUMENT,
        "main: argument 0 has the layout {1,0}, where the program takes {0,1}",
    )


def test_memory_that_is_lent_comes_back_with_the_array(table: Any) -> None:
    given = put(table, X, semantics=2)
    event = given.done_with_host_buffer
    assert table.call("Buffer_OpaqueDeviceMemoryDataPointer", buffer=given.buffer).device_memory_ptr == X.ctypes.data
    assert not table.call("Event_IsReady", event=event).is_ready
    table.call("Buffer_Delete", buffer=given.buffer)
    assert table.call("Event_IsReady", event=event).is_ready
    table.call("Event_Destroy", event=event)
    table.call("Buffer_Destroy", buffer=given.buffer)


def test_after_deletion(table: Any) -> None:
    given = put(table, X)
    made = program(table, DOUBLE)
    table.call("Buffer_Delete", buffer=given.buffer)
    table.call("Buffer_Delete", buffer=given.buffer)  # twice
    assert table.call("Buffer_IsDeleted", buffer=given.buffer).is_deleted
    assert table.call("Buffer_Dimensions", buffer=given.buffer).num_dims == 2
    names = ("Buffer_ReadyEvent", "Buffer_UnsafePointer", "Buffer_IncreaseExternalReferenceCount")
    for name in names:
        assert table.call(name, buffer=given.buffer) == (INVALID_ARGUMENT, "the array has been deleted or donated")
    assert get(table, given.buffer, (2, 3))[0] == INVALID_ARGUMENT
    code, said = execute(table, made.executable, given.buffer)
    assert (code, said) == (INVALID_ARGUMENT, "main: argument 0 has been deleted or donated")
    table.call("LoadedExecutable_Delete", executable=made.executable)
    assert table.call("LoadedExecutable_IsDeleted", executable=made.executable).is_deleted
    other = put(table, X)
    assert execute(table, made.executable, other.buffer)[0] == FAILED_PRECONDITION


def test_what_does_not_fit(table: Any) -> None:
    given, made = put(table, X), program(table, DOUBLE)
    assert execute(table, made.executable, given.buffer, given.buffer) == (
        INVALID_ARGUMENT,
        "main: 2 arguments, where it takes 1",
    )
    assert table.call("Client_LookupDevice", client=table.client, id=2)[0] == INVALID_ARGUMENT
    assert table.call("Client_LookupDevice", client=table.client, id=-1)[0] == INVALID_ARGUMENT
    assert table.call("Buffer_DecreaseExternalReferenceCount", buffer=given.buffer)[0] == INVALID_ARGUMENT
    assert program(table, "no program")[0] == INVALID_ARGUMENT
    small = np.zeros(2, np.float32)
    done = table.call("Buffer_ToHostBuffer", src=given.buffer, dst=small.ctypes.data, dst_size=small.nbytes)
    assert done == (INVALID_ARGUMENT, "less memory than the array has bytes")


def test_infeeds_and_outfeeds_are_refused(table: Any) -> None:
    feeds = {
        "infeed": '%x, %1 = "stablehlo.infeed"(%0) : (!stablehlo.token) -> (tensor<f32>, !stablehlo.token)',
        "outfeed": '%1 = "stablehlo.outfeed"(%0) : (!stablehlo.token) -> !stablehlo.token',
    }
    for name, operation in feeds.items():
        text = "func.func public @main() {\n  %0 = stablehlo.create_token : !stablehlo.token\n  " + operation
        code, said = program(table, text + "\n  return\n}")
        assert code == UNIMPLEMENTED
        assert said.startswith(f"stablehlo.{name}: JAX has no function that feeds a plugin's device")


def test_functions_that_are_not_there_say_so(table: Any) -> None:
    for name in ("TopologyDescription_Serialize", "Client_CreateAliasBuffer", "Executable_ParameterMemoryKinds"):
        assert table.call(name) == (UNIMPLEMENTED, f"PJRT_{name} is not implemented by stablexla")


def test_every_slot_is_filled(table: Any) -> None:
    assert all(getattr(table.api, name) for name in abi.FUNCTIONS)
    assert (table.api.pjrt_api_version.major_version, table.api.pjrt_api_version.minor_version) == (0, 104)
