"""The object file of a `main` that is a list of calls and nothing else: data, and the one call that carries it out.

Such a `main` has no body (`targets/llvm/call_list.py`), and neither MLIR nor LLVM has any work with it: the file is
written here. The formats are those of the System V ABI, and of its supplements for x86-64 and AArch64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import mlir.ir as ir
import numpy as np

from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import symbol_of
from stablexla.targets.codegen.runtime_calls import PLACES, RUN_CALLS
from stablexla.targets.llvm.entry import PACKED_MAIN
from stablexla.targets.runtime import processor

LIST = "stablexla.list"
"""Attribute of a `main` without a body: the functions, the numbers, and the kernels' places; see `CallList`."""
# The code, with the words behind it that it reads: the addresses of the functions, of the numbers and of the runtime's
# function, which it jumps to, and how many numbers there are.
_X86_64 = bytes.fromhex(
    "4889f9"  #         mov  rcx, rdi   (the array that main is given)
    "488b3d1e000000"  # mov  rdi, [rip + 30]
    "488b351f000000"  # mov  rsi, [rip + 31]
    "488b1528000000"  # mov  rdx, [rip + 40]
    "4531c0"  #         xor  r8d, r8d   (no integers that main computes)
    "ff2517000000"  #   jmp  [rip + 23]
    "cccccccccccccc"
)
_AARCH64 = struct.pack(
    "<8I",
    0xAA0003E3,  # mov  x3, x0
    0x580000E0,  # ldr  x0, #28
    0x58000101,  # ldr  x1, #32
    0x58000162,  # ldr  x2, #44
    0xAA1F03E4,  # mov  x4, xzr
    0x580000F0,  # ldr  x16, #28
    0xD61F0200,  # br   x16
    0xD503201F,  # nop
)
# Of each machine ELF's number, that of the relocation by an address of 64 bits, and the code.
_MACHINES = {"x86_64": (62, 1, _X86_64), **dict.fromkeys(processor.ARM, (183, 257, _AARCH64))}
_PROGBITS, _SYMTAB, _STRTAB, _RELA = 1, 2, 3, 4
_ALLOCATED, _EXECUTABLE = 2, 4
_GLOBAL, _FUNCTION, _SECTION = 1 << 4, 2, 3
_SECTION_NAMES = ("", ".text", ".rela.text", ".rodata", ".rela.rodata", ".symtab", ".strtab")
_TEXT, _RODATA, _SYMBOLS, _STRINGS = (_SECTION_NAMES.index(name) for name in (".text", ".rodata", ".symtab", ".strtab"))


@dataclass(frozen=True)
class CallList:
    """The arguments of `stablexla_run_calls` that are data.

    Attributes:
        functions: symbols of what is called, and of functions whose addresses are passed.
        numbers: of the calls, 64 bits each.
        places: of the kernels, as in the attribute `PLACES` of a call.
    """

    functions: Sequence[str]
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]]
    places: ir.ArrayAttr

    def note(self, main: ir.Operation) -> None:
        """Attach it to a `main` without a body."""
        names = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in self.functions])
        numbers = ir.DenseElementsAttr.get(self.numbers)
        main.attributes[LIST] = ir.DictAttr.get({"functions": names, "numbers": numbers, PLACES: self.places})

    @staticmethod
    def take(module: ir.Module) -> CallList | None:
        """Take `main`, the packed entry point, off a module where it is a list; None where it has code."""
        main = next((view.operation for view in module.body.operations if symbol_of(view) == PACKED_MAIN), None)
        if main is None or LIST not in main.attributes:
            return None
        found = ir.DictAttr(main.attributes[LIST])
        names = [ir.StringAttr(name).value for name in ir.ArrayAttr(found["functions"])]
        numbers = np.array(ir.DenseIntElementsAttr(found["numbers"]), np.int64)
        taken = CallList(names, numbers, ir.ArrayAttr(found[PLACES]))
        erase(main)
        return taken

    def object_file(self, machine: str) -> bytes:
        """Return an object file that defines the packed entry point.

        Args:
            machine: as Python's `platform.machine` calls it.
        """
        elf_machine, address, code = _MACHINES[machine]
        strings = _Strings()
        # The null symbol and that of .rodata are local and come first.
        symbols = [_symbol(0, 0, 0), _symbol(0, _SECTION, _RODATA)]
        symbols.append(_symbol(strings.add(PACKED_MAIN), _GLOBAL | _FUNCTION, _TEXT, len(code)))
        symbols += [_symbol(strings.add(name), _GLOBAL, 0) for name in (RUN_CALLS, *self.functions)]
        run, first = 3, 4
        start = 8 * len(self.functions)  # of the numbers, behind the table of functions
        text = code + struct.pack("<4Q", 0, 0, 0, len(self.numbers))
        of_text = ((len(code), 1, 0), (len(code) + 8, 1, start), (len(code) + 16, run, 0))
        of_data = ((8 * i, first + i, 0) for i in range(len(self.functions)))
        contents = [
            b"",
            text,
            _relocations(of_text, address),
            bytes(start) + self.numbers.tobytes(),
            _relocations(of_data, address),
            b"".join(symbols),
        ]
        names = [strings.add(name) for name in _SECTION_NAMES]
        contents.append(bytes(strings.content))
        kinds = (
            (0, 0, 0, 0, 0),
            (_PROGBITS, _ALLOCATED | _EXECUTABLE, 0, 0, 0),
            (_RELA, 0, _SYMBOLS, _TEXT, 24),
            (_PROGBITS, _ALLOCATED, 0, 0, 0),
            (_RELA, 0, _SYMBOLS, _RODATA, 24),
            (_SYMTAB, 0, _STRINGS, 2, 24),
            (_STRTAB, 0, 0, 0, 0),
        )
        file, headers = bytearray(64), b""
        for name, content, (kind, flags, link, info, size) in zip(names, contents, kinds, strict=True):
            file += bytes(-len(file) % 8)
            headers += struct.pack(
                "<IIQQQQIIQQ", name, kind, flags, 0, len(file) if kind else 0, len(content), link, info, 8, size
            )
            file += content
        file += bytes(-len(file) % 8)
        file[:64] = struct.pack(
            "<16sHHIQQQIHHHHHH",
            b"\x7fELF\x02\x01\x01",
            *(1, elf_machine, 1, 0, 0, len(file), 0, 64, 0, 0, 64, len(contents), _STRINGS),
        )
        return bytes(file + headers)


class _Strings:
    """A table of strings."""

    def __init__(self) -> None:
        self.content = bytearray(1)

    def add(self, text: str) -> int:
        """Return where a string begins."""
        start = len(self.content)
        self.content += text.encode() + b"\0"
        return start


def _symbol(name: int, kind: int, section: int, size: int = 0) -> bytes:
    """Return an entry of the symbol table, for the beginning of a section; 0 is none."""
    return struct.pack("<IBBHQQ", name, kind, 0, section, 0, size)


def _relocations(entries: Iterable[tuple[int, int, int]], kind: int) -> bytes:
    """Return a table: places, each with a symbol and an offset whose sum is written there."""
    return b"".join(struct.pack("<QQq", place, symbol << 32 | kind, addend) for place, symbol, addend in entries)
