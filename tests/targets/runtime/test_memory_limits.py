"""What programs need is known before they run, and refused where there is not so much; nothing leaks, and they go on.

Limits of the system are set in child processes, as `ulimit` does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import jaxlib.mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.executable.executable import Executable
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import ArraySpec, CompiledFunction, pool_stats, trim_pool
from stablexla.targets.runtime.available_memory import Room, available
from stablexla.tools.run import main as run_tool

MIB = 1 << 20
# One result of a megabyte, and two products of a megabyte on the way to it.
CHAIN = """
func.func @main(%x: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %0 = stablehlo.dot %x, %x : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %1 = stablehlo.dot %0, %x : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %2 = stablehlo.dot %1, %0 : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  return %2 : tensor<512x512xf32>
}
"""
DONATED = """
func.func @main(%x: tensor<1000000xf32> {tf.aliasing_output = 0 : i32}) -> tensor<1000000xf32> {
  %0 = stablehlo.negate %x : tensor<1000000xf32>
  return %0 : tensor<1000000xf32>
}
"""
BOUNDED = """
func.func @main(%x: tensor<?x1000xf32, #stablehlo.bounds<1000, ?>>) -> tensor<?x1000xf32, #stablehlo.bounds<1000, ?>> {
  %0 = stablehlo.negate %x : tensor<?x1000xf32, #stablehlo.bounds<1000, ?>>
  return %0 : tensor<?x1000xf32, #stablehlo.bounds<1000, ?>>
}
"""


def counting(count: int, name: str = "count") -> Executable:
    b = sx.XlaBuilder(name)
    return sx.compile(b.build(b.iota(sx.s8[count], 0)))


@pytest.fixture(autouse=True)
def unlimited(nothing_leaks: None) -> Iterator[None]:
    yield
    sx.set_memory_limit(None)


def allow(more: int) -> None:
    """Leave so many bytes, with nothing held."""
    trim_pool()
    sx.set_memory_limit(sx.memory_stats().in_use + more)


# ---- estimates -------------------------------------------------------------------------------------------------------


def test_an_estimate_is_what_a_call_takes() -> None:
    executable = sx.compile(CHAIN)
    estimate = executable.memory_estimate()
    assert (estimate.arguments, estimate.results) == (MIB, MIB)
    assert MIB <= estimate.arena < 4 * MIB
    assert estimate.code > 0
    assert estimate.call == estimate.results + estimate.arena
    assert estimate.total == estimate.arguments + estimate.call + estimate.constants + estimate.code
    x = np.eye(512, dtype=np.float32)
    allow(5 * MIB)
    taken = pool_stats()["allocated"]
    result = executable(x)
    assert pool_stats()["allocated"] == taken + 2
    assert estimate.call <= sx.memory_stats().held + result.nbytes <= 1.25 * estimate.call
    assert "arena for temporaries" in str(estimate)
    assert "<td>a call takes</td>" in estimate._repr_html_()


def test_an_estimate_of_dynamic_sizes_is_that_of_the_bounds() -> None:
    estimate = sx.compile(BOUNDED).memory_estimate()
    assert estimate.arguments == 4_000_004
    assert estimate.copies == 8_000_000
    assert estimate.call >= 12_000_000


def test_an_estimate_counts_devices_donations_and_constants() -> None:
    b = sx.XlaBuilder("sum")
    x = b.parameter(0, sx.f32[1000])
    total = sx.all_reduce(x + b.constant(np.arange(1000, dtype=np.float32)), sx.add)
    estimate = sx.compile(b.build(total), num_replicas=3).memory_estimate()
    assert (estimate.devices, estimate.arguments, estimate.constants) == (3, 4000, 4000)
    assert estimate.call == 3 * (4000 + estimate.arena)
    assert "results of each of 3 devices" in str(estimate)
    assert sx.compile(DONATED).memory_estimate().donated == 4_000_000


def test_the_tool_prints_an_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "chain.mlir").write_text(CHAIN)
    assert run_tool([str(tmp_path / "chain.mlir"), "--memory"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("arguments              1.0 MiB (1048576 bytes)\n")
    assert "largest" not in printed  # it did not run
    assert run_tool([str(tmp_path / "chain.mlir"), "--memory", "--time", "1"]) == 0
    assert "largest" in capsys.readouterr().out


# ---- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [0, 6 * MIB])
@pytest.mark.parametrize("left", [MIB // 2, 3 * MIB // 2])
def test_a_call_beyond_the_limit_takes_nothing(left: int, held: int) -> None:
    """However much is in use: what is left counts, not the limit."""
    in_use = counting(held, "held")() if held else None
    executable, x = sx.compile(CHAIN), np.eye(512, dtype=np.float32)
    allow(left)
    before = pool_stats()
    for call in (lambda: executable(x), lambda: executable.execute([x]), lambda: executable.start([x]).result(60)):
        with pytest.raises(sx.OutOfMemoryError, match="main: a call needs") as error:
            call()
        assert error.value.available == left
        assert (error.value.needed or 0) > left
    assert pool_stats() == before
    assert "set_memory_limit(" in str(error.value)
    assert "\n  result 0     float32[512,512]: 1.0 MiB (1048576 bytes)" in str(error.value)
    assert "\n  temporaries  " in str(error.value)
    sx.set_memory_limit(None)
    np.testing.assert_array_equal(executable(x), x)
    del in_use


def test_the_largest_result_has_its_line() -> None:
    b = sx.XlaBuilder("two")
    small = b.iota(sx.s8[10], 0)
    large = b.iota(sx.s8[3 * MIB], 0)  # here
    executable = sx.compile(b.build(sx.tuple([small, large])))
    allow(MIB)
    with pytest.raises(sx.OutOfMemoryError) as error:
        executable()
    assert error.value.result == 1
    assert error.value.source is not None
    assert error.value.source.text.endswith("# here")


def test_many_small_results_come_to_the_limit() -> None:
    executable = counting(MIB // 2)
    allow(2 * MIB + 1000)
    kept = []
    for _ in range(4):
        kept.append(executable())
    with pytest.raises(sx.OutOfMemoryError, match="count: a call needs"):
        executable()
    kept.pop()
    kept.append(executable())


def test_held_memory_goes_before_a_call_is_refused() -> None:
    counting(MIB)()
    assert sx.memory_stats().held >= MIB
    sx.set_memory_limit(sx.memory_stats().in_use + 3 * MIB // 2)
    assert counting(MIB + 1)().nbytes == MIB + 1
    assert sx.memory_stats().in_use + sx.memory_stats().held <= (sx.memory_limit() or 0)


def test_replicas_need_it_together() -> None:
    b = sx.XlaBuilder("sum")
    total = sx.compile(b.build(sx.all_reduce(b.parameter(0, sx.f32[MIB // 4]), sx.add)), num_replicas=3)
    arguments = [[np.ones(MIB // 4, np.float32)]] * 3
    allow(5 * MIB // 2)
    with pytest.raises(sx.OutOfMemoryError, match=r"a call on 3 devices needs 3\.0 MiB"):
        total.execute_replicated(arguments)
    allow(4 * MIB)
    assert [r[0][0] for r in total.execute_replicated(arguments)] == [3, 3, 3]


def test_donated_results_need_nothing() -> None:
    executable = sx.compile(DONATED)
    x = executable(np.ones(1_000_000, np.float32))
    allow(MIB)
    with pytest.raises(sx.OutOfMemoryError):
        executable.execute([x])
    (y,) = executable.execute([x], donate=True)
    assert y[0] == 1


def test_constants_count() -> None:
    b = sx.XlaBuilder("table")
    table = b.build(b.constant(np.arange(MIB, dtype=np.float32)) + b.parameter(0, sx.f32[()]))
    allow(MIB)
    with pytest.raises(sx.OutOfMemoryError, match="constants"):
        sx.compile(table)


def test_constants_that_stay_where_they_are_count_together() -> None:
    """Frozen arrays that are read in place are none of the pool's; they count while an executable refers to them."""

    def table() -> ir.Module:
        array = np.arange(MIB, dtype=np.float32)
        array.flags.writeable = False
        b = sx.XlaBuilder("table")
        return sx.freeze(b.build(b.parameter(0, sx.f32[MIB], "t") + b.parameter(1, sx.f32[()])), {"t": array})

    programs = [table() for _ in range(3)]
    allow(6 * MIB)
    kept = sx.compile(programs[0])
    with pytest.raises(sx.OutOfMemoryError, match="constants"):
        sx.compile(programs[1])
    del kept
    sx.compile(programs[2])


@pytest.mark.parametrize("size", [-1, 1.5, "1", True, 2**64])
def test_what_is_no_limit(size: object) -> None:
    with pytest.raises(sx.ExecutionError, match="a memory limit is a number of bytes or None, not"):
        sx.set_memory_limit(size)  # type: ignore[arg-type]
    assert sx.memory_limit() is None


def test_the_limit_of_the_environment() -> None:
    done = child("print(sx.memory_limit())", STABLEXLA_MEMORY_LIMIT="3M")
    assert done == f"{3 * MIB}\n"
    with knobs.scoped(memory_limit=5):
        assert sx.memory_limit() is None  # it is read once


# ---- what the machine can give ---------------------------------------------------------------------------------------


def test_terabytes_are_compiled_and_refused() -> None:
    b = sx.XlaBuilder("outer")
    x = b.parameter(0, sx.f32[1_000_000])
    row, column = (sx.broadcast_in_dim(x, (1_000_000, 1_000_000), (d,)) for d in (0, 1))
    executable = sx.compile(b.build(row * column + 1.0))
    assert executable.memory_estimate().results == 4 * 10**12
    with pytest.raises(sx.OutOfMemoryError, match=r"outer: a call needs \d\.\d TiB \(\d+ bytes\) of new") as error:
        executable(np.ones(1_000_000, np.float32))
    assert error.value.source is not None


def test_a_sum_over_terabytes_needs_no_memory() -> None:
    b = sx.XlaBuilder("sum")
    wide = sx.broadcast_in_dim(b.parameter(0, sx.s8[10**6]), (10**6, 10**7), (0,))
    estimate = sx.compile(b.build(sx.reduce(wide, b.constant(0, sx.s8), sx.add, (0, 1)))).memory_estimate()
    assert estimate.call < MIB


GROUP = {"memory.max": "{}\n", "memory.current": "1000\n", "memory.stat": "anon 5\ninactive_file 100\nactive_file 20\n"}


def system(tmp_path: Path, groups: str, meminfo: str = "MemAvailable: 100 kB\nSwapFree: 0 kB\n") -> tuple[Path, Path]:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(meminfo)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    return tmp_path / "proc", tmp_path / "groups"


def group(folder: Path, limit: str, names: dict[str, str] = GROUP) -> None:
    folder.mkdir(parents=True)
    for name, text in names.items():
        (folder / name).write_text(text.format(limit))


def test_the_machine_alone(tmp_path: Path) -> None:
    assert available(*system(tmp_path, "")) == Room(102400, "the machine")


def test_swap_counts(tmp_path: Path) -> None:
    proc, groups = system(tmp_path, "0::/a\n", "MemAvailable: 100 kB\nSwapFree: 10 kB\n")
    assert available(proc, groups) == Room(112640, "the machine")
    group(groups / "a", "4000")
    assert available(proc, groups) == Room(4000 - 1000 + 120 + 10240, "control group /a (memory.max)")
    (groups / "a/memory.swap.max").write_text("50\n")
    (groups / "a/memory.swap.current").write_text("20\n")
    assert available(proc, groups) == Room(4000 - 1000 + 120 + 30, "control group /a (memory.max)")


@pytest.mark.parametrize("limits", [("max", "4000"), ("4000", "max"), ("4000", "9000")])
def test_groups_around_the_group_count(tmp_path: Path, limits: tuple[str, str]) -> None:
    proc, groups = system(tmp_path, "0::/a/b\n")
    group(groups / "a", limits[0])
    group(groups / "a/b", limits[1])
    place = "/a" if limits[0] == "4000" else "/a/b"
    assert available(proc, groups) == Room(3120, f"control group {place} (memory.max)")


def test_control_groups_of_version_1(tmp_path: Path) -> None:
    proc, groups = system(tmp_path, "4:memory:/a\n3:cpu,cpuacct:/a\n")
    first = {
        "memory.limit_in_bytes": "{}\n",
        "memory.usage_in_bytes": "1000\n",
        "memory.stat": "cache 9\ntotal_inactive_file 7\ntotal_active_file 1\n",
    }
    group(groups / "memory/a", "2000", first)
    assert available(proc, groups) == Room(1008, "control group /a (memory.limit_in_bytes)")


def test_nothing_is_known(tmp_path: Path) -> None:
    assert available(tmp_path, tmp_path) is None


def child(script: str, **variables: str) -> str:
    """Run a script in a process of its own."""
    script = "import numpy as np\nimport resource\nimport stablexla as sx\n" + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LIMITED = """
from stablexla.targets.runtime.available_memory import available
def program(count):
    b = sx.XlaBuilder("count")
    return sx.compile(b.build(b.iota(sx.s8[count], 0)))
small, middle, large = program(1000), program(48 << 20), program(200 << 20)
strided = sx.compile("func.func @main(%x: tensor<50000000xi8>) -> tensor<i8> {"
    " %c = stablehlo.constant dense<0> : tensor<i8>"
    " %0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0]"
    " : (tensor<50000000xi8>, tensor<i8>) -> tensor<i8> return %0 : tensor<i8> }")
argument = np.zeros(100_000_000, np.int8)[::2]
sx.set_memory_limit(None)
small()
def refused(call):
    for _ in range(3):
        try:
            call()
        except sx.OutOfMemoryError as error:
            text = str(error)
        else:
            raise AssertionError("it ran")
    print(text.splitlines()[0])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20), resource.RLIM_INFINITY))
before = sx.memory_stats().in_use
refused(large)
refused(middle)
refused(lambda: strided(argument))
assert sx.memory_stats().in_use == before
assert small()[3] == 3
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert large()[5] == 5 and middle()[7] == 7 and strided(argument) == 0
"""


def test_ulimit() -> None:
    first, second, third = child(LIMITED).splitlines()
    assert first.startswith("count: a call needs 224.0 MiB (234881024 bytes) of new memory, but the limit on address")
    assert second.startswith("no memory for count: result 0 (int8[50331648]): 50331648 bytes were asked for; the limit")
    assert third.startswith("no memory for a copy of main: parameter 0: 50000000 bytes were asked for; the limit on")


WORK_SPACE = """
func.func private @stablexla_malloc(i64) -> i64
func.func @main(%r: memref<f32>, %arena: memref<1xi8>) {
  %some = arith.constant 100 : i64
  %most = arith.constant 4611686018427387904 : i64
  %0 = func.call @stablexla_malloc(%some) : (i64) -> i64
  %1 = func.call @stablexla_malloc(%most) : (i64) -> i64
  return
}
"""


def test_a_kernel_without_work_space_is_left(make_jit: Callable[..., CompiledFunction]) -> None:
    function = make_jit(WORK_SPACE, [], [ArraySpec("float32", ())], places={0: "a kernel"})
    for _ in range(2):
        with pytest.raises(sx.OutOfMemoryError, match="main: no memory for the work space of a kernel"):
            function()


def test_a_control_group() -> None:
    parent = Path("/sys/fs/cgroup/memory")
    name, limit = parent / f"stablexla-{uuid4().hex}", "memory.limit_in_bytes"
    if not parent.is_dir():
        parent, limit = Path("/sys/fs/cgroup"), "memory.max"
        name = parent / name.name
    try:
        name.mkdir()
        (name / limit).write_text(str(512 * MIB))
    except OSError as error:
        if name.is_dir():
            name.rmdir()
        pytest.skip(f"this machine allows no control group: {error}")
    script = f"""
    import os
    open({str(name / "cgroup.procs")!r}, "w").write(str(os.getpid()))
    b = sx.XlaBuilder("count")
    large = sx.compile(b.build(b.iota(sx.s8[600 << 20], 0)))
    try:
        large()
    except sx.OutOfMemoryError as error:
        print(str(error).splitlines()[0])
    """
    try:
        assert f"but control group /{name.name} ({limit}) has only" in child(script)
    finally:
        name.rmdir()


def test_a_function_of_the_runtime_alone(make_program: object) -> None:
    spec = sx.compile(CHAIN).results[0]
    function = CompiledFunction("f", 1, [], [spec])  # never entered
    allow(1000)
    with pytest.raises(sx.OutOfMemoryError, match="f: a call needs"):
        function.execute([])
