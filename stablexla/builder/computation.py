"""The result of a builder: a verified StableHLO module with the shapes of its parameters and of its result.

Also embeds a computation in another: as the region of an operation, or as a private function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

import jaxlib.mlir.ir as ir

from stablexla.dialects.copying import copy_of_module
from stablexla.dialects.held_arrays import copy_in, short_text, value_of, with_elements
from stablexla.dialects.shapes import Shape
from stablexla.dialects.symbols import symbol_of
from stablexla.dialects.uncopied import Uncopied

if TYPE_CHECKING:
    from stablexla.builder.op import XlaOp


class XlaComputation(Uncopied):
    """A computation with numbered parameters and one result, which may be a tuple.

    Its text is StableHLO, with a tuple among the parameters or results as its leaves, from left to right.

    >>> b = sx.XlaBuilder("twice")
    >>> x = b.parameter(0, sx.f32[2], name="x")
    >>> computation = b.build(x + x)
    >>> computation
    XlaComputation('twice', (f32[2]) -> f32[2])
    >>> print(computation)
    module @twice {
      func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
        %0 = stablehlo.add %arg0, %arg0 : tensor<2xf32>
        return %0 : tensor<2xf32>
      }
    }
    """

    _in_place = "computation.bytecode(), which sx.compile takes; its module can be copied: copy_of_module()"

    def __init__(
        self,
        name: str,
        module: ir.Module,
        parameter_shapes: Sequence[Shape],
        parameter_names: Sequence[str],
        result_shape: Shape,
        captured: Sequence[XlaOp] = (),
    ) -> None:
        self.name = name
        """The builder's name."""
        self.parameter_shapes = tuple(parameter_shapes)
        """The shape of each parameter, by number."""
        self.parameter_names = tuple(parameter_names)
        """The name of each parameter, "" where none was given."""
        self.result_shape = result_shape
        """The shape of the root."""
        self.captured = tuple(captured)
        """The arrays around a traced function that it reads: arguments of `@main` behind the parameters'."""
        self._module = module

    @property
    def module(self) -> ir.Module:
        """The module, read-only: change a copy (`copy_of_module`)."""
        return self._module

    def copy_of_module(self) -> ir.Module:
        """Return a copy of the module that may be changed."""
        copy: ir.Module = copy_of_module(self._module)
        return copy

    def copies_of_functions(self, context: ir.Context) -> list[ir.Operation]:
        """Return copies of the functions in `context`, in no module; callees before callers, main last."""
        same = context == self._module.context
        module = self._module if same else copy_in(self._module, context)
        return [function.clone().operation for function in functions(module)]

    def bytecode(self) -> bytes:
        """Return the module as MLIR bytecode, with its locations."""
        buffer = BytesIO()
        with_elements(self._module).operation.write_bytecode(buffer)
        return buffer.getvalue()

    def text(self, *, locations: bool = False) -> str:
        """Return the module as StableHLO text, with the user's lines as `loc(...)` if asked for."""
        return str(with_elements(self._module).operation.get_asm(enable_debug_info=locations)).rstrip("\n")

    @property
    def main(self) -> ir.Operation:
        """The function `@main`."""
        return next(f for f in functions(self._module) if symbol_of(f) == "main")

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        parameters = ", ".join(map(str, self.parameter_shapes))
        return f"XlaComputation({self.name!r}, ({parameters}) -> {self.result_shape})"

    def _repr_html_(self) -> str:
        from stablexla.dialects.display.html_table import html_title
        from stablexla.dialects.display.mlir_text import html_code

        parameters = ", ".join(map(str, self.parameter_shapes))
        # A weight of a model would be megabytes of digits.
        text = short_text(self._module, 16)
        return html_title(self.name, f"({parameters}) -> {self.result_shape}") + html_code(text)


#: The attribute by which a custom call names functions.
CALLED = "called_computations"

#: A computation, or a Python function that writes one down.
Computation = XlaComputation | Callable[..., object]


def functions(module: ir.Module) -> list[ir.Operation]:
    """Return the functions of a module, in their order."""
    return [op.operation for op in module.body.operations if op.operation.name == "func.func"]


class FunctionTable:
    """The private functions of a module under construction, without duplicates."""

    def __init__(self, module: ir.Module) -> None:
        self._module = module
        self._by_computation: dict[int, tuple[XlaComputation, str]] = {}
        self._by_meaning: dict[object, str] = {}
        self._names = {"main"}

    def add(self, computation: XlaComputation) -> str:
        """Add `computation` with its callees, and return the name of its function."""
        known = self._by_computation.get(id(computation))
        if known is not None:
            return known[1]
        name = self._take(self.splice(computation), computation.name)
        # The computation is kept, so that its id is not given to another.
        self._by_computation[id(computation)] = (computation, name)
        return name

    def splice(self, computation: XlaComputation) -> ir.Operation:
        """Return a copy of the computation's main function, in no module, whose calls refer to this table."""
        renamed: dict[str, str] = {}
        for function in computation.copies_of_functions(self._module.context):
            rename_calls(function, renamed)
            name = symbol_of(function)
            if name == "main":
                return function
            renamed[name] = self._take(function, name)
        raise AssertionError("a computation has a main function, after all others")

    def _take(self, function: ir.Operation, name: str) -> str:
        """Add `function`, or find the equal one."""
        context = self._module.context
        function.attributes["sym_name"] = ir.StringAttr.get("f", context)
        function.attributes["sym_visibility"] = ir.StringAttr.get("private", context)
        meaning = _meaning(function)
        known = self._by_meaning.get(meaning)
        if known is None:
            known = self._by_meaning[meaning] = self._free_name(name)
            function.attributes["sym_name"] = ir.StringAttr.get(known, context)
            self._module.body.append(function)
        return known

    def _free_name(self, name: str) -> str:
        free, count = name, 0
        while free in self._names:
            count += 1
            free = f"{name}_{count}"
        self._names.add(free)
        return free


def _meaning(function: ir.Operation) -> object:
    """Return a key that is equal for equal functions: their text, with large constants by identity."""
    constants: list[object] = []

    def note(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.constant":
            value = value_of(op)
            constants.append(op.get_asm() if value is None else value)
        return ir.WalkResult.ADVANCE

    function.walk(note)
    return function.get_asm(large_elements_limit=16, large_resource_limit=0), tuple(constants)


# The attributes by which StableHLO's operations name functions.
_CALLEES = {"func.call": "callee", "stablehlo.composite": "decomposition", "stablehlo.custom_call": CALLED}


def rename_calls(function: ir.Operation, renamed: dict[str, str]) -> None:
    """Rename the callees of the calls inside `function`."""
    if not renamed:
        return

    def new(name: ir.Attribute) -> ir.Attribute:
        if isinstance(name, ir.ArrayAttr):
            return ir.ArrayAttr.get([new(each) for each in name], function.context)
        old = ir.FlatSymbolRefAttr(name).value
        return ir.FlatSymbolRefAttr.get(renamed.get(old, old), function.context)

    def rename(op: ir.Operation) -> ir.WalkResult:
        attribute = _CALLEES.get(op.name)
        if attribute is not None and attribute in op.attributes:
            op.attributes[attribute] = new(op.attributes[attribute])
        return ir.WalkResult.ADVANCE

    function.walk(rename)
