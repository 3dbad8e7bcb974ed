"""Two hundred programs of `python -m tests.campaign`; stitching, changes, forms and the watch themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, islice

import mlir.ir as ir
import numpy as np
import pytest
from mlir.dialects import arith, memref

import stablexla as sx
from stablexla.dialects.element_types import BY_MLIR
from stablexla.lowering.support.operations import terminator_of
from stablexla.lowering.support.storage import constant
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.cpu.emitters import EMITTERS
from tests.campaign.draws import MAKERS, draw
from tests.campaign.examine import Examiner, category
from tests.campaign.forms import FORMS, behind, outlined, relaid
from tests.campaign.matrix import cell
from tests.campaign.mutate import mutated, retyped
from tests.campaign.pool import Unfit
from tests.campaign.watched import Watched
from tests.fuzz.check import Plan, _refusal
from tests.fuzz.program import Program
from tests.fuzz.workers import Failure
from tests.kernels import comparing, execute

PROGRAMS, BATCH, FIRST = 200, 20, 5_000_000
LARGEST = 12
"""Operations of a program; the campaign itself takes larger ones."""
TEXT = """
func.func public @main(%p0: tensor<4x5xi32>, %p1: tensor<5xi32>) -> (tensor<4x5xi32>, tensor<4x5xi32>) {
%v1 = stablehlo.broadcast_in_dim %p1, dims = [1] : (tensor<5xi32>) -> tensor<4x5xi32>
%v2 = stablehlo.add %p0, %v1 : tensor<4x5xi32>
%v3 = stablehlo.subtract %v2, %v1 : tensor<4x5xi32>
return %v2, %v3 : tensor<4x5xi32>, tensor<4x5xi32>
}"""
PARTLY_OUTSIDE = """
func.func public @main(%p0: tensor<2x2xi32>, %p1: tensor<2xi64>, %p2: tensor<2x2xi32>) -> (tensor<2x2xi32>) {
%v1 = "stablehlo.scatter"(%p0, %p1, %p2) ({
^bb0(%old: tensor<i32>, %new: tensor<i32>):
stablehlo.return %new : tensor<i32>
}) \
{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], scatter_dims_to_operand_dims = [1, 0]>} : \
(tensor<2x2xi32>, tensor<2xi64>, tensor<2x2xi32>) -> tensor<2x2xi32>
return %v1 : tensor<2x2xi32>
}"""
ARGUMENTS = [np.arange(20, dtype=np.int32).reshape(4, 5), np.arange(5, dtype=np.int32)]


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with Watched() as started:
        yield started


@pytest.mark.parametrize("first", range(FIRST, FIRST + 5 * PROGRAMS, 5 * BATCH))
def test_programs(first: int, watched: Watched) -> None:
    examiner = Examiner(watched)
    for drawn in islice((d for d in map(draw, count(first)) if d.program.size <= LARGEST), BATCH):
        seed = drawn.seed
        found = examiner.check(drawn.program, drawn.arguments, _cheaper(drawn.plan, seed))
        assert found is None, f"program {seed}: {category(found)}: {found}\n{drawn.program.text}"
    assert examiner.compared > BATCH


def _cheaper(plan: Plan, seed: int) -> Plan:
    """Most programs by the emitters and the interpreter alone: compiling takes the time."""
    return plan if seed % 8 == 0 else Plan(False, ("emitters",), ("interpreter",))


def test_equal_numbers_give_equal_programs_of_all_kinds() -> None:
    drawn = [draw(seed) for seed in range(40)]
    assert {d.made for d in drawn} == set(MAKERS)
    assert [draw(d.seed).program for d in drawn[:5]] == [d.program for d in drawn[:5]]
    operations = Counter(name for d in drawn for s in d.program.statements for name in s.operations)
    assert {"while", "map"} <= operations.keys()
    assert len(operations) > 40


@pytest.mark.parametrize("name", FORMS)
def test_a_form_gives_the_same(name: str, watched: Watched) -> None:
    program = Program.parse(TEXT)
    found = watched.run(f"form {name}", program.text, ARGUMENTS)
    assert not isinstance(found, Failure), found
    np.testing.assert_array_equal(found[0], ARGUMENTS[0] + ARGUMENTS[1])
    np.testing.assert_array_equal(found[1], ARGUMENTS[0])


PAIR = """
func.func public @main(%p0: tensor<40x30xELEMENT>, %p1: tensor<30xELEMENT>) -> (tensor<40xELEMENT>, tensor<40x40xELEMENT>) {
%v0 = stablehlo.constant dense<ZERO> : tensor<ELEMENT>
%v1 = stablehlo.broadcast_in_dim %p1, dims = [1] : (tensor<30xELEMENT>) -> tensor<40x30xELEMENT>
%v2 = stablehlo.multiply %p0, %v1 : tensor<40x30xELEMENT>
%v3 = stablehlo.reduce(%v2 init: %v0) applies stablehlo.add across dimensions = [1] : (tensor<40x30xELEMENT>, tensor<ELEMENT>) -> tensor<40xELEMENT>
%v4 = stablehlo.dot_general %p0, %v2, contracting_dims = [1] x [1] : (tensor<40x30xELEMENT>, tensor<40x30xELEMENT>) -> tensor<40x40xELEMENT>
return %v3, %v4 : tensor<40xELEMENT>, tensor<40x40xELEMENT>
}"""  # noqa: E501


def _pair(element: str) -> tuple[str, list[np.ndarray]]:
    """A sum of rows and a product, of random numbers."""
    rng, zero = np.random.default_rng(0), "0" if element.startswith("i") else "0.0"
    arrays = [rng.normal(size=(40, 30)) * 9, rng.normal(size=30) * 9]
    return PAIR.replace("ELEMENT", element).replace("ZERO", zero), [a.astype(BY_MLIR[element].dtype) for a in arrays]


@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "i32"])
def test_every_kernel_that_an_emitter_took_is_compared(element: str) -> None:
    text, arguments = _pair(element)
    with comparing() as (options, comparison):
        executable = sx.compile(text, options=options)
        results = executable.execute(arguments)
    kinds = [kernel.kind for kernel in comparison.subjects]
    assert {"row", "contraction"} <= set(kinds)
    assert comparison.compared >= len(kinds)
    for ours, theirs in zip(results, sx.compile(text).execute(arguments), strict=True):
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("element", ["f32", "i32"])
@pytest.mark.parametrize("kind", ["row", "contraction"])
def test_a_kernel_with_a_wrong_number_is_named(kind: str, element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An emitter writes one number too many."""

    def spoil(emit: Callable[..., Emitted | None]) -> Callable[..., Emitted | None]:
        def spoiled(kernel: Kernel, target: object) -> Emitted | None:
            emitted = emit(kernel, target)
            if emitted is not None:
                block = kernel.emitted[-1].regions[0].blocks[0]
                result = block.arguments[len(kernel.inputs)]
                with kernel.func.location, ir.InsertionPoint(terminator_of(block)):
                    zero = arith.constant(ir.IndexType.get(), 0)
                    memref.store(constant(result.type.element_type, 77), result, [zero])
            return emitted

        return spoiled

    monkeypatch.setitem(EMITTERS, kind, [spoil(emit) for emit in EMITTERS[kind]])
    with pytest.raises(AssertionError, match=rf"(?s)kernel of kind {kind} differs from the general path\n@{kind}_\d"):
        execute(*_pair(element))


def test_texts_of_forms() -> None:
    program = Program.parse(TEXT)
    assert "call @piece(%p0, %v1)" in outlined(program, 1, 2)
    assert "stablehlo.composite" in behind(program, 'stablehlo.composite "a.b"', "@whole", " {decomposition = @whole}")
    laid = {relaid("f32[2,3,4]{2,1,0} f32[2,3,4]{2,1,0}", seed) for seed in range(30)}
    assert len(laid) == 6
    assert all(len(set(text.split())) == 1 for text in laid)


def test_changes_verify_and_change() -> None:
    program = Program.parse(TEXT)
    texts = {mutated(program, seed).text for seed in range(20)}
    assert len(texts) > 12
    assert program.text not in texts
    assert retyped(program, "i32", "bf16").parameters[0].element == "bf16"


def test_cells_are_of_all_element_types() -> None:
    elements: Counter[str] = Counter()
    for number in range(400):
        try:
            elements.update(v.element for v in cell(number).values.values())
        except Exception:  # the operation does not take that
            continue
    assert len(elements) > 18


FAILURES = {"refused": "UnsupportedError", "crash": "died", "hang": "timeout", "leak": "LeftSomething"}
FAILURES["foreign error"] = "KeyError"


class Spoiled(Watched):
    """What the children of another one give is spoiled in one way."""

    def __init__(self, watched: Watched, way: str) -> None:
        super().__init__()
        self._workers, self._children = watched._workers, watched._children
        self.way = way

    def run(self, way: str, text: str, arguments: list[np.ndarray]) -> list[np.ndarray] | Failure:  # type: ignore[override]
        found = super().run(way, text, arguments)
        if self.way == "noise" and way == "emitters":
            self.noise[way] = "warning: 0x1234 is odd"
        if self.way == "form" and way == "form call" and not isinstance(found, Failure):
            found[0] = found[0] + 1
        return Failure(FAILURES[self.way], "exit code -11") if self.way in FAILURES and way == "emitters" else found


@pytest.mark.parametrize("way", ["crash", "hang", "leak", "foreign error", "noise", "form"])
def test_findings_have_their_category(way: str, watched: Watched) -> None:
    plan = Plan(False, ("emitters", "form call"), ())
    found = Examiner(Spoiled(watched, way)).check(Program.parse(TEXT), ARGUMENTS, plan)
    assert found is not None
    assert category(found) == {"form": "wrong result"}.get(way, way)


def test_what_is_refused_is_no_finding(watched: Watched) -> None:
    examiner = Examiner(Spoiled(watched, "refused"))
    assert examiner.check(Program.parse(TEXT), ARGUMENTS, Plan(False, ("emitters",), ())) is None
    assert sum(examiner.refused.values()) == 1


def test_a_whole_program_is_explained_by_an_operation_that_was_refused_elsewhere(watched: Watched) -> None:
    """A window partly outside, which XLA:CPU drops; other scatters of the same types it has refused before."""
    program = Program.parse(PARTLY_OUTSIDE)
    arguments = [np.zeros((2, 2), np.int32), np.array([0, 1]), np.ones((2, 2), np.int32)]
    examiner = Examiner(watched)
    examiner.refused[_refusal("xla", program.statements[0], program)] = 1
    assert examiner.check(program, arguments, Plan(True, ("emitters",), ("xla",))) is None
    assert sum(examiner.excused.values()) > 0
    assert sum(examiner.refused.values()) == 1


def test_nothing_fits_is_said() -> None:
    with pytest.raises(Unfit, match="no change verifies"):
        mutated(Program((), (), ()), 0, tries=3)
