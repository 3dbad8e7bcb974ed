"""Messages between the devices of a run: order, copies, who waits, and what nobody receives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.runtime import ArraySpec, CompiledFunction
from tests.targets.runtime.device_programs import Step, collective, config, devices_program, mask, run, values

pytestmark = pytest.mark.usefixtures("nothing_leaks")

SPEC = ArraySpec("float32", (1000,))
ROWS = np.random.default_rng(0).standard_normal((4, 1000)).astype(np.float32)
RING = [(d, (d + 1) % 4) for d in range(4)]


def messages(sent: Any, received: Any, channels: tuple[int, int] = (1, 1), size: int = 1000) -> list[dict[str, Any]]:
    send = config("send", [f"f32[{size}]"], [], pairs=sent, channel=channels[0])
    return [send, config("recv", [], ["f32[1000]"], pairs=received, channel=channels[1])]


def program(steps: list[Step], sent: Any, received: Any = None, devices: int = 4, **more: Any) -> CompiledFunction:
    configs = messages(sent, sent if received is None else received, **more)
    return devices_program([SPEC], [SPEC], steps, configs, devices)


SEND, RECV = collective(0, inputs=[0]), collective(1, outputs=[2])


def test_a_ring() -> None:
    function = program([SEND, RECV], RING)
    for _ in range(20):
        for d, (result,) in enumerate(run(function, ROWS)):
            np.testing.assert_array_equal(result, ROWS[d - 1])


def test_whoever_receives_first_waits() -> None:
    pairs = [(2, 0), (3, 1)]
    steps = [
        collective(1, outputs=[2], devices=mask(0, 1)),
        collective(0, inputs=[0], devices=mask(2, 3)),
        collective(1, outputs=[2], devices=mask(2, 3)),  # to whom nobody sends: zeros
    ]
    function = program(steps, pairs)
    for _ in range(20):
        results = [r[0] for r in run(function, ROWS)]
        np.testing.assert_array_equal(results[:2], ROWS[2:])
        assert not np.any(results[2:])


def test_messages_come_in_the_order_in_which_they_were_sent(subtests: pytest.Subtests) -> None:
    """Device 0 sends what it was sent, plus one, so that each message is another one."""
    spec = ArraySpec("float32", (2,))
    configs = [
        config("send", ["f32[2]"], [], pairs=[(0, 1)], channel=3),
        config("recv", [], ["f32[2]"], pairs=[(0, 1)], channel=3),
    ]
    for early in (0, 3):
        with subtests.test(early=early):
            steps = [collective(0, inputs=[i], devices=mask(0)) for i in range(3)]
            steps += [collective(1, outputs=[4 + i], devices=mask(1)) for i in range(3)]
            function = devices_program([spec] * 3, [spec] * 3, steps, configs)
            rows = [np.full((2, 2), i, np.float32) for i in range(3)]
            assert [r.tolist() for r in run(function, *rows)[1]] == [[i, i] for i in range(3)]


def test_channels_are_apart() -> None:
    spec = ArraySpec("float32", (1,))
    configs = [
        config(op, *arrays, pairs=[(0, 1)], channel=channel)
        for channel in (1, 2)
        for op, arrays in (("send", (["f32[1]"], [])), ("recv", ([], ["f32[1]"])))
    ]
    steps = [collective(n, inputs=[i], devices=1) for i, n in enumerate((0, 2))]
    steps += [collective(n, outputs=[i], devices=2) for i, n in ((4, 3), (3, 1))]
    function = devices_program([spec] * 2, [spec] * 2, steps, configs)
    assert [r.tolist() for r in run(function, *[np.full((2, 1), i, np.float32) for i in (5, 6)])[1]] == [[5], [6]]


def test_to_itself() -> None:
    function = program([SEND, RECV], [(0, 0), (1, 1)], devices=2)
    assert [r[0].tolist() for r in run(function, ROWS)] == ROWS[:2].tolist()


def test_many_messages_back_and_forth() -> None:
    """A value goes around a ring, again and again."""
    steps = []
    for _ in range(100):
        steps += [collective(0, inputs=[0]), collective(1, outputs=[0])]
    given = values(np.random.default_rng(1), 4, 1000)
    before = given.copy()
    run(program(steps, RING), given)
    np.testing.assert_array_equal(given, before)


def test_nobody_sends() -> None:
    with pytest.raises(sx.CollectiveError, match="wait for others which do not come any more, on channel 1") as caught:
        run(program([RECV], RING), ROWS)
    assert caught.value.operation == "recv"
    assert "model.py:4 in step" in str(caught.value)
    assert caught.value.arrived == (caught.value.group[1],)
    assert "waits at recv" in caught.value.missing[caught.value.group[0]]


def test_nobody_receives() -> None:
    function = program([SEND], RING[:2])
    for _ in range(3):
        with pytest.raises(sx.CollectiveError, match="was never received, nor 1 others") as caught:
            run(function, ROWS)
        assert caught.value.operation == "send"


def test_other_arrays_than_are_received() -> None:
    for steps in ([SEND, RECV], [collective(1, outputs=[2], devices=2), collective(0, inputs=[0], devices=1)]):
        function = program(steps, [(0, 1)], devices=2, size=999)
        with pytest.raises(sx.CollectiveError, match="device 0 sent other arrays than device 1 receives, on channel 1"):
            run(function, ROWS)


RAISES = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tests.targets.runtime.device_programs import *

def raises(given, wanted):
    time.sleep(0.018)  # by then the receiver is about to sleep, for 20 ms
    raise ValueError

class Host:
    callbacks = [(raises, (), ())]

spec = ArraySpec("float32", (5,))
what = [config(op, *sides, pairs=[(0, 1)]) for op, *sides in (("send", ["f32[5]"], []), ("recv", [], ["f32[5]"]))]
steps = [host(0, devices=1), collective(0, inputs=[0], devices=1), collective(1, outputs=[2], devices=2)]
function = devices_program([spec], [spec], steps, what, 2, host=Host())
for _ in range(10):
    try:
        run(function, np.ones((2, 5), np.float32), time_limit=None)
    except ValueError:
        continue
    raise AssertionError("nothing was raised")
print("good")
"""


def test_a_receiver_that_is_about_to_sleep_is_stopped(tmp_path: Path) -> None:
    """The run is stopped between a receiver's last look and its sleep, which would have no end."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library, source = tmp_path / "late_sleeper.so", Path(__file__).with_name("late_sleeper.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=60)
    command = [sys.executable, "-c", RAISES, str(Path(__file__).parents[3])]
    # behind what this process has preloaded, as a sanitizer is
    environment = {**os.environ, "LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout == "good\n", done.stderr
