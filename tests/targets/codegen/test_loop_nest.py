"""Random kernels of maps and reductions over one set of loops, each called in all ways. Oracle: numpy in f64.

Every value passes through tanh, so that numbers stay small and the rounding of f32 does not grow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu.elementwise.loops import emit_loop
from stablexla.targets.cpu.reduction.rows import emit_rows
from tests.targets.cpu.harness import compile_kernel
from tests.targets.cpu.kernel_text import Array, KernelText, Operand

BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.maximumf": np.maximum,
}
UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {"math.exp": np.exp, "math.absf": np.abs}
EXTENTS = [1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 40, 100]


@dataclass
class Known:
    """A value of the kernel, how it is read over all loops, and its exact elements, with ones where it repeats."""

    operand: Operand
    array: Array
    exact: np.ndarray


class RandomKernel:
    """Draws a kernel: full arrays, repeated arrays, values for each row, and operations on them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        rank = int(self.rng.integers(1, 5))
        self.shape = tuple(int(n) for n in self.rng.choice(EXTENTS, rank))
        count = int(self.rng.integers(0, rank + 1))
        trailing = self.rng.random() < 0.5
        axes = range(rank - count, rank) if trailing else sorted(self.rng.choice(rank, count, replace=False))
        self.axes = tuple(int(a) for a in axes)
        self.kept = [d for d in range(rank) if d not in self.axes]
        self.text = KernelText("row")
        self.inputs: list[np.ndarray] = []
        self.full = [self._input(list(range(rank))) for _ in range(self.rng.integers(1, 3))]
        self.repeated = [self._input([d for d in range(rank) if self.rng.random() < 0.5]) for _ in range(2)]
        self.rows: list[Known] = []
        self.made: list[Known] = []
        for _ in range(self.rng.integers(2, 9)):
            self._operation()

    def _spread(self, dims: list[int]) -> tuple[int, ...]:
        return tuple(n if d in dims else 1 for d, n in enumerate(self.shape))

    def _input(self, dims: list[int]) -> Known:
        values = self.rng.standard_normal([self.shape[d] for d in dims]).astype("f4")
        self.inputs.append(values)
        array = self.text.input("f32", values.shape)
        return self._known(array, dims, values.reshape(self._spread(dims)).astype("f8"))

    def _known(self, array: Array, dims: list[int], exact: np.ndarray) -> Known:
        return Known((array, ", ".join(f"d{d}" for d in dims)), array, exact)

    def _draw(self, values: list[Known]) -> Known:
        return values[int(self.rng.integers(len(values)))]

    def _operation(self) -> None:
        chance = self.rng.random()
        if chance < 0.35 and self.axes:
            self._fold()
        elif chance < 0.7:
            name = str(self.rng.choice(list(BINARY)))
            a, b = self._draw(self.full), self._draw([*self.full, *self.repeated, *self.rows])
            self._add(f"%p = {name} %a, %b : f32", [a.operand, b.operand], BINARY[name](a.exact, b.exact))
        else:
            name = str(self.rng.choice(list(UNARY)))
            a = self._draw(self.full)
            self._add(f"%p = {name} %a : f32", [a.operand], UNARY[name](a.exact))

    def _add(self, body: str, operands: list[Operand], exact: np.ndarray) -> None:
        array = self.text.map(self.shape, operands, body + "\n%r = math.tanh %p : f32")
        self.full.append(self._known(array, list(range(len(self.shape))), np.tanh(exact)))
        self.made.append(self.full[-1])

    def _fold(self) -> None:
        x = self._draw(self.full)
        if self.rng.random() < 0.6:
            body, start, exact = "arith.addf", "0.0", x.exact.sum(self.axes)
        else:
            body, start, exact = "arith.maximumf", "0xFF800000", x.exact.max(self.axes)
        (total,) = self.text.fold(self.shape, self.axes, [x.array], [(start, "f32")], f"%r = {body} %b, %a : f32")
        small = "%k = arith.constant 0.0078125 : f32\n%p = arith.mulf %a, %k : f32\n%r = math.tanh %p : f32"
        array = self.text.map([self.shape[d] for d in self.kept], [total], small)
        spread = np.tanh(exact / 128).reshape(self._spread(self.kept))
        self.rows.append(self._known(array, self.kept, spread))
        self.made.append(self.rows[-1])

    def results(self) -> list[Known]:
        """The last of each kind, or only one of them."""
        last = [values[-1] for values in (self.made, self.rows) if values]
        return last[:1] if self.rng.random() < 0.5 or last[0] is last[-1] else last


@pytest.mark.parametrize("seed", range(40))
def test_random_kernel(seed: int) -> None:
    drawn = RandomKernel(seed)
    results = drawn.results()
    bits = int(drawn.rng.choice([128, 256, 512]))
    # Half of them store past the caches wherever the alignment allows it.
    target = CpuTarget(vector_bits=bits, nontemporal_bytes=int(drawn.rng.choice([1, 1 << 25])))
    text = drawn.text.text(*(r.array for r in results))
    kernel = compile_kernel(text, target, emit_loop, emit_rows)
    for got, expected in zip(kernel.in_all_ways(*drawn.inputs), results, strict=True):
        np.testing.assert_allclose(got, expected.exact.reshape(got.shape), rtol=2e-4, atol=2e-4)
