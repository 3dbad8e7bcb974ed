"""Questions to a child process: each is answered by its own answer, whatever becomes of the child."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from stablexla.processes.questions import Child, Refusal, serve


def _answer(question: str) -> Any:
    """The process's number; or its end, an exception, what cannot be sent, something printed."""
    if question == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if question == "raise":
        raise ValueError("no luck")
    if question == "print":
        print("said", flush=True)
    return (lambda: 0) if question == "unsendable" else os.getpid()


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child("tests.processes.test_questions", "test", 60)
    yield made
    made.close()


def test_what_cannot_be_answered(child: Child) -> None:
    first = child.ask("number")
    assert child.ask("raise") == Refusal("ValueError", "no luck")
    assert child.ask("number") == first
    assert child.ask("die") == Refusal("died", "exit code -11")
    second = child.ask("number")
    assert second not in (first, child.pid)
    assert child.ask("unsendable").kind == "died"
    assert child.ask("number") not in (first, second)


def test_a_death_between_questions_is_not_the_answer_to_the_next_one(child: Child) -> None:
    for _ in range(3):
        before = child.ask("number")
        os.kill(before, signal.SIGKILL)
        after = child.ask("number")
        assert isinstance(after, int)
        assert after != before


def test_what_was_printed(child: Child) -> None:
    child.ask("print")
    assert child.printed == "said\n"
    child.ask("number")
    assert child.printed == ""


if __name__ == "__main__":
    serve(lambda: None, _answer)
