"""The child process of the proof: runs the calls of a function one by one, and tells of each before and after.

A line of JSON comes in, {"path": ..., "skip": n}; {"begin": label} and {"trial": ...} go out, at last {"done": n}.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from tests.interop.proof.calls import Call
from tests.interop.proof.judge import Verdict
from tests.interop.proof.trial import Trial, attempt, by_plugin, first_line, trial_of


class Cache:
    """What is known of programs from earlier runs: a small file for each, by the hash of program and arguments."""

    def __init__(self, folder: Path, fresh: bool) -> None:
        self._folder, self._fresh = folder, fresh
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> Trial | None:
        if self._fresh:
            return None
        try:
            return trial_of(json.loads((self._folder / f"{key}.json").read_text()))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, trial: Trial) -> None:
        if not trial.key:
            return
        part = self._folder / f"{trial.key}.{os.getpid()}"
        part.write_text(json.dumps(trial.as_dict()))
        part.rename(self._folder / f"{trial.key}.json")


def subject(path: str) -> tuple[Callable[..., Any], Iterator[Call]]:
    """A function and its calls, or a program of a library and its one call."""
    if path.startswith("programs."):
        from tests.interop.proof.programs import PROGRAMS

        function, arguments = PROGRAMS[path].make()
        return function, iter([Call(arguments, label=path.rpartition(".")[2])])
    from tests.interop.proof.catalogue import calls_of
    from tests.interop.proof.inventory import find

    public = find(path)
    return public.value, calls_of(public)


def serve(questions: TextIO, answers: TextIO, cache: Cache) -> None:
    """Answers until the questions end."""
    import jax

    if by_plugin():  # the oracles stay with XLA
        jax.config.update("jax_default_device", jax.devices("cpu")[0])

    def tell(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    for line in questions:
        asked = json.loads(line)
        count = 0
        try:
            function, calls = subject(asked["path"])
            for call in calls:
                count += 1
                if count <= asked["skip"]:
                    continue
                tell(begin=str(call))
                trial = attempt(function, call, cache.get)
                cache.put(trial)
                tell(trial=trial.as_dict())
        except Exception as error:  # of making the function or its calls
            count += 1
            tell(trial=Trial("", Verdict("JAX fails", note=first_line(error))).as_dict())
        tell(done=count)
        jax.clear_caches()


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print must not mix with the answers
    serve(sys.stdin, answers, Cache(Path(sys.argv[1]), "--fresh" in sys.argv))
