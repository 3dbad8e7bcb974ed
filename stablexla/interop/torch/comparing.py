"""A program beside eager PyTorch, operator by operator: each is judged on its operands in the program's own run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from stablexla.dialects.display.html_table import html_table
from stablexla.dialects.display.tables import plain_table
from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.lines import line_of


@dataclass(frozen=True)
class OperatorDifference:
    """How far an operator's result is from eager PyTorch's, for the same operands.

    Attributes:
        operator: its full name.
        result: element type and sizes.
        line: the user's.
        absolute: the largest difference.
        relative: the largest one, as a part of PyTorch's number.
        is_right: whether both are within the tolerances of `torch.testing.assert_close`.
    """

    operator: str
    result: str
    line: str
    absolute: float
    relative: float
    is_right: bool


class TorchComparison:
    """The differences of all operators, in the program's order. It is true if all are right, and prints as a table.

    Attributes:
        rows: an `OperatorDifference` for each result that is a tensor.
    """

    def __init__(self, rows: Sequence[OperatorDifference]) -> None:
        self.rows = list(rows)

    def __bool__(self) -> bool:
        return all(row.is_right for row in self.rows)

    @property
    def first_wrong(self) -> OperatorDifference | None:
        """The first operator that is not right."""
        return next((row for row in self.rows if not row.is_right), None)

    _HEADS = ("operator", "result", "absolute", "relative", "", "line")

    def _cells(self) -> list[list[str]]:
        return [
            [r.operator, r.result, f"{r.absolute:.1e}", f"{r.relative:.1e}", "" if r.is_right else "wrong", r.line]
            for r in self.rows
        ]

    def __repr__(self) -> str:
        wrong = sum(not row.is_right for row in self.rows)
        count = f"{len(self.rows)} operator" + ("s" if len(self.rows) != 1 else "")
        title = f"{count} beside eager PyTorch, {wrong} wrong"
        return "\n".join(plain_table(self._HEADS, self._cells(), ("absolute", "relative"), title))

    def _repr_html_(self) -> str:
        return html_table(self._HEADS, self._cells(), ("absolute", "relative"))


def compare(graph: GraphModule, inputs: Sequence[Any]) -> TorchComparison:
    """Run a graph with all its results kept, and each of its operators in eager PyTorch on the operands of that run.

    Args:
        graph: a functional graph.
        inputs: its tensors and numbers, which stay as they are.
    """
    nodes = [node for node in graph.graph.nodes if _is_tensor(node) and node.op == "call_function"]
    with_all = GraphModule(graph, deepcopy(graph.graph))
    copies = dict(zip((n.name for n in graph.graph.nodes), with_all.graph.nodes, strict=True))
    (output,) = with_all.graph.find_nodes(op="output")
    output.args = ([copies[node.name] for node in nodes],)
    given = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    made = dict(zip(nodes, CompiledGraph(with_all, given, name="compared")(given), strict=True))
    made |= dict(zip(graph.graph.find_nodes(op="placeholder"), given, strict=True))
    with torch.no_grad():
        found = [_judged(node, graph, made) for node in nodes]
    return TorchComparison([row for row in found if row is not None])


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _judged(node: Node, graph: GraphModule, made: Mapping[Node, Any]) -> OperatorDifference | None:
    """Return a node's difference; None where it draws random numbers."""
    ours = made[node]
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return None
    theirs = _eager(node, graph, made)
    if not isinstance(theirs, torch.Tensor):
        return None
    try:
        torch.testing.assert_close(ours, theirs, equal_nan=True, check_stride=False)
        is_right = True
    except AssertionError:
        is_right = False
    wide = torch.complex128 if theirs.is_complex() else torch.float64
    apart = (ours.to(wide) - theirs.to(wide)).abs().nan_to_num(0.0)
    part = (apart / theirs.to(wide).abs()).nan_to_num(0.0)
    line = line_of(node)
    return OperatorDifference(
        operator=str(node.target),
        result=f"{str(theirs.dtype).removeprefix('torch.')}{list(theirs.shape)}",
        line="" if line is None else f"{line.file}:{line.line}",
        absolute=float(apart.max()) if apart.numel() else 0.0,
        relative=float(part.max()) if part.numel() else 0.0,
        is_right=is_right,
    )


def _eager(node: Node, graph: GraphModule, made: Mapping[Node, Any]) -> Any:
    """Return eager PyTorch's result of a node; operands that are no tensors, such as tuples, are computed again."""

    def value(operand: Node) -> Any:
        if operand in made:
            held = made[operand]
            return held.clone() if isinstance(held, torch.Tensor) else held
        if operand.op == "get_attr":
            return pytree.tree_map(lambda x: x, _attribute(graph, str(operand.target)))
        return _eager(operand, graph, made)

    args, kwargs = map_arg((node.args, dict(node.kwargs)), value)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _attribute(graph: GraphModule, target: str) -> Any:
    value: Any = graph
    for part in target.split("."):
        value = getattr(value, part)
    return value
