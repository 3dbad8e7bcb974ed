"""Small PTX texts for tests of the simulator: a kernel around a body, and one instruction for each of 32 lanes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.targets.gpu.simulated import run_ptx, unwritten

_REGISTERS = """
    .reg .pred %p<9>;
    .reg .b16 %h<99>;
    .reg .b32 %r<99>;
    .reg .f32 %f<299>;
    .reg .b64 %rd<99>;
    .reg .f64 %fd<99>;
"""


def kernel(body: str, *, parameters: int = 1, address: bool = True, before: str = "", target: str = "sm_80") -> str:
    """A text with the kernel `test`: %r0 is the thread, %rd1 the place of its four bytes in the first array."""
    declared = ", ".join(f".param .u64 p{n}" for n in range(parameters))
    place = "ld.param.u64 %rd1, [p0]; mul.wide.u32 %rd0, %r0, 4; add.u64 %rd1, %rd1, %rd0;" if address else ""
    head = f".version 8.0\n.target {target}\n.address_size 64\n{before}\n"
    return f"{head}.visible .entry test({declared})\n{{{_REGISTERS}mov.u32 %r0, %tid.x;\n{place}\n{body}\nret;\n}}\n"


def lanes(text: str, dtype: Any, *operands: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What an instruction gives in each lane: $0 is the result, $1 ... the operands."""
    names = {2: "%h", 4: "%r", 8: "%rd"}

    def register(n: int, kind: Any) -> str:
        return f"{names[np.dtype(kind).itemsize]}{20 + n}"

    kinds = [np.dtype(dtype), *(o.dtype for o in operands)]
    body = ""
    for n, kind in enumerate(kinds):
        at = f"%rd{n + 1}"
        body += f"ld.param.u64 {at}, [p{n}]; mul.wide.u32 %rd0, %r0, {kind.itemsize}; add.u64 {at}, {at}, %rd0;\n"
        if n:
            body += f"ld.global.b{8 * kind.itemsize} {register(n, kind)}, [{at}];\n"
    body += re.sub(r"\$(\d)", lambda m: register(int(m[1]), kinds[int(m[1])]), text)
    body += f"\nst.global.b{8 * kinds[0].itemsize} [%rd1], {register(0, kinds[0])};"
    arrays = [unwritten(32, dtype), *operands]
    return run_ptx(kernel(body, parameters=len(arrays), address=False), "test", 1, 32, arrays)[0]
