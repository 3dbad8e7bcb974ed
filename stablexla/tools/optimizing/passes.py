"""`--show-passes`: the passes of both MLIRs and the Python passes, with their options."""

from __future__ import annotations

import difflib
import re
import sys
import textwrap

from stablexla.targets.pipeline.pass_list import PassInfo, all_passes
from stablexla.tools.common import FAILED

KINDS = {
    "python": "written in Python",
    "stablehlo": "of StableHLO's MLIR",
    "both": "of both MLIRs",
    "upstream": "of upstream's MLIR",
}
_WIDTH = 110


def show_passes(pattern: str) -> int:
    """Print the passes whose names match `pattern`, a regular expression; the exit code, 1 without any."""
    known = all_passes()
    try:
        found = [info for name, info in known.items() if re.search(pattern, name)]
    except re.error as error:
        print(f"stablexla-opt: --show-passes={pattern}: {error}", file=sys.stderr)
        return FAILED
    if not found:
        near = ", ".join(difflib.get_close_matches(pattern, known, n=3))
        print(f"no pass is called like {pattern!r}" + (f"; {near}?" if near else ""), file=sys.stderr)
        return FAILED
    for origin, title in KINDS.items():
        group = [info for info in found if info.origin == origin]
        if group:
            print(f"// {len(group)} {'pass' if len(group) == 1 else 'passes'} {title}")
            print("\n".join(described(info) for info in group))
    return 0


def described(info: PassInfo) -> str:
    """Return a pass in lines: name, summary, the MLIR that it works on, and options."""
    where = {"stablehlo": "before", "upstream": "after", "both": "before or after"}[info.side]
    lines = [info.name, *_wrapped(f"{info.summary}  [{where} stablexla-lower-to-tensor]", 4)]
    for option in info.options:
        value = f"={option.value}" if option.value else ""
        lines += _wrapped(f"{option.name}{value}" + (f"  {option.summary}" if option.summary else ""), 8)
    return "\n".join(lines)


def _wrapped(text: str, indent: int) -> list[str]:
    first, rest = " " * indent, " " * (indent + 4)
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
