"""Functions of JAX, a few of those that docs/interop.md lists; and that it lists all of the JAX that is installed.

Oracle: JAX's own compilation of the same function, and where the two are apart by more than rounding, the same program
in double precision (tests/interop/proof/judge.py).
"""

from __future__ import annotations

import runpy
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from tests.interop.proof.calls import Call
from tests.interop.proof.catalogue import ENTRIES, calls_of, reason_of
from tests.interop.proof.inventory import find, public
from tests.interop.proof.judge import Verdict, compare, with_exact, with_interpreter
from tests.interop.proof.trial import attempt

ROOT = Path(__file__).resolve().parents[2]
EVERY = 37
"""One function in so many is run, by its first call."""


def _sample() -> list[str]:
    """The same in every run, spread over all modules."""
    paths = [name.path for name in public() if name.path in ENTRIES or (name.is_function and not reason_of(name))]
    return paths[::EVERY]


# What once failed: values that many loops make anew, loops inside of loops, an algorithm of dot_general.
ONCE_WRONG = ["jax.lax.igamma", "jax.scipy.special.expn", "jax.scipy.stats.rankdata", "jax.scipy.linalg.helmert"]


@pytest.mark.parametrize("path", [*_sample(), *ONCE_WRONG])
def test_a_function(path: str) -> None:
    name = find(path)
    for call in calls_of(name):
        found = attempt(name.value, call, lambda _: None).verdict
        assert found.state == "equal", f"{call}: {found}"
        return
    pytest.fail("no call")


def test_the_page_has_all_functions() -> None:
    """`python docs/make_interop.py` writes docs/interop.md with the newest JAX; an older one lacks some functions."""
    made = runpy.run_path(str(ROOT / "docs/make_interop.py"))
    files = [ROOT / "docs/interop.tsv", ROOT / "docs/interop_plugin.tsv"]
    is_newest = f"jaxlib {metadata.version('jaxlib')}," in (ROOT / "docs/interop.md").read_text()
    lacking = made["lacking"](*map(made["read"], files))
    assert [line for line in lacking if is_newest or not line.endswith("not there any more")] == []
    assert (
        not is_newest
        or made["text_of"](*(file.read_text() for file in files)) == (ROOT / "docs/interop.md").read_text()
    )


class TestJudge:
    """What counts as equal."""

    def test_bits(self) -> None:
        x = np.array([1, np.nan, -0.0], np.float32)
        assert compare([x], [x.copy()]).how == "bits"

    def test_a_few_units_in_the_last_place(self) -> None:
        x = np.array([1, 2], np.float32)
        assert compare([x], [np.nextafter(x, np.float32(9))]) == Verdict("equal", "ULP", 1.0)

    def test_types_and_shapes(self) -> None:
        x = np.array([1, 2], np.float32)
        assert compare([x], [x.astype(np.float64)]).state == "differs"
        assert compare([x], [x[:, None]]).state == "differs"
        assert compare([x], []).state == "differs"

    def test_integers_are_exact(self) -> None:
        assert compare([np.array([3])], [np.array([4])]).state == "differs"

    def test_nan_is_no_number(self) -> None:
        x, y = np.array([1, 2], np.float32), np.array([np.nan, 2], np.float32)
        assert compare([x], [y]).state == "differs"
        assert with_exact(compare([y], [x]), [y], [x], [x.astype(np.float64)]).state == "differs"

    @pytest.mark.parametrize(("ours", "state"), [(1.000019, "equal"), (1.000022, "differs")])
    def test_the_exact_result_decides(self, ours: float, state: str) -> None:
        """JAX's is 1e-5 from the exact result; twice as much is allowed."""
        a, b, exact = (np.array([v]) for v in (ours, 1.00001, 1.0))
        a, b = a.astype(np.float32), b.astype(np.float32)
        found = with_exact(compare([a], [b]), [a], [b], [exact])
        assert found.state == state

    def test_the_interpreter_decides_what_is_further_off(self) -> None:
        ours, theirs = np.array([1.0001], np.float32), np.array([1.00001], np.float32)
        exact, apart = [np.array([1.0])], compare([ours], [theirs])
        same = with_interpreter(apart, [ours], [ours], exact)
        assert (same.state, same.how) == ("equal", "as interpreted")
        assert with_interpreter(apart, [ours], [np.float32([1.00006])], exact).state == "equal"  # as near as that
        assert with_interpreter(apart, [ours], [theirs], exact).state == "differs"
        assert with_interpreter(apart, [ours], [], exact).state == "differs"  # it refused

    def test_an_exact_result_that_is_another_one_tells_nothing(self) -> None:
        a, b = np.array([1.0], np.float32), np.array([1.1], np.float32)
        assert with_exact(compare([a], [b]), [a], [b], [np.array([7.0])]).state == "differs"


def test_a_call_traces_its_arrays_alone() -> None:
    """Numbers, names and types beside them belong to the program."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    function, arrays = Call((x, {"axis": 1, "more": [x]}, "sum")).bind(
        lambda a, options, how: getattr(a + options["more"][0], how)(options["axis"])
    )
    assert len(arrays) == 2
    np.testing.assert_array_equal(function(*arrays), (2 * x).sum(1))
