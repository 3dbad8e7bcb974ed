"""The CPU target's compile options."""

from __future__ import annotations

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen.machine import host_target
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.options import CompileOptions


@dataclass(frozen=True)
class CpuOptions:
    """The CPU target's options with all defaults resolved.

    Attributes:
        opt_level: LLVM's optimisation level.
        num_threads: threads that one call may use; 1 leaves calls sequential.
        most_threads: the same where the user set a limit for this program, else 0, unless it is 1.
        vector_bits: width of the vectors in kernels.
        features: instructions that kernels may use by name (`target.FEATURES`).
        flush_denormals: whether denormals count as zero while a program runs.
        guard: which end of arrays meets a guard page, "ends" or "starts"; "" where runs are not under guard.
    """

    opt_level: int = 1
    num_threads: int = 1
    most_threads: int = 1
    vector_bits: int = 256
    features: tuple[str, ...] = ()
    flush_denormals: bool = False
    guard: str = ""

    @staticmethod
    def of(options: CompileOptions) -> CpuOptions:
        """Resolve options that the user left open from the knobs and from the machine."""
        host = host_target()
        threads = options.num_threads or knobs.num_threads or host.num_threads
        return CpuOptions(
            opt_level=1 if options.opt_level is None else options.opt_level,
            num_threads=threads,
            most_threads=threads if options.num_threads is not None or threads == 1 else 0,
            vector_bits=options.vector_bits or host.vector_bits,
            # an explicit vector width may be meant for another processor
            features=() if options.vector_bits else host.features,
            flush_denormals=options.flush_denormals,
            guard=knobs.guard or "",
        )
