"""Control flow: loops, branches, calls of computations, composites, and the barrier to optimisation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import jaxlib.mlir.ir as ir

from stablexla.builder.checking import Operands, Packed, Rules, checking
from stablexla.builder.computation import Computation, XlaComputation
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.bracket_depth import DEEPEST, too_deep
from stablexla.dialects.shapes import Shape

__all__ = ["call", "composite_call", "conditional", "optimization_barrier", "while_"]

if TYPE_CHECKING:
    from stablexla.builder.builder import XlaBuilder


@operation("stablehlo.while")
def while_(condition: Computation, body: Computation, init: Packed) -> XlaOp:
    """Applies `body` to `init` repeatedly, while `condition` holds.

    Args:
        condition: from the state to a pred scalar. It and `body` may read values around them.
        body: from the state to the next one, of the same shape.
        init: the first state: an array; a tuple for several, or a sequence, which stands for it.

    Raises:
        ShapeError: (C1) a condition of another type; (C2) a body of another type.

    Source: `While` of XLA's operation semantics; StableHLO `while`.

    >>> b = sx.XlaBuilder("example")
    >>> init = (b.constant(0), b.constant([1.0, 2.0]))
    >>> loop = sx.while_(lambda s: s[0] < 10, lambda s: (s[0] + 1, s[1] * 2), init)
    >>> print(loop.shape)
    (s32[], f32[2])
    """
    with checking("while_", init=init) as rule:
        state = rule.packed("init", init)
        test = _taking(rule, "C1", "condition", condition, state)
        rule("C1", test.result_shape == Shape("pred"), f"condition must return pred[], not {test.result_shape}")
        step = _taking(rule, "C2", "body", body, state)
        rule(
            "C2",
            step.result_shape == state.shape,
            f"body must return the state, {state.shape}, not {step.result_shape}",
        )
    read = [test.captured, step.captured]
    return state.builder.emit("stablehlo.while", [state], state.shape, regions=[test, step], region_arguments=read)


def _taking(rule: Rules, number: str, name: str, given: Computation, operand: XlaOp) -> XlaComputation:
    """The computation, which must take what has the shape of `operand`."""
    computation = operand.builder.computation(rule, name, given, [operand.shape], captures=True)
    fits = computation.parameter_shapes == (operand.shape,)
    rule(number, fits, f"{name} {computation!r} must take {operand.shape}")
    return computation


@overload
def conditional(
    pred: XlaOp,
    true_operand: Packed,
    true_computation: Computation,
    false_operand: Packed,
    false_computation: Computation,
) -> XlaOp: ...


@overload
def conditional(
    branch_index: XlaOp, branch_computations: Sequence[Computation], branch_operands: Sequence[Packed], /
) -> XlaOp: ...


@overload
def conditional(
    *, branch_index: XlaOp, branch_computations: Sequence[Computation], branch_operands: Sequence[Packed]
) -> XlaOp: ...


@operation("stablehlo.case")
def conditional(
    pred: Any = None,
    true_operand: Any = None,
    true_computation: Any = None,
    false_operand: Packed | None = None,
    false_computation: Computation | None = None,
    *,
    branch_index: XlaOp | None = None,
    branch_computations: Sequence[Computation] | None = None,
    branch_operands: Sequence[Packed] | None = None,
) -> XlaOp:
    """The result of one of several computations, each with an operand of its own; only that one runs.

    Two forms: `conditional(pred, true_operand, true_computation, false_operand, false_computation)`, and
    `conditional(branch_index, branch_computations, branch_operands)` where an s32 outside 0 to N - 1 runs the last one.
    Each takes its arguments by their places or by these names. Branches may read values around them.

    Args:
        pred: a pred scalar; or `branch_index`, an s32 scalar.
        true_operand: the first branch's operand, or the sequence `branch_computations`.
        true_computation: the first branch, or the sequence `branch_operands`.
        false_operand: the second branch's operand.
        false_computation: the second branch.
        branch_index: which branch runs.
        branch_computations: the branches.
        branch_operands: the operand of each; a sequence stands for a tuple.

    Raises:
        ShapeError: (C1) no branch, or not as many operands; (C3) branches that return different shapes; a branch that
            does not take its operand; a choice that is no scalar of pred or s32.

    Source: `Conditional` of XLA's operation semantics; StableHLO `if` and `case`.

    >>> b = sx.XlaBuilder("example")
    >>> x, p = b.parameter(0, sx.f32[2]), b.parameter(1, sx.pred[()])
    >>> sx.conditional(p, x, sx.sin, x, lambda y: y * 2)
    XlaOp(stablehlo.if, f32[2])
    >>> sx.conditional(b.parameter(2, sx.s32[()]), [sx.sin, sx.cos, sx.tan], [x, x, x])
    XlaOp(stablehlo.case, f32[2])
    """
    _refuse_other_order(pred, true_operand)
    by_place = (pred, true_operand, true_computation)
    by_name = (branch_index, branch_computations, branch_operands)
    if false_operand is None and false_computation is None:
        _refuse_both(zip(("branch_index", "branch_computations", "branch_operands"), by_name, by_place))
        return _case(*(value if named is None else named for value, named in zip(by_place, by_name)))
    _refuse_both(zip(("branch_index", "branch_computations", "branch_operands"), by_name, [True] * 3))
    return _if(*by_place, false_operand, false_computation)


def _refuse_other_order(pred: object, first: object) -> None:
    """JAX's `cond(pred, f, g, x)` has the computations first."""
    if isinstance(first, XlaComputation) or callable(first):
        with checking("conditional", pred=pred) as rule:
            summary = f"true_operand must be an operand, not the computation {told(first)}"
            rule.broken("", summary, "sx.conditional(pred, x, f, x, g): the operand of each branch comes first")


def _refuse_both(given: Iterable[tuple[str, object, object]]) -> None:
    """No argument belongs to both forms of `conditional`, or is given by name and by place."""
    with checking("conditional") as rule:
        for name, value, other in given:
            rule("", value is None or other is None, f"{name} is given beside the arguments of the other form")


_FORMS = (
    "sx.conditional(pred, true_operand, true_computation, false_operand, false_computation) or "
    "sx.conditional(branch_index, branch_computations, branch_operands)"
)


def _if(pred: object, true_operand: object, on_true: Any, false_operand: object, on_false: Any) -> XlaOp:
    with checking("conditional", pred=pred, true_operand=true_operand, false_operand=false_operand) as rule:
        p = rule.op("pred", pred)
        wanted = "pred must be pred[] where false_operand and false_computation are given"
        rule("I1", p.shape == Shape("pred"), f"{wanted}, not {p.shape}")
        x, y = rule.packed("true_operand", true_operand), rule.packed("false_operand", false_operand)
        branches = _branches(rule, p, {"true_computation": on_true, "false_computation": on_false}, [x, y])
    return _emit_branches("stablehlo.if", p, branches, [x, y])


def _case(branch_index: object, branch_computations: object, branch_operands: object) -> XlaOp:
    with checking("conditional", branch_index=branch_index, branch_operands=branch_operands) as rule:
        given = {"branch_index": branch_index, "branch_computations": branch_computations}
        for name, value in {**given, "branch_operands": branch_operands}.items():
            rule("", value is not None, f"{name} must be given", _FORMS)
        index = rule.op("branch_index", branch_index)
        rule("I1", index.shape == Shape("s32"), f"branch_index must be s32[], not {index.shape}")
        operands = _operands(rule, branch_operands)
        computations = rule.items("branch_computations", branch_computations, "a sequence of computations")
        rule("C1", bool(computations), "branch_computations must have a branch")
        rule(
            "C1",
            len(computations) == len(operands),
            f"there are {len(computations)} branch_computations, and {len(operands)} branch_operands",
        )
        named = {f"branch_computations[{n}]": each for n, each in enumerate(computations)}
        branches = _branches(rule, index, named, operands)
    return _emit_branches("stablehlo.case", index, branches, operands)


def _operands(rule: Rules, given: object) -> list[XlaOp]:
    """An operand for each branch."""
    if isinstance(given, XlaOp):
        return [given]
    found = rule.items("branch_operands", given, "a sequence of operands")
    return [rule.packed(f"branch_operands[{place}]", each) for place, each in enumerate(found)]


def _branches(rule: Rules, choice: XlaOp, named: Mapping[str, Any], operands: Sequence[XlaOp]) -> list[XlaComputation]:
    """The branches as computations; each takes its operand, and all return one shape."""
    rule.one_builder([choice, *operands])
    found = []
    for (name, given), operand in zip(named.items(), operands):
        branch = _taking(rule, "", name, given, operand)
        found.append(branch)
        first = found[0].result_shape
        rule("C3", branch.result_shape == first, f"{name} returns {branch.result_shape}, another branch {first}")
    return found


def _emit_branches(name: str, choice: XlaOp, branches: Sequence[XlaComputation], operands: Sequence[XlaOp]) -> XlaOp:
    """Branches of StableHLO take nothing: they read their operand from around them."""
    read = [[operand, *branch.captured] for operand, branch in zip(operands, branches)]
    return choice.builder.emit(name, [choice], branches[0].result_shape, regions=branches, region_arguments=read)


@operation("func.call")
def call(computation: Computation, args: Operands) -> XlaOp:
    """Applies a computation, which stays a function of its own; equal computations are one function.

    Values around a Python function that it reads are further arguments of the call.

    Where there are no arguments, `b.call(computation)` says in which builder.

    Raises:
        ShapeError: not the arguments that the computation takes.

    Source: `Call` of XLA's operation semantics; `func.call`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2])
    >>> sx.call(lambda a, c: a * c, (x, x))
    XlaOp(func.call, f32[2])
    """
    with checking("call", args=args) as rule:
        ops = rule.sequence("args", args)
        rule("", bool(ops), "without arguments there is no builder", "b.call(computation)")
        rule.one_builder(ops)
    return ops[0].builder.call(computation, ops)


@operation("stablehlo.composite")
def composite_call(
    inputs: Operands,
    name: str,
    composite_attributes: str | Mapping[str, object] | None = None,
    decomposition: Computation | None = None,
    version: int = 0,
) -> XlaOp:
    """A composite operation: a named decomposition, which a target's kernel may replace.

    Where there are no inputs, `b.composite_call((), name, ...)` says in which builder.

    Args:
        inputs: its operands.
        name: with a namespace, as "my.gelu".
        composite_attributes: its attributes, as MLIR text ("{axis = 1 : i64}") or a mapping of plain values.
        decomposition: the computation that defines it, which must be given.
        version: of that meaning.

    Raises:
        ShapeError: (C1) a name without namespace; (C3) a decomposition that does not take the inputs.

    Source: `CompositeCall` of XLA's operation semantics; StableHLO `composite`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2])
    >>> sx.composite_call(x, "my.swish", {"beta": 1}, lambda x: x * sx.logistic(x), version=1)
    XlaOp(stablehlo.composite, f32[2])
    """
    with checking("composite_call", inputs=inputs, name=name) as rule:
        ops = rule.sequence("inputs", inputs)
        rule("", bool(ops), "without inputs there is no builder", "b.composite_call((), name, ...)")
        rule.one_builder(ops)
    return composite_in(ops[0].builder, ops, name, composite_attributes, decomposition, version)


def composite_in(
    builder: XlaBuilder,
    inputs: Operands,
    name: str,
    composite_attributes: str | Mapping[str, object] | None,
    decomposition: Computation | None,
    version: int,
) -> XlaOp:
    """`composite_call` in a builder that is known."""
    builder = builder.innermost()
    with checking("composite_call", inputs=inputs, name=name) as rule:
        ops = rule.sequence("inputs", inputs)
        rule.belong(builder, inputs=ops)
        spelled = re.fullmatch(r"[A-Za-z]\w*(\.[\w$]+)+", rule.text("name", name, "C1")) is not None
        rule("C1", spelled, f"the name {told(name)} must have a namespace", '"my.name"')
        number = rule.integer("version", version, bits=32)
        if decomposition is None:
            rule.broken("", "a decomposition must be given")
        meaning = builder.computation(rule, "decomposition", decomposition, [op.shape for op in ops])
        fits = meaning.parameter_shapes == tuple(op.shape for op in ops)
        rule("C3", fits, f"decomposition {meaning!r} must take the inputs")
        attributes = _composite_attributes(rule, composite_attributes, builder)
    return builder.emit(
        "stablehlo.composite",
        ops,
        meaning.result_shape,
        {
            "name": name,
            "composite_attributes": attributes,
            "decomposition": ir.FlatSymbolRefAttr.get(builder.add_function(meaning), builder.context),
            "version": builder.i32(number),
        },
    )


def _composite_attributes(rule: Rules, given: str | Mapping[str, object] | None, builder: XlaBuilder) -> ir.Attribute:
    if not isinstance(given, str):
        return rule.attributes("composite_attributes", {} if given is None else given, builder)
    text = rule.text("composite_attributes", given)
    # MLIR's parser ends the process for these.
    rule("", bool(text), "composite_attributes must not be an empty text", '"{}"')
    rule("", too_deep(text) is None, f"composite_attributes have brackets nested more than {DEEPEST} deep")
    try:
        parsed = ir.Attribute.parse(text, builder.context)
    except ir.MLIRError as error:
        rule.broken("", f"composite_attributes {told(given)} do not parse: {error}", '"{axis = 1 : i64}"')
    rule("", isinstance(parsed, ir.DictAttr), f"composite_attributes must be a dictionary, not {told(given)}")
    return parsed


@operation("stablehlo.optimization_barrier")
def optimization_barrier(operand: Packed) -> XlaOp:
    """`operand`, all of it computed before anything that uses the result; no optimisation moves work across.

    A sequence of ops stands for their tuple.

    Source: `OptimizationBarrier` of XLA's operation semantics; StableHLO `optimization_barrier`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2])
    >>> sx.optimization_barrier((x, x))
    XlaOp(stablehlo.optimization_barrier, (f32[2], f32[2]))
    """
    with checking("optimization_barrier", operand=operand) as rule:
        x = rule.packed("operand", operand)
    return x.builder.emit("stablehlo.optimization_barrier", [x], x.shape)
