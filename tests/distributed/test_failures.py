"""What goes wrong between devices: it ends soon, says who and where, and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets import runtime
from tests.distributed.harness import build
from tests.distributed.test_programs import messages

X = np.arange(6, dtype=np.float32)
HERE = "test_failures.py"


def threads() -> int:
    """Of this process, native ones too."""
    return len(os.listdir("/proc/self/task"))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """A good run works afterwards, from the main thread and another; memory and threads do not grow by failures."""
    yield
    good = sx.compile(build(lambda b, x: sx.all_reduce(x, sx.add), [X]), num_replicas=4)
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.append(good.execute_replicated([[X]] * 4)))
    other.start()
    other.join(60)
    found.append(good.execute_replicated([[X]] * 4))
    assert [r[0].tolist() for run in found for r in run] == [(X * 4).tolist()] * 8


def executable(make: Callable[..., Any], *arguments: np.ndarray, replicas: int = 2) -> sx.Executable:
    return sx.compile(build(make, arguments), num_replicas=replicas)


def is_device(b: sx.XlaBuilder, number: int) -> sx.XlaOp:
    return sx.eq(b.replica_id(), b.constant(np.uint32(number)))


def failing(made: sx.Executable, *arguments: Any, late: bool = False) -> sx.CollectiveError:
    """The error of a run: at once, or because of the limit of time."""
    with pytest.raises(sx.CollectiveError) as raised:
        made.execute_replicated([list(arguments)] * made.num_devices)
    assert ("has waited for" in str(raised.value)) == late
    return raised.value


# ---- who does not come -----------------------------------------------------------------------------------------------


class TestDeadlocks:
    """Seen as soon as nobody can go on: the limit of time, 60 s, is not waited for."""

    def test_one_device_does_not_come(self) -> None:
        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.conditional(is_device(b, 2), x, lambda v: v, x, lambda v: sx.all_reduce(v, sx.add))

        error = failing(executable(program, X, replicas=3), X)
        assert (error.group, sorted(error.arrived), list(error.missing)) == ((0, 1, 2), [0, 1], [2])
        text = str(error)
        assert "all_reduce" in text
        assert re.search(rf"{HERE}:\d+", error.place)
        assert "devices 0, 1, 2" in text
        assert "device 2" in text

    def test_devices_disagree_on_the_order(self) -> None:
        """One sums first, the other gathers first."""

        def one(v: sx.XlaOp) -> sx.XlaOp:
            return sx.all_gather(sx.all_reduce(v, sx.add), 0, 2)

        def other(v: sx.XlaOp) -> sx.XlaOp:
            gathered = sx.all_gather(v, 0, 2)
            return gathered + sx.all_gather(sx.all_reduce(v, sx.add), 0, 2)

        made = executable(lambda b, x: sx.conditional(is_device(b, 0), x, one, x, other), X)
        error = failing(made, X)
        assert error.group == (0, 1)
        assert len(error.arrived) == 1
        assert any(word in str(error.missing) for word in ("all_reduce", "all_gather"))

    def test_more_rounds_on_one(self) -> None:
        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            rounds = sx.convert_element_type(b.replica_id(), "s32") + 3
            state = sx.tuple((b.constant(np.int32(0)), rounds, x))
            return sx.while_(
                lambda s: s[0] < s[1], lambda s: sx.tuple((s[0] + 1, s[1], sx.all_reduce(s[2], sx.add))), state
            )[2]

        error = failing(executable(program, X), X)
        assert (error.arrived, list(error.missing)) == ((1,), [0])
        assert "finished" in error.missing[0] or "end" in error.missing[0]

    @pytest.mark.parametrize("operation", ["all_gather", "all_to_all", "collective_permute", "reduce_scatter"])
    def test_every_operation(self, operation: str) -> None:
        makers: dict[str, Callable[[sx.XlaOp], sx.XlaOp]] = {
            "all_gather": lambda v: sx.slice(sx.all_gather(v, 0, 2), (0,), (6,)),
            "all_to_all": lambda v: sx.all_to_all(v, 0, 0, 2),
            "collective_permute": lambda v: sx.collective_permute(v, ((0, 1), (1, 0))),
            "reduce_scatter": lambda v: sx.concatenate([sx.reduce_scatter(v, sx.add, 0, 2)] * 2, 0),
        }

        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            return sx.conditional(is_device(b, 1), x, lambda v: v, x, makers[operation])

        error = failing(executable(program, X), X)
        assert operation in str(error)
        assert HERE in error.place

    def test_other_groups_are_done(self) -> None:
        """Who waits for nobody is not asked; the message is of the group that cannot meet."""

        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            pairs = ((0, 1), (3, 2))
            return sx.conditional(is_device(b, 3), x, lambda v: v, x, lambda v: sx.all_reduce(v, sx.add, pairs))

        error = failing(executable(program, X, replicas=4), X)
        assert (error.group, error.arrived, list(error.missing)) == ((3, 2), (2,), [3])

    def test_it_is_a_circle(self) -> None:
        """Three devices wait for each other, each in another group."""

        def meet(*pair: int) -> Callable[[sx.XlaOp], sx.XlaOp]:
            rest = [d for d in range(3) if d not in pair]
            return lambda v: sx.all_reduce(v, sx.add, (pair, rest))

        first, second, third = meet(0, 1), meet(1, 2), meet(2, 0)
        orders = [lambda v: third(first(v)), lambda v: first(second(v)), lambda v: second(third(v))]

        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            number = sx.convert_element_type(b.replica_id(), "s32")
            return sx.conditional(number, orders, [x] * 3)

        error = failing(executable(program, X, replicas=3), X)
        assert len(error.group) == 2


# ---- messages --------------------------------------------------------------------------------------------------------


def sending(send: str, recv: str) -> str:
    """Two devices; each takes a send or a recv by its pairs, or neither."""

    def only(pairs: str) -> str:
        return f"source_target_pairs = dense<{pairs}> : tensor<1x2xi64>" if pairs else ""

    handle = "channel_handle = #stablehlo.channel_handle<handle = 4, type = 1>"
    parts = []
    if send:
        parts.append(f"""
          %s = "stablehlo.send"(%x, %t) {{{handle}, {only(send)}}}
            : (tensor<6xf32>, !stablehlo.token) -> !stablehlo.token loc("prog.py":7:3)""")
    if recv:
        token = "%s" if send else "%t"
        parts.append(f"""
          %r:2 = "stablehlo.recv"({token}) {{{handle}, {only(recv)}}}
            : (!stablehlo.token) -> (tensor<6xf32>, !stablehlo.token) loc("prog.py":9:3)""")
    return f"""
    func.func @main(%x: tensor<6xf32>) -> tensor<6xf32> {{
      %t = stablehlo.create_token : !stablehlo.token
      {"".join(parts)}
      func.return {"%r#0" if recv else "%x"} : tensor<6xf32>
    }}"""


class TestMessages:
    def test_a_send_without_a_recv(self) -> None:
        error = failing(sx.compile(sending("[[0, 1]]", ""), num_replicas=2), X)
        assert "send" in str(error)
        assert 'prog.py":7' in error.place
        assert "4" in str(error)

    def test_a_recv_without_a_send(self) -> None:
        error = failing(sx.compile(sending("", "[[0, 1]]"), num_replicas=2), X)
        assert "recv" in str(error)
        assert 'prog.py":9' in error.place
        assert "device 0" in str(error)

    def test_a_recv_from_somebody_else(self) -> None:
        error = failing(sx.compile(sending("[[0, 1]]", "[[1, 0]]"), num_replicas=2), X)
        assert "4" in str(error)

    def test_everybody_receives_first(self) -> None:
        """What is sent is made of what was received: a circle, which no order of the instructions resolves."""

        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            received = b.recv(sx.f32[6], 1, source_target_pairs=((0, 1), (1, 0)))
            sx.send(received + x, 1, source_target_pairs=((0, 1), (1, 0)))
            return received

        error = failing(executable(program, X), X)
        assert "recv" in str(error)
        assert HERE in error.place

    def test_they_work_after_a_failure(self) -> None:
        """What was left in a queue by the run that failed is not found by the next one."""
        broken = sx.compile(sending("[[0, 1]]", ""), num_replicas=2)
        good = sx.compile(messages(((0, 1), (1, 0))), num_replicas=2)
        for _ in range(3):
            failing(broken, X)
            results = good.execute_replicated([[X], [X + 1]])
            assert [r[0].tolist() for r in results] == [(X + 1).tolist(), X.tolist()]


# ---- limits and leaks ------------------------------------------------------------------------------------------------


def test_the_limit_of_time() -> None:
    """A device that may still come is waited for as long as the limit says; then everybody stops."""
    made = executable(lambda b, x: sx.all_reduce(x + b.infeed(sx.f32[6]), sx.add), X, replicas=3)
    made.collective_timeout = 0.2
    for device in (0, 2):
        made.transfer_to_infeed(X, device=device)
    error = failing(made, X, late=True)
    assert (error.group, sorted(error.arrived), list(error.missing)) == ((0, 1, 2), [0, 2], [1])
    assert "0.2 s" in str(error)
    assert "no collective yet" in error.missing[1]
    assert "collective_timeout" in str(error)


def test_those_that_receive_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device raises while another waits for its message, for ever if need be."""

    def raise_it(_: np.ndarray) -> np.ndarray:
        raise ValueError("no answer")

    monkeypatch.setattr("stablexla.compiling.custom_calls.TARGETS", targets := {})
    monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)
    sx.register_custom_call("raise_it", raise_it)

    def send(v: sx.XlaOp) -> sx.XlaOp:
        answer = sx.custom_call("raise_it", v, sx.f32[6], has_side_effect=True)
        sx.send(answer, 1, source_target_pairs=((0, 1),))
        return v

    def recv(v: sx.XlaOp) -> sx.XlaOp:
        return v.builder.recv(sx.f32[6], 1, source_target_pairs=((0, 1),))

    made = executable(lambda b, x: sx.conditional(is_device(b, 0), x, send, x, recv), X)
    made.collective_timeout = None
    said: list[str] = []

    def run_twenty() -> None:
        for _ in range(20):
            try:
                made.execute_replicated([[X], [X]])
            except ValueError as error:
                said.append(str(error))

    runner = threading.Thread(target=run_twenty, daemon=True)
    runner.start()
    runner.join(60)
    assert said == ["no answer"] * 20


def test_failures_leave_no_memory_and_no_threads() -> None:
    """Fifty of them: what the first took is what there is after the last."""
    big = np.ones((200, 1000), np.float32)

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        y = x * 2
        return sx.conditional(is_device(b, 1), y, lambda v: v, y, lambda v: sx.all_reduce(v, sx.add)) + y

    made = executable(program, big, replicas=4)
    for _ in range(5):
        failing(made, big)
    gc.collect()
    before, running = runtime.pool_stats(), threads()
    for _ in range(50):
        failing(made, big)
    gc.collect()
    after = runtime.pool_stats()
    held = "in_use_bytes", "in_use_blocks", "cached_blocks"
    assert [after[k] for k in held] == [before[k] for k in held]
    assert threads() <= running


def test_a_failure_in_one_thread_is_nothing_to_another() -> None:
    """Runs of the same executable at the same time: those that may end well do."""
    fed = executable(lambda b, x: sx.while_(lambda v: b_less(v), grow, x), X)
    done, errors = [], []

    def good() -> None:
        for _ in range(20):
            done.append(fed.execute_replicated([[X + 1], [X + 1]])[0][0].tolist())

    def bad() -> None:
        for _ in range(20):
            try:
                fed.execute_replicated([[X + 1], [X + 1000]])
            except sx.CollectiveError as error:
                errors.append(error)

    workers = [threading.Thread(target=f) for f in (good, bad, good)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(done) == 40
    assert len({tuple(v) for v in done}) == 1
    assert len(errors) == 20


def b_less(v: sx.XlaOp) -> sx.XlaOp:
    """Whether the first element is below 100."""
    return sx.reshape(sx.slice(v, (0,), (1,)), ()) < 100


def grow(v: sx.XlaOp) -> sx.XlaOp:
    return sx.all_reduce(v, sx.max) * 2


def test_groups_that_do_not_fit_are_refused_before_anything_runs() -> None:
    """Too many devices, or not all of them, where each must have a result."""
    for groups in (((0, 1), (2, 3)), ((0,),)):
        with pytest.raises(sx.StablexlaError, match="all_reduce") as raised:
            executable(lambda b, x, g=groups: sx.all_reduce(x, sx.add, g), X)
        assert HERE in str(raised.value)
    with pytest.raises(sx.StablexlaError, match="collective_permute"):
        executable(lambda b, x: sx.collective_permute(x, ((0, 2),)), X)
    with pytest.raises(sx.StablexlaError, match="all_gather"):
        executable(lambda b, x: sx.all_gather(x, 0, 3), X)
