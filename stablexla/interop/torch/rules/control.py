"""Higher-order operators: branches, loops, scans, and graphs that are called as they are.

A graph's operands may be numbers as well as tensors. Random draws differ by iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.fx import GraphModule

import stablexla as sx
from stablexla.dialects.errors import UnsupportedError
from stablexla.interop.torch.call import Call, convert
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.types import Number


def _as_pred(x: sx.XlaOp) -> sx.XlaOp:
    return sx.reshape(convert(x, "pred"), ())


def _draws(graph: GraphModule) -> bool:
    """Return whether a graph, or one in it, draws random numbers."""
    graphs = [each for each in graph.modules() if isinstance(each, GraphModule)]
    targets = [node.target for each in graphs for node in each.graph.nodes]
    return any(torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) for target in targets)


# ---- graphs that are called ----


@aten("higher_order.wrap", "higher_order.tag_activation_checkpoint", "higher_order.wrap_activation_checkpoint")
def wrap(call: Call, graph: GraphModule, *operands: Any, **_: Any) -> list[Any]:
    return call.translator.run(graph, operands)


@aten("higher_order.wrap_with_set_grad_enabled")
def wrap_with_set_grad_enabled(call: Call, enabled: bool, graph: GraphModule, *operands: Any) -> list[Any]:
    return call.translator.run(graph, operands)


@aten("higher_order.wrap_with_autocast")
def wrap_with_autocast(
    call: Call, device: str, dtype: Any, enabled: bool, cached: bool | None, graph: GraphModule, *operands: Any
) -> list[Any]:
    """The graph has the conversions that the mode asks for."""
    return call.translator.run(graph, operands)


@aten("higher_order.invoke_subgraph")
def invoke_subgraph(call: Call, graph: GraphModule, identifier: str, *operands: Any) -> list[Any]:
    return call.translator.run(graph, operands)


@aten("higher_order.run_const_graph", "higher_order.strict_mode")
def run_const_graph(call: Call, graph: GraphModule, operands: Sequence[Any]) -> list[Any]:
    return call.translator.run(graph, operands)


@aten("higher_order.hints_wrapper")
def hints_wrapper(
    call: Call, graph: GraphModule, operands: Sequence[Any], named: dict[str, Any], *, hints: Any = None
) -> list[Any]:
    return call.translator.run(graph, [*operands, *named.values()])


@aten("higher_order.out_dtype")
def out_dtype(call: Call, operator: Any, dtype: torch.dtype, *operands: Any) -> sx.XlaOp:
    """An operator, such as a product of s8, computed in the result's type."""
    wide = [convert(x, call.type) if isinstance(x, sx.XlaOp) else x for x in operands]
    made: sx.XlaOp = call.apply(str(operator), *wide)
    return made


# ---- branches ----


@aten("higher_order.cond")
def cond(call: Call, choice: Any, on_true: GraphModule, on_false: GraphModule, operands: Sequence[Any]) -> list[Any]:
    if not isinstance(choice, sx.XlaOp):
        return call.translator.run(on_true if choice else on_false, operands)
    others: list[list[Any]] = []  # what is no tensor, of each branch

    def branch(graph: GraphModule) -> Callable[[sx.XlaOp], sx.XlaOp]:
        def run(_: sx.XlaOp) -> sx.XlaOp:
            made = call.translator.run(graph, operands)
            others.append([None if isinstance(x, sx.XlaOp) or shape else x for x, shape in zip(made, call.shapes)])
            return sx.tuple([call.op(x, shape.element_type) for x, shape in zip(made, call.shapes) if shape])

        return run

    pred = _as_pred(choice)
    made = sx.conditional(pred, pred, branch(on_true), pred, branch(on_false))
    if any(first != second for first, second in zip(*others)):
        raise UnsupportedError(
            f"its branches return different numbers, {others[0]} and {others[1]}", hint="torch.tensor(number)"
        )
    tensors = iter(made)
    return [next(tensors) if shape else other for other, shape in zip(others[0], call.shapes)]


# ---- loops ----


class _Body:
    """A loop's graph as a function of tensors alone: numbers among its operands stay outside of the loop.

    Args:
        call: of the operator.
        graph: takes the loop's values and further operands.
        like: the loop's values where it begins.
        others: the further operands.
    """

    def __init__(self, call: Call, graph: GraphModule, like: Sequence[Any], others: Sequence[Any]) -> None:
        self._run = call.translator.run
        self._graph, self._others = graph, others
        self._shapes = [x.shape for x in like]
        self._iteration = call.translator.iteration if _draws(graph) else None

    def __call__(self, values: Sequence[sx.XlaOp], number: sx.XlaOp) -> list[Any]:
        with self._iteration(number) if self._iteration else nullcontext():
            return self._run(self._graph, [*values, *self._others])

    def following(self, values: Sequence[sx.XlaOp], number: sx.XlaOp) -> list[Any]:
        """Return the next values, in the types of those where the loop begins, and what else the graph returns."""
        made = self(values, number)
        carried = [convert(x, shape.element_type) for x, shape in zip(made, self._shapes)]
        return [*carried, *made[len(carried) :]]


def _carried(call: Call, values: Sequence[Any]) -> list[sx.XlaOp]:
    """Return a loop's first values as tensors."""
    return [x if isinstance(x, sx.XlaOp) else _number(call, x) for x in values]


def _number(call: Call, value: Number) -> sx.XlaOp:
    return call.constant(value, {bool: "pred", int: "s64", float: "f64", complex: "c128"}[type(value)])


@aten("higher_order.while_loop")
def while_loop(
    call: Call, condition: GraphModule, body: GraphModule, carried: Sequence[Any], others: Sequence[Any], **_: Any
) -> list[Any]:
    first = _carried(call, carried)
    step, test = (_Body(call, graph, first, others) for graph in (body, condition))

    def goes_on(state: sx.XlaOp) -> sx.XlaOp:
        number, *values = state
        return _as_pred(test(values, number)[0])

    def next_state(state: sx.XlaOp) -> sx.XlaOp:
        number, *values = state
        return sx.tuple([sx.add(number, 1), *step.following(values, number)])

    made = sx.while_(goes_on, next_state, [call.constant(0, "s64"), *first])
    return list(made)[1:]


@aten("higher_order.while_loop_stack_output")
def while_loop_stack_output(call: Call, *_: Any) -> list[Any]:
    raise UnsupportedError(
        "the gradient of a loop needs the values of all its iterations, whose number is not known",
        hint="torch._higher_order_ops.scan, over a known number of iterations",
    )


@aten("higher_order.scan")
def scan(
    call: Call, graph: GraphModule, init: Sequence[Any], xs: Sequence[sx.XlaOp], others: Sequence[Any]
) -> list[Any]:
    return _scanned(call, graph, _carried(call, init), xs, others)


@aten("higher_order.map_impl")
def map(call: Call, graph: GraphModule, xs: Sequence[sx.XlaOp], others: Sequence[Any]) -> list[Any]:
    return _scanned(call, graph, [], xs, others)


def _scanned(
    call: Call, graph: GraphModule, init: Sequence[sx.XlaOp], xs: Sequence[sx.XlaOp], others: Sequence[Any]
) -> list[Any]:
    """Return the last values that are carried, and the outputs of all iterations, None where a graph returns it."""
    step = _Body(call, graph, init, others)
    count, stacked = len(init), call.shapes[len(init) :]

    def computation(*values: sx.XlaOp) -> sx.XlaOp:
        slices, carry, number = values[: len(xs)], values[len(xs) : -1], values[-1]
        made = step.following([*carry, *slices], number)
        outputs = [call.op(x, shape.element_type) for x, shape in zip(made[count:], stacked) if shape]
        return sx.tuple([*outputs, *made[:count], sx.add(number, 1)])

    made = list(sx.scan(list(xs), [*init, call.constant(0, "s64")], computation, 0))
    outputs = iter(made[: len(made) - count - 1])
    return [*made[len(made) - count - 1 : -1], *(next(outputs) if shape else None for shape in stacked)]


@aten("higher_order.associative_scan")
def associative_scan(
    call: Call, graph: GraphModule, xs: Sequence[sx.XlaOp], others: Sequence[Any]
) -> Sequence[sx.XlaOp]:
    """One slice after another: n combinations, each of whole slices, where the tree of PyTorch makes 2 n."""
    size = xs[0].shape.dimensions[0]
    if size < 2:
        return xs
    first = [sx.slice_in_dim(x, 0, 1, dimno=0) for x in xs]
    init = [sx.reshape(x, x.shape.dimensions[1:]) for x in first]
    rest = [sx.slice_in_dim(x, 1, size, dimno=0) for x in xs]
    step = _Body(call, graph, init, others)

    def computation(*values: sx.XlaOp) -> sx.XlaOp:
        slices, carry = values[: len(xs)], values[len(xs) :]
        made = step.following([*carry, *slices], call.constant(0, "s64"))
        return sx.tuple([*made, *made])

    made = list(sx.scan(rest, init, computation, 0))
    return [sx.concatenate(pair, 0) for pair in zip(first, made)]
