"""Programs with unknown extents: compiled once for each set of argument shapes.

targets/stablehlo/imports/shapes/refinement.py finds the extents inside the program.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import jaxlib.mlir.ir as ir
import numpy as np
import numpy.typing as npt

from stablexla.dialects.contexts import contexts_of_their_own, stablehlo_context
from stablexla.dialects.dynamic_sizes import is_unknown
from stablexla.dialects.errors import CompileError, ExecutionError, VerificationError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.shapes import Shape
from stablexla.executable.devices import TIME_LIMIT, several, spread
from stablexla.executable.executable import Executable, in_order
from stablexla.executable.running import checked_limit
from stablexla.lowering.support.types import is_token
from stablexla.targets.pipeline.driver import copy_of, run_pipeline
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline, Step
from stablexla.targets.registry import Target, pipeline_of
from stablexla.targets.signature.signature import argument_name, body_of, element_type_of, main_of, module_name
from stablexla.targets.stablehlo.imports.shapes.bounds import forget_bounds
from stablexla.targets.stablehlo.imports.shapes.refinement import SHAPES as SHAPES  # it is named from here
from stablexla.targets.stablehlo.imports.shapes.refinement import refining_step

if TYPE_CHECKING:
    from stablexla.inspection.checking.finding import CheckFinding

Array = npt.NDArray[Any]
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ArrayPattern:
    """A parameter or a result some of whose extents are None, not known yet."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    name: str
    element: str
    type: str
    """MLIR's."""

    @staticmethod
    def of(type_: Any, name: str = "") -> ArrayPattern:
        """Return the pattern of a StableHLO type."""
        element = element_type_of(type_)
        extents = tuple(None if type_.is_dynamic_dim(i) else int(n) for i, n in enumerate(type_.shape))
        return ArrayPattern(element.dtype, extents, name, str(element), str(type_))

    def takes(self, shape: Sequence[int]) -> bool:
        """Return whether an array of that shape fits."""
        return len(shape) == len(self.shape) and all(n in (None, m) for n, m in zip(self.shape, shape, strict=True))

    def __str__(self) -> str:
        return f"{self.element}[{','.join('?' if n is None else str(n) for n in self.shape)}]"


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
        target: Target,
        options: CompileOptions,
        num_replicas: int,
        num_partitions: int,
    ) -> None:
        self._source, self._options, self._name = source, options, module_name(source)
        self.pipeline = pipeline_of(target, options)
        self.target, self.num_replicas, self.num_partitions = target.name, num_replicas, num_partitions
        main = main_of(source)
        self._types = [a.type for a in body_of(source).arguments]
        self._parameters = tuple(
            ArrayPattern.of(a.type, argument_name(a)) for a in body_of(source).arguments if not is_token(a.type)
        )
        results = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results
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
        with self._lock:
            if shapes in self._made:
                self._made.move_to_end(shapes)
                return self._made[shapes]
        self._check(shapes)
        return self._make(shapes)

    def _make(self, shapes: Shapes) -> Executable:
        """Compile, or wait for the thread that does."""
        with self._lock:
            if shapes in self._made:
                return self._made[shapes]
            others = self._pending.get(shapes)
            mine = self._pending.setdefault(shapes, Future())
        if others is not None:
            return others.result()
        try:
            executable = self._compile(shapes)
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
                name = f" ({pattern.name})" if pattern.name else ""
                came = ",".join(map(str, shape))
                raise ExecutionError(
                    f"{self.name}: parameter {i}{name} takes {pattern}, but an array of the shape [{came}] came"
                )

    def _compile(self, shapes: Shapes) -> Executable:
        from stablexla.compiling.compiler import compile

        steps = [shapes_step(self._types, shapes), *self.pipeline.steps]
        pipeline = Pipeline(self.pipeline.name, steps, self.pipeline.rules)
        with self._own_contexts():
            try:
                executable = compile(
                    copy_of(self._source, here=True),
                    target=self.target,
                    num_replicas=self.num_replicas,
                    num_partitions=self.num_partitions,
                    options=replace(self._options, pipeline=pipeline),
                )
            except (VerificationError, ExecutionError) as error:
                raise self._refused(shapes, error) from None
        if self._number is not None:
            executable.seed(self._number)
        executable.collective_timeout = self._collective_timeout
        if self._processes is not None:
            executable.processes = self._processes
        return executable

    def _own_contexts(self) -> AbstractContextManager[None]:
        return nullcontext() if self._source.context == stablehlo_context() else contexts_of_their_own()

    def _refused(self, shapes: Shapes, error: VerificationError | ExecutionError) -> ExecutionError:
        said = error.summary
        if isinstance(error, VerificationError):
            said = f"the shapes of the arguments do not fit the program: {said}"
        operands = {
            f"parameter {i}" + (f" ({p.name})" if p.name else ""): f"{p.element}[{','.join(map(str, shape))}]"
            for i, (p, shape) in enumerate(zip(self._parameters, shapes, strict=True))
        }
        return ExecutionError(f"{self.name}: {said}", operands=operands)

    def __call__(self, *arguments: object, **named: object) -> Any:
        """Run the program; compile it first for new shapes."""
        if named:
            arguments = in_order(self.name, [pattern.name for pattern in self._parameters], arguments, named)
        return self._for(arguments)(*arguments)

    def execute(
        self, arguments: Sequence[object], *, donate: bool = False, time_limit: float | None = None
    ) -> list[Array]:
        """Like `Executable.execute`; compile first for new shapes."""
        return self._for(arguments).execute(arguments, donate=donate, time_limit=time_limit)

    def check(
        self, arguments: Sequence[object], kinds: str | Sequence[str] = "nan", *, time_limit: float | None = None
    ) -> CheckFinding | None:
        """Like `Executable.check`, of the program for the shapes of the arguments."""
        return self._for(arguments).check(arguments, kinds, time_limit=time_limit)

    def execute_replicated(
        self,
        arguments: Sequence[Sequence[object] | None],
        *,
        gather: bool = True,
        donate: bool = False,
        time_limit: float | None = None,
    ) -> Any:
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
        return self._for(own[0][1]).execute_replicated(arguments, gather=gather, donate=donate, time_limit=time_limit)

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

    def ir(self, stage: str, *, debug_info: bool = False, large_elements_limit: int | None = None) -> str:
        """Return the source text for "source"; later stages belong to the program for certain shapes.

        Raises:
            CompileError: another stage.
        """
        if stage != "source":
            self._without_shapes(f"the stage {stage!r}")
        text = self._source.operation.get_asm(enable_debug_info=debug_info, large_elements_limit=large_elements_limit)
        return str(text).rstrip("\n")

    def __getattr__(self, name: str) -> Any:
        # Attributes of an executable for certain shapes that this one lacks.
        if name in ("_devices", "_function", "_host", "_is_plain", "_run", "_signature", "_tree"):
            self._without_shapes("this")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _watch(self, watcher: Any, step: str) -> None:
        self._without_shapes(f"the step {step!r}")

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


def executable_for_shapes(
    source: ir.Module, target: Target, options: CompileOptions, num_replicas: int, num_partitions: int
) -> Executable:
    """Return the executable for a program whose `main` has arrays of unknown extents.

    Where only results are unknown, they follow from the parameters at once.
    """
    shaped = ShapedExecutable(source, target, options, num_replicas, num_partitions)
    if any(None in p.shape for p in shaped.parameters):
        return shaped
    return shaped.specialize([p.shape for p in shaped.parameters])


def executable_for_sizes(executable: Executable, arguments: Sequence[Any]) -> Executable:
    """Return the static program for arrays such as these, for a program with sizes at run time.

    Raises:
        UnsupportedError: sizes that do not follow from those of the arguments.
    """
    from stablexla.compiling.compiler import compile

    source = copy_of(executable._stablehlo, here=True)
    forget_bounds(source)
    types = [a.type for a in body_of(source).arguments]
    step = shapes_step(types, tuple(tuple(np.shape(a)) for a in arguments))
    own = executable._pipeline_again()
    pipeline = Pipeline(own.name, [step, *own.steps], own.rules)
    options = replace(executable._compile_options or CompileOptions(), pipeline=pipeline)
    return compile(source, target=executable.target, options=options)


def with_known_shapes(source: ir.Module, pipeline: Pipeline) -> ir.Module | None:
    """Return the program after the step `shapes`; None for a pipeline that does not begin with it.

    Raises:
        VerificationError: the shapes do not fit the program.
        ExecutionError: a shape assertion does not hold.
    """
    if pipeline.names[:1] != (SHAPES,):
        return None
    made: ir.Module = run_pipeline(copy_of(source), pipeline.up_to(SHAPES))
    return made


def shapes_step(types: Sequence[Any], shapes: Shapes) -> Step:
    """Return the step that gives parameters of these types these shapes; tokens among them have none."""
    rest = iter(shapes)
    return refining_step(",".join(str(t) if is_token(t) else type_text(t, next(rest)) for t in types))


def type_text(type_: Any, shape: Sequence[int]) -> str:
    """Return the type of an array of that shape, for a type with unknown extents."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{type_.element_type}>" if is_unknown(type_) else str(type_)


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


def _text(shapes: Shapes) -> str:
    return ", ".join(f"[{','.join(map(str, shape))}]" for shape in shapes)
