"""The public names of the package: `stablexla` has those in `__all__`, and imports this file at the first use of one.

Each is documented at its definition; docs/ops.md lists the operations.
"""

from typing import TYPE_CHECKING

from stablexla.dialects.builds.pins import check_pins

check_pins()

from stablexla.builder.annotations import OpMetadata
from stablexla.builder.builder import XlaBuilder
from stablexla.builder.computation import XlaComputation
from stablexla.builder.op import XlaOp
from stablexla.builder.shapes import (
    ELEMENT_TYPES,
    ElementType,
    Shape,
    bf16,
    c64,
    c128,
    element_type,
    f4e2m1fn,
    f6e2m3fn,
    f6e3m2fn,
    f8e3m4,
    f8e4m3,
    f8e4m3b11fnuz,
    f8e4m3fn,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
    f8e8m0fnu,
    f16,
    f32,
    f64,
    pred,
    s2,
    s4,
    s8,
    s16,
    s32,
    s64,
    u2,
    u4,
    u8,
    u16,
    u32,
    u64,
)
from stablexla.compiling.compiler import compile
from stablexla.compiling.composite_kernels import (
    register_composite_kernel,
    unregister_composite_kernel,
)
from stablexla.compiling.custom_calls import register_custom_call, unregister_custom_call
from stablexla.compiling.user_pipelines import lowering_rule, lowering_rules, lowers, pipeline, unregister_lowering
from stablexla.compiling.warm_up import warm_up
from stablexla.dialects.attributes.index_numbers import GatherDimensionNumbers, ScatterDimensionNumbers
from stablexla.dialects.attributes.result_accuracy import ResultAccuracy
from stablexla.dialects.errors import (
    CheckError,
    CheckWarning,
    CollectiveError,
    CompileError,
    ExecutionError,
    LoadError,
    OutOfMemoryError,
    ParseError,
    ReplicationWarning,
    ShapeError,
    SourceLine,
    StablexlaError,
    UnsupportedError,
    VerificationError,
)
from stablexla.executable.executable import Executable
from stablexla.executable.memory import MemoryEstimate, MemoryStats, memory_limit, memory_stats, set_memory_limit
from stablexla.executable.saved import load_executable
from stablexla.interop.arrays import to_dlpack
from stablexla.ops import exports
from stablexla.ops.exports import *
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.passes import module_pass, unregister_pass
from stablexla.targets.pipeline.pipelines import Pipeline, Step

if TYPE_CHECKING:  # loaded at their first use
    from stablexla.inspection.composite_kernels import check_composite_kernel  # of a satellite
    from stablexla.interop.freezing import freeze
    from stablexla.interop.loading import load

__all__ = [
    # builder
    "OpMetadata",
    "XlaBuilder",
    # computation
    "XlaComputation",
    # op
    "XlaOp",
    # interop.arrays
    "to_dlpack",
    # saved
    "load_executable",
    # dialects.errors
    "CheckError",
    "CheckWarning",
    "CollectiveError",
    "CompileError",
    "ExecutionError",
    "LoadError",
    "OutOfMemoryError",
    "ParseError",
    "ReplicationWarning",
    "ShapeError",
    "SourceLine",
    "StablexlaError",
    "UnsupportedError",
    "VerificationError",
    # ops.elementwise
    "ResultAccuracy",
    # ops.indexing
    "GatherDimensionNumbers",
    "ScatterDimensionNumbers",
    # shapes
    "ELEMENT_TYPES",
    "ElementType",
    "Shape",
    "element_type",
    "pred",
    "s2",
    "s4",
    "s8",
    "s16",
    "s32",
    "s64",
    "u2",
    "u4",
    "u8",
    "u16",
    "u32",
    "u64",
    "f4e2m1fn",
    "f6e2m3fn",
    "f6e3m2fn",
    "f8e3m4",
    "f8e4m3",
    "f8e4m3b11fnuz",
    "f8e4m3fn",
    "f8e4m3fnuz",
    "f8e5m2",
    "f8e5m2fnuz",
    "f8e8m0fnu",
    "bf16",
    "f16",
    "f32",
    "f64",
    "c64",
    "c128",
    # compiling
    "CompileOptions",
    # user_pipelines
    "pipeline",
    "Pipeline",
    "Step",
    "module_pass",
    "unregister_pass",
    "lowers",
    "lowering_rule",
    "lowering_rules",
    "unregister_lowering",
    "Executable",
    "compile",
    "freeze",
    "load",
    "MemoryEstimate",
    "MemoryStats",
    "memory_limit",
    "memory_stats",
    "set_memory_limit",
    "warm_up",
    # functions of users
    "check_composite_kernel",
    "register_composite_kernel",
    "register_custom_call",
    "unregister_composite_kernel",
    "unregister_custom_call",
]
__all__ += [name for name in vars(exports) if not name.startswith("_")]
