"""What goes wrong in one process of many: every other one ends with a CollectiveError that says what, where and who."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.distributed.mpi_launch import needs_mpi, start

PROCESSES = 3
pytestmark = needs_mpi


ONE_AFTER_ANOTHER = (
    "raises",
    "raises_last",
    "refused",
    "overtaken",
    "limited",
    "differ",
    "disagrees",
    "never",
    "unreceived",
    "unsent",
    "shares",
    "placed",
    "late_to_the_first",
    "refuses_the_first",
    "interrupted",
    "ring",
    "sizes",
    "leaves",
)


def read(folder: Path, scenario: str) -> list[str]:
    """What each process said, in the order of their numbers; nothing from one that said nothing."""
    files = [folder / f"{scenario}{rank}" for rank in range(PROCESSES)]
    return [file.read_text() if file.exists() else "" for file in files]


def others_say(texts: list[str], beginning: str, *parts: str) -> None:
    """What is in the errors of all processes but the second."""
    for text in (texts[0], texts[2]):
        assert text.startswith(f"CollectiveError: {beginning}")
        for part in parts:
            assert part in text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the same processes said in all scenarios: after each of them the next run works."""
    folder = tmp_path_factory.mktemp("mpi")
    child = "tests.distributed.mpi_failures"
    done = start(PROCESSES, child, str(folder), *ONE_AFTER_ANOTHER)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_process_that_raises_stops_the_others_and_the_next_run_works(folder: Path) -> None:
    texts = read(folder, "raises")
    assert texts[1] == "ValueError: no luck"
    parts = "mpi_failures.py", "group     devices 0, 1, 2", "device 1  process 1: "
    others_say(texts, "all_reduce: host: process 1: no luck", *parts)


def test_a_process_that_raises_when_the_others_are_through_can_run_the_program_again(folder: Path) -> None:
    texts = read(folder, "raises_last")
    assert texts[1] == "ValueError: no luck"
    others_say(texts, "execute_replicated: the results of all devices could not be gathered")


def test_arguments_that_do_not_fit_in_one_process_end_the_run_of_all(folder: Path) -> None:
    texts = read(folder, "refused")
    first, second = texts[1].split("\n---\n")
    assert first.startswith("ExecutionError: refused: device 1: ")
    assert second.startswith("ExecutionError: refused: device 1: ")
    for text in (texts[0], texts[2]):
        for each in text.split("\n---\n"):
            assert each.startswith("CollectiveError: all_reduce: refused: process 1: ")


def test_what_a_sender_that_gave_up_has_in_its_place_is_no_result(folder: Path) -> None:
    sender, receiver = read(folder, "overtaken")[:2]
    # A transport may take all of them before the time limit, so that they reach the receiver all the same.
    has_given_up = receiver.startswith("CollectiveError: collective_permute: overtaken: process 0: ")
    assert has_given_up or receiver == "the sender's numbers"
    assert "not everybody has come within the time limit" in sender or sender == "the sender has not waited"
    assert not (has_given_up and sender == "the sender has not waited")


def test_a_time_limit_of_one_process_ends_the_run_of_all(folder: Path) -> None:
    texts = read(folder, "limited")
    assert texts[1].startswith("ExecutionError: limited: the run has taken longer than its time limit of 0.2 s")
    others_say(texts, "all_reduce: limited: process 1: its run was stopped", "group     devices 0, 1, 2")


def test_a_process_that_is_killed_is_missed(tmp_path: Path) -> None:
    start(PROCESSES, "tests.distributed.mpi_guard", "tests.distributed.mpi_failures", str(tmp_path), "killed")
    texts = read(tmp_path, "killed")
    assert texts[1] == ""
    others_say(texts, "all_reduce: host: ", "process 1 (pid ", "is gone", "group     devices 0, 1, 2")


def test_a_process_that_ends_early_is_missed(folder: Path) -> None:
    others_say(read(folder, "leaves"), "all_reduce: two: ", "process 1 has ended")


def test_processes_with_different_programs_are_named(folder: Path) -> None:
    """Before the time limit, in the first collective; no numbers are exchanged."""
    texts = read(folder, "differ")
    for text in texts:
        assert re.match(r"CollectiveError: all_reduce: scaled: (process \d: )?process \d has another program", text)
        assert "group    devices 0, 1, 2" in text
    assert "process 1" in texts[0]
    assert "process 1" in texts[2]


def test_another_order_of_collectives_is_found_out_before_the_time_limit(folder: Path) -> None:
    texts = read(folder, "disagrees")
    assert all("devices wait for one another in different operations" in text for text in texts)
    assert texts[0].startswith("CollectiveError: all_gather: order")
    assert ": all_reduce from" in texts[0]
    assert texts[1].startswith("CollectiveError: all_reduce: order")
    assert "device 0  process 0: all_gather from" in texts[1] + texts[2]


def test_a_process_that_does_not_come_in_time(folder: Path) -> None:
    texts = read(folder, "never")
    assert all(text.startswith("CollectiveError: ") for text in texts)
    assert all("not everybody has come within the time limit" in text for text in texts)
    assert "gives no answer: it computes, or has stopped" in texts[0] + texts[2]


def test_what_nobody_receives_is_named(folder: Path) -> None:
    texts = read(folder, "unreceived")
    assert texts[0].startswith(
        "CollectiveError: send: sends: nobody has received what was sent to device 1: process 1 "
    )
    assert "has ended its run" in texts[0]
    assert "mpi_failures.py" in texts[0]
    for text in texts[1:]:  # long before the time limit
        assert text.startswith("CollectiveError: execute_replicated: ")
        assert "process 0: nobody has received what was sent to device 1: " in text


def test_who_waits_for_a_send_that_does_not_come(folder: Path) -> None:
    text = read(folder, "unsent")[1]
    assert text.startswith("CollectiveError: recv: receives: process 0 has ended its run of the program")
    assert "mpi_failures.py" in text
    assert "group     devices 0, 1" in text
    assert "device 0  process 0: " in text


def test_devices_that_cannot_be_shared_are_refused(folder: Path) -> None:
    for text in read(folder, "shares"):
        assert text.startswith("ExecutionError: a program for 4 devices cannot run in 3 processes, each with as many")


def test_processes_that_cannot_have_the_devices_are_refused(folder: Path) -> None:
    texts = [text.split("\n---\n") for text in read(folder, "placed")]
    for short, beyond, negative, fraction, alone, *_ in texts:
        assert short.startswith("ExecutionError: two: processes=[0]: one for each of 2 devices, from 0 to 2")
        assert beyond.startswith("ExecutionError: two: processes=[0, 3]: one for each")
        assert negative.startswith("ExecutionError: two: processes=[0, -1]: one for each")
        assert fraction.startswith("ExecutionError: two: processes=[0, 1.0]: one for each")
        assert "processes=[0]: a program for one device runs in any process by itself" in alone
    assert texts[2][5].startswith("ExecutionError: two: process 2 has none of its devices; processes 0, 1 have them")
    assert "try: call it in those alone, or executable.processes = [the process of each device]" in texts[2][5]
    for *_, checked in texts[:2]:
        assert checked.startswith("UnsupportedError: two: checks of a program with processes of its own")


def test_a_process_that_is_late_to_the_first_run_in_a_place(folder: Path) -> None:
    texts = read(folder, "late_to_the_first")
    beginning = "CollectiveError: execute_replicated: two: not all processes have come to run the program"
    assert texts[0].startswith(f"{beginning}: not everybody has come within the time limit")
    assert "device 1  process 2: " in texts[0]
    assert texts[2].startswith("CollectiveError: ")
    assert "process 0: not all processes have come to run the program: not everybody" in texts[2]


def test_arguments_that_do_not_fit_in_the_first_run_in_a_place(folder: Path) -> None:
    texts = read(folder, "refuses_the_first")
    assert texts[2].startswith("ExecutionError: two: device 0: parameter 0 takes")
    assert texts[0].startswith("CollectiveError: ")
    assert "process 2: two: device 0: parameter 0 takes" in texts[0]


def test_ctrl_c_before_a_first_run(folder: Path) -> None:
    texts = read(folder, "interrupted")
    assert texts[1].startswith("CollectiveError: ")
    assert "process 0: interrupted" in texts[1]


def test_programs_of_every_two_processes_at_the_same_time(folder: Path) -> None:
    assert read(folder, "ring") == ["[[0, 1], [2, 0]]", "[[0, 1], [1, 2]]", "[[1, 2], [2, 0]]"]


def test_results_of_sizes_that_differ_reach_every_process(folder: Path) -> None:
    assert set(read(folder, "sizes")) == {"[[0.0], [2.0, 2.0], [4.0, 4.0, 4.0], [6.0, 6.0, 6.0, 6.0]]"}
