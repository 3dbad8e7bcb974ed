"""Finding ptxas, of PyPI's nvidia-cuda-nvcc or of an installed toolkit, and asking it whether it takes a PTX text."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path


@functools.cache
def find_ptxas() -> str | None:
    """The path of ptxas; of the package that the extra `gpu` installs, if it is there."""
    for package in ("nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc"):
        try:
            found = [str(f.locate()) for f in files(package) or () if f.name == "ptxas"]
        except PackageNotFoundError:
            continue
        if found:
            return found[0]
    return shutil.which("ptxas")


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
