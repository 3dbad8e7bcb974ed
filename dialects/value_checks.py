"""Words for what a run can be checked for: NaN, infinities, and integer operations on values that they do not take."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from stablexla.dialects.errors import CompileError

NAN, INF, OVERFLOW = "nan", "inf", "overflow"
DIVISION, INDICES, SHIFTS = "division", "indices", "shifts"
ERRORS = (NAN, INF, OVERFLOW)
"""A run that is checked ends in an error at one of these."""
WARNINGS = (DIVISION, INDICES, SHIFTS)
"""Of these a run warns; its results are defined."""
ALL = "all"
CONSTANTS = "constants"
"""Of infinities: those of the program's text that reach a result, as well."""
WORDS = (*ERRORS, ALL, CONSTANTS, *WARNINGS)


def kinds_of(check: object) -> tuple[str, ...]:
    """Return the kinds in the order of `WORDS`, "all" written out; none for None.

    Args:
        check: words, as one text with commas or as a sequence.

    Raises:
        CompileError: a word that is none of `WORDS`, or no word.

    >>> kinds_of("all"), kinds_of("shifts,nan"), kinds_of(None)
    (('nan', 'inf'), ('nan', 'shifts'), ())
    """
    if check is None:
        return ()
    words = check.split(",") if isinstance(check, str) else list(check) if isinstance(check, Iterable) else [check]
    named = {word.strip() if isinstance(word, str) else word for word in words}
    for word in named:
        if word not in WORDS:
            near = difflib.get_close_matches(str(word), WORDS, n=1, cutoff=0.5) or WORDS
            raise CompileError(f"check takes {', '.join(WORDS)}, not {word!r}", hint=f'"{near[0]}"')
    if not named:
        raise CompileError(f"check takes {', '.join(WORDS)}, not {check!r}", hint='"nan"')
    if ALL in named:
        named |= {NAN, INF}
    if CONSTANTS in named:
        named |= {INF}
    if INF in named:
        named -= {OVERFLOW}  # it is part of it
    return tuple(word for word in WORDS if word in named and word != ALL)
