"""The programs of libraries of docs/interop.md, run from the HLO that XLA:CPU's passes make of them.

`python -m tests.interop.after_passes` compares each with the executable that the HLO was taken from.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter

from tests.interop.hlo_oracle import after_passes, ours
from tests.interop.proof.calls import Call
from tests.interop.proof.exact import exact_results
from tests.interop.proof.judge import Verdict, compare, with_exact
from tests.interop.proof.programs import PROGRAMS


def verdict(name: str) -> Verdict:
    """What became of a program; where results differ, those of higher precision say who is nearer to them."""
    function, arguments = PROGRAMS[name].make()
    of_arrays, arrays = Call(arguments).bind(function)
    text, given, right = after_passes(of_arrays, *arrays)
    try:
        found = ours(text, given)
    except Exception as error:
        return Verdict("unsupported", note=str(error).splitlines()[0])
    judged = compare(found, right)
    return judged if judged.state == "equal" else with_exact(judged, found, right, exact_results(of_arrays, arrays))


def main(names: list[str]) -> int:
    """Says of each program whether it is equal; all of them, or those whose names hold one of the words."""
    warnings.simplefilter("ignore")
    states: Counter[str] = Counter()
    for name in PROGRAMS:
        if not names or any(word in name for word in names):
            found = verdict(name)
            states[found.state] += 1
            if found.state != "equal":
                print(f"{name}: {found}", flush=True)
    print(", ".join(f"{count} {state}" for state, count in states.items()))
    return int(set(states) != {"equal"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
