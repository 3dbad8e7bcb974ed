"""Writes `jax_tests.md`: JAX's own tests on the platform stablexla, and beside them on XLA's CPU.

`python docs/make_jax_tests.py CHECKOUT [FILE ...]`: CHECKOUT is a clone of JAX at the version that is installed
(`git clone --branch jax-v0.10.2 ...`), of which nothing is copied; FILE is a name in its folder `tests`. Each file runs
in a process of its own, once by each platform, on the same tests, drawn by their names; after a crash, or a test that
takes too long, the rest runs in another process. Outcomes are kept in `build/jax_tests`, and the page is made of all
that are there. Without FILE, files of the list run that have none yet. JAX's tests need absl-py, some hypothesis.

Exits with 1 where a test that XLA's CPU passes fails here without a reason in `KNOWN`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/jax_tests.md"
KEPT = ROOT / "build/jax_tests"
OURS, XLA = "stablexla", "cpu"
PASSED, SKIPPED, FAILED, CRASHED = "passed", "skipped", "failed", "crashed"
RECORD, DRAW = "JAX_TESTS_RECORD", "JAX_TESTS_DRAW"  # environment variables, for the plugin of pytest below

# fmt: off
FILES = (
    "aot", "api", "array", "array_interoperability", "batching", "buffer_callback", "cache_key", "checkify",
    "cholesky_update", "compilation_cache", "core", "custom_api", "custom_linear_solve", "custom_partitioning",
    "custom_root", "debug_nans", "debugger", "debugging_primitives", "device", "dtypes", "eigh", "error_check",
    "errors", "experimental_rnn", "export", "ffi", "fft", "fused", "generated_fun", "hijax", "image", "jet",
    "key_reuse", "lax_autodiff", "lax_control_flow", "lax_numpy", "lax_numpy_einsum", "lax_numpy_indexing",
    "lax_numpy_operators", "lax_numpy_reducers", "lax_numpy_setops", "lax_numpy_ufuncs", "lax_numpy_vectorize",
    "lax_scipy", "lax_scipy_sparse", "lax_scipy_special_functions", "lax", "lax_vmap", "lax_vmap_op", "layout",
    "linalg", "linalg_sharding", "lobpcg", "memories", "multi_device", "mutable_array", "nn", "ode", "optimizers",
    "pickle", "pjit", "pmap", "polynomial", "profiler", "python_callback", "qdwh", "ragged_collective", "random",
    "random_impl", "random_lax", "scaled_dot", "scipy_fft", "scipy_interpolate", "scipy_ndimage", "scipy_optimize",
    "scipy_signal", "scipy_spatial", "scipy_stats", "shape_poly", "shard_alike", "shard_map", "sparse",
    "sparse_bcoo_bcsr", "sparsify", "stateful_rng", "stax", "svd", "transfer_guard", "x64_context",
)
# fmt: on

KNOWN = {
    r"array_interop.*testNumpyToJax0": "JAX expects the call to fail, as by XLA; here it gives the array",
    r"test_dump_on_cache_hit": "an option of XLA's: where it dumps its text",
    r"test_custom_partitioner_invalid_sharding": "partitionings that a program brings are not called",
    r"test_effects_hlo": "a call of LAPACK without its operands is refused when it is compiled, by XLA when it runs",
    r"near_singular_inverse": "subnormal numbers are kept here; XLA flushes them, so that the matrix is singular there",
    r"device_test.*(test_repr|test_str)": "the name of a device, which is `stablexla:0` on purpose",
}
"""Why tests fail here that XLA's CPU passes, by a pattern of `file.py::Class::test`."""


class Outcome(NamedTuple):
    """The outcome of a test.

    Attributes:
        why: the first line of what went wrong.
    """

    state: str
    test: str
    why: str


# ---- a plugin of pytest, in the process of the tests


def pytest_configure(config: Any) -> None:
    """Leave it a warning that an operation is not partitioned: JAX's settings make errors of all warnings."""
    config.addinivalue_line("filterwarnings", "default::stablexla.ReplicationWarning")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keep tests that are drawn by their names, and have not run yet."""
    done = {each.test for each in outcomes(Path(os.environ[RECORD]))}
    rank = {item: hashlib.sha256(item.name.encode()).digest() for item in items}
    drawn = sorted(rank.values())[: int(os.environ[DRAW])]
    last = drawn[-1:]  # tests of one name in several classes are drawn together
    items[:] = [item for item in items if [rank[item]] <= last and item.nodeid not in done]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Write that a test begins: without another line it has ended the process."""
    _write(Outcome(CRASHED, nodeid, "the process ended"))


def pytest_runtest_logreport(report: Any) -> None:
    """Write the outcome of a test."""
    if report.when == "call" or report.outcome != PASSED:
        lines = [line for line in str(report.longrepr or "").splitlines() if line.startswith("E ")]
        _write(Outcome(report.outcome, report.nodeid, lines[0][1:].strip() if lines else ""))


def _write(outcome: Outcome) -> None:
    with open(os.environ[RECORD], "a") as record:
        record.write("\t".join(outcome).replace("\n", " ") + "\n")


# ---- the runs


def record_of(platform: str, file: str) -> Path:
    """Return where outcomes are kept."""
    return KEPT / platform / f"{file}.tsv"


def outcomes(record: Path) -> list[Outcome]:
    """Read them; of several lines of a test the worst counts, once it has ended."""
    found: dict[str, Outcome] = {}
    for line in record.read_text().splitlines() if record.exists() else ():
        outcome = Outcome(*line.split("\t", 2))
        if outcome.test not in found or found[outcome.test].state in (CRASHED, PASSED):
            found[outcome.test] = outcome
    return list(found.values())


def run(checkout: Path, platform: str, file: str, given: argparse.Namespace) -> None:
    """Run one file's tests that have no outcome, in as many processes as it takes."""
    record = record_of(platform, file)
    record.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "JAX_PLATFORMS": platform,
        "JAX_NUM_CPU_DEVICES": str(given.devices),
        "JAX_NUM_GENERATED_CASES": str(given.cases),
        "JAX_SKIP_SLOW_TESTS": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        RECORD: str(record),
        DRAW: str(given.draw),
    }
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", Path(__file__).stem, file]
    line += ["-o", f"faulthandler_timeout={given.seconds}", "-o", "faulthandler_exit_on_timeout=true"]
    while True:
        done = subprocess.run(line, cwd=checkout / "tests", env=environment, capture_output=True, text=True)
        lines = record.read_text().splitlines() if record.exists() else []
        has_ended = not lines or not lines[-1].startswith(CRASHED)
        if has_ended and (done.returncode == 5 or (done.returncode in (0, 1) and lines)):  # no tests; passed or failed
            return
        if has_ended:
            end = [each for each in (done.stdout + done.stderr).splitlines() if each.startswith("E ")][-1:]
            print(f"{file} by {platform}: the process ended with {done.returncode}: {''.join(end)}")
            return
        if "Timeout (" in done.stderr:
            _, test, _ = lines[-1].split("\t")
            record.write_text("\n".join([*lines[:-1], f"{FAILED}\t{test}\tnot done in {given.seconds:g} s"]) + "\n")


def forget(platform: str, file: str, tests: set[str]) -> None:
    """Drop the outcomes of some tests."""
    record = record_of(platform, file)
    rows = [line for line in record.read_text().splitlines() if line.split("\t")[1] not in tests]
    record.write_text("".join(row + "\n" for row in rows))


# ---- the page


class Compared(NamedTuple):
    """A file's tests by both platforms, by their names."""

    ours: dict[str, Outcome]
    xla: dict[str, Outcome]

    def worse(self) -> list[Outcome]:
        """Return what fails here, is skipped or did not run, that XLA's CPU passes."""
        passed = [test for test, outcome in self.xla.items() if outcome.state == PASSED]
        found = [self.ours.get(test, Outcome(FAILED, test, "it did not run")) for test in passed]
        return [outcome for outcome in found if outcome.state != PASSED]

    def counts(self) -> list[int]:
        """Return how many tests passed, were skipped and failed, here and by XLA's CPU."""
        states = (PASSED,), (SKIPPED,), (FAILED, CRASHED)
        both = self.ours.values(), self.xla.values()
        return [sum(outcome.state in state for outcome in each) for each in both for state in states]


def kept() -> list[str]:
    """Return the files that ran by both platforms."""
    return [path.stem for path in sorted((KEPT / OURS).glob("*.tsv")) if record_of(XLA, path.stem).exists()]


def compared(name: str) -> Compared:
    """Return the outcomes that are kept of a file."""
    return Compared(*({each.test: each for each in outcomes(record_of(p, name))} for p in (OURS, XLA)))


def reason(test: str) -> str | None:
    """Return why a test fails here, where that is known."""
    return next((why for pattern, why in KNOWN.items() if re.search(pattern, test)), None)


def page(files: dict[str, Compared], versions: str, given: argparse.Namespace) -> str:
    """Return the page's text."""
    rows = [(name, *each.counts()) for name, each in files.items()]
    total = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]
    worse = [each for one in files.values() for each in one.worse()]
    better = sum(len(Compared(one.xla, one.ours).worse()) for one in files.values())
    lines = [
        "# JAX's own tests",
        "",
        "Made by `python docs/make_jax_tests.py CHECKOUT`; don't edit. CHECKOUT is a clone of JAX at the installed",
        f"version, here {versions}. The tests of {len(rows)} files run with `JAX_PLATFORMS=stablexla`",
        f"([jax.md](jax.md)) and with XLA's CPU, {given.devices} devices each: of a file all, or at least {given.draw}",
        f"that are drawn by their names, and {given.cases} case of each that draws cases. That an operation is not",
        "partitioned is a warning, as everywhere, where JAX's settings for tests make errors of all warnings.",
        "",
        f"**Of the {total[3]} tests that XLA's CPU passes, {total[3] - len(worse)} pass here, "
        f"{100 * (1 - len(worse) / total[3]):.1f}%**; {better} pass here alone.",
        "",
        "| file | passed | skipped by JAX | failed | by XLA's CPU | skipped | failed |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *("| " + " | ".join(map(str, row)) + " |" for row in [*rows, ("all", *total)]),
        "",
        "## Tests that XLA's CPU passes and that fail here",
        "",
        "| test | why |",
        "|---|---|",
        *(f"| `{each.test.removeprefix('tests/')}` | {reason(each.test) or each.why} |" for each in worse),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("files", nargs="*", help="run these anew")
    parser.add_argument("--draw", type=int, default=40, help="the most tests of a file (default 40)")
    parser.add_argument("--cases", type=int, default=1, help="of a test that draws them (default 1)")
    parser.add_argument("--devices", type=int, default=8, help="of the platform (default 8, as JAX's tests want)")
    parser.add_argument("--seconds", type=float, default=180, help="the most for a test (default 180)")
    parser.add_argument("--failed", action="store_true", help="run anew what fails here and passes with XLA's CPU")
    parser.add_argument("--page", action="store_true", help="run nothing")
    given = parser.parse_intermixed_args(arguments)
    if not (given.checkout / "tests").is_dir():
        parser.error(f"{given.checkout} has no folder tests")
    names = [] if given.page else given.files or [f"{name}_test.py" for name in FILES]
    platforms = (OURS, XLA)
    if given.failed:
        failed = {file: {outcome.test for outcome in compared(file).worse()} for file in kept()}
        names, platforms = [file for file, tests in failed.items() if tests], (OURS,)
        for file in names:
            forget(OURS, file, failed[file])
    for file, platform in product(given.files, platforms):
        record_of(platform, file).unlink(missing_ok=True)
    for file in names:
        for platform in platforms:
            run(given.checkout, platform, file, given)
        print(file, *compared(file).counts(), flush=True)
        for outcome in compared(file).worse():
            print(f"  {outcome.state} {outcome.test}: {outcome.why}", flush=True)
    import jax
    import jaxlib

    files = {name: compared(name) for name in kept()}
    PAGE.write_text(page(files, f"jax {jax.__version__}, jaxlib {jaxlib.__version__}", given))
    unknown = [outcome.test for each in files.values() for outcome in each.worse() if reason(outcome.test) is None]
    print(*(f"no reason is known: {test}" for test in unknown), sep="\n")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
