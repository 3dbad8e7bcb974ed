"""Fourier transforms of c64 computed in f64, as they are, and in f32: python -m benchmarks.fft_precision.

The table of docs/decisions/0006: times beside XLA:CPU and numpy, and the error of each, the norm of the difference from
numpy's transform in double precision over the norm of that.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest import mock

import mlir.dialects.arith as arith
import mlir.ir as ir
import numpy as np

from benchmarks.engines import find_engine
from benchmarks.engines.base import Array, Prepared
from benchmarks.engines.stablexla_engine import engine
from benchmarks.measuring import Effort, measure
from benchmarks.programs import PROGRAMS
from benchmarks.programs.registry import Program
from stablexla.dialects.element_types import BY_NAME
from stablexla.lowering.kernels.fft import body as fft_body
from stablexla.lowering.rules import fft

NAMES = ("fft-1000x1024", "fft-1000x1000", "fft-1000x1009")


class _InSingle:
    """stablexla, with transforms computed in f32."""

    name, version = "stablexla in f32", ""

    def prepare(self, program: Program, text: str) -> Prepared:
        with ExitStack() as changed:
            changed.enter_context(mock.patch.object(fft, "_constant", _table))
            changed.enter_context(mock.patch.object(fft_body, "WHOLE", BY_NAME["c64"]))
            return engine().prepare(program, text)


def _table(table: Any) -> ir.Value:
    """As `lowering.fft` makes them, rounded to f32."""
    values = table.values()
    planes = np.stack([values.real, values.imag]).astype(np.float32)
    type_ = ir.RankedTensorType.get(planes.shape, ir.F32Type.get())
    return arith.ConstantOp(type_, ir.DenseElementsAttr.get(planes, type=type_)).result


def error(found: Array, wanted: Array) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def main() -> None:
    engines = [find_engine("stablexla"), _InSingle(), find_engine("xla"), find_engine("numpy")]
    names = ["f64" if each.name == "stablexla" else each.name.replace("stablexla in ", "") for each in engines]
    print(f"| program | {' | '.join(f'{n}, ms' for n in names)} | {' | '.join(f'{n}, error' for n in names)} |")
    print("|---|" + "---:|" * (2 * len(names)))
    for name in NAMES:
        program = PROGRAMS[name]
        (argument,) = program.arguments()
        wanted = np.fft.fft(argument.astype(np.complex128))
        found = measure(program, engines, Effort(budget=2.0)).engines
        times = [f"{1e3 * found[each.name].best:.2f}" for each in engines]
        errors = []
        for each in engines:
            made = each.prepare(program, program.text())
            assert made is not None
            made.bind([argument])
            errors.append(f"{error(made.results()[0], wanted):.2g}")
        print(f"| {name} | {' | '.join(times)} | {' | '.join(errors)} |", flush=True)


if __name__ == "__main__":
    main()
