"""Writes the tables of docs/gpu.md: kinds of kernels and emitters, operations and their kernels, the host's part.

A small program of every operation is compiled for that (`tests/targets/gpu/operations.py`). Run as
`python docs/make_gpu_table.py`; with `--check` it writes nothing and says whether the tables are up to date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from stablexla.targets.cpu.emitters import EMITTERS as ON_CPU  # noqa: E402
from stablexla.targets.gpu.emitters import EMITTERS  # noqa: E402
from stablexla.targets.host.emitters import HOST_EMITTERS  # noqa: E402
from stablexla.targets.pipeline.steps import register_passes  # noqa: E402
from tests.targets.gpu.operations import CHIP, OPERATIONS, kernels_of  # noqa: E402

register_passes("cpu", "gpu")  # and emitters
PAGE = ROOT / "docs/gpu.md"
BEGIN, END = "<!-- made by docs/make_gpu_table.py -->\n", "<!-- end of what it makes -->"

REASONS = {
    "collective": (
        "collectives",
        "devices meet in the host's memory; programs for several GPUs compile, and do not run yet",
    ),
    "device": ("`replica_id`, `partition_id`", "the run knows which device it is; they are one number each"),
    "host": ("custom calls, infeeds, outfeeds, `send`, `recv`", "their functions and queues are the host's"),
    "lapack": ("calls of LAPACK (`eigh`, `svd`, `qr` of JAX)", "LAPACK is a library of the host"),
    "random_key": (
        "seeds of `rng_uniform`, `rng_normal`",
        "the generator's state is the host's; its bits are made on the device",
    ),
}
"""What kernels that run on the host are for, and why they do."""


def tables(kernels: Mapping[str, str]) -> str:
    """What stands between the marks; `kernels` are those of each operation's program."""
    kinds = [[f"`{kind}`", _files(kind)] for kind in sorted(EMITTERS)]
    groups: dict[str, list[str]] = {}
    for name in sorted(kernels):
        groups.setdefault(kernels[name], []).append(f"`{name}`")
    ways = [[way, ", ".join(names)] for way, names in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))]
    host = [[f"`{kind}`", *REASONS[kind]] for kind in sorted(HOST_EMITTERS)]
    general = ", ".join(f"`{kind}`" for kind in kinds_without())
    return "\n\n".join(
        [
            "### Kinds of kernels",
            "Emitters are asked in this order; what none of them takes goes the general path.",
            _table(["kind", "emitters in `targets/gpu/`"], kinds),
            _table(["emitter", "takes"], _emitters()),
            f"Kinds without one: {general}." if general else "Every kind has one.",
            "### Operations",
            f"Kernels of a small program of each operation, compiled for {CHIP}: the kinds of those that an emitter "
            "wrote, *(general)* for the general path, *(host)* for a call on the host. *none*: nothing is computed.",
            _table(["kernels", "operations"], ways),
            "### On the host",
            _table(["kind", "what", "why"], host),
        ]
    )


def kinds_without() -> list[str]:
    """Kinds of kernels that only the general path writes."""
    return sorted(set(ON_CPU) - set(EMITTERS) - set(HOST_EMITTERS))


def _files(kind: str) -> str:
    names = dict.fromkeys(map(_file_of, EMITTERS[kind]))
    return ", ".join(f"`{name}`" for name in names)


def _file_of(emitter: Callable[..., object]) -> str:
    """The file of an emitter in `targets/gpu/`, without its ending."""
    return emitter.__module__.partition(".gpu.")[2].replace(".", "/")


def _emitters() -> list[list[str]]:
    """What each of them takes, in its own words."""
    found = {_file_of(e): e.__doc__ or "" for them in EMITTERS.values() for e in them}
    said = {name: text.split("\n\n")[0].split() for name, text in found.items()}
    return [[f"`{name}`", " ".join(words).removeprefix("Emit ").rstrip(".")] for name, words in sorted(said.items())]


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])


def written_tables() -> str:
    """What stands between the marks in the page now."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip()


def written_kernels() -> dict[str, str]:
    """The kernels of each operation, as the page has them."""
    part = written_tables().partition("### Operations")[2].partition("###")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][2:]
    return {name: way for way, names in rows for name in re.findall(r"`(\w+)`", names)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when the page is out of date")
    checked = parser.parse_args().check
    made = tables({name: kernels_of(name) for name in OPERATIONS})
    if checked:
        return int(made != written_tables())
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{made}\n\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
