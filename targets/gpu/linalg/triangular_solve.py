"""Blocked triangular solve, a block for each matrix and some right-hand sides: forward substitution by tiles.

With m for op(a) or its transpose, and x for the solution or its transpose, x_i is b_i less the sum over k of m_ik *
x_k, divided by m_ii, for the k whose x_k is known already. Unknowns are numbered in the order in which they become
known.
"""

from __future__ import annotations

from mlir.dialects import gpu

from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.linear_algebra import Field, TriangularSolveConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.linalg.cholesky import NAMES
from stablexla.targets.gpu.linalg.square_tiles import THREADS, SquareTile, own_elements, subtract_products, tile_rows
from stablexla.targets.gpu.threads import Launch, block_index, kernel_function, thread_index


@gpu_emitter("triangular_solve")
def emit_triangular_solve(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit all systems that have elements."""
    batch, rows, columns = kernel.results[0].type.shape
    if not batch * rows * columns:
        return None
    config = kernel.config(TriangularSolveConfig)
    size, others = (rows, columns) if config.left_side else (columns, rows)
    element = kernel.results[0].type.element_type
    edge = tile_rows(element)
    one = SquareTile(edge, element, 0)
    other = SquareTile(edge, element, one.bytes)
    groups = -(-others // edge)
    with kernel_function(kernel, Launch(batch * groups, THREADS, 2 * one.bytes)) as arguments:
        field = Field(BY_NAME[NAMES[str(element)]])
        _System(field, arguments, config, size, others, (one, other)).write(
            block_index() // groups, block_index() % groups * edge
        )
    return Emitted(1, 1)


@dataclass
class _System:
    """One thread's part of its block's right-hand sides."""

    field: Field
    arguments: KernelArguments
    config: TriangularSolveConfig
    n: int
    others: int
    tiles: tuple[SquareTile, SquareTile]

    def __post_init__(self) -> None:
        self.given, self.right = self.arguments.inputs[:2]
        self.made = self.arguments.results[0]
        self.left_side = self.config.left_side
        self.swapped = (self.config.transpose_a != "NO_TRANSPOSE") == self.left_side
        self.forward = self.config.lower != self.swapped

    def write(self, batch: Value, first: Value) -> None:
        """Solve for the right-hand sides from `first` on."""
        one, other = self.tiles
        size = one.size
        own = own_elements(size)
        with cg.loop(0, self.n, size) as now:
            starts = [cg.load(self.right, self._place(batch, now.iv + row, first + column)) for row, column in own]
            with cg.loop(0, now.iv, size, starts) as known:
                self._fill_matrix(batch, now.iv, known.iv)
                other.fill(
                    lambda o, k: cg.load(self.made, self._place(batch, known.iv + k, first + o)),
                    along_rows=not self.left_side,
                )
                gpu.barrier()
                sums = subtract_products(self.field, known.args, one, other, conjugated=False)
                gpu.barrier()
                known.yields(*sums)
            self._fill_matrix(batch, now.iv, now.iv)
            for (row, column), value in zip(own, known.results, strict=True):
                other.put(value, column, row)
            gpu.barrier()
            with cg.when(thread_index().lt(size)):
                self._substitute(thread_index(), cg.minimum(cg.index(self.n) - now.iv, size))
            gpu.barrier()
            for slow, fast in own:
                unknown, side = (slow, fast) if self.left_side else (fast, slow)
                with cg.when((now.iv + unknown).lt(self.n) & (first + side).lt(self.others)):
                    cg.store(other.at(side, unknown), self.made, self._place(batch, now.iv + unknown, first + side))
            gpu.barrier()

    def _fill_matrix(self, batch: Value, row: Value, column: Value) -> None:
        self.tiles[0].fill(lambda r, k: self._element(batch, row + r, column + k), along_rows=not self.swapped)

    def _substitute(self, side: Value, count: Value) -> None:
        """Solve a tile by forward substitution, for one right-hand side."""
        one, other = self.tiles
        field = self.field
        with cg.loop(0, count) as iteration:
            i = iteration.iv
            with cg.loop(0, i, 1, [other.at(side, i)]) as before:
                k = before.iv
                product = field.subtract_product(before.args[0].ssa, one.at(i, k).ssa, other.at(side, k).ssa)
                before.yields(Value(product))
            value = before.results[0].ssa
            if not self.config.unit_diagonal:
                value = field.divide(value, one.at(i, i).ssa)
            other.put(Value(value), side, i)

    def _element(self, batch: Value, i: Value, k: Value) -> Value:
        """Load m_ik, in the order of the unknowns, clamped to the matrix."""
        row, column = self._number(i), self._number(k)
        place = column * self.n + row if self.swapped else row * self.n + column
        value = cg.load(self.given, batch * (self.n * self.n) + place)
        return Value(self.field.conjugate(value.ssa)) if self.config.transpose_a == "ADJOINT" else value

    def _place(self, batch: Value, i: Value, side: Value) -> Value:
        """Return the offset of unknown i of a right-hand side, clamped to the array."""
        row, side = self._number(i), cg.minimum(side, self.others - 1)
        place = row * self.others + side if self.left_side else side * self.n + row
        return batch * (self.n * self.others) + place

    def _number(self, i: Value) -> Value:
        held = cg.minimum(i, self.n - 1)
        return held if self.forward else cg.index(self.n - 1) - held
