"""The tools under one name: `python -m stablexla run model.mlir`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

TOOLS = {
    "run": "compile a program and run it; time, explain, profile, compare it",
    "opt": "run passes on a file, or the pipeline up to a stage",
    "compile": "a C library, object file or GPU kernels of a program",
    "translate": "convert a program between MLIR, artifacts and HLO; describe a file",
    "cache": "list or clear the compiled programs that are kept",
}
HELP = f"""usage: python -m stablexla TOOL ...

{"".join(f"  {name:<10} {what}{chr(10)}" for name, what in TOOLS.items())}
  python -m stablexla run --help   the tool's options; stablexla-run is the same
  python -m stablexla --version    the versions of stablexla and of its MLIRs
  python -m stablexla completion bash|zsh|tcsh
                                   the tools' options for a shell (needs shtab)
"""
SHELLS = ("bash", "zsh", "tcsh")


def main(words: Sequence[str] | None = None) -> int:
    """Run the tool that the first word names; return its exit code."""
    first, *rest = (sys.argv[1:] if words is None else words) or ["--help"]
    if first in TOOLS:
        code: int = import_module(f"stablexla.tools.{first}").main(rest)
        return code
    if first in ("--help", "-h"):
        print(HELP, end="")
        return 0
    if first == "--version":
        from stablexla.tools.parser import versions

        print(versions())
        return 0
    if first == "completion":
        return _completion(rest)
    near = get_close_matches(first, TOOLS, 1)
    print(
        f"stablexla: there is no tool {first!r}\n  try: python -m stablexla {near[0] if near else '--help'}",
        file=sys.stderr,
    )
    return 2


def _completion(words: Sequence[str]) -> int:
    if len(words) != 1 or words[0] not in SHELLS:
        print(f"stablexla: completion of which shell?\n  try: {' or '.join(SHELLS)}", file=sys.stderr)
        return 2
    try:
        import shtab
    except ImportError:
        print("error: shtab is not installed\n  try: pip install shtab", file=sys.stderr)
        return 1
    from stablexla.tools.common import run_tool

    return run_tool(lambda: _complete(shtab, words[0]))


def _complete(shtab: Any, shell: str) -> int:
    for name in TOOLS:
        module = "stablexla.tools.optimizing.options" if name == "opt" else f"stablexla.tools.{name}"
        parser = import_module(module).parser()
        if " " not in parser.prog:
            print(shtab.complete(parser, shell))
    return 0


if __name__ == "__main__":
    sys.exit(main())
