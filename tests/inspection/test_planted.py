"""A part of the mutation run: faults of every kind are named, beside rounding too, and nothing healthy is blamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlir.dialects import arith

import stablexla as sx
from stablexla.inspection.judging.expected import Expected
from stablexla.inspection.judging.oracles import shared_oracle
from stablexla.inspection.program import FlatProgram
from stablexla.tools import run as command
from tests.inspection import planted
from tests.inspection.comparing import normal

FAULTS = {f"{fault.part}: {fault.name}": fault for fault in planted.faults()}
DRAWN = (
    "lowering rule: sine",
    "rule of the user: composite",
    "pass of the user: after kernels",
    "pass on tensors: outline beside rounding",
    "pass to LLVM: hide-kernels",
    "emitter: reduce",
    "expansion: sin",
    "buffers: arena's offsets are 0, beside rounding",
)
CHAOS = """func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x8xf32>) -> tensor<8x8xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] :
    (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.exponential %0 : tensor<8x8xf32>
  %2 = stablehlo.sine %1 : tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}"""


@pytest.mark.parametrize("name", DRAWN)
def test_a_planted_fault_is_named(name: str) -> None:
    verdict, found = planted.run(FAULTS[name])
    assert verdict == planted.RIGHT, found


def test_there_is_no_other_way_on() -> None:
    """Every way on from the step `kernels` shares the pass: nothing is blamed."""
    verdict, found = planted.run(FAULTS["pass on buffers: emit-kernels"])
    assert verdict == planted.OPEN, found
    assert "right up to the step 'kernels' by other ways on; the cause, behind it, was not found" in str(found)


def test_the_table() -> None:
    rows = [(FAULTS[DRAWN[0]], planted.RIGHT), (FAULTS[DRAWN[1]], planted.OPEN), (FAULTS[DRAWN[1]], planted.RIGHT)]
    assert planted.table(rows).splitlines()[2:] == [
        "| lowering rule | 1 | 1 | 0 | 0 |",
        "| rule of the user | 2 | 1 | 1 | 0 |",
        "| all | 3 | 2 | 1 | 0 |",
    ]


class TestRounding:
    """exp makes numbers so large that sine makes another number of their last bit."""

    ARGUMENTS = (normal(8, 16), normal(16, 8))

    @pytest.mark.parametrize("against", ["interpreter", "xla", "upstream"])
    def test_it_is_told_from_faults(self, against: str) -> None:
        found = sx.compile(CHAOS).compare(self.ARGUMENTS, against)
        assert found, found
        assert found.finding is None
        assert list(found.results) == [0]
        assert str(found).startswith(f"main against {against}: equal within rounding (3 operations judged")
        assert "rounding that was small before has grown here, at stablehlo.sine at" in str(found)

    def test_a_tolerance_is_kept(self) -> None:
        found = sx.compile(CHAOS).compare(self.ARGUMENTS, tolerance=1e-5)
        assert not found
        assert found.finding is not None
        assert (found.finding.method, found.finding.operation) == ("rounding", "stablehlo.sine")

    def test_on_the_command_line(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "chaos.mlir").write_text(CHAOS)
        np.savez(tmp_path / "inputs.npz", *self.ARGUMENTS)
        words = [str(tmp_path / "chaos.mlir"), "--inputs", str(tmp_path / "inputs.npz"), "--compare=interpreter"]
        assert command.main(words) == 0
        assert "equal within rounding" in capfd.readouterr().out

    def test_how_far_it_reaches(self) -> None:
        """Each element has a reach of its own; a difference beyond it is none of rounding."""
        program = FlatProgram.of(sx.load(CHAOS))
        expected = Expected(shared_oracle("interpreter"), program, self.ARGUMENTS)
        assert isinstance(expected.results, list)
        (right,) = expected.results
        (reach,) = expected.reach
        reach = reach.reshape(8, 8)
        calm, wild = (np.unravel_index(f(reach), (8, 8)) for f in (np.argmin, np.argmax))
        assert reach[calm] < 1e-6 < 1e-4 < reach[wild]
        actual = right.copy()
        actual[wild] += np.float32(reach[wild])
        assert not expected.is_wrong([actual])
        actual[calm] += np.float32(1e-3)
        (wrong,) = expected.differing([actual])
        assert np.flatnonzero(wrong).tolist() == [np.ravel_multi_index(calm, (8, 8))]


def test_the_smallest_program_shows_the_difference() -> None:
    """A rule that is wrong for constants alone: of a parameter in the constant's place nothing would be seen."""

    def planted_rule(ctx: Any, x: Any, y: Any) -> Any:
        is_constant = getattr(y.owner, "name", "") == "arith.constant"
        return ctx.elementwise(arith.divf if is_constant else arith.mulf, x, y)

    b = sx.XlaBuilder("constants")
    x = b.parameter(0, sx.f32[3, 40])
    computation = b.build(sx.tanh(x * b.constant(normal(3, 40, seed=1))))
    options = sx.CompileOptions(rules=[sx.lowering_rule("stablehlo.multiply", planted_rule)])
    found = sx.compile(computation, options=options).compare([normal(3, 40)], "interpreter").finding
    assert found is not None
    assert found.operation == "stablehlo.multiply"
    assert found.program is not None
    assert found.program.wanted is not None
    small = sx.compile(found.program.text, options=options)(*found.program.arguments)
    assert not np.allclose(small, found.program.wanted[0])
    assert found.cause is not None
    assert "planted_rule" in found.cause.rule
