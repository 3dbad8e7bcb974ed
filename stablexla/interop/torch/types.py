"""Element types of PyTorch and of XLA, and PyTorch's promotion of them."""

from __future__ import annotations

from functools import cache, reduce
from typing import Any

import torch

from stablexla.builder.op import XlaOp
from stablexla.dialects.element_types import ElementType, element_type
from stablexla.dialects.errors import UnsupportedError

NAMES = {
    torch.bool: "pred",
    torch.int8: "s8",
    torch.int16: "s16",
    torch.int32: "s32",
    torch.int64: "s64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e4m3fnuz: "f8e4m3fnuz",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e5m2fnuz: "f8e5m2fnuz",
    torch.float8_e8m0fnu: "f8e8m0fnu",
}
_DTYPES = {name: dtype for dtype, name in NAMES.items()}
Number = bool | int | float | complex


@cache
def xla_type(dtype: torch.dtype) -> ElementType:
    """Return XLA's element type of one of PyTorch's.

    Raises:
        UnsupportedError: PyTorch's quantized types, and complex numbers of halves.

    >>> xla_type(torch.bfloat16).name
    'bf16'
    """
    if dtype not in NAMES:
        raise UnsupportedError(f"there are no arrays of {dtype}", hint="tensor.to(torch.float32)")
    return element_type(NAMES[dtype])


def torch_type(type_: ElementType) -> torch.dtype:
    """Return PyTorch's element type of one of XLA's."""
    return _DTYPES[type_.name]


def result_type(*operands: XlaOp | Number) -> ElementType:
    """Return the type that PyTorch promotes operands to: tensors before 0-d tensors before numbers of one kind.

    >>> b = sx.XlaBuilder("example")
    >>> row, one = b.parameter(0, sx.bf16[3]), b.parameter(1, sx.f32[()])
    >>> result_type(row, one).name, result_type(one, 1j).name, result_type(one, 2.0).name
    ('bf16', 'c64', 'f32')
    """
    arrays = [torch_type(x.element_type) for x in operands if isinstance(x, XlaOp) and x.shape.rank]
    scalars = [torch_type(x.element_type) for x in operands if isinstance(x, XlaOp) and not x.shape.rank]
    stand_ins: list[Any] = []
    if arrays:
        stand_ins.append(_stand_in(reduce(torch.promote_types, arrays), (1,)))
    if scalars:
        stand_ins.append(_stand_in(reduce(torch.promote_types, scalars), ()))
    stand_ins += [x for x in operands if not isinstance(x, XlaOp)]
    made = reduce(_promoted, stand_ins) if len(stand_ins) > 1 else stand_ins[0]
    return xla_type(made.dtype if isinstance(made, torch.Tensor) else torch.tensor(made).dtype)


def _promoted(first: Any, second: Any) -> Any:
    """Return what stands for the promotion of two operands, of which the first is of no lower rank."""
    is_array = isinstance(first, torch.Tensor) and first.ndim
    both_numbers = not isinstance(first, torch.Tensor)
    dtype = torch.result_type(first, second)
    return max(first, second, key=_kind) if both_numbers else _stand_in(dtype, (1,) if is_array else ())


def _kind(number: Number) -> int:
    return (bool, int, float, complex).index(type(number))


@cache
def _stand_in(dtype: torch.dtype, sizes: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")
