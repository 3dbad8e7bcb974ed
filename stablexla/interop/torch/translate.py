"""From a graph of PyTorch's operators to a computation of XLA's: node by node, each by its rule."""

from __future__ import annotations

import operator as python
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from sympy import Integer
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.dialects.errors import StablexlaError, UnsupportedError
from stablexla.dialects.shapes import Shape
from stablexla.interop.torch.call import Call, broadcast, convert, unknown_size
from stablexla.interop.torch.constant_folding import ConstantFolding, with_ops
from stablexla.interop.torch.decompositions import decomposed
from stablexla.interop.torch.lines import called_from, line_of
from stablexla.interop.torch.registry import load_rules
from stablexla.interop.torch.tensors import as_array
from stablexla.interop.torch.types import xla_type

# Python's operators, which ops have as well.
_ARITHMETIC = {
    getattr(python, name) for name in ("add", "sub", "mul", "neg", "lt", "le", "gt", "ge", "eq", "ne", "and_", "or_")
}


class Translator:
    """Builds one computation from a graph and the graphs in it.

    Args:
        name: of the computation.

    Attributes:
        builder: what it builds with.
        parameters: the computation's.
        changed: the new values of inputs that the graph changes, by the inputs' numbers.
        state: the parameter that is the state of the random number generator, where the graph draws.
        sizes: the numbers of the graph's symbolic sizes.
        node: the node that is being built.
    """

    def __init__(self, name: str) -> None:
        self.builder = sx.XlaBuilder(name)
        self.parameters: list[XlaOp] = []
        self.changed: dict[int, XlaOp] = {}
        self.state: XlaOp | None = None
        self.sizes: dict[Any, Integer] = {}
        self.node: Node | None = None
        self._draws = 0
        self._iterations: list[XlaOp] = []
        self._inputs: Sequence[Any] | None = None
        self._folding = ConstantFolding(self.frozen)

    def parameter(self, shape: Shape, name: str = "") -> XlaOp:
        """Return the next parameter of the computation."""
        self.parameters.append(self.builder.parameter(len(self.parameters), shape, name))
        return self.parameters[-1]

    def seed(self) -> XlaOp:
        """Return the state of the generator for one draw, u64[2]; the first one adds a parameter."""
        if self.state is None:
            self.state = self.parameter(sx.u64[2], "seed")
        self._draws += 1
        state = self.state
        for number in self._iterations:
            # No draw counts its blocks from the upper half on.
            counter = sx.add(sx.convert_element_type(number, "u64"), 1 << 63)
            key = sx.concatenate([sx.slice(state, [0], [1]), sx.reshape(counter, (1,))], 0)
            _, state = sx.rng_bit_generator("rng_philox", key, sx.u64[2])
        # The second number counts blocks: no draw of one array takes 2**40 of them.
        return sx.add(state, self.builder.constant([0, self._draws << 40], "u64"))

    @contextmanager
    def iteration(self, number: XlaOp) -> Iterator[None]:
        """Let what is built draw other numbers in each iteration of a loop.

        Args:
            number: of the iteration, an integer of the body's.
        """
        self._iterations.append(number)
        try:
            yield
        finally:
            self._iterations.pop()

    @contextmanager
    def drawing(self, state: XlaOp) -> Iterator[None]:
        """Let what is built draw its numbers from a state, u64[2], that draws of the graph had or will have."""
        outside = self.state, self._draws, self._iterations
        _, self.state = sx.rng_bit_generator("rng_philox", sx.xor(state, 1 << 63), sx.u64[2])
        self._draws, self._iterations = 0, []
        try:
            yield
        finally:
            self.state, self._draws, self._iterations = outside

    def change(self, op: XlaOp, value: XlaOp) -> XlaOp:
        """Note the new value of an input of the outermost graph, and return it.

        Raises:
            UnsupportedError: it is no input.
        """
        number = next((n for n, each in enumerate(self._inputs or ()) if each is op), None)
        if number is None:
            raise UnsupportedError("a tensor that is no input is changed in place")
        self.changed[number] = broadcast(convert(value, op.element_type), op.shape.dimensions)
        return self.changed[number]

    # ---- graphs ----

    def run(self, graph: GraphModule, inputs: Sequence[Any]) -> list[Any]:
        """Build a graph for these inputs, and return its outputs: ops, numbers and None."""
        values: dict[Node, Any] = {}
        given = iter(inputs)
        self._inputs = inputs if self._inputs is None else self._inputs
        last = {read: node for node in graph.graph.nodes for read in node.all_input_nodes}
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given, None)
                self._bind(node.meta.get("val"), values[node])
            elif node.op == "get_attr":
                values[node] = self._attribute(graph, node.target)
            elif node.op == "output":
                return list(pytree.tree_leaves(with_ops(map_arg(node.args[0], values.__getitem__)), is_leaf=_is_none))
            else:
                values[node] = self._value(node, values)
                for read in node.all_input_nodes:  # of large weights not all steps are kept
                    if last[read] is node:
                        values.pop(read, None)
        raise AssertionError("a graph without an output")

    def _attribute(self, graph: GraphModule, target: str) -> Any:
        value: Any = graph
        for part in target.split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            return value
        return self.tensor(value)

    def tensor(self, value: torch.Tensor) -> XlaOp:
        """Return a tensor of the graph's own as a constant."""
        return self.builder.constant(as_array(value.detach().contiguous()))

    def frozen(self, value: torch.Tensor) -> XlaOp:
        """Return a parameter as a constant, a large one in the tensor's own memory."""
        array = as_array(value.detach().contiguous())
        array.flags.writeable = False  # by us
        op = self.builder.constant(array)
        self._folding.add(op, value.detach())
        return op

    def _bind(self, wanted: Any, value: Any) -> None:
        """Remember the numbers of an input's symbolic sizes."""
        sizes: Sequence[Any] = (wanted,)
        numbers: Sequence[Any] = (value,)
        if isinstance(wanted, torch.Tensor) and isinstance(value, XlaOp):
            sizes, numbers = wanted.shape, value.shape.dimensions
        for size, number in zip(sizes, numbers, strict=True):
            if isinstance(size, torch.SymInt) and isinstance(number, int):
                self.sizes[size.node.expr] = Integer(number)

    def concrete(self, size: Any) -> int | None:
        """Return a size of the graph as a number; None where it is not known."""
        if not isinstance(size, torch.SymInt):
            return int(size)
        number = size.node.expr.xreplace(self.sizes)
        return int(number) if number.is_Integer else None

    def _shape(self, wanted: Any) -> Shape | None:
        """Return the shape of a result that PyTorch has noted; None for what is no tensor, or of unknown size."""
        if not isinstance(wanted, torch.Tensor):
            return None
        sizes = [self.concrete(size) for size in wanted.shape]
        return None if None in sizes else Shape(xla_type(wanted.dtype), [s for s in sizes if s is not None])

    # ---- nodes ----

    def _value(self, node: Node, values: Mapping[Node, Any]) -> Any:
        args, kwargs = map_arg((node.args, dict(node.kwargs)), values.__getitem__)

        def build() -> Any:
            return self._built(node, *with_ops((args, kwargs)))

        folded = self._folding.fold(node, args, kwargs, build)
        return build() if folded is None else folded

    def _built(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return called_from(node, lambda: self._called(node, args, kwargs))
        except UnsupportedError as error:
            if error.operation:
                raise
            call = told_call(node.target, args, kwargs)
            raise UnsupportedError(error.summary, operation=call, source=line_of(node), hint=error.hint) from None
        except Exception as error:  # the operator's arguments, or its rule's mistake
            told = error.summary if isinstance(error, StablexlaError) else f"{type(error).__name__}: {error}"
            call = told_call(node.target, args, kwargs)
            raise UnsupportedError(f"cannot be built: {told}", operation=call, source=line_of(node)) from error

    def _called(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = node.target
        if target is python.getitem:
            return args[0][args[1]]
        if target is torch.ops.aten.copy_.default:
            return self.change(args[0], args[1])
        if not isinstance(target, torch._ops.OperatorBase):
            assert callable(target)
            if target in _ARITHMETIC:
                return target(*args)  # on sizes, or on numbers that a loop carries
            if any(isinstance(leaf, XlaOp) for leaf in pytree.tree_leaves((args, kwargs))):
                raise unknown_size()
            return target(*args, **kwargs)  # arithmetic on sizes
        self.node = node
        wanted = node.meta.get("val")
        shapes = [self._shape(each) for each in (wanted if isinstance(wanted, (tuple, list)) else (wanted,))]
        return self.apply(target, args, kwargs, shapes)

    def apply(
        self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Sequence[Shape | None]
    ) -> Any:
        """Return the results of an operator by its rule, or by PyTorch's decomposition of it.

        Args:
            operator: one of PyTorch's, or its full name.
            args, kwargs: its arguments: ops, numbers and what else PyTorch takes.
            shapes: of its results.
        """
        if isinstance(operator, str):
            namespace, packet, overload = operator.split(".")
            operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
        rule = load_rules().get(_name(operator))
        if rule is not None:
            schema = getattr(operator, "_schema", None)
            places, names = rule.arguments(schema, args, kwargs)
            return _conforming(rule.function(Call(self, operator, shapes), *places, **names), shapes)
        if not isinstance(operator, torch._ops.OpOverload):
            raise UnsupportedError("there is no rule for this higher-order operator")
        if torch.Tag.dynamic_output_shape in operator.tags or torch.Tag.data_dependent_output in operator.tags:
            raise unknown_size()
        graph = decomposed(operator, args, kwargs)
        if graph is None:
            raise UnsupportedError("there is no rule for this operator, and PyTorch does not decompose it")
        made = self.run(graph, [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, XlaOp)])
        return made if len(operator._schema.returns) > 1 or _returns_list(operator) else made[0]


def _name(operator: Any) -> str:
    return str(operator) if isinstance(operator, torch._ops.OpOverload) else f"higher_order.{operator.name()}"


def _returns_list(operator: Any) -> bool:
    return "List" in str(operator._schema.returns[0].type)


def _is_none(value: Any) -> bool:
    return value is None


def _conforming(made: Any, shapes: Sequence[Shape | None]) -> Any:
    """Return results in the element types that PyTorch gives them."""
    if isinstance(made, XlaOp):
        return _of_shape(made, shapes[0]) if len(shapes) == 1 else made
    if isinstance(made, (tuple, list)) and len(made) == len(shapes):
        return [_of_shape(each, shape) if isinstance(each, XlaOp) else each for each, shape in zip(made, shapes)]
    return made


def _of_shape(made: XlaOp, wanted: Shape | None) -> XlaOp:
    if wanted is None or not made.shape.is_array:
        return made
    made = convert(made, wanted.element_type)
    assert made.shape == wanted, f"the rule made {made.shape} in the place of {wanted}"
    return made


def told_call(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the call of an operator for an error: its name, the shapes of tensors, and numbers.

    >>> told_call("aten.add.Tensor", (1, 2.0), {"alpha": 3})
    'aten.add.Tensor(1, 2.0, alpha=3)'
    """

    def told(value: Any) -> str:
        if isinstance(value, XlaOp):
            return str(value.shape)
        if isinstance(value, (tuple, list)):
            return "[" + ", ".join(map(told, value)) + "]"
        return value.__class__.__name__ if isinstance(value, GraphModule) else str(value)

    given = [*map(told, args), *(f"{name}={told(value)}" for name, value in kwargs.items())]
    return f"{target}({', '.join(given)})"
