"""`Shape` and the element types under XLA's names; the definitions are with the dialects."""

from stablexla.builder.source import ends_at_user
from stablexla.dialects.element_types import BY_NAME, ELEMENT_TYPES, ElementType, element_type
from stablexla.dialects.shapes import Shape

# The definition is in `dialects`, which know no user's lines; the builder's errors name them.
setattr(ElementType, "__getitem__", ends_at_user(ElementType.__getitem__))  # noqa: B010  mypy refuses an assignment

pred = BY_NAME["pred"]
s2, s4, s8, s16, s32, s64 = (BY_NAME[f"s{bits}"] for bits in (2, 4, 8, 16, 32, 64))
u2, u4, u8, u16, u32, u64 = (BY_NAME[f"u{bits}"] for bits in (2, 4, 8, 16, 32, 64))
f4e2m1fn, f6e2m3fn, f6e3m2fn = (BY_NAME[name] for name in ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn"))
f8e3m4, f8e4m3, f8e4m3fn = (BY_NAME[name] for name in ("f8e3m4", "f8e4m3", "f8e4m3fn"))
f8e4m3fnuz, f8e4m3b11fnuz = (BY_NAME[name] for name in ("f8e4m3fnuz", "f8e4m3b11fnuz"))
f8e5m2, f8e5m2fnuz, f8e8m0fnu = (BY_NAME[name] for name in ("f8e5m2", "f8e5m2fnuz", "f8e8m0fnu"))
bf16, f16, f32, f64 = (BY_NAME[name] for name in ("bf16", "f16", "f32", "f64"))
c64, c128 = (BY_NAME[name] for name in ("c64", "c128"))

__all__ = ["ELEMENT_TYPES", "ElementType", "Shape", "element_type", *(t.name for t in ELEMENT_TYPES)]
