"""Writes the names of `reference/*.md`, each with the first sentence of its docstring, below what the site replaces."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PAGES = sorted(page for page in (FOLDER / "reference").glob("*.md") if page.name != "README.md")


def text_of(page: Path) -> str:
    """A page's text with its tables as they are to be."""
    sys.path.insert(0, str(FOLDER / "site"))
    try:
        from reference import with_tables
    finally:
        sys.path.pop(0)
    made: str = with_tables(page.read_text(encoding="utf-8"))
    return made


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(text_of(page), encoding="utf-8")
