"""The core of the package, in a copy without its satellites, builds, compiles, runs, saves and reads programs.

It would fail where the core imports a satellite, also inside of a function.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.tree import Tree

SATELLITES = (
    *("inspection", "pjrt", "tools", "distributed.py", "gpu.py"),
    *("interop/jax", "interop/tensorflow.py", "interop/torch"),
    *(f"processes/{name}.py" for name in ("child", "compiling", "functions", "reproducer", "worker")),
    *(f"compiling/gpu_{name}.py" for name in ("header", "kernels", "library", "manifest")),
)
TARGETS = ("gpu", "upstream")
PROGRAM = """
import numpy as np
import stablexla as sx

b = sx.XlaBuilder("core")
x, y = b.parameter(0, sx.f32[2, 3], "x"), b.parameter(1, sx.f32[3], "y")
loop = sx.while_(lambda s: s[1] < 3, lambda s: (s[0] * 2.0, s[1] + 1), (sx.add(x, y, (1,)), b.constant(0)))
program = b.build(sx.reduce(loop[0], 0.0, sx.add, (1,)))
given = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)]
for form in (program, str(program), sx.load(str(program))):
    executable = sx.compile(form)
    print(executable(*given).tolist())
executable.save("core.sxe")
print(sx.load_executable("core.sxe")(*given).tolist(), "arith.mulf" in executable.ir("tensor"))
print(sx.compile(program, options=sx.CompileOptions(rules=[sx.lowering_rule("stablehlo.multiply",
    lambda ctx, x, y: [x])]))(*given).tolist())
many = sx.compile(b.build(sx.all_reduce(x, sx.add)), num_replicas=2)
print(many.execute_replicated([given, given])[1][0].tolist())
asked = {
    "profile": lambda: executable.profile(given),
    "compare": lambda: executable.compare(given),
    "isolated": lambda: sx.compile(program, options=sx.CompileOptions(isolated=True)),
    "check": lambda: sx.compile(program, options=sx.CompileOptions(check="nan")),
    "composite": lambda: sx.check_composite_kernel,
}
for name, ask in asked.items():
    try:
        ask()
    except sx.UnsupportedError as error:
        print(name, error)
"""


def test_the_core_alone(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for path in (
        *(tree.root / "stablexla" / name for name in SATELLITES),
        *(tree.root / "targets" / t for t in TARGETS),
    ):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    sums = "[48.0, 120.0]"
    said = tree.printed(PROGRAM)
    assert said[:4] == [sums] * 3 + [f"{sums} True"]
    assert said[4:6] == ["[6.0, 15.0]", "[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]"]
    missing = ("inspection", "inspection", "processes.compiling", "inspection", "inspection")
    for line, name in zip(said[6:], missing, strict=True):
        assert line.endswith(f"stablexla.{name} is no part of this installation, and is asked for it")
