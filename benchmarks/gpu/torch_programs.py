"""The programs in PyTorch's words: by the functions that somebody would take who wants them fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.programs.registry import Program

Function = Callable[..., Any]


def function_of(program: Program, torch: Any) -> Function | None:
    """What computes the program from tensors, if there is a natural way to say it."""
    name = program.name.removesuffix("-bf16").removesuffix("-f32").removesuffix("-f16")
    found = {**_memory(torch), **_arithmetic(torch)}.get(name)
    if program.name == "matmul-tf32":
        return _in_tf32(torch)
    return found


def _memory(torch: Any) -> dict[str, Function]:
    functional = torch.nn.functional
    return {
        "negate": torch.neg,
        "chain": lambda x, y: torch.exp(-(x * x)) * torch.tanh(y) + x,
        "softmax": lambda x: functional.softmax(x, 1),
        "layer-norm": lambda x, scale, offset: functional.layer_norm(x, x.shape[1:], scale, offset, 1e-5),
        "sum-rows": lambda x: x.sum(1),
        "sum-columns": lambda x: x.sum(0),
        "sum-all": lambda x: x.sum(),
        "transpose": lambda x: x.t().contiguous(),
        "transpose-heads": lambda x: x.transpose(1, 2).contiguous(),
        "cumsum": lambda x: x.cumsum(1),
    }


def _arithmetic(torch: Any) -> dict[str, Function]:
    functional = torch.nn.functional

    def convolve(x: Any, w: Any) -> Any:
        """PyTorch names channels first; strides keep them last in memory."""
        made = functional.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1)
        return made.permute(0, 2, 3, 1).contiguous()

    return {
        "matmul": torch.matmul,
        "matmul-bf16-large": torch.matmul,
        "matmul-skinny": torch.matmul,
        "matvec": torch.matmul,
        "dense": lambda x, w, bias: torch.relu(torch.addmm(bias, x, w)),
        "attention": functional.scaled_dot_product_attention,
        "conv-3x3": convolve,
    }


def _in_tf32(torch: Any) -> Function:
    def call(a: Any, b: Any) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return torch.matmul(a, b)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return call
