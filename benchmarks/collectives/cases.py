"""One collective at one size over some devices: the StableHLO text that everybody runs, arguments and right results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.programs.registry import Work

Array = npt.NDArray[Any]

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute")
ELEMENTS = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i8": np.int8}
IN_PROCESS, OVER_MPI = "in one process", "over MPI"
TOLERANCE = 1e-5
"""Of the largest magnitude: sums of a few numbers, in another order."""
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size_in_words(size: int) -> str:
    """1 KiB, 16 MiB: in the largest unit that divides it."""
    unit = next((u for u in reversed(_UNITS) if size % _UNITS[u] == 0), None)
    return f"{size // _UNITS[unit]} {unit}" if unit else f"{size} bytes"


def size_of(text: str) -> int:
    """The bytes that `16MiB`, `1 KiB` or `4096` say."""
    number = text.rstrip("KMGiBbytes ")
    unit = text[len(number) :].strip()
    return int(number) * _UNITS.get(unit, 1)


@dataclass(frozen=True)
class Case:
    """A collective.

    Attributes:
        size: bytes of the larger of a device's operand and result.
    """

    operation: str
    element: str
    size: int
    devices: int

    @property
    def name(self) -> str:
        return size_in_words(self.size)

    @property
    def family(self) -> str:
        kind = "" if self.element == "f32" else f" of {self.element}"
        return f"{self.operation}{kind}, {self.devices} devices"

    @property
    def count(self) -> int:
        """Elements of the larger of operand and result."""
        return self.size // np.dtype(ELEMENTS[self.element]).itemsize

    @property
    def operand_count(self) -> int:
        return self.count // self.devices if self.operation == "all_gather" else self.count

    @property
    def result_count(self) -> int:
        return self.count // self.devices if self.operation == "reduce_scatter" else self.count

    def text(self) -> str:
        """The module, for so many replicas."""
        operand, result = f"tensor<{self.operand_count}x{self.element}>", f"tensor<{self.result_count}x{self.element}>"
        counts = f"mhlo.num_replicas = {self.devices} : i32, mhlo.num_partitions = 1 : i32"
        return f"""module @{self.operation} attributes {{{counts}}} {{
  func.func public @main(%x: {operand}) -> {result} {{
    %0 = "stablehlo.{self.operation}"(%x) {self._rest()} : ({operand}) -> {result}
    return %0 : {result}
  }}
}}
"""

    def _rest(self) -> str:
        numbers = ", ".join(map(str, range(self.devices)))
        groups = f"replica_groups = dense<[[{numbers}]]> : tensor<1x{self.devices}xi64>"
        scalar = f"tensor<{self.element}>"
        body = f"""({{
      ^bb0(%a: {scalar}, %b: {scalar}):
        %s = stablehlo.add %a, %b : {scalar}
        stablehlo.return %s : {scalar}
    }})"""
        along = "dimension = 0 : i64"
        n = self.devices
        pairs = ", ".join(f"[{d}, {(d + 1) % n}]" for d in range(n))
        return {
            "all_reduce": f"{body} {{{groups}}}",
            "reduce_scatter": f"{body} {{scatter_{along}, {groups}}}",
            "all_gather": f"{{all_gather_dim = 0 : i64, {groups}}}",
            "all_to_all": f"{{split_{along}, concat_{along}, split_count = {n} : i64, {groups}}}",
            "collective_permute": f"{{source_target_pairs = dense<[{pairs}]> : tensor<{n}x2xi64>}}",
        }[self.operation]

    def arguments(self) -> list[Array]:
        """An operand for each device, the same ones in every process."""
        rng = np.random.default_rng(self.size + self.devices)
        numbers = rng.integers(-8, 8, (self.devices, self.operand_count), np.int8)
        kind = ELEMENTS[self.element]
        return [each.astype(kind) if kind is np.int8 else each.astype(kind) * kind(1.25) for each in numbers]

    def results(self, arguments: Sequence[Array]) -> list[Array]:
        """What each device has to have, by numpy."""
        n = self.devices
        if self.operation == "collective_permute":
            return [arguments[(d - 1) % n] for d in range(n)]
        if self.operation == "all_gather":
            return [np.concatenate(arguments)] * n
        if self.operation == "all_to_all":
            parts = [np.split(each, n) for each in arguments]
            return [np.concatenate([part[d] for part in parts]) for d in range(n)]
        total = sum(arguments[1:], start=arguments[0])
        return [total] * n if self.operation == "all_reduce" else np.split(total, n)

    def work(self) -> Work:
        """Every operand is read once and every result written once; where all lies in one memory, no more is needed."""
        bytes_each = self.size // self.count
        read, written = self.operand_count * bytes_each, self.result_count * bytes_each
        return Work(0, read * self.devices, written * self.devices)


def difference(found: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The largest difference as a fraction of the largest magnitude; infinite when shapes differ."""
    if len(found) != len(wanted):
        return float("inf")
    return max(_apart(f, w) for f, w in zip(found, wanted, strict=True))


def _apart(found: Array, wanted: Array) -> float:
    if found.shape != wanted.shape:
        return float("inf")
    if np.array_equal(found, wanted):
        return 0.0
    wide = wanted.astype(np.float64)
    return float(np.abs(found - wide).max() / max(np.abs(wide).max(), np.finfo(np.float64).tiny))
