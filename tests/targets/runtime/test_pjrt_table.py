"""The PJRT table called directly: out of order, with what is deleted, not there or too long.

Python's table and that of the shared library are called by the same tests.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.interop.encodings.protobuf import BYTES, VARINT, Field, encode, packed
from stablexla.pjrt.compiling import NUMBERS
from stablexla.pjrt.table import _answer as answer
from stablexla.targets.runtime._runtime import pjrt_table
from tests.pjrt_library import address_in_library

abi = pytest.importorskip("pypjrt._abi.pjrt_0_114")
INVALID_ARGUMENT, FAILED_PRECONDITION, UNIMPLEMENTED = 3, 9, 12
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
F32 = NUMBERS["float32"]


class Table:
    """Calls functions by name with keyword arguments; an error is returned as its code and message."""

    def __init__(self, address: int) -> None:
        self.api = abi.PJRT_Api.from_address(address)

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


@pytest.fixture(params=["python", "library"])
def table(request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    if request.param == "python":
        address = pointer_of(pjrt_table(answer, 2, "stablexla test", [1, 2, 3], [0, 9, 0], True), b"pjrt_c_api")
    else:
        address = address_in_library()
    made = client_of(Table(address))
    made.is_library = request.param == "library"
    yield made
    made.call("Client_Destroy", client=made.client)


def client_of(table: Any, **options: int) -> Any:
    """A client with these options, and its devices, of which arrays are put on the first."""
    names = [ctypes.create_string_buffer(name.encode(), len(name)) for name in options]
    given = (abi.PJRT_NamedValue * len(options))()
    for one, name, value in zip(given, names, options.values(), strict=True):
        one.struct_size, one.type, one.int64_value = ctypes.sizeof(one), abi.PJRT_NamedValue_kInt64, value
        one.name, one.name_size = ctypes.addressof(name), len(name)
    made = table.call("Client_Create", create_options=ctypes.addressof(given), num_options=len(options))
    if isinstance(made, tuple):
        return made
    found = table.call("Client_Devices", client=made.client)
    devices = ctypes.cast(found.devices, ctypes.POINTER(ctypes.c_void_p))[: found.num_devices]
    return SimpleNamespace(
        table=table, call=table.call, api=table.api, client=made.client, devices=devices, device=devices[0]
    )


def layout_of(*minor_to_major: int, tiles: int = 0) -> Any:
    layout = abi.PJRT_Buffer_MemoryLayout()
    layout.order = (ctypes.c_int64 * len(minor_to_major))(*minor_to_major)  # kept as long as the layout
    layout.tiled.minor_to_major = ctypes.addressof(layout.order)
    layout.tiled.minor_to_major_size, layout.tiled.num_tiles = len(minor_to_major), tiles
    return layout


def put(table: Any, array: np.ndarray[Any, Any], semantics: int = 0, layout: Any = None, device: int = 0) -> Any:
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
        device=table.devices[device],
        device_layout=None if layout is None else ctypes.addressof(layout),
    )


def program(table: Any, text: str, options: bytes = b"") -> Any:
    given = ctypes.create_string_buffer(options, len(options))
    place = ctypes.addressof(given)
    values = {"client": table.client, "compile_options": place, "compile_options_size": len(options)}
    return compile_by(table, text, "Client_Compile", **values)


def options_for(replicas: int, partitions: int, devices: Sequence[int] = ()) -> bytes:
    """A CompileOptionsProto, with a DeviceAssignmentProto if devices are given."""
    build = field(4, replicas) + field(5, partitions)
    if devices:
        build += field(9, assignment_of(replicas, partitions, devices))
    return field(3, build)


def assignment_of(replicas: int, partitions: int, devices: Sequence[int]) -> bytes:
    rows = [devices[partition::partitions] for partition in range(partitions)]
    return field(1, replicas) + field(2, partitions) + b"".join(field(3, field(1, packed(row))) for row in rows)


def field(number: int, value: int | bytes) -> bytes:
    return encode([Field(number, BYTES if isinstance(value, bytes) else VARINT, value)])


def compiled_for(table: Any, described: Any, text: str) -> Any:
    return compile_by(table, text, "Compile", topology=described)


def compile_by(table: Any, text: str, name: str, **values: Any) -> Any:
    code = ctypes.create_string_buffer(text.encode(), len(text))
    form = ctypes.create_string_buffer(b"mlir", 4)
    args = abi.PJRT_Program()
    args.struct_size = ctypes.sizeof(args)
    args.code, args.code_size = ctypes.addressof(code), len(text)
    args.format, args.format_size = ctypes.addressof(form), 4
    return table.call(name, program=ctypes.addressof(args), **values)


def execute(table: Any, executable: Any, *buffers: Any) -> Any:
    done = execute_all(table, executable, [buffers])
    return done if isinstance(done, tuple) else done[0][0]


def execute_all(table: Any, executable: Any, rows: Sequence[Sequence[Any]], outputs: int = 1, launch: int = 0) -> Any:
    """Run a program on the arguments of each device; an error, or the results of each."""
    options = abi.PJRT_ExecuteOptions()
    options.struct_size, options.launch_id = ctypes.sizeof(options), launch
    pointers = ctypes.c_void_p * len(rows)
    given = [(ctypes.c_void_p * len(row))(*row) for row in rows]
    made = [(ctypes.c_void_p * outputs)() for _ in rows]
    lists, results, events = pointers(*map(ctypes.addressof, given)), pointers(*map(ctypes.addressof, made)), pointers()
    done = table.call(
        "LoadedExecutable_Execute",
        executable=executable,
        options=ctypes.addressof(options),
        argument_lists=ctypes.addressof(lists),
        num_devices=len(rows),
        num_args=len(rows[0]),
        output_lists=ctypes.addressof(results),
        device_complete_events=ctypes.addressof(events),
    )
    if isinstance(done, tuple):
        return done
    for event in events:
        table.call("Event_Destroy", event=event)
    return [list(row) for row in made]


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
    assert len(table.devices) == 2
    given = put(table, X)
    made = program(table, DOUBLE)
    result = execute(table, made.executable, given.buffer)
    np.testing.assert_array_equal(get(table, result, (2, 3)), 2 * X)
    for buffer in (given.buffer, result):
        table.call("Buffer_Destroy", buffer=buffer)
    table.call("Event_Destroy", event=given.done_with_host_buffer)
    table.call("LoadedExecutable_Destroy", executable=made.executable)


DONATED = DOUBLE.replace("tensor<2x3xf32>) ->", "tensor<2x3xf32> {tf.aliasing_output = 0 : i32}) ->")


def test_a_donated_argument_is_gone_and_its_memory_the_result(table: Any) -> None:
    given, made = put(table, X), program(table, DONATED)
    place = table.call("Buffer_UnsafePointer", buffer=given.buffer).buffer_pointer
    result = execute(table, made.executable, given.buffer)
    assert table.call("Buffer_IsDeleted", buffer=given.buffer).is_deleted
    assert table.call("Buffer_UnsafePointer", buffer=result).buffer_pointer == place
    np.testing.assert_array_equal(get(table, result, (2, 3)), 2 * X)
    given = put(table, X)
    table.call("Buffer_IncreaseExternalReferenceCount", buffer=given.buffer)  # somebody reads it still
    result = execute(table, made.executable, given.buffer)
    np.testing.assert_array_equal(get(table, result, (2, 3)), 2 * X)
    np.testing.assert_array_equal(get(table, given.buffer, (2, 3)), X)


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
    narrow = put(table, X[:, :2])
    assert execute(table, made.executable, narrow.buffer) == (
        INVALID_ARGUMENT,
        "main: argument 0: f32[2,2] given, f32[2,3] needed",
    )
    assert table.call("Client_LookupDevice", client=table.client, id=2)[0] == INVALID_ARGUMENT
    assert table.call("Client_LookupDevice", client=table.client, id=-1)[0] == INVALID_ARGUMENT
    assert table.call("Buffer_DecreaseExternalReferenceCount", buffer=given.buffer)[0] == INVALID_ARGUMENT
    assert program(table, "no program")[0] == INVALID_ARGUMENT
    small = np.zeros(2, np.float32)
    done = table.call("Buffer_ToHostBuffer", src=given.buffer, dst=small.ctypes.data, dst_size=small.nbytes)
    assert done == (INVALID_ARGUMENT, "less memory than the array has bytes")


class Transfer:
    """Arrays of the shape of X that are filled in parts."""

    def __init__(self, table: Any, count: int, *, dims: tuple[int, ...] = X.shape) -> None:
        self._table = table
        extents = (ctypes.c_int64 * len(dims))(*dims)
        specs = (abi.PJRT_ShapeSpec * count)()
        for spec in specs:
            spec.struct_size = ctypes.sizeof(spec)
            spec.dims, spec.num_dims, spec.element_type = ctypes.addressof(extents), len(dims), F32
        made = self.call(
            "Client_CreateBuffersForAsyncHostToDevice",
            client=table.client,
            shape_specs=ctypes.addressof(specs),
            num_shape_specs=count,
        )
        self.failure = made if isinstance(made, tuple) else None
        self.manager = None if self.failure else made.transfer_manager

    def call(self, name: str, **values: Any) -> Any:
        return self._table.call(name, **values)

    def on_manager(self, name: str, **values: Any) -> Any:
        return self.call(f"AsyncHostToDeviceTransferManager_{name}", transfer_manager=self.manager, **values)

    def send(self, part: np.ndarray[Any, Any], offset: int, *, is_last: bool, index: int = 0) -> Any:
        done = self.on_manager(
            "TransferData",
            buffer_index=index,
            data=part.ctypes.data,
            offset=offset,
            transfer_size=part.nbytes,
            is_last_transfer=is_last,
        )
        if not isinstance(done, tuple):
            self.call("Event_Destroy", event=done.done_with_h2d_transfer)
        return done


def test_arrays_that_are_filled_in_parts(table: Any) -> None:
    transfer, made = Transfer(table, 2), program(table, DOUBLE)
    assert transfer.on_manager("BufferCount").buffer_count == 2
    assert transfer.on_manager("BufferSize", buffer_index=1).buffer_size == X.nbytes
    assert transfer.on_manager("Device").device_out == table.device
    first = transfer.on_manager("RetrieveBuffer", buffer_index=0).buffer_out
    ready = table.call("Buffer_ReadyEvent", buffer=first).event
    half = X.nbytes // 2
    transfer.send(X[1], half, is_last=False)
    assert not table.call("Event_IsReady", event=ready).is_ready
    transfer.send(X[0], 0, is_last=True)
    assert table.call("Event_IsReady", event=ready).is_ready
    np.testing.assert_array_equal(get(table, first, X.shape), X)
    np.testing.assert_array_equal(get(table, execute(table, made.executable, first), X.shape), 2 * X)
    assert transfer.send(X, 0, is_last=True)[0] == FAILED_PRECONDITION
    assert transfer.on_manager("RetrieveBuffer", buffer_index=0)[0] == FAILED_PRECONDITION
    assert transfer.send(X, 4, is_last=False, index=1) == (INVALID_ARGUMENT, "bytes 4 to 28 of an array that has 24")
    assert transfer.send(X, -1, is_last=False, index=1)[0] == INVALID_ARGUMENT
    assert transfer.send(X, 0, is_last=False, index=2)[0] == INVALID_ARGUMENT
    second = transfer.on_manager("RetrieveBuffer", buffer_index=1).buffer_out
    transfer.on_manager("Destroy")
    code, said = get(table, second, X.shape)
    assert (code, said) == (1, "the transfer of the array ended before its last part")
    for buffer in (first, second):
        table.call("Buffer_Destroy", buffer=buffer)
    table.call("Event_Destroy", event=ready)


def test_a_transfer_that_fails_or_is_too_large(table: Any) -> None:
    transfer = Transfer(table, 1)
    buffer = transfer.on_manager("RetrieveBuffer", buffer_index=0).buffer_out
    said = ctypes.create_string_buffer(b"the disk is gone")
    transfer.on_manager(
        "SetBufferError", buffer_index=0, error_code=13, error_message=ctypes.addressof(said), error_message_size=16
    )
    assert get(table, buffer, X.shape) == (13, "the disk is gone")
    result = execute(table, program(table, DOUBLE).executable, buffer)  # an error of its own, or of its result
    assert (result if isinstance(result, tuple) else get(table, result, X.shape)) == (13, "the disk is gone")
    transfer.on_manager("Destroy")
    assert Transfer(table, 1, dims=(1 << 40, 1 << 40)).failure[0] == INVALID_ARGUMENT


def test_parts_of_an_array(table: Any) -> None:
    given, part = put(table, X), np.zeros(2, np.float32)
    done = table.call("Buffer_CopyRawToHost", buffer=given.buffer, dst=part.ctypes.data, offset=8, transfer_size=8)
    table.call("Event_Destroy", event=done.event)
    np.testing.assert_array_equal(part, [2, 3])
    done = table.call("Buffer_CopyRawToHost", buffer=given.buffer, dst=part.ctypes.data, offset=20, transfer_size=8)
    assert done == (INVALID_ARGUMENT, "bytes 20 to 28 of an array that has 24")


def test_events_of_the_caller(table: Any) -> None:
    event = table.call("Event_Create").event
    assert not table.call("Event_IsReady", event=event).is_ready
    table.call("Event_Set", event=event, error_code=0)
    assert table.call("Event_IsReady", event=event).is_ready
    assert table.call("Event_Set", event=event, error_code=0)[0] == INVALID_ARGUMENT
    table.call("Event_Destroy", event=event)


def topology(table: Any, name: bytes) -> Any:
    text = ctypes.create_string_buffer(name, len(name))
    made = table.call("TopologyDescription_Create", topology_name=ctypes.addressof(text), topology_name_size=len(name))
    return made if isinstance(made, tuple) else made.topology


def test_programs_are_compiled_for_a_topology_and_loaded_later(table: Any) -> None:
    described = topology(table, b"cpu:3")
    assert table.call("TopologyDescription_GetDeviceDescriptions", topology=described).num_descriptions == 3
    saved = table.call("TopologyDescription_Serialize", topology=described)
    assert ctypes.string_at(saved.serialized_bytes, saved.serialized_bytes_size) == b"cpu:3"
    for name in (b"cpu:0", b"cpu:1025", b"cpu:1x", b"v5e:2x2"):
        assert topology(table, name)[0] == UNIMPLEMENTED
    made = compiled_for(table, described, DOUBLE).executable
    loaded = table.call("Client_Load", client=table.client, executable=made).loaded_executable
    table.call("Executable_Destroy", executable=made)
    table.call("TopologyDescription_Destroy", topology=described)
    np.testing.assert_array_equal(get(table, execute(table, loaded, put(table, X).buffer), X.shape), 2 * X)


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
    for name in ("Client_DmaMap", "Client_CreateAliasBuffer", "Executable_ParameterMemoryKinds"):
        assert table.call(name) == (UNIMPLEMENTED, f"PJRT_{name} is not implemented by stablexla")


def test_every_slot_is_filled(table: Any) -> None:
    assert all(getattr(table.api, name) for name in abi.FUNCTIONS)
    assert (table.api.pjrt_api_version.major_version, table.api.pjrt_api_version.minor_version) == (0, 104)


# ---- several devices


@pytest.fixture
def four(table: Any) -> Iterator[Any]:
    made = client_of(table.table, num_devices=4)
    yield made
    table.call("Client_Destroy", client=made.client)


def put_rows(table: Any, rows: np.ndarray[Any, Any]) -> list[list[Any]]:
    """An array on each device."""
    made = [put(table, row, device=device) for device, row in enumerate(rows)]
    for each in made:
        table.call("Event_Destroy", event=each.done_with_host_buffer)
    return [[each.buffer] for each in made]


def device_of(table: Any, buffer: Any) -> int:
    return table.devices.index(table.call("Buffer_Device", buffer=buffer).device)


def collectives() -> str:
    """All of them, of an array of each device, and the numbers of the device."""
    b = sx.XlaBuilder("collectives")
    x = b.parameter(0, sx.f32[4, 8], "x")
    numbers = [sx.convert_element_type(each, "f32") for each in (b.replica_id(), b.partition_id())]
    results = [
        sx.all_reduce(x, sx.add),
        sx.all_gather(x, 1, 4),
        sx.reduce_scatter(x, sx.add, 0, 4),
        sx.all_to_all(x, 1, 0, 4),
        sx.collective_permute(x, ((0, 1), (1, 2), (2, 0))),
        sx.all_reduce(x, sx.max, ((0, 2), (3, 1))),
    ]
    return str(b.build(sx.tuple([*results, *numbers])))


ROWS = np.arange(4 * 4 * 8, dtype=np.float32).reshape(4, 4, 8)


def collected(d: int) -> list[Any]:
    """The expected results of the collectives on device d."""
    groups = {0: (0, 2), 1: (3, 1), 2: (0, 2), 3: (3, 1)}
    return [
        ROWS.sum(0),
        np.concatenate(ROWS, 1),
        ROWS.sum(0)[d : d + 1],
        np.concatenate([row[:, 2 * d : 2 * d + 2] for row in ROWS], 0),
        {0: ROWS[2], 1: ROWS[0], 2: ROWS[1], 3: 0 * ROWS[3]}[d],
        ROWS[list(groups[d])].max(0),
        np.float32(d),
        np.float32(0),
    ]


def saved_again(table: Any, executable: Any) -> Any:
    """Serialize a program and load it."""
    unloaded = table.call("LoadedExecutable_GetExecutable", loaded_executable=executable).executable
    saved = table.call("Executable_Serialize", executable=unloaded)
    bytes_of = {
        "serialized_executable": saved.serialized_bytes,
        "serialized_executable_size": saved.serialized_bytes_size,
    }
    made = table.call("Executable_DeserializeAndLoad", client=table.client, **bytes_of)
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(saved.serialized_executable_deleter)
    free(saved.serialized_executable)
    table.call("Executable_Destroy", executable=unloaded)
    return made.loaded_executable


def test_collectives_of_replicas(four: Any) -> None:
    compiled = program(four, collectives(), options_for(4, 1)).executable
    for executable in (compiled, saved_again(four, compiled)):
        for launch in (0, 7):
            made = execute_all(four, executable, put_rows(four, ROWS), 8, launch)
            for d, results in enumerate(made):
                for result, wanted in zip(results, collected(d), strict=True):
                    np.testing.assert_array_equal(get(four, result, np.shape(wanted)), wanted)
                    assert device_of(four, result) == d


GSPMD = """module attributes {mhlo.num_partitions = 4 : i32} {
  func.func public @main(%x: tensor<8x6xf32> {mhlo.sharding = "{devices=[2,2]<=[4]}"})
    -> (tensor<6xf32> {mhlo.sharding = "{devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"}) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<8x6xf32>, tensor<f32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
} }"""
SHARDY = """module attributes {mhlo.num_partitions = 4 : i32} { sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func public @main(%x: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {"b"}]>})
      -> (tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"b"}]>}) {
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
      : (tensor<8x6xf32>, tensor<f32>) -> tensor<6xf32>
    return %0 : tensor<6xf32>
  } }"""


@pytest.mark.parametrize("text", [GSPMD, SHARDY], ids=["GSPMD", "Shardy"])
def test_partitioned_programs_on_devices_in_any_order(four: Any, text: str) -> None:
    order = [3, 1, 0, 2]
    whole = np.arange(48, dtype=np.float32).reshape(8, 6)
    parts = [np.ascontiguousarray(part) for half in np.split(whole, 2) for part in np.split(half, 2, 1)]
    compiled = program(four, text, options_for(1, 4, order)).executable
    rows = [[put(four, part, device=device).buffer] for device, part in zip(order, parts, strict=True)]
    for executable in (compiled, saved_again(four, compiled)):
        for partition, (result,) in enumerate(execute_all(four, executable, rows)):
            np.testing.assert_array_equal(get(four, result, (3,)), np.split(whole.sum(0), 2)[partition % 2])
            assert device_of(four, result) == order[partition]
        assigned = four.call("LoadedExecutable_GetDeviceAssignment", executable=executable)
        assert ctypes.string_at(assigned.serialized_bytes, assigned.serialized_bytes_size) == assignment_of(1, 4, order)
        found = four.call("LoadedExecutable_AddressableDevices", executable=executable)
        devices = ctypes.cast(found.addressable_devices, ctypes.POINTER(ctypes.c_void_p))[:4]
        assert devices == [four.devices[device] for device in order]
        numbers = four.call("LoadedExecutable_AddressableDeviceLogicalIds", executable=executable)
        ids = ctypes.cast(numbers.addressable_device_logical_ids, ctypes.POINTER(ctypes.c_int))[:8]
        assert (numbers.num_addressable_device_logical_ids, ids) == (4, [0, 0, 0, 1, 0, 2, 0, 3])
        unloaded = four.call("LoadedExecutable_GetExecutable", loaded_executable=executable).executable
        assert four.call("Executable_NumPartitions", executable=unloaded).num_partitions == 4
        assert b"all_reduce" in program_text(four, unloaded)
        four.call("Executable_Destroy", executable=unloaded)


def program_text(table: Any, executable: Any) -> bytes:
    args = abi.PJRT_Program()
    args.struct_size = ctypes.sizeof(args)
    table.call("Executable_OptimizedProgram", executable=executable, program=ctypes.addressof(args))
    code = ctypes.create_string_buffer(args.code_size)
    args.code = ctypes.addressof(code)
    table.call("Executable_OptimizedProgram", executable=executable, program=ctypes.addressof(args))
    return code.raw


def test_replicas_of_partitions(four: Any) -> None:
    """Their numbers, and the order of an assignment's rows: one for each partition."""
    b = sx.XlaBuilder("numbers")
    made = b.build(sx.tuple([sx.convert_element_type(each, "f32") for each in (b.replica_id(), b.partition_id())]))
    order = [2, 0, 3, 1]
    executable = program(four, str(made), options_for(2, 2, order)).executable
    results = execute_all(four, executable, [[]] * 4, 2)
    numbers = [tuple(float(get(four, each, ())) for each in row) for row in results]
    assert numbers == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [device_of(four, row[0]) for row in results] == order


def test_default_assignments(four: Any) -> None:
    for replicas, partitions, size in ((2, 2, 4), (1, 3, 8)):
        found = (ctypes.c_int * size)()
        place = ctypes.addressof(found)
        values = {"num_replicas": replicas, "num_partitions": partitions, "default_assignment_size": size}
        four.call("Client_DefaultDeviceAssignment", client=four.client, default_assignment=place, **values)
        assert list(found)[: replicas * partitions] == list(range(replicas * partitions))
    values = {"num_replicas": 5, "num_partitions": 1, "default_assignment_size": size}
    failure = four.call("Client_DefaultDeviceAssignment", client=four.client, default_assignment=place, **values)
    assert failure == (INVALID_ARGUMENT, "5 devices are asked for, where there are 4")


def test_numbers_of_devices_that_are_none(table: Any) -> None:
    for name in ("num_devices", "cpu_device_count"):
        for count in (0, -1, 1025):
            said = f"the option {name} is a number of devices, from 1 to 1024"
            assert client_of(table.table, **{name: count}) == (INVALID_ARGUMENT, said)
        made = client_of(table.table, **{name: 3, "of_others": 9})
        assert len(made.devices) == 3
        table.call("Client_Destroy", client=made.client)
    for options in (options_for(2, 1, [0, 2]), options_for(3, 1)):
        code, said = program(table, DOUBLE, options)
        assert code in (INVALID_ARGUMENT, UNIMPLEMENTED)
        assert "where there are 2" in said


REDUCED = """func.func public @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "stablehlo.all_reduce"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}"""
PRIVATE = REDUCED.replace("public @main", "private @reduced")
DONATED_AND_REDUCED = (
    """func.func public @main(%x: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<2x3xf32>)
    -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %0 = stablehlo.add %x, %x : tensor<2x3xf32>
  %1 = func.call @reduced(%y) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0, %1 : tensor<2x3xf32>, tensor<2x3xf32>
}
"""
    + PRIVATE
)


def test_donation_on_all_devices(table: Any) -> None:
    executable = program(table, DONATED_AND_REDUCED, options_for(2, 1)).executable
    given = put_rows(table, np.stack([X, 10 * X]))
    places = [table.call("Buffer_UnsafePointer", buffer=row[0]).buffer_pointer for row in given]
    for device, row in enumerate(given):
        row.append(put(table, X, device=device).buffer)
    made = execute_all(table, executable, given, 2)
    for row, (doubled, reduced), place, factor in zip(given, made, places, (2, 20), strict=True):
        assert [bool(table.call("Buffer_IsDeleted", buffer=each).is_deleted) for each in row] == [True, False]
        assert table.call("Buffer_UnsafePointer", buffer=doubled).buffer_pointer == place
        np.testing.assert_array_equal(get(table, doubled, (2, 3)), factor * X)
        np.testing.assert_array_equal(get(table, reduced, (2, 3)), 2 * X)


def test_copies_between_devices(four: Any) -> None:
    given = put(four, X, device=1).buffer
    copied = four.call("Buffer_CopyToDevice", buffer=given, dst_device=four.devices[3]).dst_buffer
    four.call("Buffer_Destroy", buffer=given)
    assert device_of(four, copied) == 3
    np.testing.assert_array_equal(get(four, copied, (2, 3)), X)


BRANCHES = (
    """func.func public @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %id = stablehlo.replica_id : tensor<ui32>
  %i = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
  %r = "stablehlo.case"(%i) ({
    %y = func.call @reduced(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    stablehlo.return %y : tensor<2x3xf32>
  }, {
    stablehlo.return %x : tensor<2x3xf32>
  }) : (tensor<i32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}
"""
    + PRIVATE
)


def test_a_device_that_never_comes(table: Any) -> None:
    """The others are told at once, and the next run is a new one."""
    failing = program(table, BRANCHES, options_for(2, 1)).executable
    working = program(table, REDUCED, options_for(2, 1)).executable
    for _ in range(3):
        rows = put_rows(table, np.stack([X, X]))
        code, said = execute_all(table, failing, rows)
        assert code == 13
        assert said.startswith("all_reduce: main: devices wait for others which do not come any more\n")
        assert said.endswith("\n  group     devices 0, 1\n  arrived   device 0\n  device 1  has finished")
        for (result,) in execute_all(table, working, rows):
            np.testing.assert_array_equal(get(table, result, (2, 3)), 2 * X)


def test_large_programs_run_later_and_several_at_once(table: Any) -> None:
    """Those that take long go into the queue; threads of the caller may run one program at the same time."""
    b = sx.XlaBuilder("steps")
    x = b.parameter(0, sx.f32[512, 512], "x")
    executable = program(table, str(b.build(sx.all_reduce(x, sx.add) * 0.5)), options_for(2, 1)).executable
    array = np.arange(512 * 512, dtype=np.float32).reshape(512, 512)

    def steps(factor: int) -> None:
        rows = put_rows(table, np.stack([array * factor, array * 3 * factor]))
        for _ in range(5):
            rows = execute_all(table, executable, rows)
        for (result,) in rows:
            np.testing.assert_array_equal(get(table, result, array.shape), array * 2 * factor)

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(steps, factor) for factor in (1, 2, 4)]:
            done.result()


class Profiler:
    """The table of the profiler extension, of which there is one in a table."""

    def __init__(self, table: Any, options: bytes = b"") -> None:
        at = table.api.extension_start
        while (extension := abi.PJRT_Profiler_Extension.from_address(at)).base.type != abi.PJRT_Extension_Type_Profiler:
            at = extension.base.next
        self.api = abi.PLUGIN_Profiler_Api.from_address(ctypes.cast(extension.profiler_api, ctypes.c_void_p).value)
        given = ctypes.create_string_buffer(options, len(options))
        self.made = self.call("create", "Create", options=ctypes.addressof(given), options_size=len(options)).profiler

    def call(self, name: str, of: str, **values: Any) -> Any:
        args = getattr(abi, f"PLUGIN_Profiler_{of}_Args")()
        for key, value in values.items():
            setattr(args, key, value)
        function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(getattr(self.api, name))
        assert not function(ctypes.addressof(args)), "an error"
        return args

    def collect(self) -> bytes:
        """Ask for the size, then for the bytes; those that came with the size are the same."""
        size = self.call("collect_data", "CollectData", profiler=self.made)
        if not size.buffer_size_in_bytes:
            return b""
        lent = ctypes.string_at(size.buffer, size.buffer_size_in_bytes)
        space = ctypes.create_string_buffer(size.buffer_size_in_bytes)
        self.call("collect_data", "CollectData", profiler=self.made, buffer=ctypes.addressof(space))
        assert space.raw == lent
        return lent


@pytest.mark.parametrize(
    ("options", "is_on"),
    [(b"", True), (b"\x08\x80\x01\x10\x02\x18\x01", True), (b"\x08\x80\x01\x10\x02", False), (b"\x18\x01", False)],
)
def test_a_profiler(table: Any, options: bytes, is_on: bool) -> None:
    """Spans of a program's runs and of its kernel; none where a level of ProfileOptions, host's or device's, is 0."""
    profile_data = pytest.importorskip("jax.profiler").ProfileData
    given, made, profiler = put(table, X), program(table, DOUBLE), Profiler(table, options)
    for calls in (2, 1, 0):
        profiler.call("start", "Start", profiler=profiler.made)
        results = [execute(table, made.executable, given.buffer) for _ in range(calls)]
        profiler.call("stop", "Stop", profiler=profiler.made)
        results.append(execute(table, made.executable, given.buffer))
        space = profile_data.from_serialized_xspace(profiler.collect())
        found = [
            (event.name, dict(event.stats)) for plane in space.planes for line in plane.lines for event in line.events
        ]
        runs = [stats for name, stats in found if name == "main"]
        assert len(runs) == is_on * calls
        if table.is_library:
            why = "programs that run without Python have no marks"
            assert all(stats.get("without kernels") == why for stats in runs)
        else:
            assert [name for name, stats in found if "hlo_op" in stats] == ["loop_0"] * len(runs)
        for buffer in results:
            table.call("Buffer_Destroy", buffer=buffer)
    profiler.call("destroy", "Destroy", profiler=profiler.made)
    table.call("Buffer_Destroy", buffer=given.buffer)
    table.call("Event_Destroy", event=given.done_with_host_buffer)
    table.call("LoadedExecutable_Destroy", executable=made.executable)
