"""The table of the compiler's identities of arithmetic: a part of docs/numerics.md."""

from __future__ import annotations

from collections.abc import Iterable

from tests.numerics.identities import IDENTITIES, NOBODY, REWRITES, Identity

HEADING = "## Identities"
_TEXT = f"""{HEADING}

Made by `python -m benchmarks.numerics --identities`; `tests/numerics/test_identities.py` runs each of them on all pairs
of zeros of both signs, infinities, NaN, the smallest and the largest numbers and ordinary ones.

The compiler replaces arithmetic by other arithmetic only where both have the same result for all numbers of the type; a
NaN may be another NaN. LLVM may assume no more of an instruction, but for two things that StableHLO leaves open in sums
(reductions, products of matrices, convolutions, scans): their order, and whether a product is rounded before it is
added. Complex numbers have the identities of their parts alone."""
_UNUSED = """These hold for real numbers. Programs that are written so are computed as they are written."""

_SUMS = """Rewrites of whole sums, and what is done for numbers for which they do not hold:"""


def section() -> str:
    """The part of the page."""
    used = [each for each in IDENTITIES if each.where != NOBODY]
    unused = [each for each in IDENTITIES if each.where == NOBODY]
    tables = [_table(used, applied=True), _UNUSED, _table(unused, applied=False), _SUMS, _rewrites()]
    return "\n\n".join([_TEXT, *tables]) + "\n"


def _table(rows: Iterable[Identity], *, applied: bool) -> str:
    headings = ["identity", "holds for", *(["applied by"] if applied else []), "tested with"]
    lines = [headings, ["---"] * len(headings)]
    for each in rows:
        where = [f"`{each.where}`" if "/" in each.where else each.where] if applied else []
        written = each.written.replace("|", "\\|")
        lines.append([f"`{written}`", each.holds, *where, ", ".join(each.types)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rewrites() -> str:
    lines = [["rewrite", "holds for", "others", "applied by", "test"], ["---"] * 5]
    for each in REWRITES:
        lines.append([each.written, each.holds, each.others, f"`{each.where}`", f"`{each.test}`"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
