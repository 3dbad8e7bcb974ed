"""Asking ptxas whether it takes a PTX text."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

from stablexla.targets.gpu.ptx.cubin import find_ptxas as find_ptxas  # it is named from here


@functools.cache
def knows(chip: str) -> bool:
    """Whether ptxas assembles for a chip; new ones have dropped old chips."""
    with tempfile.TemporaryDirectory() as folder:
        empty = f".version 8.7\n.target {chip}\n.address_size 64\n"
        return "is not defined for option 'gpu-name'" not in refused_by_ptxas(empty, chip, Path(folder))


def refused_by_ptxas(ptx: str, chip: str, folder: Path) -> str:
    """What ptxas says against a text; "" when it takes it."""
    source = folder / f"{chip}.ptx"
    source.write_text(ptx)
    ptxas = find_ptxas()
    assert ptxas is not None
    command = [ptxas, f"-arch={chip}", "-O1", str(source), "-o", str(folder / f"{chip}.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""
