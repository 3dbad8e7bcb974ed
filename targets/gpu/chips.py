"""Chips that PTX can be generated for, PTX versions that support them, and the syntax of target names.

LLVM ends the process at some values that it does not know, so they are validated here.
"""

from __future__ import annotations

import difflib

from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass

CHIPS = {
    "sm_70": 60,
    "sm_72": 61,
    "sm_75": 63,
    "sm_80": 70,
    "sm_86": 71,
    "sm_87": 74,
    "sm_89": 78,
    "sm_90": 78,
    "sm_90a": 80,
    "sm_100": 86,
    "sm_100a": 86,
    "sm_103": 88,
    "sm_120": 87,
    "sm_120a": 87,
    "sm_121": 88,
}
"""Oldest PTX version that supports each chip."""
VERSIONS = (60, 61, 62, 63, 64, 65, *range(70, 79), *range(80, 89))
"""PTX versions LLVM writes, from the first that supports one of the chips."""
SHARED_KIB = {70: 96, 72: 96, 75: 64, 80: 163, 87: 163, 90: 227, 100: 227, 103: 227}
"""Shared memory limit of a block in KiB, by compute capability; 99 for the others."""
MAX_BLOCK_THREADS = 1024
"""Threads of a block, at most."""
DEFAULT = "sm_80"


@dataclass(frozen=True)
class GpuName:
    """A GPU target, as the text `gpu:sm_90,ptx80` spells it.

    Attributes:
        chip: the chip PTX is generated for.
        ptx: the version of PTX.
    """

    chip: str
    ptx: int

    @staticmethod
    def of(chip: str | None = None, ptx: int | None = None) -> GpuName:
        """Build a target, with defaults for what is not given.

        Raises:
            CompileError: there is no such chip, or the version of PTX does not know it.
        """
        if chip is None:
            chip = default_chip()
        if chip not in CHIPS:
            near = difflib.get_close_matches(str(chip), CHIPS, n=2, cutoff=0.5) or list(CHIPS)
            raise CompileError(f"gpu: there is no chip {chip!r}", hint=" or ".join(near))
        oldest = CHIPS[chip]
        # 7.8 is the first that converts between bf16 and f32 in one instruction; all drivers for CUDA 11.8 take it
        version = max(oldest, 78) if ptx is None else ptx
        if isinstance(version, bool) or version not in VERSIONS:
            raise CompileError(f"gpu: there is no version {ptx!r} of PTX", hint="80 for PTX 8.0")
        if version < oldest:
            raise CompileError(f"gpu: {chip} needs PTX {_dotted(oldest)}, not {_dotted(version)}", hint=f"ptx={oldest}")
        return GpuName(chip, version)

    @staticmethod
    def parse(text: str) -> GpuName:
        """Parse what `str` writes; `gpu` alone is for the first GPU present, or else for sm_80.

        Raises:
            CompileError: it is no such text, or names what does not exist.
        """
        chip: str | None = None
        ptx: int | None = None
        for word in filter(None, text.partition(":")[2].split(",")):
            if word.startswith("ptx") and word[3:].isdecimal():
                ptx = int(word[3:])
            elif chip is None:
                chip = word
            else:
                raise CompileError(f"there is no target {text!r}", hint="gpu:sm_90 or gpu:sm_90,ptx80")
        return GpuName.of(chip, ptx)

    def __str__(self) -> str:
        return f"gpu:{self.chip},ptx{self.ptx}"


def default_chip() -> str:
    """Return the chip to compile for: that of the first GPU present; sm_80 where there is none."""
    from stablexla.targets.runtime.gpu_driver import device_chips  # it looks for a driver

    chips = device_chips()
    if not chips:
        return DEFAULT
    older = [
        chip for chip in CHIPS if not chip.endswith("a") and compute_capability(chip) <= compute_capability(chips[0])
    ]
    best = max(older, key=compute_capability, default=DEFAULT)
    return "sm_90a" if best == chips[0] == "sm_90" else best


def shared_limit(chip: str) -> int:
    """Return a block's shared memory limit on a chip, in bytes."""
    return SHARED_KIB.get(compute_capability(chip), 99) << 10


def compute_capability(chip: str) -> int:
    """Return a chip's compute capability as a number: 90 for sm_90a."""
    return int("".join(filter(str.isdigit, chip)))


def _dotted(version: int) -> str:
    return f"{version // 10}.{version % 10}"
