"""Emit cholesky and triangular_solve: batches of small matrices vectorized one per lane, larger ones by LAPACK.

LAPACK is column-major and arrays here are row-major: it sees each matrix transposed, so triangles and sides are
exchanged instead of moving elements. One small matrix is left to the general path.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.linear_algebra import CholeskyConfig, TriangularSolveConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.refusals import Refusal, refuse
from stablexla.targets.codegen.vector_loops import grain_of
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.linalg.batched import emit_cholesky_in_lanes, emit_solve_in_lanes
from stablexla.targets.host.fortran import (
    FortranFunction,
    address_at,
    address_of_character,
    address_of_number,
    address_of_one,
    single_threaded_blas,
)
from stablexla.targets.host.lapack import LETTERS

# Cost model: LAPACK's multiplications per nanosecond, roughly, and the overhead of one call.
RATE, CALL_NS = 4.0, 500.0
# Threshold in multiplications below which a call of LAPACK does not pay.
WORTH_A_CALL = Gate("linalg.worth-a-call", 2000, eager=1)
_SMALL_MATRIX = Refusal(
    "one small matrix is less work than a call of LAPACK", "a batch: several matrices in one operation"
)
_SMALL_SYSTEM = Refusal(
    "one small system is less work than a call of LAPACK, and is not solved in vector lanes",
    "a batch: several systems in one operation, or more right-hand sides",
)


@emitter("cholesky")
def emit_cholesky(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit Cholesky factorizations; a work item is one matrix, or as many as there are lanes."""
    batch, n, _ = kernel.results[0].type.shape
    work = n * n * n / 3
    if not batch * n:
        return None
    in_lanes = emit_cholesky_in_lanes(kernel, target)
    if in_lanes is not None or work < WORTH_A_CALL():
        refuse(_SMALL_MATRIX)
        return in_lanes
    potrf = FortranFunction(kernel, _letter_of(kernel) + "potrf", arguments=5)
    with kernel.phase(target) as arguments:
        given, made = arguments.inputs[0], arguments.results[0]
        triangle = _Triangle(n, kernel.config(CholeskyConfig).lower)
        info = cg.alloca(1, ir.IntegerType.get_signless(32))
        size, letter = address_of_number(n), address_of_character("U" if triangle.lower else "L")
        with single_threaded_blas(kernel, batch > 1), arguments.items(batch) as item:
            first = item * (n * n)
            triangle.copy(given, made, first)
            potrf.call([letter, size, address_at(made, first), size, address_at(info)])
            triangle.check(made, first)
    return Emitted(batch, grain_of(CALL_NS + work / RATE, batch), in_place=((0, 0),))


@emitter("triangular_solve")
def emit_triangular_solve(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit triangular solves; a work item is one system with all its right-hand sides, or one system per lane."""
    batch, rows, columns = kernel.results[0].type.shape
    n, config = kernel.inputs[0].type.shape[-1], kernel.config(TriangularSolveConfig)
    work = n * rows * columns / 2
    if not batch * rows * columns:
        return None
    in_lanes = emit_solve_in_lanes(kernel, target)
    if in_lanes is not None or work < WORTH_A_CALL():
        refuse(_SMALL_SYSTEM)
        return in_lanes
    trsm = FortranFunction(kernel, _letter_of(kernel) + "trsm", arguments=11)
    with kernel.phase(target) as arguments:
        words = {
            "side": "R" if config.left_side else "L",
            "triangle": "U" if config.lower else "L",
            "transposed": {"NO_TRANSPOSE": "N", "TRANSPOSE": "T", "ADJOINT": "C"}[config.transpose_a],
            "diagonal": "U" if config.unit_diagonal else "N",
        }
        letters = [address_of_character(word) for word in words.values()]
        one = address_of_one(kernel.results[0].type.element_type)
        numbers = [address_of_number(columns), address_of_number(rows), one]
        sizes = [address_of_number(n), address_of_number(columns)]
        with single_threaded_blas(kernel, batch > 1), arguments.items(batch) as item:
            matrix, made = _solve_in_result(arguments, item, n, rows * columns)
            trsm.call([*letters, *numbers, matrix, sizes[0], made, sizes[1]])
    return Emitted(batch, grain_of(CALL_NS + work / RATE, batch), in_place=((0, 1),))


def _letter_of(kernel: Kernel) -> str:
    return LETTERS[str(kernel.results[0].type.element_type)]


def _solve_in_result(arguments: KernelArguments, item: Value, n: int, size: int) -> tuple[ir.Value, ir.Value]:
    """Copy the right-hand sides into the result, to be solved in place; return the addresses of matrix and result."""
    a, b, made = (*arguments.inputs, *arguments.results)
    first = item * size
    with cg.loop(first, first + size) as iteration:
        cg.store(cg.load(b, iteration.iv), made, iteration.iv)
    return address_at(a, item * (n * n)), address_at(made, first)


# ---- triangles -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Triangle:
    """One triangle of matrices of size n, including the diagonal."""

    n: int
    lower: bool

    def copy(self, given: Value, made: Value, first: Value) -> None:
        """Copy the triangle and zero the rest."""
        with cg.loop(0, self.n) as rows:
            row = first + rows.iv * self.n
            inside, outside = (
                ((row, row + rows.iv + 1), (row + rows.iv + 1, row + self.n))
                if self.lower
                else ((row + rows.iv, row + self.n), (row, row + rows.iv))
            )
            with cg.loop(*inside) as iteration:
                cg.store(cg.load(given, iteration.iv), made, iteration.iv)
            self._fill(made, *outside, 0.0)

    def check(self, made: Value, first: Value) -> None:
        """Fill a matrix with NaN if its diagonal is not positive: it was not positive definite."""
        true = cg.constant(1, ir.IntegerType.get_signless(1))
        with cg.loop(0, self.n, 1, [true]) as iteration:
            value = cg.load(made, first + iteration.iv * (self.n + 1))
            iteration.yields(iteration.args[0] & _real_part(value).gt(0.0))
        sides = cg.branch(iteration.results[0])
        with sides.then:
            pass
        with sides.otherwise:
            self._fill(made, first, first + self.n * self.n, float("nan"))

    def _fill(self, made: Value, low: Value, high: Value, number: float) -> None:
        with cg.loop(low, high) as iteration:
            cg.store(_constant(number, made.element), made, iteration.iv)


def _real_part(value: Value) -> Value:
    if not isinstance(value.type, ir.ComplexType):
        return value
    return Value(ir.Operation.create("complex.re", results=[value.type.element_type], operands=[value.ssa]).result)


def _constant(number: float, element: ir.Type) -> Value:
    """Return a number, with the imaginary part 0 if it is complex."""
    if not isinstance(element, ir.ComplexType):
        return cg.constant(number, element)
    parts = [cg.constant(x, element.element_type).ssa for x in (number, 0.0)]
    return Value(ir.Operation.create("complex.create", results=[element], operands=parts).result)
