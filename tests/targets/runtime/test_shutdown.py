"""Python may end while another thread is inside a program: the process ends quietly, with its own exit code."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
import numpy as np
import stablexla as sx

b = sx.XlaBuilder("long")
x = b.parameter(0, sx.f32[1 << 18])
executable = sx.compile(b.build(sx.tanh(x) * 2.0))
values = np.ones(1 << 18, np.float32)
running = threading.Event()

def run_for_ever():
    while True:
        executable(values)
        running.set()

for _ in range(3):
    threading.Thread(target=run_for_ever, daemon=True).start()
running.wait()
raise SystemExit(7)
"""


def test_daemon_threads_do_not_abort_the_process() -> None:
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
        assert (ended.returncode, ended.stderr) == (7, "")
