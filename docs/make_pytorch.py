"""Writes docs/pytorch_operators.md: PyTorch's own samples of all its operators, run here and by eager PyTorch.

Run as `python docs/make_pytorch.py`; `--samples 2` runs the first two of each operator in f32, and not all.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent / "pytorch_operators.md"
HEAD = """# PyTorch's operators

Made by `python docs/make_pytorch.py`: the entries of PyTorch's `op_db`, the table of operators that its own tests run,
with {samples} in f32, forward and backward, and one sample of each other element type.
Results are held against eager PyTorch {torch} with the tolerances of `torch.testing` and those that the entry asks for
in PyTorch's tests; where a sample differs by more, it counts as right if it is at least as near to the same sample in
f64 as eager PyTorch. Random numbers are compared by type and shape.

"""


def page(outcomes: Sequence[dict[str, Any]], torch_version: str, samples: int | None) -> str:
    """Return the page for the outcomes of all operators."""
    wrong = [o for o in outcomes if o["failed"]]
    dynamic = [o for o in outcomes if not o["failed"] and not o["right"]]
    right = [o for o in outcomes if not o["failed"] and o["right"]]
    static = len(wrong) + len(right)
    good, bad = sum(o["right"] for o in outcomes), sum(len(o["failed"]) for o in outcomes)
    lines = [
        HEAD.format(
            torch=torch_version, samples="all their samples" if samples is None else f"their first {samples} samples"
        ),
        f"**{len(right)} of {static} entries with results of static size are right ({len(right) / static:.1%})**, and",
        f"{good:,} of their {good + bad:,} samples ({good / (good + bad):.1%}). Of {len(dynamic)} further entries",
        "the size of the result depends on a tensor's numbers in every sample, and they are refused, or eager PyTorch",
        "runs no sample on a CPU.\n",
        "## Not right\n",
        "| operator | samples right | of | the first that is not |",
        "|---|---:|---:|---|",
        *(f"| `{o['name']}` | {o['right']} | {o['right'] + len(o['failed'])} | {_reason(o)} |" for o in wrong),
        "\n## Refused\n",
        ", ".join(f"`{o['name']}`" for o in dynamic) + "\n",
        "## Right\n",
        ", ".join(f"`{o['name']}` ({o['right']})" for o in right) + "\n",
    ]
    return "\n".join(lines)


def _reason(outcome: dict[str, Any]) -> str:
    label, reason = outcome["failed"][0]
    told = " ".join(re.sub(r"/\S*/", "", reason).split())
    return f"{label}: {told[:160]}".replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    """Run the samples, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, help="the most samples of f32 for each operator")
    parser.add_argument(
        "--from", dest="source", type=Path, help="the outcomes of such a run of tests.interop.torch_operators, as JSON"
    )
    given = parser.parse_args()
    import torch

    with tempfile.TemporaryDirectory() as folder:
        source = given.source or Path(folder) / "outcomes.json"
        if given.source is None:
            command = [sys.executable, "-m", "tests.interop.torch_operators", "--json", str(source)]
            command += [] if given.samples is None else ["--samples", str(given.samples)]
            subprocess.run(command, check=False, cwd=PAGE.parents[1])
        outcomes = json.loads(source.read_text())
    PAGE.write_text(page(outcomes, torch.__version__.partition("+")[0], given.samples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
