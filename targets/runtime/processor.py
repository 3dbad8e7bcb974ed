"""CPU features beyond the baseline of the architecture, as far as machine code may depend on them."""

from __future__ import annotations

import functools
import platform
import re

from stablexla.dialects import system
from stablexla.targets.runtime._runtime import processor_flags

# Features that LLVM selects instructions by, in Linux's names; others in its list concern operating systems only.
_INSTRUCTIONS = re.compile(
    r"s?sse\w*|pni|popcnt|avx\w*|fma4?|f16c|bmi[12]|abm|movbe|adx|gfni|v?aes|v?pclmulqdq|sha\w*|amx\w*|xop|tbm"
    r"|cx16|lahf_lm|3dnowprefetch"
    r"|fp|asimd\w*|sve\w*|bf16|i8mm|fphp|atomics|fcma|jscvt|crc32|pmull|lrcpc|ilrcpc|flagm2?|frint"
)

_V1 = "sse sse2"
_V2 = f"{_V1} cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3"
_V3 = f"{_V2} abm avx avx2 bmi1 bmi2 f16c fma movbe"
_N1 = "fp asimd asimddp asimdhp asimdrdm atomics crc32 fphp lrcpc"
LEVELS = {
    name: frozenset(flags.split())
    for name, flags in {
        "x86-64": _V1,
        "x86-64-v2": _V2,
        "x86-64-v3": _V3,
        "x86-64-v4": f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl",
        "armv8-a": "fp asimd",
        "neoverse-n1": _N1,
        "neoverse-v1": f"{_N1} asimdfhm bf16 fcma flagm i8mm ilrcpc jscvt sve",
    }.items()
}
"""Features of the processors that `target_cpu` names, by Linux's names: the levels of x86-64 that its psABI defines,
each with those of the one before; AArch64's oldest architecture and two of Arm's processors, as far as LLVM uses them.
"""

# LLVM's names of AArch64's features; its own detection reads /proc/cpuinfo, which an emulator's host has written.
_OF_LLVM = {
    "asimd": "neon",
    "asimddp": "dotprod",
    "asimdfhm": "fp16fml",
    "asimdhp": "fullfp16",
    "asimdrdm": "rdm",
    "atomics": "lse",
    "bf16": "bf16",
    "crc32": "crc",
    "fcma": "complxnum",
    "flagm": "flagm",
    "fp": "fp-armv8",
    "i8mm": "i8mm",
    "ilrcpc": "rcpc-immo",
    "jscvt": "jsconv",
    "lrcpc": "rcpc",
}
ARM = ("aarch64", "arm64")


def machine() -> str:
    """Return the architecture, such as x86_64."""
    return platform.machine()


@functools.cache
def name() -> str:
    """Return the processor's name for a reader, or the architecture where the system has none for it."""
    return system.processor_name()


@functools.cache
def flags() -> frozenset[str]:
    """Return all features that the system lists for this machine, by Linux's names; none when it does not say."""
    return frozenset(processor_flags())


def llvm_name(level: str) -> str:
    """Return LLVM's name of one of `LEVELS`."""
    return "generic" if level == "armv8-a" else level


def llvm_features(flags: frozenset[str]) -> str:
    """Return the features of AArch64 as LLVM takes them, each on or off.

    SVE is off: kernels are vectors of 128 bits, and LLVM would put its instructions among those of Advanced SIMD.
    """
    return ",".join([*(f"{'+' if name in flags else '-'}{llvm}" for name, llvm in _OF_LLVM.items()), "-sve"])


@functools.cache
def features() -> frozenset[str]:
    """Return the features of this machine that code generated on it may use."""
    return frozenset(flag for flag in flags() if _INSTRUCTIONS.fullmatch(flag))


def level() -> str:
    """Return the highest of `LEVELS` that this machine has; "" where it is none of them."""
    return next((name for name in reversed(LEVELS) if features() >= LEVELS[name]), "")
