"""Shape assertions: their messages, and the check of conditions known only at run time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from stablexla.dialects.errors import ExecutionError

_PLACE = re.compile(r"\{(\d+)(?:[,:][^{}]*)?\}")


def assertion_text(text: str, numbers: Sequence[int]) -> str:
    """Format the message of an assertion.

    >>> assertion_text("expected b >= 2, but b = {0}", [1])
    'expected b >= 2, but b = 1'
    """
    return _PLACE.sub(lambda m: str(numbers[int(m[1])]) if int(m[1]) < len(numbers) else m[0], text)


def check(text: str, values: Sequence[Any]) -> None:
    """Raise ExecutionError with the message, formatted with all but the first value, unless the first value is true."""
    holds, *numbers = [int(v.reshape(-1)[0]) for v in values]
    if not holds:
        raise ExecutionError(assertion_text(text, numbers))
