"""User-defined pipelines and lowering rules."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from stablexla.dialects import rules
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.errors import CompileError
from stablexla.dialects.rules import COMPOSITE, CUSTOM_CALL, LoweringRule
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.registry import find_target, pipeline_of

Rule = TypeVar("Rule", bound=Callable[..., Any])


def pipeline(target: str = "cpu", options: CompileOptions | None = None) -> Pipeline:
    """Return the pipeline for a program: a value, to be printed, cut and changed.

    Args:
        target: the target to compile for.
        options: how to compile; some of them stand in the passes' options.

    Raises:
        CompileError: there is no such target.

    >>> sx.pipeline("cpu").names
    ('stablehlo', 'tensor', 'kernels', 'buffers', 'llvm')
    """
    return pipeline_of(find_target(target), options or CompileOptions())


def lowering_rule(name: str, function: Callable[..., Any] | None = None) -> Any:
    """Return a user's lowering rule, for `CompileOptions(rules=...)`, `lowering_rules` or `Pipeline.with_rules`.

    Args:
        name: the operation that it applies to: an operation, as "stablehlo.tanh" or "chlo.erf"; a custom call, as
            "stablehlo.custom_call:TARGET"; or a composite, as "my.gelu". It goes before the package's own rule.
        function: is called with a `LoweringContext` and the lowered operands (scalars for arrays of rank 0, values of
            tensors for others), and gives the result, or a sequence of them: what it writes is upstream MLIR.
            Without it, the result is a decorator.

    Raises:
        CompileError: an operation that StableHLO does not have.

    >>> from mlir.dialects import arith
    >>> @sx.lowering_rule("stablehlo.tanh")
    ... def identity(ctx, x):
    ...     return x
    >>> b = sx.XlaBuilder("example")
    >>> computation = b.build(sx.tanh(b.parameter(0, sx.f32[2])))
    >>> sx.compile(computation, options=sx.CompileOptions(rules=[identity]))(np.float32([1, 2]))
    array([1., 2.], dtype=float32)
    """
    _check_name(name)
    return _rule(name, function) if function is not None else lambda f: _rule(name, f)


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Register a user's lowering rule for all programs that are compiled from now on.

    It replaces an earlier one. `lowering_rules` and `CompileOptions(rules=...)` apply a rule to some programs only,
    with precedence over this one.

    Args:
        names: the operations that it applies to, as in `lowering_rule`.

    Raises:
        CompileError: an operation that StableHLO does not have.

    Source: `CompositeCall` and `CustomCall` of XLA's operation semantics.

    >>> from mlir.dialects import arith
    >>> @sx.lowers("doc.twice")
    ... def twice(ctx, x):
    ...     return ctx.elementwise(lambda v: arith.addf(v, v), x)
    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2])
    >>> y = sx.composite_call(x, "doc.twice", {}, lambda x: x * 2)
    >>> executable = sx.compile(x.builder.build(y))
    >>> executable.composites, executable(np.float32([1, 2]))
    ({'doc.twice v0': 'kernel'}, array([2., 4.], dtype=float32))
    >>> sx.unregister_lowering("doc.twice")
    """
    for name in names:
        _check_name(name)

    def register(function: Rule) -> Rule:
        for name in names:
            rules.register(_rule(name, function))
        return function

    return register


def unregister_lowering(*names: str) -> None:
    """Unregister a rule of `lowers`; without one, do nothing."""
    for name in names:
        rules.unregister(name)


def lowering_rules(*given: LoweringRule) -> AbstractContextManager[None]:
    """Apply rules to compilations inside a `with` block, in this thread.

    >>> b = sx.XlaBuilder("example")
    >>> computation = b.build(sx.tanh(b.parameter(0, sx.f32[2])))
    >>> with sx.lowering_rules(sx.lowering_rule("stablehlo.tanh", lambda ctx, x: x)):
    ...     identity = sx.compile(computation)
    >>> identity(np.float32([1, 2])), sx.compile(computation)(np.float32([0, 0]))
    (array([1., 2.], dtype=float32), array([0., 0.], dtype=float32))
    """
    for rule in given:
        if not isinstance(rule, LoweringRule):
            raise CompileError(f"{rule!r} is no lowering rule", hint="sx.lowering_rule(name, function)")
    return rules.scoped(given)


def _rule(name: str, function: Callable[..., Any]) -> LoweringRule:
    if not callable(function) or isinstance(function, type):
        raise CompileError(
            f"the lowering rule of {name}: {told(function)} is no function", hint="one of (ctx, *operands)"
        )
    return LoweringRule(name, function)


def _check_name(name: str) -> None:
    """Refuse names that no operation, custom call or composite can have."""
    if not isinstance(name, str) or not name:
        raise CompileError(f"{name!r} is no name of an operation")
    if name == COMPOSITE:
        raise CompileError("a rule is for one composite", hint='its name, as "my.gelu"')
    base, colon, _ = name.partition(":")
    dialect, dot, rest = base.partition(".")
    is_spelled = bool(dot) and (dialect in _DIALECTS or dialect.lower() not in _DIALECTS)
    if is_spelled and (dialect != "stablehlo" or base == CUSTOM_CALL):
        return
    from stablexla.dialects.contexts import stablehlo_context
    from stablexla.lowering.support.registry import RULES, load_rules

    load_rules()
    context = stablehlo_context()
    if not is_spelled:
        bare = (rest if dot else base).lower()
        meant = [f"{d}.{bare}" for d in _DIALECTS if context.is_registered_operation(f"{d}.{bare}")]
        near = meant or difflib.get_close_matches(f"stablehlo.{bare}", RULES, n=3)
        what = "an operation or a composite has a name as dialect.name"
        raise CompileError(f"{name!r} is no name of an operation: {what}", hint=" or ".join(map(repr, near)))
    if colon or not context.is_registered_operation(base):
        near = difflib.get_close_matches(base, RULES, n=3)
        raise CompileError(f"StableHLO has no operation {name!r}", hint=" or ".join(near))


_DIALECTS = ("stablehlo", "chlo")
