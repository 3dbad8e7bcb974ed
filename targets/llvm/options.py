"""The CPU target's compile options."""

from __future__ import annotations

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen.machine import FEATURES, LEVEL_VECTOR_BITS, host_target
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.runtime.processor import LEVELS


@dataclass(frozen=True)
class CpuOptions:
    """The CPU target's options with all defaults resolved.

    Attributes:
        opt_level: LLVM's optimisation level.
        num_threads: threads that one call may use; 1 leaves calls sequential.
        most_threads: the same where the user set a limit for this program, else 0, unless it is 1.
        vector_bits: width of the vectors in kernels.
        features: instructions that kernels may use by name (`target.FEATURES`).
        cpu: the processor for which code is generated, of `processor.LEVELS`; "" is this one.
        flush_denormals: whether denormals count as zero while a program runs.
        guard: which end of arrays meets a guard page, "ends" or "starts"; "" where runs are not under guard.
    """

    opt_level: int = 1
    num_threads: int = 1
    most_threads: int = 1
    vector_bits: int = 256
    features: tuple[str, ...] = ()
    cpu: str = ""
    flush_denormals: bool = False
    guard: str = ""

    @staticmethod
    def of(options: CompileOptions) -> CpuOptions:
        """Resolve options that the user left open from the knobs and from the machine."""
        host, level = host_target(), options.target_cpu
        bits, features = host.vector_bits, host.features
        if level is not None:
            bits, features = LEVEL_VECTOR_BITS[level], tuple(sorted(LEVELS[level] & FEATURES))
        threads = options.num_threads or knobs.num_threads or host.num_threads
        return CpuOptions(
            opt_level=1 if options.opt_level is None else options.opt_level,
            num_threads=threads,
            most_threads=threads if options.num_threads is not None or threads == 1 else 0,
            vector_bits=options.vector_bits or bits,
            # an explicit vector width may be meant for another processor
            features=() if options.vector_bits else features,
            cpu=level or "",
            flush_denormals=options.flush_denormals,
            guard=knobs.guard or "",
        )
