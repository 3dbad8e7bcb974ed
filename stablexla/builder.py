"""XlaBuilder: where a computation is written down, one StableHLO operation at a time, and verified when it is built.

The operations themselves are the functions of ops/; they check their operands and come back here to be emitted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.checking import Operands, Rules, checking
from stablexla.computation import Computation, FunctionTable, XlaComputation, functions
from stablexla.constants import as_array, dense_attribute
from stablexla.dialects.contexts import diagnostics, stablehlo_context
from stablexla.dialects.element_types import BY_DTYPE, ElementType
from stablexla.dialects.errors import ShapeError, VerificationError
from stablexla.dialects.shapes import Shape
from stablexla.dynamic_shapes import dynamic_result, in_steps, needs_steps
from stablexla.op import XlaOp
from stablexla.ops.device_pairs import channel_number, checked_pairs
from stablexla.ops.registry import NUMBER, operation
from stablexla.source import Locations, user_line

_local = threading.local()


class _Cache:
    """What the builders of one thread share: the context, types and locations that were made before."""

    def __init__(self) -> None:
        self.context = stablehlo_context()
        self.locations = Locations(self.context)
        self._types: dict[Shape, ir.Type] = {}

    def type_of(self, leaf: Shape) -> ir.Type:
        """The MLIR type of an array or token."""
        found = self._types.get(leaf)
        if found is None:
            found = self._types[leaf] = ir.Type.parse(leaf.mlir, self.context)
        return found


def _cache() -> _Cache:
    cache: _Cache | None = getattr(_local, "cache", None)
    if cache is None:
        cache = _local.cache = _Cache()
    return cache


class XlaBuilder:
    """Collects the operations of one computation.

    >>> b = sx.XlaBuilder("affine")
    >>> x = b.parameter(0, sx.f32[2, 3], name="x")
    >>> v = b.parameter(1, sx.f32[3], name="v")
    >>> b.build(sx.add(x, v, broadcast_dimensions=(1,)))
    XlaComputation('affine', (f32[2,3], f32[3]) -> f32[2,3])
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise ShapeError(f"the name of a builder must be a text, not {name!r}", source=user_line())
        self.name = name
        """The name of the computation and of its module."""
        self._cache = _cache()
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

    @property
    def context(self) -> ir.Context:
        """The MLIR context of all that it emits."""
        return self._cache.context

    def __repr__(self) -> str:
        return f"XlaBuilder({self.name!r})"

    # Operations without operands.

    @operation(family="constants")
    def parameter(self, number: int, shape: Shape, name: str = "") -> XlaOp:
        """The computation's parameter of this number; they may come in any order.

        Args:
            number: from 0 on, each given once.
            shape: its shape, which may be a tuple.
            name: a name for readers, kept as the MLIR location.

        Raises:
            ShapeError: a number that is negative or taken, a shape that is none.

        >>> b = sx.XlaBuilder("example")
        >>> b.parameter(0, sx.f32[2, 3], "x")
        XlaOp(parameter, f32[2,3])
        """
        with checking("parameter", number=number, shape=shape, name=name or None) as rule:
            number = rule.integer("number", number)
            rule("", number >= 0, "number must not be negative")
            rule("", number not in self._parameters, f"there is a parameter {number} already")
            rule("", isinstance(name, str), f"name must be a text, not {name!r}")
            rule("", isinstance(shape, Shape), "shape must be a Shape", 'sx.f32[2, 3] or sx.Shape("f32", (2, 3))')
        location = self._cache.locations.named(name)
        values = tuple(self._block.add_argument(self._cache.type_of(leaf), location) for leaf in shape.leaves)
        op = XlaOp(self, shape, values, "parameter")
        self._parameters[number] = _Parameter(op, name)
        self._last = op
        return op

    @operation("stablehlo.constant", family="constants")
    def constant(self, value: object, element_type: object = None) -> XlaOp:
        """A constant: a Python number, nested lists of them, or a numpy (or ml_dtypes) array or scalar.

        Python's numbers are pred, s32, f32 or c64; arrays and numpy scalars keep their type.

        Args:
            value: the value.
            element_type: the element type to give it, where nothing but precision is lost by that.

        Raises:
            ShapeError: a value that is out of the element type's range or of another kind.

        >>> b = sx.XlaBuilder("example")
        >>> b.constant([[1, 2], [3, 4]])
        XlaOp(stablehlo.constant, s32[2,2])
        >>> b.constant(1.5, "bf16")
        XlaOp(stablehlo.constant, bf16[])
        """
        with checking("constant"):
            array = as_array(value, element_type)
        shape = Shape(BY_DTYPE[array.dtype], array.shape)
        attribute = dense_attribute(array, self._cache.type_of(shape))
        return self.emit("stablehlo.constant", [], shape, {"value": attribute})

    @operation("stablehlo.iota", NUMBER, family="constants")
    def iota(self, shape: Shape | ElementType, iota_dimension: int) -> XlaOp:
        """An array that counts from 0 along one dimension.

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
                shape, iota_dimension = Shape(shape, (rule.integer("size", iota_dimension),)), 0
            rule("", isinstance(shape, Shape) and shape.is_array, "shape must be that of an array")
            rule("", shape.is_static, "shape must be static", "sx.set_dimension_size(b.iota(...), size, dimension)")
            rule(
                "",
                shape.element_type.kind in NUMBER,
                f"the element type must be a number's, not {shape.element_type}",
            )
            dimension = rule.integer("iota_dimension", iota_dimension)
            rule("C1", 0 <= dimension < shape.rank, f"iota_dimension must be a dimension of {shape}")
        return self.emit("stablehlo.iota", [], shape, {"iota_dimension": dimension})

    @operation("stablehlo.create_token", family="effects")
    def create_token(self) -> XlaOp:
        """A token, from which a chain of operations with effects can start.

        >>> sx.XlaBuilder("example").create_token()
        XlaOp(stablehlo.create_token, token)
        """
        return self.emit("stablehlo.create_token", [], Shape.token())

    def empty_tuple(self) -> XlaOp:
        """The tuple of no elements, for a computation that takes or returns nothing.

        >>> sx.XlaBuilder("example").empty_tuple()
        XlaOp(tuple, ())
        """
        return self.wrap(Shape.tuple(()), (), "tuple")

    @operation("stablehlo.replica_id", family="collectives")
    def replica_id(self) -> XlaOp:
        """The number of the replica that runs the program.

        >>> sx.XlaBuilder("example").replica_id()
        XlaOp(stablehlo.replica_id, u32[])
        """
        return self.emit("stablehlo.replica_id", [], Shape("u32"))

    @operation("stablehlo.partition_id", family="collectives")
    def partition_id(self) -> XlaOp:
        """The number of the partition that runs the program.

        >>> sx.XlaBuilder("example").partition_id()
        XlaOp(stablehlo.partition_id, u32[])
        """
        return self.emit("stablehlo.partition_id", [], Shape("u32"))

    @operation("stablehlo.infeed", family="effects")
    def infeed(self, shape: Shape, token: XlaOp | None = None) -> XlaOp:
        """Data of this shape from the device's infeed.

        Args:
            shape: an array's, or a tuple's of arrays.
            token: what it comes after. Without one, the infeeds of a builder follow one another as they are written.

        Returns:
            The data; with a token, the tuple of the data and the next token.

        Raises:
            ShapeError: a shape that holds a tuple in a tuple or a token, a token that is none.

        Source: `Infeed` of XLA's operation semantics; StableHLO `infeed`.

        >>> sx.XlaBuilder("example").infeed(sx.f32[2, 3])
        XlaOp(stablehlo.infeed, f32[2,3])
        """
        with checking("infeed", shape=shape, token=token) as rule:
            rule("", isinstance(shape, Shape), "shape must be a Shape", "sx.f32[2, 3]")
            flat = all(part.is_array for part in shape.tuple_shapes) and not shape.is_token
            rule("", flat, "shape must be that of an array or of a tuple of arrays")
            if token is not None:
                rule("C3", rule.op("token", token).shape.is_token, "token must be a token")
        before = token if token is not None else self.token_before()
        both = Shape.tuple((shape, Shape.token()))
        made = self.emit("stablehlo.infeed", [before], both, {"infeed_config": ""})
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
            rule("C3", isinstance(shape, Shape) and shape.is_array, "shape must be that of an array", "sx.f32[2, 3]")
            handle = channel_number(rule, "channel_handle", channel_handle)
            pairs = checked_pairs(rule, source_target_pairs)
        if pairs:
            from stablexla.ops.effects import recv_with_token

            return recv_with_token(self.create_token(), shape, handle, source_target_pairs)[0]
        both = Shape.tuple((shape, Shape.token()))
        return self._data(self.emit("stablehlo.recv", [self.token_before()], both, self.channel(handle, 1)), shape)

    def custom_call(
        self,
        target_name: str,
        args: Operands,
        shape: Shape,
        opaque: str | Mapping[str, object] = "",
        has_side_effect: bool = False,
        output_operand_aliasing: Sequence[tuple[int, int]] = (),
        *,
        api_version: str = "API_VERSION_ORIGINAL",
    ) -> XlaOp:
        """`sx.custom_call`, also without arguments.

        >>> sx.XlaBuilder("example").custom_call("clock", (), sx.s64[()], has_side_effect=True)
        XlaOp(stablehlo.custom_call, s64[])
        """
        from stablexla.ops.custom_call import call_in

        return call_in(self, target_name, args, shape, opaque, has_side_effect, output_operand_aliasing, api_version)

    # What the operations' functions call.

    def token_before(self) -> XlaOp:
        """What an operation with effects comes after when it is not given a token."""
        return self._token if self._token is not None else self.create_token()

    def follow(self, token: XlaOp) -> XlaOp:
        """Lets the next operation with effects come after this token, which is returned."""
        self._token = self._last = token
        return token

    def _data(self, made: XlaOp, shape: Shape) -> XlaOp:
        """The data of an operation that gives data and a token, which the next one follows."""
        self.follow(self.wrap(Shape.token(), made.values[-1:], made.name))
        return self.wrap(shape, made.values[:-1], made.name)

    def channel(self, handle: int, kind: int) -> dict[str, object]:
        """The attributes of a transfer over a channel: between devices (kind 1), to the host (2), from it (3)."""
        channel = stablehlo.ChannelHandle.get(handle, kind, self.context)
        return {"channel_handle": channel, "is_host_transfer": kind != 1}

    def emit(
        self,
        name: str,
        operands: Sequence[XlaOp],
        result: Shape,
        attributes: Mapping[str, object] | None = None,
        regions: Sequence[XlaComputation] = (),
        region_arguments: Sequence[Sequence[ir.Value]] = (),
    ) -> XlaOp:
        """Appends one operation of StableHLO, CHLO or func at the user's line.

        Tuples among operands and in `result` are spread out into their leaves. `attributes` may be MLIR attributes,
        integers (i64), strings, truth values, or sequences of integers (an i64 array). `regions` are computations that
        take and return the leaves; their blocks become the operation's. With `region_arguments` a region takes nothing,
        and reads these values in place of its parameters.

        Where operands have dynamic dimensions, `result` is the shape for their bounds; what is dynamic in it is found
        by the operation's rule (`dialects/dynamic_rules.py`).

        Raises:
            UnsupportedError: the operation takes no such dimensions.
        """
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
            loc=cache.locations.here(),
            ip=self._end,
        )
        for number, computation in enumerate(regions):
            block = self._fill(made.regions[number], computation)
            if region_arguments:
                _bind(block, region_arguments[number])
        return self.wrap(result, tuple(made.results), name)

    def wrap(self, shape: Shape, values: tuple[ir.Value, ...], name: str) -> XlaOp:
        """An op of this builder that stands for values that are there already."""
        self._last = XlaOp(self, shape, values, name)
        return self._last

    def attribute(self, value: object) -> ir.Attribute:
        """An MLIR attribute of a plain value, as `emit` takes them."""
        if isinstance(value, ir.Attribute):
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
        """A 32-bit integer attribute; plain integers become 64-bit ones."""
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(32, self.context), value)

    def add_function(self, computation: XlaComputation) -> str:
        """The name of a private function that does what `computation` does; equal ones share one."""
        return self._functions.add(computation)

    def _fill(self, region: ir.Region, computation: XlaComputation) -> ir.Block:
        """Moves a copy of the computation's body into `region`."""
        self._functions.splice(computation).regions[0].blocks[0].append_to(region)
        block = region.blocks[0]
        end = list(block.operations)[-1].operation
        ir.Operation.create(
            "stablehlo.return", operands=list(end.operands), loc=end.location, ip=ir.InsertionPoint(end)
        )
        end.erase()
        return block

    def call(self, computation: Computation, args: Operands = ()) -> XlaOp:
        """`sx.call`, also without arguments.

        >>> b = sx.XlaBuilder("example")
        >>> c = sx.XlaBuilder("five")
        >>> b.call(c.build(c.constant(5)))
        XlaOp(func.call, s32[])
        """
        with checking("call", args=args or None) as rule:
            ops = rule.sequence("args", args)
            for op in ops:
                rule("", op.builder is self, f"an argument belongs to the builder {op.builder.name!r}")
            callee = self.computation(rule, "computation", computation, [op.shape for op in ops])
            fits = callee.parameter_shapes == tuple(op.shape for op in ops)
            rule("", fits, f"the arguments must be what {callee!r} takes")
        name = ir.FlatSymbolRefAttr.get(self.add_function(callee), self.context)
        return self.emit("func.call", ops, callee.result_shape, {"callee": name})

    def computation(
        self,
        rule: Rules,
        name: str,
        given: Computation,
        shapes: Sequence[Shape],
    ) -> XlaComputation:
        """`given`, if it is a computation; the computation that it writes down for these shapes, if it is a function.

        Raises:
            ShapeError: it takes other parameters, or uses ops of another builder.
        """
        if isinstance(given, XlaComputation):
            computation = given
        elif callable(given):
            computation = trace(rule, name, given, shapes)
        else:
            rule.broken("", f"{name} must be an XlaComputation or a function, not {given!r}")
        taken = computation.parameter_shapes
        rule(
            "",
            len(taken) == len(shapes),
            f"{name} takes {len(taken)} parameters, and is given {len(shapes)}",
        )
        return computation

    # Building.

    def build(self, root: XlaOp | None = None) -> XlaComputation:
        """The computation whose result is `root`, by default the last op; the builder may go on and build again.

        Raises:
            ShapeError: `root` is another builder's, there is none, or a parameter number is left out.
            VerificationError: what was emitted does not verify.
        """
        with checking("build", root=root) as rule:
            if root is None:
                root = self._last
            if root is None:
                rule.broken("", "nothing has been built yet")
            root = rule.op("root", root)
            rule("", root.builder is self, f"root belongs to the builder {root.builder.name!r}, not to {self.name!r}")
            numbers = sorted(self._parameters)
            missing = sorted(set(range(len(numbers))) - set(numbers))
            rule("", not missing, f"parameter {missing[0] if missing else 0} is missing, there are {numbers}")
        parameters = [self._parameters[number] for number in numbers]
        module = self._assemble(root, parameters)
        self._verify(module)
        return XlaComputation(
            self.name,
            module,
            [parameter.op.shape for parameter in parameters],
            [parameter.name for parameter in parameters],
            root.shape,
        )

    def _assemble(self, root: XlaOp, parameters: Sequence[_Parameter]) -> ir.Module:
        """A new module: copies of the private functions and of main, which returns the root."""
        here = self._cache.locations.here()
        module = ir.Module.create(here)
        module.operation.attributes["sym_name"] = ir.StringAttr.get(self.name or "module", self.context)
        for function in functions(self._module):
            if function != self._main:
                module.body.append(function.clone())
        end = ir.Operation.create("func.return", operands=list(root.values), loc=here, ip=self._end)
        main = self._main.clone()
        end.erase()
        module.body.append(main)
        block = main.regions[0].blocks[0]
        _reorder(block, [argument.arg_number for each in parameters for argument in each.op.values])
        results = [value.type for value in root.values]
        kind = ir.FunctionType.get([argument.type for argument in block.arguments], results, self.context)
        main.attributes["function_type"] = ir.TypeAttr.get(kind, self.context)
        return module

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
    """Lets a block read `values` in place of its arguments, of which it then has none."""
    for argument, value in zip(block.arguments, values):
        argument.replace_all_uses_with(value)
    for place in reversed(range(len(values))):
        block.erase_argument(place)


class _Parameter:
    """A parameter and the name that was given to it."""

    def __init__(self, op: XlaOp, name: str) -> None:
        self.op = op
        self.name = name


def _told(found: ir.DiagnosticInfo) -> str:
    return f"{found.message} at {found.location}"


def _reorder(block: ir.Block, order: Sequence[int]) -> None:
    """Puts a block's arguments into `order`, which names each of them once by its place now."""
    count = len(order)
    if list(order) == list(range(count)):
        return
    for place in order:
        old = block.arguments[place]
        old.replace_all_uses_with(block.add_argument(old.type, old.location))
    for place in reversed(range(count)):
        block.erase_argument(place)


def trace(rule: Rules, name: str, function: Callable[..., object], shapes: Sequence[Shape]) -> XlaComputation:
    """The computation that a Python function writes down when it is called with parameters of these shapes.

    It returns an op, or a sequence of ops for a tuple.
    """
    from stablexla.ops.tuples import tuple as pack

    title = getattr(function, "__name__", name)
    builder = XlaBuilder(name if title == "<lambda>" else title)
    parameters = [builder.parameter(number, shape) for number, shape in enumerate(shapes)]
    result = function(*parameters)
    if isinstance(result, (tuple, list)):
        result = pack(result) if result else builder.empty_tuple()
    if not isinstance(result, XlaOp):
        rule.broken("", f"{name} must return an XlaOp or a sequence of them, not {result!r}")
    rule(
        "",
        result.builder is builder,
        f"{name} returns an op of another builder, {result.builder.name!r}",
        "a computation sees only its own parameters: pass the value in as one",
    )
    return builder.build(result)
