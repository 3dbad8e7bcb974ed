"""CPU features beyond the baseline of the architecture, as far as machine code may depend on them."""

from __future__ import annotations

import functools
import platform
import re
from pathlib import Path

# Features that LLVM selects instructions by, in Linux's names; others in its list concern operating systems only.
_INSTRUCTIONS = re.compile(
    r"s?sse\w*|pni|popcnt|avx\w*|fma4?|f16c|bmi[12]|abm|movbe|adx|gfni|v?aes|v?pclmulqdq|sha\w*|amx\w*|xop|tbm"
    r"|cx16|lahf_lm|3dnowprefetch"
    r"|fp|asimd\w*|sve\w*|bf16|i8mm|fphp|atomics|fcma|jscvt|crc32|lrcpc|ilrcpc|flagm2?|frint"
)


def machine() -> str:
    """Return the architecture, such as x86_64."""
    return platform.machine()


@functools.cache
def name() -> str:
    """Return the processor's name for a reader, or the architecture where Linux has none for it."""
    try:
        with Path("/proc/cpuinfo").open() as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return machine()


@functools.cache
def flags() -> frozenset[str]:
    """Return all features that Linux lists for this machine; none when it does not say."""
    try:
        with Path("/proc/cpuinfo").open() as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


def features() -> frozenset[str]:
    """Return the features of this machine that code generated on it may use."""
    return frozenset(flag for flag in flags() if _INSTRUCTIONS.fullmatch(flag))
