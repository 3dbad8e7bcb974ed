"""Errors for files of other versions: their writer, what this build reads, what is too new, and the ways out."""

from __future__ import annotations

from stablexla.dialects.builds.installed import installed_version
from stablexla.dialects.builds.stablehlo_version import NEWER, parts
from stablexla.dialects.errors import UnsupportedError
from stablexla.interop.encodings.bytecode import NEWEST, Bytecode
from stablexla.interop.encodings.formats import ARTIFACT
from stablexla.interop.encodings.versions import CURRENT, MINIMUM, is_known


def stablehlo_version(producer: str) -> str:
    """Return the version of StableHLO in a producer's name; "" without one.

    >>> stablehlo_version("StableHLO_v1.3.0"), stablehlo_version("MLIR22.1.8")
    ('1.3.0', '')
    """
    version = producer.removeprefix(ARTIFACT)
    digits = version.split(".")
    if producer == version or len(digits) != 3 or not all(d.isascii() and d.isdecimal() and len(d) < 9 for d in digits):
        return ""
    return ".".join(str(int(d)) for d in digits)


def is_newer(producer: str) -> bool:
    """Return whether a file was written for a StableHLO newer than this build's."""
    version = stablehlo_version(producer)
    return bool(version) and parts(version) > parts(CURRENT)


def check_header(version: int, producer: str, file: str) -> None:
    """Refuse an encoding that is too new, and a StableHLO that is too old.

    Raises:
        UnsupportedError: it is one of these.
    """
    written = stablehlo_version(producer)
    if written and parts(written) < parts(MINIMUM):
        raise UnsupportedError(
            f"{file}: an artifact of StableHLO {written}, which is too old",
            operands=_rows(producer, {}),
            hint=f"write the program anew with StableHLO {MINIMUM} or newer",
        )
    if version > NEWEST:
        raise _refusal(
            f"{file}: MLIR bytecode of version {version}, which is too new",
            producer,
            {"too new": f"the encoding itself, of version {version}; versions up to {NEWEST} can be read"},
        )


def unknown_operations(found: Bytecode) -> list[str]:
    """Return the operations in a file that this build lacks; MHLO's are rewritten."""
    return sorted(str(name) for name in found.operation_names if name.dialect != "mhlo" and not is_known(str(name)))


def check_operations(found: Bytecode, file: str) -> None:
    """Refuse operations that this build lacks.

    Raises:
        UnsupportedError: there is such an operation; the error names some of them.
    """
    unknown = unknown_operations(found)
    if unknown:
        raise of_another_version(found, file, f"{', '.join(unknown[:8])}{' ...' if len(unknown) > 8 else ''}")


def of_another_version(found: Bytecode, file: str, what: str = "", said: str = "") -> UnsupportedError:
    """Return the error for a well-formed file with an unknown feature.

    Args:
        found: the file.
        file: what to call it.
        what: the thing, if it is known.
        said: what MLIR says.
    """
    rows = ({"too new" if is_newer(found.producer) else "unknown": what} if what else {}) | (
        {"MLIR says": said} if said else {}
    )
    version = stablehlo_version(found.producer)
    if version:
        return _refusal(
            f"{file}: an artifact of StableHLO {version} that holds what this build does not know", found.producer, rows
        )
    if not {name.dialect for name in found.operation_names} & {"stablehlo", "chlo", "vhlo", "sdy"}:
        hint = "stablexla-opt FILE --from-stage=NAME, where it is a stage of a pipeline; its text would say so itself"
        return UnsupportedError(f"{file}: bytecode of other dialects", operands=rows, hint=hint)
    return _refusal(f"{file}: bytecode that holds what this build does not know", found.producer, rows)


def _refusal(summary: str, producer: str, rows: dict[str, str]) -> UnsupportedError:
    damaged = (
        "the file may be damaged; if it is not, " if stablehlo_version(producer) and not is_newer(producer) else ""
    )
    hint = damaged + (
        f"an artifact for StableHLO {CURRENT} or older, from whoever wrote it: "
        f'stablehlo.serialize_portable_artifact(module, "{CURRENT}") or '
        f"stablexla-translate --to=artifact --target-version={CURRENT}; or {NEWER}, which reads later ones"
    )
    return UnsupportedError(summary, operands=_rows(producer, rows), hint=hint)


def _rows(producer: str, rows: dict[str, str]) -> dict[str, str]:
    here = f"StableHLO {MINIMUM} to {CURRENT}, bytecode up to version {NEWEST} (jaxlib {installed_version('jaxlib')})"
    return {"written by": producer, "read here": here, **rows}
