"""Programs with unknown extents: compiled once for each set of argument shapes."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar, cast

import jaxlib.mlir.ir as ir
import numpy as np
import numpy.typing as npt

from stablexla.compiling.device_counts import Counts
from stablexla.compiling.known_shapes import ArrayPattern, Shapes, parameters_of, with_shapes
from stablexla.dialects.errors import CompileError, ExecutionError, VerificationError
from stablexla.dialects.shapes import Shape
from stablexla.executable.devices import TIME_LIMIT, several, spread
from stablexla.executable.executable import Executable, in_order
from stablexla.executable.running import checked_limit
from stablexla.lowering.support.types import is_token
from stablexla.targets.pipeline.driver import copy_of
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.signature.signature import main_of, module_name

Array = npt.NDArray[Any]
Method = TypeVar("Method", bound=Callable[..., Any])


def _of_the_chosen(method: Method) -> Method:
    """Return a method of `Executable` as that of the program for its arguments' shapes."""

    @functools.wraps(method)
    def call(self: ShapedExecutable, arguments: Sequence[Any], *more: Any, **named: Any) -> Any:
        return getattr(self._for(arguments), method.__name__)(arguments, *more, **named)

    return cast(Method, call)


class ShapedExecutable(Executable):
    """A program that is compiled for the shapes of each call's arguments.

    The first call with new shapes compiles, once for all threads; the last `limit` programs are kept.

    >>> executable = sx.compile('''func.func @main(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
    ...   %0 = stablehlo.add %x, %x : tensor<?x2xf32>
    ...   return %0 : tensor<?x2xf32>
    ... }''')
    >>> executable
    ShapedExecutable('main', (f32[?,2]) -> (f32[?,2]), target='cpu')
    >>> executable(np.ones((1, 2), np.float32))
    array([[2., 2.]], dtype=float32)
    >>> executable.specialize([(3, 2)])
    Executable('main', (f32[3,2]) -> (f32[3,2]), target='cpu')
    >>> list(executable.specializations)
    [((1, 2),), ((3, 2),)]
    """

    limit = 64
    """How many programs are kept; that which was not called for longest goes first."""

    def __init__(
        self,
        source: ir.Module,
        target: str,
        counts: Counts,
        pipeline: Pipeline,
        compile: Callable[[ir.Module, Pipeline], Executable],
    ) -> None:
        self._source, self._name, self._compile = source, module_name(source), compile
        self.pipeline, self.target = pipeline, target
        self.num_replicas, self.num_partitions = counts
        self._parameters = parameters_of(source)
        results = ir.FunctionType(ir.TypeAttr(main_of(source).attributes["function_type"]).value).results
        self._results = tuple(ArrayPattern.of(t) for t in results if not is_token(t))
        self._made: OrderedDict[Shapes, Executable] = OrderedDict()
        self._pending: dict[Shapes, Future[Executable]] = {}
        self._lock = threading.Lock()
        self._number: int | None = None
        self._collective_timeout: float | None = TIME_LIMIT
        self._processes: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """The program's name."""
        return self._name

    @property
    def parameters(self) -> Any:
        """The dtype, name and shape of each argument array, None for an unknown extent."""
        return self._parameters

    @property
    def results(self) -> Any:
        """The dtype and shape of each result array, as `parameters`."""
        return self._results

    @property
    def specializations(self) -> dict[Shapes, Executable]:
        """The cached programs by the shapes of their parameters, most recently used last."""
        with self._lock:
            return dict(self._made)

    # ---- the choice ------------------------------------------------------------------------------------------------

    def specialize(self, arguments: Sequence[object]) -> Executable:
        """Return the program for arguments of these shapes.

        Args:
            arguments: for each parameter an array, a shape (a tuple of integers or an `sx.Shape`) or a number.

        Raises:
            ExecutionError: shapes that do not fit the parameters, that break the rule of an operation, or for which a
                shape assertion of the program does not hold.
            UnsupportedError: the extents inside the program depend on values.
            CompileError: as `sx.compile`.
        """
        if len(arguments) != len(self._parameters):
            wanted = f"{len(self._parameters)} argument" + ("s" if len(self._parameters) != 1 else "")
            raise ExecutionError(f"{self.name}: takes {wanted}, but {len(arguments)} came: {self._signature_text()}")
        shapes = tuple(_shape_of(a, self.name, i) for i, a in enumerate(arguments))
        self._check(shapes)
        return self._make(shapes)

    def _for(self, arguments: Sequence[Any]) -> Executable:
        """Return the program for arrays of known shapes, by a fast path for repeated calls."""
        try:
            shapes = tuple([a.shape for a in arguments])
            executable = self._made[shapes]
            self._made.move_to_end(shapes)
        except (AttributeError, KeyError, TypeError):
            return self.specialize(arguments)
        return executable

    def _check(self, shapes: Shapes) -> None:
        for i, (pattern, shape) in enumerate(zip(self._parameters, shapes, strict=True)):
            if not pattern.takes(shape):
                came = f"an array of the shape {_text([shape])} came"
                raise ExecutionError(f"{self.name}: {pattern.place(i)} takes {pattern}, but {came}")

    def _make(self, shapes: Shapes) -> Executable:
        """Compile, or wait for the thread that does."""
        with self._lock:
            if shapes in self._made:
                self._made.move_to_end(shapes)
                return self._made[shapes]
            others = self._pending.get(shapes)
            mine = self._pending.setdefault(shapes, Future())
        if others is not None:
            return others.result()
        try:
            executable = self._compiled(shapes)
        except BaseException as error:
            with self._lock:
                del self._pending[shapes]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._pending[shapes]
            self._made[shapes] = executable
            while len(self._made) > max(1, self.limit):
                self._made.popitem(last=False)
        mine.set_result(executable)
        return executable

    def _compiled(self, shapes: Shapes) -> Executable:
        with self._contexts():
            try:
                source = copy_of(self._source, here=True)
                executable = self._compile(source, with_shapes(self.pipeline, source, shapes))
            except (VerificationError, ExecutionError) as error:
                raise self._refused(shapes, error) from None
        if self._number is not None:
            executable.seed(self._number)
        executable.collective_timeout = self._collective_timeout
        if self._processes is not None:
            executable.processes = self._processes
        return executable

    def _refused(self, shapes: Shapes, error: VerificationError | ExecutionError) -> ExecutionError:
        said = error.summary
        if isinstance(error, VerificationError):
            said = f"the shapes of the arguments do not fit the program: {said}"
        given = enumerate(zip(self._parameters, shapes, strict=True))
        operands = {p.place(i): f"{p.element}{_text([shape])}" for i, (p, shape) in given}
        return ExecutionError(f"{self.name}: {said}", operands=operands)

    # ---- what the chosen one does ----------------------------------------------------------------------------------

    execute = _of_the_chosen(Executable.execute)
    check = _of_the_chosen(Executable.check)
    compare = _of_the_chosen(Executable.compare)
    profile = _of_the_chosen(Executable.profile)

    def __call__(self, *arguments: object, **named: object) -> Any:
        """Run the program; compile it first for new shapes."""
        if named:
            arguments = in_order(self.name, [pattern.name for pattern in self._parameters], arguments, named)
        return self._for(arguments)(*arguments)

    def execute_replicated(self, arguments: Sequence[Sequence[object] | None], **how: Any) -> Any:
        """Like `Executable.execute_replicated`; the shapes of the arguments are the same on all devices."""
        here = set(self.local_devices)
        own = [(d, given) for d, given in enumerate(arguments) if d in here and given is not None]
        if not own:
            raise ExecutionError(f"{self.name}: runs on {self.num_devices} devices, but no arguments came")
        shapes = [tuple(_shape_of(a, self.name, i) for i, a in enumerate(given)) for _, given in own]
        for (device, _), others in zip(own, shapes, strict=True):
            if others != shapes[0]:
                raise ExecutionError(
                    f"{self.name}: all devices run one program, and device {device} was given other shapes "
                    f"than device {own[0][0]}",
                    operands={f"device {d}": _text(s) for d, s in ((own[0][0], shapes[0]), (device, others))},
                )
        return self._for(own[0][1]).execute_replicated(arguments, **how)

    @property
    def collective_timeout(self) -> float | None:
        """As `Executable.collective_timeout`, for the programs of all shapes."""
        return self._collective_timeout

    @collective_timeout.setter
    def collective_timeout(self, seconds: float | None) -> None:
        self._collective_timeout = checked_limit(seconds, "collective_timeout")
        for executable in self.specializations.values():
            executable.collective_timeout = seconds

    @property
    def processes(self) -> tuple[int, ...]:
        """As `Executable.processes`, for the programs of all shapes."""
        return self._processes or spread(self._name, self.num_devices, None)

    @processes.setter
    def processes(self, ranks: Sequence[int]) -> None:
        self._processes = spread(self._name, self.num_devices, ranks)
        for executable in self.specializations.values():
            executable.processes = self._processes

    def seed(self, number: int) -> None:
        """Like `Executable.seed`, for the program of each set of shapes by itself."""
        self._number = number
        for executable in self.specializations.values():
            executable.seed(number)

    # ---- what needs shapes -----------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # Attributes of an executable for certain shapes that this one lacks.
        if name in ("_devices", "_function", "_host", "_is_plain", "_run", "_signature", "_tree"):
            self._without_shapes("this")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _pipeline_again(self) -> Pipeline:
        self._without_shapes("this")

    def _without_shapes(self, what: str) -> NoReturn:
        example = ", ".join(str(tuple(n or 2 for n in p.shape)) for p in self._parameters)
        raise CompileError(
            f"{self.name}: {what} needs a program whose shapes are known: {self._signature_text()}",
            hint=f"executable.specialize([{example}])",
        )

    def _signature_text(self) -> str:
        return f"({', '.join(map(str, self._parameters))}) -> ({', '.join(map(str, self._results))})"

    def __repr__(self) -> str:
        return f"ShapedExecutable({self.name!r}, {self._signature_text()}, target={self.target!r}{self._on()})"

    def _repr_html_(self) -> str:
        return f"<b>{self.name}</b> {self._signature_text()} for {self.target}{self._on()}"

    def _on(self) -> str:
        return several(self.num_replicas, self.num_partitions)


def _shape_of(value: Any, program: str, index: int) -> tuple[int, ...]:
    if isinstance(value, Shape):
        return tuple(value.dimensions)
    if isinstance(value, tuple):
        try:
            return tuple(n.__index__() for n in value)
        except AttributeError:
            pass
    elif (shape := getattr(value, "shape", None)) is not None:
        return tuple(int(n) for n in shape)
    try:
        return np.shape(value)
    except ValueError as error:
        raise ExecutionError(f"{program}: argument {index} is no array: {error}") from None


def _text(shapes: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"[{','.join(map(str, shape))}]" for shape in shapes)
