"""Integer arithmetic of `main` at compile time. Oracle: MLIR's own folding of constants."""

from __future__ import annotations

import itertools

import mlir.ir as ir
import pytest
from mlir.passmanager import PassManager

from stablexla.dialects.contexts import upstream_context
from stablexla.lowering.support.operations import constant_of, defining
from stablexla.targets.gpu.launch.host_integers import evaluate, width_of

NUMBERS = (0, 1, 2, 3, 5, 7, -1, -2, -3, 100, -100, 127, -128)
BINARY = (
    *("addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "maxui", "minsi", "minui"),
    *("divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui", "shli", "shrsi", "shrui"),
)
PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


def operations_of(module: ir.Module) -> list[ir.Operation]:
    return [op.operation for op in module.body.operations[0].regions[0].blocks[0].operations]


def check(lines: list[str], result: str) -> None:
    """Both give the same numbers where both give any; MLIR leaves divisions by 0 alone."""
    constants = "\n".join(f"%c{i} = arith.constant {n} : i8" for i, n in enumerate(NUMBERS))
    uses = "\n".join(f"%u{i} = builtin.unrealized_conversion_cast %r{i} : {result} to f64" for i in range(len(lines)))
    text = "\n".join(f"%r{i} = {line}" for i, line in enumerate(lines))
    returned = ", ".join(f"%u{i}" for i in range(len(lines)))
    types = ", ".join(["f64"] * len(lines))
    text = f"func.func @f() -> ({types}) {{\n{constants}\n{text}\n{uses}\nreturn {returned} : {types} }}"
    with upstream_context(), ir.Location.unknown():
        module, folded = ir.Module.parse(text), ir.Module.parse(text)
        PassManager.parse("builtin.module(canonicalize)").run(folded.operation)
    seen = 0
    uses_of = [[op for op in operations_of(m) if op.name.startswith("builtin.")] for m in (module, folded)]
    for ours, theirs in zip(*uses_of, strict=True):
        op, maker = defining(ours.operands[0]), defining(theirs.operands[0])
        given = [constant_of(v) for v in op.operands]
        found = evaluate(op, [n & 255 for n in given if n is not None])
        if maker.name != "arith.constant" or found is None:
            continue
        seen += 1
        wanted = constant_of(theirs.operands[0])
        assert wanted is not None
        assert found == wanted & ((1 << width_of(op.results[0].type)) - 1), (op.name, given)
    assert seen > len(lines) // 3


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name: str) -> None:
    pairs = itertools.product(range(len(NUMBERS)), repeat=2)
    check([f"arith.{name} %c{a}, %c{b} : i8" for a, b in pairs], "i8")


@pytest.mark.parametrize("predicate", PREDICATES)
def test_comparisons(predicate: str) -> None:
    pairs = itertools.product(range(len(NUMBERS)), repeat=2)
    check([f"arith.cmpi {predicate}, %c{a}, %c{b} : i8" for a, b in pairs], "i1")


@pytest.mark.parametrize(
    ("name", "type_"),
    [("extsi", "i32"), ("extui", "i32"), ("trunci", "i4"), ("index_cast", "index"), ("index_castui", "index")],
)
def test_conversions(name: str, type_: str) -> None:
    check([f"arith.{name} %c{a} : i8 to {type_}" for a in range(len(NUMBERS))], type_)


def test_what_is_undefined_or_no_integer() -> None:
    with upstream_context(), ir.Location.unknown():
        module = ir.Module.parse("""func.func @f(%a: i8, %x: f32) {
          %0 = arith.divsi %a, %a : i8
          %1 = arith.shli %a, %a : i8
          %2 = arith.addf %x, %x : f32
          return
        }""")
    divide, shift, add, _ = operations_of(module)
    assert evaluate(divide, [1, 0]) is None
    assert evaluate(shift, [1, 8]) is None
    assert evaluate(add, [1, 1]) is None
