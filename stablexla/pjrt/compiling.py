"""From a program and JAX's compile options to what the table says of an executable."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.compiling.compiler import compile as compile_program
from stablexla.dialects.custom_calls import OF_THIS_PROCESS
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.executable.executable import Executable
from stablexla.interop.encodings.protobuf import fields
from stablexla.interop.jax.callbacks import release_with
from stablexla.interop.load import load
from stablexla.lowering.support.operations import main_of, terminator_of
from stablexla.lowering.support.types import is_token
from stablexla.targets.signature.array_sharding import ArraySharding
from stablexla.targets.signature.signature import body_of
from stablexla.targets.stablehlo.inlining import operations_of
from stablexla.targets.stablehlo.meshes import call_target

# By PJRT_Buffer_Type, from 1 on.
# fmt: off
_TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64", "bfloat16", "complex64", "complex128", "float8_e5m2", "float8_e4m3fn", "float8_e4m3b11fnuz",
    "float8_e5m2fnuz", "float8_e4m3fnuz", "int4", "uint4", "token", "int2", "uint2", "float8_e4m3", "float8_e3m4",
    "float8_e8m0fnu", "float4_e2m1fn", "int1", "uint1", "float6_e2m3fn", "float6_e3m2fn",
)
# fmt: on
NUMBERS = {name: number for number, name in enumerate(_TYPES, 1)}
TOKEN = NUMBERS["token"]
# Fields of CompileOptionsProto, of ExecutableBuildOptionsProto, of DeviceAssignmentProto and its rows.
_BUILD, _REPLICAS, _PARTITIONS, _ASSIGNMENT, _ROWS, _IDS = 3, 4, 5, 9, 3, 1
# Attributes of parameters whose arrays are gone after a call.
_DONATED = ("tf.aliasing_output", "jax.buffer_donor")
_REPLICATED, _OTHER = 0, 3


@dataclass(frozen=True)
class Options:
    """What stablexla reads of `CompileOptionsProto`.

    Attributes:
        devices: their numbers by replica and partition, all partitions of the first replica first.
    """

    num_replicas: int
    num_partitions: int
    devices: tuple[int, ...]

    @staticmethod
    def parse(data: bytes) -> Options:
        """Read the message; fields that it lacks have jaxlib's defaults."""
        build = {f.number: f for f in fields(_only(data, _BUILD))}
        counts = [int(build[n].value or 1) if n in build else 1 for n in (_REPLICAS, _PARTITIONS)]
        rows = (
            [_numbers(f.data) for f in fields(build[_ASSIGNMENT].data) if f.number == _ROWS]
            if _ASSIGNMENT in build
            else []
        )
        devices = [row[replica] for replica in range(counts[0]) for row in rows] or list(range(counts[0] * counts[1]))
        return Options(counts[0], counts[1], tuple(devices))


def compiled(code: bytes, form: str, options: bytes, count: int) -> dict[str, Any]:
    """Compile a program for some of `count` devices, and describe it to the table.

    Raises:
        StablexlaError: it cannot be done.
    """
    if form != "mlir":
        raise UnsupportedError(f"a program in the format {form!r}", hint="MLIR, as jaxlib sends it")
    how = Options.parse(options)
    if any(device >= count for device in how.devices):
        raise UnsupportedError(f"devices {how.devices}, where there are {count}", hint="STABLEXLA_NUM_DEVICES=N")
    module = load(code, trusted=True)
    executable = compile_program(module, num_replicas=how.num_replicas, num_partitions=how.num_partitions)
    function = executable._function
    release_with(function, _of_this_process(module))
    arguments, returned = body_of(module).arguments, terminator_of(body_of(module)).operands
    takes = [number for number, value in enumerate(arguments) if not is_token(value.type)]
    donated, dtypes = _donated(module), (spec.dtype for spec in function.results)
    return {
        "function": function,
        "text": code,
        "fingerprint": hashlib.sha256(code + options).hexdigest(),
        "assignment": _assignment(how),
        "num_replicas": how.num_replicas,
        "num_partitions": how.num_partitions,
        "devices": list(how.devices),
        "num_arguments": len(arguments),
        "takes": takes,
        "donated": [number for number, place in enumerate(takes) if place in donated],
        "output_types": [TOKEN if is_token(value.type) else NUMBERS[str(next(dtypes))] for value in returned],
        "code_bytes": _code_bytes(executable),
        "parameter_shardings": _shardings(arguments, executable.input_shardings),
        "output_shardings": _shardings(returned, executable.output_shardings),
    }


def _of_this_process(module: ir.Module) -> list[str]:
    """Return the names of the program's Python callbacks."""
    calls = operations_of(module, "stablehlo.custom_call")
    return [name for name in map(call_target, calls) if name.startswith(OF_THIS_PROCESS)]


def _donated(module: ir.Module) -> list[int]:
    """Return the numbers of the donated arguments."""
    rows = main_of(module).attributes.get("arg_attrs", ())
    return [number for number, row in enumerate(rows) if any(name in row for name in _DONATED)]


def _code_bytes(executable: Executable) -> int:
    code = executable._function.keep_alive
    return sum(map(len, code.object_files())) if hasattr(code, "object_files") else 0


def _only(data: bytes, number: int) -> bytes:
    return next((f.data for f in fields(data) if f.number == number), b"")


def _numbers(row: bytes) -> list[int]:
    """Return the device numbers of a row of an assignment, packed or not."""
    found: list[int] = []
    for field in fields(row):
        if field.number == _IDS:
            found += _unpacked(field.data) if isinstance(field.value, bytes) else [field.value]
    return found


def _unpacked(data: bytes) -> list[int]:
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value)
            value = shift = 0
    return found


# ---- messages


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _bytes(field, b"".join(map(_varint, values)))


def _assignment(how: Options) -> bytes:
    """Write a DeviceAssignmentProto."""
    rows = [how.devices[partition :: how.num_partitions] for partition in range(how.num_partitions)]
    counts = _number(1, how.num_replicas) + _number(2, how.num_partitions)
    return counts + b"".join(_bytes(_ROWS, _packed(_IDS, row)) for row in rows)


def _shardings(values: Iterable[Any], known: Sequence[ArraySharding] | None) -> list[bytes]:
    """Write an OpSharding for each value, tokens among them; none where nothing is sharded."""
    if known is None:
        return []
    arrays = iter(known)
    return [_number(1, _REPLICATED) if is_token(v.type) else _sharding(next(arrays)) for v in values]


def _sharding(sharding: ArraySharding) -> bytes:
    """Write an OpSharding: tiles of each dimension, and copies of the tiles."""
    if sharding.is_replicated:
        return _number(1, _REPLICATED)
    parts: Sequence[Any] = sharding.parts
    counts = [len({part[d] for part in parts}) for d in range(len(sharding.shape))]
    order = sorted(range(len(parts)), key=lambda i: (parts[i], i))
    tiles = 1
    for each in counts:
        tiles *= each
    copies = len(parts) // tiles
    dimensions = [*counts, copies] if copies > 1 else counts
    last = _number(6, 1) if copies > 1 else b""
    return _number(1, _OTHER) + _packed(3, dimensions) + _packed(4, order) + last
