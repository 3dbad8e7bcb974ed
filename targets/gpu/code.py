"""What a function for a GPU is made of, and how it is made: without a compiler, as saved programs start at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stablexla.dialects.errors import LoadError
from stablexla.targets.gpu.cubin import image_of
from stablexla.targets.runtime._runtime import ArraySpec, GpuFunction
from stablexla.targets.runtime.container import Part
from stablexla.targets.runtime.host import Host
from stablexla.targets.runtime.saved_code import LoadedCode


@dataclass(frozen=True)
class GpuCode:
    """The code of a program; it lives as long as the function.

    Attributes:
        code: the machine code of `main`.
        ptx: the kernels.
        chip: what they were compiled for.
        kernels: their names in the PTX, by number, and the most bytes that the threads of a block share.
    """

    code: LoadedCode
    ptx: str
    chip: str
    kernels: tuple[tuple[str, int], ...]

    def image(self, chip: str) -> bytes:
        """What the driver loads for a device of a chip, as "sm_90"; the PTX for "".

        Raises:
            ExecutionError: the device cannot run it.
            CompileError: ptxas refuses it.
        """
        return image_of(self.ptx, self.chip, chip)

    def object_files(self) -> list[bytes]:
        """Those of `main`."""
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
    ) -> GpuFunction:
        """The code as something to call; no driver is looked for before it is called."""
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
        )


def describe(function: GpuFunction) -> tuple[dict[str, Any], dict[str, Part]]:
    """What `restore` needs besides what every program needs."""
    made: GpuCode = function.keep_alive
    return {"chip": made.chip, "kernels": [list(row) for row in made.kernels]}, {"ptx": made.ptx.encode()}


def restore(code: LoadedCode, description: Mapping[str, Any], sections: Mapping[str, memoryview]) -> GpuCode:
    """The code once more.

    Raises:
        LoadError: the kernels are not there.
    """
    if "ptx" not in sections:
        raise LoadError("the program's kernels are missing")
    kernels = tuple((str(name), int(size)) for name, size in description["kernels"])
    return GpuCode(code, bytes(sections["ptx"]).decode(), description["chip"], kernels)
