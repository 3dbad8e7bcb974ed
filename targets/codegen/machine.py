"""What the CPU emitters need to know of the machine: vector width, registers, caches, threads."""

from __future__ import annotations

import ctypes
import functools
import platform
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from stablexla.dialects.choices import Gate
from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.system import cache_bytes
from stablexla.targets.runtime import default_num_threads, processor
from stablexla.targets.runtime.processor import LEVELS

# Multiply-adds that are worth a work item of their own.
ITEM_WORK = Gate("machine.item-work", 500_000, eager=1)


# Bytes of caches and of what is held in them, beyond which kernels take other ways.
MEMORY = {
    name: Gate(f"machine.{name.replace('_', '-')}", 1 << 40, eager=eager)
    for name, eager in {
        "l1_bytes": 512,
        "l2_bytes": 2048,
        "nontemporal_bytes": 64,
        "prefetch_bytes": 64,
        "lhs_bytes": 1024,
        "group_bytes": 1024,
        "shared_bytes": 4096,
    }.items()
}


@dataclass(frozen=True)
class CpuTarget:
    """A CPU as the emitters see it.

    Attributes:
        vector_bits: width of one vector register (128, 256 or 512).
        num_vector_registers: how many of them there are.
        l1_bytes, l2_bytes, l3_bytes: data caches, the first two of one core.
        num_threads: threads that a parallel call may use.
        nontemporal_bytes: results of at least this size take non-temporal stores.
        prefetch_bytes: how far ahead of a stream to prefetch.
        lhs_bytes: the most of a cache block of lhs that a work item packs on its stack, beside B panels in L2.
        group_bytes: B panels that a work item packs on its stack at a time.
        shared_bytes: the most of a packed operand that all work items share; beyond, every item packs its own.
        features: instructions that kernels may ask for by name, of `FEATURES`.
        emulated: whether these are written out as vector arithmetic, for tests on processors that lack them.
    """

    vector_bits: int = 256
    num_vector_registers: int = 16
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 16 << 20
    num_threads: int = 1
    nontemporal_bytes: int = 32 << 20
    prefetch_bytes: int = 2048
    lhs_bytes: int = 176 << 10
    group_bytes: int = 64 << 10
    shared_bytes: int = 256 << 20
    features: tuple[str, ...] = ()
    emulated: bool = False

    def with_choices(self) -> CpuTarget:
        """The same machine with no more memory of each kind than the running compilation chooses."""
        return replace(self, **{name: min(getattr(self, name), gate()) for name, gate in MEMORY.items()})

    @property
    def lhs_block(self) -> int:
        """Bytes of a cache block of lhs: 3/8 of L2 at most."""
        return min(self.lhs_bytes, self.l2_bytes * 3 // 8)

    def work_items(self, work: float) -> int:
        """Return the work items wanted for `work` multiply-adds: some for each thread, each worth the call."""
        return int(max(1, min(4 * self.num_threads if self.num_threads > 1 else 1, work // ITEM_WORK())))

    def with_vectors(self, bits: int, features: tuple[str, ...] = ()) -> CpuTarget:
        """The same machine with vectors of another width, and no other features than those given.

        Raises:
            CompileError: a feature that emitters do not know.
        """
        for feature in sorted({*features} - FEATURES - {"emulated"}):
            near = get_close_matches(feature, FEATURES, n=2) or sorted(FEATURES)
            raise CompileError(f"there is no feature {feature!r} of CPUs", hint=" or ".join(near))
        return replace(
            self,
            vector_bits=bits,
            num_vector_registers=_vector_registers(bits, is_arm="asimd" in {*features, *self.features}),
            features=features,
            emulated="emulated" in features,
        )


def _vector_registers(bits: int, *, is_arm: bool) -> int:
    """Return how many vectors of a width the registers hold: AArch64 has 32 of 128 bits."""
    if is_arm:
        return 32 * 128 // bits
    return 32 if bits == 512 else 16


# Names as Linux spells them. `asimd` stands for AArch64, `asimdhp` for its arithmetic on f16, `sse2` for products of
# 16-bit pairs at any width of vectors of x86, `avx2` and `avx512f` for permutations of f32 in registers of 256 and 512
# bits.
FEATURES = frozenset(
    (
        "asimd",
        "asimddp",
        "asimdhp",
        "i8mm",
        "bf16",
        "sse2",
        "avx2",
        "avx512f",
        "avx_vnni",
        "avx512_vnni",
        "avx512_bf16",
        "amx_tile",
        "amx_bf16",
        "amx_int8",
        "amx_fp16",
    )
)


LEVEL_VECTOR_BITS = dict.fromkeys(LEVELS, 128) | {"x86-64-v3": 256, "x86-64-v4": 512}
"""Width of vectors in kernels for processors of the `processor.LEVELS`."""


@functools.cache
def host_target() -> CpuTarget:
    """The machine that this process runs on."""
    flags = set(processor.flags())
    wide = {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags
    bits = 512 if wide else 256 if "avx2" in flags else 128
    own = CpuTarget()
    l1_bytes, l2_bytes, l3_bytes = cache_bytes()
    l2_bytes = l2_bytes or own.l2_bytes
    return CpuTarget(
        vector_bits=bits,
        num_vector_registers=_vector_registers(bits, is_arm="asimd" in flags),
        l1_bytes=l1_bytes or own.l1_bytes,
        l2_bytes=l2_bytes,
        l3_bytes=l3_bytes or own.l3_bytes,
        num_threads=default_num_threads(),
        group_bytes=256 << 10 if l2_bytes >= 1 << 20 else max(64 << 10, l2_bytes // 8),
        features=features_worth_using(flags, _about_processor().get("vendor_id", "")),
    )


def features_worth_using(flags: set[str], vendor: str) -> tuple[str, ...]:
    """Return those of `FEATURES` that a processor has and gains by.

    Intel's vdpbf16ps takes as long as four multiply-adds of f32 and does the work of two (Emerald Rapids: products of
    bf16 at 0.73 of XLA's speed with it, at 1.3 without); so bf16 is widened when it is packed, unless there are tiles.
    """
    unwanted = {"avx512_bf16"} if vendor == "GenuineIntel" else set()
    return tuple(sorted(f for f in (flags & FEATURES) - unwanted if not f.startswith("amx") or _may_use_tiles()))


def _about_processor() -> dict[str, str]:
    """Return what Linux says of the first processor, by name; nothing where it does not."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0]
    except OSError:
        return {}
    fields = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in fields}


def _may_use_tiles() -> bool:
    """Asks Linux for the tiles' registers; it may refuse, and did not know them before 5.16."""
    arch_prctl, request, tile_data = 158, 0x1023, 18
    try:
        return platform.machine() == "x86_64" and ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0
    except (OSError, AttributeError):
        return False
