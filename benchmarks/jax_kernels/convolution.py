"""Convolutions of JAX: other element types, batches, groups, gradients, one and three dimensions."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np

from benchmarks.traced import trace

LAYOUT = ("NHWC", "HWIO", "NHWC")
Shape = tuple[int, ...]


def convolve(x: jax.Array, w: jax.Array, stride: int = 1, groups: int = 1, sums: Any = None) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=LAYOUT, feature_group_count=groups,
        preferred_element_type=sums,
    )  # fmt: skip


def image_gradient(stride: int = 1, groups: int = 1) -> Any:
    return lambda x, w, g: jax.vjp(lambda x: convolve(x, w, stride, groups), x)[1](g)[0]


def kernel_gradient(stride: int = 1, groups: int = 1) -> Any:
    return lambda x, w, g: jax.vjp(lambda w: convolve(x, w, stride, groups), w)[1](g)[0]


def line(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))


def volume(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, w, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))


def transposed(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=LAYOUT)


def convolve_bytes(x: jax.Array, w: jax.Array) -> jax.Array:
    return convolve(x, w, sums=np.dtype(np.int32))


def convolve_widened(x: jax.Array, w: jax.Array) -> jax.Array:
    return convolve(x.astype(np.int32), w.astype(np.int32))


def life(cells: jax.Array) -> jax.Array:
    """Thirty generations of Conway's game of life."""
    around = jax.numpy.ones((3, 3, 1, 1), cells.dtype).at[1, 1].set(0)

    def step(_: int, cells: jax.Array) -> jax.Array:
        neighbours = convolve(cells[None, :, :, None], around)[0, :, :, 0]
        return ((neighbours == 3) | ((cells == 1) & (neighbours == 2))).astype(cells.dtype)

    return jax.lax.fori_loop(0, 30, step, cells)


def enter_bytes(name: str, text: str, function: Any, *shapes: Shape) -> None:
    sizes = " and ".join("x".join(map(str, shape)) for shape in shapes)
    trace(name, f"{sizes}, {text}", function, lambda draw: [draw.integers(127, *s, dtype=np.int8) for s in shapes],
          peak="int8")  # fmt: skip


def enter(name: str, function: Any, *shapes: Shape, dtype: Any = np.float32, **more: Any) -> None:
    text = f"{' and '.join('x'.join(map(str, shape)) for shape in shapes)}, {np.dtype(dtype).name}"
    trace(
        name, text, function, lambda draw: [draw.normal(*s) for s in shapes], dtype=dtype, **{"tolerance": 1e-4} | more
    )


IMAGE, KERNEL = (1, 56, 56, 64), (3, 3, 64, 64)
enter("conv-3x3-28-batch-32", convolve, (32, 28, 28, 64), KERNEL)
enter("conv-3x3-57x63", convolve, (1, 57, 57, 63), (3, 3, 63, 65))
enter("conv-1x1-14x1024", convolve, (1, 14, 14, 1024), (1, 1, 1024, 256))
enter("conv-1x1-stride-2", lambda x, w: convolve(x, w, 2), (1, 56, 56, 256), (1, 1, 256, 512))
enter("conv-grouped", lambda x, w: convolve(x, w, 1, 32), (1, 28, 28, 256), (3, 3, 8, 256))
enter("conv-depthwise-14-batch-8", lambda x, w: convolve(x, w, 1, 512), (8, 14, 14, 512), (3, 3, 1, 512))
enter("conv-bf16-3x3-56", convolve, IMAGE, KERNEL, dtype=ml_dtypes.bfloat16, tolerance=1e-2, peak="bf16")
enter("conv-bf16-3x3-14", convolve, (1, 14, 14, 256), (3, 3, 256, 256), dtype=ml_dtypes.bfloat16, tolerance=1e-2,
      peak="bf16")  # fmt: skip
enter_bytes("conv-s8-s32-3x3-56", "int8 summed in int32", convolve_bytes, IMAGE, KERNEL)
enter_bytes("conv-s8-s32-3x3-14", "int8 summed in int32", convolve_bytes, (1, 14, 14, 256), (3, 3, 256, 256))
enter_bytes("conv-s8-widened-3x3-28", "int8 made int32 before", convolve_widened, (1, 28, 28, 128), (3, 3, 128, 128))
enter("conv-f64-3x3-28", convolve, (1, 28, 28, 64), KERNEL, dtype=np.float64, wide=True, peak="f64")
enter("conv-gradient-image", image_gradient(), IMAGE, KERNEL, IMAGE)
enter("conv-gradient-kernel", kernel_gradient(), IMAGE, KERNEL, IMAGE)
enter("conv-gradient-kernel-batch-8", kernel_gradient(), (8, 28, 28, 64), KERNEL, (8, 28, 28, 64))
CHANNELS = (1, 56, 56, 96)
enter("conv-gradient-depthwise", kernel_gradient(groups=96), CHANNELS, (3, 3, 1, 96), CHANNELS)
enter("conv-gradient-grouped", kernel_gradient(groups=32), (1, 28, 28, 256), (3, 3, 8, 256), (1, 28, 28, 256))
enter("conv-gradient-1x1-stride-2", kernel_gradient(2), (1, 56, 56, 256), (1, 1, 256, 512), (1, 28, 28, 512))
enter("conv-gradient-7x7", kernel_gradient(2), (1, 224, 224, 3), (7, 7, 3, 64), (1, 112, 112, 64))
enter("conv-gradient-image-1x1-stride-2", image_gradient(2), (1, 56, 56, 256), (1, 1, 256, 512), (1, 28, 28, 512))
enter("conv-gradient-image-7x7", image_gradient(2), (1, 224, 224, 3), (7, 7, 3, 64), (1, 112, 112, 64))
enter("conv-transposed", transposed, (1, 28, 28, 64), (2, 2, 64, 32))
enter("conv-line", line, (4, 1000, 80), (5, 80, 128))
enter("conv-volume", volume, (1, 16, 28, 28, 16), (3, 3, 3, 16, 32))
enter("conv-3x3-1-feature", convolve, (1, 512, 512, 1), (3, 3, 1, 1))
enter("conv-5x5-3-features", convolve, (1, 256, 256, 3), (5, 5, 3, 3))
enter_bytes("conv-s8-s32-3x3-1-feature", "int8 summed in int32", convolve_bytes, (1, 512, 512, 1), (3, 3, 1, 1))
trace("life-512", "30 generations of 512x512, int8", life, lambda draw: [draw.integers(2, 512, 512, dtype=np.int8)])
