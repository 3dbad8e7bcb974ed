"""The cache of compiled programs: what is found there is what would have been compiled, and nothing else is found."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.compiling import cache
from stablexla.dialects.custom_calls import CustomCallTarget
from stablexla.targets.llvm import early_code
from stablexla.targets.llvm.library import Library
from stablexla.targets.pipeline.knobs import knobs, user_cache_folder
from stablexla.targets.runtime import container
from stablexla.tools.cache import main
from tests.threads import in_threads

TEXT = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  return %x : tensor<2xf32>\n}\n"
ONES = np.ones(3, np.float32)


@pytest.fixture(autouse=True)
def counts(monkeypatch: pytest.MonkeyPatch) -> cache.Counts:
    monkeypatch.setenv("STABLEXLA_KERNEL_CACHE", "off")
    monkeypatch.setattr(cache, "counts", fresh := cache.Counts())
    return fresh


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with knobs.scoped(cache=tmp_path / "cache"):
        yield tmp_path / "cache"


def scaled(factor: float = 2, name: str = "x") -> sx.XlaComputation:
    b = sx.XlaBuilder("scaled")
    return b.build(b.parameter(0, sx.f32[3], name=name) * factor)


def entry(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_the_second_time_it_is_found(folder: Path, counts: cache.Counts) -> None:
    first, second = sx.compile(scaled()), sx.compile(scaled())
    assert (counts.misses, counts.hits) == (1, 1)
    assert second(ONES).tolist() == first(ONES).tolist() == [2, 2, 2]
    assert second.ir("llvm") == first.ir("llvm")
    assert repr(second) == repr(first)
    assert [str(p) for p in second.parameters] == [str(p) for p in first.parameters]


def test_by_the_option(tmp_path: Path, counts: cache.Counts) -> None:
    for _ in range(2):
        assert sx.compile(TEXT, options=sx.CompileOptions(cache=str(tmp_path)))(ONES[:2]).tolist() == [1, 1]
    assert (counts.misses, counts.hits) == (1, 1)
    with pytest.raises(sx.CompileError, match="cache must be the path of a folder, not 3"):
        sx.CompileOptions(cache=3)  # type: ignore[arg-type]


def test_without_a_folder_nothing_is_kept(counts: cache.Counts) -> None:
    sx.compile(TEXT)
    assert counts == cache.Counts()


def test_locations_are_those_of_the_program_at_hand(folder: Path, counts: cache.Counts) -> None:
    def other_line() -> sx.XlaComputation:
        b = sx.XlaBuilder("scaled")
        return b.build(b.parameter(0, sx.f32[3], name="x") * 2)

    sx.compile(scaled())
    found = sx.compile(other_line())
    assert counts.hits == 1
    assert (
        found.ir("source", debug_info=True)
        == str(sx.load(other_line()).operation.get_asm(enable_debug_info=True)).rstrip()
    )


def test_a_program_for_several_devices(folder: Path, counts: cache.Counts) -> None:
    def summed() -> sx.XlaComputation:
        b = sx.XlaBuilder("summed")
        return b.build(sx.all_reduce(b.parameter(0, sx.f32[3]), sx.add))

    for _ in range(2):
        executable = sx.compile(summed(), num_replicas=2)
        assert [own[0].tolist() for own in executable.execute_replicated([[ONES], [ONES]])] == [[2, 2, 2]] * 2
        assert "mhlo.num_replicas = 2" in executable.ir("source")
        assert (executable.num_replicas, executable.num_devices) == (2, 2)
    assert (counts.misses, counts.hits) == (1, 1)
    sx.compile(summed(), num_replicas=3)
    assert (counts.misses, counts.hits) == (2, 1)


DIFFERENT: list[Callable[[], Any]] = [
    lambda: sx.compile(scaled(3)),
    lambda: sx.compile(scaled(name="y")),
    lambda: sx.compile(scaled(), options=sx.CompileOptions(opt_level=2)),
    lambda: sx.compile(scaled(), options=sx.CompileOptions(vector_bits=128)),
    lambda: sx.compile(scaled(), options=sx.CompileOptions(flush_denormals=True)),
    lambda: sx.compile(scaled(), options=sx.CompileOptions(pipeline=sx.pipeline("cpu").without("kernels"))),
    lambda: sx.compile(scaled(), num_replicas=1),
    lambda: sx.compile(scaled(), num_replicas=2),
    lambda: sx.compile(scaled(), num_partitions=2),
    lambda: sx.compile(str(scaled())),
]


@pytest.mark.parametrize("other", DIFFERENT)
def test_what_differs_is_not_found(other: Callable[[], Any], folder: Path, counts: cache.Counts) -> None:
    sx.compile(scaled())
    with contextlib.suppress(sx.CompileError):
        other()
    assert counts.hits == 0


@pytest.mark.parametrize("line", ["// stage one of a model", "// stage source: stablexla-opt"])
def test_texts_that_begin_like_a_stage(line: str, folder: Path, counts: cache.Counts) -> None:
    for _ in range(2):
        sx.compile(f"{line}\n{TEXT}")
    assert (counts.misses, counts.hits) == (1, 1)


def test_an_object_that_is_no_program(folder: Path) -> None:
    class Odd:
        @property
        def module(self) -> object:
            raise RuntimeError("not asked for")

    with pytest.raises(sx.ParseError, match="is no program"):
        sx.compile(Odd())  # type: ignore[arg-type]  (no program)


@pytest.mark.parametrize("what", ["VERSION", "_digest_of_the_package", "host_target"])
def test_another_compiler_or_machine(
    what: str, folder: Path, counts: cache.Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    sx.compile(scaled())
    monkeypatch.setattr(cache, what, "other" if what == "VERSION" else lambda: "other")
    cache._surroundings.cache_clear()
    sx.compile(scaled())
    cache._surroundings.cache_clear()
    assert counts.hits == 0


@pytest.mark.parametrize("damage", [lambda d: d[: len(d) // 2], lambda d: b"", lambda d: d[:-200] + b"x" + d[-199:]])
def test_a_damaged_entry_is_replaced(damage: Callable[[bytes], bytes], folder: Path, counts: cache.Counts) -> None:
    sx.compile(scaled())
    whole = entry(folder).read_bytes()
    entry(folder).write_bytes(damage(whole))
    assert sx.compile(scaled())(ONES).tolist() == [2, 2, 2]
    assert counts.hits == 0
    assert container.read(entry(folder)).description["name"] == "scaled"
    sx.compile(scaled())
    assert counts.hits == 1


def test_functions_are_called_by_name(folder: Path, counts: cache.Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stablexla.compiling.custom_calls.TARGETS", targets := {})
    monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)

    def compiled() -> sx.Executable:
        b = sx.XlaBuilder("calls")
        return sx.compile(b.build(sx.custom_call("cache.mine", b.parameter(0, sx.f32[3]), sx.f32[3])))

    sx.register_custom_call("cache.mine", lambda x: x + 1)
    assert compiled()(ONES).tolist() == [2, 2, 2]
    sx.register_custom_call("cache.mine", lambda x: x + 4)
    assert compiled()(ONES).tolist() == [5, 5, 5]
    assert counts.hits == 1
    del targets["cache.mine"]
    with pytest.raises(sx.CompileError, match=r"there is no target 'cache\.mine'"):
        compiled()


@pytest.mark.parametrize("lowering", [False, True])
def test_kernels_for_operations_of_chlo(lowering: bool, folder: Path, counts: cache.Counts) -> None:
    """Their bytecode holds `chlo` and `erf` apart."""
    b = sx.XlaBuilder("error")
    computation = b.build(sx.erf(b.parameter(0, sx.f32[3])))
    plain = sx.compile(computation)(ONES)
    sx.register_composite_kernel("chlo.erf", 0, (lambda ctx, x: [x]) if lowering else (lambda x: x), lowering=lowering)
    try:
        mine = sx.compile(computation)(ONES)
    finally:
        sx.unregister_composite_kernel("chlo.erf", 0)
    assert counts == cache.Counts(misses=1 if lowering else 2, bypassed=int(lowering))
    assert sx.compile(computation)(ONES).tolist() == plain.tolist() != mine.tolist() == ONES.tolist()


class Shrinking(dict[Any, Any]):
    """What collecting garbage does to the targets of programs that are gone, at the worst time."""

    def items(self) -> Any:
        for each in super().items():
            self.pop("cache.gone", None)
            yield each


def test_targets_that_go_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = Shrinking({f"cache.{name}": CustomCallTarget(name, address=1) for name in ("first", "gone", "last")})
    monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)
    assert cache._functions(b"cache.last") == [[["cache.last", True, False]], []]


def test_errors_of_host_calls_name_lines_of_this_program(folder: Path, counts: cache.Counts) -> None:
    def one() -> sx.XlaComputation:
        b = sx.XlaBuilder("feed")
        return b.build(b.infeed(sx.f32[2]))

    def two() -> sx.XlaComputation:
        b = sx.XlaBuilder("feed")
        return b.build(b.infeed(sx.f32[2]))

    sx.compile(one())
    sx.compile(two())
    assert counts.hits == 0
    sx.compile(two())
    assert counts.hits == 1


def test_functions_of_a_user_are_not_known_by_the_bytes(folder: Path, counts: cache.Counts) -> None:
    def look(module: Any) -> None:
        return None

    pipeline = sx.pipeline("cpu").inserting(sx.Step("look", look), after="tensor")
    sx.compile(scaled(), options=sx.CompileOptions(pipeline=pipeline))
    sx.compile(scaled(), options=sx.CompileOptions(rules=[sx.lowering_rule("stablehlo.sine", lambda ctx, x: [x])]))
    with knobs.scoped(time=False, dump=folder.with_name("dump")):
        sx.compile(scaled())
    assert (counts.hits, counts.misses, counts.bypassed) == (0, 0, 3)


def test_shapes_are_kept_one_by_one(folder: Path, counts: cache.Counts) -> None:
    text = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %0 = stablehlo.add %x, %x : tensor<?xf32>
      return %0 : tensor<?xf32>
    }"""
    for _ in range(2):
        executable = sx.compile(text)
        assert executable(ONES).tolist() == [2, 2, 2]
        assert executable(ONES[:1]).tolist() == [2]
    assert counts.hits == 2


def test_errors_are_not_kept(folder: Path) -> None:
    for _ in range(2):
        with pytest.raises(sx.ParseError):
            sx.compile("nonsense")
    with pytest.raises(sx.ParseError, match="cannot be read"):
        sx.compile(Path("/nowhere.mlir"))
    assert not folder.exists()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with knobs.scoped(cache=tmp_path / "file"), pytest.raises(sx.StablexlaError, match="nothing can be cached in"):
        sx.compile(TEXT)


def test_it_stays_below_its_limit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sx.compile(scaled(1.5))
    size = entry(folder).stat().st_size
    os.utime(entry(folder), (1, 1))
    with knobs.scoped(cache_limit=2 * size + size // 2):
        sx.compile(scaled(2.5))
        oldest = cache.entries(folder)[0][0]
        sx.compile(scaled(1.5))  # it is used, and so the newest
        sx.compile(scaled(3.5))
    assert oldest in folder.iterdir()
    assert len(list(folder.iterdir())) == 2
    assert main(["--folder", str(folder)]) == 0
    assert "2 programs" in capsys.readouterr().out


def test_a_large_folder_is_seldom_looked_at() -> None:
    """Once for a 64th of the limit: a listing for each of 100,000 entries would take a second each time."""
    names = [hashlib.sha256(bytes([i % 256, i // 256])).hexdigest() for i in range(20_000)]
    limit, written = 1 << 30, 10_000
    drawn = sum(cache._is_drawn(name, written, limit) for name in names)
    assert 6 <= drawn <= 20  # written 200 MB, of which 12 times 16 MB
    assert all(cache._is_drawn(name, written, 64 * written) for name in names)


def test_the_tool(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sx.compile(scaled())
    (folder / f"bad{cache.SUFFIX}").write_bytes(b"bad")
    (folder / "notes.txt").write_text("not ours")
    (folder / f".bad{cache.SUFFIX}.123.00ff00ff").write_bytes(b"its writer was ended")
    assert main(["--info"]) == 0
    out = capsys.readouterr().out
    assert "scaled(f32[3]) -> (f32[3])" in out
    assert "bad.sxe: damaged, it will be replaced" in out
    assert main(["--clear"]) == 0
    assert "removed 2 programs" in capsys.readouterr().out
    assert [p.name for p in folder.iterdir()] == ["notes.txt"]
    with knobs.scoped(cache=None):
        assert main([]) == 2
    assert "set STABLEXLA_CACHE" in capsys.readouterr().err


def test_filling_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], counts: cache.Counts
) -> None:
    monkeypatch.setenv("STABLEXLA_KERNEL_CACHE", str(tmp_path))
    folder = tmp_path / "library"
    monkeypatch.setenv("STABLEXLA_LIBRARY", str(folder))
    monkeypatch.setattr(early_code, "LIBRARY", made := Library())
    made.store = cache.KeptLibrary()
    assert main(["--fill"]) == 0
    said = capsys.readouterr().out
    assert "sort, f32[40,20]:" in said
    functions = len(list(folder.iterdir()))
    assert said.endswith(f"{functions} entries, {sum(f.stat().st_size for f in folder.iterdir()):,} bytes\n")
    assert functions > 10
    assert not [file for file in tmp_path.iterdir() if file.is_file()]  # no programs
    b = sx.XlaBuilder("product")
    made._files.clear()
    sx.compile(b.build(b.parameter(0, sx.f32[200, 333]) @ b.parameter(1, sx.f32[333, 250])))
    assert len(list(folder.iterdir())) == functions  # it has all that it needs
    assert main(["--clear"]) == 0
    assert f"library: removed {functions} entries" in capsys.readouterr().out
    assert not list(folder.iterdir())
    with knobs.scoped(cache=tmp_path / "named"):  # of programs, which it is not about
        for _ in range(2):
            made._files.clear()
            assert main(["--fill"]) == 0
            assert len(list(folder.iterdir())) == functions
            sx.kernel_cache.clear()
            assert not list(folder.iterdir())
    assert not (tmp_path / "named").exists()
    assert main(["--fill", "--folder", str(tmp_path)]) == 2
    assert "set STABLEXLA_LIBRARY, not --folder" in capsys.readouterr().err
    monkeypatch.setenv("STABLEXLA_LIBRARY", "off")
    assert main(["--fill"]) == 2
    assert "the library is off" in capsys.readouterr().err


def test_the_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABLEXLA_CACHE_LIMIT", "3M")
    assert knobs.cache_limit == 3 << 20
    monkeypatch.setenv("STABLEXLA_CACHE_LIMIT", "much")
    with pytest.raises(sx.StablexlaError, match="STABLEXLA_CACHE_LIMIT=much: it is a number of bytes"):
        _ = knobs.cache_limit


def test_from_many_threads(folder: Path) -> None:
    made: list[Any] = []
    options = sx.CompileOptions(cache=folder)  # a knob that is set in code holds for one thread
    in_threads(lambda _: made.append(sx.compile(scaled(), options=options)), range(4))
    assert [each(ONES).tolist() for each in made] == [[2, 2, 2]] * 4
    assert entry(folder)


PROCESS = """
import sys
import warnings
import numpy as np
import stablexla as sx
from stablexla.compiling import cache
from stablexla.compiling.cache import counts
cache._digest_of_the_package = lambda: "of this test"  # somebody may be at work on a file
for factor in (1.25, 1.5, 1.75):
    b = sx.XlaBuilder("scaled")
    made = sx.compile(b.build(b.parameter(0, sx.f32[3]) * factor))
    assert made(np.ones(3, np.float32)).tolist() == [factor] * 3
print(counts.hits)
"""


def test_from_several_processes_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, "STABLEXLA_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", PROCESS]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.wait(60) for process in started] == [0, 0]
    for process in started:
        assert process.stdout is not None
        process.stdout.close()
    assert len(list(tmp_path.iterdir())) == 3
    last = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert last.stdout == "3\n"


def test_together_with_another_process(folder: Path, counts: cache.Counts) -> None:
    for isolated in (True, False):
        assert sx.compile(scaled(), options=sx.CompileOptions(isolated=isolated))(ONES).tolist() == [2, 2, 2]
    assert (counts.misses, counts.hits) == (1, 1)


# --- the cache that is on by default ----------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, with the cache on."""
    monkeypatch.delenv("STABLEXLA_KERNEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_it_is_on_by_default(home: Path) -> None:
    first, second = sx.compile(scaled()), sx.compile(scaled())
    assert second(ONES).tolist() == first(ONES).tolist() == [2, 2, 2]
    found = sx.kernel_cache.stats()
    assert (found.folder, found.hits, found.misses, found.entries) == (home / "stablexla", 1, 1, 1)
    assert found.bytes == entry(home / "stablexla").stat().st_size
    assert sx.kernel_cache.clear() == 1
    assert sx.kernel_cache.stats().entries == 0
    assert first(ONES).tolist() == [2, 2, 2]


def test_folder_and_files_are_the_users_own(home: Path) -> None:
    before = os.umask(0)
    try:
        sx.compile(scaled())
    finally:
        os.umask(before)
    assert (home / "stablexla").stat().st_mode & 0o777 == 0o700
    assert entry(home / "stablexla").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("word", ["off", "0"])
def test_the_folder_is_no_switch(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABLEXLA_CACHE", word)
    with pytest.raises(sx.StablexlaError, match=f"STABLEXLA_CACHE={word}: it is a folder; STABLEXLA_KERNEL_CACHE=off"):
        sx.compile(scaled())


def test_turned_off_or_elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch, counts: cache.Counts) -> None:
    monkeypatch.setenv("STABLEXLA_KERNEL_CACHE", "off")
    sx.compile(scaled())
    assert counts == cache.Counts()
    assert list(home.iterdir()) == []
    assert sx.kernel_cache.stats().folder is None
    assert sx.kernel_cache.clear() == 0
    monkeypatch.setenv("STABLEXLA_KERNEL_CACHE", str(home / "other"))
    sx.compile(scaled())
    assert entry(home / "other")
    with knobs.scoped(cache=home / "named"):
        sx.compile(scaled(3))
    assert entry(home / "named")
    assert entry(home / "other")


def test_relative_folders_and_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache_folder() == tmp_path / ".cache"
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert user_cache_folder() is None
    monkeypatch.delenv("STABLEXLA_KERNEL_CACHE")
    assert sx.compile(scaled())(ONES).tolist() == [2, 2, 2]


def _is_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_text("in the way")


def _others_may_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    folder.chmod(0o775)


def _belongs_to_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)


@pytest.mark.parametrize("make", [_is_a_file, _others_may_write, _belongs_to_another])
def test_a_folder_that_cannot_be_trusted_is_not_there(
    make: Callable[[Path, pytest.MonkeyPatch], None], home: Path, monkeypatch: pytest.MonkeyPatch, counts: cache.Counts
) -> None:
    make(home / "stablexla", monkeypatch)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            assert sx.compile(scaled())(ONES).tolist() == [2, 2, 2]
    assert counts == cache.Counts()
    assert sx.kernel_cache.stats().folder is None
    said = [str(each.message) for each in seen]
    assert len(said) == (make is not _is_a_file)  # once
    assert all("belongs to another user, or others may write it" in text for text in said)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_folder_of_another_user(home: Path, counts: cache.Counts) -> None:
    (home / "stablexla").mkdir(mode=0o700)
    os.chown(home / "stablexla", 65534, 65534)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        sx.compile(scaled())
    assert counts == cache.Counts()
    assert list((home / "stablexla").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_entry_of_another_user(home: Path, counts: cache.Counts) -> None:
    sx.compile(scaled())
    os.chown(entry(home / "stablexla"), 65534, 65534)
    assert sx.compile(scaled())(ONES).tolist() == [2, 2, 2]
    assert (counts.misses, counts.hits) == (2, 0)
    assert entry(home / "stablexla").stat().st_uid == 0


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_named_folder_that_anybody_may_write(mode: int, folder: Path, counts: cache.Counts) -> None:
    """Such as /tmp: who plants an entry there has its machine code run."""
    sx.compile(scaled())
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match="others may write it; chmod 700"):
        sx.compile(scaled())
    assert sx.compile(scaled())(ONES).tolist() == [2, 2, 2]
    assert (counts.misses, counts.hits) == (3, 0)
    folder.chmod(0o775)  # a group that works together
    sx.compile(scaled())
    assert counts.hits == 1


@pytest.mark.parametrize("what", ["a link", "a pipe", "a folder", "a file that anybody may write"])
def test_what_is_planted_in_a_named_folder(what: str, folder: Path, counts: cache.Counts) -> None:
    sx.compile(scaled())
    path, elsewhere = entry(folder), folder.with_name("elsewhere")
    path.replace(elsewhere)
    before = elsewhere.read_bytes()
    if what == "a link":
        path.symlink_to(elsewhere)
    elif what == "a pipe":
        os.mkfifo(path)
    elif what == "a folder":
        path.mkdir()
    else:
        path.write_bytes(before)
        path.chmod(0o666)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a folder cannot be replaced
        assert sx.compile(scaled())(ONES).tolist() == [2, 2, 2]
    assert (counts.misses, counts.hits) == (2, 0)
    assert elsewhere.read_bytes() == before
    assert path.is_dir() or (path.is_file() and not path.is_symlink())


def test_a_folder_that_is_exchanged_meanwhile(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was looked at is what is used: the folder's descriptor, not its path."""
    sx.compile(scaled())
    path, planted = home / "stablexla", home / "planted"
    planted.mkdir(mode=0o777)
    opened, exchanged = os.open, list[str]()

    def open_after_an_exchange(name: Any, *given: Any, **keywords: Any) -> int:
        number = opened(name, *given, **keywords)
        if str(name) == str(path) and not exchanged:
            path.rename(home / "moved")
            planted.rename(path)
            exchanged.append("once")
        return number

    folder = cache.Folder(path, is_private=True)
    monkeypatch.setattr(os, "open", open_after_an_exchange)
    folder.write(path / "a.sxe", {}, {})
    assert exchanged
    assert list(path.iterdir()) == []
    assert (home / "moved" / "a.sxe").stat().st_mode & 0o777 == 0o600


@pytest.mark.filterwarnings("error")
def test_a_disk_that_is_full(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(container, "write", full)
    assert sx.compile(scaled())(ONES).tolist() == [2, 2, 2]


@pytest.mark.parametrize("how", ["others may write", "a link", "damaged", "cut short"])
def test_an_entry_that_cannot_be_trusted_is_replaced(how: str, home: Path, counts: cache.Counts) -> None:
    sx.compile(scaled())
    path = entry(home / "stablexla")
    if how == "others may write":
        path.chmod(0o666)
    elif how == "a link":
        path.replace(home / "elsewhere")
        path.symlink_to(home / "elsewhere")
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-100] if how == "cut short" else data[:-200] + b"x" + data[-199:])
    assert sx.compile(scaled())(ONES).tolist() == [2, 2, 2]
    assert (counts.misses, counts.hits) == (2, 0)
    assert sx.compile(scaled())(ONES).tolist() == [2, 2, 2]
    assert counts.hits == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert not path.is_symlink()


def test_big_constants_are_not_copied_to_the_disk(home: Path, counts: cache.Counts) -> None:
    b = sx.XlaBuilder("big")
    x = b.parameter(0, sx.f32[3 << 20])
    sx.compile(b.build(x + b.constant(np.arange(3 << 20, dtype=np.float32))))
    assert counts == cache.Counts()


def test_an_emitter_of_this_process(home: Path, counts: cache.Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    from stablexla.targets.cpu.emitters import EMITTERS

    sx.compile(scaled())
    monkeypatch.setitem(EMITTERS, "of this test", [lambda kernel, target: None])
    sx.compile(scaled())
    assert (counts.misses, counts.hits, counts.bypassed) == (1, 0, 1)


def test_it_stays_small(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for factor in range(2, 6):
        sx.compile(scaled(factor))
    size = sx.kernel_cache.stats().bytes // 4
    monkeypatch.setenv("STABLEXLA_CACHE_LIMIT", str(3 * size))
    sx.compile(scaled(6))
    assert sx.kernel_cache.stats().bytes <= 3 * size


def test_a_new_process_finds_it(home: Path) -> None:
    command, environment = [sys.executable, "-c", PROCESS], dict(os.environ)
    assert [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
        for _ in range(2)
    ] == ["0\n", "3\n"]


HIT = """
import sys
import warnings
import numpy as np
import stablexla as sx
b = sx.XlaBuilder("scaled")
made = sx.compile(b.build(b.parameter(0, sx.f32[3]) * 1.25))
assert made(np.ones(3, np.float32)).tolist() == [1.25] * 3
named = ("stablexla.targets.cpu.pipeline", "stablexla.dialects.views.linalg", "mlir.ir")
imported = [name in sys.modules for name in named]
print(sx.kernel_cache.stats().hits, *imported)
"""


def test_a_hit_imports_neither_passes_nor_emitters_nor_upstreams_mlir(home: Path) -> None:
    command = [sys.executable, "-c", HIT]
    out = [
        subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=True, timeout=60).stdout
        for _ in range(2)
    ]
    assert out == ["0 True True True\n", "1 False False False\n"]


HIT_OF_TEXT = f"""
import sys
from pathlib import Path
import numpy as np
import stablexla as sx
program = {TEXT!r}
Path("double.mlir").write_text(program)
for given in (program, program.encode(), Path("double.mlir")):
    made = sx.compile(given, options=sx.CompileOptions(num_threads=1))
    assert made(np.array([1.5, 2.5], np.float32)).tolist() == [1.5, 2.5]
print(sx.kernel_cache.stats().hits, {{"jaxlib", "mlir"}} & sys.modules.keys() or "no MLIR")
assert "func.func" in made.ir("source") and "kernels" in repr(made.explain()).lower()
"""


def test_a_hit_by_text_bytes_or_a_file_imports_no_mlir(home: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HIT_OF_TEXT]
    out = [
        subprocess.run(command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=60)
        for _ in range(2)
    ]
    assert [each.stderr for each in out] == ["", ""]
    assert out[0].stdout.startswith("0 {")
    assert out[1].stdout == "3 no MLIR\n"
