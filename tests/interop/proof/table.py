"""What became of all calls, as a table of functions: docs/interop.md, and a line for each call in docs/interop.tsv."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from tests.interop.proof.inventory import MODULES, Public
from tests.interop.proof.judge import CLOSE, CLOSE_SMALL, FACTOR, JUDGED, SLACK, Verdict
from tests.interop.proof.known import KNOWN
from tests.interop.proof.trial import Trial

LIBRARIES = ("jax", "jaxlib", "flax", "equinox", "optax", "diffrax", "optimistix", "numpyro", "blackjax")
_ORDER = ("equal", "JAX fails", "differs", "unsupported", "timeout", "died")
COLUMNS = ("function", "call", "state", "how", "ulp", "ours", "theirs", "note")


@dataclass(frozen=True)
class Row:
    """A function: what became of its calls."""

    path: str
    trials: tuple[Trial, ...]

    @property
    def state(self) -> str:
        """The worst of its calls; "no calls" where there was none."""
        states = [trial.verdict.state for trial in self.trials]
        return max(states, key=_ORDER.index) if states else "no calls"

    @property
    def worst(self) -> Trial | None:
        """The call that the table speaks of: the first of the worst state, the largest distance among equal ones."""
        found = [trial for trial in self.trials if trial.verdict.state == self.state]
        return (
            max(found, key=lambda trial: trial.verdict.ulp)
            if found and self.state == "equal"
            else next(iter(found), None)
        )

    @property
    def how(self) -> str:
        """Of an equal one: "bits", "ULP", "as near" or "as interpreted", the weakest of its calls."""
        order = ("", "bits", "ULP", *JUDGED)
        return max((trial.verdict.how for trial in self.trials), key=order.index) if self.state == "equal" else ""

    @property
    def is_fault(self) -> bool:
        """Whether it is something to mend: neither equal nor explained."""
        return self.state not in ("equal", "JAX fails") and self.path not in KNOWN


def read_tsv(text: str) -> dict[str, tuple[Trial, ...]]:
    """The calls of each function that a docs/interop.tsv holds."""
    found: dict[str, list[Trial]] = {}
    for line in text.splitlines()[2:]:
        path, label, state, how, ulp, ours, theirs, note = line.split("\t")
        verdict = Verdict(state, how, float(ulp), float(ours), float(theirs), note)  # type: ignore[arg-type]
        found.setdefault(path, []).append(Trial(label, verdict))
    return {path: tuple(trials) for path, trials in found.items()}


def write_tsv(rows: Iterable[Row]) -> str:
    """What it was run with, and a line for each call."""
    lines = ["# " + ", ".join(f"{name} {version(name)}" for name in LIBRARIES), "\t".join(COLUMNS)]
    for row in rows:
        for trial in row.trials:
            v = trial.verdict
            note = " ".join(v.note.split())
            lines.append(
                "\t".join([row.path, trial.label, v.state, v.how, *map(_number, (v.ulp, v.ours, v.theirs)), note])
            )
    return "\n".join(lines) + "\n"


def _number(x: float) -> str:
    return f"{x:.3g}"


def page(
    tsv: str,
    by_plugin: str,
    paths: Sequence[str],
    names: Sequence[Public],
    reasons: Mapping[str, str],
    abouts: Mapping[str, str],
) -> str:
    """The text of docs/interop.md for docs/interop.tsv and docs/interop_plugin.tsv, in the order of `paths`."""
    found, plugin = read_tsv(tsv), read_tsv(by_plugin)
    rows = [Row(path, found[path]) for path in paths if path in found]
    others = {path: Row(path, plugin[path]) for path in paths if path in plugin}
    functions = [row for row in rows if not row.path.startswith("programs.")]
    programs = [row for row in rows if row.path.startswith("programs.")]
    nothing = [name for name in names if name.path in reasons]
    parts = [
        "# JAX's functions and libraries on stablexla",
        "Made by `python docs/make_interop.py`; don't edit. [interop.tsv](interop.tsv) has a line for each call, "
        "[another file](interop_plugin.tsv)\none for each by the [PJRT plugin](jax.md). Formats of files have a page "
        "of their own: [interop_formats.md](interop_formats.md).",
        _totals(functions, programs, nothing, tsv.splitlines()[0].removeprefix("# ")),
        _of_plugin([others[row.path] for row in rows if row.path in others], by_plugin.splitlines()[0]),
        _HOW,
        "## Libraries",
        _programs(programs, others, abouts),
        _explained(rows),
    ]
    for module in [*MODULES, *sorted({row.path.rpartition(".")[0] for row in functions} - set(MODULES))]:
        own = [row for row in functions if row.path.rpartition(".")[0] == module]
        if own:
            parts += [f"## {module}", _functions(own)]
    parts += ["## What is no computation", _no_computations(nothing, reasons)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _of_plugin(rows: Sequence[Row], versions: str) -> str:
    """How many there are of each state by the plugin, and what is not equal."""
    states = Counter(row.state for row in rows)
    counts = ", ".join(f"{states[state]} {state}" for state in (*_ORDER, "no calls") if states[state])
    others = [f"| {row.path} | {row.state} | {_note(row)} |" for row in rows if row.state != "equal"]
    lines = [
        f"By the plugin, `JAX_PLATFORMS=stablexla` and `jax.jit`, the same calls and programs: **{counts}**, with",
        f"{versions.removeprefix('# ')}.",
    ]
    return "\n".join([*lines, "", "| by the plugin | state | note |", "|---|---|---|", *others] if others else lines)


def _totals(functions: Sequence[Row], programs: Sequence[Row], nothing: Sequence[Public], versions: str) -> str:
    """How many there are of each state."""
    lines = []
    for what, rows in (("functions of JAX", functions), ("programs of libraries", programs)):
        states = Counter(row.state for row in rows)
        hows = Counter(row.how for row in rows if row.state == "equal")
        calls = sum(len(row.trials) for row in rows)
        others = ", ".join(f"{states[s]} '{s}'" for s in (*_ORDER[1:], "no calls") if states[s]) or "none other"
        lines.append(
            f"- **{len(rows)} {what}** in {calls} calls: **{states['equal']} equal** ({hows['bits']} to the bit, "
            f"{hows['ULP']} within {CLOSE:.0f} ULP, {hows['as near']} as near to the exact result, "
            f"{hows['as interpreted']} as the reference interpreter), {others}."
        )
    lines.append(f"- {len(nothing)} public names are no computations.")
    return "\n".join([*lines, "", f"With {versions}."])


_HOW = f"""Each function is traced by JAX, compiled by `jax.jit` and by `stablexla.interop.jax.jit`, and run on the same
arguments. Types, shapes and every number of the results are compared. Where there is a gradient, it is a further call.
Arguments are small arrays of f32, bf16, s32, c64 and pred, chosen by the signature or written down in
`tests/interop/proof/catalogue/`.

- **bits**: all results are the same to the bit (bits of NaN left out).
- **n ULP**: the largest distance in units of the last place: at most {CLOSE:.0f}, or {CLOSE_SMALL:.0f} for floats of
  16 bits.
- **as near**: further apart, as sums in another order and other approximations of elementary functions make them. The
  same program is run with all floats in double precision, and the distances of both results from that are given: here,
  and JAX's. The one here may be {FACTOR:.0f} times JAX's, or {SLACK:.0f} ULP, of the worst element; where sums cancel,
  in units of the largest number of the array, or of the results.
- **as interpreted**: further from that than JAX's, and so is StableHLO's reference interpreter, which rounds each
  operation as it is written: the result is the interpreter's, or as near. XLA:CPU makes one operation of a product and
  a sum, which shows where numbers cancel.
- **differs**, **unsupported**: everything else. What is explained stands in a table.

`python docs/make_interop.py` runs all of it, `--plugin` by the plugin; what was equal in an earlier run of the same
program on the same arguments is taken from `build`, unless `--fresh`. `--only PATTERN` runs some and prints them,
`--check` tells what the page lacks."""


def _programs(rows: Sequence[Row], by_plugin: Mapping[str, Row], abouts: Mapping[str, str]) -> str:
    lines = ["| library | program | what it is | state | by the plugin | note |", "|---|---|---|---|---|---|"]
    for row in rows:
        _, library, name = row.path.split(".")
        other = by_plugin[row.path].state if row.path in by_plugin else ""
        lines.append(f"| {library} | {name} | {abouts[row.path]} | {_state(row)} | {other} | {_note(row)} |")
    return "\n".join(lines)


def _functions(rows: Sequence[Row]) -> str:
    lines = ["| function | state | calls | note |", "|---|---|---|---|"]
    lines += [f"| {row.path.rpartition('.')[2]} | {_state(row)} | {len(row.trials)} | {_note(row)} |" for row in rows]
    return "\n".join(lines)


def _explained(rows: Sequence[Row]) -> str:
    found = [row for row in rows if row.path in KNOWN and row.state != "equal"]
    if not found:
        return ""
    lines = ["## What differs, and why", "", "| function | state | why |", "|---|---|---|"]
    lines += [f"| {row.path} | {row.state} | {KNOWN[row.path]} |" for row in found]
    return "\n".join(lines)


def _state(row: Row) -> str:
    """As "equal, bits", "equal, 2 ULP", "equal, as near (5 and 7 ULP)", "equal, as interpreted (8 and 1 ULP)"."""
    if row.state != "equal" or row.worst is None:
        return row.state
    if row.how in JUDGED:
        found = max((t.verdict for t in row.trials if t.verdict.how == row.how), key=lambda v: v.ulp)
        return f"equal, {row.how} ({_number(found.ours)} and {_number(found.theirs)} ULP)"
    return "equal, bits" if row.how == "bits" else f"equal, {_number(row.worst.verdict.ulp)} ULP"


def _note(row: Row) -> str:
    if row.state == "equal" or row.worst is None:
        return ""
    note = row.worst.verdict.note.replace("|", "\\|")
    return f"{row.worst.label}: {note[:150]}"


def _no_computations(names: Sequence[Public], reasons: Mapping[str, str]) -> str:
    by_reason: dict[tuple[str, str], list[str]] = {}
    for name in names:
        by_reason.setdefault((name.module, reasons[name.path]), []).append(name.name)
    lines = ["| module | names | why |", "|---|---|---|"]
    lines += [f"| {module} | {', '.join(sorted(found))} | {why} |" for (module, why), found in by_reason.items()]
    return "\n".join(lines)
