"""Control flow: loops, branches, calls of computations, composites, and the barrier to optimisation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import jaxlib.mlir.ir as ir

from stablexla.checking import Operands, Rules, checking
from stablexla.computation import Computation, XlaComputation
from stablexla.dialects.shapes import Shape
from stablexla.op import XlaOp
from stablexla.ops.registry import operation

if TYPE_CHECKING:
    from stablexla.builder import XlaBuilder


@operation("stablehlo.while")
def while_(condition: Computation, body: Computation, init: XlaOp) -> XlaOp:
    """Applies `body` to `init` again and again, as long as `condition` holds.

    Args:
        condition: from the state to a pred scalar.
        body: from the state to the next one, of the same shape.
        init: the first state: an array, or a tuple for several.

    Raises:
        ShapeError: (C1) a condition of another type; (C2) a body of another type.

    Source: `While` of XLA's operation semantics; StableHLO `while`.

    >>> b = sx.XlaBuilder("example")
    >>> init = sx.tuple((b.constant(0), b.constant([1.0, 2.0])))
    >>> loop = sx.while_(lambda s: s[0] < 10, lambda s: (s[0] + 1, s[1] * 2), init)
    >>> print(loop.shape)
    (s32[], f32[2])
    """
    with checking("while_", init=init) as rule:
        state = rule.op("init", init)
        test = _taking(rule, "C1", state.builder.computation(rule, "condition", condition, [state.shape]), state)
        rule("C1", test.result_shape == Shape("pred"), f"condition must return pred[], not {test.result_shape}")
        step = _taking(rule, "C2", state.builder.computation(rule, "body", body, [state.shape]), state)
        rule(
            "C2",
            step.result_shape == state.shape,
            f"body must return the state, {state.shape}, not {step.result_shape}",
        )
    return state.builder.emit("stablehlo.while", [state], state.shape, regions=[test, step])


def _taking(rule: Rules, number: str, computation: XlaComputation, operand: XlaOp) -> XlaComputation:
    """The computation, which must take what has the shape of `operand`."""
    fits = computation.parameter_shapes == (operand.shape,)
    rule(number, fits, f"{computation!r} must take {operand.shape}")
    return computation


@overload
def conditional(
    pred: XlaOp,
    true_operand: XlaOp,
    true_computation: Computation,
    false_operand: XlaOp,
    false_computation: Computation,
) -> XlaOp: ...


@overload
def conditional(
    branch_index: XlaOp, branch_computations: Sequence[Computation], branch_operands: Sequence[XlaOp]
) -> XlaOp: ...


@operation("stablehlo.case")
def conditional(*args: Any, **named: Any) -> XlaOp:
    """The result of one of several computations, each with an operand of its own; only that one runs.

    Two forms: `conditional(pred, true_operand, true_computation, false_operand, false_computation)`, and
    `conditional(branch_index, branch_computations, branch_operands)` where an s32 outside 0 to N - 1 runs the last one.

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
    by_pred = len(args) + len(named) > 3 or bool(set(named) & set(_BY_PRED))
    names = _BY_PRED if by_pred else _BY_INDEX
    given = dict(zip(names, args))
    if len(args) > len(names) or set(given) & set(named) or {*given, *named} != {*names}:
        raise TypeError(f"conditional() takes {', '.join(names)}")
    given.update(named)
    build = _if if by_pred else _case
    return build(*(given[name] for name in names))


_BY_PRED: Sequence[str] = ("pred", "true_operand", "true_computation", "false_operand", "false_computation")
_BY_INDEX: Sequence[str] = ("branch_index", "branch_computations", "branch_operands")


def _if(pred: object, true_operand: object, on_true: Any, false_operand: object, on_false: Any) -> XlaOp:
    with checking("conditional", pred=pred, true_operand=true_operand, false_operand=false_operand) as rule:
        p = rule.op("pred", pred)
        rule("I1", p.shape == Shape("pred"), f"pred must be pred[], not {p.shape}")
        x, y = rule.op("true_operand", true_operand), rule.op("false_operand", false_operand)
        branches = _branches(rule, p, {"true_computation": on_true, "false_computation": on_false}, [x, y])
    return _emit_branches("stablehlo.if", p, branches, [x, y])


def _case(branch_index: object, branch_computations: Any, branch_operands: Any) -> XlaOp:
    with checking("conditional", branch_index=branch_index, branch_operands=branch_operands) as rule:
        index = rule.op("branch_index", branch_index)
        rule("I1", index.shape == Shape("s32"), f"branch_index must be s32[], not {index.shape}")
        operands = rule.sequence("branch_operands", branch_operands)
        named = {f"branch_computations[{n}]": each for n, each in enumerate(branch_computations)}
        rule("C1", bool(named), "there must be a branch")
        rule(
            "C1",
            len(named) == len(operands),
            f"there are {len(named)} branch_computations, and {len(operands)} branch_operands",
        )
        branches = _branches(rule, index, named, operands)
    return _emit_branches("stablehlo.case", index, branches, operands)


def _branches(
    rule: Rules, choice: XlaOp, named: Mapping[str, Computation], operands: Sequence[XlaOp]
) -> list[XlaComputation]:
    """The branches as computations; each takes its operand, and all return one shape."""
    rule.one_builder([choice, *operands])
    found = []
    for (name, given), operand in zip(named.items(), operands):
        branch = choice.builder.computation(rule, name, given, [operand.shape])
        found.append(_taking(rule, "", branch, operand))
        first = found[0].result_shape
        rule("C3", branch.result_shape == first, f"{name} returns {branch.result_shape}, another branch {first}")
    return found


def _emit_branches(name: str, choice: XlaOp, branches: Sequence[XlaComputation], operands: Sequence[XlaOp]) -> XlaOp:
    """Branches of StableHLO take nothing: they read their operand from around them."""
    arguments = [operand.values for operand in operands]
    return choice.builder.emit(name, [choice], branches[0].result_shape, regions=branches, region_arguments=arguments)


@operation("func.call")
def call(computation: Computation, args: Operands) -> XlaOp:
    """Applies a computation, which stays a function of its own; equal computations are one function.

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
    """An operation made of others, under a name for which a target may have something better.

    Where there are no inputs, `b.composite_call((), name, ...)` says in which builder.

    Args:
        inputs: its operands.
        name: with a namespace, as "my.gelu".
        composite_attributes: its attributes, as MLIR text ("{axis = 1 : i64}") or a mapping of plain values.
        decomposition: the computation that says what it means, which must be given.
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
    with checking("composite_call", inputs=inputs, name=name) as rule:
        ops = rule.sequence("inputs", inputs)
        for number, op in enumerate(ops):
            rule("", op.builder is builder, f"inputs[{number}] belongs to the builder {op.builder.name!r}")
        spelled = isinstance(name, str) and re.fullmatch(r"[A-Za-z]\w*(\.[\w$]+)+", name) is not None
        rule("C1", spelled, f"the name {name!r} must have a namespace", '"my.name"')
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
            "version": builder.i32(rule.integer("version", version)),
        },
    )


def _composite_attributes(rule: Rules, given: str | Mapping[str, object] | None, builder: XlaBuilder) -> ir.Attribute:
    context = builder.context
    if isinstance(given, str):
        try:
            parsed = ir.Attribute.parse(given, context)
        except ir.MLIRError as error:
            rule.broken("", f"composite_attributes {given!r} do not parse: {error}", '"{axis = 1 : i64}"')
        rule("", isinstance(parsed, ir.DictAttr), f"composite_attributes must be a dictionary, not {given!r}")
        return parsed
    made = {key: builder.attribute(value) for key, value in (given or {}).items()}
    return ir.DictAttr.get(made, context)


@operation("stablehlo.optimization_barrier")
def optimization_barrier(operand: XlaOp) -> XlaOp:
    """`operand`, all of it computed before anything that uses the result; no optimisation moves work across.

    Source: `OptimizationBarrier` of XLA's operation semantics; StableHLO `optimization_barrier`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2])
    >>> sx.optimization_barrier(sx.tuple((x, x)))
    XlaOp(stablehlo.optimization_barrier, (f32[2], f32[2]))
    """
    with checking("optimization_barrier", operand=operand) as rule:
        x = rule.op("operand", operand)
    return x.builder.emit("stablehlo.optimization_barrier", [x], x.shape)
