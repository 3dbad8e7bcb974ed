"""Options of a compilation, checked when they are constructed.

Each target reads those that concern it (`llvm/options.py`, `gpu/chips.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from stablexla.dialects.choices import Choices
from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import SCHEDULES, LoweringRule
from stablexla.dialects.value_checks import kinds_of
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.runtime.processor import LEVELS

OPT_LEVELS = (0, 1, 2, 3)
VECTOR_BITS = (128, 256, 512)


DEFAULT_TARGET = "cpu"
"""The target where none is given."""
MAIN = "main"
"""The function that runs where no other one is named."""


@dataclass(frozen=True)
class CompileOptions:
    """How a program is compiled; a value that can be compared and hashed.

    Attributes:
        pipeline: the steps to run, in place of the target's own.
        opt_level: LLVM's optimisation level, 0 to 3. Vectors are explicit in what comes to LLVM, so that more than 1
            rarely pays; None is the target's choice.
        num_threads: how many threads may work on a call at most; 1 keeps every call on the thread that makes it, None
            is as many as the process has. How many threads there are says the knob STABLEXLA_NUM_THREADS.
        flush_denormals: lets the processor treat denormal numbers as zero, as XLA does on the CPU.
        excess_precision: lets a kernel hand a value on to its next operation unrounded, in f32 in place of bf16 or
            f16, as XLA's `xla_allow_excess_precision` does, and a product to a sum, by fused multiply-adds. Results
            are quicker, nearer to exact ones, and depend on what is fused.
        vector_bits: width of the vectors in kernels, 128, 256 or 512; None is the processor's own.
        target_cpu: an older processor that the code runs on too, "x86-64", "x86-64-v2", "x86-64-v3" or "x86-64-v4" for
            all that have the features of that level, "armv8-a", "neoverse-n1" or "neoverse-v1" on AArch64; None is
            this one, whose own features the code uses. It is for files that other machines load.
        rules: lowering rules of the user's for this program, made by `sx.lowering_rule`; they go before those that
            are registered.
        deterministic: asks that results do not depend on the number of threads, bit for bit. They never do: sums are
            cut up by sizes that are fixed when a kernel is compiled.
        find_repeats: compiles equal parts of a program once, such as the layers of a model. Results are the same, bit
            for bit.
        isolated: compiles in another process, so that a crash inside of MLIR is a `CompileError` with the step, what
            LLVM said and a file that shows it again. It takes longer: the first time about a second.
        cache: a folder in which compiled programs are kept, and looked for before compiling. When it is None, that of
            the knob STABLEXLA_CACHE, or else the one that is on by default (`sx.kernel_cache`).
        time_limit: seconds that the compilation may take; None is for ever. In this process it ends at the next pass,
            kernel or operation, which one that hangs never comes to: isolated, it is ended wherever it is.
        check: what runs are checked for: "nan", an operation that makes a NaN of operands that are none; "inf", an
            infinity of finite operands; "overflow", the same but for poles, such as 1/0 and log(0), and a NaN for a
            number that is too large in types without infinities; "all", NaN and infinities. Such a run raises
            `CheckError` for the first operation in program order. "division" (integers by zero), "indices" (out of
            range, of gather, scatter and dynamic slices) and "shifts" (by the type's width or more) are warnings.
            Several are a tuple, or joined by commas.
        choices: values of the gates, the sizes at which rewrites, strategies and emitters begin: "usual"; "eager", with
            which arrays of a few elements pass them all, to test them; "drawn:7", some of both and between, by that
            number; "eager+NAME=64" for one of them. Empty is the knob STABLEXLA_CHOICES. Results are the same up to
            rounding.
        schedules: a function that chooses how reductions are split over threads, unrolled and put in lanes: it takes a
            `ScheduledKernel` and the target's `Schedule`, and returns another `Schedule`, or None.

    Raises:
        CompileError: a value that no target could take.

    >>> CompileOptions(opt_level=2, flush_denormals=True)
    CompileOptions(opt_level=2, flush_denormals=True)
    """

    pipeline: Pipeline | None = None
    opt_level: int | None = None
    num_threads: int | None = None
    flush_denormals: bool = False
    excess_precision: bool = False
    vector_bits: int | None = None
    target_cpu: str | None = None
    rules: Sequence[LoweringRule] = ()
    deterministic: bool = False
    find_repeats: bool = True
    isolated: bool = False
    time_limit: float | None = None
    cache: str | Path | None = None
    check: str | Sequence[str] | None = None
    choices: str = ""
    schedules: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        # LLVM aborts the process on some unknown values.
        if self.pipeline is not None and not isinstance(self.pipeline, Pipeline):
            raise CompileError(f"pipeline must be a Pipeline, not {self.pipeline!r}", hint="Pipeline.parse(text)")
        self._one_of("opt_level", OPT_LEVELS)
        self._one_of("vector_bits", VECTOR_BITS)
        if self.target_cpu is not None and self.target_cpu not in LEVELS:
            raise CompileError(f"target_cpu must be one of {', '.join(LEVELS)}, not {self.target_cpu!r}")
        threads = self.num_threads
        if threads is not None and not (_is_int(threads) and 1 <= threads <= 1024):
            raise CompileError(f"num_threads must be a number from 1 to 1024, not {threads!r}")
        object.__setattr__(self, "rules", (self.rules,) if isinstance(self.rules, LoweringRule) else tuple(self.rules))
        for rule in self.rules:
            if not isinstance(rule, LoweringRule):
                raise CompileError(f"{rule!r} is no lowering rule", hint="sx.lowering_rule(name, function)")
        for name in ("flush_denormals", "excess_precision", "deterministic", "find_repeats", "isolated"):
            if not isinstance(getattr(self, name), bool):
                raise CompileError(f"{name} must be True or False, not {getattr(self, name)!r}")
        self._check_time_limit()
        if not isinstance(self.choices, str):
            raise CompileError(f"choices must be a text, not {self.choices!r}", hint='"eager"')
        Choices.of(self.choices.partition("+")[0])
        if self.schedules is not None and not callable(self.schedules):
            raise CompileError(
                f"schedules must be a function, not {self.schedules!r}", hint="lambda kernel, schedule: None"
            )
        object.__setattr__(self, "check", kinds_of(self.check) or None)
        if self.cache is not None and not isinstance(self.cache, (str, Path)):
            raise CompileError(f"cache must be the path of a folder, not {self.cache!r}")

    @property
    def all_rules(self) -> tuple[LoweringRule, ...]:
        """The rules, and that for schedules."""
        own = () if self.schedules is None else (LoweringRule(SCHEDULES, self.schedules),)
        return (*self.rules, *own)

    def _check_time_limit(self) -> None:
        limit = self.time_limit
        if limit is None:
            return
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 < limit < float("inf"):
            raise CompileError(f"time_limit must be a number of seconds, not {limit!r}")

    def _one_of(self, name: str, values: tuple[int, ...]) -> None:
        value = getattr(self, name)
        if value is not None and not (_is_int(value) and value in values):
            raise CompileError(f"{name} must be one of {', '.join(map(str, values))}, not {value!r}")

    def __repr__(self) -> str:
        given = (f for f in fields(self) if getattr(self, f.name) != f.default)
        return f"CompileOptions({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in given)})"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
