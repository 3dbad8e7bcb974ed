"""`make sanitize` names tests that exist, and suppresses nothing without a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sanitize import __main__ as command
from tests.sanitize.sanitizers import HERE, SANITIZERS, Sanitizer

ROOT = HERE.parents[1]
KINDS = {"address.supp": ("interceptor_name", "interceptor_via_fun", "interceptor_via_lib", "odr_violation")}
KINDS["thread.supp"] = ("race", "race_top", "thread", "mutex", "signal", "deadlock", "called_from_lib")


def suppressions(text: str) -> list[tuple[str, str]]:
    """Each suppression with the comment right above it, "" where there is none."""
    found, reason = [], ""
    for line in text.splitlines():
        if line.startswith("#"):
            reason += line.removeprefix("#").strip()
        elif line.strip():
            found.append((line.strip(), reason))
            reason = ""
        else:
            reason = ""
    return found


@pytest.mark.parametrize("file", sorted(HERE.glob("*.supp")), ids=lambda file: file.name)
def test_each_suppression_has_a_reason(file: Path) -> None:
    for line, reason in suppressions(file.read_text()):
        kind, _, pattern = line.partition(":")
        assert len(reason) > 20, f"{file.name}: {line} has no reason"
        assert pattern not in ("", "*"), f"{file.name}: {line} suppresses everything"
        assert "stablexla" not in pattern or kind != "race", f"{file.name}: {line} is of our own code"
        assert kind in KINDS.get(file.name, (kind,)), f"{file.name}: there is no suppression of {kind}"


def test_a_suppression_without_a_reason_is_told_of() -> None:
    assert suppressions("# because\nrace:a\nrace:b\n\n# far away\n\nrace:c") == [
        ("race:a", "because"),
        ("race:b", ""),
        ("race:c", ""),
    ]


@pytest.mark.parametrize("sanitizer", SANITIZERS.values(), ids=list(SANITIZERS))
def test_the_tests_exist(sanitizer: Sanitizer) -> None:
    names = [group.name for group in sanitizer.groups]
    assert names
    assert len(set(names)) == len(names)
    for group in sanitizer.groups:
        texts = "".join((ROOT / test.partition("::")[0]).read_text() for test in group.tests)
        for test, reason in group.without:
            assert test in texts, f"{group.name}: nothing is called {test}"
            assert len(reason) > 10


def test_a_finding_fails_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    """A test may pass, and its exit code be 0, while the sanitizer reported something."""
    report = tmp_path / "report"
    report.write_text("data race")
    monkeypatch.setattr(command, "build", lambda sanitizer: None)
    monkeypatch.setattr(command, "_probe", lambda sanitizer: command.Outcome("planted faults", "", True, ()))
    for reports, code in ((), 0), ((report,), 1):
        outcome = command.Outcome("group", "1 passed", True, reports)
        monkeypatch.setattr(command, "_run", lambda sanitizer, group, outcome=outcome: outcome)
        assert command.main(["address"]) == code
    assert "FINDINGS  group: 1 passed" in capsys.readouterr().out
