"""Isolated loading of `mlir`'s extension modules with libraries of their own, beside other distributions of MLIR.

Upstream's build calls the libraries of its bindings the same in every distribution, and the dynamic linker takes the
first one of a name for all: IREE's modules would get those of `mlir`, or the other way round. Here the libraries and
the modules that are linked with them are loaded from copies in memory in which they have other names (decision 0031).
TensorFlow shows the symbols of its MLIR and LLVM to all libraries that are loaded later: where it is installed, these
look their symbols up in themselves first.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from mmap import mmap
from pathlib import Path
from types import ModuleType

from stablexla.dialects.builds.elf_names import rename_libraries
from stablexla.dialects.errors import StablexlaError
from stablexla.dialects.system import IS_MACOS, loaded_files

# In the order in which they are linked with each other.
RENAMED = {
    b"libnanobind-mlir.so": b"libnanobind-sxla.so",
    b"libMLIRPythonSupport-mlir.so": b"libMLIRPythonSupport-sxla.so",
}
# Too large to copy, 136 and 202 MB; IREE and jaxlib have others in their place, of other names.
SHARED = ("libLLVM.so", "libMLIRPythonCAPI.so")
# nanobind keeps the types that it bound in a dictionary of the interpreter, under a key that is made by this format:
# two builds of one version of nanobind would take each other's classes for their own.
_KEY, _OWN_KEY = b"__nb_internals_%s_%s__\0", b"__sx_internals_%s_%s__\0"

_serial = itertools.count(1)
_loaded: list[ctypes.CDLL] = []


def deep_binding() -> int:
    """Return the flag for `dlopen` of a library with MLIR or LLVM: `RTLD_DEEPBIND` where TensorFlow may be loaded.

    Not under a sanitizer, which refuses it, nor on macOS, which looks symbols up in the library that has them.
    """
    if IS_MACOS or ("tensorflow" not in sys.modules and PathFinder.find_spec("tensorflow") is None):
        return 0
    process = ctypes.CDLL(None)
    return 0 if any(hasattr(process, f"__{name}_init") for name in ("asan", "tsan")) else os.RTLD_DEEPBIND


class LibraryConflictError(StablexlaError, ImportError):
    """Another package's library is in the process under the name of one that `mlir` needs."""


def find_private_spec(
    name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
) -> ModuleSpec | None:
    """Find a module of `mlir._mlir_libs` like Python does, and have it loaded from a copy if it is an extension.

    None where there is no such module, the others were loaded before by somebody else, or the system is macOS, whose
    linker takes libraries by their paths.
    """
    if IS_MACOS or ("mlir._mlir_libs._mlir" in sys.modules and not _loaded):
        return None
    spec = PathFinder.find_spec(name, path, target)
    if spec is not None and spec.origin and isinstance(spec.loader, ExtensionFileLoader):
        spec.loader = _Loader(name, spec.origin)
    return spec


class _Loader(ExtensionFileLoader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        flags = sys.getdlopenflags()
        sys.setdlopenflags(flags | deep_binding())
        try:
            return self._create(spec, Path(self.path))
        finally:
            sys.setdlopenflags(flags)

    def _create(self, spec: ModuleSpec, path: Path) -> ModuleType:
        try:
            if not _load_libraries(path.parent):
                return super().create_module(spec)
            with _renamed_copy(path) as copy:
                return super().create_module(ModuleSpec(spec.name, self, origin=copy))
        except OSError:  # copies in memory may not be executed here: the files, if their names are free
            _check_names(path.parent, [*SHARED, *(name.decode() for name in RENAMED)])
            return super().create_module(spec)


def _load_libraries(folder: Path) -> bool:
    """Load the libraries once; False where there are none, as in builds that link them into the modules.

    It takes no lock: `mlir._mlir_libs` imports the first extension module while it is imported itself.
    """
    if _loaded:
        return True
    if not all((folder / name.decode()).exists() for name in RENAMED):
        return False
    _check_names(folder, SHARED)
    # Functions are bound when they are called: a process calls few of 23,000, and is 10 ms sooner.
    libraries = [ctypes.CDLL(str(folder / "libMLIRPythonCAPI.so"), os.RTLD_LAZY | deep_binding())]
    for name in RENAMED:
        with _renamed_copy(folder / name.decode()) as copy:
            libraries.append(ctypes.CDLL(copy, os.RTLD_NOW | deep_binding()))
    _loaded.extend(libraries)
    return True


@contextmanager
def _renamed_copy(path: Path) -> Iterator[str]:
    """Yield the path of a copy in memory, open meanwhile, that has, and is linked with, the other names."""
    fd = os.memfd_create(path.name, os.MFD_CLOEXEC)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while os.sendfile(fd, file.fileno(), None, size):
                pass
        with mmap(fd, size) as image:
            rename_libraries(image, RENAMED)
            if path.name.encode() in RENAMED and (key := image.find(_KEY)) >= 0:
                image[key : key + len(_KEY)] = _OWN_KEY
        # A path for each: the linker takes a library for loaded by its path, and numbers of files come again.
        yield f"/proc/self/fd{'/' * next(_serial)}{fd}"
    finally:
        os.close(fd)


def _check_names(folder: Path, names: Sequence[str]) -> None:
    """Refuse libraries of these names that are in the process and are not those of the bindings in `folder`."""
    own = {place.resolve() for place in (folder, folder.parent / "lib", folder.parent.parent / "llvm" / "lib")}
    foreign = [path for path in _mapped_files(names) if path.parent.resolve() not in own]
    if foreign:
        raise LibraryConflictError(
            "mlir cannot be loaded: another package has loaded libraries of the same names",
            operands={path.name: f"{path}, of {_package_of(path)}" for path in foreign},
            hint="use the two in processes of their own; importing stablexla's first leaves the other one without",
        )


def _mapped_files(names: Sequence[str]) -> list[Path]:
    return [Path(file) for file in loaded_files() if Path(file).name in names]


def _package_of(file: Path) -> str:
    """Return the installed package that `file` belongs to."""
    from importlib import metadata  # in the error alone: 20 ms

    for package in metadata.distributions():
        for part in package.files or ():
            if part.name == file.name and Path(str(part.locate())) == file:
                return f"{package.name} {package.version}"
    return "no installed package"
