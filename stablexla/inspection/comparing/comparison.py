"""The result of `executable.compare`: whether two ways of running a program agree, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, is_dataclass
from pathlib import Path
from typing import Any

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.inspection.comparing.findings import Difference, Finding, NotJudged


@dataclass(frozen=True)
class Comparison:
    """A program run in two ways on the same arguments.

    Attributes:
        name: the program's.
        against: the reference: "interpreter", "xla", a stage, or the name of a pipeline.
        equal: whether no operation is wrong and the results agree but for rounding, as far as they could be compared;
            false when nothing could be.
        finding: the first wrong operation; None when there is none.
        results: for each result that differs its number and how, where all is equal by rounding that has grown; those
            that agree are left out.
        result_count: how many results the program has.
        operations: how many operations it has but for constants, those of called functions where they are called.
        judged: how many of them were judged, with those inside loops and branches that were looked into.
        not_judged: the others, and why.
        whole: whether the program's results could be compared.
        excused: known faults of the other side, and freedoms of the standard, with their counts.
        notes: further remarks.
        seconds: how long it took.
        stopped: what ended it early, the time limit or Ctrl-C; "" where all was looked at.
    """

    name: str
    against: str
    equal: bool
    finding: Finding | None
    results: dict[int, Difference]
    result_count: int
    operations: int
    judged: int
    not_judged: tuple[NotJudged, ...] = ()
    whole: bool = True
    excused: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    stopped: str = ""

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        from stablexla.inspection.comparing.report import plain_text

        return plain_text(self)

    def __repr__(self) -> str:
        what = "equal" if self.equal else f"first wrong: {self.finding.operation}" if self.finding else "different"
        return f"Comparison({self.name!r} against {self.against!r}: {what})"

    def _repr_html_(self) -> str:
        from stablexla.inspection.comparing.report import html

        return html(self)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON; of the smallest program its text and argument types."""
        made = _plain(self)
        assert isinstance(made, dict)
        return made

    def save(self, folder: str | Path, options: Sequence[str] = ()) -> Path | None:
        """Write the smallest failing program, its arguments, and the command to run it.

        Args:
            folder: where to; made if it is not there.
            options: of the command `stablexla-run`, beside program, inputs and pipeline; by default `--compare`.

        Returns:
            The program's path: `program.mlir`, beside `inputs.npz`, `expected.npz` where the right results are known,
            and `README.txt`. None when there is no such program.
        """
        from stablexla.inspection.comparing.report import save

        return save(self, Path(folder), options)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        made = {name: getattr(value, name) for name in value.__dataclass_fields__}
        if "arguments" in made and "text" in made and "operations" in made:
            made["arguments"] = [f"{a.dtype.name}{list(a.shape)}" for a in made["arguments"]]
            made.pop("wanted", None)
        return {name: _plain(v) for name, v in made.items()}
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value
