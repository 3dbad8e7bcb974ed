"""Functions of JAX explained, profiled, compared and checked, on arguments as the function itself takes them."""

from __future__ import annotations

import abc
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stablexla.executable.executable import Executable
from stablexla.interop.jax.arrays import Array
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline

if TYPE_CHECKING:
    from stablexla.inspection.checking.finding import CheckFinding
    from stablexla.inspection.comparing.comparison import Comparison
    from stablexla.inspection.explaining.explanation import Explanation
    from stablexla.inspection.profiling.profile import Profile

_PROFILE = ("runs",)
_COMPARE = ("against", "tolerance", "ulp", "cause")
_CHECK = ("kinds", "time_limit")


class Inspection:
    """A compiled program with arguments. Donated arguments stay as they are, and so do references.

    Attributes:
        executable: the program.
        arguments: its flat arrays.
    """

    def __init__(self, executable: Executable, arguments: Sequence[Array]) -> None:
        self.executable = executable
        self.arguments = tuple(arguments)

    def explain(self) -> Explanation:
        """Explain each operation, as `Executable.explain` does.

        Raises:
            CompileError: the pipeline leaves no kernels, as one of a user may.
        """
        return self.executable.explain()

    def profile(self, *, runs: int = 10) -> Profile:
        """Measure the time of each kernel, as `Executable.profile` does.

        Args:
            runs: how often it runs, after one run that does not count.
        """
        return self.executable.profile(self.arguments, runs=runs)

    def trace(self, path: str | Path, *, runs: int = 10) -> Profile:
        """Profile the program and write the trace to a file for Perfetto, as `Profile.save_trace` does.

        Args:
            path: the file, which is replaced if it is there.
            runs: how often it runs, after one run that does not count.

        Returns:
            The profile.

        Raises:
            OSError: the file cannot be written.
        """
        profile = self.profile(runs=runs)
        profile.save_trace(path)
        return profile

    def compare(
        self,
        against: str | Pipeline | CompileOptions | Executable = "interpreter",
        *,
        tolerance: float | None = None,
        ulp: float | None = None,
        cause: bool = True,
    ) -> Comparison:
        """Find the first wrong operation, as `Executable.compare` does, with its options.

        Raises:
            CompileError: there is nothing of the name `against`.
            UnsupportedError: a program for several devices.
        """
        return self.executable.compare(self.arguments, against, tolerance=tolerance, ulp=ulp, cause=cause)

    def check(self, kinds: str | Sequence[str] = "nan", *, time_limit: float | None = None) -> CheckFinding | None:
        """Return the first operation that makes a NaN, or shows another of the kinds, as `Executable.check` does.

        Raises:
            ExecutionError: a run beyond the time limit.
            CompileError: a kind that there is not.
            UnsupportedError: a program with sizes at run time.
        """
        return self.executable.check(self.arguments, kinds, time_limit=time_limit)

    def __repr__(self) -> str:
        return f"Inspection({self.executable!r})"


class Inspectable(abc.ABC):
    """Something that is called with trees of arrays, and inspected on them."""

    @abc.abstractmethod
    def inspect(self, *args: Any, **kwargs: Any) -> Inspection:
        """Return the compiled program with these arguments, to be explained, profiled, traced, compared and checked.

        Its methods take options without a clash with the function's own keyword arguments.

        Args:
            args, kwargs: as the function takes them.

        Raises:
            ExecutionError: arguments that the program does not take.

        >>> import jax.numpy as jnp
        >>> mean = sx.interop.jax.jit(lambda tree, runs: (tree["a"] * runs).mean())
        >>> mean.inspect({"a": jnp.ones(64)}, runs=2).profile(runs=3).runs
        3
        """

    def profile(self, *args: Any, **kwargs: Any) -> Profile:
        """Measure the time of each kernel on these arguments; its `save_trace(path)` writes a file for Perfetto.

        The program runs several times; effects, as of `jax.debug.print`, happen each time.

        Args:
            args, kwargs: as the function takes them. `runs=` is how often the program runs, 10 if not given, unless the
                function has an argument of that name; then `inspect(...).profile(runs=...)` takes it.

        Returns:
            The profile, as of `Executable.profile`.

        Raises:
            ExecutionError: arguments that the program does not take.

        >>> import jax.numpy as jnp
        >>> total = sx.interop.jax.jit(lambda tree: tree["a"].sum())
        >>> [row.kernel.kind for row in total.profile({"a": jnp.ones(64)}, runs=3).kernels]
        ['row']
        """
        options, kwargs = self._split(kwargs, _PROFILE)
        return self.inspect(*args, **kwargs).profile(**options)

    def compare(self, *args: Any, **kwargs: Any) -> Comparison:
        """Run the program in two ways on these arguments, and find the first wrong operation.

        Args:
            args, kwargs: as the function takes them. `against=`, `tolerance=`, `ulp=` and `cause=` are those of
                `Executable.compare`, unless the function has an argument of that name; then `inspect(...).compare(...)`
                takes them.

        Returns:
            The comparison: true if all is right; as text a report.

        Raises:
            ExecutionError: arguments that the program does not take.
            CompileError: there is nothing of the name `against`.
            UnsupportedError: a program for several devices.

        >>> import jax.numpy as jnp
        >>> double = sx.interop.jax.jit(lambda tree: {"twice": tree["a"] * 2})
        >>> bool(double.compare({"a": jnp.ones(3)}, against="plain"))
        True
        """
        options, kwargs = self._split(kwargs, _COMPARE)
        return self.inspect(*args, **kwargs).compare(**options)

    def check(self, *args: Any, **kwargs: Any) -> CheckFinding | None:
        """Run the program with checks on these arguments, and return the first operation that makes a NaN, if one does.

        Args:
            args, kwargs: as the function takes them. `kinds=` and `time_limit=` are those of `Executable.check`, unless
                the function has an argument of that name; then `inspect(...).check(...)` takes them.

        Returns:
            The finding, as of `Executable.check`; None if there is none.

        Raises:
            ExecutionError: arguments that the program does not take; a run beyond the time limit.
            CompileError: a kind that there is not.
            UnsupportedError: a program with sizes at run time.

        >>> import jax.numpy as jnp
        >>> entropy = sx.interop.jax.jit(lambda tree: -tree["p"] * jnp.log(tree["p"]))
        >>> finding = entropy.check({"p": jnp.array([0.5, 0.5, 0.0])})
        >>> finding.operation, finding.index
        ('stablehlo.multiply', (2,))
        """
        options, kwargs = self._split(kwargs, _CHECK)
        return self.inspect(*args, **kwargs).check(**options)

    @abc.abstractmethod
    def _own_names(self) -> Collection[str]:
        """Return the names of the function's keyword arguments."""

    def _split(self, kwargs: dict[str, Any], names: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the options among keyword arguments, and the function's own ones."""
        own = self._own_names()
        options = {name: kwargs[name] for name in names if name in kwargs and name not in own}
        return options, {name: value for name, value in kwargs.items() if name not in options}
