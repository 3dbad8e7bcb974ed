"""Writes `hlo_opcodes.md`: every opcode of HLO that the installed jaxlib has, and as what it is read here.

The programs are those of `tests/interop/hlo_opcodes.py`, whose test compares what they give with XLA:CPU.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as ir

PAGE = Path(__file__).parent / "hlo_opcodes.md"
ROOT = Path(__file__).parents[1]
TOP = """# Opcodes of HLO

Made by `python docs/make_hlo_opcodes.py`, with jaxlib {jaxlib}, whose {count} opcodes these are. A small program of
each ([tests/interop/hlo_opcodes.py](../tests/interop/hlo_opcodes.py)) is read, and its results are compared with those
of XLA:CPU, or with numpy's where XLA:CPU has none.

HLO is read as XLA prints it before its passes and after them ([forms](interop_formats.md)): `sx.load` and `sx.compile`
take what `--xla_dump_to` wrote. Print constants whole, with `--xla_dump_large_constants`: one that was left out is
refused. An opcode that ends in `-start` stands for its operation, and one that ends in `-done` for its results; a
collective whose module names no devices runs on as many as its groups name.

| opcode | read as | |
|---|---|---|
"""
NOTES = {
    "add-dependency": "its operand: effects are in the program's order anyway",
    "bitcast": "in the order of both layouts; refused with tiles, which CPUs and GPUs do not have",
    "custom-call": "targets that XLA's passes leave: `TopK`, `SliceToDynamic`; others by `sx.register_custom_call`",
    "fusion": "its operations in its place, of any kind",
    "rng-get-and-update-state": "a state of its own in each call; XLA keeps one, from a seed that it chooses itself",
    "shuffle": "refused when it is compiled",
    "scaled-dot": "in f32, where elements times scales are exact",
    "stochastic-convert": "to integers; to floats it has no meaning in XLA either",
}
UNSEEN = {"builtin.module", "func.func", "func.return", "stablehlo.return"}


def page() -> str:
    """The page's text."""
    sys.path.insert(0, str(ROOT))
    from tests.interop.hlo_opcodes import SAMPLES

    rows = [f"| `{name}` | {_read_as(name, SAMPLES[name])} | {NOTES.get(name, '')} |" for name in sorted(SAMPLES)]
    return TOP.format(jaxlib=metadata.version("jaxlib"), count=len(rows)) + "\n".join(rows) + "\n"


def _read_as(name: str, text: str) -> str:
    """The operations that a program has once it is read, or why it is refused."""
    import stablexla as sx

    try:
        module = sx.load(f"HloModule m\n\n{text}", trusted=True)
    except sx.StablexlaError as error:
        return f"refused: {str(error).splitlines()[0]}"
    found: dict[str, None] = {}

    def note(op: Any) -> ir.WalkResult:
        calls = "call_target_name" in op.attributes
        target = f" @{ir.StringAttr(op.attributes['call_target_name']).value}" if calls else ""
        found[op.name + target] = None
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    names = [operation for operation in found if operation not in UNSEEN]
    same = f"stablehlo.{name.replace('-', '_')}"
    shown = [same] if same in names else names
    return ", ".join(f"`{operation}`" for operation in sorted(shown)) or "no operation"


def main() -> int:
    """Writes the page, or, with --check, says whether it is as it would be written."""
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text() == text else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
