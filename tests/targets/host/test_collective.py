"""What devices do together, as it comes out of the emitter: the functions that fold two arrays, and what main calls.

Oracle of the folds: numpy and ml_dtypes, element by element.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.compiling.device_counts import with_counts
from stablexla.interop.loading import load
from stablexla.targets.cpu.pipeline import cpu_pipeline
from stablexla.targets.host.bindings import take_collectives
from stablexla.targets.host.collective import COLLECTIVES
from stablexla.targets.pipeline.driver import copy_of, run_pipeline
from tests.jit import jit
from tests.ops.samples import sample

Make = Callable[[sx.XlaBuilder, sx.XlaOp], Any]
Fold = Callable[[Any, Any], Any]


def compiled(make: Make, shape: sx.Shape, replicas: int = 2, partitions: int = 1) -> ir.Module:
    """A program of one parameter in LLVM's dialect."""
    b = sx.XlaBuilder("test")
    made = make(b, b.parameter(0, shape))
    program = b.build(sx.tuple(made) if isinstance(made, list) else made)
    return run_pipeline(copy_of(with_counts(load(program), (replicas, partitions))), cpu_pipeline())


class Combine:
    """The first function of a module that folds two arrays, ready to be called."""

    def __init__(self, module: ir.Module) -> None:
        name = ""
        for view in list(module.body.operations):
            op = view.operation
            found = ir.StringAttr(op.attributes["sym_name"]).value
            if found.endswith("_combine") and not name:
                name = found
                op.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<external>", module.context)
            elif found == "main" or found.startswith(("collective", "stablexla_")):
                op.erase()
        for key in list(module.operation.attributes):
            if key.startswith(("stablexla.", "mhlo.")):
                del module.operation.attributes[key]
        [self._packed] = jit(module, [name])

    def __call__(self, a: np.ndarray, b: np.ndarray, out: np.ndarray, lo: int, hi: int) -> None:
        numbers = [ctypes.c_int64(v) for v in (a.ctypes.data, b.ctypes.data, out.ctypes.data, lo, hi)]
        table = (ctypes.c_void_p * 5)(*map(ctypes.addressof, numbers))
        self._packed(ctypes.addressof(table))


SIZE = 203
RANGES = [(0, SIZE), (3, SIZE - 5), (7, 8), (5, 5), (1, 40)]


def check_fold(name: str, ours: Fold, theirs: Fold, samples: list[np.ndarray] | None = None) -> None:
    """Folds pieces of two arrays, into a third one and into the first one itself."""
    combine = Combine(compiled(lambda b, x: sx.all_reduce(x, ours), sx.Shape(name, (SIZE,))))
    a, c = samples or (np.ascontiguousarray(sample(name, SIZE, seed)) for seed in (1, 2))
    with np.errstate(all="ignore"):
        wanted = np.array([theirs(x, y) for x, y in zip(a, c, strict=True)]).astype(a.dtype)
    for lo, hi in RANGES:
        for in_place in (False, True):
            out = a.copy() if in_place else np.zeros_like(a)
            before = out.copy()
            combine(out if in_place else a, c, out, lo, hi)
            same(out[lo:hi], wanted[lo:hi])
            assert out[:lo].tobytes() + out[hi:].tobytes() == before[:lo].tobytes() + before[hi:].tobytes()


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    """Bit by bit, but any NaN is as good as another."""
    if found.tobytes() != wanted.tobytes():
        wide = np.complex128 if found.dtype.kind != "i" else np.int64
        np.testing.assert_array_equal(found.astype(wide), wanted.astype(wide))


def widened(name: str, function: Callable[[Any, Any], Any]) -> Fold:
    """A function in the type that small floats are computed in."""
    element = sx.element_type(name)
    if element.is_float and element.bits < 32:
        return lambda x, y: np.float32(function(np.float32(x), np.float32(y))).astype(element.dtype)
    return function


@pytest.mark.parametrize("name", [t.name for t in sx.ELEMENT_TYPES if not t.is_pred])
def test_sums_of_every_element_type(name: str) -> None:
    element = sx.element_type(name)
    wraps = element.is_integer and element.bits < 8
    function = (lambda x, y: np.int8(int(x) + int(y)).astype(x.dtype)) if wraps else lambda x, y: x + y
    check_fold(name, sx.add, widened(name, function))


@pytest.mark.parametrize("name", ["s4", "s32", "bf16", "f64", "c64"])
def test_products_of_differences(name: str) -> None:
    """A fold that is neither commutative nor associative, with a constant in it: (a - b) * 3."""

    def theirs(x: Any, y: Any) -> Any:
        three = type(x)(3)
        if name == "s4":
            return np.int8(((int(x) - int(y)) * 3 + 8) % 16 - 8).astype(x.dtype)
        if name in ("bf16", "f16"):  # rounded after each operation
            difference = np.float32(np.float32(x) - np.float32(y)).astype(x.dtype)
            return np.float32(np.float32(difference) * np.float32(3)).astype(x.dtype)
        return (x - y) * three

    check_fold(name, lambda a, c: (a - c) * 3, theirs)


def test_bits_and_truths() -> None:
    check_fold("pred", lambda a, c: a & c, np.logical_and)
    check_fold("pred", lambda a, c: a | c, np.logical_or)
    check_fold("u16", lambda a, c: a ^ c, np.bitwise_xor)


@pytest.mark.parametrize("which", ["first", "second", "a constant"])
def test_folds_that_use_not_everything(which: str) -> None:
    ours: dict[str, Fold] = {
        "first": lambda a, c: a,
        "second": lambda a, c: c,
        "a constant": lambda a, c: a.builder.constant(np.float32(3)),
    }
    theirs: dict[str, Fold] = {"first": lambda x, y: x, "second": lambda x, y: y, "a constant": lambda x, y: 3}
    check_fold("f32", ours[which], theirs[which])
    if which != "a constant":
        check_fold("c64", ours[which], theirs[which])


def test_a_fold_with_control_flow() -> None:
    """What no vectors can do: it goes element by element."""

    def ours(a: sx.XlaOp, c: sx.XlaOp) -> sx.XlaOp:
        return sx.conditional(a < c, a, lambda v: v * 2, c, lambda v: v + 100)

    check_fold("s32", ours, lambda x, y: np.int32(x * 2) if x < y else np.int32(y + 100))


def test_folds_are_vectors() -> None:
    """The whole registers of a long array are folded at once, the types of small numbers and their sums too."""
    for name in ("f32", "bf16", "s8", "pred"):
        fold = sx.max if name != "pred" else lambda a, c: a | c
        text = str(compiled(lambda b, x, fold=fold: sx.all_reduce(x, fold), sx.Shape(name, (64,))))
        body = text[text.index("llvm.func internal @collective_0_combine") :]
        assert re.search(r"llvm.load [^\n]*-> vector<\d+x", body), name


class TestLists:
    """The configurations that the runtime gets."""

    def test_of_each_operation(self) -> None:
        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
            return [
                sx.all_reduce(x, sx.add),
                sx.all_gather(x, 1, 4),
                sx.reduce_scatter(x, sx.add, 1, 4),
                sx.all_to_all(x, 1, 0, 4),
                sx.collective_permute(x, ((0, 1), (3, 2))),
                sx.collective_broadcast(x, ((2, 1),)),
            ]

        rows = take_collectives(compiled(program, sx.f32[3, 8], 4))
        every = ((0, 1, 2, 3),)
        assert [(row["op"], row["groups"], row["pairs"]) for row in rows] == [
            ("all_reduce", every, ()),
            ("all_gather", every, ()),
            ("reduce_scatter", every, ()),
            ("all_to_all", every, ()),
            ("collective_permute", (), ((0, 1), (3, 2))),
            ("collective_broadcast", ((2, 1),), ()),
        ]
        whole = ((96,), (1,), (1,), 0, 0)
        assert [row["copies"] for row in rows] == [
            (whole,),
            (((3, 32), (32, 1), (128, 1), 0, 32),),
            (((3, 8), (32, 1), (8, 1), 8, 0),),
            (((3, 8), (32, 1), (8, 1), 8, 24),),
            (whole,),
            (whole,),
        ]
        assert all(row["element_bytes"] == (4,) and row["inputs"] == ("f32[3,8]",) for row in rows)
        assert all("test_collective.py" in row["place"] for row in rows)

    @pytest.mark.parametrize("shape", [(6,), (2, 6, 5), (1, 6, 1), (3, 2, 6)], ids=str)
    @pytest.mark.parametrize("name", ["s4", "c128"])
    def test_parts_lie_where_they_belong(self, shape: tuple[int, ...], name: str) -> None:
        """The bytes that the layouts name are those that numpy moves, for each dimension and operation."""
        element, count = sx.element_type(name), 2
        xs = [sample(name, int(np.prod(shape)), seed).reshape(shape) for seed in range(count)]
        for d, size in enumerate(shape):
            if size % count:
                continue
            joined = len(shape) - 1 - d
            moved = compiled(
                lambda b, x, d=d, joined=joined: [sx.all_gather(x, d, count), sx.all_to_all(x, d, joined, count)],
                sx.Shape(element, shape),
                count,
            )
            gathered, exchanged = take_collectives(moved)
            wanted = np.concatenate(xs, d)
            parts = [np.split(x, count, d) for x in xs]
            for target in range(count):
                same(_moved(gathered, xs, target, wanted.shape), wanted)
                both = np.concatenate([parts[source][target] for source in range(count)], joined)
                same(_moved(exchanged, xs, target, both.shape), both)

    def test_several_arrays(self) -> None:
        b = sx.XlaBuilder("test")
        x, y = b.parameter(0, sx.f32[3]), b.parameter(1, sx.f32[2, 2])
        made = sx.tuple([*sx.all_reduce((x, y), sx.add), *sx.all_gather((x, y), 0, 2)])
        module = run_pipeline(copy_of(with_counts(load(b.build(made)), (2, 1))), cpu_pipeline())
        reduced, gathered = take_collectives(module)
        assert reduced["inputs"] == gathered["inputs"] == ("f32[3]", "f32[2,2]")
        assert gathered["outputs"] == ("f32[6]", "f32[4,2]")
        assert len(reduced["copies"]) == len(gathered["copies"]) == 2

    def test_arrays_of_nothing(self) -> None:
        (row,) = take_collectives(compiled(lambda b, x: sx.collective_permute(x, ((0, 1),)), sx.f32[3, 0, 2]))
        assert row["copies"] == (((0,), (1,), (1,), 0, 0),)

    def test_who_is_alone_is_not_listed(self) -> None:
        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
            alone = ((0,), (1,))
            made = [sx.all_reduce(x, sx.add, alone), sx.all_gather(x, 0, 1, alone), sx.all_to_all(x, 0, 0, 1, alone)]
            return [*made, sx.collective_permute(x, ((1, 1), (0, 0))), sx.collective_permute(x, ())]

        assert COLLECTIVES not in compiled(program, sx.f32[4]).operation.attributes


def _moved(config: dict[str, Any], xs: list[np.ndarray], target: int, shape: tuple[int, ...]) -> np.ndarray:
    """What a member gets when bytes are moved as a configuration says."""
    ((extents, sources, targets, source_step, target_step),) = config["copies"]
    out = np.full(int(np.prod(shape)) * xs[0].itemsize, 77, np.uint8)
    for source, x in enumerate(xs):
        data = np.frombuffer(x.tobytes(), np.uint8)
        for place in np.ndindex(extents):
            at = sum(i * s for i, s in zip(place, sources, strict=True)) + target * source_step
            to = sum(i * s for i, s in zip(place, targets, strict=True)) + source * target_step
            out[to] = data[at]
    return out.view(xs[0].dtype).reshape(shape)


class TestMain:
    """What main does around a collective."""

    def test_nothing_is_copied(self) -> None:
        """Operands are read where they lie, the caller's too, and results go where the caller wants them."""

        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
            flat = sx.reshape(x, (4096,))
            return [sx.all_reduce(x, sx.add) + 1.0, sx.collective_permute(flat, ((0, 1),)), sx.all_gather(x * x, 0, 2)]

        text = self.main(program)
        calls = re.findall(r"call @(\w+)\(([^)]*)\)", text)
        assert [name for name, _ in calls if name.startswith("collective")] == [
            f"collective_{i}_impl" for i in range(3)
        ]
        by_name = {name: operands.split(", ") for name, operands in calls}
        assert by_name["collective_0_impl"][:2] == ["%arg0", "%arg1"]
        assert by_name["collective_1_impl"][:2] == ["%arg0", "%arg2"]
        assert by_name["collective_2_impl"][1] == "%arg3"
        assert "copy" not in text

    def test_a_loop_changes_buffers(self) -> None:
        """A collective is not written over its operand: what a loop carries has two buffers, which change places."""

        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            start = sx.tuple((b.constant(np.int32(0)), x))
            body = lambda s: sx.tuple((s[0] + 1, sx.all_reduce(s[1], sx.add)))  # noqa: E731
            return sx.while_(lambda s: s[0] < 50, body, start)[1]

        text = self.main(program)
        loop = text[text.index("} do {") : text.index("scf.yield")]
        assert "copy" not in loop
        (operand, result), *rest = [c.split(", ")[:2] for c in re.findall(r"call @collective_0_impl\(([^)]*)\)", loop)]
        assert operand != result
        assert not rest

    def test_donated_parameters_are_left_alone(self) -> None:
        text = """
        func.func @main(%x: tensor<64xf32> {jax.buffer_donor = true}) -> tensor<64xf32> {
          %0 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}
            : (tensor<64xf32>) -> tensor<64xf32>
          return %0 : tensor<64xf32>
        }"""
        assert "stablexla.alias" not in sx.compile(text, num_replicas=2).ir("buffers")

    def test_it_is_never_repeated_shared_or_dropped(self) -> None:
        """Two that say the same are two; one that nobody reads runs; and one stands outside of the loops around."""

        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
            y = sx.collective_permute(x, ((0, 1),))
            return [y + 1.0, sx.exp(y), sx.transpose(y, (1, 0))]

        assert self.main(program).count("call @collective_") == 1

    def main(self, make: Make) -> str:
        b = sx.XlaBuilder("test")
        made = make(b, b.parameter(0, sx.f32[64, 64]))
        text = sx.compile(b.build(sx.tuple(made) if isinstance(made, list) else made), num_replicas=2).ir("buffers")
        return text[text.index("@main(") :]
