"""What the threads of a soak do: calls, compilations, loads, mistakes and stops; each checks what comes of it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.targets.runtime.test_stopping import ARRAYS, SCALAR

Unit = Callable[["Work", random.Random], None]
UNITS: dict[str, tuple[Unit, int]] = {}
"""Units by their names, with how often each is taken."""


def unit(weight: int) -> Callable[[Unit], Unit]:
    """Registers a unit under its function's name."""

    def register(function: Unit) -> Unit:
        UNITS[function.__name__.replace("_", " ")] = function, weight
        return function

    return register


class Work:
    """The programs that the units share, and a folder of files; a context."""

    def __enter__(self) -> Work:
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        sx.register_custom_call("soak_twice", lambda x: x * 2)
        sx.register_custom_call("soak_raises", _raise)
        self.small = sx.compile(scaled(2.0))
        self.large = sx.compile(product(512))
        self.loop = sx.compile(SCALAR)
        self.kernels = sx.compile(ARRAYS)
        self.replicas = sx.compile(summed(), num_replicas=REPLICAS)
        self.twice, self.raises = (sx.compile(called(f"soak_{name}")) for name in ("twice", "raises"))
        self.file = self.folder / "saved.sxe"
        self.small.save(self.file)
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("soak_twice", "soak_raises"):
            sx.unregister_custom_call(name)
        self._folder.cleanup()


def _raise(x: Any) -> Any:
    raise ValueError("the handler does not want to")


def scaled(factor: float) -> sx.XlaComputation:
    b = sx.XlaBuilder("scaled")
    return b.build(b.parameter(0, sx.f32[16]) * factor)


def product(size: int) -> sx.XlaComputation:
    b = sx.XlaBuilder("product")
    x = b.parameter(0, sx.f32[size, size])
    return b.build(sx.tanh(sx.dot(x, x)))


def summed() -> sx.XlaComputation:
    b = sx.XlaBuilder("summed")
    return b.build(sx.all_reduce(b.parameter(0, sx.f32[64]), sx.add))


def called(target: str) -> sx.XlaComputation:
    b = sx.XlaBuilder("called")
    x = b.parameter(0, sx.f32[8])
    return b.build(sx.custom_call(target, [x], sx.f32[8]) + x)


X = np.arange(16, dtype=np.float32)
REPLICAS = 4
EIGHT = np.arange(8, dtype=np.float32)
EYE = np.eye(512, dtype=np.float32)
MATRIX = np.eye(300, dtype=np.float32)


def equal(actual: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(np.asarray(actual), wanted)


def raises(kind: type[BaseException], word: str, call: Callable[[], Any]) -> None:
    """Checks that the call raises that."""
    with pytest.raises(kind, match=word or None):
        call()


# ---- calls -----------------------------------------------------------------------------------------------------------


@unit(30)
def small_calls(work: Work, rng: random.Random) -> None:
    for _ in range(50):
        equal(work.small(X), X * 2)


@unit(6)
def large_call(work: Work, rng: random.Random) -> None:
    (result,) = work.large.execute([EYE])
    assert result[3, 3] == result[5, 5] > 0.7


@unit(6)
def replicated_call(work: Work, rng: random.Random) -> None:
    given = [np.full(64, float(rng.randint(0, 9)), np.float32) for _ in range(REPLICAS)]
    for (own,) in work.replicas.execute_replicated([[x] for x in given]):
        equal(own, sum(given))


@unit(10)
def donated_arguments(work: Work, rng: random.Random) -> None:
    equal(work.small.execute([X.copy()], donate=True)[0], X * 2)


@unit(10)
def custom_call(work: Work, rng: random.Random) -> None:
    equal(work.twice(EIGHT), EIGHT * 3)


@unit(6)
def run_in_a_thread_of_its_own(work: Work, rng: random.Random) -> None:
    equal(work.small.start([X]).result(60)[0], X * 2)


# ---- compilations ----------------------------------------------------------------------------------------------------


@unit(3)
def compilation(work: Work, rng: random.Random) -> None:
    factor = float(rng.randrange(1, 1 << 20))
    equal(sx.compile(scaled(factor))(X), X * np.float32(factor))


@unit(3)
def compilation_that_fails(work: Work, rng: random.Random) -> None:
    raises(sx.StablexlaError, "", lambda: sx.compile("func.func @main() { nonsense }"))


@unit(4)
def cache_hit(work: Work, rng: random.Random) -> None:
    factor = float(rng.randint(1, 3))
    options = sx.CompileOptions(cache=work.folder / "cache")
    equal(sx.compile(scaled(factor), options=options)(X), X * np.float32(factor))


@unit(4)
def load_of_a_saved_program(work: Work, rng: random.Random) -> None:
    equal(sx.load_executable(work.file)(X), X * 2)


# ---- mistakes --------------------------------------------------------------------------------------------------------


@unit(6)
def wrong_argument(work: Work, rng: random.Random) -> None:
    wrong: Any = rng.choice([np.zeros(3, np.float32), np.zeros(16, np.int32), "text", None])
    raises(sx.ExecutionError, "", lambda: work.small.execute([wrong]))


@unit(4)
def handler_that_raises(work: Work, rng: random.Random) -> None:
    raises(ValueError, "does not want to", lambda: work.raises(EIGHT))


# ---- stops -----------------------------------------------------------------------------------------------------------


@unit(4)
def time_limit(work: Work, rng: random.Random) -> None:
    raises(sx.ExecutionError, "time limit", lambda: work.loop.execute([np.int32(-2)], time_limit=0.005))


@unit(3)
def time_limit_between_kernels(work: Work, rng: random.Random) -> None:
    raises(sx.ExecutionError, "time limit", lambda: work.kernels.execute([MATRIX, np.int32(-1)], time_limit=0.02))


@unit(4)
def cancellation(work: Work, rng: random.Random) -> None:
    run = work.loop.start([np.int32(-2)])
    run.cancel()
    raises(sx.ExecutionError, "cancelled", lambda: run.result(60))


def draw_unit(rng: random.Random) -> str:
    """The name of a unit."""
    return rng.choices(list(UNITS), [weight for _, weight in UNITS.values()])[0]
