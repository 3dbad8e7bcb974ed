"""Kernels that are done outside, drawn at random: which function is called, and with which tables of addresses.

Oracle: the function itself, called with the arrays. It writes bytes that depend on those of all inputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.dialects.custom_calls import C_FUNCTION
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.host.calls import CALL_HOST, HOST_CALLS, emit_host
from tests.targets.cpu.harness import DTYPES, compile_kernel

# Elements in memory, and what they are called in a shape.
NAMES = {"f64": "f64", "f32": "f32", "bf16": "bf16", "i64": "s64", "i16": "u16", "i8": "pred", "complex<f32>": "c64"}
Array = tuple[str, tuple[int, ...]]


def filled(inputs: Sequence[bytes], size: int, number: int) -> bytes:
    """What result `number` is to hold."""
    rng = np.random.default_rng([number, *np.frombuffer(b"".join(inputs), np.uint8)])
    return rng.bytes(size)


def bytes_of(array: Array) -> int:
    return prod(array[1]) * DTYPES[array[0]].itemsize


UNUSED = 'inputs = [], outputs = [], place = ""'
"""Fields that the emitter hands on."""


class RandomCall:
    """Draws the arrays of a call: none, single numbers and empty ones among them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs, self.results = self._arrays(0), self._arrays(1)
        self.arrays = [self._values(*array) for array in self.inputs]

    def _arrays(self, fewest: int) -> list[Array]:
        return [
            (str(self.rng.choice(list(NAMES))), tuple(self.rng.integers(0, 6, self.rng.integers(0, 4)).tolist()))
            for _ in range(self.rng.integers(fewest, 5))
        ]

    def _values(self, element: str, shape: tuple[int, ...]) -> np.ndarray:
        count = bytes_of((element, shape))
        return np.frombuffer(self.rng.bytes(count), DTYPES[element]).reshape(shape)

    def text(self, config: str) -> str:
        given = ", ".join(f"%x{i}: {spelled(array)}" for i, array in enumerate(self.inputs))
        types = ", ".join(map(spelled, self.results))
        made = "\n".join(f"%r{i} = tensor.empty() : {spelled(array)}" for i, array in enumerate(self.results))
        values = ", ".join(f"%r{i}" for i in range(len(self.results)))
        attributes = f'{{stablexla.kernel = "host", stablexla.config = {{{UNUSED}, {config}}}}}'
        text = f"func.func private @host({given}) -> ({types}) attributes {attributes} {{\n{made}\n"
        return text + f"return {values} : {types} }}"

    def check(self, config: str, name: str, function: Any, target: CpuTarget) -> None:
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        kernel = compile_kernel(self.text(config), target, emit_host, symbols={name: address})
        assert kernel.emitted.items == 1, "it must run on the thread that called the program"
        inputs = [array.tobytes() for array in self.arrays]
        for number, (made, array) in enumerate(zip(kernel(*self.arrays), self.results, strict=True)):
            assert made.tobytes() == filled(inputs, bytes_of(array), number)

    def fill(self, results: Sequence[int], inputs: Sequence[int]) -> None:
        """What the function does, which is given addresses."""
        taken = [ctypes.string_at(a, bytes_of(array)) for a, array in zip(inputs, self.inputs, strict=True)]
        for number, (address, array) in enumerate(zip(results, self.results, strict=True)):
            ctypes.memmove(address, filled(taken, bytes_of(array), number), bytes_of(array))


def spelled(array: Array) -> str:
    element, shape = array
    return f"tensor<{'x'.join([*map(str, shape), element])}>"


def table(address: int, count: int) -> list[int]:
    return list((ctypes.c_size_t * count).from_address(address)) if count else []


@pytest.mark.parametrize("seed", range(12))
def test_random_call_of_the_host(seed: int) -> None:
    drawn = RandomCall(seed)
    numbers: list[int] = []

    @ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t)
    def host(number: int, results: int, inputs: int) -> None:
        numbers.append(number)
        drawn.fill(table(results, len(drawn.results)), table(inputs, len(drawn.inputs)))

    bits = int(drawn.rng.choice([128, 256, 512]))
    drawn.check('call = "infeed"', CALL_HOST, host, CpuTarget(vector_bits=bits))
    assert numbers == [0]


def nested(rng: np.random.Generator, leaves: list[Array]) -> sx.Shape:
    """The arrays in tuples in tuples, in their order; a single one may stand by itself."""
    if len(leaves) == 1 and rng.random() < 0.6:
        ((element, shape),) = leaves
        return sx.Shape(NAMES[element], shape)
    if len(leaves) < 2:
        return sx.Shape.tuple([nested(rng, [leaf]) for leaf in leaves])
    cut = int(rng.integers(1, len(leaves)))
    return sx.Shape.tuple([nested(rng, part) for part in (leaves[:cut], leaves[cut:])])


def leaves_at(shape: sx.Shape, address: int) -> Iterator[int]:
    """The addresses of the arrays, where a tuple is a list of addresses."""
    if not shape.is_tuple:
        yield address
        return
    for part, inner in zip(shape.tuple_shapes, table(address, len(shape.tuple_shapes)), strict=True):
        yield from leaves_at(part, inner)


@pytest.mark.parametrize("seed", range(16))
def test_random_call_of_a_c_function(seed: int) -> None:
    """It takes the result and the list of its arguments."""
    drawn = RandomCall(seed)
    shape = nested(drawn.rng, drawn.results)
    arguments = sx.Shape.tuple([nested(drawn.rng, [leaf]) for leaf in drawn.inputs])

    @ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_size_t)
    def function(result: int, given: int) -> None:
        drawn.fill(list(leaves_at(shape, result)), list(leaves_at(arguments, given)))

    config = f'call = "c", target = "drawn", result = "{shape}", arguments = "{arguments}"'
    drawn.check(config, f"{C_FUNCTION}drawn", function, host_target())


@pytest.mark.parametrize("seed", range(4))
def test_calls_are_numbered_by_what_they_are(seed: int) -> None:
    """What is the same to the host has one number in a module, whatever the order."""
    rng = np.random.default_rng(seed)
    words = [f"call_{n}" for n in rng.integers(0, 4, 9)]
    kernels = [
        f'func.func private @host_{i}() -> tensor<2xf32> attributes {{stablexla.kernel = "host", '
        f'stablexla.config = {{{UNUSED}, call = "{word}"}}}} '
        "{ %r = tensor.empty() : tensor<2xf32> return %r : tensor<2xf32> }"
        for i, word in enumerate(words)
    ]
    with upstream_context(), ir.Location.unknown():
        module = ir.Module.parse("\n".join(kernels))
        for view in list(module.body.operations):
            emit_host(Kernel(view), host_target())
        module.operation.verify()
        rows = ir.ArrayAttr(module.operation.attributes[HOST_CALLS])
        calls = [ir.StringAttr(ir.DictAttr(row)["call"]).value for row in rows]
        assert calls == list(dict.fromkeys(words))
        assert [calls[number] for number in called_numbers(module)] == words


def called_numbers(module: ir.Module) -> list[int]:
    """The first operands of the calls of the host, in the order of the kernels."""
    found: dict[str, int] = {}

    def note(op: Any) -> ir.WalkResult:
        if op.name == "func.call" and ir.FlatSymbolRefAttr(op.attributes["callee"]).value == CALL_HOST:
            function = ir.StringAttr(op.parent.attributes["sym_name"]).value
            found[function] = ir.IntegerAttr(op.operands[0].owner.attributes["value"]).value
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    return [found[name] for name in sorted(found)]
