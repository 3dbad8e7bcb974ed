"""XlaBuilder: builds a computation, one StableHLO operation at a time, and verifies it.

The operations are the functions of ops/; they check their operands and emit through the builder.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.builder.aliases import Aliases, Aliasing
from stablexla.builder.annotations import SHARDING, Annotations
from stablexla.builder.checking import Operands, Packed, Rules, checking
from stablexla.builder.computation import Computation, FunctionTable, XlaComputation, functions
from stablexla.builder.constant_parts import drop_unused, is_constant
from stablexla.builder.constants import as_array, constant_attribute
from stablexla.builder.device_pairs import channel_number, checked_pairs
from stablexla.builder.dynamic_shapes import dynamic_result, in_steps, needs_steps
from stablexla.builder.op import XlaOp
from stablexla.builder.operators import operator
from stablexla.builder.registry import NUMBER, REGISTRY, operation
from stablexla.builder.source import Locations, ends_at_user, user_line
from stablexla.builder.tracing import Nesting, title_of, trace
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.constants import is_splat
from stablexla.dialects.contexts import MOST_CONSTANT_BYTES, diagnostics, new_stablehlo_context, stablehlo_context
from stablexla.dialects.element_types import BY_DTYPE, ElementType
from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import ShapeError, VerificationError
from stablexla.dialects.shapes import Shape
from stablexla.dialects.uncopied import Uncopied

_local = threading.local()
_Attributes = dict[str, ir.Attribute]


class _Cache:
    """The builders' cache for one thread: context, types and locations.

    Attributes:
        taken: bytes of constants in the context, which frees none.
        unfinished: builders that have built nothing yet, and whose functions' builders are to have the same context.
    """

    def __init__(self, context: ir.Context) -> None:
        self.context = context
        self.taken = 0
        self.unfinished: weakref.WeakSet[XlaBuilder] = weakref.WeakSet()
        self.locations = Locations(self.context)
        self._types: dict[Shape, ir.Type] = {}

    def type_of(self, leaf: Shape) -> ir.Type:
        """Return the MLIR type of an array or token."""
        found = self._types.get(leaf)
        if found is None:
            found = self._types[leaf] = ir.Type.parse(leaf.mlir, self.context)
        return found


def _cache() -> _Cache:
    cache: _Cache | None = getattr(_local, "cache", None)
    if cache is None:
        cache = _local.cache = _Cache(stablehlo_context())
    elif cache.taken > MOST_CONSTANT_BYTES and not cache.unfinished:
        cache = _local.cache = _Cache(new_stablehlo_context())
    return cache


class XlaBuilder(Annotations, Aliases, Nesting, Uncopied):
    """Collects the operations of one computation.

    Args:
        name: of the computation and of its module.

    Raises:
        ShapeError: a name that is no text.

    >>> b = sx.XlaBuilder("affine")
    >>> x = b.parameter(0, sx.f32[2, 3], name="x")
    >>> v = b.parameter(1, sx.f32[3], name="v")
    >>> b.build(sx.add(x, v, broadcast_dimensions=(1,)))
    XlaComputation('affine', (f32[2,3], f32[3]) -> f32[2,3])
    """

    _in_place = "b.build(root).bytecode() for another process"

    def __init__(self, name: str) -> None:
        with checking("XlaBuilder") as rule:
            name = rule.text("name", name)
        self._begin(name, _cache())

    def _begin(self, name: str, cache: _Cache, outer: XlaBuilder | None = None) -> None:
        self.name = name
        """The name of the computation and of its module."""
        self._cache = cache
        self._cache.unfinished.add(self)
        self.context = self._cache.context
        """The MLIR context of all that it emits."""
        self._module = ir.Module.create(ir.Location.unknown(self.context))
        self._functions = FunctionTable(self._module)
        no_type = ir.FunctionType.get([], [], self.context)
        self._main = ir.Operation.create(
            "func.func",
            attributes={
                "sym_name": self.attribute("main"),
                "sym_visibility": self.attribute("public"),
                "function_type": ir.TypeAttr.get(no_type, self.context),
            },
            regions=1,
            loc=self._cache.locations.here(),
            ip=ir.InsertionPoint(self._module.body),
        )
        self._block = ir.Block.create_at_start(self._main.regions[0])
        self._end = ir.InsertionPoint(self._block)
        self._parameters: dict[int, _Parameter] = {}
        self._last: XlaOp | None = None
        self._token: XlaOp | None = None
        self._parent: XlaBuilder | None = None
        self._begin_nesting(outer)
        self._begin_annotations()
        self._begin_aliases()

    def __repr__(self) -> str:
        return f"XlaBuilder({self.name!r})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            from stablexla.builder.names import hint_for_builder, no_attribute

            raise no_attribute("XlaBuilder", name, hint_for_builder(name))

    # Operations without operands.

    @operation(family="constants")
    def parameter(self, number: int, shape: Shape, name: str = "") -> XlaOp:
        """Return the computation's parameter of this number; they may come in any order.

        Args:
            number: from 0 on, each given once.
            shape: its shape, which may be a tuple.
            name: a name for readers, kept as the MLIR location.

        Raises:
            ShapeError: a number that is negative or taken, a shape that is none.

        Source: `Parameter` of XLA's builder.

        >>> b = sx.XlaBuilder("example")
        >>> b.parameter(0, sx.f32[2, 3], "x")
        XlaOp(parameter, f32[2,3])
        """
        with checking("parameter", number=number, shape=shape, name=name) as rule:
            number, shape = rule.integer("number", number), rule.shape("shape", shape)
            name = rule.text("name", name)
            rule("", number >= 0, "number must not be negative")
            rule("", number not in self._parameters, f"there is a parameter {number} already")
        location = self._cache.locations.named(name)
        values = tuple(self._block.add_argument(self._cache.type_of(leaf), location) for leaf in shape.leaves)
        self._annotate(values)
        op = XlaOp(self, shape, values, "parameter")
        self._parameters[number] = _Parameter(op, name)
        self._last = op
        return op

    @operation("stablehlo.constant", family="constants")
    def constant(self, value: object, element_type: object = None) -> XlaOp:
        """Return a constant: a Python number, nested lists of them, or a numpy (or ml_dtypes) array or scalar.

        Python's numbers are pred, s32, f32 or c64; arrays and numpy scalars keep their type. A large array that is
        read-only is not copied: nobody may change it before the program is compiled.

        Args:
            value: the value.
            element_type: the element type to give it, where nothing but precision is lost by that.

        Raises:
            ShapeError: a value that is out of the element type's range or of another kind.

        Source: `ConstantLiteral` of XLA's builder; StableHLO `constant`.

        >>> b = sx.XlaBuilder("example")
        >>> b.constant([[1, 2], [3, 4]])
        XlaOp(stablehlo.constant, s32[2,2])
        >>> b.constant(1.5, "bf16")
        XlaOp(stablehlo.constant, bf16[])
        """
        with checking("constant", value=value, element_type=element_type) as rule:
            wanted = None if element_type is None else rule.element_type("element_type", element_type)
            array = as_array(value, wanted)
        shape = Shape(BY_DTYPE[array.dtype], array.shape)
        attribute = constant_attribute(array, self._cache.type_of(shape))
        self._cache.taken += array.itemsize if is_splat(attribute) else array.nbytes
        return self.emit("stablehlo.constant", [], shape, {"value": attribute})

    @operation("stablehlo.iota", NUMBER, family="constants")
    def iota(self, shape: Shape | ElementType, iota_dimension: int) -> XlaOp:
        """Return an array that counts from 0 along one dimension.

        Args:
            shape: of the array; or an element type, for an array of rank 1.
            iota_dimension: along which it counts; or, after an element type, its size.

        Raises:
            ShapeError: (C1) no such dimension; a shape that is none, or is dynamic; elements that are no numbers.

        Source: `Iota` of XLA's operation semantics; StableHLO `iota`.

        >>> b = sx.XlaBuilder("example")
        >>> b.iota(sx.s32[4, 8], 1)
        XlaOp(stablehlo.iota, s32[4,8])
        >>> b.iota(sx.s32, 8)
        XlaOp(stablehlo.iota, s32[8])
        """
        with checking("iota", shape=shape, iota_dimension=iota_dimension) as rule:
            if isinstance(shape, ElementType):
                shape, iota_dimension = Shape(shape, (rule.integer("iota_dimension", iota_dimension),)), 0
            shape = rule.array_shape("shape", shape)
            rule("", shape.is_static, "shape must be static", "sx.set_dimension_size(b.iota(...), size, dimension)")
            rule(
                "",
                shape.element_type.kind in NUMBER,
                f"the element type must be a number's, not {shape.element_type}",
            )
            dimension = rule.integer("iota_dimension", iota_dimension)
            rule.place("C1", dimension, shape.rank, f"iota_dimension must be a dimension of {shape}")
        return self.emit("stablehlo.iota", [], shape, {"iota_dimension": dimension})

    @operation("stablehlo.create_token", family="effects")
    def create_token(self) -> XlaOp:
        """Return a token, from which a chain of operations with effects can start.

        Source: `CreateToken` of XLA's builder; `stablehlo.create_token`.

        >>> sx.XlaBuilder("example").create_token()
        XlaOp(stablehlo.create_token, token)
        """
        return self.emit("stablehlo.create_token", [], Shape.token())

    def empty_tuple(self) -> XlaOp:
        """Return the tuple of no elements, for a computation that takes or returns nothing.

        >>> sx.XlaBuilder("example").empty_tuple()
        XlaOp(tuple, ())
        """
        return self.innermost().wrap(Shape.tuple(()), (), "tuple")

    @operation("stablehlo.replica_id", family="collectives")
    def replica_id(self) -> XlaOp:
        """Return the number of the replica that runs the program.

        Source: `ReplicaId` of XLA's operation semantics; StableHLO `replica_id`.

        >>> sx.XlaBuilder("example").replica_id()
        XlaOp(stablehlo.replica_id, u32[])
        """
        return self.emit("stablehlo.replica_id", [], Shape("u32"))

    @operation("stablehlo.partition_id", family="collectives")
    def partition_id(self) -> XlaOp:
        """Return the number of the partition that runs the program.

        Source: StableHLO `partition_id`.

        >>> sx.XlaBuilder("example").partition_id()
        XlaOp(stablehlo.partition_id, u32[])
        """
        return self.emit("stablehlo.partition_id", [], Shape("u32"))

    @operation("stablehlo.infeed", family="effects")
    def infeed(self, shape: Shape, token: XlaOp | None = None, config: str = "") -> XlaOp:
        """Data of this shape from the device's infeed.

        Args:
            shape: an array's, or a tuple's of arrays.
            token: its predecessor. Without one, the infeeds of a builder execute in program order.
            config: a text that is kept.

        Returns:
            The data; with a token, the tuple of the data and the next token.

        Raises:
            ShapeError: a shape that holds a tuple in a tuple or a token, a token that is none.

        Source: `Infeed` of XLA's operation semantics; StableHLO `infeed`.

        >>> sx.XlaBuilder("example").infeed(sx.f32[2, 3])
        XlaOp(stablehlo.infeed, f32[2,3])
        """
        made: XlaOp = operator("infeed")(self, "infeed", token, shape, config)
        return made if token is not None else self._data(made, shape)

    @operation("stablehlo.recv", family="effects")
    def recv(self, shape: Shape, channel_handle: int, source_target_pairs: Sequence[tuple[int, int]] = ()) -> XlaOp:
        """Data of this shape that another device sends over a channel.

        Args:
            shape: an array's.
            channel_handle: the channel's number.
            source_target_pairs: with them, the devices of this program that send, each with the one that gets it; all
                other devices get zeros. Such a receive follows nothing but the others from its channel.

        Raises:
            ShapeError: (C3) a shape that is no array's; for the pairs (C1) to (C4) as `sx.send`.

        Source: `Recv` of XLA's operation semantics; StableHLO `recv`.

        >>> sx.XlaBuilder("example").recv(sx.f32[2, 3], 1)
        XlaOp(stablehlo.recv, f32[2,3])
        """
        with checking("recv", shape=shape, channel_handle=channel_handle) as rule:
            shape = rule.static_shape("shape", rule.array_shape("shape", shape, "C3"))
            handle = channel_number(rule, "channel_handle", channel_handle)
            pairs = checked_pairs(rule, source_target_pairs)
        if pairs:
            received: XlaOp = operator("recv")(self.create_token(), shape, handle, pairs)[0]
            return received
        both = Shape.tuple((shape, Shape.token()))
        return self._data(self.emit("stablehlo.recv", [self.token_before()], both, self.channel(handle, 1)), shape)

    @ends_at_user
    def custom_call(
        self,
        target_name: str,
        args: Operands,
        shape: Shape,
        opaque: str | Mapping[str, object] = "",
        has_side_effect: bool = False,
        output_operand_aliasing: Aliasing = (),
        *,
        api_version: str = "API_VERSION_ORIGINAL",
    ) -> XlaOp:
        """`sx.custom_call`, also without arguments.

        >>> sx.XlaBuilder("example").custom_call("clock", (), sx.s64[()], has_side_effect=True)
        XlaOp(stablehlo.custom_call, s64[])
        """
        made: XlaOp = operator("custom_call")(
            self, args, shape, target_name, opaque, has_side_effect, output_operand_aliasing, api_version
        )
        return made

    @ends_at_user
    def composite_call(
        self,
        inputs: Operands,
        name: str,
        composite_attributes: str | Mapping[str, object] | None = None,
        decomposition: Computation | None = None,
        version: int = 0,
    ) -> XlaOp:
        """`sx.composite_call`, also without inputs; a decomposition that takes none must be an `XlaComputation`.

        >>> c = sx.XlaBuilder("seven")
        >>> sx.XlaBuilder("example").composite_call((), "my.seven", None, c.build(c.constant(7)))
        XlaOp(stablehlo.composite, s32[])
        """
        made: XlaOp = operator("composite_call")(self, inputs, name, composite_attributes, decomposition, version)
        return made

    # Methods for the operations' functions.

    def token_before(self) -> XlaOp:
        """The token after which the next operation with effects executes, if it is given none."""
        token = self.innermost()._token
        return token if token is not None else self.create_token()

    def follow(self, token: XlaOp) -> XlaOp:
        """Make this token the predecessor of the next operation with effects, and return it."""
        builder = self.innermost()
        builder._token = builder._last = token
        return token

    def _data(self, made: XlaOp, shape: Shape) -> XlaOp:
        """Return the data of an operation that returns data and a token; the next one follows the token."""
        builder = made.builder
        builder.follow(builder.wrap(Shape.token(), made.values[-1:], made.name))
        return builder.wrap(shape, made.values[:-1], made.name)

    def channel(self, handle: int, kind: int) -> dict[str, object]:
        """Return the attributes of a channel: between devices (kind 1), to the host (2), from it (3)."""
        channel = stablehlo.ChannelHandle.get(handle, kind, self.context)
        return {"channel_handle": channel, "is_host_transfer": kind != 1}

    def emit(
        self,
        name: str,
        operands: Sequence[XlaOp],
        result: Shape,
        attributes: Mapping[str, object] | None = None,
        regions: Sequence[XlaComputation] = (),
        region_arguments: Sequence[Sequence[XlaOp]] = (),
    ) -> XlaOp:
        """Append one operation of StableHLO, CHLO or func at the user's line.

        Tuples among operands and in `result` are spread out into their leaves. `attributes` may be MLIR attributes,
        integers (i64), strings, truth values, or sequences of integers (an i64 array). `regions` are computations that
        take and return the leaves; their blocks become the operation's. With `region_arguments` a region reads these
        ops around it in place of its last parameters.

        While a function inside this builder is traced, the operation is that function's.

        Where operands have dynamic dimensions, `result` is the shape for their bounds; the operation's rule
        (`dialects/dynamic_rules.py`) finds its dynamic dimensions.

        Raises:
            UnsupportedError: the operation takes no such dimensions.
        """
        builder = self.innermost()
        if builder is not self:
            return builder.emit(name, operands, result, attributes, regions, region_arguments)
        self._refuse_ended(name)
        operands = [self.lift(operand) for operand in operands]
        cache = self._cache
        named = {key: self.attribute(value) for key, value in (attributes or {}).items()}
        if not all(operand.shape.is_static for operand in operands):
            if needs_steps(name, operands):
                return in_steps(name, operands[0], result, named)
            result = dynamic_result(name, operands, result, named)
        made = ir.Operation.create(
            name,
            [cache.type_of(leaf) for leaf in result.leaves],
            [value for operand in operands for value in operand.values],
            named,
            regions=len(regions),
            loc=self._location(cache.locations),
            ip=self._end,
        )
        for number, computation in enumerate(regions):
            block = self._fill(made.regions[number], computation)
            if region_arguments:
                _bind(block, [value for op in region_arguments[number] for value in self.lift(op).values])
        values = tuple(made.results)
        self._annotate(values)
        return self.wrap(result, values, name)

    def _refuse_ended(self, name: str) -> None:
        if self.has_ended:
            summary, hint = f"an op of the function {self.name!r} is used outside of it", "return it from there"
            raise ShapeError(summary, operation=name, source=user_line(), hint=hint)

    def wrap(self, shape: Shape, values: tuple[ir.Value, ...], name: str) -> XlaOp:
        """Return an op of this builder for existing values."""
        self._last = XlaOp(self, shape, values, name)
        return self._last

    def attribute(self, value: object) -> ir.Attribute:
        """Return the MLIR attribute of a plain value, for `emit`."""
        if isinstance(value, ir.Attribute):
            if value.context != self.context:
                raise ShapeError(f"{value} is an attribute of another context", hint="one of builder.context")
            return value
        if isinstance(value, bool):
            return ir.BoolAttr.get(value, self.context)
        if isinstance(value, int):
            return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, self.context), value)
        if isinstance(value, float):
            return ir.FloatAttr.get(ir.F64Type.get(self.context), value, loc=ir.Location.unknown(self.context))
        if isinstance(value, str):
            return ir.StringAttr.get(value, self.context)
        if isinstance(value, Sequence):
            return ir.DenseI64ArrayAttr.get(list(value), self.context)
        raise TypeError(f"no attribute can be made of {value!r}")

    def i32(self, value: int) -> ir.Attribute:
        """Return a 32-bit integer attribute; plain integers become 64-bit ones."""
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(32, self.context), value)

    def add_function(self, computation: XlaComputation) -> str:
        """Return the name of a private function for `computation`; equal ones share one."""
        return self._functions.add(computation)

    def _fill(self, region: ir.Region, computation: XlaComputation) -> ir.Block:
        """Move a copy of the computation's body into `region`."""
        self._functions.splice(computation).regions[0].blocks[0].append_to(region)
        block = region.blocks[0]
        end = list(block.operations)[-1].operation
        ir.Operation.create(
            "stablehlo.return", operands=list(end.operands), loc=end.location, ip=ir.InsertionPoint(end)
        )
        erase(end)
        return block

    @ends_at_user
    def call(self, computation: Computation, args: Operands = ()) -> XlaOp:
        """`sx.call`, also without arguments.

        >>> b = sx.XlaBuilder("example")
        >>> c = sx.XlaBuilder("five")
        >>> b.call(c.build(c.constant(5)))
        XlaOp(func.call, s32[])
        """
        builder = self.innermost()
        with checking("call", args=args) as rule:
            ops = rule.sequence("args", args)
            rule.belong(builder, args=ops)
            callee = builder.computation(rule, "computation", computation, [op.shape for op in ops], captures=True)
            fits = callee.parameter_shapes == tuple(op.shape for op in ops)
            rule("", fits, f"computation {callee!r} must take the arguments")
        name = ir.FlatSymbolRefAttr.get(builder.add_function(callee), self.context)
        return builder.emit("func.call", [*ops, *callee.captured], callee.result_shape, {"callee": name})

    def computation(
        self,
        rule: Rules,
        name: str,
        given: Computation,
        shapes: Sequence[Shape],
        *,
        captures: bool = False,
    ) -> XlaComputation:
        """Return `given` if it is a computation; trace it for these shapes if it is a function.

        With `captures` a function may read ops of the builders around it, of which the caller takes `captured`.

        Raises:
            ShapeError: it takes other parameters, or uses ops of another builder.
        """
        if isinstance(given, XlaComputation):
            computation = given
        elif callable(given):
            outer = self.innermost()
            builder = XlaBuilder.__new__(XlaBuilder)
            builder._begin(title_of(given, name), self._cache, outer)
            computation = trace(rule, name, given, shapes, builder)
            if computation.captured and not captures:
                rule.captured(name, computation.captured)
        else:
            rule.broken("", f"{name} must be an XlaComputation or a function, not {told(given)}", _named(given))
        taken = computation.parameter_shapes
        rule(
            "",
            len(taken) == len(shapes),
            f"{name} takes {len(taken)} parameters, and is given {len(shapes)}",
        )
        return computation

    # Parts of it.

    @ends_at_user
    def create_sub_builder(self, computation_name: str) -> XlaBuilder:
        """Return a new builder for a computation that this one's operations use, such as a loop body.

        Source: `CreateSubBuilder` of XLA's builder.

        >>> b = sx.XlaBuilder("example")
        >>> sub = b.create_sub_builder("twice")
        >>> _ = sub.parameter(0, sx.f32[2]) * 2
        >>> b.call(sub.build_sub_computation(), b.parameter(0, sx.f32[2]))
        XlaOp(func.call, f32[2])
        """
        made = XlaBuilder(computation_name)
        made._parent = self
        return made

    @ends_at_user
    def build_sub_computation(self, root: XlaOp | None = None) -> XlaComputation:
        """Build a computation of `create_sub_builder`, and add it to the parent.

        Raises:
            ShapeError: another builder; as `build`.
        """
        with checking("build_sub_computation", root=root) as rule:
            if self._parent is None:
                rule.broken("", f"the builder {self.name!r} was not made by create_sub_builder", "b.build(root)")
        return self._parent.add_sub_computation(self.build(root))

    @ends_at_user
    def add_sub_computation(self, computation: XlaComputation) -> XlaComputation:
        """Add a computation as a private function, and return it for use by operations.

        Raises:
            ShapeError: no computation.
        """
        with checking("add_sub_computation", computation=computation) as rule:
            given = isinstance(computation, XlaComputation)
            rule("", given, f"computation must be an XlaComputation, not {computation!r}", "sub.build()")
        self.add_function(computation)
        return computation

    @ends_at_user
    def is_constant(self, operand: XlaOp) -> bool:
        """Return whether an op's value is known before the program runs.

        It is not if it depends on a parameter, or on a stateful operation: random numbers of the device, infeeds,
        other devices, custom calls. Nothing is evaluated.

        Raises:
            ShapeError: another builder's op.

        Source: `IsConstant` of XLA's builder.

        >>> b = sx.XlaBuilder("example")
        >>> x, five = b.parameter(0, sx.s32[()]), b.constant(2) + 3
        >>> b.is_constant(five), b.is_constant(five + x)
        (True, False)
        """
        with checking("is_constant", operand=operand) as rule:
            values = self._own(rule, operand)
        return is_constant(values, self._module, self._block)

    @ends_at_user
    def build_constant_sub_graph(self, root_op: XlaOp) -> XlaComputation:
        """Return the computation, without parameters, of a value that is known before the program runs.

        Raises:
            ShapeError: it is not known (`is_constant`); another builder's op.

        Source: `BuildConstantSubGraph` of XLA's builder.

        >>> b = sx.XlaBuilder("example")
        >>> x, five = b.parameter(0, sx.s32[()]), b.constant(2) + 3
        >>> int(sx.compile(b.build_constant_sub_graph(five))())
        5
        """
        with checking("build_constant_sub_graph", root_op=root_op) as rule:
            rule("", self.is_constant(root_op), "root_op depends on a parameter, or on an operation with a state")
        module = self._assemble(root_op, [], only_root=True)
        return XlaComputation(self.name, module, [], [], root_op.shape)

    # Building.

    @ends_at_user
    def build(self, root: Packed | None = None) -> XlaComputation:
        """Build the computation with the result `root`, by default the last op; more operations may follow.

        A sequence of ops stands for their tuple.

        Raises:
            ShapeError: `root` is another builder's, there is none, or a parameter number is left out.
            VerificationError: the module does not verify.

        >>> b = sx.XlaBuilder("double")
        >>> x = b.parameter(0, sx.f32[2])
        >>> b.build((x, x + x))
        XlaComputation('double', (f32[2]) -> (f32[2], f32[2]))
        """
        with checking("build", root=root) as rule:
            if root is None:
                root = self._last
            if root is None:
                rule.broken("", "nothing has been built yet")
            root = rule.packed("root", root)
            rule("", root.builder is self, f"root belongs to the builder {root.builder.name!r}, not to {self.name!r}")
            numbers = sorted(self._parameters)
            missing = sorted(set(range(len(numbers))) - set(numbers))
            rule("", not missing, f"parameter {missing[0] if missing else 0} is missing, there are {numbers}")
            parameters = [self._parameters[number] for number in numbers]
            shapes = {number: self._parameters[number].op.shape for number in numbers}
            donated = self._donations(rule, shapes, root.shape, self.context)
        module = self._assemble(root, parameters, donated)
        self._verify(module)
        self._cache.unfinished.discard(self)
        return XlaComputation(
            self.name,
            module,
            [parameter.op.shape for parameter in parameters],
            [parameter.name for parameter in parameters],
            root.shape,
            list(self.captured.values()),
        )

    def _assemble(
        self,
        root: XlaOp,
        parameters: Sequence[_Parameter],
        donated: Mapping[tuple[int, int], _Attributes] | None = None,
        *,
        only_root: bool = False,
    ) -> ir.Module:
        """Return a new module: copies of the private functions and of main, which returns the root.

        Args:
            donated: the attributes of parameters' leaves, by the parameter and the leaf's position.
            only_root: without the parameters and operations that the root does not need.
        """
        here = self._cache.locations.here()
        module = ir.Module.create(here)
        module.operation.attributes["sym_name"] = ir.StringAttr.get(self.name or "module", self.context)
        for function in functions(self._module):
            if function != self._main:
                module.body.append(function.clone())
        end = ir.Operation.create("func.return", operands=list(root.values), loc=here, ip=self._end)
        main = self._main.clone()
        erase(end)
        module.body.append(main)
        block = main.regions[0].blocks[0]
        if only_root:
            drop_unused(block)
        captured = [] if only_root else [argument.arg_number for argument in self.captured]
        _reorder(block, [*(argument.arg_number for each in parameters for argument in each.op.values), *captured])
        results = [value.type for value in root.values]
        kind = ir.FunctionType.get([argument.type for argument in block.arguments], results, self.context)
        main.attributes["function_type"] = ir.TypeAttr.get(kind, self.context)
        leaves = [(n, i, value) for n, each in enumerate(parameters) for i, value in enumerate(each.op.values)]
        given = donated or {}
        rows = [self._argument_attributes(v) | given.get((n, i), {}) for n, i, v in leaves]
        _attach(main, "arg_attrs", [*rows, *[{} for _ in captured]])
        _attach(main, "res_attrs", [self._result_attributes(value) for value in root.values])
        return module

    def _result_attributes(self, value: ir.Value) -> _Attributes:
        return {name: each for name, each in self._argument_attributes(value).items() if name == SHARDING}

    def _verify(self, module: ir.Module) -> None:
        with diagnostics(self.context) as seen:
            try:
                if module.operation.verify():
                    return
                messages = [str(diagnostic) for diagnostic in seen]
            except ir.MLIRError as error:
                messages = [*map(str, seen), *(_told(found) for found in error.error_diagnostics)]
        raise VerificationError(
            "; ".join(messages) or "the module does not verify", operation=f"build {self.name}", source=user_line()
        )


def _bind(block: ir.Block, values: Sequence[ir.Value]) -> None:
    """Replace a block's last arguments by `values`, and erase these arguments."""
    first = len(block.arguments) - len(values)
    for place, value in enumerate(values, start=first):
        block.arguments[place].replace_all_uses_with(value)
    for place in reversed(range(first, first + len(values))):
        block.erase_argument(place)


class _Parameter:
    """A parameter and its name."""

    def __init__(self, op: XlaOp, name: str) -> None:
        self.op = op
        self.name = name


def _attach(function: ir.Operation, name: str, rows: Sequence[_Attributes]) -> None:
    """Set the attributes of a function's parameters or results, where there are any."""
    if any(rows):
        context = function.context
        function.attributes[name] = ir.ArrayAttr.get([ir.DictAttr.get(row, context) for row in rows], context)


def _told(found: ir.DiagnosticInfo) -> str:
    return f"{found.message} at {found.location}"


def _reorder(block: ir.Block, order: Sequence[int]) -> None:
    """Permute a block's arguments into `order`, a permutation of their present positions."""
    count = len(order)
    if list(order) == list(range(count)):
        return
    for place in order:
        old = block.arguments[place]
        old.replace_all_uses_with(block.add_argument(old.type, old.location))
    for place in reversed(range(count)):
        block.erase_argument(place)


def _named(given: object) -> str:
    """The function of the name that stands in the place of a computation; "" if there is none."""
    return f"sx.{given}" if isinstance(given, str) and given in REGISTRY else ""
