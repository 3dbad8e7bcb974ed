"""On-disk cache of compiled programs, keyed by everything that their code depends on.

An entry is a saved program (`saved.py`). Any number of processes may use one folder at once: entries are written
atomically, and a damaged or incompatible one is compiled again and replaced. A folder that the user names
(`CompileOptions.cache`) must work, and may belong to several users. The one by default must be the user's own, and
where it cannot be used it is simply not there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stablexla.compiling.program_bytes import bytes_of, contents_of_file, is_in_memory, mentions
from stablexla.compiling.request import Request, module_of
from stablexla.dialects import custom_calls
from stablexla.dialects.builds.installed import installed_version
from stablexla.dialects.caller import warn
from stablexla.dialects.copying import copy_of_module
from stablexla.dialects.errors import LoadError, StablexlaError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import in_scope
from stablexla.executable.executable import Executable
from stablexla.executable.saved import executable_of
from stablexla.executable.saving import contents
from stablexla.targets.codegen.machine import host_target
from stablexla.targets.kinds import PACKAGE, kind_of, target_names
from stablexla.targets.llvm.code_llvm import key_of_second_llvm
from stablexla.targets.llvm.library import LIBRARY
from stablexla.targets.pipeline.knobs import knobs, user_cache_folder
from stablexla.targets.pipeline.options import MAIN, CompileOptions
from stablexla.targets.registry import find_target, pipeline_of
from stablexla.targets.runtime import container, library_path, processor
from stablexla.version import VERSION

# A program that is in the cache is found without an MLIR: what needs one is imported where it is used.
if TYPE_CHECKING:
    import jaxlib.mlir.ir as ir

    from stablexla.dialects.composites import CompositeKernel

SUFFIX = ".sxe"
_NO_PART_OF_THE_CODE = ("cache", "isolated", "time_limit", "pipeline", "rules", "schedules")
_BUILDS = ("jaxlib", "xtc-mlir-python-bindings")


@dataclass
class Counts:
    """Cache hits and misses of this process.

    Attributes:
        hits: how many were found.
        misses: how many were compiled and stored.
        bypassed: how many were compiled without looking, since functions of this process take part in them, or
            programs for the target cannot be saved.
    """

    hits: int = 0
    misses: int = 0
    bypassed: int = 0


counts = Counts()


@dataclass(frozen=True)
class Folder:
    """A folder of entries, which are machine code: it is only used where nobody else can put any there.

    Attributes:
        path: the folder.
        is_private: nobody named it for this program: it and its files are the user's own alone, and errors are silent.
            One that was named may be shared with a group.
    """

    path: Path
    is_private: bool = False

    @staticmethod
    def by_default() -> Folder | None:
        """Return the folder that is used when none is named; None where there is none that can be trusted."""
        return Folder._of_user(knobs.kernel_cache, "stablexla")

    @staticmethod
    def of_library() -> Folder | None:
        """Return the folder of the library's code, which is the user's own, too."""
        return Folder._of_user(knobs.library, "stablexla/library")

    @staticmethod
    def _of_user(chosen: Path | str | None, name: str) -> Folder | None:
        base = user_cache_folder()
        if chosen == "off" or (chosen is None and base is None):
            return None
        path = base / name if chosen is None and base is not None else Path(str(chosen)).expanduser()
        made = Folder(path, is_private=True)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with made._opened():
                return made
        except (OSError, LoadError):
            return None

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Provide a descriptor of the folder, which stays this folder whatever its path leads to by now.

        Raises:
            LoadError: others may write it; that is warned of, once.
            OSError: it cannot be opened.
        """
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = os.fstat(folder)
            if not (_is_own(found) if self.is_private else not found.st_mode & stat.S_IWOTH):
                _warn_of(self.path)
                raise LoadError(f"{self.path}: others may write it")
            yield folder
        finally:
            os.close(folder)

    def read(self, path: Path) -> container.Container:
        """Read and validate an entry. Links are not followed.

        Raises:
            LoadError: there is none, it is damaged, or it might be somebody else's.
        """
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with self._opened() as folder, open(os.open(path.name, flags, dir_fd=folder), "rb") as file:
                found = os.fstat(file.fileno())
                trusted = _is_own(found) if self.is_private else not found.st_mode & stat.S_IWOTH
                if not stat.S_ISREG(found.st_mode) or not trusted:
                    raise LoadError(f"{path}: it is no file, or others may write it")
                return container.parse(container.contents(file), str(path))
        except OSError as error:
            raise LoadError(f"{path}: cannot be read: {error.strerror}") from None

    def write(
        self,
        path: Path,
        description: dict[str, Any],
        sections: Mapping[str, container.Part],
        others: Sequence[Path] = (),
    ) -> None:
        """Write an entry, and evict others when the folder becomes too large.

        Args:
            others: further paths of the entry in the folder; each counts as a file.

        Raises:
            StablexlaError: a folder that was named cannot be created.
        """
        try:
            self.path.mkdir(mode=0o700 if self.is_private else 0o777, parents=True, exist_ok=True)
        except OSError as error:
            if self.is_private:
                return
            raise StablexlaError(f"nothing can be cached in {self.path}: {error.strerror}") from None
        try:
            with self._opened() as folder:
                mode = 0o600 if self.is_private else 0o664
                container.write(Path(path.name), description, sections, mode, folder=folder)
                written = os.stat(path.name, dir_fd=folder).st_size * (1 + len(others))
                for other in others:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(other.name, dir_fd=folder)
                    try:
                        os.link(path.name, other.name, src_dir_fd=folder, dst_dir_fd=folder)
                    except FileExistsError:  # another process has it
                        continue
                    except OSError:  # file systems without links
                        container.write(Path(other.name), description, sections, mode, folder=folder)
            if _is_drawn(path.name, written, knobs.cache_limit):
                limit(self.path, knobs.cache_limit)
        except LoadError:
            return
        except OSError as error:
            if not self.is_private:
                text = f"{self.path}: the compiled program is not cached: {error.strerror}"
                warn(text, RuntimeWarning)


class KeptLibrary:
    """The `Store` of the library in the user's cache folder, and of this version for this machine."""

    def get(self, digest: str) -> bytes | None:
        """Return an entry, or None."""
        folder = Folder.of_library()
        if folder is None:
            return None
        path = self._path(folder, digest)
        try:
            found = bytes(folder.read(path).sections["code"])
        except (LoadError, KeyError):
            return None
        _note_use(path)
        return found

    def put(self, digests: Sequence[str], entry: bytes) -> None:
        """Keep an entry, where there is a folder."""
        folder = Folder.of_library()
        if folder is not None:
            path, *others = (self._path(folder, digest) for digest in digests)
            folder.write(path, {}, {"code": [entry]}, others)

    def _path(self, folder: Folder, digest: str) -> Path:
        return folder.path / f"{_digest([digest, *surroundings()], b'')}{SUFFIX}"


LIBRARY.store = KeptLibrary()


def _is_own(found: os.stat_result) -> bool:
    """Return whether a file or folder is this user's, and nobody else may write it."""
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@functools.cache
def _warn_of(path: Path) -> None:
    """Warn, once in a process, of a folder that is not used."""
    text = f"{path}: programs are not cached there: it belongs to another user, or others may write it"
    warn(f"{text}; chmod 700, or name another folder by STABLEXLA_CACHE", RuntimeWarning)


def compile_cached(compile_now: Callable[[Request], Executable], folder: Folder, request: Request) -> Executable:
    """Return the cached executable, or compile and store it.

    Raises:
        StablexlaError: the folder cannot be created; and the errors of compiling.
    """
    program, entry, target, num_replicas, num_partitions, options = request
    steps = _steps(target, options)
    kind, data = bytes_of(program) if steps is not None else ({}, b"")
    data = data or contents_of_file(kind)
    if steps is None or not _is_known_by_its_bytes(data):
        counts.bypassed += 1
        return compile_now(request)
    located, places = data, hashlib.sha256(data).hexdigest()
    is_module = is_in_memory(program)
    if is_module:
        data = _without_locations(program)
    how = [entry, target, num_replicas, num_partitions, steps, _option_texts(options)]
    path = folder.path / f"{_digest([kind, _functions(data), how, *surroundings()], data)}{SUFFIX}"
    found = _read(folder, path, places)
    if found is not None:
        counts.hits += 1
        if is_module:
            found._source = _source_of(program, located, entry, (found.num_replicas, found.num_partitions))
    else:
        counts.misses += 1
        found = compile_now(request)
        _store(folder, found, path, places)
    found._compile_options = options
    return found


def _source_of(program: Any, data: bytes, entry: str, counts: tuple[int, int]) -> ir.Module | bytes:
    """Return what was compiled of a program in memory, with its own locations; its bytes, where that is all of it."""
    attributes = module_of(program).operation.attributes
    is_plain = not any(f"mhlo.num_{what}" in attributes for what in ("replicas", "partitions"))
    if entry == MAIN and counts == (1, 1) and is_plain:
        return data
    from stablexla.compiling.core import contexts_for
    from stablexla.compiling.device_counts import with_counts
    from stablexla.interop.loading import load

    with contexts_for(program):
        return with_counts(load(program, entry=entry), counts)


def _read(folder: Folder, path: Path, places: str) -> Executable | None:
    """Return the entry, or None when there is no valid one."""
    try:
        file = folder.read(path)
        # Errors of host calls and of collectives name lines of the user's program, which the code then holds.
        function = file.description["function"]
        if (function["host_calls"] is not None or function["collectives"]) and file.description["places"] != places:
            return None
        found = executable_of(file, str(path))
    except (LoadError, KeyError, TypeError):
        return None
    _note_use(path)
    return found


def _note_use(path: Path) -> None:
    """Note that an entry was used: those that were not are evicted first."""
    with contextlib.suppress(OSError):
        # The clock of file times is coarse, and may not have advanced since the last entry was stored.
        now = time.time_ns()
        os.utime(path, ns=(now, now), follow_symlinks=False)


def _store(folder: Folder, executable: Executable, path: Path, places: str) -> None:
    if "_function" not in vars(executable):  # it waits for the shapes of arguments; each compilation is an entry
        return
    description, sections = contents(executable)
    folder.write(path, {**description, "places": places}, sections)


# ---- keys ------------------------------------------------------------------------------------------------------------


def _digest(values: list[Any], data: bytes) -> str:
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    digest.update(data)
    return digest.hexdigest()


def _steps(target: str, options: CompileOptions) -> str | None:
    """Return the text of the pipeline; None where functions or files take part in it, or nothing can be saved.

    Where a target's own pipeline is known by the options and the package, a hit imports neither passes nor dialects.
    """
    is_own = options.pipeline is None and not (options.all_rules or in_scope() or knobs.choices)
    if is_own and kind_of(target).is_known_by_options:
        return ""
    found = find_target(target)
    pipeline = pipeline_of(found, options)
    if not found.is_saved or pipeline.rules:
        return None
    if any(e.is_python and e.bound()[0].is_users for step in pipeline for e in step.elements):
        return None
    if any("stablexla-transform{" in step.passes for step in pipeline):  # a file's contents may change
        return None
    return str(pipeline)


def _is_known_by_its_bytes(data: bytes) -> bool:
    """Return whether neither a user's function nor a knob affects the compilation."""
    if not data or knobs.dump or knobs.override or knobs.print_after_all or knobs.time or knobs.guard:
        return False
    if not all(_is_ours(function) for function in _rules_and_emitters()):
        return False
    if custom_calls.OF_THIS_PROCESS.encode() in data:
        return False
    kernels = _composite_kernels()
    return all(_is_called(kernel) or not mentions(key[0], data) for key, kernel in kernels.items())


def _rules_and_emitters() -> Iterator[Any]:
    """Return all lowering rules and emitters that are registered, as far as their modules are imported."""
    yield from (each.rule for each in _registered("stablexla.lowering.support.registry", "RULES").values())
    for name in target_names():
        for registered in _registered(f"{PACKAGE}.{name}.emitters", "EMITTERS").values():
            yield from registered


def _composite_kernels() -> dict[Any, CompositeKernel]:
    """Return the kernels of composite operations that were registered."""
    return _registered("stablexla.dialects.composites", "REGISTERED")


def _registered(module: str, name: str) -> dict[Any, Any]:
    """Return a copy of a registry, since collecting garbage may change it; nobody has used one that is not imported."""
    return dict(getattr(sys.modules.get(module), name, {}))


def _is_ours(function: Any) -> bool:
    """Return whether a function is of this package, whose files are part of the key."""
    while isinstance(function, partial):
        function = function.func
    return str(function.__module__).startswith("stablexla.")


def _is_called(kernel: CompositeKernel) -> bool:
    """Return whether the code calls a kernel by name, whatever its function is."""
    from stablexla.compiling.composite_kernels import accept_all
    from stablexla.lowering.rules.calls.composites import call_of_host

    is_called = isinstance(kernel.rule, partial) and kernel.rule.func is call_of_host
    return is_called and kernel.accepts is accept_all


def _functions(data: bytes) -> list[Any]:
    """Return the registered functions that the program may call, with the kind of each, by name."""
    targets, kernels = custom_calls.TARGETS.copy(), _composite_kernels()  # collecting garbage may change them
    calls = [[n, bool(t.address), bool(t.stages)] for n, t in targets.items() if mentions(n, data)]
    return [sorted(calls), sorted(list(key) for key in kernels if mentions(key[0], data))]


def _without_locations(program: Any) -> bytes:
    """Return a program's bytecode that does not change when a line is added above the code that builds it.

    An executable from the cache gets the locations of the program at hand; the key need not have them.
    """
    import jaxlib.mlir.passmanager as passmanager

    from stablexla.interop.encodings.formats import to_bytecode

    module = module_of(program)
    names = [str(argument.location) for argument in _arguments(module)] if module is program else []
    copy = copy_of_module(module)
    passmanager.PassManager.parse("builtin.module(strip-debuginfo)", module.context).run(copy.operation)
    return to_bytecode(copy) + json.dumps(names).encode()


def _arguments(module: ir.Module) -> Iterator[Any]:
    """Return the parameters of all functions; their locations hold their names."""
    for op in module.body.operations:
        for region in op.operation.regions:
            for block in list(region.blocks)[:1]:
                yield from block.arguments


def _option_texts(options: CompileOptions) -> list[str]:
    return [f"{f.name}={getattr(options, f.name)!r}" for f in fields(options) if f.name not in _NO_PART_OF_THE_CODE]


def surroundings() -> tuple[Any, ...]:
    """Return the rest of the key: the compiler and the machine."""
    return *_surroundings(), key_of_second_llvm()


@functools.cache
def _surroundings() -> tuple[Any, ...]:
    builds = [installed_version(name) for name in _BUILDS]
    machine = [processor.machine(), sorted(processor.features()), repr(host_target())]
    return VERSION, container.FORMAT, builds, machine, _digest_of_the_package()


def _digest_of_the_package() -> str:
    """Return a digest of the names, sizes and times of this package's files: it may be under development."""
    import stablexla.dialects
    import stablexla.lowering
    import stablexla.targets

    library = os.stat(library_path())
    digest = hashlib.sha256(f"{library.st_size} {library.st_mtime_ns}".encode())
    packages = (stablexla, stablexla.dialects, stablexla.lowering, stablexla.targets)
    roots = {os.path.dirname(str(package.__file__)) for package in packages}
    for root in sorted(roots):
        if os.path.dirname(root) not in roots:  # layers lie in the package's folder, but for an editable installation
            digest.update("".join(sorted(_files_in(root, ""))).encode())
    return digest.hexdigest()


def _files_in(folder: str, prefix: str) -> Iterator[str]:
    """Yield the path, size and time of each Python file in a folder."""
    with os.scandir(folder) as listing:
        for entry in listing:
            name = entry.name
            if name.endswith(".py"):
                found = entry.stat()
                yield f"{prefix}{name} {found.st_size} {found.st_mtime_ns}\0"
            elif "." not in name and name != "__pycache__" and entry.is_dir():
                yield from _files_in(entry.path, f"{prefix}{name}/")


# ---- the folder ------------------------------------------------------------------------------------------------------


def entries(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """Return the entries of a folder, least recently used first."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        for entry in listing:
            if entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):  # another process removed it
                    found.append((Path(entry.path), entry.stat(follow_symlinks=False)))
    return sorted(found, key=lambda each: each[1].st_mtime_ns)


def remove_unfinished(folder: Path) -> None:
    """Remove files of writers that were killed; a writer at work just then warns, and stores nothing."""
    for path in folder.glob(f".*{SUFFIX}.*"):
        with contextlib.suppress(OSError):
            path.unlink()


SHARE = 64
"""A folder that is full is emptied by this part of its limit; so much is written, on average, between two looks."""


def _is_drawn(name: str, written: int, size: int) -> bool:
    """Return whether the folder is looked at after an entry of that name, with a chance in proportion to its bytes.

    A folder of 2 GiB can have 100,000 entries, which take a second to list: too much for each program. The digest of
    the name is as good as drawn, and no count has to be kept between processes.
    """
    drawn = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
    return drawn * size < (written * SHARE) << 32


def limit(folder: Path, size: int) -> int:
    """Evict the least recently used entries of a folder that has more than `size` bytes; return their number."""
    found = entries(folder)
    total, removed = sum(each.st_size for _, each in found), 0
    if total <= size:
        return 0
    for path, each in found:
        if total <= size - max(size, 0) // SHARE:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            removed += 1
        total -= each.st_size
    return removed
