"""PyTorch's own samples of its operators, `op_db`, through the rules of `stablexla.interop.torch` beside eager PyTorch.

    python -m tests.interop.torch_operators --only 'linalg|fft' --failures

Each operator runs all its f32 samples, forward and backward, and the first of each other element type. Results are held
against eager PyTorch's, with the tolerances of `torch.testing` and those that the operator's own entry asks for; where
they differ by more, the one that is nearer to the same sample in f64 is right.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from stablexla.dialects.errors import UnsupportedError
from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.decompositions import core_decompositions

# Element types beside f32, of each of which one sample is run.
OTHERS = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bfloat16, torch.float16,
    torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
DYNAMIC = "the result's size depends on a tensor's numbers"
# Their vectors have a sign, or a phase, that nothing determines; the entry says what of the results is determined.
UP_TO_SIGNS = {"linalg.eig", "linalg.eigh", "linalg.svd", "svd"}
# Memory that nobody wrote has no numbers to compare.
EMPTY = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


@dataclass
class Outcome:
    """What came of an operator's samples.

    Attributes:
        name: of the entry, with its variant.
        right: how many samples agree.
        dynamic: how many have a result whose size depends on numbers.
        failed: the others: sample, direction and reason.
    """

    name: str
    right: int = 0
    dynamic: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not self.failed and (self.right > 0 or not self.dynamic)


@cache
def entries() -> dict[str, Any]:
    """Return the entries of `op_db` by name, `linalg.norm` or `div.trunc_rounding`."""
    # PyTorch's tests freeze the flags of its backends when they are imported: other tests of this process set them.
    with warnings.catch_warnings(), mock.patch("torch.backends.disable_global_flags"):
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db}


def run(name: str, others: bool = True, samples: int | None = None) -> Outcome:
    """Run an operator's samples.

    Args:
        name: of the entry.
        others: whether to run the other element types, too.
        samples: how many samples of f32 at most.
    """
    op, outcome = entries()[name], Outcome(name)
    types = [torch.float32, *(OTHERS if others else ())]
    supported = op.supported_dtypes("cpu")
    for dtype in (t for t in types if t in supported):
        for number, sample in enumerate(_samples(op, dtype)):
            if number == (samples if dtype is torch.float32 else 1):
                break
            gradient = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
            for backward in (False, True) if gradient else (False,):
                _try(outcome, op, sample, dtype, backward, f"{_short(dtype)} sample {number}")
    return outcome


def _samples(op: Any, dtype: torch.dtype) -> Iterator[Any]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from op.sample_inputs("cpu", dtype, requires_grad=False)


def _try(outcome: Outcome, op: Any, sample: Any, dtype: torch.dtype, backward: bool, label: str) -> None:
    label += " backward" if backward else ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reason = compare(op, sample, dtype, backward)
    except UnsupportedError as error:
        if "depends on a tensor's numbers" in str(error):
            outcome.dynamic += 1
            return
        reason = str(error)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if any(word in reason for word in ("data-dependent", "DataDependent", "DynamicOutputShape", "item() in torch")):
            outcome.dynamic += 1
            return
    if reason is None:
        outcome.right += 1
    elif reason:
        outcome.failed.append((label, reason))


def compare(op: Any, sample: Any, dtype: torch.dtype, backward: bool) -> str | None:
    """Return how a sample's results differ from eager PyTorch's: None where they agree, "" where eager has none."""
    leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i].detach() for i in at]

    def call(*given: torch.Tensor) -> list[torch.Tensor]:
        filled = list(leaves)
        for place, tensor in zip(at, given, strict=True):
            filled[place] = tensor
        value, args, kwargs = pytree.tree_unflatten(filled, spec)
        made = op(value, *args, **kwargs)
        if op.name in UP_TO_SIGNS:
            made = sample.output_process_fn_grad(made)
        return [x for x in pytree.tree_leaves(made) if isinstance(x, torch.Tensor)]

    function: Callable[..., list[torch.Tensor]] = call
    if backward:
        try:
            process = None if op.name in UP_TO_SIGNS else sample.output_process_fn_grad
            function, weights = _with_gradients(call, process, tensors)
        except Exception:
            return ""
        tensors += weights

    def eager(given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(1)
        return function(*[_copied(t) for t in given])

    try:
        wanted = eager(tensors)
    except Exception:
        return ""
    if not wanted:
        return ""
    graph = traced(function, tensors)
    made = CompiledGraph(graph, [_copied(t) for t in tensors])([_copied(t) for t in tensors])
    draws = (
        any(torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in graph.graph.nodes)
        or op.name in EMPTY
    )
    exact = None
    for number, (ours, theirs) in enumerate(zip(made, wanted, strict=True)):
        theirs = theirs.detach()
        if ours.dtype is not theirs.dtype or ours.shape != theirs.shape:
            return f"result {number}: {ours.dtype} {list(ours.shape)}, not {theirs.dtype} {list(theirs.shape)}"
        if draws:
            continue
        tolerance = _tolerance(op, ours.dtype)
        difference = _difference(ours, theirs, tolerance)
        if difference and (ours.is_floating_point() or ours.is_complex()) and ours.dtype not in _EXACT:
            exact = exact or _in_f64(eager, tensors)
            if exact is not None and _is_nearer(ours, theirs, exact[number], tolerance):
                continue
        if difference:
            return f"result {number}: {difference}"
    return None


def traced(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> GraphModule:
    """Return the functional graph of a function: autograd works on what is not functional yet, so that is made so
    afterwards."""
    inputs = [_copied(t) for t in tensors]
    with enable_python_dispatcher():  # as AOTAutograd does
        graph = make_fx(function, tracing_mode="fake")(*inputs)
    functional = torch.func.functionalize(graph)
    return make_fx(functional, decomposition_table=core_decompositions(), tracing_mode="fake")(*inputs)


_EXACT = {torch.float64, torch.complex128}


def _with_gradients(
    call: Callable[..., list[torch.Tensor]], process: Callable[[Any], Any] | None, tensors: Sequence[torch.Tensor]
) -> tuple[Callable[..., list[torch.Tensor]], list[torch.Tensor]]:
    """Return the function that gives gradients by all inputs of floats, and its further inputs: what results weigh."""

    def roots(given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        made = call(*given)
        if process is not None and len(made) == 1:
            processed = process(made[0])
            made = [x for x in pytree.tree_leaves(processed) if isinstance(x, torch.Tensor)]
        return [x for x in made if x.requires_grad]

    def function(*given: torch.Tensor) -> list[torch.Tensor]:
        inputs = _requiring(given[: len(tensors)])
        by = [t for t in inputs if t.requires_grad]
        grads = torch.autograd.grad(roots(inputs), by, given[len(tensors) :], allow_unused=True)
        return [g for g in grads if g is not None]

    torch.manual_seed(1)
    return function, [_weights(x) for x in roots(_requiring([_copied(t) for t in tensors]))]


def _requiring(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [t.detach().requires_grad_(t.is_floating_point() or t.is_complex()) for t in tensors]


def _weights(like: torch.Tensor) -> torch.Tensor:
    steps = torch.arange(like.numel(), dtype=torch.float32).reshape(like.shape)
    return (torch.sin(steps * 1.7 + 0.3) + 0.1).to(like.dtype)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.preserve_format)


def _in_f64(eager: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    wide = [t.to(torch.complex128) if t.is_complex() else t.double() if t.is_floating_point() else t for t in tensors]
    try:
        return eager(wide)
    except Exception:
        return None


def _is_nearer(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor, tolerance: dict[str, float]) -> bool:
    """Return whether no element of ours is further from the exact one than PyTorch's largest error."""
    if exact.shape != ours.shape:
        return False
    if not torch.equal(ours.isnan(), theirs.isnan()):  # eager's NaNs need not be right: in matrix_exp of halves
        return not _difference(ours, exact.to(ours.dtype), tolerance)
    own = (ours.to(exact.dtype) - exact).abs().nan_to_num(0, 0, 0)
    other = (theirs.to(exact.dtype) - exact).abs().nan_to_num(0, 0, 0)
    return bool(own.max() <= other.max())


def _tolerance(op: Any, dtype: torch.dtype) -> dict[str, float]:
    """Return the tolerances that the operator's entry asks for in PyTorch's own tests of all operators."""
    for info in op.decorators:
        if getattr(info, "cls_name", None) != "TestCommon":
            continue
        for decorator in info.decorators:
            found = getattr(decorator, "d", {}).get(dtype)
            if found is not None:
                return {"atol": found.atol, "rtol": found.rtol}
    return {}


def _difference(ours: torch.Tensor, theirs: torch.Tensor, tolerance: dict[str, float]) -> str:
    try:
        torch.testing.assert_close(ours, theirs, equal_nan=True, check_stride=False, **tolerance)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run operators and print a line for each that is not right, and a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression that an operator's name matches")
    parser.add_argument("--samples", type=int, help="the most samples of f32 for each operator")
    parser.add_argument("--no-others", action="store_true", help="f32 alone")
    parser.add_argument("--failures", action="store_true", help="print every failure, and not only the first one")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--json", type=Path, help="write the outcomes to a file")
    options = parser.parse_args(arguments)
    names = [name for name in entries() if re.search(options.only, name)]
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(options.jobs, initializer=_begin) as pool:
        tasks = {pool.submit(run, name, not options.no_others, options.samples): name for name in names}
        for task in as_completed(tasks):
            try:
                outcome = task.result()
            except Exception as error:  # a child that died takes all others with it
                outcome = Outcome(tasks[task], failed=[("", f"{type(error).__name__}: {error}")])
            outcomes.append(outcome)
            if outcome.failed:
                shown = outcome.failed if options.failures else outcome.failed[:1]
                print(f"{outcome.name}: {len(outcome.failed)} of {outcome.right + len(outcome.failed)} wrong")
                for label, reason in shown:
                    print(f"    {label}: {reason[:400]}")
                sys.stdout.flush()
    counts = Counter("right" if o.is_right else "dynamic" if not o.failed else "wrong" for o in outcomes)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())), f"of {len(outcomes)} operators")
    if options.json:
        options.json.write_text(json.dumps([asdict(o) for o in sorted(outcomes, key=lambda o: o.name)], indent=1))
    return 1 if counts["wrong"] else 0


def _begin() -> None:
    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.exit(main())
