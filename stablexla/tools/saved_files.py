"""Saved executables on the command line: recognised, loaded with a key, and described."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from stablexla.dialects.errors import LoadError, StablexlaError
from stablexla.executable.executable import Executable
from stablexla.executable.saved import load_executable
from stablexla.targets.runtime import container, signatures


def add_key_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the key of signed files."""
    help_ = "the key of a saved executable: the file's bytes, but white space at its end"
    parser.add_argument("--key-file", type=Path, metavar="FILE", help=help_)


def key_of(arguments: argparse.Namespace) -> bytes | None:
    """Return the key that the options name.

    Raises:
        StablexlaError: it cannot be read.
    """
    if arguments.key_file is None:
        return None
    try:
        return bytes(arguments.key_file.read_bytes().rstrip())
    except OSError as error:
        raise StablexlaError(f"{arguments.key_file}: the key cannot be read: {error.strerror}") from None


def is_saved(source: Path | bytes) -> bool:
    """Return whether a file, or the contents of one, is a saved executable."""
    if isinstance(source, bytes):
        return source.startswith(container.MAGIC)
    try:
        with source.open("rb") as file:
            return file.read(len(container.MAGIC)) == container.MAGIC
    except OSError:
        return False


def load_saved(source: Path | bytes, arguments: argparse.Namespace) -> Executable:
    """Load a saved executable as the options say.

    Raises:
        LoadError: as `sx.load_executable`; or it comes from standard input.
    """
    if isinstance(source, bytes):
        raise LoadError("a saved executable is run from a file, not from standard input")
    return load_executable(source, key=key_of(arguments))


def describe(data: bytes, file: str, key: bytes | None) -> dict[str, Any]:
    """Return what a saved executable holds; none of its code is loaded.

    Raises:
        LoadError: it is damaged, or not signed with the key.
    """
    signed = "there is one; nobody has verified it without --key-file" if signatures.is_signed(data) else "none"
    if key is not None:
        data, signed = bytes(signatures.verify(data, key, file)), "verified with the key"
    found = container.parse(data, file)
    try:
        function = found.description["function"]
        calls = [f"{call['call']} {call.get('target', '')}".strip() for call in function["host_calls"] or ()]
        return {
            "file": file,
            "form": "saved executable: machine code",
            "signature": signed,
            "written by": f"stablexla {found.description['stablexla']}",
            "name": found.description["name"],
            "target": found.description["target"],
            "parameters": ", ".join(map(str, found.description["parameters"])),
            "results": ", ".join(map(str, found.description["results"])),
            "machine": function["machine"],
            "features": " ".join(map(str, function["features"])),
            "calls": ", ".join(calls),
            "bytes": ", ".join(f"{name} {len(section):,}" for name, section in found.sections.items()),
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise LoadError(f"{file}: what it says does not hold together: {error!r}") from None
