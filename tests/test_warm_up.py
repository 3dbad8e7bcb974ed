"""`sx.warm_up`: the first compilation's work ahead of it, on this thread or on another."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest

import stablexla as sx
from stablexla.dialects import contexts

BACKGROUND = """
import sys
import numpy as np
import stablexla as sx
sx.warm_up(background=True)
sx.warm_up()
print("stablexla.targets.cpu.contraction.packed" in sys.modules)
from stablexla.dialects import contexts
made = [pair["upstream"] for pair in contexts._left]
print(len(made))
print(contexts.upstream_context() is made[0], contexts._left)
b = sx.XlaBuilder("after")
print(sx.compile(b.build(b.parameter(0, sx.f32[3]) + 1))(np.float32([1, 2, 3])))
"""


def test_in_the_background():
    own = {**os.environ, "STABLEXLA_KERNEL_CACHE": "off"}
    done = subprocess.run([sys.executable, "-c", BACKGROUND], capture_output=True, text=True, check=True, env=own)
    assert done.stdout.splitlines() == ["True", "1", "True []", "[2. 3. 4.]"]


def test_an_error_is_the_caller_s_or_nobody_s():
    with pytest.raises(sx.CompileError, match="there is no target 'cpv'"):
        sx.warm_up("cpv")
    sx.warm_up("cpv", background=True)
    with pytest.raises(sx.CompileError, match="there is no target 'cpv'"):
        sx.warm_up("cpv")


def test_contexts_that_are_left_are_taken_once():
    taken: list[Any] = []

    def leave() -> None:
        taken.append(contexts.upstream_context())
        contexts.leave_contexts()

    def take() -> None:
        taken.append((contexts.upstream_context(), contexts.stablehlo_context()))

    for work in (leave, take, take):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    left, (first, _), (second, _) = taken
    assert first is left
    assert second is not left
