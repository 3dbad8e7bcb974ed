"""Saving programs: an executable is written with its machine code. `saved.py` loads it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stablexla.dialects.custom_calls import OF_THIS_PROCESS
from stablexla.dialects.errors import CompileError, UnsupportedError
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.runtime import container
from stablexla.targets.runtime.saved_code import describe
from stablexla.version import VERSION

if TYPE_CHECKING:
    from stablexla.executable.executable import Executable  # whose method `save` is here

Contents = tuple[dict[str, Any], dict[str, container.Part]]


def save(executable: Executable, path: str | Path, key: bytes | None = None, *, source: bool = True) -> None:
    """Write an executable to a file; see `Executable.save`."""
    container.write(Path(path), *contents_for_others(executable, source=source), key=key)


def contents_for_others(executable: Executable, *, source: bool = True) -> Contents:
    """Return `contents` for another process.

    Raises:
        UnsupportedError: the program calls functions of this process.
    """
    description, sections = contents(executable, source=source, whole=False)
    calls = description["function"]["host_calls"] or ()
    here = [call for call in calls if call.get("target", "").startswith(OF_THIS_PROCESS)]
    if here:
        raise UnsupportedError(
            f"{executable.name}: {len(here)} callbacks of JAX live in the process that traced the program",
            hint="sx.register_custom_call(name, function), and a custom call of that name in the program",
        )
    return description, sections


def contents(executable: Executable, *, source: bool = True, whole: bool = True) -> Contents:
    """Return the file contents of an executable: plain values, and sections of bytes.

    Args:
        source: whether the program is among them.
        whole: whether that has the arrays that it holds, which the code has as its kernels read them.

    Raises:
        CompileError: there is no source, as it was compiled from the text of a later stage.
        UnsupportedError: its target makes no code that another process can have.
    """
    from stablexla.targets.registry import find_target  # with MLIR, without which a program is loaded

    if not find_target(executable.target).is_saved:
        what = f"{executable.name}: code of the target {executable.target} stays in the process that made it"
        raise UnsupportedError(what, hint='target="cpu"')
    function, sections = describe(executable._function)
    tree = executable._tree
    signature = executable._signature
    description = {
        "stablexla": VERSION,
        "target": executable.target,
        **signature.plain(),
        "tree": None if tree is None else tree.texts(),
        "pipeline": str(executable.pipeline),
        "has_functions": _has_functions(executable),
        "options": _plain_options(executable._compile_options),
        "num_replicas": executable.num_replicas,
        "num_partitions": executable.num_partitions,
        "digest": executable._digest().hex() if executable.num_devices > 1 else "",
        "shardings": [[array.plain() for array in side] for side in executable._shardings or ()],
        "function": function,
    }
    return description, {**sections, "source": _bytecode(executable, whole) if source else b""}


def _bytecode(executable: Executable, whole: bool) -> bytes:
    if executable.source_bytes is not None:
        return executable.source_bytes
    from stablexla.dialects.held_arrays import with_elided
    from stablexla.interop.encodings.formats import to_bytecode

    try:
        module = executable._stablehlo
        return to_bytecode(module if whole else with_elided(module))
    except CompileError as error:
        raise CompileError(error.summary, hint="save(path, source=False)", option="--no-source") from None


def _has_functions(executable: Executable) -> bool:
    """Return whether the pipeline has Python functions that its text cannot describe."""
    return executable.lost_functions or not executable.pipeline.is_text


def _plain_options(options: CompileOptions | None) -> dict[str, Any]:
    """Return the options that are plain values; the pipeline and its rules are separate."""
    found = {f.name: getattr(options, f.name) for f in fields(CompileOptions)} if options is not None else {}
    return {name: value for name, value in found.items() if isinstance(value, (bool, int)) or name == "target_cpu"}
