"""The registry of kernel emitters: which functions may write which kind of kernel for a target, by priority."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import mlir.ir as ir

from stablexla.dialects.errors import CompileError
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.refusals import EMPTY, NESTS, Refusal, take_refusal, without_emitters
from stablexla.targets.grouping.classify import Kind
from stablexla.targets.pipeline.passes import USERS_EMITTERS

Emitter = TypeVar("Emitter", bound=Callable[..., Any])


class Emitters(dict[str, list[Emitter]]):
    """The emitters of one target, by kind of kernel; those of the highest priority come first.

    An emitter takes a kernel and the target, and returns `Emitted`, or None when it cannot take the kernel; it has then
    left the module as it was.
    """

    def __init__(self) -> None:
        super().__init__()
        self._priorities: dict[tuple[str, Emitter], int] = {}

    def register(self, *kinds: str, priority: int = 0) -> Callable[[Emitter], Emitter]:
        """A decorator that enters an emitter for kernels of `kinds`.

        Raises:
            ValueError: another emitter of a kind has the same priority. Which of them is asked first would depend on
                the order of imports.
        """

        def enter(function: Emitter) -> Emitter:
            is_users = not function.__module__.startswith("stablexla.")
            if is_users:
                self._warn_of_slips(kinds)
            for kind in kinds:
                for other in self.get(kind, []):
                    if self._priorities[kind, other] == priority:
                        names = f"{function.__module__}.{function.__name__} and {other.__module__}.{other.__name__}"
                        raise ValueError(f"{names} are emitters of {kind!r} with one priority, {priority}")
                self._priorities[kind, function] = priority
                self.setdefault(kind, []).append(function)
                self[kind].sort(key=lambda one: -self._priorities[kind, one])
            if is_users:
                USERS_EMITTERS.append(function)
            return function

        return enter

    def _warn_of_slips(self, kinds: Sequence[str]) -> None:
        """Warn of kinds that no kernel has so far and that read like one; a kind of the user's own is fine."""
        known = {*self, *(kind.value for kind in Kind)}
        for kind in kinds:
            near = difflib.get_close_matches(kind, known, n=1)
            if kind not in known and near:
                warnings.warn(f"no kernel is of kind {kind!r}: {near[0]!r}?", stacklevel=3)

    def emit(self, kernel: Kernel, target: object) -> Emitted | None:
        """Emit a kernel by the first emitter that takes it; None when all refuse, and the kernel keeps the reason.

        Raises:
            CompileError: an emitter gives something else than `Emitted` or None, or None after it has declared a
                function, beside which no other emitter could declare its own.
        """
        take_refusal()  # of another kernel
        for ask in self.get(kernel.kind, []):
            declared = len(kernel.emitted)
            emitted: Emitted | None = ask(kernel, target)
            if isinstance(emitted, Emitted):
                return emitted
            who = f"the emitter {ask.__module__}.{ask.__name__} of kernel @{kernel.name}"
            if emitted is not None:
                raise CompileError(f"{who} gave a {type(emitted).__name__}, where an emitter gives Emitted or None")
            if len(kernel.emitted) > declared:
                raise CompileError(
                    f"{who} gave None, and has declared a function of the kernel",
                    hint="return Emitted(items=..., grain=...), or None before kernel.phase and kernel.declare",
                )
        kernel.refusal = self._refusal(kernel)
        return None

    def _refusal(self, kernel: Kernel) -> Refusal:
        if kernel.kind not in self:
            return without_emitters(kernel.kind)
        is_empty = any(isinstance(v.type, ir.RankedTensorType) and 0 in v.type.shape for v in kernel.results)
        return take_refusal() or (EMPTY if is_empty else NESTS)
