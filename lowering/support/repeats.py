"""Marks of a program's equal parts, on which the passes that make them, lower them and inline them agree."""

from __future__ import annotations

PART = "stablexla.part"
"""Attribute of a private function that holds the operations of equal stretches of a program; calls stand for these."""

PLACE = "part:"
"""How names of locations of a part's operations begin; the location of a call is made of those of its operations."""


def place_name(number: int, nested: int = 0) -> str:
    """Name the location of an operation of a part, or of the operations nested in it, which are numbered from 1."""
    return f"{PLACE}{number}.{nested}" if nested else f"{PLACE}{number}"
