"""Kernels of scans with any associative computation, drawn at random. Oracle: numpy, one element after the other.

Most computations are of integers, exact wherever the parentheses are put.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
import pytest

from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu.scan.general import emit_general_scan
from tests.targets.cpu.harness import DTYPES, compile_kernel
from tests.targets.cpu.one_kernel import kernel_of

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Computation:
    """Combines elements of several arrays.

    Attributes:
        elements: types of the arrays; "T" is one that is drawn.
        body: in StableHLO, of %p0, %p1 ... before and %q0, %q1 ... behind, and of the number %k; gives %r0, %r1 ...
        step: the same in numpy.
    """

    elements: tuple[str, ...]
    body: str
    step: Callable[[Arrays, Arrays, np.ndarray], Arrays]


AFFINE = Computation(
    ("T", "T"),
    "%r0 = stablehlo.multiply %p0, %q0 : tensor<T>\n%s = stablehlo.multiply %q0, %p1 : tensor<T>\n"
    "%r1 = stablehlo.add %s, %q1 : tensor<T>",
    lambda p, q, k: (p[0] * q[0], q[0] * p[1] + q[1]),
)
LAST = Computation(
    ("T",),
    "%z = stablehlo.constant dense<0> : tensor<T>\n"
    "%c = stablehlo.compare NE, %q0, %z : (tensor<T>, tensor<T>) -> tensor<i1>\n"
    "%r0 = stablehlo.select %c, %q0, %p0 : tensor<i1>, tensor<T>",
    lambda p, q, k: (np.where(q[0] != 0, q[0], p[0]),),
)
SEGMENTED = Computation(
    ("T", "i1"),
    "%s = stablehlo.add %p0, %q0 : tensor<T>\n%r0 = stablehlo.select %q1, %q0, %s : tensor<i1>, tensor<T>\n"
    "%r1 = stablehlo.or %p1, %q1 : tensor<i1>",
    lambda p, q, k: (np.where(q[1], q[0], p[0] + q[0]), p[1] | q[1]),
)
LARGEST = Computation(
    ("T", "i32"),
    "%c = stablehlo.compare GT, %q0, %p0 : (tensor<T>, tensor<T>) -> tensor<i1>\n"
    "%r0 = stablehlo.select %c, %q0, %p0 : tensor<i1>, tensor<T>\n"
    "%r1 = stablehlo.select %c, %q1, %p1 : tensor<i1>, tensor<i32>",
    lambda p, q, k: tuple(np.where(q[0] > p[0], b, a) for a, b in zip(p, q, strict=True)),
)
SHIFTED = Computation(
    ("T",),
    "%s = stablehlo.add %p0, %q0 : tensor<T>\n%r0 = stablehlo.add %s, %k : tensor<T>",
    lambda p, q, k: (p[0] + q[0] + k,),
)
COMPUTATIONS = {"affine": AFFINE, "last": LAST, "segmented": SEGMENTED, "largest": LARGEST, "shifted": SHIFTED}
# Lines, rows that are carried in registers, and rows that are cut into panels; few and long ones in blocks.
EXTENTS = [(1, 3, 1), (3, 7, 1), (9, 1003, 1), (1, 5_001, 1), (2, 4_096, 1), (2, 5, 3), (9, 40, 33), (1, 2_000, 5)]
EXTENTS += [(1, 900, 64), (2, 30, 300), (9, 20, 250), (1, 12, 70)]


class RandomScan:
    """Draws a computation, the type of its elements, what is scanned and from which end."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.name = list(COMPUTATIONS)[seed % len(COMPUTATIONS)]
        self.computation = COMPUTATIONS[self.name]
        floats = ["f32", "f64"] if self.name in ("affine", "largest") else []
        self.element = str(self.rng.choice(["i8", "i16", "i32", "i64", *floats]))
        self.extents = EXTENTS[int(self.rng.integers(len(EXTENTS)))]
        self.backwards = bool(self.rng.integers(2))
        self.elements = tuple(self.element if e == "T" else e for e in self.computation.elements)
        self.arrays = tuple(self._array(e) for e in self.elements)
        self.number = np.asarray(3, DTYPES[self.element])
        count = len(self.elements)
        self.returned = sorted(self.rng.choice(count, int(self.rng.integers(1, count + 1)), replace=False).tolist())

    def _array(self, element: str) -> np.ndarray:
        if element == "i1":
            return self.rng.random(self.extents) < 0.1
        if element[0] == "f":  # factors below 1, so that nothing grows
            return self.rng.uniform(-1, 1, self.extents).astype(DTYPES[element])
        x = self.rng.integers(-9, 10, self.extents)
        return np.where(self.rng.random(self.extents) < 0.5, 0, x).astype(DTYPES[element])

    def program(self) -> str:
        """The composite that the pass that finds scans makes."""
        types = [f"tensor<{'x'.join(map(str, self.extents))}x{e}>" for e in self.elements]
        number = f"tensor<{self.element}>"
        uses_number = self.name == "shifted"
        given = [*types, number] if uses_number else types
        names = [f"%x{i}" for i in range(len(types))] + (["%k"] if uses_number else [])
        made = [types[i] for i in self.returned]
        taking, giving = ", ".join(given), ", ".join(made)
        parameters = [f"{n}: {t}" for n, t in zip(names, given, strict=True)]
        scalars = [f"%{side}{i}: tensor<{e}>" for side in "pq" for i, e in enumerate(self.elements)]
        scalars += [f"%k: {number}"] if uses_number else []
        results = ", ".join(f"tensor<{e}>" for e in self.elements)
        values = ", ".join(f"%r{i}" for i in range(len(types)))
        config = f"arrays = {len(types)} : i64, backwards = {str(self.backwards).lower()}, combination = @combine, "
        config += f"dimension = 1 : i64, returned = array<i64: {', '.join(map(str, self.returned))}>"
        many = f":{len(made)}" if len(made) > 1 else ""
        taken = ", ".join(f"%y#{i}" for i in range(len(made))) if many else "%y"
        kept = ", ".join(f"%x{i}" for i in self.returned)
        return f"""
            func.func public @main({", ".join(parameters)}) -> ({giving}) {{
              %y{many} = stablehlo.composite "stablexla.associative_scan" {", ".join(names)}
                {{composite_attributes = {{{config}}}, decomposition = @tree}} : ({taking}) -> ({giving})
              return {taken} : {giving}
            }}
            func.func private @combine({", ".join(scalars)}) -> ({results}) {{
              {self.computation.body.replace("<T>", f"<{self.element}>")}
              return {values} : {results}
            }}
            func.func private @tree({", ".join(parameters)}) -> ({giving}) {{
              return {kept} : {giving}
            }}"""

    def expected(self) -> list[np.ndarray]:
        turned = [np.flip(a, 1).copy() if self.backwards else a.copy() for a in self.arrays]
        wide = [t.astype(np.float64) if t.dtype == np.float32 else t for t in turned]
        for i in range(1, self.extents[1]):
            made = self.computation.step(tuple(t[:, i - 1] for t in wide), tuple(t[:, i] for t in wide), self.number)
            for t, value in zip(wide, made, strict=True):
                t[:, i] = value
        return [np.flip(wide[i], 1) if self.backwards else wide[i] for i in self.returned]


@pytest.mark.parametrize("seed", range(30))
def test_random_kernel(seed: int) -> None:
    drawn = RandomScan(seed)
    one = kernel_of(drawn.program(), "scan", is_prepared=True)
    bits = int(drawn.rng.choice([128, 256, 512]))
    target = CpuTarget(vector_bits=bits, num_vector_registers=32 if bits == 512 else 16)
    kernel = compile_kernel(one.text, target, emit_general_scan)
    assert len(kernel.results) == len(drawn.returned)
    for got, wanted in zip(
        kernel.in_all_ways(*one.arguments([*drawn.arrays, drawn.number])), drawn.expected(), strict=True
    ):
        assert got.size == prod(drawn.extents)
        got = got.reshape(drawn.extents)
        if got.dtype.kind == "f" and drawn.name == "affine":
            np.testing.assert_allclose(got, wanted, rtol=0, atol=50 * np.finfo(got.dtype).eps)
        else:
            np.testing.assert_array_equal(got, wanted)
