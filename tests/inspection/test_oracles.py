"""The process in which an oracle runs: it ends with whoever started it, whatever it is doing."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import numpy as np
import pytest

import stablexla as sx
from stablexla.inspection.judging.oracles import Oracle

ENDLESS = """
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %r = stablehlo.while(%v = %x) : tensor<f32>
    cond { %c = stablehlo.constant dense<true> : tensor<i1> stablehlo.return %c : tensor<i1> }
    do { %w = stablehlo.negate %v : tensor<f32> stablehlo.return %w : tensor<f32> }
  return %r : tensor<f32>
}
"""
PARENT = f"""
import os, threading
import numpy as np
import stablexla as sx
from stablexla.inspection.judging.oracles import Oracle

oracle = Oracle("interpreter")
oracle.start()
print(oracle._child.pid, flush=True)
module = sx.load('''{ENDLESS}''')
threading.Timer(2.0, os._exit, [0]).start()
oracle.run(module, [np.float32(1)])
"""


def test_it_ends_with_its_parent_in_the_middle_of_a_computation():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    try:
        assert parent.wait(60) == 0
        readable, _, _ = select.select([child], [], [], 30)  # a process that has ended can be read
        assert readable
    finally:
        os.close(child)
        parent.stdout.close()


def test_an_interrupted_question_is_not_answered_to_the_next(monkeypatch):
    with Oracle("interpreter") as oracle:
        module = sx.load("func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }")
        from stablexla.processes import wire

        def interrupt(*_: object) -> object:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(wire, "receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                oracle.run(module, [np.float32(1)])
        (result,) = oracle.run(module, [np.float32(2)])
        assert float(result) == 2
