"""Relocations of AArch64, on every machine: each instruction against what LLVM's assembler makes of the offset."""

from __future__ import annotations

import ctypes
import re
import subprocess

import mlir.ir as ir
import pytest

from stablexla.dialects.contexts import upstream_context
from stablexla.targets.llvm.llvm_c import object_file
from stablexla.targets.llvm.toolchain import llvm_tool
from stablexla.targets.runtime import ObjectCode
from stablexla.targets.runtime._runtime import relocated

AARCH64 = 183
PLACE = 0x5555_0000_1F84
"""Where the instruction runs: not at the start of a page."""
# Relocation, its number, an instruction with a {} for what it fills in, and offsets from the place: in reach, the last
# and the first of it, and one beyond each.
BRANCHES = {
    "CALL26": (283, "bl #{}", [4, -4, 0x123454, (1 << 27) - 4, -(1 << 27)], [1 << 27, -(1 << 27) - 4]),
    "JUMP26": (282, "b #{}", [8, (1 << 27) - 4, -(1 << 27)], [1 << 27, -(1 << 27) - 4]),
    "CONDBR19": (280, "b.eq #{}", [4, -16, (1 << 20) - 4, -(1 << 20)], [1 << 20, -(1 << 20) - 4]),
    "TSTBR14": (279, "tbz w3, #4, #{}", [4, -16, (1 << 15) - 4, -(1 << 15)], [1 << 15, -(1 << 15) - 4]),
    "LD_PREL_LO19": (273, "ldr x5, #{}", [4, -16, (1 << 20) - 4, -(1 << 20)], [1 << 20, -(1 << 20) - 4]),
    "ADR_PREL_LO21": (274, "adr x7, #{}", [1, -3, (1 << 20) - 1, -(1 << 20)], [1 << 20, -(1 << 20) - 1]),
}
# The same for parts of addresses: the address's bytes within a page, in units of the access.
PARTS = {
    "ADD_ABS_LO12_NC": (277, "add x1, x2, #{}", 1),
    "LDST8_ABS_LO12_NC": (278, "ldrb w1, [x2, #{}]", 1),
    "LDST16_ABS_LO12_NC": (284, "ldrh w1, [x2, #{}]", 2),
    "LDST32_ABS_LO12_NC": (285, "str s1, [x2, #{}]", 4),
    "LDST64_ABS_LO12_NC": (286, "ldr d1, [x2, #{}]", 8),
    "LDST128_ABS_LO12_NC": (299, "ldr q1, [x2, #{}]", 16),
    "LD64_GOT_LO12_NC": (312, "ldr x1, [x2, #{}]", 8),
}


def assembled(*lines: str) -> list[bytes]:
    """The instructions of some lines, by LLVM's assembler."""
    command = [llvm_tool("llvm-mc"), "-triple=aarch64", "-show-encoding"]
    said = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True).stdout
    found = re.findall(r"encoding: \[(.*?)\]", said)
    assert len(found) == len(lines), said
    return [bytes(int(byte, 16) for byte in text.split(",")) for text in found]


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_and_near_loads(name: str) -> None:
    type_, text, offsets, beyond = BRANCHES[name]
    empty, *expected = assembled(*(text.format(offset) for offset in [0, *offsets]))
    assert [relocated(AARCH64, type_, empty, PLACE, PLACE + offset) for offset in offsets] == expected
    for offset in beyond:
        with pytest.raises(RuntimeError, match="machine code: an address that is out of reach"):
            relocated(AARCH64, type_, empty, PLACE, PLACE + offset)
    if name != "ADR_PREL_LO21":
        with pytest.raises(RuntimeError, match="an address that is not aligned"):
            relocated(AARCH64, type_, empty, PLACE, PLACE + 2)


@pytest.mark.parametrize(("name", "type_"), [("ADR_PREL_PG_HI21", 275), ("_NC", 276), ("ADR_GOT_PAGE", 311)])
def test_pages(name: str, type_: int) -> None:
    page = PLACE >> 12 << 12
    offsets = [0, 0x1000, -0x3000, 0x1234_5000, (1 << 32) - 0x1000, -(1 << 32)]
    empty, *expected = assembled(*(f"adrp x9, #{offset}" for offset in [0, *offsets]))
    for inside in (0, 0xFFF):
        found = [relocated(AARCH64, type_, empty, PLACE, page + offset + inside) for offset in offsets]
        assert found == expected, name
    for value in (page + (1 << 32), page - (1 << 32) - 1):
        with pytest.raises(RuntimeError, match="an address that is out of reach"):
            relocated(AARCH64, type_, empty, PLACE, value)


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_addresses(name: str) -> None:
    type_, text, unit = PARTS[name]
    insides = [0, unit, 0x7F0, 0x1000 - unit]
    empty, *expected = assembled(*(text.format(inside) for inside in [0, *insides]))
    for base in (0, 0x7777_0001_2000):
        assert [relocated(AARCH64, type_, empty, PLACE, base + inside) for inside in insides] == expected
    if unit > 1:
        with pytest.raises(RuntimeError, match="an address that is not aligned"):
            relocated(AARCH64, type_, empty, PLACE, 0x4000 + unit // 2)


def test_data() -> None:
    value = PLACE + 0x1_2345
    assert relocated(AARCH64, 257, bytes(8), PLACE, value) == value.to_bytes(8, "little")
    assert relocated(AARCH64, 258, bytes(4), PLACE, 0xFEDC_BA98) == (0xFEDC_BA98).to_bytes(4, "little")
    assert relocated(AARCH64, 260, bytes(8), PLACE, PLACE - 5) == (-5).to_bytes(8, "little", signed=True)
    assert relocated(AARCH64, 261, bytes(4), PLACE, PLACE - 5) == (-5).to_bytes(4, "little", signed=True)
    for type_, far in ((258, 1 << 32), (261, PLACE + (1 << 31)), (261, PLACE - (1 << 31) - 1)):
        with pytest.raises(RuntimeError, match="an address that is out of reach"):
            relocated(AARCH64, type_, bytes(4), PLACE, far)
    for type_ in (257, 260):
        with pytest.raises(RuntimeError, match="an address beyond the end of a section"):
            relocated(AARCH64, type_, bytes(7), PLACE, PLACE)
    with pytest.raises(RuntimeError, match="a relocation that is not known: 1024"):
        relocated(AARCH64, 1024, bytes(8), PLACE, PLACE)


ROOM = """
llvm.mlir.global external @room() : !llvm.array<300000000 x i8> {
  %zeros = llvm.mlir.zero : !llvm.array<300000000 x i8>
  llvm.return %zeros : !llvm.array<300000000 x i8>
}
"""
CALLER = """
llvm.func @outside(i64) -> i64
llvm.func @calls(%x: i64) -> i64 {
  %room = llvm.mlir.addressof @room : !llvm.ptr
  %there = llvm.getelementptr %room[%x] : (!llvm.ptr, i64) -> !llvm.ptr, i8
  llvm.store %x, %there : i64, !llvm.ptr
  %y = llvm.call @outside(%x) : (i64) -> i64
  %back = llvm.load %there : !llvm.ptr -> i64
  %sum = llvm.add %y, %back : i64
  llvm.return %sum : i64
}
llvm.func @takes(%x: i64) -> i64 {
  %f = llvm.mlir.addressof @outside : !llvm.ptr
  %y = llvm.call %f(%x) : !llvm.ptr, (i64) -> i64
  llvm.return %y : i64
}
"""
CALLED = """
llvm.func @outside(%x: i64) -> i64 {
  %three = llvm.mlir.constant(3 : i64) : i64
  %y = llvm.mul %x, %three : i64
  llvm.return %y : i64
}
"""


def test_calls_beyond_the_reach_of_a_branch() -> None:
    """300 MB of zeros behind either code keep them apart, in whichever order the system hands out addresses."""
    called, caller = (object_file(ir.Module.parse(ROOM + text, upstream_context()), 1) for text in (CALLED, CALLER))
    first = ObjectCode(called, {})
    second = ObjectCode(caller, {"outside": first.address("outside")})
    assert abs(second.address("calls") - first.address("outside")) > 1 << 27
    for name, factor in (("calls", 4), ("takes", 3)):
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(second.address(name))
        assert [function(x) for x in (5, 1000)] == [factor * 5, factor * 1000]
