"""The result of a compilation: a program that runs on arrays and describes its own compilation.

Stages are recomputed from the source on request, so that unread stages cost nothing.
"""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from stablexla.builder.tuple_tree import TupleTree
from stablexla.dialects.custom_calls import OF_THIS_PROCESS
from stablexla.dialects.errors import CompileError, ExecutionError, OutOfMemoryError
from stablexla.dialects.satellites import satellite
from stablexla.dialects.uncopied import Uncopied
from stablexla.executable.devices import Devices
from stablexla.executable.memory import MemoryEstimate, estimate_of, located
from stablexla.executable.on_devices import OnDevices, one_or_all
from stablexla.executable.running import limits
from stablexla.executable.saving import save
from stablexla.executable.sharded import run_sharded
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.runtime._runtime import ArraySpec, CompiledFunction, GpuFunction
from stablexla.targets.runtime.bounded import BoundedFunction
from stablexla.targets.runtime.host import Host
from stablexla.targets.signature.array_sharding import Shardings
from stablexla.targets.signature.interface import Signature, argument_names

# Both MLIRs are imported where they are used: a program that was loaded from a file starts without them.
if TYPE_CHECKING:
    import jaxlib.mlir.ir as hlo_ir

    from stablexla.builder.computation import XlaComputation
    from stablexla.inspection.checking.checker import Checker
    from stablexla.inspection.checking.finding import CheckFinding
    from stablexla.inspection.comparing.comparison import Comparison
    from stablexla.inspection.explaining.explanation import Explanation
    from stablexla.inspection.profiling.profile import Profile
    from stablexla.targets.codegen.summary import KernelSummary
    from stablexla.targets.pipeline.driver import Watcher
    from stablexla.targets.pipeline.options import CompileOptions

Array = npt.NDArray[Any]

_LARGE = 16
"""Elements of constants that are left out of the text of a program that lacks its frozen arrays."""


class Executable(Uncopied, OnDevices):
    """A compiled program. It may be called from many threads at once; the GIL is released while it runs."""

    _module: hlo_ir.Module | None
    source_bytes: bytes | None
    """The program as bytecode, where that is all that is kept of it."""
    origin: str = ""
    """The file that it was loaded from, and whether that was signed; "" for what this process compiled."""
    lost_functions: bool = False
    """Whether rules or passes that were given as functions made it, which the file that it was loaded from lacks."""
    _kernels: tuple[KernelSummary, ...] | None = None  # once they have been asked for
    _in_place = "executable.save(path), and sx.load_executable(path) in the other process"

    def __init__(
        self,
        source: hlo_ir.Module | bytes,
        signature: Signature,
        function: CompiledFunction | GpuFunction,
        pipeline: Pipeline,
        *,
        target: str = "cpu",
        num_replicas: int = 1,
        num_partitions: int = 1,
        computation: XlaComputation | None = None,
        tree: TupleTree | None = None,
        options: CompileOptions | None = None,
        shardings: Shardings | None = None,
    ) -> None:
        self._source = source
        self._signature = signature
        self._function = function
        self.pipeline = pipeline
        """The steps that it was compiled with."""
        self.target = target
        """The target that it was compiled for."""
        self._compile_options = options
        self._checkers: dict[tuple[str, ...], Checker] = {}
        self._overrides: tuple[str, ...] = ()  # files of the user's that took the place of stages
        self.num_replicas = num_replicas
        self.num_partitions = num_partitions
        self._tree = tree or TupleTree.of(computation)
        self._devices = Devices(function, signature, self._tree, self._digest)
        self._shardings = shardings
        self._run: Callable[[Sequence[object]], list[Array]] = function.execute
        if shardings is not None:
            self._run = self._run_sharded
        elif self._devices.count > 1:
            self._run = self._devices.execute
        elif not signature.is_static:
            self._run = BoundedFunction(function, signature.dynamic_parameters, signature.dynamic_results).execute
        # So that a small call costs little.
        self._is_plain = self._tree is None and signature.is_static and self._devices.count == 1
        self._host: Host = function.host or Host(signature.name, ())

    @property
    def _source(self) -> hlo_ir.Module:
        """The program in StableHLO, parsed when it is asked for where only its bytes are kept."""
        with self._parsing:
            if self.source_bytes == b"":
                raise CompileError(
                    f"{self.name}: it was saved without its source, which this needs",
                    hint="executable.save(path), with the source",
                    option="stablexla-compile without --no-source",
                )
            if self._module is None:
                from stablexla.dialects.contexts import contexts_of_their_own
                from stablexla.dialects.held_arrays import with_placeholders
                from stablexla.interop.loading import load_bytes

                assert self.source_bytes is not None
                with contexts_of_their_own():
                    source = load_bytes(self.source_bytes, f"the source of {self.name}", trusted=True)
                    self._module = with_placeholders(source)
            return self._module

    @_source.setter
    def _source(self, source: hlo_ir.Module | bytes) -> None:
        self._parsing = threading.Lock()
        self._module, self.source_bytes = (None, source) if isinstance(source, bytes) else (source, None)

    def _digest(self) -> bytes:
        """Return a digest of the program without its locations, which is the same in all processes that have it."""
        from stablexla.dialects.held_arrays import with_elements

        text = str(with_elements(self._source).operation.get_asm())
        text = re.sub(f"{OF_THIS_PROCESS}\\d+", OF_THIS_PROCESS, text)
        return sha256(f"{self.num_replicas} {self.num_partitions} {text}".encode()).digest()

    @property
    def _stablehlo(self) -> hlo_ir.Module:
        """The program in StableHLO.

        Raises:
            CompileError: it was compiled from the text of a later stage.
        """
        from stablexla.dialects.held_arrays import ELIDED
        from stablexla.targets.pipeline.driver import side_of

        if ELIDED in self._source.operation.attributes:
            raise CompileError(
                f"{self.name}: its file has frozen arrays as its kernels read them, and this needs the program's own",
                hint="compile the frozen program again",
            )
        if side_of(self._source) != "stablehlo":
            raise CompileError(
                f"{self.name}: it was compiled from the text of a stage, and this needs the program in StableHLO",
                hint="compile the program that the text was made of",
            )
        return self._source

    @property
    def name(self) -> str:
        """The program's name."""
        return self._signature.name

    @property
    def parameters(self) -> tuple[ArraySpec, ...]:
        """The dtype, shape and name of each argument array; of a tuple the leaves, of a dynamic size the bound."""
        return tuple(self._function.parameters[: len(self._signature.parameters)])

    @property
    def results(self) -> tuple[ArraySpec, ...]:
        """The dtype and shape of each result array; of a tuple the leaves, of a dynamic size the bound."""
        return tuple(self._function.results[: len(self._signature.results)])

    def __call__(self, *arguments: object, **named: object) -> Any:
        """Run the program.

        Args:
            arguments, named: one for each parameter, in order or by the parameters' names as `executable(x=..., v=...)`
                (those of `parameters`; arg0, arg1 ... where there are none): a numpy array of its dtype and shape, a
                scalar, or anything with DLPack, the buffer protocol or `__array__`. Along a dynamic dimension it may
                have any size up to the bound; results have the size that they came to. A program for a GPU takes arrays
                on it as well.

        Returns:
            The result; a tuple of them when there are several. Where an argument is an array on a GPU, they are such
            arrays (`sx.gpu.DeviceArray`), and the call does not wait for them; except for dynamic sizes.

        Raises:
            ExecutionError: arguments that do not fit the parameters, or a program for several devices: run these by
                `execute_replicated`, unless this process has one device only, or the program has shardings of its
                arguments and results: a call then takes and returns whole arrays.

        >>> b = sx.XlaBuilder("affine")
        >>> x, v = (b.parameter(i, sx.f32[2], name) for i, name in enumerate("xv"))
        >>> sx.compile(b.build(x - v))(v=np.array([1, 2], np.float32), x=np.array([10, 10], np.float32))
        array([9., 8.], dtype=float32)
        """
        if named:
            arguments = in_order(self.name, [spec.name for spec in self.parameters], arguments, named)
        try:
            if self._is_plain:
                return self._function(*arguments)
            if self._tree is not None:
                return self._tree.result(self._run(self._tree.arguments(arguments)))
            return one_or_all(tuple(self._run(arguments)))
        except OutOfMemoryError as error:
            raise self._located(error) from None

    def execute(
        self, arguments: Sequence[object], *, donate: bool = False, time_limit: float | None = None
    ) -> list[Array]:
        """Run the program; the results are a list of arrays, the leaves of a tuple from left to right.

        Args:
            donate: donates the arguments of donated parameters (`tf.aliasing_output` or `jax.buffer_donor` on
                parameters of `main`): results may alias them, as in `aliases`, if an argument is aligned to 64 bytes
                and overlaps no other one. Don't use them afterwards.
            time_limit: seconds that the run may take. It ends between two kernels, at the next iteration of a loop, or
                at the next chunk of a parallel kernel. Ctrl-C ends a run of the main thread in the same way.

        Raises:
            ExecutionError: arguments that do not fit the parameters; a run beyond its time limit.
            UnsupportedError: a time limit for the target "upstream", whose runs cannot be ended.
        """
        if time_limit is not None:
            with limits(time_limit, self.target):
                return self.execute(arguments, donate=donate)
        leaves = arguments if self._tree is None else self._tree.arguments(arguments)
        try:
            if not donate or not self._signature.is_static or self._shardings is not None:
                return self._run(leaves)
            if self._devices.count > 1:
                return self._devices.execute(leaves, True)
            return self._function.execute(leaves, True)
        except OutOfMemoryError as error:
            raise self._located(error) from None

    def _run_sharded(self, arguments: Sequence[object]) -> list[Array]:
        """Run a program on sharded arrays; takes and returns whole arrays."""
        return run_sharded(self, arguments)

    def _located(self, error: OutOfMemoryError) -> OutOfMemoryError:
        return located(error, lambda: self._stablehlo)

    def memory_estimate(self) -> MemoryEstimate:
        """Return the memory that a call needs, and that the program takes itself; nothing runs. `print()` it.

        >>> b = sx.XlaBuilder("outer")
        >>> x = b.parameter(0, sx.f32[1_000_000])
        >>> outer = sx.compile(b.build(sx.mul(sx.broadcast_in_dim(x, (1_000_000, 1_000_000), (0,)), 2.0)))
        >>> outer.memory_estimate().results
        4000000000000
        """
        return estimate_of(self._function, self._signature, len(self._devices.local))

    @property
    def arena_bytes(self) -> int:
        """Size of a call's arena for temporaries; planned at compile time, allocated from the pool by each call.

        >>> text = '''func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
        ...   %0 = stablehlo.dot %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
        ...   %1 = stablehlo.dot %0, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
        ...   return %1 : tensor<8x8xf32>
        ... }'''
        >>> sx.compile(text).arena_bytes
        256
        """
        return int(self._function.arena_bytes)

    @property
    def constant_bytes(self) -> int:
        """Size of the program's constants, packed weights included; they live as long as the executable.

        >>> b = sx.XlaBuilder("table")
        >>> table = b.constant(np.arange(100, dtype=np.float32))
        >>> sx.compile(b.build(b.parameter(0, sx.f32[100]) + table)).constant_bytes
        400
        """
        return sum(constant.nbytes for constant in self._function.constants)

    @property
    def aliases(self) -> dict[int, int]:
        """Maps results to the donated parameters that they can alias, both counted as leaves.

        >>> text = '''func.func @main(%x: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2xf32> {
        ...   %0 = stablehlo.negate %x : tensor<2xf32>
        ...   return %0 : tensor<2xf32>
        ... }'''
        >>> sx.compile(text).aliases
        {0: 0}
        """
        return dict(self._function.aliases)

    def save(self, path: str | Path, *, key: bytes | None = None, source: bool = True) -> None:
        """Write the program with its machine code to a file, for `sx.load_executable`.

        The kernels of a program for a GPU are stored as PTX.

        The file is written atomically. It can be read by this version of stablexla, on machines whose processor has
        all features of this one, or of the one that `CompileOptions(target_cpu="x86-64-v3")` named.

        Args:
            path: the file, which is replaced if it is there.
            key: at least 16 secret bytes, with which the file is signed: `sx.load_executable(path, key=key)` reads no
                other one.
            source: whether the program itself is in the file. Without it `ir`, `kernels`, `explain`, `compare`, `check`
                and `profile` of the loaded one raise CompileError.

        Raises:
            OSError: it cannot be written.
            CompileError: there is no source, as it was compiled from the text of a later stage.
            StablexlaError: that is no key.
        """
        save(self, path, key, source=source)

    def seed(self, number: int) -> None:
        """Seed the random numbers; the same seed repeats the same numbers.

        Without a seed, each executable begins with its own. Each device has its own numbers, derived from `number`:
        those of device 0 equal those of a program for one device.
        """
        self._function.seed(number % 2**64)

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that `ir` takes: "source" and the steps of the pipeline."""
        return ("source", *self.pipeline.names)

    def ir(self, stage: str, *, debug_info: bool = False, large_elements_limit: int | None = None) -> str:
        """Return the program's text after a step.

        Args:
            stage: one of `stages`.
            debug_info: whether locations are printed.
            large_elements_limit: constants of more elements are left out; such a text does not parse.

        Raises:
            CompileError: there is no such stage.
        """
        if stage not in self.stages:
            near = difflib.get_close_matches(str(stage), self.stages, n=1) or self.stages
            raise CompileError(f"{self.name} has no stage {stage!r}", hint=" or ".join(near))
        from stablexla.dialects.held_arrays import ELIDED, short_text
        from stablexla.targets.pipeline.driver import copy_of, run_pipeline
        from stablexla.targets.registry import find_target

        with self._contexts():
            module = copy_of(self._source, here=True)
            if large_elements_limit is None and ELIDED in module.operation.attributes:
                large_elements_limit = _LARGE  # of arrays that are not there
            if stage != "source":
                holds = large_elements_limit is not None
                module = run_pipeline(module, self._pipeline_again().up_to(stage), holds=holds)
            special = find_target(self.target).texts.get(stage)
            if special is not None:
                return special(module)
            return short_text(module, large_elements_limit, enable_debug_info=debug_info)

    @property
    def kernels(self) -> tuple[KernelSummary, ...]:
        """The kernels of the program, in the order of their creation."""
        if self._kernels is None:
            from stablexla.targets.codegen.summary import KernelWatcher  # with all that a target needs

            watcher = KernelWatcher()
            self._watch(watcher, "buffers")
            self._kernels = watcher.kernels
        return self._kernels

    @property
    def composites(self) -> dict[str, str]:
        """Maps each composite operation, by name and version, to "kernel" or "decomposition", or both."""
        from stablexla.targets.stablehlo.composite_ways import CompositeWatcher

        watcher = CompositeWatcher()
        self._watch(watcher, "stablehlo")
        return watcher.ways

    def compare(
        self,
        arguments: Sequence[object],
        against: str | Pipeline | CompileOptions | Executable = "interpreter",
        *,
        tolerance: float | None = None,
        ulp: float | None = None,
        cause: bool = True,
    ) -> Comparison:
        """Run the program in two ways, and find the first wrong operation in program order.

        Each operation is judged on its operands in this executable's own run, so that errors do not propagate; where
        all are right and the program is not, prefixes of the program are tried until one is wrong.

        Args:
            arguments: as `execute` takes them.
            against: "interpreter" (StableHLO's reference interpreter), "xla" (XLA on the CPU); "upstream" (its passes
                and execution engine, behind the lowering rules); "plain", the least that makes a program run, or a
                stage, after which it goes on like that; or another pipeline, other options, or another executable of
                the same program.
            tolerance: how far results may be apart, as a part of the largest one; by element type if not given, and by
                what rounding does in the program.
            ulp: units in the last place that every operation's result may be off; if not given, what StableHLO and
                docs/numerics.md say for the operation.
            cause: whether to look for the step, the pass and the kernel at fault as well.

        Returns:
            The comparison: true if all is right; as text a report. The other implementation runs in a process of its
            own, so that what it cannot do is part of the report.

        Raises:
            ExecutionError: arguments that do not fit.
            CompileError: there is nothing of the name `against`.
            UnsupportedError: a program for several devices.

        >>> b = sx.XlaBuilder("affine")
        >>> affine = sx.compile(b.build(b.parameter(0, sx.f32[3]) * 2.0 + 1.0))
        >>> bool(affine.compare([np.ones(3, np.float32)], "plain"))
        True
        """
        comparing = satellite("inspection.comparing.compare")
        options = comparing.CompareOptions(tolerance=tolerance, ulp=ulp, cause=cause)
        made: Comparison = comparing.compare(self, arguments, against, options)
        return made

    def check(
        self, arguments: Sequence[object], kinds: str | Sequence[str] = "nan", *, time_limit: float | None = None
    ) -> CheckFinding | None:
        """Run the program with checks, and return the first operation that shows one of the kinds; None if none does.

        The program is compiled with checks at the first time, and once more when there is something to show.

        Args:
            arguments: as `execute` takes them; of a program for several devices, as `execute_replicated` does.
            kinds: as `CompileOptions.check`.
            time_limit: seconds after which its runs end; compiling goes on until it is done, and counts.

        Raises:
            ExecutionError: arguments that do not fit; runs beyond the time limit.
            CompileError: a kind that there is not.
            UnsupportedError: a program with sizes at run time.

        >>> b = sx.XlaBuilder("entropy")
        >>> p = b.parameter(0, sx.f32[3])
        >>> entropy = sx.compile(b.build(-p * sx.log(p)))
        >>> finding = entropy.check([np.array([0.5, 0.5, 0.0], np.float32)])
        >>> finding.operation, finding.index, [operand.value for operand in finding.operands]
        ('stablehlo.multiply', (2,), ['-0.0', '-inf'])
        """
        with limits(time_limit, self.target):
            found: CheckFinding | None = satellite("inspection.checking.checked").check(self, arguments, kinds)
        return found

    def explain(self) -> Explanation:
        """Explain each operation: its kernel, bytes, flops and buffers, or why it has none; composites and why.

        `print()` it for tables, `save("page.html")` it for one page with all stages side by side.

        Raises:
            CompileError: the pipeline leaves no kernels, as one of a user may.

        >>> b = sx.XlaBuilder("scaled")
        >>> x = b.parameter(0, sx.f32[64, 64])
        >>> explanation = sx.compile(b.build(sx.exp(x * 2))).explain()
        >>> [kernel.kind for kernel in explanation.kernels]
        ['loop']
        >>> [fate.what for fate in explanation.fates]
        ['constant', 'view', 'kernel', 'kernel']
        """
        from stablexla.targets.pipeline.driver import copy_of

        explain = satellite("inspection.explaining.explain").explain
        with self._contexts():
            source = copy_of(self._stablehlo, here=True)
            names = {"name": self.name, "signature": str(self._signature), "target": self.target}
            made: Explanation = explain(source, self._pipeline_again(), **names)
        return made

    def profile(self, arguments: Sequence[object], *, runs: int = 10) -> Profile:
        """Measure the time of each kernel in a call; `save_trace(path)` writes a file for Perfetto.

        The program is compiled once more, with clock readings around its calls of kernels. On a GPU every launch is
        timed by the GPU's own clock.

        Args:
            arguments: as `execute` takes them; of a program for several devices, as `execute_replicated` does.
            runs: how often it runs, after one run that does not count.

        Raises:
            ExecutionError: arguments that do not fit.

        >>> b = sx.XlaBuilder("total")
        >>> total = sx.compile(b.build(sx.reduce(b.parameter(0, sx.f32[64]), b.constant(0.0), sx.add, (0,))))
        >>> [row.kernel.kind for row in total.profile([np.ones(64, np.float32)]).kernels]
        ['row']
        """
        made: Profile = satellite("inspection.profiling.profile").profile(self, arguments, runs=runs)
        return made

    def _pipeline_again(self) -> Pipeline:
        """The steps of its compilation, for another run of them."""
        return self.pipeline

    def _watch(self, watcher: Watcher, step: str) -> None:
        """Run the pipeline again, up to a step if it has that."""
        from stablexla.targets.pipeline.driver import copy_of, run_pipeline

        pipeline = self._pipeline_again()
        pipeline = pipeline.up_to(step) if step in pipeline else pipeline
        with self._contexts():
            run_pipeline(copy_of(self._source, here=True), pipeline, watcher=watcher, holds=True)

    def _contexts(self) -> AbstractContextManager[None]:
        from stablexla.dialects.contexts import contexts_of_their_own, stablehlo_context

        # The source may belong to another thread, or to contexts of its own, since it is big: operations made of it
        # must not stay in this thread's contexts then.
        return nullcontext() if self._source.context == stablehlo_context() else contexts_of_their_own()

    def __repr__(self) -> str:
        arena = f", arena_bytes={self.arena_bytes}" if self.arena_bytes else ""
        origin = f", {self.origin}" if self.origin else ""
        return f"Executable({self.name!r}, {self._signature}, target={self.target!r}{arena}{self._devices}{origin})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{kind}</td><td>{spec.name or number}</td><td>{spec}</td></tr>"
            for kind, specs in (("parameter", self._function.parameters), ("result", self._function.results))
            for number, spec in enumerate(specs)
        )
        return f"<b>{self.name}</b> for {self.target}{self._devices}<table>{rows}</table>"


def in_order(
    program: str, names: Sequence[str], arguments: Sequence[object], named: Mapping[str, object]
) -> tuple[object, ...]:
    """Return the arguments of a call in the order of the parameters, as Python itself orders those of a function.

    Args:
        program: its name, for errors.
        names: the parameters' names, called as `argument_names` says.
        arguments: those of the first parameters.
        named: those of the others.

    Raises:
        ExecutionError: a name that is no parameter's, or of one that has an argument; a parameter without one.
    """
    known = argument_names(names)
    rest = known[len(arguments) :]
    listed = f"it takes {', '.join(known)}"
    for name in named:
        if name not in rest:
            what = "is given twice" if name in known else "is no parameter"
            raise ExecutionError(f"{program}: {name} {what}; {listed}")
    if missing := [name for name in rest if name not in named]:
        raise ExecutionError(f"{program}: no argument is given for {', '.join(missing)}; {listed}")
    return (*arguments, *(named[name] for name in rest))
