"""Whether a program, or another form of it, shows anything that must not be: the fuzzer's checker, and more.

An end of the process, a hang, an error that is none of stablexla's, a report of a sanitizer, output, a result that
differs, something left behind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

import stablexla as sx
from stablexla.inspection.judging.tolerances import Case
from tests.campaign.forms import INEXACT_FORMS
from tests.campaign.stitch import rounds
from tests.campaign.watched import Watched
from tests.fuzz.check import Checker, Disagreement, Plan, _first_line, _show, tainted
from tests.fuzz.program import Arrays, Program
from tests.fuzz.workers import Failure

REFUSALS = ("UnsupportedError", "VerificationError", "ShapeError", "ParseError")
"""Errors that say that a program is not taken, which may be right."""
ENDLESS = "longer than its time limit"
HOLDING = ("while", "if", "case", "map", "reduce", "reduce_window", "scatter", "sort", "select_and_scatter")
"""Operations with regions, whose operations are not judged one by one."""
STEPS = frozenset(
    {"compare", "floor", "ceil", "sign", "round_nearest_even", "round_nearest_afz", "convert", "remainder", "sort"}
    | {"dynamic_slice", "dynamic_update_slice", "gather", "scatter", "is_finite", "bitcast_convert", "select", "while"}
)
"""Operations that may make much of a last digit."""
OPEN = frozenset({"divide", "remainder", "convert", "power", "scatter", "reduce_precision", "fft", "bitcast_convert"})
OPEN_TO_XLA = frozenset({"reduce", "reduce_window", "popcnt", "count_leading_zeros", "select_and_scatter"})
"""Operations that are open for some operands, or wrong in the oracles: `known_faults.py` knows them one by one."""
_CHANGED_BY_HLO = re.compile(r"chlo\.|rng_bit_generator")
"""Operations that the conversion to HLO decomposes, or gives unsigned results."""
_SANITIZER = re.compile(r"AddressSanitizer|ThreadSanitizer|UndefinedBehaviorSanitizer|runtime error:|guard page|canary")


def category(found: Disagreement) -> str:
    """What kind of finding it is."""
    said = found.message
    if _SANITIZER.search(said):
        return "sanitizer report"
    kind = said.partition(":")[0]
    if kind in ("died", "timeout"):
        return {"died": "crash", "timeout": "hang"}[kind]
    if kind == "LeftSomething":
        return "leak"
    if ": prints" in found.kind:
        return "noise"
    if kind == "AssertionError" or len(found.ways) > 1 or found.kind.endswith("other results"):
        return "wrong result"
    known = getattr(sx, kind, None)
    return "error" if isinstance(known, type) and issubclass(known, sx.StablexlaError) else "foreign error"


@dataclass
class Examiner(Checker):
    """Examines programs.

    Attributes:
        asked: how often each form was run.
        unjudged: how many results of regions could not be held against an oracle, as they round.
    """

    asked: Counter[str] = field(default_factory=Counter)
    unjudged: int = 0

    def check(self, program: Program, arguments: Arrays, plan: Plan) -> Disagreement | None:
        """The first thing that is wrong."""
        watched = self.watched
        watched.noise.clear()
        for found in self._findings(program, arguments, plan):
            if not self._is_refusal(found):
                return found
        for way, text in watched.noise.items():
            line = re.sub(r"%[\w#]+|\d{3,}|0x[0-9a-f]+", "_", text.splitlines()[0])[:90]
            return Disagreement(f"{way}: prints {line}", text[:500], program, arguments, (way,))
        return None

    @property
    def watched(self) -> Watched:
        """The children that run the programs."""
        assert isinstance(self.workers, Watched)
        return self.workers

    def _findings(self, program: Program, arguments: Arrays, plan: Plan) -> Iterator[Disagreement]:
        forms = [way for way in plan.ways if way.startswith("form ")]
        ways = [way for way in plan.ways if way not in forms]
        if ways:
            yield from self._disagreements(program, arguments, Plan(plan.whole, ways, plan.oracles))
        for way in forms:
            yield from self._form(program, arguments, way)

    def _is_refusal(self, found: Disagreement) -> bool:
        kind = found.message.partition(":")[0]
        if kind in REFUSALS or ENDLESS in found.message:
            self.refused[found.kind] += 1
            return True
        return False

    def _form(self, program: Program, arguments: Arrays, way: str) -> Iterator[Disagreement]:
        """The results of another form, bit for bit."""
        text, given, plain = self.watched.results.get("emitters", ("", [], []))
        if text != program.text or any(a is not b for a, b in zip(given, arguments, strict=True)):
            found = self.workers.run("emitters", program.text, arguments)
            if isinstance(found, Failure):  # the program as it is says that
                return
            plain = found
        if way == "form hlo" and _CHANGED_BY_HLO.search(program.text):
            return
        self.asked[way.removeprefix("form ")] += 1
        found = self.workers.run(way, program.text, arguments)
        if isinstance(found, Failure):
            yield Disagreement(f"{way}: {_first_line(found)}", str(found), program, arguments, (way,))
            return
        inexact = tainted(program) if way.removeprefix("form ") in INEXACT_FORMS else set()
        for name, actual, wanted in zip(program.returns, found, plain, strict=True):
            self.compared += 1
            wrong = ~_equal(actual, wanted)
            if wrong.any() and name in inexact:
                self.reordered += 1
            elif wrong.any():
                message = f"{name}: {_show(wrong, actual, wanted)}"
                yield Disagreement(f"{way}: other results", message, program, arguments, (way,))
                return

    def _unexcused(self, case: Case, wrong: np.ndarray) -> np.ndarray:
        wrong = super()._unexcused(case, wrong)
        inside = case.statement.operations - {case.statement.operation}
        if not wrong.any() or case.statement.operation not in HOLDING:
            return wrong
        if inside & (OPEN | (OPEN_TO_XLA if case.oracle == "xla" else frozenset())):
            self.unjudged += 1
            return np.zeros_like(wrong)
        if not case.is_inexact or not rounds(inside):
            return wrong
        self.unjudged += 1
        return np.zeros_like(wrong) if inside & STEPS else wrong & ~_near(case.actual, case.wanted)


def _equal(actual: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which elements have the same bits, or are both NaN; flat."""
    if actual.shape != wanted.shape or actual.dtype != wanted.dtype:
        return np.zeros(max(actual.size, 1), bool)
    rows = [np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(-1, a.dtype.itemsize) if a.size else
            np.zeros((0, 1), np.uint8) for a in (actual, wanted)]  # fmt: skip
    with np.errstate(all="ignore"):
        both = [np.asarray(a != a).reshape(-1) for a in (actual, wanted)]
    return np.asarray((rows[0] == rows[1]).all(axis=1) | (both[0] & both[1]))


def _near(actual: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which elements are as near as a few roundings leave them, relative to the largest; flat."""
    with np.errstate(all="ignore"):
        kind = np.complex128 if actual.dtype.kind == "c" else np.float64
        ours, theirs = (a.astype(kind).reshape(-1) for a in (actual, wanted))
        finite = np.abs(theirs[np.isfinite(theirs)])
        bound = {8: 1e-9, 16: 1e-4, 4: 1e-4}.get(actual.dtype.itemsize, 0.1) * finite.max(initial=0.0)
        both = ~np.isfinite(ours) | ~np.isfinite(theirs)
        return np.asarray((np.abs(ours - theirs) <= bound) | both)
