"""The guard of refactorings: hashes of the text of every stage, for some hundred programs and every kind of target.

    python -m tests.stage_texts write build/before.json          # before a change that must not change any code
    python -m tests.stage_texts compare build/before.json        # after it: names the programs and stages that differ

Programs are those of the benchmarks, the examples in the operations' docstrings, and the modules of `tests/filecheck`.
Targets are CPUs with vectors of 256 bits, with AVX-512 and with AMX, `sm_80` and `sm_90a`, and the general paths of
both. Texts depend on the builds of MLIR and on the caches of the machine, so hashes of two machines are not comparable
and none are kept in the repository.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CPUS = {
    "cpu avx2": "vector-bits=256",
    "cpu avx512": "vector-bits=512 features=avx512_bf16+avx512_vnni",
    "cpu amx": "vector-bits=512 features=amx_bf16+amx_fp16+amx_int8+amx_tile+avx512_bf16+avx512_vnni",
    "cpu sse": "vector-bits=128 features=sse2",
    "cpu general": "vector-bits=256 general-only=true",
}
"""Options of `stablexla-emit-kernels` by the name of the target."""
GPUS = ("gpu:sm_80", "gpu:sm_90a")
SMALL_ONLY = ("cpu sse", "cpu general", "gpu general")
"""Targets for which the benchmarks are left out."""
Hashes = dict[str, dict[str, str]]


@dataclass
class _Stages:
    """A watcher that keeps the hash of the module after each step, and its text where that is asked for."""

    texts: dict[str, str] = field(default_factory=dict)

    def of(self, pipeline: Any, module: Any, readers: Any = None) -> Any:
        """Runs the pipeline; the module after it."""
        from stablexla.targets.pipeline.driver import Watcher, run_pipeline

        stages = self

        class Kept(Watcher):
            def after_step(self, number: int, step: Any, module: Any, seconds: float) -> None:
                read = (readers or {}).get(step.name, lambda m: m.operation.get_asm(large_elements_limit=None))
                stages.texts[step.name] = read(module)

        return run_pipeline(module, pipeline, watcher=Kept())


def _programs() -> dict[str, Callable[[], Any]]:
    """Every program whose packages are installed, by its name: what gives it to `load`."""
    from benchmarks.programs import PROGRAMS
    from tests.targets.gpu.operations import OPERATIONS, program_of

    def text(name: str) -> str:
        return PROGRAMS[name].text()

    found: dict[str, Callable[[], Any]] = {f"operation {name}": partial(program_of, name) for name in OPERATIONS}
    found |= {f"filecheck {name}": partial(str, module) for name, module in _modules()}
    here = {name for name, each in PROGRAMS.items() if each.group != "compile" and not each.missing}
    return found | {f"benchmark {name}": partial(text, name) for name in PROGRAMS if name in here}


def _modules() -> Iterator[tuple[str, str]]:
    """The modules of StableHLO in the text tests that have a function `main`."""
    for file in sorted((HERE / "filecheck").rglob("*.mlir")):
        for number, part in enumerate(file.read_text().split("// -----")):
            if "@main" in part and "stablehlo." in part:
                yield f"{file.stem} {number}", part


def texts_of(name: str) -> dict[str, dict[str, str]]:
    """The texts of a program: by target, then by stage. A program that a target refuses has the error for a text."""
    return {target: _texts(name, target) for target in (*CPUS, *GPUS, "gpu general") if _is_for(name, target)}


def _is_for(name: str, target: str) -> bool:
    return not name.startswith("benchmark ") or target not in SMALL_ONLY


def _texts(name: str, target: str) -> dict[str, str]:
    import warnings

    from stablexla.dialects.errors import StablexlaError
    from stablexla.interop.loading import load
    from stablexla.targets.pipeline.driver import copy_of

    kept = _Stages()
    warnings.simplefilter("ignore")
    try:
        module = copy_of(load(_programs_here()[name](), entry="main"))
        pipeline, readers = _pipeline(target)
        kept.of(pipeline, module, readers)
    except (StablexlaError, LookupError) as error:
        kept.texts["error"] = f"{type(error).__name__}: {error}"
    return kept.texts


_CACHE: dict[str, Callable[[], Any]] = {}


def _programs_here() -> dict[str, Callable[[], Any]]:
    if not _CACHE:
        _CACHE.update(_programs())
    return _CACHE


def _pipeline(target: str) -> tuple[Any, Any]:
    """The steps of a target, and what reads stages that are no MLIR."""
    import stablexla as sx
    from stablexla.targets.gpu.pipeline import plain_pipeline
    from stablexla.targets.registry import find_target

    options = sx.CompileOptions(num_threads=2)
    if target in CPUS:
        cpu = find_target("cpu").pipeline(options)
        return cpu.replacing_pass("stablexla-emit-kernels", f"stablexla-emit-kernels{{{CPUS[target]}}}"), None
    if target == "gpu general":
        return plain_pipeline("gpu:sm_80", options), find_target("gpu:sm_80").texts
    found = find_target(target)
    return found.pipeline(options), found.texts


def _hashes_of(name: str) -> tuple[str, Hashes]:
    made = {
        target: {stage: hashlib.sha256(text.encode()).hexdigest()[:16] for stage, text in texts.items()}
        for target, texts in texts_of(name).items()
    }
    return name, made


def hash_all(names: list[str], jobs: int) -> dict[str, Hashes]:
    """The hashes of these programs, by as many processes."""
    found: dict[str, Hashes] = {}
    start = time.perf_counter()
    with get_context("spawn").Pool(jobs, maxtasksperchild=60) as pool:
        for name, hashes in pool.imap_unordered(_hashes_of, names):
            found[name] = hashes
            if sys.stderr.isatty():
                print(f"\r\x1b[K{len(found)}/{len(names)}  {name}", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    print(f"{len(found)} programs, {_count(found)} stages in {time.perf_counter() - start:.0f} s")
    return found


def _count(hashes: dict[str, Hashes]) -> int:
    return sum(len(stages) for targets in hashes.values() for stages in targets.values())


def _different(before: dict[str, Hashes], after: dict[str, Hashes]) -> Iterator[str]:
    """One line for each program and target that differs, with the stages that do."""
    for name in sorted(before.keys() & after.keys()):
        for target in sorted(before[name].keys() | after[name].keys()):
            old, new = before[name].get(target, {}), after[name].get(target, {})
            changed = [stage for stage in {**old, **new} if old.get(stage) != new.get(stage)]
            if changed:
                yield f"{name} | {target} | {' '.join(changed)}" + (" (was an error)" if "error" in old else "")


def main() -> int:
    """Writes or compares; the exit code is 1 when something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.stage_texts", description=__doc__.split("\n\n")[0])
    parser.add_argument("command", choices=["write", "compare", "show"])
    parser.add_argument(
        "file", type=Path, help="the hashes, as JSON; for `show`, the folder that texts are written into"
    )
    parser.add_argument("--programs", default="", help="only those with this in their names")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    names = [name for name in _programs_here() if args.programs in name]
    if args.command == "show":
        for name in names:
            for target, texts in texts_of(name).items():
                for stage, text in texts.items():
                    path = args.file / name.replace(" ", "_") / target.replace(" ", "_") / f"{stage}.mlir"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text)
        return 0
    if args.command == "write":
        args.file.parent.mkdir(parents=True, exist_ok=True)
        args.file.write_text(json.dumps(hash_all(names, args.jobs), indent=0, sort_keys=True))
        return 0
    before = json.loads(args.file.read_text())
    lines = list(_different(before, hash_all([name for name in names if name in before], args.jobs)))
    print("\n".join(lines) or "all texts are the same")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
