"""A small program for every operation: what the example in its docstring builds, or one of `programs.py`.

Where a program's kernels run and by which way they were written is what `docs/gpu.md` says of its operation.
"""

from __future__ import annotations

import contextlib
import doctest
import functools
import io
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

import stablexla as sx
from stablexla.builder.registry import REGISTRY
from stablexla.compiling.core import compile_watched
from stablexla.compiling.request import Request
from stablexla.dialects.builds.stablehlo_version import has_stablehlo
from stablexla.targets.codegen.summary import KernelSummary, KernelWatcher
from stablexla.targets.gpu.ptx.to_ptx import ptx_of
from stablexla.targets.pipeline.dump import KnobWatcher
from stablexla.targets.pipeline.pipelines import Element, Step
from tests.targets.gpu.programs import PROGRAMS, program

sx.clamp  # noqa: B018  (the first use of an operation fills the registry)
OPERATIONS = tuple(sorted(name for name, row in REGISTRY.items() if has_stablehlo(row.since or "0.9")))
LARGER = {"dot": "dot", "dot_general": "dot-batch", "reduce": "rows", "sort": "sort", "transpose": "transpose"}
"""Operations whose examples are too small for the kernels that are meant for them, and a program of each."""
COMPARISONS = ("eq", "ge", "gt", "le", "lt", "ne")
OF_VECTORS = {
    "f32": (
        *("abs", "add", "atan2", "div", "max", "min", "mul", "next_after", "pow", "rem", "sub", *COMPARISONS),
        *(f"{name}_total_order" for name in COMPARISONS),
    ),
    "s32": ("and_", "or_", "shift_left", "shift_right_arithmetic", "shift_right_logical", "xor"),
}
"""Operations on one array or two, by the type of their elements."""
REPLICAS = {"all_gather": 2, "all_reduce": 4, "all_to_all": 4, "collective_broadcast": 4, "reduce_scatter": 2} | {
    "collective_reduce": 4,
    "all_to_all_tuple": 2,
    "collective_permute": 4,
    "cross_replica_sum": 2,
    "multi_collective_permute": 2,
    "ragged_all_to_all": 2,
}
"""What is written for several devices."""
PARTITIONS = {"convert_spmd_full_to_shard_shape": 2, "convert_spmd_shard_to_full_shape": 2}
"""What is written for several partitions."""
TARGETS = ("column_major", "myfunc", "mysort")
"""The functions that the examples of custom calls name."""
CHIP = "sm_80"


def program_of(name: str) -> sx.XlaComputation:
    """A computation that uses an operation, the function of that name.

    Raises:
        LookupError: there is no example, or it builds nothing.
    """
    if name in LARGER:
        make, arrays = PROGRAMS[LARGER[name]]
        return program(make, *arrays)
    function = getattr(sx, name, None) or getattr(sx.XlaBuilder, name)
    for element, them in OF_VECTORS.items():
        if name in them:
            arrays = (np.ones(4096, sx.element_type(element).dtype),) * (1 if name == "abs" else 2)
            return program(lambda b, *operands: function(*operands), *arrays)
    return _example(name, function)


def _example(name: str, function: Callable[..., Any]) -> sx.XlaComputation:
    """What the example in a function's docstring builds."""
    names: dict[str, object] = {"sx": sx, "np": np}
    made: list[sx.XlaOp] = []
    shown: list[object] = []
    with _recorded(made), mock.patch.object(sys, "displayhook", shown.append):
        for example in doctest.DocTestParser().get_examples(function.__doc__ or ""):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(sx.ShapeError):
                exec(compile(example.source, name, "single"), names)
        made = made or [value for value in shown if isinstance(value, sx.XlaOp)]
        if not made:
            raise LookupError(f"the example of {name} builds nothing")
        if shown and shown[-1] is made[-1]:  # the example ends with it, even where more follows what it comes to
            return made[-1].builder.build(made[-1])
        own = [op for op in made if op.builder is made[-1].builder]
        chosen = [op for op in own if op.name in (REGISTRY[name].emits, name)] or own
        return chosen[-1].builder.build(chosen[-1])


@contextlib.contextmanager
def _recorded(made: list[sx.XlaOp]) -> Iterator[None]:
    """Every value of any builder is put into the list."""
    wrap = sx.XlaBuilder.wrap

    def noted(self: sx.XlaBuilder, shape: sx.Shape, values: tuple[object, ...], name: str) -> sx.XlaOp:
        made.append(wrap(self, shape, values, name))  # type: ignore[arg-type]
        return made[-1]

    with mock.patch.object(sx.XlaBuilder, "wrap", noted):
        yield


class _Noting(KnobWatcher):
    """Keeps the kernels and the PTX of the program that is compiled, so that it need not be compiled again for them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._kernels = KernelWatcher()

    def after_pass(self, step: Step, element: Element, module: Any) -> None:
        """Notes what passes leave of kernels."""
        super().after_pass(step, element, module)
        self._kernels.after_pass(step, element, module)

    def after_step(self, number: int, step: Step, module: Any, seconds: float) -> None:
        """Puts the program together where its PTX stands."""
        super().after_step(number, step, module, seconds)
        self.pass_by_pass = step.name == "kernels"  # in the step after it they are mapped
        if step.name == "ptx":
            noted.append(Compiled(self._kernels.kernels, ptx_of(module)))


@dataclass(frozen=True)
class Compiled:
    """The kernels of a program, and their PTX."""

    kernels: tuple[KernelSummary, ...]
    ptx: str


noted: list[Compiled] = []


@functools.cache
def compiled(name: str) -> Compiled:
    """The program of an operation, compiled for a GPU."""
    with warnings.catch_warnings(), _known_targets():
        warnings.simplefilter("ignore", UserWarning)  # those that name what runs on the host
        counts = REPLICAS.get(name, 1), PARTITIONS.get(name)
        compile_watched(Request(program_of(name), "main", f"gpu:{CHIP}", *counts), _Noting)
    return noted.pop()


@contextlib.contextmanager
def _known_targets() -> Iterator[None]:
    """The functions of `TARGETS` are there."""
    for name in TARGETS:
        sx.register_custom_call(name, lambda *operands: operands[0])
    try:
        yield
    finally:
        for name in TARGETS:
            sx.unregister_custom_call(name)


def kernels_of(name: str) -> str:
    """The kernels of an operation's program as the page has them: "`reduce`, `fft` (general)"."""
    written = {"emitted": "`{}`", "general": "`{}` (general)", "host": "`{}` (host)"}
    found = {written[kernel.path].format(kernel.kind) for kernel in compiled(name).kernels}
    return ", ".join(sorted(found)) or "none"


def stablehlo_in(text: str) -> set[str]:
    """The names of StableHLO's operations in a program's text."""
    return set(re.findall(r"\bstablehlo\.[a-z_0-9]+", text))
