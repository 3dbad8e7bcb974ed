"""`-verify-diagnostics`: compares MLIR's diagnostics for a file with the expectations in its comments.

The comments are mlir-opt's: `expected-error@+1 {{text}}`; also warning, note and remark, with `-re` for text that has
regular expressions in inner braces, at a distance of lines, `@above`, `@below` or `@unknown`.
"""

from __future__ import annotations

import re

from stablexla.dialects.contexts import Diagnostic
from stablexla.dialects.lazy_dataclass import dataclass

_EXPECTED = re.compile(
    r"expected-(?P<kind>error|note|remark|warning)(?P<re>-re)? *"
    r"(?:@(?P<place>[+-]\d+|above|below|unknown))? *\{\{(?P<text>.*)\}\} *$"
)
_OPERATION = "see current operation"  # a note that mlir-opt leaves out here
_PLACE = re.compile(r'"([^"\n]*)":(\d+):(\d+)')


@dataclass(frozen=True)
class Expected:
    """One comment.

    Attributes:
        at: its line, from 1.
        kind: error, warning, note or remark.
        line: the line that it is about; 0 for a place that is not known.
        text: the expectation, as written.
        pattern: the regular expression that the message has in it.
    """

    at: int
    kind: str
    line: int
    text: str
    pattern: str

    def fits(self, found: Diagnostic, line: int) -> bool:
        """Return whether it expects this message on this line."""
        return (found.severity, line) == (self.kind, self.line) and re.search(self.pattern, found.message) is not None


def _pattern(text: str) -> str:
    """Return the regular expression of a text with expressions in `{{...}}`."""
    parts = re.split(r"\{\{(.*?)\}\}", text)
    return "".join(f"(?:{part})" if number % 2 else re.escape(part) for number, part in enumerate(parts))


def expectations(text: str) -> list[Expected]:
    """Return the comments of a text.

    >>> [(e.kind, e.line, e.text) for e in expectations("// expected-error@+1 {{no}}\\nfoo // expected-note {{here}}")]
    [('error', 2, 'no'), ('note', 2, 'here')]
    """
    found: list[Expected] = []
    below: list[tuple[int, re.Match[str]]] = []  # for the next line without a comment of its own
    previous = 0
    for number, line in enumerate(text.splitlines(), start=1):
        match = _EXPECTED.search(line)
        if match is None:
            found += [_expected(at, waiting, number) for at, waiting in below]
            below, previous = [], number
        elif match["place"] == "below":
            below.append((number, match))
        else:
            found.append(_expected(number, match, _line(match["place"], number, previous)))
    return found


def _line(place: str | None, number: int, previous: int) -> int:
    if place == "above":
        return previous
    if place == "unknown":
        return 0
    return number + int(place or 0)


def _expected(at: int, match: re.Match[str], line: int) -> Expected:
    text = match["text"]
    return Expected(at, match["kind"], line, text, _pattern(text) if match["re"] else re.escape(text))


def compare(text: str, said: list[Diagnostic], file: str, *, only_expected: bool = False) -> list[str]:
    """Return complaints: unexpected diagnostics, unless `only_expected`, and expected ones that are missing.

    Args:
        text: the input, whose places name the file `-`.
        said: in the order in which it was said.
        file: the input's name in the complaints.
    """
    waiting, complaints = expectations(text), []
    for found in said:
        if found.message.startswith(_OPERATION):
            continue
        place = _PLACE.search(found.location)
        line = int(place[2]) if place and place[1] in ("-", file) else 0
        one = next((e for e in waiting if e.fits(found, line)), None) if line or not place else None
        if one is not None:
            waiting.remove(one)
        elif not only_expected:
            where = f"{file}:{place[2]}:{place[3]}" if line and place else found.location or "unknown"
            complaints.append(f"{where}: error: unexpected {found.severity}: {found.message}")
    for left in waiting:
        complaints.append(f'{file}:{left.at}: error: expected {left.kind} "{left.text}" was not produced')
    return complaints
