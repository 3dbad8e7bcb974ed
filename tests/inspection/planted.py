"""The mutation run of comparisons: plants faults one at a time, and counts how often `compare` names the planted one.

    python -m tests.inspection.planted                    # the table of docs/compare.md, written anew
    python -m tests.inspection.planted --only arena sort  # the reports of some faults

A fault is planted in a lowering rule, a pass, an emitter, an expansion, the buffers or the code generator, and reached
by the program beside it. `test_planted.py` draws a part of them.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import BY_DTYPE
from stablexla.inspection.comparing.comparison import Comparison
from stablexla.lowering import math as expansions
from stablexla.lowering.math.registry import EXPANSIONS
from stablexla.lowering.support.generic import elementwise
from stablexla.lowering.support.operations import operations_named
from stablexla.targets.llvm import early_code
from stablexla.targets.llvm.library import Library
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.passes import PASSES
from stablexla.targets.stablehlo.inlining import operations_of
from tests.inspection.comparing import break_emitters, break_rule, normal

DOCS = Path(__file__).parents[2] / "docs/compare.md"
BEGIN, END = "<!-- planted faults: python -m tests.inspection.planted -->", "<!-- end of planted faults -->"
Patch = pytest.MonkeyPatch
Program = tuple[Callable[[sx.XlaBuilder], sx.XlaOp], list[Any]]
RIGHT, OPEN, WRONG = "named rightly", "not found", "named wrongly"


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Attributes:
        part: what of the compiler it is in.
        name: which one.
        plant: patches the compiler.
        program: one that reaches it: a function of a builder, and arguments.
        names: words of the report's cause, one of which names it.
        operation: the operation that has to be named, where it is one of the program.
        options: of the compilation.
    """

    part: str
    name: str
    plant: Callable[[Patch], None]
    program: Program
    names: tuple[str, ...]
    operation: str = ""
    options: Callable[[], sx.CompileOptions] = sx.CompileOptions


# ---- programs --------------------------------------------------------------------------------------------------------


def _layer(b: sx.XlaBuilder) -> sx.XlaOp:
    """A product, a function and a sum: a program of three kernels."""
    x, w, v = b.parameter(0, sx.f32[12, 48]), b.parameter(1, sx.f32[48, 70]), b.parameter(2, sx.f32[70])
    y = sx.tanh(sx.add(sx.dot(x, w), v, broadcast_dimensions=(1,)))
    return sx.exp(sx.reduce(y + 0.25, b.constant(np.float32(0)), sx.add, (1,)) * 0.125)


def _of(function: Callable[..., sx.XlaOp], *arguments: Any) -> Program:
    """A program of one function on parameters."""
    arrays = [np.asarray(a) for a in arguments]

    def build(b: sx.XlaBuilder) -> sx.XlaOp:
        return function(*(b.parameter(i, BY_DTYPE[a.dtype][a.shape]) for i, a in enumerate(arrays)))

    return build, arrays


def _column_sums(x: sx.XlaOp) -> sx.XlaOp:
    return sx.reduce(x, x.builder.constant(np.float32(0)), sx.add, (0,))


def _turned(x: sx.XlaOp) -> sx.XlaOp:
    """Several arrays that live at once."""
    y = sx.transpose(sx.exp(x), (1, 0))
    return sx.tanh(sx.dot(_sorted(y), sx.transpose(_sorted(y) + y, (1, 0))) * 0.01)


def _softmax(x: sx.XlaOp) -> sx.XlaOp:
    b = x.builder
    top = sx.reduce(x, b.constant(np.float32(-np.inf)), sx.max, (1,))
    y = sx.exp(sx.sub(x, top, broadcast_dimensions=(0,)))
    total = sx.reduce(y, b.constant(np.float32(0)), sx.add, (1,))
    return sx.div(y, total, broadcast_dimensions=(0,))


def _chaos_turned(x: sx.XlaOp) -> sx.XlaOp:
    return sx.sin(sx.exp(sx.dot(x, _turned(x))))


def _sorted(x: sx.XlaOp) -> sx.XlaOp:
    return sx.sort(x, sx.lt, 1)


def _chaos(x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
    """Rounding that grows beside whatever is planted."""
    return _sorted(sx.abs(sx.sin(sx.exp(sx.dot(x, w)))) + 0.5)


LAYER: Program = (_layer, [normal(12, 48), normal(48, 70), normal(70)])
CHAOS = _of(_chaos, normal(8, 16), normal(16, 8))


# ---- ways to plant ---------------------------------------------------------------------------------------------------


def _negated(ctx: Any, results: Any) -> Any:
    """A rule's results with the other sign, of integers and truths the complement."""
    from mlir.dialects import arith

    def other(v: Any) -> Any:
        if isinstance(v.type, ir.FloatType):
            return arith.negf(v)
        return arith.xori(v, arith.constant(v.type, -1 if v.type.width > 1 else 1))

    values = results if isinstance(results, list) else [results]
    return elementwise(values, ctx.result_types, ctx.result_types, other)


def rule(name: str) -> Callable[[Patch], None]:
    """The lowering rule of an operation gives its results negated."""

    def plant(patch: Patch) -> None:
        from stablexla.lowering.support.registry import RULES

        right = RULES[name].rule

        def planted(ctx: Any, *operands: Any) -> Any:
            return _negated(ctx, right(ctx, *operands))

        break_rule(patch, name, planted)

    return plant


def swap(module: Any, old: str, new: str) -> None:
    """Put operations of one name in the place of those of another, or their first operand where there is no name."""
    is_hlo = isinstance(module, hlo_ir.Module)
    kind: Any = hlo_ir if is_hlo else ir
    for op in operations_of(module, old) if is_hlo else operations_named(module, old):
        if not new:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
            continue
        with op.context, op.location, kind.InsertionPoint(op):
            made = kind.Operation.create(new, results=[op.results[0].type], operands=list(op.operands))
        op.results[0].replace_all_uses_with(made.results[0])
        op.erase()


def after_pass(name: str, old: str, new: str) -> Callable[[Patch], None]:
    """A pass that also changes operations."""

    def plant(patch: Patch) -> None:
        known = PASSES[name]

        @functools.wraps(known.function)
        def function(module: Any, **options: Any) -> Any:
            made = known.function(module, **options)
            swap(module if made is None else made, old, new)
            return made

        patch.setitem(PASSES, name, replace(known, function=function, acts_on=None))

    return plant


def expansion(name: str) -> Callable[[Patch], None]:
    """The expansion of an elementary function gives its results negated."""

    def plant(patch: Patch) -> None:
        assert expansions
        right = EXPANSIONS[name]

        def planted(scope: Any, operation: Any) -> Any:
            from mlir.dialects import arith

            made = right(scope, operation)
            return None if made is None else [arith.negf(v) for v in made]

        patch.setitem(EXPANSIONS, name, planted)

    return plant


def function_of(path: str, wrong: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[Patch], None]:
    """A function or a method of the compiler that is made another."""

    def plant(patch: Patch) -> None:
        from importlib import import_module

        module, _, names = path.partition(":")
        *outer, last = names.split(".")
        holder = functools.reduce(getattr, outer, import_module(module))
        patch.setattr(holder, last, wrong(getattr(holder, last)))

    return plant


def _nowhere(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_: 0


def emitter(kind: str) -> Callable[[Patch], None]:
    """The emitters of a kind of kernel forget the last work item."""
    return lambda patch: break_emitters(patch, kind, lambda kernel: True)


def nothing(patch: Patch) -> None:
    """What is planted is in the options."""


def _user_pass(old: str, new: str, after: str) -> Callable[[], sx.CompileOptions]:
    def planted(module: ir.Module) -> None:
        swap(module, old, new)

    def options() -> sx.CompileOptions:
        return sx.CompileOptions(pipeline=sx.pipeline("cpu").inserting(sx.Step("mine", [planted]), after=after))

    return options


def _user_rule(name: str) -> Callable[[], sx.CompileOptions]:
    def planted(ctx: Any, *operands: Any) -> Any:
        return operands[0]

    return lambda: sx.CompileOptions(rules=[sx.lowering_rule(name, planted)])


# ---- the faults ------------------------------------------------------------------------------------------------------

X = normal(12, 130)
I = np.random.default_rng(1).integers(-50, 50, (12, 130)).astype(np.int32)  # noqa: E741  (as a matrix)


def _composite(x: sx.XlaOp) -> sx.XlaOp:
    return sx.composite_call((x,), "my.swish", {}, lambda x: x * sx.logistic(x), version=1)


RULES: dict[str, Program] = {
    "tanh": LAYER,
    "exponential": LAYER,
    "dot_general": LAYER,
    "reduce": LAYER,
    "add": LAYER,
    "sine": _of(lambda x, w: _sorted(sx.sin(sx.exp(sx.dot(x, w)))), *CHAOS[1]),
    "sort": CHAOS,
    "transpose": _of(lambda x: sx.exp(sx.transpose(sx.neg(x), (1, 0))), X),
    "select": _of(lambda x: sx.select(sx.gt(x, sx.sin(x)), x, sx.exp(x)), X),
    "compare": _of(lambda x: sx.select(sx.gt(x, sx.sin(x)), x, sx.exp(x)), X),
    "convert": _of(lambda x: sx.convert_element_type(sx.floor(x), np.int32) + 1, X),
    "concatenate": _of(lambda x: sx.tanh(sx.concatenate([x, sx.exp(x)], 0)), X),
    "pad": _of(lambda x: sx.exp(sx.pad(x, x.builder.constant(np.float32(1)), [(1, 2, 0), (0, 3, 1)])), X),
    "reverse": _of(lambda x: sx.exp(sx.rev(x, (1,))) - x, X),
    "divide": _of(lambda x: sx.div(sx.sin(x), sx.exp(x)), X),
    "iota": _of(lambda x: x * sx.convert_element_type(x.builder.iota(sx.s32[12, 130], 1), np.float32), X),
    "and": _of(lambda i: sx.and_(i, i * 3) + 1, I),
}
HLO = ("stablehlo.add", "stablehlo.multiply")
HLO_PASSES = (  # noqa: SIM905  (a list of words)
    "drop-unreachable partition resolve-mesh-groups replace-imported expand-bounded keep-ruled "
    "decompose-composites inline-calls order-channels legalize-chlo find-scans mask-updates "
    "expand-computations find-repeats"
).split()
ARITH = ("arith.addf", "arith.subf")
ARITH_PASSES = (  # noqa: SIM905  (a list of words)
    "lower-to-tensor compute-through-rolls drop-unused align-loops write-out-splats repeat-generators repeat-cheap "
    "split-complex-products find-attention turn-products hoist-products turn-narrow-products widen-in-products "
    "join-factors group outline inline-repeats"
).split()
EMITTERS: dict[str, Program] = {
    "row": _of(_softmax, normal(64, 137)),
    "reduce": _of(lambda x: sx.exp(_column_sums(x) * 0.01), normal(300, 700)),
    "loop": _of(lambda x: sx.tanh(x) + sx.exp(x), normal(70, 1030)),
    "transpose": _of(lambda x: sx.exp(sx.transpose(sx.neg(x), (1, 0))), normal(33, 290)),
    "contraction": _of(lambda x, w: sx.tanh(sx.dot(x, w)), normal(200, 96), normal(96, 260)),
    "sort_keys": _of(lambda x: sx.exp(_sorted(x)), normal(24, 130)),
    "gather": _of(lambda x, i: sx.exp(_rows(x, i)), normal(300, 40), I[:2, :64].reshape(-1, 1) % 300),
    "scan": _of(lambda x: sx.exp(_running_sums(x) * 0.01), normal(24, 130)),
    "convolution": _of(lambda x, w: sx.tanh(sx.conv(x, w, (1, 1), "SAME")), normal(3, 8, 40, 40), normal(16, 8, 3, 3)),
}


def _rows(x: sx.XlaOp, i: sx.XlaOp) -> sx.XlaOp:
    return sx.gather(x, i, 1, (1,), (1, 40), (0,), (0,))


def _running_sums(x: sx.XlaOp) -> sx.XlaOp:
    n, zero = 130, x.builder.constant(np.float32(0))
    return sx.reduce_window(x, zero, sx.add, (1, n), (1, 1), padding=((0, 0), (n - 1, 0)))


def faults() -> list[Fault]:
    """Every planted fault."""
    made = [
        Fault("lowering rule", name, rule(f"stablehlo.{name}"), program, ("planted",), f"stablehlo.{name}")
        for name, program in RULES.items()
    ]
    made += [
        Fault("rule of the user", "composite", nothing, _of(_composite, X), ("planted",), "my.swish",
              _user_rule("my.swish")),
        Fault("rule of the user", "tanh", nothing, LAYER, ("planted",), "stablehlo.tanh", _user_rule("stablehlo.tanh")),
        Fault("pass of the user", "after kernels", nothing, CHAOS, ("planted",), "stablehlo.abs",
              _user_pass("math.absf", "", "kernels")),
        Fault("pass of the user", "after tensor", nothing, LAYER, ("planted",), "",
              _user_pass("arith.addf", "arith.subf", "tensor")),
        Fault("pass of the user", "after buffers", nothing, LAYER, ("planted",), "",
              _user_pass("arith.mulf", "arith.addf", "buffers")),
    ]  # fmt: skip
    for name in HLO_PASSES:
        full = f"stablexla-{name}"
        made.append(Fault("pass on StableHLO", name, after_pass(full, *HLO), LAYER, (full,)))
    for name in ARITH_PASSES:
        full = f"stablexla-{name}"
        names = (full, "the lowering rule") if name == "lower-to-tensor" else (full,)
        made.append(Fault("pass on tensors", name, after_pass(full, *ARITH), LAYER, names))
    made.append(Fault("pass on tensors", "outline beside rounding",
                      after_pass("stablexla-outline", "math.absf", ""), CHAOS, ("stablexla-outline",)))  # fmt: skip
    for name in ("emit-kernels", "pack-constants", "read-before-updates", "assign-buffers"):
        full = f"stablexla-{name}"
        made.append(Fault("pass on buffers", name, after_pass(full, *ARITH), LAYER, (full,)))
    for name in ("note-sizes", "check-stops", "expand-math", "expand-small-floats", "lower-views"):
        full = f"stablexla-{name}"
        made.append(Fault("pass to LLVM", name, after_pass(full, *ARITH), LAYER, (full,)))
    for name in ("keep-rolled", "bf16-as-bits", "run-in-parallel", "hide-kernels"):
        full = f"stablexla-{name}"
        made.append(Fault("pass to LLVM", name, after_pass(full, "llvm.fadd", "llvm.fsub"), LAYER, (full,)))
    for kind, program in EMITTERS.items():
        made.append(Fault("emitter", kind, emitter(kind), program, (f"kind '{kind}'", "stablexla-emit-kernels")))
    for name, program in {
        "exp": LAYER,
        "tanh": LAYER,
        "sin": _of(lambda x, w: _sorted(sx.sin(sx.exp(sx.dot(x, w)))), *CHAOS[1]),
        "log": _of(lambda x: sx.sqrt(sx.abs(sx.log(sx.abs(x)))) + sx.log(x * x + 1.0), X),
    }.items():
        made.append(Fault("expansion", name, expansion(f"math.{name}"), program, ("stablexla-expand-math",)))
    arena, buffer = "stablexla.targets.buffers.arena:_LiveMemory.take", "stablexla.targets.buffers.assignment:Buffer"
    buffers = ("stablexla-assign-buffers",)
    made += [
        Fault("buffers", "arena's offsets are 0", function_of(arena, _nowhere), _of(_turned, X), buffers),
        Fault("buffers", "arena's offsets are 0, beside rounding", function_of(arena, _nowhere), _of(_chaos_turned, X),
              buffers),
        Fault("buffers", "arrays die at once", function_of(f"{buffer}.last", _dies_at_once), _of(_turned, X), buffers),
        Fault("code generator", "bodies", function_of("stablexla.targets.codegen.bodies:replay", _without_tanh), LAYER,
              ("stablexla-emit-kernels", "kind '")),
    ]  # fmt: skip
    return made


def _without_tanh(right: Callable[..., Any]) -> Callable[..., Any]:
    def replay(operation: Any, operands: Sequence[Any], lanes: int) -> Any:
        return list(operands[:1]) if operation.name == "math.tanh" else right(operation, operands, lanes)

    return replay


def _dies_at_once(right: Any) -> Any:
    return property(lambda buffer: buffer.first)


# ---- the run ---------------------------------------------------------------------------------------------------------


@contextmanager
def planted(fault: Fault) -> Iterator[sx.Executable]:
    """The program of a fault, compiled with it."""
    sx.compile(_built(fault))  # everything is registered with the first program
    with pytest.MonkeyPatch.context() as patch, knobs.scoped(kernel_cache="off", library="off"):
        patch.setattr(early_code, "LIBRARY", Library())  # or code of the sound compiler would be linked
        fault.plant(patch)
        yield sx.compile(_built(fault), options=fault.options())


def _built(fault: Fault) -> sx.XlaComputation:
    b = sx.XlaBuilder("planted")
    return b.build(fault.program[0](b))


def judged(fault: Fault, found: Comparison) -> str:
    """Whether a report names the fault."""
    if found.equal:
        return WRONG
    if found.finding is None or found.finding.cause is None:
        return OPEN
    cause = found.finding.cause
    kernel = f"kind '{cause.kernel.kind}'" if cause.kernel is not None else ""
    said = " ".join([cause.change, cause.rule and f"the lowering rule {cause.rule}", kernel]).strip()
    if not said:
        return OPEN
    is_right = any(name in said for name in fault.names)
    if fault.operation and found.finding.operation != fault.operation:
        is_right = False
    return RIGHT if is_right else WRONG


def table(rows: Sequence[tuple[Fault, str]]) -> str:
    """The counts by part of the compiler, in Markdown."""
    columns = (RIGHT, OPEN, WRONG)
    parts: dict[str, Counter[str]] = {}
    for fault, verdict in rows:
        parts.setdefault(fault.part, Counter())[verdict] += 1
    total = sum(parts.values(), Counter())
    lines = [f"| planted in | faults | {' | '.join(columns)} |", "|---|---|---|---|---|"]
    for name, counts in [*parts.items(), ("all", total)]:
        lines.append(f"| {name} | {sum(counts.values())} | {' | '.join(str(counts[c]) for c in columns)} |")
    return "\n".join(lines)


def run(fault: Fault, against: str = "interpreter") -> tuple[str, Comparison]:
    """Plant a fault, and compare."""
    with planted(fault) as executable:
        found = executable.compare(fault.program[1], against)
    return judged(fault, found), found


def main(words: Sequence[str]) -> int:
    """Plant all faults, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="words of the faults that are run; the table stays as it is")
    parser.add_argument("--against", default="interpreter")
    given = parser.parse_args(words)
    rows: list[tuple[Fault, str]] = []
    for fault in faults():
        label = f"{fault.part}: {fault.name}"
        if given.only and not any(word in label for word in given.only):
            continue
        verdict, found = run(fault, given.against)
        rows.append((fault, verdict))
        print(f"{verdict:<14} {label}", flush=True)
        if given.only or verdict != RIGHT:
            print("    " + str(found).replace("\n", "\n    "), flush=True)
    print(table(rows))
    if not given.only:
        before, _, rest = DOCS.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        DOCS.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
