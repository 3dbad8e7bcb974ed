"""Kernels for composite operations, registered while Python runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from stablexla.dialects.composites import REGISTERED, CompositeKernel, Key
from stablexla.dialects.shapes import Shape
from stablexla.targets.kinds import kind_of, target_names

Accepts = Callable[[Sequence[Shape], Mapping[str, Any]], bool]


def register_composite_kernel(
    name: str,
    version: int,
    function: Callable[..., Any],
    *,
    accepts: Accepts | None = None,
    lowering: bool = False,
    target: str | None = None,
) -> None:
    """Register `function` for a composite operation of this name and version, instead of its decomposition.

    Programs that are compiled from now on use it; one that was registered before is replaced. `check_composite_kernel`
    compares the two ways.

    Args:
        name: the composite's name, as "my.gelu".
        version: of its meaning.
        function: a Python function that is called with a read-only numpy array for each operand and the composite's
            attributes by their names, and returns an array, or a tuple of them.
        accepts: says for given shapes of the operands and attributes whether `function` is used; always, without it.
        lowering: `function` is a lowering rule instead, which writes upstream MLIR: it is called with a
            `LoweringContext` and the lowered operands, as those of the folder lowering/ are.
        target: "cpu" or "gpu", of whose programs alone it is a part; it then goes before one that is for both. A
            function that is called runs on the host, so that only lowering rules are there for "gpu" alone.

    Raises:
        TypeError: the name is no text, the version no number, or the function not callable.
        ValueError: there is no such target, or a function that is called is meant for "gpu" alone.

    Source: `CompositeCall` of XLA's operation semantics.

    >>> def swish(x, beta):
    ...     return x / (1 + np.exp(-beta * x))
    >>> sx.register_composite_kernel("doc.swish", 1, swish)
    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[3])
    >>> y = sx.composite_call(x, "doc.swish", {"beta": 1}, lambda x: x * sx.logistic(x), version=1)
    >>> sx.compile(x.builder.build(y)).composites
    {'doc.swish v1': 'kernel'}
    """
    if not isinstance(name, str) or isinstance(version, bool) or not isinstance(version, int):
        raise TypeError(f"a composite has a name and the number of a version, not {name!r} and {version!r}")
    if not callable(function):
        raise TypeError(f"{function!r} is no function")
    takers = {each: kind_of(each).composites for each in target_names()} if target is not None else {}
    if target is not None and not takers.get(target):
        listed = " or ".join(repr(each) for each, taken in takers.items() if taken)
        raise ValueError(f"a composite's kernel is for the target {listed}, not {target!r}")
    if target is not None and takers[target] == "rules" and not lowering:
        raise ValueError(f"a function that is called runs on the host: for {target!r} alone there are lowering rules")
    from stablexla.lowering.rules.calls.composites import call_of_host  # the lowering waits for the first of them

    rule = function if lowering else partial(call_of_host, name, version)
    made = CompositeKernel(name, accepts or accept_all, rule, frozenset([version]), function)
    REGISTERED[_key(name, version, target)] = made


def accept_all(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> bool:
    """Accept everything: the default of `accepts`."""
    return True


def unregister_composite_kernel(name: str, version: int, *, target: str | None = None) -> None:
    """Remove the kernel of `register_composite_kernel` for one target or all; without one, do nothing."""
    REGISTERED.pop(_key(name, version, target), None)


def _key(name: str, version: int, target: str | None) -> Key:
    return (name, version) if target is None else (name, version, target)
