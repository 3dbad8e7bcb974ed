"""Code of a GPU program and the function made of it; imports no compiler, so that saved programs start fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

import numpy as np

from stablexla.dialects.errors import CompileError, LoadError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.gpu.ptx.cubin import assemble, assembly_chip
from stablexla.targets.runtime._runtime import ArraySpec, GpuFunction
from stablexla.targets.runtime.container import Part
from stablexla.targets.runtime.host import Host
from stablexla.targets.runtime.saved_code import LoadedCode


@dataclass(frozen=True)
class GpuCode:
    """The code of a program; lives as long as the function.

    Attributes:
        code: machine code of `main`.
        ptx: the kernels.
        chip: the chip they were compiled for.
        kernels: names in the PTX, by number, each with the maximum of its launches' shared memory in bytes.
        cubins: what ptxas made of the PTX, by chip.
    """

    code: LoadedCode
    ptx: str
    chip: str
    kernels: tuple[tuple[str, int], ...]
    cubins: dict[str, bytes] = field(default_factory=dict)

    @property
    def features(self) -> frozenset[str]:
        """Features of the processor that the code of `main` may use."""
        return self.code.features

    def image(self, chip: str) -> bytes:
        """Return the image the driver loads for a chip, as "sm_90": a cubin if there can be one, or else the PTX.

        For no chip, "", it is the PTX.

        Raises:
            ExecutionError: the device cannot run it.
            CompileError: ptxas refuses it.
        """
        cubin = self.cubin(assembly_chip(self.chip, chip)) if chip else None
        return cubin or self.ptx.encode() + b"\0"

    def cubin(self, chip: str) -> bytes | None:
        """Assemble the kernels' machine code, cached per chip.

        Raises:
            CompileError: ptxas refuses the PTX.
        """
        if chip not in self.cubins and (made := assemble(self.ptx, chip)) is not None:
            self.cubins[chip] = made
        return self.cubins.get(chip)

    def object_files(self) -> list[bytes]:
        """Return the object files of `main`."""
        return self.code.object_files()

    def function(
        self,
        name: str,
        parameters: Sequence[ArraySpec],
        results: Sequence[ArraySpec],
        *,
        arena_bytes: int,
        constants: Sequence[np.ndarray[Any, Any]],
        aliases: Mapping[int, int],
        host: Host | None,
        flush_denormals: bool,
        places: Mapping[int, str],
    ) -> GpuFunction:
        """Return the code as a callable function; the driver is looked for at the first call."""
        return GpuFunction(
            name,
            self.code.entry,
            parameters,
            results,
            arena_bytes=arena_bytes,
            constants=constants,
            aliases=aliases,
            kernels=self.kernels,
            image=self.image,
            chip=self.chip,
            keep_alive=self,
            host=host,
            flush_denormals=flush_denormals,
            places=places,
        )


def describe(function: GpuFunction) -> tuple[dict[str, Any], dict[str, Part]]:
    """Return what `restore` needs besides every program's data; with the chip's cubin, where there is a ptxas."""
    made: GpuCode = function.keep_alive
    with suppress(CompileError):  # the driver may take what this ptxas does not
        made.cubin(made.chip)
    cubins = dict(made.cubins)
    description = {
        "chip": made.chip,
        "kernels": [list(row) for row in made.kernels],
        "cubins": [[chip, len(code)] for chip, code in cubins.items()],
    }
    return description, {"ptx": made.ptx.encode(), "cubins": list(cubins.values())}


def restore(code: LoadedCode, description: Mapping[str, Any], sections: Mapping[str, memoryview]) -> GpuCode:
    """Restore the code of a saved program.

    Raises:
        LoadError: the kernels are not there.
    """
    if "ptx" not in sections or "cubins" not in sections:
        raise LoadError("the program's kernels are missing")
    kernels = tuple((str(name), int(size)) for name, size in description["kernels"])
    cubins, at = dict[str, bytes](), 0
    for chip, size in description["cubins"]:
        cubins[chip] = bytes(sections["cubins"][at : at + size])
        at += size
    return GpuCode(code, bytes(sections["ptx"]).decode(), description["chip"], kernels, cubins)
