"""Saved programs: an executable is loaded from a file, without compiling. `saving.py` writes it.

The format of machine code is in `targets/runtime/saved_code.py`; here are the interface, the source and the pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stablexla.builder.tuple_tree import TupleTree
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.errors import CompileError, LoadError, StablexlaError
from stablexla.executable.executable import Executable
from stablexla.executable.memory import limit_of_environment
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.runtime import container
from stablexla.targets.runtime.saved_code import restore
from stablexla.targets.signature.array_sharding import ArraySharding, Shardings
from stablexla.targets.signature.interface import Signature
from stablexla.version import VERSION


def load_executable(path: str | Path, *, key: bytes | None = None) -> Executable:
    """Load an executable that `Executable.save` wrote. Nothing is compiled.

    The file holds machine code, which may do all that this process may. Its checksums find damage, but whoever alters
    the file can make them right again: without a key, load only files that you trust. It is read by the version of
    stablexla that wrote it, on a machine whose processor has all features that the code uses. Custom calls are bound to
    the functions registered under their names when it is loaded.

    Args:
        path: the file.
        key: the secret bytes that the file was signed with. The signature, an HMAC-SHA256 of all of the file, is
            verified before anything in the file is looked at.

    Returns:
        An executable that does all that the saved one did; but `ir`, `kernels`, `explain`, `compare` and `profile`
        raise CompileError where rules or passes that were given as functions took part, which no file holds. Its
        `origin` and its `repr` say whether it was signed.

    Raises:
        LoadError: no such file; it is damaged; it is not signed with the key; another version wrote it; it was
            compiled for another processor; or a custom call of it is not registered.
        StablexlaError: that is no key: it is bytes, at least 16 of them.

    >>> import tempfile, pathlib
    >>> b = sx.XlaBuilder("double")
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "double.sxe"
    >>> sx.compile(b.build(b.parameter(0, sx.f32[2]) * 2)).save(file)
    >>> sx.load_executable(file)(np.array([1, 2], np.float32))
    array([2., 4.], dtype=float32)
    """
    if not isinstance(path, (str, os.PathLike)):
        raise LoadError(f"a saved program is loaded from a file, whose path this is not: {told(path)}")
    path = Path(path)
    executable = executable_of(container.read(path, key), str(path))
    executable.origin = f"{path.name}, {'not authenticated' if key is None else 'signed'}"
    return executable


def executable_of(file: container.Container, name: str, pipeline: Pipeline | None = None) -> Executable:
    """Return the executable in a file of that name.

    Args:
        pipeline: what it was compiled with, with functions that no file holds, where this process knows.

    Raises:
        LoadError: as `load_executable`.
    """
    limit_of_environment()
    _ = knobs.num_threads  # a wrong number in the environment is no fault of the file
    description = file.description
    if description.get("stablexla") != VERSION:
        raise LoadError(
            f"{name}: stablexla {description.get('stablexla')} wrote the program, and this is {VERSION}",
            hint="compile it again and save it",
        )
    try:
        return _LoadedExecutable(description, file.sections, pipeline)
    except LoadError as error:
        raise LoadError(f"{name}: {error.summary}", hint=error.hint) from None
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, StablexlaError) as error:
        # the checksums are right, so somebody wrote it by hand
        raise LoadError(f"{name}: what it says does not hold together: {error!r}") from error


class _LoadedExecutable(Executable):
    """An executable of a file, whose functions in Python may be lost."""

    def __init__(
        self, description: Mapping[str, Any], sections: Mapping[str, memoryview], pipeline: Pipeline | None
    ) -> None:
        signature = Signature.of_plain(description)
        interface = signature.name, signature.parameter_specs(), signature.result_specs()
        function = restore(*interface, description["function"], sections)
        if pipeline is not None and str(pipeline) != description["pipeline"]:
            pipeline = None
        self._saved_digest = bytes.fromhex(description["digest"])
        self.lost_functions = pipeline is None and bool(description["has_functions"])
        super().__init__(
            bytes(sections["source"]),
            signature,
            function,
            pipeline or Pipeline.parse(description["pipeline"]),
            target=description["target"],
            num_replicas=description["num_replicas"],
            num_partitions=description["num_partitions"],
            options=CompileOptions(**description["options"]),
            tree=None if description["tree"] is None else TupleTree.parse(*description["tree"]),
            shardings=_shardings(description["shardings"]),
        )

    def _digest(self) -> bytes:
        return self._saved_digest

    def _pipeline_again(self) -> Pipeline:
        if self.lost_functions:
            raise CompileError(
                f"{self.name}: rules or passes that were given as functions made this program; its file lacks them",
                hint="compile it again and ask that executable; what the loaded one computes is as it was saved",
            )
        return self.pipeline


def _shardings(sides: Sequence[Any]) -> Shardings | None:
    if not sides:
        return None
    inputs, outputs = (tuple(ArraySharding.of_plain(*array) for array in side) for side in sides)
    return inputs, outputs
