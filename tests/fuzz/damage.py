"""Files of every form, made of random programs, and ways to damage their bytes; the same for the same numbers."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import stablexla as sx
from stablexla.dialects.errors import StablexlaError
from stablexla.interop.encodings.formats import Format
from stablexla.interop.encodings.versions import targets
from stablexla.interop.encodings.writers import write
from stablexla.interop.loading import load
from tests.fuzz.generate import draw
from tests.fuzz.writer import FAMILIES


class Kept(Enum):
    """Files that stablexla alone writes and reads."""

    SAVED = "saved program"
    CACHED = "entry of the cache"

    @property
    def described(self) -> str:
        """Its name in sentences."""
        return self.value


FORMS: tuple[Format | Kept, ...] = (
    *(Format.BYTECODE, Format.ARTIFACT, Format.BYTECODE, Format.ARTIFACT),
    *(Format.BYTECODE, Format.ARTIFACT, Format.HLO_PROTO, Format.ARTIFACT, Format.TEXT, Format.HLO_TEXT),
    *(Kept.SAVED, Kept.CACHED),
)
"""The forms of files, in turn: mostly the two that MLIR's own reader takes."""


@dataclass(frozen=True)
class File:
    """A good file.

    Attributes:
        name: what it is, for messages.
        program: of an entry of the cache, the program that it was compiled from.
    """

    name: str
    form: Format | Kept
    data: bytes
    program: str = ""


def make_file(number: int) -> File:
    """The file of that number: a program of one family and the foundation, in one of `FORMS`, of some version."""
    form, family = FORMS[number % len(FORMS)], FAMILIES_IN_TURN[number % len(FAMILIES_IN_TURN)]
    for seed in range(number * 1000, number * 1000 + 1000):
        try:
            program = draw(seed, ["elementwise", "shape", family], statements=4 + number % 5).program
            if isinstance(form, Kept):
                return _keep(program.text, form, family)
            return _write(load(program.text), form, family, number)
        except StablexlaError:  # the form or the version cannot hold it: the next program
            continue
    raise AssertionError(f"no program of {family} for {form.described}")


FAMILIES_IN_TURN = sorted(FAMILIES)


def _write(module: object, form: Format, family: str, number: int) -> File:
    if form is Format.BYTECODE:
        version = 6 - number // 2 % 7
        data = write(module, form, bytecode_version=version)  # type: ignore[arg-type]
        return File(f"{family}, bytecode {version}", form, data)
    if form is Format.ARTIFACT:
        target = targets()[-1 - number * 3 % len(targets())]
        data = write(module, form, target=target)  # type: ignore[arg-type]
        return File(f"{family}, artifact {target}", form, data)
    return File(f"{family}, {form.described}", form, write(module, form))  # type: ignore[arg-type]


def _keep(text: str, form: Kept, family: str) -> File:
    with tempfile.TemporaryDirectory() as folder:
        if form is Kept.SAVED:
            sx.compile(text).save(Path(folder) / "program.sxe")
        else:
            sx.compile(text, options=sx.CompileOptions(cache=folder))
        (path,) = Path(folder).iterdir()
        return File(f"{family}, {form.described}", form, path.read_bytes(), text)


def damaged(data: bytes, seed: int) -> bytes:
    """The bytes with some damage: bits flipped, a piece cut off, taken out, repeated, moved or overwritten."""
    rng = random.Random(seed)
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(_WAYS)(found, rng)
        if not found:
            break
    return bytes(found)


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    """With what numbers of variable length make much of: long ones, large ones, small ones."""
    at = rng.randrange(len(data))
    piece = rng.choice((b"\x00", b"\xff", b"\x01", b"\x80", b"\xfe\xff\xff", b"\x00" + b"\xff" * 8, rng.randbytes(4)))
    data[at : at + len(piece)] = piece


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _take_out(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 1, 2, 16, 256))]


def _repeat(data: bytearray, rng: random.Random) -> None:
    at, size = rng.randrange(len(data)), rng.choice((1, 2, 16, 256))
    data[at:at] = data[at : at + size]


def _move(data: bytearray, rng: random.Random) -> None:
    at, to, size = rng.randrange(len(data)), rng.randrange(len(data)), rng.choice((1, 4, 32))
    data[to : to + size] = data[at : at + size]


_WAYS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(_flip, _flip, _flip, _overwrite, _overwrite),
    *(_cut, _take_out, _repeat, _move),
)
