"""Functions that kernels share: one for equal values, and nothing else that its body could depend on."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlir.ir as ir
import pytest

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.conversion import Conversion, ConversionStep, steps_of
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.emit import kernels_of
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions

TARGET = CpuTarget()
TEXT = """
func.func private @first(%x: tensor<8xf32>) -> tensor<8xf32> attributes {stablexla.kernel = "loop"} {
  return %x : tensor<8xf32>
}
func.func private @second(%x: tensor<9xf32>, %y: tensor<4xf64>) -> (tensor<9xf32>, tensor<4xf64>)
    attributes {stablexla.kernel = "loop"} {
  return %x, %y : tensor<9xf32>, tensor<4xf64>
}
func.func private @steps(%x: f32) -> f64 {
  %0 = arith.extf %x : f32 to f64
  %1 = arith.negf %0 : f64
  %2 = arith.negf %0 fastmath<nnan> : f64
  return %1 : f64
}
"""


@dataclass(frozen=True)
class Fill(SharedFunction):
    """Stores a constant."""

    constant: float
    conversion: Conversion = ()

    @property
    def name(self) -> str:
        return "fill"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        (to,), (count,) = buffers, numbers
        with cg.loop(0, count) as i:
            cg.store(cg.constant(self.constant, to.element), to, i.iv)


@dataclass(frozen=True)
class Holds(SharedFunction):
    """Emits nothing and holds anything."""

    value: Any

    @property
    def name(self) -> str:
        return "holds"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        pass


@pytest.fixture
def module() -> Iterator[ir.Module]:
    with ir.Context(), ir.Location.unknown():
        yield ir.Module.parse(TEXT)


def shared_of(module: ir.Module, calls: Sequence[Sequence[tuple[SharedFunction, int]]]) -> list[str]:
    """The functions `fill...` after the kernels in order have made calls: of a function, for a result by its number."""
    table: dict[Hashable, str] = {}
    for view, some in zip(kernels_of(module), calls, strict=True):
        kernel = Kernel(view, shared_symbols=table)
        functions = SharedFunctions(kernel, TARGET)
        with kernel.phase(TARGET) as arguments:
            for spec, number in some:
                functions.call(spec, [arguments.results[number]], [4])
    assert module.operation.verify()
    names = [ir.StringAttr(op.operation.attributes["sym_name"]).value for op in module.body.operations]
    return [name for name in names if name.startswith("fill")]


def step_of(module: ir.Module, number: int) -> ConversionStep:
    (function,) = (op for op in module.body.operations if op.operation.attributes["sym_name"].value == "steps")
    return steps_of([op.operation for op in function.regions[0].blocks[0].operations][number : number + 1])[0]


def test_equal_values_share_one_function(module: ir.Module) -> None:
    """Kernels and sizes are not in the value; the buffers' element types are."""
    assert shared_of(module, [[(Fill(1.0), 0)], [(Fill(1.0), 0), (Fill(1.0), 0)]]) == ["fill_f32"]


def test_different_values_have_their_own(module: ir.Module) -> None:
    """Even where their names are the same."""
    calls = [[(Fill(1.0), 0), (Fill(2.0), 0)], [(Fill(2.0), 0), (Fill(2.0), 1)]]
    assert shared_of(module, calls) == ["fill_f32", "fill_f32_1", "fill_f64"]
    assert str(module).count("arith.constant 2.0") == 2


def test_conversions_are_values(module: ir.Module) -> None:
    """A step is equal to the same operation of another kernel; its attributes are part of it."""
    extended, negated, fast = (step_of(module, number) for number in range(3))
    assert negated == step_of(ir.Module.parse(TEXT), 1)
    assert negated != fast
    calls = [[(Fill(1.0, (extended, negated)), 0)], [(Fill(1.0, (extended, fast)), 0)]]
    assert shared_of(module, calls) == ["fill_f32", "fill_f32_1"]


def test_a_body_gets_its_arguments_alone(module: ir.Module) -> None:
    """A function that lacks a parameter cannot be written: no kernel to ask, no variable around it, no callback."""
    for cls in (Fill, *SharedFunction.__subclasses__()):
        assert list(inspect.signature(cls.emit).parameters) == ["self", "functions", "buffers", "numbers"]
    with pytest.raises(TypeError, match="Local could read the variables around it"):

        class Local(Fill):
            pass

    with pytest.raises(TypeError, match="non-frozen"):
        dataclass(type("Thawed", (SharedFunction,), {"__annotations__": {"size": "int"}}))


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda kernel: kernel, "Holds.value is a Kernel"),
        (lambda kernel: (1, kernel.inputs[0]), r"Holds.value\[1\] is a BlockArgument"),
        (lambda kernel: lambda: kernel, "Holds.value is a function"),
        (lambda kernel: Holds(kernel.func), "Holds.value.value is a FuncOp"),
    ],
)
def test_a_way_into_a_kernel_is_refused(module: ir.Module, make: Any, where: str) -> None:
    kernel = Kernel(kernels_of(module)[0])
    with kernel.phase(TARGET), pytest.raises(TypeError, match=where):
        SharedFunctions(kernel, TARGET).call(Holds(make(kernel)), [], [])
