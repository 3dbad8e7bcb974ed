"""One call run by both: by JAX's compiler, and through `stablexla.interop.jax.jit` or the plugin."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tests.interop.proof.calls import Call, leaves_of
from tests.interop.proof.exact import exact_results
from tests.interop.proof.judge import Verdict, compare, with_exact, with_interpreter
from tests.interop.proof.values import Array

BOTH = "stablexla,cpu"


@dataclass(frozen=True)
class Trial:
    """What became of a call.

    Attributes:
        key: what was run, as a hash of the program and its arguments.
        seconds: of compiling and running here.
    """

    label: str
    verdict: Verdict
    key: str = ""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def trial_of(found: dict[str, Any]) -> Trial:
    """From what `as_dict` gave."""
    return Trial(found["label"], Verdict(**found["verdict"]), found["key"], found["seconds"])


def attempt(function: Callable[..., Any], call: Call, known: Callable[[str], Trial | None]) -> Trial:
    """Runs a call, unless what is known of the same program says that it is equal."""
    import jax

    label = str(call)
    of_arrays, arrays = call.bind(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            lowered = jax.jit(of_arrays).lower(*arrays)
            text = lowered.as_text()
            key = _key(text, arrays)
        except Exception as error:
            return Trial(label, Verdict("JAX fails", note=first_line(error)))
        before = known(key)
        if before is not None and before.verdict.state == "equal":
            return replace(before, label=label)
        try:
            theirs = leaves_of(lowered.compile()(*arrays))
        except Exception as error:
            return Trial(label, Verdict("JAX fails", note=first_line(error)), key)
        return _ours(of_arrays, arrays, theirs, label, key, text)


def _ours(
    of_arrays: Callable[..., Any], arrays: Sequence[Array], theirs: list[Array], label: str, key: str, text: str
) -> Trial:
    start = time.perf_counter()
    try:
        ours = leaves_of(_run_here(of_arrays, arrays))
    except Exception as error:
        return Trial(label, Verdict("unsupported", note=f"{type(error).__name__}: {first_line(error)}"), key)
    seconds = time.perf_counter() - start
    found = compare(ours, theirs)
    if found.state == "differs":
        exact = exact_results(of_arrays, arrays)
        found = with_exact(found, ours, theirs, exact)
        if found.state == "differs":
            found = with_interpreter(found, ours, _interpreted(text, arrays), exact)
    return Trial(label, found, key, round(seconds, 3))


def _run_here(of_arrays: Callable[..., Any], arrays: Sequence[Array]) -> Any:
    import jax

    if by_plugin():
        with jax.default_device(jax.devices("stablexla")[0]):
            return jax.jit(of_arrays)(*arrays)
    from stablexla.interop.jax import jit

    return jit(of_arrays)(*arrays)


def by_plugin() -> bool:
    """Whether this process's programs run through the plugin: where JAX_PLATFORMS has it beside XLA's CPU."""
    return os.environ.get("JAX_PLATFORMS") == BOTH


def _interpreted(text: str, arrays: Sequence[Array]) -> list[Array]:
    """What StableHLO's reference interpreter makes of a program; nothing when it refuses, or takes too long."""
    import stablexla as sx
    from stablexla.inspection.judging.oracles import shared_oracle
    from stablexla.processes.questions import Refusal

    try:
        module = sx.load(text)
    except sx.StablexlaError:
        return []
    found = shared_oracle("interpreter").run(module, arrays)
    return [] if isinstance(found, Refusal) else found


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]


def _key(text: str, arrays: Sequence[Array]) -> str:
    digest = hashlib.sha256(text.encode())
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()[:24]
