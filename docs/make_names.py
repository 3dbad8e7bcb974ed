"""Writes the table of docs/names.md: the names of other libraries, and how each is written here.

Run as `python docs/make_names.py`; a test tells whether the table is up to date.
"""

from __future__ import annotations

from pathlib import Path

from stablexla.builder.other_names import ATTRIBUTES, ROWS, TYPES, WAYS

PAGE = Path(__file__).resolve().parent / "names.md"
BEGIN, END = "<!-- table: docs/make_names.py -->\n", "<!-- end -->\n"


def with_table(page: str) -> str:
    """The page with the table of the names as they are."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + _table() + END + rest.partition(END)[2]


def _table() -> str:
    lines = ["| elsewhere | here |", "|---|---|"]
    lines += [_row(names.split(), text) for names, text in ROWS]
    lines += ["", "Attributes and methods of arrays that mean another thing than the function of their name:", ""]
    lines += ["| of an array | of an op `x` |", "|---|---|"]
    lines += [_row([f"x.{name}" for name in names], text) for text, names in _by_text(ATTRIBUTES).items()]
    lines += ["", "Element types, and what has no operation:", "", "| elsewhere | here |", "|---|---|"]
    lines += [_row(names, text) for text, names in _by_text(TYPES).items()]
    lines += [f"| {_codes(names)} | {text} |" for text, names in _by_text(WAYS).items()]
    return "\n".join(lines) + "\n"


def _by_text(names: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, text in names.items():
        found.setdefault(text, []).append(name)
    return found


def _row(names: list[str], text: str) -> str:
    return f"| {_codes(names)} | `{text}` |"


def _codes(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
