"""Programs and deliberate mistakes that the tests of comparisons share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.lowering import rules
from stablexla.lowering.support.registry import RULES
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.cpu import pipeline
from stablexla.targets.cpu.emitters import EMITTERS
from stablexla.targets.stablehlo.inlining import operations_of


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def affine() -> sx.XlaComputation:
    """add, tanh, multiply; the line of each is its own."""
    b = sx.XlaBuilder("affine")
    x = b.parameter(0, sx.f32[4, 37], name="x")
    v = b.parameter(1, sx.f32[37])
    y = sx.add(x, v, broadcast_dimensions=(1,))
    z = sx.tanh(y)
    return b.build(z * 2.0)


AFFINE_ARGUMENTS = [normal(4, 37), normal(37)]


def break_rule(monkeypatch: pytest.MonkeyPatch, name: str, rule: Callable[..., Any]) -> None:
    """Lowers an operation by another rule."""
    assert rules  # which registers them
    monkeypatch.setitem(RULES, name, replace(RULES[name], rule=rule))


def break_emitters(monkeypatch: pytest.MonkeyPatch, kind: str, when: Callable[[Kernel], bool]) -> None:
    """Lets the emitters of a kind of kernel forget the last work item, where `when` holds."""
    assert pipeline  # which registers them

    def forgetful(emitter: Callable[..., Emitted | None]) -> Callable[..., Emitted | None]:
        def made(kernel: Kernel, target: Any) -> Emitted | None:
            emitted = emitter(kernel, target)
            if emitted is None or not when(kernel):
                return emitted
            longest = max((phase.items for phase in emitted.phases), default=emitted.items)
            if longest < 2:
                return emitted
            phases = [replace(p, items=p.items - (p.items == longest)) for p in emitted.phases]
            return replace(emitted, items=longest - 1, phases=tuple(phases))

        return made

    monkeypatch.setitem(EMITTERS, kind, [forgetful(e) for e in EMITTERS[kind]])


def subtract_for_add(module: ir.Module) -> None:
    """A pass that is wrong: every addition of floats becomes a subtraction."""
    found: list[Any] = []

    def note(op: Any) -> ir.WalkResult:
        if op.name == "arith.addf":
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for op in found:
        with op.context, op.location, ir.InsertionPoint(op):
            made = ir.Operation.create("arith.subf", results=[op.results[0].type], operands=list(op.operands))
        op.results[0].replace_all_uses_with(made.results[0])
        op.erase()


def multiply_for_add(module: hlo_ir.Module) -> None:
    """A pass on StableHLO that is wrong."""
    for op in operations_of(module, "stablehlo.add"):
        with op.context, op.location, hlo_ir.InsertionPoint(op):
            types, operands = [r.type for r in op.results], list(op.operands)
            made = hlo_ir.Operation.create("stablehlo.multiply", results=types, operands=operands)
        op.results[0].replace_all_uses_with(made.results[0])
        op.erase()


def line_of(function: Callable[..., Any], text: str) -> int:
    """The number of the first line of a function's source that holds a text."""
    import inspect

    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)
