"""Blocked left-looking Cholesky factorization, a block for each matrix.

With x_ij for l_ij or u_ji, both factors are x_ij = (a_ij - sum over k < j of x_ik * conj(x_jk)) / x_jj. An iteration
does a panel of columns: the trailing update by the panels on its left in tiles, the diagonal tile's factorization in
shared memory, and then the triangular solve of the rows below it, a row for each thread.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import gpu, math

from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.linear_algebra import CholeskyConfig, Field
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.linalg.square_tiles import THREADS, SquareTile, own_elements, subtract_products, tile_rows
from stablexla.targets.gpu.threads import Launch, block_index, kernel_function, shared_buffer, thread_index

ROWS = 128
"""Rows below the diagonal tile that are solved at a time."""
NAMES = {"f32": "f32", "f64": "f64", "complex<f32>": "c64", "complex<f64>": "c128"}


@gpu_emitter("cholesky")
def emit_cholesky(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit the factorization of all matrices that have elements."""
    batch, n, _ = kernel.results[0].type.shape
    if not batch * n:
        return None
    element = kernel.results[0].type.element_type
    size = tile_rows(element)
    diagonal = SquareTile(size, element, 0)
    one = SquareTile(size, element, diagonal.bytes)
    other = SquareTile(size, element, diagonal.bytes + one.bytes)
    rows = size * ROWS * cg.bits_of(element) // 8
    shared = diagonal.bytes + max(2 * one.bytes, rows)
    with kernel_function(kernel, Launch(batch, THREADS, shared)) as arguments:
        field, lower = Field(BY_NAME[NAMES[str(element)]]), kernel.config(CholeskyConfig).lower
        _Matrix(field, arguments, n, lower, (diagonal, one, other)).write()
    return Emitted(1, 1)


@dataclass
class _Matrix:
    """One thread's part of its block's matrix."""

    field: Field
    arguments: KernelArguments
    n: int
    lower: bool
    tiles: tuple[SquareTile, SquareTile, SquareTile]

    def __post_init__(self) -> None:
        self.given, self.made = self.arguments.inputs[0], self.arguments.results[0]
        self.first = block_index() * (self.n * self.n)
        self.size = self.tiles[0].size
        self.zero = Value(self.field.constant(0.0))

    def place(self, i: Value, j: Value) -> Value:
        """Return the offset of x_ij."""
        return self.first + (i * self.n + j if self.lower else j * self.n + i)

    def write(self) -> None:
        n, size = self.n, self.size
        with cg.loop(thread_index(), cg.index(n * n), THREADS) as iteration:
            i, j = iteration.iv // n, iteration.iv % n
            outside = i.lt(j) if self.lower else j.lt(i)
            with cg.when(outside):
                cg.store(self.zero, self.made, self.first + iteration.iv)
        true = cg.constant(1, ir.IntegerType.get_signless(1))
        with cg.loop(0, n, size, [true]) as panel:
            self._take_off(panel.iv)
            gpu.barrier()
            good = self._factor(panel.iv, panel.args[0])
            self._write_diagonal(panel.iv)
            self._solve_below(panel.iv)
            gpu.barrier()
            panel.yields(good)
        with cg.when(panel.results[0] ^ true), cg.loop(thread_index(), cg.index(n * n), THREADS) as iteration:
            cg.store(Value(self.field.constant(float("nan"))), self.made, self.first + iteration.iv)

    def _take_off(self, panel: Value) -> None:
        """Subtract products of the panels on the left; the first tile goes to shared memory, others to the result."""
        diagonal, one, other = self.tiles
        n, size = self.n, self.size
        last = cg.index(n - 1)
        with cg.loop(panel, n, size) as below:
            own = own_elements(size)
            starts = [
                cg.load(self.given, self.place(cg.minimum(below.iv + row, last), cg.minimum(panel + column, last)))
                for row, column in own
            ]
            with cg.loop(0, panel, size, starts) as left:
                one.fill(lambda r, k: self._at(cg.minimum(below.iv + r, last), left.iv + k), along_rows=self.lower)
                other.fill(lambda r, k: self._at(cg.minimum(panel + r, last), left.iv + k), along_rows=self.lower)
                gpu.barrier()
                sums = subtract_products(self.field, left.args, one, other, conjugated=True)
                gpu.barrier()
                left.yields(*sums)
            for (row, column), value in zip(own, left.results, strict=True):
                inside = (below.iv + row).lt(n) & (panel + column).lt(n)
                with cg.when(below.iv.eq(panel)):
                    whole = Value(self.field.constant(1.0))
                    padding = cg.select(row.eq(column), whole, self.zero)
                    diagonal.put(cg.select(inside, value, padding), row, column)
                with cg.when(below.iv.gt(panel) & inside):
                    cg.store(value, self.made, self.place(below.iv + row, panel + column))

    def _at(self, i: Value, j: Value) -> Value:
        return cg.load(self.made, self.place(i, j))

    def _factor(self, panel: Value, good: Value) -> Value:
        """Factorize the diagonal tile, but for the roots of the pivots; returns whether all pivots were positive."""
        diagonal, size, field = self.tiles[0], self.size, self.field
        with cg.loop(0, size, 1, [good]) as iteration:
            j = iteration.iv
            square = Value(field.real_part(diagonal.at(j, j).ssa))
            good = iteration.args[0] & square.gt(0.0)
            root = math.sqrt(square.ssa)
            me = thread_index()
            with cg.when(me.gt(j) & me.lt(size)):
                diagonal.put(Value(field.divide_by_real(diagonal.at(me, j).ssa, root)), me, j)
            gpu.barrier()
            for row, column in own_elements(size):
                with cg.when(column.gt(j) & row.ge(column)):
                    product = field.conjugate(diagonal.at(column, j).ssa)
                    rest = field.subtract_product(diagonal.at(row, column).ssa, diagonal.at(row, j).ssa, product)
                    diagonal.put(Value(rest), row, column)
            gpu.barrier()
            iteration.yields(good)
        with cg.when(thread_index().lt(size)):
            me = thread_index()
            root = math.sqrt(field.real_part(diagonal.at(me, me).ssa))
            diagonal.put(Value(field.of_real(root)), me, me)
        gpu.barrier()
        return iteration.results[0]

    def _write_diagonal(self, panel: Value) -> None:
        for row, column in own_elements(self.size):
            with cg.when(row.ge(column) & (panel + row).lt(self.n)):
                cg.store(self.tiles[0].at(row, column), self.made, self.place(panel + row, panel + column))

    def _solve_below(self, panel: Value) -> None:
        """Solve the rows below the tile by forward substitution; a row's known elements lie in shared memory."""
        diagonal, size, field = self.tiles[0], self.size, self.field
        rows = shared_buffer(self.made.element, size * ROWS, diagonal.bytes)
        with cg.loop(panel + size, self.n, ROWS) as start:
            row = start.iv + thread_index()
            with cg.when(thread_index().lt(ROWS) & row.lt(self.n)), cg.loop(0, size) as column:
                first = cg.load(self.made, self.place(row, panel + column.iv))
                with cg.loop(0, column.iv, 1, [first]) as before:
                    known = cg.load(rows, before.iv * ROWS + thread_index()).ssa
                    factor = field.conjugate(diagonal.at(column.iv, before.iv).ssa)
                    before.yields(Value(field.subtract_product(before.args[0].ssa, known, factor)))
                root = field.real_part(diagonal.at(column.iv, column.iv).ssa)
                value = Value(field.divide_by_real(before.results[0].ssa, root))
                cg.store(value, rows, column.iv * ROWS + thread_index())
                cg.store(value, self.made, self.place(row, panel + column.iv))
