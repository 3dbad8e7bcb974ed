"""The two MLIR contexts, StableHLO's (from jaxlib) and upstream's, and the capture of their diagnostics.

The two share no objects. A thread that compiles has a pair of its own, and programs with many constants have others:
MLIR's Python bindings hold the GIL while they work, and a context used by one thread only needs no lock. It has no
worker threads: a forked child would lack them and deadlock, and they made no compilation faster.
"""

from __future__ import annotations

import inspect
import re
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal

import jaxlib.mlir.ir as hlo_ir
import jaxlib.mlir.passmanager as hlo_passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, sdy, stablehlo

from stablexla.dialects.lazy_dataclass import dataclass

if TYPE_CHECKING:  # programs are built, and found in the cache, without upstream's MLIR
    import mlir.ir as ir

_local = threading.local()
_left: list[dict[str, Any]] = []
_passes_registered = False


def stablehlo_context() -> hlo_ir.Context:
    """Return this thread's context of StableHLO, CHLO, VHLO, Shardy, func and other dialects that producers use."""
    _take_contexts()
    context = getattr(_local, "stablehlo", None)
    if context is None:
        context = _local.stablehlo = new_stablehlo_context()
    return context


def upstream_context() -> ir.Context:
    """Return this thread's context of all upstream dialects."""
    _take_contexts()
    context = getattr(_local, "upstream", None)
    if context is None:
        import mlir.ir as ir

        from stablexla.dialects.views import prefer_views

        prefer_views()
        context = _local.upstream = ir.Context()
        context.enable_multithreading(False)
        context.load_all_available_dialects()
    return context


MOST_CONSTANT_BYTES = 64 << 20
"""Bytes of constants that contexts are to hold: they free none before they are freed themselves."""
_FEW = 4 << 10
"""Bytes that are not worth contexts of their own, which take some milliseconds."""


def take_in(size: int) -> bool:
    """Return whether this thread's contexts can take in a program of so many bytes; count them if so."""
    _take_contexts()
    taken = getattr(_local, "taken", 0) + size
    if taken > MOST_CONSTANT_BYTES:
        return size <= _FEW
    _local.taken = taken
    return True


@contextmanager
def contexts_of_their_own() -> Iterator[None]:
    """Give this thread two new contexts for the length of a `with` block.

    A context never frees constants. Those of a big program, or of many, should be freed with the programs.
    """
    kept = dict(vars(_local))
    vars(_local).clear()
    try:
        yield
    finally:
        vars(_local).clear()
        vars(_local).update(kept)


def leave_contexts() -> None:
    """Leave this thread's contexts to the next thread that needs a pair; this one uses them no more."""
    if vars(_local):
        _left.append(dict(vars(_local)))
    vars(_local).clear()


def _take_contexts() -> None:
    """Give a thread without contexts a pair that another one left."""
    if not vars(_local):
        with suppress(IndexError):
            vars(_local).update(_left.pop())


@contextmanager
def many_threads(context: ir.Context) -> Iterator[None]:
    """Let other threads use this thread's context for the length of a `with` block."""
    _local.open = getattr(_local, "open", 0) + 1
    if _local.open == 1:  # changing it while passes run ends the process
        context.enable_multithreading(True)
    try:
        yield
    finally:
        _local.open -= 1
        if _local.open == 0:
            context.enable_multithreading(False)


def pass_manager(
    side: Literal["stablehlo", "upstream"], pipeline: str, *, verify_each: bool = True, number: int = 0
) -> Any:
    """Return this thread's pass manager for a pipeline as `mlir-opt` takes it, such as `builtin.module(cse)`.

    It is kept with the contexts: when a manager first runs, its passes collect the patterns of all dialects, which for
    `canonicalize` takes longer than the rewriting of a small program.

    Args:
        number: of several that run at the same time; 0 is the one of this thread alone.

    Raises:
        ValueError: the text does not parse.
    """
    managers = kept_with_contexts("pass managers")
    key = side, pipeline, verify_each, number
    if key not in managers:
        context, kind = _of_side(side)
        made = kind.PassManager.parse(pipeline, context)
        made.enable_verifier(verify_each)
        managers[key] = context, made  # freed from the right: a manager before its context
    return managers[key][1]


def _of_side(side: Literal["stablehlo", "upstream"]) -> tuple[Any, Any]:
    """Return this thread's context of a side, and the bindings' module with pass managers for it."""
    if side == "stablehlo":
        return stablehlo_context(), hlo_passmanager
    import mlir.passmanager as passmanager

    return upstream_context(), passmanager


WORK = "work"
"""Cache of `kept_with_contexts`: futures of what other threads do in them."""


@contextmanager
def unregistered_allowed(*contexts: Any) -> Iterator[None]:
    """Allow operations of unknown dialects inside a `with` block; making one ends the process elsewhere.

    MLIR ends the process, too, when this changes while passes run on other threads: these are waited for.
    """
    work = kept_with_contexts(WORK)
    if work:
        from concurrent.futures import wait  # 3 ms, which only programs of several parts take

        wait(tuple(work))
    before = [context.allow_unregistered_dialects for context in contexts]
    for context in contexts:
        context.allow_unregistered_dialects = True
    try:
        yield
    finally:
        for context, value in zip(contexts, before, strict=True):
            context.allow_unregistered_dialects = value


def kept_with_contexts(name: str) -> dict[Any, Any]:
    """Return a cache keyed by attributes and types; it is freed with this thread's contexts."""
    try:
        tables: dict[str, dict[Any, Any]] = _local.tables
    except AttributeError:
        tables = _local.tables = {}
    found = tables.get(name)
    if found is None:
        found = tables[name] = {}
    return found


def new_stablehlo_context() -> hlo_ir.Context:
    """Return a context as `stablehlo_context` does that is no thread's."""
    # jaxlib registers neither func nor the general passes until its own extension is called.
    registry = hlo_ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = hlo_ir.Context()
    context.enable_multithreading(False)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    sdy.register_dialect(context)
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    global _passes_registered
    if not _passes_registered:
        stablehlo.register_stablehlo_passes()
        _passes_registered = True
    _load_quant(context)
    return context


def _load_quant(context: hlo_ir.Context) -> None:
    """Load the quant dialect, which only this pass depends on; without it, quantized types do not even parse."""
    module = hlo_ir.Module.create(hlo_ir.Location.unknown(context))
    hlo_passmanager.PassManager.parse("builtin.module(vhlo-legalize-to-stablehlo)", context).run(module.operation)


@dataclass(frozen=True)
class Diagnostic:
    """One message of MLIR: its severity, place (file, line, column or the location's text) and text."""

    severity: str
    message: str
    location: str

    def __str__(self) -> str:
        place = "" if self.location in ("", "unknown", "loc(unknown)") else f"{self.location}: "
        return f"{place}{self.severity}: {self.message}"


_listener: ContextVar[Callable[[Diagnostic], None] | None] = ContextVar("stablexla_listener", default=None)


@contextmanager
def listening(listener: Callable[[Diagnostic], None]) -> Iterator[None]:
    """Report every diagnostic in this thread's contexts to `listener`, wherever it is caught.

    Exceptions of MLIR then carry no diagnostics.
    """
    contexts = stablehlo_context(), upstream_context()
    token = _listener.set(listener)
    for context in contexts:
        context.emit_error_diagnostics = True
    try:
        yield
    finally:
        _listener.reset(token)
        for context in contexts:
            context.emit_error_diagnostics = False


def _text_of(found: Any) -> str:
    try:
        return str(found.message)
    except (RuntimeError, UnicodeDecodeError):  # damaged bytecode may name things by bytes that are no text
        return "something that is no text"


def _place_of(found: Any) -> str:
    return str(found.location).removeprefix("loc(").removesuffix(")")


@contextmanager
def diagnostics(context: Any) -> Iterator[list[Diagnostic]]:
    """Collect the diagnostics of `context` (of either MLIR), so that none reach stderr."""
    seen: list[Diagnostic] = []

    def note(found: Any) -> bool:
        severity = str(found.severity).rsplit(".", 1)[-1].lower()
        said = [Diagnostic(severity, _text_of(found), _place_of(found))]
        said += [Diagnostic("note", _text_of(n), _place_of(n)) for n in found.notes]
        seen.extend(said)
        listener = _listener.get()
        if listener is not None:
            for one in said:
                listener(one)
        return True

    handler = context.attach_diagnostic_handler(note)
    try:
        yield seen
    finally:
        handler.detach()


_OF_OTHER_MLIR = re.compile(r"std::bad_cast|incompatible function arguments|requires an? (Context|Location|Insertion)")


def import_hint(error: BaseException, package: Literal["jaxlib.mlir", "mlir"]) -> str:
    """Return the way out for a user's function that gave objects of one MLIR to the other; "" for other errors.

    Args:
        error: what the function raised.
        package: of the MLIR whose objects it was handed.
    """
    if not _OF_OTHER_MLIR.search(str(error)):
        return ""
    other = "mlir" if package == "jaxlib.mlir" else "jaxlib.mlir"
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not any(_imports(frame, other) for frame in frames if not _package(frame).startswith("stablexla.")):
        return ""
    return f"from {package} import ir: what it is given is of {package}, and {other}.ir is another MLIR's"


def _package(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _imports(frame: Any, package: str) -> bool:
    """Whether a function uses a module or a class of a package."""
    known = frame.f_globals
    used = [*(known[name] for name in _names(frame.f_code) if name in known), *frame.f_locals.values()]
    found = [v.__name__ if inspect.ismodule(v) else getattr(v, "__module__", "") for v in used if _is_import(v)]
    return any(f"{name}.".startswith(f"{package}.") for name in found)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the global names in a function and in those that stand in it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _is_import(value: Any) -> bool:
    return inspect.ismodule(value) or inspect.isroutine(value) or inspect.isclass(value)
