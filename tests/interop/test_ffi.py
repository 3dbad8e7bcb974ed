"""Handlers of XLA's foreign function interface, compiled from C++ with jaxlib's header, and jaxlib's own.

What the handlers compute is known here; jaxlib's handlers of LAPACK are compared with our calls of LAPACK.
"""

from __future__ import annotations

import ctypes
import gc
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest

import stablexla as sx
from stablexla.interop.jax import use_ffi_targets
from tests.comparison import assert_same
from tests.interop.jax_programs import compiled, random_array
from tests.pjrt_library import address_in_library

pytestmark = pytest.mark.usefixtures("wide_numbers")

HERE, INCLUDE = Path(__file__).parent, Path(jaxlib.__file__).parent / "include"
TYPED_FFI = "API_VERSION_TYPED_FFI"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def compile_cpp(arguments: list[str | Path]) -> None:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    subprocess.run([compiler, "-std=c++17", "-w", f"-I{INCLUDE}", *map(str, arguments)], check=True)


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("ffi") / "handlers.so"
    compile_cpp(["-shared", "-fPIC", "-pthread", "-o", library, HERE / "ffi_handlers.cpp"])
    return ctypes.CDLL(str(library))


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets of a test are gone after it."""
    monkeypatch.setattr("stablexla.compiling.custom_calls.TARGETS", targets := {})
    monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)


def program(target: str, shape: Any, *, attributes: dict[str, object] | None = None, **options: Any) -> sx.Executable:
    """A program that calls a target with one array like X."""
    b = sx.XlaBuilder("ffi")
    x = b.parameter(0, sx.f32[2, 3])
    return sx.compile(b.build(sx.custom_call(target, x, shape, attributes or {}, api_version=TYPED_FFI, **options)))


SCALED = sx.Shape.tuple((sx.f32[2, 3], sx.s64[4]))
ATTRIBUTES = '{scale = 2.0 : f32, offsets = array<i64: 1, 2>, mode = "plain", loud = true}'


def text_of_scaled(target: str = "scaled", attributes: str = ATTRIBUTES) -> str:
    return f"""
      func.func @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<4xi64>) {{
        %r:2 = stablehlo.custom_call @{target}(%x) {{api_version = 4 : i32, backend_config = {attributes}}}
          : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<4xi64>)
        return %r#0, %r#1 : tensor<2x3xf32>, tensor<4xi64>
      }}"""


def scaled(attributes: str = ATTRIBUTES) -> sx.Executable:
    return sx.compile(text_of_scaled(attributes=attributes))


@pytest.mark.parametrize("form", ["pointer", "integer", "capsule", "stages"])
def test_attributes_and_the_forms_of_a_handler(handlers: ctypes.CDLL, form: str) -> None:
    address = ctypes.cast(handlers.scaled, ctypes.c_void_p).value
    given = {
        "pointer": handlers.scaled,
        "integer": address,
        "capsule": jax.ffi.pycapsule(handlers.scaled),
        "stages": {"execute": jax.ffi.pycapsule(handlers.scaled)},
    }[form]
    options = {} if form == "stages" else {"api_version": TYPED_FFI}
    sx.register_custom_call("scaled", given, **options)
    y, told = scaled().execute([X])
    assert_same(y, 2 * X + 3)
    assert told.tolist() == [2, 2, 5, 1]


def test_what_a_handler_says_is_the_error(handlers: ctypes.CDLL) -> None:
    sx.register_custom_call("scaled", handlers.scaled, api_version=TYPED_FFI)
    run = scaled(ATTRIBUTES.replace("plain", "fail"))
    for _ in range(2):
        with pytest.raises(sx.ExecutionError, match="custom call 'scaled' failed: mode is fail"):
            run(X)
    wrong = scaled(ATTRIBUTES.replace("2.0 : f32", "2 : i32"))
    with pytest.raises(sx.ExecutionError, match=r"Wrong scalar data type"):
        wrong(X)


def test_memory_and_threads_of_the_caller(handlers: ctypes.CDLL) -> None:
    sx.register_custom_call("borrowing", handlers.borrowing, api_version=TYPED_FFI)
    run = program("borrowing", sx.f32[2, 3])
    with ThreadPoolExecutor(4) as pool:
        for i, y in enumerate(pool.map(lambda i: run(X + np.float32(i)), range(40))):
            assert_same(y, X + np.float32(i))


def test_results_that_begin_as_operands(handlers: ctypes.CDLL) -> None:
    sx.register_custom_call("increase", handlers.increase, api_version=TYPED_FFI)
    assert_same(program("increase", sx.f32[2, 3], output_operand_aliasing=((0, 0),))(X), X + 1)


def test_handlers_that_finish_later(handlers: ctypes.CDLL) -> None:
    sx.register_custom_call("later", handlers.later, api_version=TYPED_FFI)
    assert_same(program("later", sx.f32[2, 3], attributes={"fails": False})(X), -X)
    with pytest.raises(sx.ExecutionError, match="custom call 'later' failed: too late"):
        program("later", sx.f32[2, 3], attributes={"fails": True})(X)


def test_state_of_a_place_in_a_program(handlers: ctypes.CDLL) -> None:
    """Made when the program is compiled, kept from call to call, and destroyed with the program."""
    handlers.counter_id.restype = handlers.counter_info.restype = ctypes.c_void_p
    stages = {"instantiate": handlers.make_counter, "execute": handlers.count_up}
    types = {"type_id": handlers.counter_id(), "type_info": handlers.counter_info()}
    sx.register_custom_call("count", {**stages, **types})

    def counter(first: int) -> sx.Executable:
        return sx.compile(f"""
          func.func @main() -> tensor<i64> {{
            %r = stablehlo.custom_call @count() {{
              api_version = 4 : i32, backend_config = {{first = {first} : i64}}, has_side_effect = true
            }} : () -> tensor<i64>
            return %r : tensor<i64>
          }}""")

    run, other = counter(5), counter(50)
    assert [int(run()) for _ in range(3)] == [5, 6, 7]
    assert [int(other()), int(run())] == [50, 8]
    assert handlers.counters_alive() == 2
    with pytest.raises(sx.CompileError, match="refuses to be instantiated: counting begins at 0"):
        counter(-1)
    del run, other
    gc.collect()
    assert handlers.counters_alive() == 0


def test_layouts(handlers: ctypes.CDLL) -> None:
    """The handler finds elements in the order that the call asks for, and the extents as the program has them."""
    sx.register_custom_call("raw", handlers.raw, api_version=TYPED_FFI)
    run = sx.compile("""
      func.func @main(%x: tensor<2x3xf32>) -> tensor<6xf32> {
        %r = stablehlo.custom_call @raw(%x) {api_version = 4 : i32, backend_config = {},
          operand_layouts = [dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<0> : tensor<1xindex>]}
          : (tensor<2x3xf32>) -> tensor<6xf32>
        return %r : tensor<6xf32>
      }""")
    assert_same(run(X), X.T.reshape(-1))


def test_handlers_and_calls_of_different_kinds(handlers: ctypes.CDLL) -> None:
    sx.register_custom_call("scaled", handlers.scaled)
    with pytest.raises(sx.UnsupportedError, match="asks for API_VERSION_TYPED_FFI") as raised:
        scaled()
    assert raised.value.hint == "sx.register_custom_call('scaled', function, api_version='API_VERSION_TYPED_FFI')"
    sx.register_custom_call("raw", handlers.raw, api_version=TYPED_FFI)
    b = sx.XlaBuilder("ffi")
    with pytest.raises(sx.UnsupportedError, match="asks for API_VERSION_ORIGINAL"):
        sx.compile(b.build(sx.custom_call("raw", b.parameter(0, sx.f32[2, 3]), sx.f32[2, 3])))
    with pytest.raises(TypeError, match="handlers are those of the stages"):
        sx.register_custom_call("raw", {"run": handlers.raw})
    with pytest.raises(ValueError, match="API_VERSION_ORIGINAL or API_VERSION_TYPED_FFI"):
        sx.register_custom_call("raw", handlers.raw, api_version="API_VERSION_STATUS_RETURNING")


def test_the_library_of_a_jax_user(handlers: ctypes.CDLL) -> None:
    """`jax.ffi.ffi_call` of a handler that is registered with JAX alone: the same program on both."""
    jax.ffi.register_ffi_target("stablexla_scaled", jax.ffi.pycapsule(handlers.scaled), platform="cpu")
    assert "stablexla_scaled" in use_ffi_targets()
    with pytest.raises(sx.StablexlaError, match="JAX knows no FFI target 'stablexla_scale'"):
        use_ffi_targets("stablexla_scale")

    def function(x: Any) -> Any:
        types = (jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((4,), np.int64))
        call = jax.ffi.ffi_call("stablexla_scaled", types, vmap_method="sequential")
        return call(x + 1, scale=np.float32(3), offsets=np.arange(3), mode="jax", loud=False)

    for x, y in zip(compiled(function, X).execute([X]), jax.jit(function)(X), strict=True):
        assert_same(x, np.asarray(y))


def test_jaxlibs_handlers_agree_with_our_calls() -> None:
    from jaxlib.cpu import _lapack

    given = random_array(np.float32, 3, 5, 5)
    functions = [
        jnp.linalg.eig,
        jnp.linalg.eigh,
        jnp.linalg.svd,
        jnp.linalg.qr,
        jax.lax.linalg.lu,
        jax.lax.linalg.schur,
    ]

    def all_of(a: Any) -> Any:
        return [f(a) for f in functions]

    ours = compiled(all_of, given).execute([given])
    use_ffi_targets(*(name for name in _lapack.registrations() if name.startswith("lapack_s")))
    for x, y in zip(ours, compiled(all_of, given).execute([given]), strict=True):
        assert_same(x, y)


PAIRS = {
    "Buffer": ("XLA_FFI_Buffer", "dtype data rank dims", "dtype data rank dims"),
    "Buffers": ("XLA_FFI_Args", "size types args", "size types values"),
    "Attributes": ("XLA_FFI_Attrs", "size types names attrs", "size types names values"),
    "CallFrame": (
        "XLA_FFI_CallFrame",
        "api ctx stage args rets attrs future",
        "api context stage arguments results attributes future",
    ),
    "ErrorCreate": ("XLA_FFI_Error_Create_Args", "message errc", "message code"),
    "TypeInfo": ("XLA_FFI_TypeInfo", "deleter", "deleter"),
    "TypeRegister": ("XLA_FFI_Type_Register_Args", "name type_id type_info", "name type_id type_info"),
    "StateAccess": ("XLA_FFI_State_Get_Args", "ctx stage type_id state", "context stage type_id state"),
    "MemoryAllocate": ("XLA_FFI_DeviceMemory_Allocate_Args", "size alignment data", "size alignment data"),
    "MemoryFree": ("XLA_FFI_DeviceMemory_Free_Args", "size data", "size data"),
    "ThreadPoolSchedule": ("XLA_FFI_ThreadPool_Schedule_Args", "task data", "task data"),
    "ThreadPoolNumThreads": ("XLA_FFI_ThreadPool_NumThreads_Args", "num_threads", "num_threads"),
    "FutureCreate": ("XLA_FFI_Future_Create_Args", "future", "future"),
    "FutureSetError": ("XLA_FFI_Future_SetError_Args", "future error", "future error"),
    "RunIdGet": ("XLA_FFI_RunId_Get_Args", "run_id", "run_id"),
    "DeviceOrdinalGet": ("XLA_FFI_DeviceOrdinal_Get_Args", "device_ordinal", "device_ordinal"),
    "Api": (
        "XLA_FFI_Api",
        "api_version XLA_FFI_Error_Create XLA_FFI_Stream_Get XLA_FFI_State_Get XLA_FFI_DeviceMemory_Free "
        "XLA_FFI_ThreadPool_NumThreads XLA_FFI_Future_SetError XLA_FFI_RunId_Get XLA_FFI_DeviceOrdinal_Get",
        "version error_create stream_get state_get memory_free thread_pool_num_threads future_set_error run_id_get "
        "device_ordinal_get",
    ),
}


_ERROR, _CONTEXT = ("error message", "error message"), ("ctx type_id data", "context type_id data")
OF_MINOR: dict[int, dict[str, tuple[str, str, str]]] = {
    3: {
        "ErrorGetDetails": ("XLA_FFI_Error_GetMessage_Args", *_ERROR),
        "ContextGet": ("XLA_FFI_ExecutionContext_Get_Args", *_CONTEXT),
    },
    5: {
        "ErrorGetDetails": (
            "XLA_FFI_Error_GetDetails_Args",
            *(f"{names} {new}" for names, new in zip(_ERROR, ("errc", "code"))),
        ),
        "ContextGet": ("XLA_FFI_InvokeContext_Get_Args", *_CONTEXT),
        "FindExtension": (
            "XLA_FFI_InvokeContext_FindExtension_Args",
            "ctx extension_type extension",
            "context extension_type extension",
        ),
        "OptionsGet": ("XLA_FFI_CustomOptions_Get_Args", "ctx attrs", "context attributes"),
        "Api": (
            "XLA_FFI_Api",
            "XLA_FFI_Error_GetDetails XLA_FFI_InvokeContext_FindExtension XLA_FFI_CustomOptions_Get",
            "error_get_details find_extension custom_options_get",
        ),
    },
}
"""What minor versions of the interface differ in."""
APPENDED = ("ErrorGetDetails", "Api")
"""What is shorter in minor version 3."""


def test_the_layout_of_the_interface(tmp_path: Path) -> None:
    """The declarations in ffi_abi.h are those of jaxlib's header, or go on where an older one ends."""
    header = (INCLUDE / "xla/ffi/api/c_api.h").read_text()
    minor = int(re.findall(r"XLA_FFI_API_MINOR (\d+)", header)[0])
    checks = []
    for ours, (theirs, names, own_names) in [*PAIRS.items(), *OF_MINOR[minor].items()]:
        compared = ">" if ours in APPENDED and minor == min(OF_MINOR) else "=="
        checks.append(f"static_assert(sizeof(stablexla::ffi::{ours}) {compared} sizeof({theirs}));")
        for name, own in zip(names.split(), own_names.split(), strict=True):
            checks.append(f"static_assert(offsetof(stablexla::ffi::{ours}, {own}) == offsetof({theirs}, {name}));")
    source = tmp_path / "layout.cpp"
    abi = HERE.parent.parent / "targets/runtime/cpp/ffi/ffi_abi.h"
    source.write_text(f'#include "xla/ffi/api/c_api.h"\n#include "{abi}"\n' + "\n".join(checks))
    compile_cpp(["-fsyntax-only", source])


def test_saved_and_compiled_in_another_process(handlers: ctypes.CDLL, tmp_path: Path) -> None:
    """A handler is bound where the program is loaded; the process that compiles never calls it."""
    sx.register_custom_call("scaled", handlers.scaled, api_version=TYPED_FFI)
    text = scaled().ir("source")
    scaled().save(tmp_path / "scaled.sxe")
    wanted = scaled().execute([X])
    apart = sx.compile(text, options=sx.CompileOptions(isolated=True))
    for made in (sx.load_executable(tmp_path / "scaled.sxe"), apart):
        for actual, want in zip(made.execute([X]), wanted, strict=True):
            assert_same(actual, want)
    sx.register_custom_call("scaled", lambda x: x)
    with pytest.raises(sx.LoadError, match="'scaled', for which a handler of XLA's foreign function interface must be"):
        sx.load_executable(tmp_path / "scaled.sxe")


# ---- handlers of programs in other languages, in libstablexla_pjrt.so


class Library:
    """The table, and its extension for handlers."""

    def __init__(self) -> None:
        self.pjrt = pytest.importorskip("tests.targets.runtime.test_pjrt_table")
        self.abi = self.pjrt.abi
        self.table = self.pjrt.client_of(self.pjrt.Table(address_in_library()))
        place = self.table.api.extension_start
        while (base := self.abi.PJRT_Extension_Base.from_address(place)).type != self.abi.PJRT_Extension_Type_FFI:
            place = base.next
        self.extension = self.abi.PJRT_FFI_Extension.from_address(place)

    def call(self, function: int, args: Any) -> Any:
        args.struct_size = ctypes.sizeof(args)
        error = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(function)(ctypes.addressof(args))
        return self.table.table._read(error) if error else None

    def register(self, name: str, handler: Any, platform: bytes = b"cpu") -> Any:
        args, texts = self.abi.PJRT_FFI_Register_Handler_Args(), [name.encode(), platform]
        buffers = [ctypes.create_string_buffer(text, len(text)) for text in texts]
        args.target_name, args.platform_name = map(ctypes.addressof, buffers)
        args.target_name_size, args.platform_name_size = map(len, texts)
        args.handler = ctypes.cast(handler, ctypes.c_void_p)
        return self.call(self.extension.register_handler, args)

    def run(self, executable: Any, devices: int = 1) -> Any:
        rows = [[self.pjrt.put(self.table, X, device=device).buffer] for device in range(devices)]
        made = self.pjrt.execute_all(self.table, executable, rows, 2)
        if isinstance(made, tuple):
            return made
        read = [(self.pjrt.get(self.table, y, X.shape), self.pjrt.get(self.table, told, (8,))) for y, told in made]
        return [(y, told.view(np.int64).tolist()) for y, told in read]


def test_handlers_that_are_registered_with_the_pjrt_library(handlers: ctypes.CDLL) -> None:
    """In programs that it compiles, on one device and several, in saved ones, and in those that fail."""
    library = Library()
    table, pjrt = library.table, library.pjrt
    assert library.register("scaled_here", handlers.scaled) is None
    for devices in (1, 2):
        made = pjrt.program(table, text_of_scaled("scaled_here"), pjrt.options_for(devices, 1)).executable
        for executable in (made, pjrt.saved_again(table, made)):
            for y, told in library.run(executable, devices):
                assert_same(y, 2 * X + 3)
                assert told == [2, 2, 5, 1]
        fails = text_of_scaled("scaled_here", ATTRIBUTES.replace("plain", "fail"))
        unloaded = table.call("LoadedExecutable_GetExecutable", loaded_executable=made).executable
        assert table.call("Executable_GetCostAnalysis", executable=unloaded).num_properties == 2
        code, said = library.run(pjrt.program(table, fails, pjrt.options_for(devices, 1)).executable, devices)
        assert code == 13
        assert re.fullmatch(r"main: custom call 'scaled_here' failed: mode is fail(\n  on device [01])?", said)
        assert ("on device" in said) == (devices > 1)


def test_handlers_that_the_pjrt_library_does_not_have(handlers: ctypes.CDLL, tmp_path: Path) -> None:
    library = Library()
    table, pjrt = library.table, library.pjrt
    code, said = pjrt.program(table, text_of_scaled("never_registered"))
    assert (code, "there is no target 'never_registered'" in said) == (13, True)
    said = "the handler elsewhere is for the platform CUDA, and this one is cpu"
    assert library.register("elsewhere", handlers.scaled, b"CUDA") == (12, said)
    assert library.register("", handlers.scaled)[0] == 3
    sx.register_custom_call("saved_by_python", handlers.scaled, api_version=TYPED_FFI)
    sx.compile(text_of_scaled("saved_by_python")).save(tmp_path / "scaled.sxe")
    data = (tmp_path / "scaled.sxe").read_bytes()
    given = ctypes.create_string_buffer(data, len(data))
    values = {"serialized_executable": ctypes.addressof(given), "serialized_executable_size": len(data)}
    code, said = table.call("Executable_DeserializeAndLoad", client=table.client, **values)
    assert (code, said) == (
        12,
        "a saved program cannot run here: it calls functions of Python's: saved_by_python, a handler that "
        "PJRT_FFI_Register_Handler has not registered",
    )
    library.register("saved_by_python", handlers.scaled)
    loaded = table.call("Executable_DeserializeAndLoad", client=table.client, **values).loaded_executable
    ((y, told),) = library.run(loaded)
    assert_same(y, 2 * X + 3)
    assert told == [2, 2, 5, 1]


def test_types_of_handlers_in_the_pjrt_library() -> None:
    library = Library()
    numbers = []
    for name in (b"one", b"two", b"one"):
        text, info = ctypes.create_string_buffer(name, len(name)), library.abi.PJRT_FFI_Type_Info()
        args = library.abi.PJRT_FFI_Type_Register_Args()
        args.type_name, args.type_name_size, args.type_info = ctypes.addressof(text), 3, ctypes.addressof(info)
        assert library.call(library.extension.type_register, args) is None
        numbers.append(args.type_id)
    assert numbers[0] == numbers[2] != numbers[1] > 0
    refused = library.call(library.extension.user_data_add, library.abi.PJRT_FFI_UserData_Add_Args())
    assert refused == (12, "handlers get no data of a run's context")
