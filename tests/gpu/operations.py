"""A small program for every operation: what the example in a function's docstring builds, and texts for the others."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from collections.abc import Iterator
from unittest import mock

import numpy as np

import stablexla as sx
from stablexla.ops.registry import REGISTRY

BUILDERS: tuple[str, ...] = tuple(sorted(REGISTRY if hasattr(sx, "clamp") else ()))
"""The builder's operations, each with an example in its docstring."""


def example_program(name: str) -> sx.XlaComputation:
    """The computation that the example of an operation builds; its result is what the operation gave last.

    Raises:
        LookupError: there is no example, or it builds nothing.
    """
    function = getattr(sx, name, None) or getattr(sx.XlaBuilder, name)
    names: dict[str, object] = {"sx": sx, "np": np}
    made: list[sx.XlaOp] = []
    with _recorded(made):
        for example in doctest.DocTestParser().get_examples(function.__doc__ or ""):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(sx.ShapeError):
                exec(compile(example.source, name, "single"), names)
        own = [op for op in made if op.builder is made[-1].builder]
        chosen = [op for op in own if op.name in (REGISTRY[name].emits, name)] or own
        if not chosen:
            raise LookupError(f"the example of {name} builds nothing")
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


def operations_in(text: str) -> set[str]:
    """The names of StableHLO's and CHLO's operations in a program's text."""
    return set(re.findall(r"\b(?:stablehlo|chlo)\.[a-z_0-9]+", text))
