"""What calls cost by the PJRT plugin beside XLA:CPU, through the same `jax.jit`, and what memory they leave behind.

    python -m benchmarks.plugin            # tables
    python -m benchmarks.plugin --write    # and into docs/jax.md

Each platform is measured in processes of its own, which take turns; the least time counts. Memory is what the process
has more after the calls than before; XLA's stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import replace_between

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "jax.md"
BEGIN, END = "<!-- calls by the plugin -->", "<!-- end of calls by the plugin -->"
PLATFORMS = {"stablexla": "plugin", "cpu": "XLA:CPU"}
TIMES = {
    "one": "`x + 1`, f32[2,2]",
    "ten": "the sum of ten f32[2,2]",
    "numpy": "`x + 1`, f32[2,2] of numpy's, and the result read",
    "step": "a training step of `examples/jax_function.py`",
    "loop": "twenty such steps, then the loss",
    "interop": "a step by `interop.jax.jit`",
}
MEMORY = {
    "calls": "1,000,000 calls of `x + 1`",
    "arrays": "100,000 arrays made of numpy's and dropped",
    "programs": "1,000 programs compiled and dropped",
}


def least(call: Callable[[], object], count: int, rounds: int = 7) -> float:
    """The shortest mean time of `count` calls, in microseconds."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count)
    return 1e6 * min(times)


def times() -> dict[str, float]:
    """Measures this process's platform."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from tests.loading import load_file

    example = load_file(ROOT / "examples" / "jax_function.py")
    increment, total = jax.jit(lambda x: x + 1), jax.jit(lambda *xs: sum(xs))
    x, host = jnp.ones((2, 2)), np.ones((2, 2), np.float32)
    points, arm = map(jnp.asarray, example.spirals(512, np.random.default_rng(0)))
    network = example.first_network(jax.random.key(0))
    state = {"network": network, "velocity": network}
    step = jax.jit(example.step)

    def loop() -> None:
        now, loss = state, None
        for _ in range(20):
            now, loss = step(now, points, arm)
        float(loss)  # type: ignore[arg-type]

    found = {
        "one": least(lambda: increment(x), 5000),
        "ten": least(lambda: total(*[x] * 10), 5000),
        "numpy": least(lambda: np.asarray(increment(host)), 2000),
        "step": least(lambda: jax.block_until_ready(step(state, points, arm)), 50),
        "loop": least(loop, 5) / 20,
    }
    if "stablexla" in jax.devices()[0].client.platform_version:
        ours = example.jit(example.step)
        found["interop"] = least(lambda: ours(state, points, arm), 50)
    return found


def memory() -> dict[str, float]:
    """Megabytes that this process has more afterwards."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    increment, x, host = jax.jit(lambda x: x + 1), jnp.ones((2, 2)), np.ones(16, np.float32)

    def compile_one(number: int) -> None:
        jax.jit(lambda x: x * number + number)(x)
        if number % 100 == 0:
            jax.clear_caches()

    def grown(call: Callable[[int], object], count: int) -> float:
        for number in range(count // 10):
            call(-number)
        before = resident()
        for number in range(count):
            call(number)
        return (resident() - before) / 2**20

    return {
        "calls": grown(lambda _: increment(x), 1_000_000),
        "arrays": grown(lambda _: jax.device_put(host), 100_000),
        "programs": grown(compile_one, 1_000),
    }


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def child(what: str, platform: str) -> dict[str, float]:
    environment = {**os.environ, "JAX_PLATFORMS": platform, "STABLEXLA_KERNEL_CACHE": "off"}
    line = [sys.executable, "-m", "benchmarks.plugin", "--child", what]
    done = subprocess.run(line, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def tables(rounds: int) -> str:
    """Runs all, and returns the two tables."""
    best: dict[str, dict[str, float]] = {platform: {} for platform in PLATFORMS}
    for _ in range(rounds):
        for platform, known in best.items():
            for key, value in child("times", platform).items():
                known[key] = min(value, known.get(key, value))
    left = {platform: child("memory", platform) for platform in PLATFORMS}
    heads = " | ".join(PLATFORMS.values())
    lines = [f"| us | {heads} |", "|---|---:|---:|"]
    lines += [
        f"| {text} | {_row(best, key, '.2f' if key in ('one', 'ten') else '.0f')} |" for key, text in TIMES.items()
    ]
    lines += ["", f"| MB more in memory after | {heads} |", "|---|---:|---:|"]
    lines += [f"| {text} | {_row(left, key, '.1f')} |" for key, text in MEMORY.items()]
    return "\n".join(lines)


def _row(found: dict[str, dict[str, float]], key: str, form: str) -> str:
    return " | ".join(format(found[p][key], form) if key in found[p] else "" for p in PLATFORMS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each platform (default 3)")
    parser.add_argument("--child", choices=("times", "memory"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        functions: dict[str, Any] = {"times": times, "memory": memory}
        print(json.dumps(functions[options.child]()))
        return
    made = tables(options.rounds)
    print(made)
    if options.write:
        replace_between(PAGE, BEGIN, END, made)


if __name__ == "__main__":
    main()
