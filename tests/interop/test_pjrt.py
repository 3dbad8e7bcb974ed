"""The PJRT plugin: programs of JAX on the platform stablexla, in a process of their own. Oracle: XLA's CPU, numpy."""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.pjrt.compiling import NUMBERS
from stablexla.pjrt.messages import Options
from stablexla.pjrt.table import num_devices
from tests.distributed.mpi_launch import needs_mpi, start

_jax = pytest.importorskip("jaxlib._jax")
pytest.importorskip("jax")

PROGRAMS = Path(__file__).with_name("pjrt_programs.py")
ROOT = Path(__file__).parents[2]


def checks() -> list[str]:
    """The names of the checks, read from the file: importing it would set this process's platform."""
    functions = (node for node in ast.parse(PROGRAMS.read_text()).body if isinstance(node, ast.FunctionDef))
    return [f.name for f in functions if any(getattr(d, "id", "") == "check" for d in f.decorator_list)]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**variables, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@cache
def outcomes() -> dict[str, str]:
    done = run(str(PROGRAMS))
    assert done.returncode == 0, done.stderr[-4000:]
    lines = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return {line["name"]: line["wrong"] for line in lines}


@pytest.mark.parametrize("name", checks())
def test_programs(name: str) -> None:
    assert outcomes()[name] == ""


def code(text: str, platforms: str = "stablexla", **environment: str) -> subprocess.CompletedProcess[str]:
    return run("-c", f"import jax, jax.numpy as jnp\n{text}", JAX_PLATFORMS=platforms, **environment)


ONE_BY_ONE = """
import contextlib, io, json, sys, traceback
import jax, jax.numpy as jnp
for line in sys.stdin:
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            exec(json.loads(line), {"jax": jax, "jnp": jnp})
        except Exception:
            traceback.print_exc()
            code = 1
    print(json.dumps({"returncode": code, "stdout": out.getvalue(), "stderr": errors.getvalue()}), flush=True)
"""
Code = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def in_one() -> Iterator[Code]:
    """As `code`, in one process for all: of what asks for nothing of its environment or its end."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"JAX_PLATFORMS": "stablexla"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", ONE_BY_ONE], cwd=ROOT, env=variables, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def run_there(text: str) -> subprocess.CompletedProcess[str]:
            print(json.dumps("\n" + text), file=process.stdin, flush=True)
            answer = process.stdout.readline()  # type: ignore[union-attr]
            assert answer, f"the process ended with exit code {process.wait(10)}"
            return subprocess.CompletedProcess(text, **json.loads(answer))

        yield run_there
        process.stdin.close()


def test_nothing_is_registered_unless_asked_for() -> None:
    done = run(
        "-c", "import jax; print(jax.devices()[0].client.platform_version); import sys; print('mlir' in sys.modules)"
    )
    assert "stablexla" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "False"


def test_a_process_ends_with_arrays_and_programs_alive() -> None:
    done = code("f = jax.jit(lambda x: x + 1)\ny = f(jnp.ones(3))\nprint(y.sum())")
    assert (done.returncode, done.stdout, done.stderr) == (0, "6.0\n", "")


def test_a_process_ends_with_runs_in_the_queue() -> None:
    done = code(
        "f = jax.jit(lambda x: jax.lax.fori_loop(0, 2000, lambda _, y: y @ x, x))\n"
        "results = [f(jnp.eye(48)) for _ in range(20)]\n"
        "print('end')"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.mark.parametrize("is_asynchronous", [True, False])
def test_calls_that_wait(is_asynchronous: bool) -> None:
    """The loop takes seconds: a call that does not wait returns before it has ended."""
    done = code(
        f"jax.config.update('jax_cpu_enable_async_dispatch', {is_asynchronous})\n"
        "f = jax.jit(lambda x: jax.lax.fori_loop(0, 2000, lambda _, y: jnp.tanh(y @ x), x))\n"
        "print(f(jnp.eye(300)).is_ready())"
    )
    assert done.stdout == f"{not is_asynchronous}\n", done.stderr


def test_an_example_runs_on_the_platform() -> None:
    """`jax.jit` and `interop.jax.jit` beside each other, both here: the same network, bit for bit."""
    done = run("examples/jax_function.py", "--steps", "40", JAX_PLATFORMS="stablexla")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "largest difference from jax.jit's network: 0.0e+00" in done.stdout


def test_no_memory_for_a_run() -> None:
    """The error comes where the result is waited for, and where results that are made of it are."""
    done = code(
        "import resource\n"
        "f = jax.jit(lambda x: jnp.sort(jnp.arange(2**29, dtype='float32') * x)[5])\n"
        "g = jax.jit(lambda y: jnp.tanh(y) + jnp.zeros((200, 200)))\n"
        "f.lower(jnp.float32(1)).compile(), g(jnp.float32(1)).block_until_ready()\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + 2**30, -1))\n"
        "y = f(jnp.float32(1))\n"
        "for result in (y, g(y)):\n"
        "    try: result.block_until_ready()\n"
        "    except jax.errors.JaxRuntimeError as error: print(error)\n"
        "print(g(jnp.float32(0))[0, 0])"
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert [line.startswith("RESOURCE_EXHAUSTED: jit__lambda: ") for line in lines] == [True, True, False]
    assert lines[2] == "0.0"


def test_a_process_that_is_forked_before_the_first_use() -> None:
    done = code(
        "import os\n"
        "child = os.fork()\n"
        "if child: assert os.waitpid(child, 0)[1] == 0\n"
        "print(jax.jit(lambda x: (x @ x).sum())(jnp.ones((10, 10))), flush=True)\n"
    )
    assert (done.returncode, done.stdout) == (0, "1000.0\n" * 2), done.stderr


def test_more_devices_than_there_are(in_one: Code) -> None:
    done = in_one("jax.pmap(lambda x: x)(jnp.ones((2, 1)))")
    assert done.returncode == 1
    assert "2" in done.stderr


FORCED = "--xla_force_host_platform_device_count"


def given(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """The variables, as a process would have them; JAX reads its own when it is imported."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = SimpleNamespace(jax_num_cpu_devices=int(variables.get("JAX_NUM_CPU_DEVICES", "-1")))
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=config))


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({"XLA_FLAGS": f"--xla_cpu_enable_fast_math=false {FORCED}=2 {FORCED}=3"}, 3),
        ({"XLA_FLAGS": f"{FORCED}=3", "JAX_NUM_CPU_DEVICES": "2"}, 2),
        ({"XLA_FLAGS": f"{FORCED}=3", "JAX_NUM_CPU_DEVICES": "2", "STABLEXLA_NUM_DEVICES": "4"}, 4),
        ({"XLA_FLAGS": "--xla_cpu_enable_fast_math=false", "JAX_NUM_CPU_DEVICES": "-1"}, 1),
    ],
)
def test_numbers_of_devices(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], count: int) -> None:
    """As JAX's scripts ask for them; where several do, the first of ours, JAX's and XLA's counts."""
    given(monkeypatch, variables)
    assert num_devices() == count


def test_devices_that_variables_ask_for() -> None:
    text = "count = jax.device_count()\nprint(count, jax.pmap(lambda x: x + 1)(jnp.zeros(count)).sum())"
    done = code(text, XLA_FLAGS=f"{FORCED}=3", JAX_NUM_CPU_DEVICES="2")
    assert done.stdout == "2 2.0\n", done.stderr


def test_devices_that_are_asked_for_in_code() -> None:
    done = code("jax.config.update('jax_num_cpu_devices', 3)\nprint(jax.device_count())", XLA_FLAGS=f"{FORCED}=2")
    assert done.stdout == "3\n", done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("STABLEXLA_NUM_DEVICES", "many", "STABLEXLA_NUM_DEVICES=many"),
        ("JAX_NUM_CPU_DEVICES", "0", "jax_num_cpu_devices=0"),
        ("JAX_NUM_CPU_DEVICES", "1025", "jax_num_cpu_devices=1025"),
        ("XLA_FLAGS", f"{FORCED}=-3", f"XLA_FLAGS={FORCED}=-3"),
        ("XLA_FLAGS", f"{FORCED}=", f"XLA_FLAGS={FORCED}="),
    ],
)
def test_a_number_of_devices_that_is_none(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, named: str
) -> None:
    given(monkeypatch, {variable: value})
    with pytest.raises(sx.StablexlaError, match=f"^{named}: it is a number of devices, from 1 to 1024"):
        num_devices()


def test_the_error_of_a_platform_without_devices() -> None:
    done = code("jax.devices()", XLA_FLAGS=f"{FORCED}=-3")
    assert done.returncode == 1
    assert f"backend 'stablexla': XLA_FLAGS={FORCED}=-3: it is a number of devices, from 1 to 1024" in done.stderr


def test_the_cpu_is_this_platform_where_it_is_the_only_one(in_one: Code) -> None:
    done = in_one(
        "import numpy as np\n"
        "assert jax.devices('cpu') == jax.devices() and jax.config.jax_platforms == 'stablexla'\n"
        "x = np.arange(6, dtype=np.float32)\n"
        "y = jnp.from_dlpack(x)\n"
        "assert y.unsafe_buffer_pointer() == x.ctypes.data and y.devices() == set(jax.devices())\n"
        "assert (jnp.from_dlpack(x.reshape(2, 3).T) == x.reshape(2, 3).T).all()\n"
        "z = jax.jit(lambda x: jax.pure_callback(np.sin, x, x))(y)\n"
        "np.testing.assert_allclose(z, np.sin(x), rtol=1e-6)\n"
        "jax.debug.print('{}', z[0])"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0.0\n", "")


def test_compile_options() -> None:
    assert Options.parse(b"") == Options(1, 1, (0,), {})
    options = _jax.CompileOptions()
    options.num_replicas, options.num_partitions = 2, 3
    assert Options.parse(options.SerializeAsString()) == Options(2, 3, (0, 1, 2, 3, 4, 5), {})
    options.device_assignment = _jax.DeviceAssignment.create(np.array([[5, 4, 3], [2, 1, 0]]))
    assert Options.parse(options.SerializeAsString()).devices == (5, 4, 3, 2, 1, 0)


def test_numbers_of_element_types() -> None:
    assert [NUMBERS[name] for name in ("bool", "int64", "float32", "complex128", "token")] == [1, 5, 11, 15, 23]
    assert NUMBERS["float6_e3m2fn"] == 33


def test_overrides_of_compile_options() -> None:
    options = _jax.CompileOptions()
    given = {"find_repeats": False, "vector_bits": 256, "xla_dump_to": "folder", "a_number": 0.5}
    options.env_option_overrides = list(given.items())
    assert Options.parse(options.SerializeAsString()).overrides == given


def test_a_compiler_option_of_ours_and_one_of_others() -> None:
    done = code(
        "f = jax.jit(lambda x: x * 3, compiler_options={'flush_denormals': True, 'xla_dump_to': 'x'})\n"
        "print(f(jnp.array(2.0)), float(f(jnp.array(2e-39))))"
    )
    assert (done.returncode, done.stdout) == (0, "6.0 0.0\n"), done.stderr
    assert "stablexla has no compiler options xla_dump_to" in done.stderr


def test_a_compiler_option_of_nobody(in_one: Code) -> None:
    done = in_one("jax.jit(lambda x: x, compiler_options={'vector_bit': 128})(jnp.array(2.0))")
    assert done.returncode == 1
    assert "INVALID_ARGUMENT: No such compile option: 'vector_bit'\n  try: vector_bits" in done.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"xla_of_nobody": 1}, "No such compile option: 'xla_of_nobody'"),
        ({"xla_dump_to": "x", "xla_embed_ir_in_executable": "perhaps"}, "'perhaps' is not a valid bool value"),
    ],
)
def test_options_of_xla_are_checked_by_xla(in_one: Code, given: dict[str, object], message: str) -> None:
    done = in_one(f"jax.jit(lambda x: x, compiler_options={given!r})(jnp.array(2.0))")
    assert done.returncode == 1
    assert message in done.stderr
    assert not Path("x").exists()


def test_compiler_options_that_cannot_be(in_one: Code) -> None:
    """Each is named with its value and what it may be, as the caller's mistake."""
    wrong = {
        "vector_bits": (100, "must be one of 128, 256, 512, not 100"),
        "num_threads": (0, "must be a number from 1 to 1024, not 0"),
        "flush_denormals": ("yes", "must be True or False, not 'yes'"),
        "check": ("nan", "try: stablexla.interop.jax.jit(function, options=sx.CompileOptions(check=...))"),
        "rules": ("mine", "try: stablexla.interop.jax.jit(function, options=sx.CompileOptions(rules=...))"),
    }
    done = in_one(
        f"for name, value in {[(name, value) for name, (value, _) in wrong.items()]!r}:\n"
        "    try:\n"
        "        jax.jit(lambda x: x * 2, compiler_options={name: value})(jnp.ones(2))\n"
        "    except jax.errors.JaxRuntimeError as error:\n"
        "        print(repr(str(error)))\n"
    )
    assert done.returncode == 0, done.stderr
    messages = [ast.literal_eval(line) for line in done.stdout.splitlines()]
    for message, (name, (_, meaning)) in zip(messages, wrong.items(), strict=True):
        assert message.startswith("INVALID_ARGUMENT: compiler_options")
        assert f"{name} must" in message or f"hold {name}" in message
        assert meaning in message
        assert message.count("\n") <= 1


def test_jax_debug_nans_names_the_operation(in_one: Code) -> None:
    """JAX looks at a program's results, then runs its operations one by one."""
    done = in_one(
        "jax.config.update('jax_debug_nans', True)\n"
        "try:\n"
        "    jax.jit(lambda x: jnp.log(x * 2) + 1)(jnp.array(-1.0))\n"
        "except FloatingPointError as error:\n"
        "    print(error)\n"
        "jax.config.update('jax_debug_nans', False)\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "invalid value (nan) encountered in log"  # after what JAX prints of it


def test_jax_keeps_programs_for_other_processes(tmp_path: Path) -> None:
    """The second process compiles nothing; a damaged file is no more than a warning of JAX's."""
    text = (
        "import numpy as np, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "hits = []\n"
        "jax.monitoring.register_event_listener(lambda name, **_: hits.extend([name] * ('cache_hits' in name)))\n"
        "f = jax.jit(lambda x, y: (jnp.tanh(x @ x) + y, y * 2), donate_argnums=1)\n"
        "y = jnp.ones((4, 4))\n"
        "out = f(jnp.ones((4, 4)), y)\n"
        "print(len(hits), float(out[0].sum()), float(out[1].sum()), y.is_deleted())"
    )
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }
    first, second = code(text, **kept), code(text, **kept)
    numbers = f"{16 * (np.tanh(4) + 1):.5f}"[:6]
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout.startswith("0 ")
    assert int(second.stdout.split()[0]) >= 3  # ones, tanh, sums
    assert first.stdout.split()[1:] == second.stdout.split()[1:]
    assert first.stdout.split()[1].startswith(numbers[:5])
    assert first.stdout.split()[3] == "True"
    for file in tmp_path.glob("*-cache"):
        file.write_bytes(file.read_bytes()[:100])
    third = code(text, **kept)
    assert (third.returncode, third.stdout) == (0, first.stdout), third.stderr


def test_jax_says_which_programs_it_does_not_keep(tmp_path: Path) -> None:
    """A second process misses nothing but programs with callbacks, of which JAX's warning says why."""
    text = (
        "import numpy as np\n"
        "from jax.experimental.layout import Format, Layout\n"
        "cut = jax.sharding.NamedSharding(jax.make_mesh((2,), ('x',)), jax.sharding.PartitionSpec('x'))\n"
        "x = jax.device_put(np.arange(16, dtype='f').reshape(4, 4), Format(Layout((1, 0)), cut))\n"
        "print(float(jax.jit(lambda x: (x * x).sum())(x)))\n"
        "jax.jit(lambda x: jax.debug.print('{x}', x=x))(1)\n"
        "jax.effects_barrier()"
    )
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        "JAX_EXPLAIN_CACHE_MISSES": "1",
        "STABLEXLA_NUM_DEVICES": "2",
    }
    first, second = code(text, **kept), code(text, **kept)
    assert first.stdout == second.stdout == "1240.0\n1\n", first.stderr + second.stderr
    missed = [done.stderr.count("PERSISTENT COMPILATION CACHE MISS") for done in (first, second)]
    assert missed[0] > 1
    assert missed[1] == 1
    for done in (first, second):
        if "because it uses host callbacks" in done.stderr:  # JAX before 0.11 does not ask the plugin
            continue
        assert done.stderr.count("Error writing persistent compilation cache entry") == 1
        assert "1 callbacks of JAX live in the process" in done.stderr


TENSORS = """
import numpy as np
from jax.dlpack import from_dlpack

memory = np.zeros(128, np.uint8)
aligned = -memory.ctypes.data % 64
rows, odd = (memory[aligned + n :][:24].view(np.float32) for n in (0, 25))
rows[:] = odd[:] = range(6)
arrays = [rows, rows.astype(np.int16), np.array(3, np.uint8), jnp.arange(4.0), jnp.arange(6, dtype="bfloat16") > 2]
for x in arrays:
    address = x.ctypes.data if isinstance(x, np.ndarray) else x.unsafe_buffer_pointer()
    for copy in (None, False, True):
        made = from_dlpack(x, copy=copy)
        assert (made.dtype, made.devices()) == (x.dtype, set(jax.devices()))
        assert (made.unsafe_buffer_pointer() == address) == (not copy)
        np.testing.assert_array_equal(made, x)
for x in (rows.reshape(2, 3).T, odd):
    for copy in (None, True):
        np.testing.assert_array_equal(from_dlpack(x, copy=copy), x)
    try:
        from_dlpack(x, copy=False)
    except ValueError as error:
        print(error)
made = from_dlpack(rows, copy=True)
rows[:] = 7
assert made[5] == 5 and from_dlpack(np.zeros((0, 3)), copy=False).shape == (0, 3)
"""


def test_tensors_of_dlpack_that_are_copied(in_one: Code) -> None:
    """`copy=True` copies, which JAX itself forgets for memory that is aligned; `copy=False` refuses what has to be."""
    done = in_one(TENSORS)
    why = "the elements are not aligned, or not in the order of rows; set copy=True or copy=None"
    assert (done.returncode, done.stdout) == (0, 2 * f"from_dlpack with copy=False: {why}\n"), done.stderr


@needs_mpi
@pytest.mark.parametrize(
    ("size", "program"),
    [(2, "pjrt_processes"), (3, "pjrt_processes"), (2, "pjrt_meshes"), (4, "pjrt_meshes")],
)
def test_several_processes(monkeypatch: pytest.MonkeyPatch, size: int, program: str) -> None:
    """`jax.distributed.initialize`, meshes over all, the own, and any devices; data goes over MPI."""
    for name in [name for name in os.environ if name.startswith("JAX_")]:
        monkeypatch.delenv(name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = start(size, f"tests.interop.{program}", str(port))
    assert (done.returncode, done.stdout.count("done")) == (0, size), done.stderr


def test_processes_that_mpi_has_not_started() -> None:
    script = (
        "from jax._src.distributed import global_state as state\n"
        "from types import SimpleNamespace\n"
        "state.client, state.process_id, state.num_processes = SimpleNamespace(), 1, 4\n"
        "jax.devices()"
    )
    done = code(script)
    assert done.returncode == 1
    assert "process 1 of 4 of JAX's is process 0 of 1 of MPI, by which data goes" in done.stderr
    assert "try: mpiexec -n 4 python program.py, and in there jax.distributed.initialize(cluster_" in done.stderr


STOPPED = """
import signal, sys
import numpy as np
raised = None
def handler(number, frame):  # raises what it is to, once
    global raised
    if raised is not None:
        now, raised = raised, None
        raise now
signal.signal(signal.SIGINT, handler)
scalar = jax.jit(lambda i: jax.lax.while_loop(lambda i: i < 0, lambda i: i ^ 1, i))
step = lambda x: lambda s: (jnp.tanh(s[0] @ x), s[1] ^ 1)
arrays = jax.jit(lambda x, i: jax.lax.while_loop(lambda s: s[1] < 0, step(x), (x, i))[0])
calls = jax.jit(lambda i: jax.lax.while_loop(lambda i: i < 0, lambda i: i ^ 1, jax.pure_callback(lambda v: v, i, i)))
waits = jax.jit(lambda i: jax.pure_callback(lambda v: scalar(v), i, i))
devices = jax.pmap(lambda i: jax.lax.psum(scalar(i), 'd'), axis_name='d')
def long(x):  # with jaxlib 0.10 it is not stopped
    for i in range(3000 if jax.version.__version_info__ >= (0, 11) else 3):
        x = jnp.sin(x) * i
    return x
eye, end, short = jnp.eye(200), jnp.int32(-2), jnp.int32(0)
traced = jax.jit(long).lower(eye)
jax.block_until_ready([scalar(short), arrays(eye, short), calls(short), waits(short), devices(np.zeros(2, np.int32))])

def fill():
    while True:
        arrays(eye, end)

def compile():
    while True:
        traced.compile()

ways = {
    'a run': lambda: scalar(end),
    'a run with a callback': lambda: calls(end),
    'a run in a callback': lambda: waits(end),
    'two devices': lambda: devices(np.array([-2, 0], np.int32)),
    'a wait': lambda: arrays(eye, end).block_until_ready(),
    'a wait for several': lambda: jax.block_until_ready([arrays(eye, end), eye]),
    'numpy': lambda: np.asarray(arrays(eye, end)),
    'DLPack': lambda: np.from_dlpack(arrays(eye, end)),
    'an address': lambda: arrays(eye, end).unsafe_buffer_pointer(),
    'a run that waits for its argument': lambda: calls(arrays(eye, end)[0, 0].astype(jnp.int32) - 2),
    'compiling': compile,
    'another exception': lambda: scalar(end),
    'a full queue': fill,  # whose runs the end of the process stops
}
for name, way in ways.items():
    kind = ZeroDivisionError if name == 'another exception' else KeyboardInterrupt
    print(name, flush=True)
    for attempt in range(20):
        try:
            raised = kind
            jax.block_until_ready(way())
            sys.exit('no exception')
        except kind:
            pass
        except RuntimeError as error:  # as MLIR's walks call what their callbacks raise, before a program is compiled
            if name != 'compiling' or 'KeyboardInterrupt' not in str(error):
                raise
        if way is fill:
            break
        is_left = False  # what was interrupted between the call and the wait runs on: it is stopped by another wait
        while True:
            try:
                raised = KeyboardInterrupt
                arrays(eye, short).block_until_ready()
                raised = None
                break
            except KeyboardInterrupt:
                is_left = True
        if not is_left:
            break
    else:
        sys.exit('it runs on')
    print('stopped', flush=True)
    sys.stdin.readline()
    if way is not fill:
        assert scalar(short) == calls(short) == waits(short) == devices(np.zeros(2, np.int32)).sum() == 0
        np.testing.assert_array_equal(arrays(eye, short), eye)
"""


def test_ctrl_c() -> None:
    """SIGINT stops what the main thread waits for; programs run after it, and the process ends."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    variables |= {"JAX_PLATFORMS": "stablexla", "STABLEXLA_NUM_DEVICES": "2"}
    command = [sys.executable, "-c", f"import jax, jax.numpy as jnp\n{STOPPED}"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, env=variables, text=True, **pipes) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        timer = threading.Timer(200, child.kill)
        timer.start()
        sent, names = threading.Event(), []

        def send() -> None:
            """Ctrl-C, at longer and longer intervals: one may come before anything is waited for."""
            interval = 0.05
            while not sent.wait(interval):
                child.send_signal(signal.SIGINT)
                interval *= 1.5

        try:
            for line in child.stdout:
                names.append(line.strip())
                sent.clear()
                sender = threading.Thread(target=send)
                sender.start()
                is_stopped = child.stdout.readline() != ""
                sent.set()
                sender.join()
                if is_stopped:
                    child.stdin.write("\n")
                    child.stdin.flush()
            errors = child.stderr.read()
        finally:
            sent.set()
            timer.cancel()
            child.kill()
    assert (child.returncode, names[-1:]) == (0, ["a full queue"]), (names, errors)


def test_the_end_of_a_process_stops_what_runs() -> None:
    """After Ctrl-C elsewhere, too: nobody can read the result."""
    done = code(
        "f = jax.jit(lambda x, i: jax.lax.while_loop(lambda s: s[1] < 0, lambda s: (s[0] @ x, s[1] ^ 1), (x, i))[0])\n"
        "y = f(jnp.eye(200), jnp.int32(-2))\n"
        "raise KeyboardInterrupt"
    )
    assert done.returncode == -signal.SIGINT, done.stderr


def test_warnings_are_at_the_user_s_line() -> None:
    """Compiling is on another thread, behind JAX's frames."""
    done = code(
        "def call():\n"
        "    return jax.jit(lambda x: x * 3, compiler_options={'xla_dump_to': 'x'})(2.0)\n"
        "call()\n"
        "jax.jit(lambda x: x * 4, compiler_options={'xla_dump_to': 'x'}).lower(2.0).compile()"
    )
    places = [line.split(": UserWarning")[0] for line in done.stderr.splitlines() if "UserWarning" in line]
    assert places == ["<string>:3", "<string>:5"], done.stderr


def test_a_trace_has_no_calls_of_the_compiler_s(in_one: Code, tmp_path: Path) -> None:
    """jax.profiler traces every call of Python's; those of the program stay, on a second trace, too."""
    done = in_one(
        "import glob, gzip, json\n"
        "def mine(x):\n"
        "    return jnp.tanh(x @ x).sum()\n"
        "for size in (3, 4):\n"
        f"    folder = f'{tmp_path}/{{size}}'\n"
        "    with jax.profiler.trace(folder):\n"
        "        jax.jit(mine)(jnp.eye(size)).block_until_ready()\n"
        "    text = gzip.open(glob.glob(folder + '/**/*.trace.json.gz', recursive=True)[0]).read()\n"
        "    names = [event.get('name', '') for event in json.loads(text)['traceEvents']]\n"
        "    print(any(' mine' in name for name in names), sum('driver.py' in name for name in names))"
    )
    assert done.stdout == "True 0\n" * 2, done.stderr


def spans(folder: Path) -> list[SimpleNamespace]:
    """The spans of a trace's threads, outer ones first, in nanoseconds since the epoch."""
    from jax.profiler import ProfileData

    (path,) = folder.rglob("*.xplane.pb")
    planes = {plane.name: plane for plane in ProfileData.from_file(str(path)).planes}
    start = dict(planes["Task Environment"].stats)["profile_start_time"]
    found = []
    for number, line in enumerate(planes["/host:CPU"].lines):
        for event in line.events:
            begin, end = (start + round(time) for time in (event.start_ns, event.end_ns))
            stats = dict(event.stats)
            found.append(
                SimpleNamespace(thread=(number, line.name), name=event.name, begin=begin, end=end, stats=stats)
            )
    return sorted(found, key=lambda span: (span.begin, -span.end))


def kernels_in(found: list[SimpleNamespace]) -> list[SimpleNamespace]:
    return [span for span in found if "hlo_op" in span.stats]


def holder(span: SimpleNamespace, found: list[SimpleNamespace], name: str) -> SimpleNamespace:
    """The span of this name and of the same thread that holds another."""
    (held_by,) = (
        each
        for each in found
        if each.name == name and each.thread == span.thread and each.begin <= span.begin and span.end <= each.end
    )
    return held_by


THREE = """
import numpy, time
jax.config.update("jax_cpu_enable_async_dispatch", False)
from stablexla.interop.jax import jit
def three(x, w):
    return jnp.sort(jnp.tanh(x @ w).sum(0))
x, w = (numpy.random.default_rng(n).standard_normal((64, 64)).astype("float32") for n in range(2))
program = jax.jit(three)
plain = numpy.asarray(program(x, w))
def trace(folder, count):
    with jax.profiler.trace(folder):
        begin = time.time_ns()
        results = [numpy.asarray(program(x, w)) for _ in range(count)]
        return begin, time.time_ns(), all((plain == each).all() for each in results)
"""


def test_a_trace_has_the_kernels(tmp_path: Path) -> None:
    """By the names that they have elsewhere, inside of their program's runs, and these inside of JAX's calls.

    Runs between traces are in none of them.
    """
    counts = [3, 2, 0, 1]
    done = code(
        f"{THREE}\n"
        f"for number, count in enumerate({counts}):\n"
        f"    print(trace('{tmp_path}/' + str(number), count))\n"
        "    program(x, w)\n"
        "print([kernel.name for kernel in jit(three).executable(x, w).kernels])"
    )
    assert done.returncode == 0, done.stderr
    *times, names = map(ast.literal_eval, done.stdout.splitlines())
    assert len(names) == 3
    for number, (count, (begin, end, are_equal)) in enumerate(zip(counts, times, strict=True)):
        found = spans(tmp_path / str(number))
        runs, kernels = [span for span in found if span.name == "jit_three"], kernels_in(found)
        assert are_equal, "the code of a trace gives other bits"
        assert len(runs) == count
        assert sorted(kernel.name for kernel in kernels) == sorted(names * count)
        for kernel in kernels:
            run_ = holder(kernel, found, "jit_three")
            call = holder(run_, found, "PjRtCApiLoadedExecutable::Execute")
            assert begin <= call.begin <= run_.begin <= kernel.begin <= kernel.end <= run_.end <= call.end <= end
            assert {
                "hlo_op": kernel.name,
                "hlo_module": "jit_three",
                "device_ordinal": 0,
            }.items() <= kernel.stats.items()
        if count != 0:
            assert {kernel.stats["tf_op"] for kernel in kernels} >= {"jit(three)/tanh", "jit(three)/reduce_sum"}
            assert {kernel.stats.get("source", "<string>:7") for kernel in kernels} == {"<string>:7"}
        assert sum(span.name == "compile jit_three for the trace" for span in found) == (number == 0)
        for first, second in pairwise(kernels):
            assert first.end <= second.begin


def test_a_trace_of_several_programs_threads_and_devices(tmp_path: Path) -> None:
    """Programs whose kernels have equal names at the same time, one of eight devices that adds over all of them."""
    count = 5
    done = code(
        "import threading\n"
        "from jax.sharding import NamedSharding, PartitionSpec as P\n"
        "mesh = jax.make_mesh((8,), ('x',))\n"
        "parts = jax.device_put(jnp.ones((8, 512)), NamedSharding(mesh, P('x')))\n"
        "def wide(x): return jnp.sort(x * 2, axis=1), x.sum()\n"
        "def narrow(x): return jnp.sort(x * 2)\n"
        "wide, narrow = jax.jit(wide), jax.jit(narrow)\n"
        "one = jax.device_put(jnp.ones(300), jax.devices()[3])\n"
        "def call(f, x):\n"
        f"    for _ in range({count}): jax.block_until_ready(f(x))\n"
        "jobs = [threading.Thread(target=call, args=each) for each in [(wide, parts), (narrow, one)] * 2]\n"
        f"with jax.profiler.trace('{tmp_path}'):\n"
        "    for job in jobs: job.start()\n"
        "    for job in jobs: job.join()\n",
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
    )
    assert done.returncode == 0, done.stderr
    found = spans(tmp_path)
    sorts = [kernel for kernel in kernels_in(found) if kernel.name == "sort_keys_0"]
    where = Counter((kernel.stats["hlo_module"], kernel.stats["device_ordinal"]) for kernel in sorts)
    assert where == {**{("jit_wide", device): 2 * count for device in range(8)}, ("jit_narrow", 3): 2 * count}
    runs = [span for span in found if span.name == "jit_wide"]
    for kernel in sorts:
        if kernel.stats["hlo_module"] == "jit_narrow":
            holder(kernel, found, "jit_narrow")
        else:  # a device's thread is another one
            assert any(each.begin <= kernel.begin and kernel.end <= each.end for each in runs)
    assert "stablexla-dev" in {kernel.thread[1].partition("/")[0] for kernel in sorts}
    assert len({span.stats["program_id"] for span in runs}) == 1


def test_a_trace_of_runs_in_the_queue_and_of_the_pool(tmp_path: Path) -> None:
    done = code(
        "f = jax.jit(lambda x: jax.lax.fori_loop(0, 10, lambda _, y: y @ x, x))\n"
        "x = jnp.eye(300)\n"
        f"with jax.profiler.trace('{tmp_path}'):\n"
        "    f(f(f(x))).block_until_ready()",
        STABLEXLA_NUM_THREADS="2",
    )
    assert done.returncode == 0, done.stderr
    found = spans(tmp_path)
    kernels = [kernel for kernel in kernels_in(found) if kernel.name == "contraction_0"]
    assert Counter(kernel.stats.get("phase") for kernel in kernels) == {None: 30, "pack": 3}  # x, before the loop
    assert {kernel.thread[1].partition("/")[0] for kernel in kernels} == {"stablexla-queue"}
    for kernel in kernels:
        holder(kernel, found, "jit__lambda")
    shares = [span for span in found if span.name == "contraction_0 (share)"]
    assert {share.thread[1].partition("/")[0] for share in shares} == {"stablexla-queue", "stablexla-pool"}
    for share in shares:
        assert any(kernel.begin <= share.begin and share.end <= kernel.end for kernel in kernels)


def test_a_trace_of_programs_that_fail_and_of_forks(tmp_path: Path) -> None:
    """A kernel that an error ended is left out; a child has no trace, and its programs run."""
    done = code(
        "import os, warnings, numpy\n"
        "import stablexla as sx\n"
        "warnings.simplefilter('ignore')\n"
        "def fail(x): raise ValueError('no')\n"
        "broken = jax.jit(lambda x: jax.pure_callback(fail, x, jnp.sort(x)) + 1)\n"
        "b = sx.XlaBuilder('double')\n"
        "x = b.parameter(0, sx.f32[2])\n"
        "double = sx.compile(b.build(x + x))\n"
        f"with jax.profiler.trace('{tmp_path}'):\n"
        "    for _ in range(2):\n"
        "        try: broken(jnp.ones(8)).block_until_ready()\n"
        "        except jax.errors.JaxRuntimeError as error: print('ValueError' in str(error))\n"
        "    child = os.fork()\n"
        "    if child == 0: os._exit(int(double(numpy.ones(2, 'float32'))[0]))\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "    jax.jit(lambda x: jnp.sort(x * 2))(jnp.ones(8)).block_until_ready()"
    )
    assert (done.returncode, done.stdout) == (0, "True\nTrue\n2\n"), done.stderr
    found = spans(tmp_path)
    assert Counter(kernel.name for kernel in kernels_in(found))["sort_keys_0"] == 3
    assert len([span for span in found if span.name == "jit__lambda"]) == 3


def test_a_trace_has_room_for_so_many_kernels(in_one: Code, tmp_path: Path) -> None:
    """Then it says how many more there were."""
    done = in_one(
        "many = jax.jit(lambda x: jax.lax.fori_loop(0, 300_000, lambda _, y: jnp.sort(y * 2), x))\n"
        "x = jnp.arange(4.0)\n"
        "options = jax.profiler.ProfileOptions()\n"
        "options.python_tracer_level = 0\n"
        f"jax.profiler.start_trace('{tmp_path}', profiler_options=options)\n"
        "many(x).block_until_ready()\n"
        "jax.profiler.stop_trace()"
    )
    assert done.returncode == 0, done.stderr
    found = spans(tmp_path)
    (told,) = (span.name for span in found if "more kernels" in span.name)
    assert int(told.split()[0]) + len(kernels_in(found)) == 2 * 300_000


def test_where_programs_run() -> None:
    """`stablexla.pjrt.where` says so, without starting JAX; `jax.devices()` does."""
    text = "import stablexla.pjrt as plugin\nprint(plugin.where())\nprint(jax.devices()[:1])\nprint(plugin.where())"
    way = "JAX_PLATFORMS=stablexla has them run here"
    expected = {
        "stablexla": ("will run here", "[stablexla:0]", "run here, on 2 devices"),
        "stablexla,cpu": ("will run here", "[stablexla:0]", "run here, on 2 devices"),
        "cpu,stablexla": (f"will not run here; {way}", "[CpuDevice(id=0)]", f"run on cpu; {way}"),
        "cpu": (f"will not run here; {way}", "[CpuDevice(id=0)]", f"run on cpu; {way}"),
    }
    for platforms, (before, device, after) in expected.items():
        said = [f"JAX's programs {before}", device, f"JAX's programs {after}"]
        done = code(text, platforms, STABLEXLA_NUM_DEVICES="2")
        assert done.stdout.splitlines() == said, done.stderr
    assert run("-c", "import stablexla.pjrt; print(stablexla.pjrt.where())").stdout == "JAX is not imported\n"
