"""Version of StableHLO in the installed jaxlib, and the refusal of operations that need a later one."""

from __future__ import annotations

from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.builds.installed import installed_version
from stablexla.dialects.builds.pins import PINS
from stablexla.dialects.errors import UnsupportedError

INSTALLED: str = stablehlo.get_current_version()
_PYTHON = ".".join(map(str, PINS[0].python))
NEWER = f"jaxlib {PINS[0].accepts.removesuffix('.*')} or later, which takes Python {_PYTHON} or later"


def parts(version: str) -> tuple[int, ...]:
    """Parse a version to a comparable tuple of numbers.

    >>> parts("0.20.0") < parts("1.3.0")
    True
    """
    return tuple(int(part) for part in version.split("."))


def has_stablehlo(version: str) -> bool:
    """Whether the installed StableHLO is of this version or a later one.

    >>> has_stablehlo("1.17"), has_stablehlo("9.0")
    (True, False)
    """
    return parts(version) <= parts(INSTALLED)


def require_stablehlo(version: str, operation: str, what: str = "it") -> None:
    """Refuse an operation that needs a later StableHLO than the installed one.

    Raises:
        UnsupportedError: names the version, and the jaxlib that has it.
    """
    if not has_stablehlo(version):
        raise UnsupportedError(
            f"{what} takes StableHLO {version} or later; jaxlib {installed_version('jaxlib')} has {INSTALLED}",
            operation=operation,
            hint=NEWER,
        )
