"""A saved executable whose machine code makes any system call: a valid file, altered, with its checksums made right.

Its argument is an s64[512]: the number of the call, six arguments, and a mask of those that are places in the array
itself; its result is what the kernel answered. Negative numbers are other misdeeds.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import stablexla as sx
from stablexla.processes.seccomp import SYSTEM_CALLS
from stablexla.targets.runtime import container

COMPILER = shutil.which("cc") or shutil.which("gcc")
FOR_EVER, NOWHERE, ILLEGAL, TAKE_ALL = -1, -2, -3, -4
WORDS = 512

CODE = """
static long ask(long n, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  long made;
  __asm__ volatile("syscall" : "=a"(made) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return made;
}
void _mlir_main(void** packed) {
  long* in = *(long**)packed[0];
  long* out = *(long**)packed[1];
  long v[6];
  for (int i = 0; i < 512; ++i) out[i] = 0;
  for (int i = 0; i < 6; ++i) v[i] = in[1 + i] + ((in[7] >> i) & 1 ? (long)in : 0);
  if (in[0] == -1) for (volatile long i = 0;; ++i) {}
  if (in[0] == -2) *(volatile long*)0 = 1;
  if (in[0] == -3) __asm__ volatile("ud2");
  if (in[0] == -4) {  /* memory, 16 MB at a time */
    for (out[0] = 0; out[0] < 4096; ++out[0]) {
      long at = ask(9, 0, 16 << 20, 3, 0x22, -1, 0);
      if (at < 0 && at > -4096) { out[1] = at; break; }
      for (long i = 0; i < (16 << 20); i += 4096) ((volatile char*)at)[i] = 1;
    }
    return;
  }
  out[0] = ask(in[0], v[0], v[1], v[2], v[3], v[4], v[5]);
}
"""


def crafted(folder: Path) -> Path:
    """Write the file."""
    b = sx.XlaBuilder("hostile")
    x = b.parameter(0, sx.s64[WORDS])
    sx.compile(b.build(x + 1)).save(folder / "honest.sxe")
    (folder / "code.c").write_text(CODE)
    options = ["-O1", "-c", "-mcmodel=large", "-ffreestanding", "-fno-stack-protector", "-fcf-protection=none"]
    more = ["-fno-asynchronous-unwind-tables", "-fno-pic", "-fno-tree-loop-distribute-patterns"]
    command = [str(COMPILER), *options, *more, "-o", str(folder / "code.o"), str(folder / "code.c")]
    subprocess.run(command, check=True, timeout=60)
    return with_code(folder / "honest.sxe", (folder / "code.o").read_bytes(), folder / "hostile.sxe")


def with_code(file: Path, code: bytes, to: Path) -> Path:
    """Write a file with other machine code, and the checksums of that."""
    read = container.read(file)
    function = {**read.description["function"], "code": [len(code)]}
    sections = {**{name: bytes(part) for name, part in read.sections.items()}, "code": code}
    container.write(to, {**read.description, "function": function}, sections)
    return to


def call(name: str | int, *arguments: int | bytes) -> np.ndarray[Any, Any]:
    """The argument that asks for a system call; bytes are handed over by their address."""
    words = np.zeros(WORDS, np.int64)
    words[0] = SYSTEM_CALLS[name] if isinstance(name, str) else name
    place = 16
    for i, value in enumerate(arguments):
        if isinstance(value, bytes):
            data = np.frombuffer(value + bytes(8 - len(value) % 8), np.int64)
            words[place : place + len(data)] = data
            words[1 + i], words[7] = 8 * place, words[7] | 1 << i
            place += len(data)
        else:
            words[1 + i] = value
    return words
