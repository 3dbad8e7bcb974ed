"""Convolutions as networks for images have them, features last as TensorFlow writes them and first as PyTorch does."""

import stablexla as sx
from benchmarks.programs.registry import add

LAST = sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC")
FIRST = sx.ConvDimensionNumbers.of("NCHW", "OIHW", "NCHW")


def _add(
    name: str, size: int, inputs: int, outputs: int, window: int, stride: int = 1, groups: int = 1, *, last: bool = True
) -> None:
    per_group = inputs // groups
    image = (1, size, size, inputs) if last else (1, inputs, size, size)
    kernel = (window, window, per_group, outputs) if last else (outputs, per_group, window, window)
    numbers, made = LAST if last else FIRST, -(-size // stride)
    order = "features last" if last else "features first"
    kind = "depth-wise " if groups == inputs else ""

    def build(x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        return sx.conv_with_general_dimensions(x, w, (stride, stride), "SAME", numbers, feature_group_count=groups)

    add(
        name,
        f"{kind}{window}x{window} on {size}x{size}x{inputs} to {outputs}, stride {stride}, {order}",
        [sx.f32[image], sx.f32[kernel]],
        build,
        operations=2.0 * made * made * outputs * window * window * per_group,
    )


_add("conv-3x3-28", 28, 64, 64, 3)
_add("conv-3x3-56", 56, 64, 64, 3)
_add("conv-3x3-7x512", 7, 512, 512, 3)
_add("conv-3x3-stride-2", 56, 64, 128, 3, 2)
_add("conv-7x7-stride-2", 224, 3, 64, 7, 2)
_add("conv-1x1", 56, 256, 64, 1)
_add("conv-depthwise-56", 56, 96, 96, 3, groups=96)
_add("conv-depthwise-112", 112, 96, 96, 3, groups=96)
_add("conv-3x3-56-first", 56, 64, 64, 3, last=False)
_add("conv-7x7-stride-2-first", 224, 3, 64, 7, 2, last=False)
