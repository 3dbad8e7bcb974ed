"""Prints the builds that pip is to install for the Python that runs this: `python third_party/constraints.py`.

`--oldest` takes the oldest line of jaxlib instead of the newest that there are wheels of. `--build` prints what
pyproject.toml requires for a build instead.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any


def pins(python: tuple[int, ...], *, oldest: bool = False) -> dict[str, str]:
    """The version of each package of pins.toml.

    Raises:
        LookupError: no line of jaxlib is for so old a Python.
    """
    rows: dict[str, Any] = tomllib.loads((Path(__file__).parent / "pins.toml").read_text())
    lines = [line for line in rows.pop("lines") if tuple(map(int, line["python"].split("."))) <= python]
    if not lines:
        raise LookupError(f"stablexla takes Python 3.11 or later, and this is {'.'.join(map(str, python))}")
    jaxlib = lines[-1 if oldest else 0]["jaxlib"]
    return {"jaxlib": jaxlib, **{name: row["version"] for name, row in rows.items() if name != "jaxlib"}}


def build_requirements() -> list[str]:
    """Build requirements of pyproject.toml; CMake and ninja, which a system may have, are not among them."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    requirements: list[str] = project["build-system"]["requires"]
    return requirements


if __name__ == "__main__":
    if "--build" in sys.argv:
        print(*build_requirements(), sep="\n")
    else:
        for name, version in pins(sys.version_info[:2], oldest="--oldest" in sys.argv).items():
            print(f"{name}=={version}")
