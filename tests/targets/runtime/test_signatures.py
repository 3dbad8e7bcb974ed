"""Signed programs: who has no key alters nothing in them, and nothing is read before the signature is verified."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.runtime import container, saved_code, signatures
from stablexla.tools import run, translate

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
ONES = np.ones(8, np.float32)


@pytest.fixture(scope="module")
def executable() -> sx.Executable:
    b = sx.XlaBuilder("scaled")
    return sx.compile(b.build(b.parameter(0, sx.f32[8]) * b.constant(np.arange(8, dtype=np.float32))))


@pytest.fixture
def file(executable: sx.Executable, tmp_path: Path) -> Path:
    executable.save(tmp_path / "scaled.sxe", key=KEY)
    return tmp_path / "scaled.sxe"


def test_with_its_key(executable: sx.Executable, file: Path) -> None:
    loaded = sx.load_executable(file, key=KEY)
    assert loaded(ONES).tolist() == executable(ONES).tolist()
    assert loaded.origin == "scaled.sxe, signed"
    assert repr(loaded) == f"{repr(executable)[:-1]}, scaled.sxe, signed)"
    assert sx.load_executable(file, key=bytearray(KEY))(ONES).tolist() == executable(ONES).tolist()


def test_without_a_key_it_says_so(executable: sx.Executable, file: Path) -> None:
    assert executable.origin == ""
    assert sx.load_executable(file).origin == "scaled.sxe, not authenticated"
    executable.save(file)
    assert "scaled.sxe, not authenticated" in repr(sx.load_executable(file))


def test_another_key_and_no_signature(executable: sx.Executable, file: Path) -> None:
    with pytest.raises(sx.LoadError, match=r"scaled\.sxe: the signature is not that of this key: the file was altered"):
        sx.load_executable(file, key=OTHER)
    executable.save(file)
    with pytest.raises(
        sx.LoadError,
        match=r"(?s)the file is not signed, and a key was given; or its end is missing\n  try: executable\.save",
    ):
        sx.load_executable(file, key=KEY)


def test_a_signed_file_that_was_cut(file: Path) -> None:
    data = file.read_bytes()
    for lost in range(1, signatures.SIZE):
        file.write_bytes(data[:-lost])
        with pytest.raises(sx.LoadError, match="the file is damaged: its signature ends too early"):
            sx.load_executable(file)
        known = lost <= signatures.SIZE - len(signatures.MARK)
        with pytest.raises(sx.LoadError, match="its signature ends too early" if known else "or its end is missing"):
            sx.load_executable(file, key=KEY)
    for lost in (signatures.SIZE + 1, signatures.SIZE + 16):
        file.write_bytes(data[:-lost])
        with pytest.raises(sx.LoadError, match="the file is damaged: it ends too early"):
            sx.load_executable(file)
    file.write_bytes(data + b"\0")
    with pytest.raises(sx.LoadError, match="there are 41 bytes behind its end"):
        sx.load_executable(file)


def test_every_altered_part_is_noticed_before_it_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Head, description, each section, the mark and the signature; also with checksums that were made right."""
    data = file.read_bytes()
    read = container.parse(data, "it")
    body = len(data) - len(signatures.MARK) - 32
    places = [0, 12, 20, 40, 80, body - 1, body + 1, len(data) - 1]
    places += [data.index(bytes(part[:64])) for part in read.sections.values() if len(part)]
    monkeypatch.setattr(container, "parse", lambda *_: pytest.fail("it was looked at"))
    for place in places:
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(sx.LoadError, match=r"the signature is not that of this key|is not signed"):
            sx.load_executable(file, key=KEY)
    monkeypatch.undo()
    monkeypatch.setattr(saved_code, "LoadedCode", lambda *_: pytest.fail("its code was loaded"))
    for name in read.sections:
        sections = {each: bytes(part) for each, part in read.sections.items()}
        sections[name] = sections[name][:-1] + bytes([sections[name][-1] ^ 1])
        container.write(file, read.description, sections)  # the checksums are right
        file.write_bytes(file.read_bytes() + data[body:])  # and the old signature is behind it
        with pytest.raises(sx.LoadError, match="the signature is not that of this key"):
            sx.load_executable(file, key=KEY)
    assert set(read.sections) >= {"code", "constants", "source"}


@pytest.mark.parametrize("key", [b"short", "text of more than sixteen", 3])
def test_what_is_no_key(key: object, executable: sx.Executable, file: Path) -> None:
    for use in (sx.load_executable, executable.save):
        with pytest.raises(sx.StablexlaError, match="a key for signatures is at least 16 secret bytes, not"):
            use(file, key=key)  # type: ignore[operator]


def test_the_tools(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, other = file.with_name("key"), file.with_name("other")
    key.write_bytes(KEY + b"\n")
    other.write_bytes(OTHER)
    assert run.main([str(file), "--key-file", str(key)]) == 0
    assert "f32[8]" in capsys.readouterr().out
    assert run.main([str(file), "--key-file", str(other)]) == 1
    assert "the signature is not that of this key" in capsys.readouterr().err
    assert translate.main(["--info", "--json", str(file)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["form"] == "saved executable: machine code"
    assert told["signature"].startswith("there is one; nobody has verified it")
    assert translate.main(["--info", str(file), "--key-file", str(key)]) == 0
    assert "verified with the key" in capsys.readouterr().out
    assert translate.main(["--info", str(file), "--key-file", str(file.with_name("none"))]) == 1
    assert "the key cannot be read" in capsys.readouterr().err
