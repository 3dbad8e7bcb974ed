"""Compiles files one after another in a new process: python -m benchmarks.compile_child ENGINE FILE...

Prints the seconds from before the engine's imports until the last file is compiled, and the bytes by which that file
raised the largest resident size of the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter


def stablexla() -> Callable[[str], object]:
    import stablexla as sx

    return sx.compile


def xla() -> Callable[[str], object]:
    """Return jaxlib's client alone: JAX itself is not imported."""
    from jaxlib import xla_client

    client = xla_client.make_cpu_client()
    devices = xla_client.DeviceList(tuple(client.local_devices()))
    return lambda text: client.compile_and_load(text, devices, xla_client.CompileOptions())


def peak() -> int:
    """Return the largest resident size so far; ru_maxrss would start at that of the process that has forked."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


ENGINES = {each.__name__: each for each in (stablexla, xla)}


def main(name: str, *files: str) -> None:
    texts = [Path(file).read_text() for file in files]
    start = perf_counter()
    compiled, before = ENGINES[name](), 0
    for text in texts:
        before = peak()
        compiled(text)
    print(perf_counter() - start, peak() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
