"""Programs in a sandbox: honest ones compute what they do outside, and hostile ones are kept from everything."""

from __future__ import annotations

import errno
import gc
import os
import platform
import resource
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.interop.encodings import reader
from stablexla.interop.encodings.formats import to_bytecode
from stablexla.processes import landlock, protections, seccomp, wire, worker
from stablexla.processes.shared_arrays import SharedArrays
from stablexla.targets.runtime import container
from stablexla.tools import run
from tests.processes import hostile
from tests.processes.hostile import COMPILER, call

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="filters of system calls are those of x86-64")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler, of which the hostile code comes")

SANDBOX = sx.Sandbox(time_limit=20)
OPTIONS = sx.CompileOptions(sandbox=SANDBOX, time_limit=60)


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def apart(executable: sx.Executable, folder: Path, sandbox: sx.Sandbox = SANDBOX) -> sx.Executable:
    executable.save(folder / "program.sxe")
    return sx.load_executable(folder / "program.sxe", sandbox=sandbox)


def build(make: Callable[..., Any], *shapes: sx.Shape) -> sx.XlaComputation:
    b = sx.XlaBuilder("test")
    return b.build(make(b, *(b.parameter(i, shape, name=f"p{i}") for i, shape in enumerate(shapes))))


def affine() -> sx.XlaComputation:
    return build(lambda b, x: sx.tanh(sx.dot(x, b.constant(numbers(8, 5)))) * 2, sx.f32[4, 8])


# ---- honest programs -------------------------------------------------------------------------------------------------


def test_compiled_and_run_in_sandboxes() -> None:
    here, there = sx.compile(affine()), sx.compile(affine(), options=OPTIONS)
    x = numbers(4, 8)
    assert there(x).tobytes() == here(x).tobytes()
    assert there.execute([x])[0].tobytes() == here(x).tobytes()
    assert "sandbox=Sandbox(time_limit=20)" in repr(there)
    assert "seccomp" in repr(there)
    assert {"limits", "no new privileges", "seccomp"} <= set(there.protections)
    assert there.ir("source") == here.ir("source")
    assert (there.arena_bytes, there.constant_bytes) == (here.arena_bytes, here.constant_bytes)
    with pytest.raises(sx.ExecutionError, match=r"test: parameter 0 \(p0\) takes float32\[4,8\]"):
        there(x[1:])


@pytest.mark.parametrize("form", ["text", "bytes", "path", "hlo"])
def test_programs_in_every_form(form: str, tmp_path: Path) -> None:
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  return %x : tensor<2xf32>\n}\n"
    (tmp_path / "program.mlir").write_text(text)
    hlo = "HloModule halve  ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }"
    program: Any = {"text": text, "bytes": text.encode(), "path": tmp_path / "program.mlir", "hlo": hlo}[form]
    made = sx.compile(program, options=OPTIONS)(np.ones(2, np.float32))
    assert made.tolist() == ([-1, -1] if form == "hlo" else [1, 1])


def test_errors_of_programs_are_those_of_other_compilations() -> None:
    with pytest.raises(sx.ParseError):
        sx.compile("func.func @main(", options=OPTIONS)
    with pytest.raises(sx.VerificationError, match="main"):
        sx.compile("func.func @other() { return }", options=OPTIONS)


def test_tuples_dynamic_sizes_seeds_and_devices(tmp_path: Path) -> None:
    pair = sx.Shape.tuple((sx.f32[3], sx.s32[()]))
    tupled = sx.compile(build(lambda b, p: sx.tuple((sx.get_tuple_element(p, 1), sx.get_tuple_element(p, 0))), pair))
    number, array = apart(tupled, tmp_path)((numbers(3), np.int32(4)))
    assert (number, array.tolist()) == (4, numbers(3).tolist())
    dynamic = apart(sx.compile(build(lambda b, x: x * 2, sx.f32["<=8", 3])), tmp_path)
    assert dynamic(numbers(5, 3)).tolist() == (numbers(5, 3) * 2).tolist()
    drawn = sx.compile(build(lambda b: sx.rng_uniform(b.constant(0.0), b.constant(1.0), sx.f32[50])))
    there = apart(drawn, tmp_path)
    there.seed(7)
    drawn.seed(7)
    assert there().tobytes() == drawn().tobytes()
    total = sx.compile(build(lambda b, x: sx.all_reduce(x, sx.add), sx.f32[2]), num_replicas=2)
    made = apart(total, tmp_path).execute_replicated([[np.float32([1, 2])], [np.float32([10, 20])]])
    assert [each[0].tolist() for each in made] == [[11, 22], [11, 22]]


def test_linear_algebra_finds_its_library(tmp_path: Path) -> None:
    solve = sx.compile(build(lambda b, x: sx.cholesky(x), sx.f32[40, 40]))
    x = numbers(40, 40) @ numbers(40, 40).T + 40 * np.eye(40, dtype=np.float32)
    assert apart(solve, tmp_path)(x).tobytes() == solve(x).tobytes()


def test_it_is_saved_again(tmp_path: Path) -> None:
    there = sx.compile(affine(), options=OPTIONS)
    there.save(tmp_path / "again.sxe")
    x = numbers(4, 8)
    assert sx.load_executable(tmp_path / "again.sxe")(x).tobytes() == there(x).tobytes()


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    there = apart(sx.compile(affine()), tmp_path)
    there(numbers(4, 8))
    number = there._function._kept[0].pid  # type: ignore[attr-defined]
    del there
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_from_many_threads(tmp_path: Path) -> None:
    here, x = sx.compile(affine()), numbers(4, 8)
    there, made = apart(here, tmp_path), list[bytes]()
    threads = [threading.Thread(target=lambda: made.extend(there(x).tobytes() for _ in range(5))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert made == [here(x).tobytes()] * 20


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_a_process_of_its_own(tmp_path: Path) -> None:
    """Also while a thread of the parent waits for a run."""
    x = numbers(4, 8)
    there = apart(sx.compile(affine()), tmp_path)
    before = there(x).tobytes()

    def ask() -> None:
        assert there(x).tobytes() == before

    function: Any = there._function
    with function._turn():
        assert in_child(ask) == 0
    assert there(x).tobytes() == before


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_functions_of_the_user_cannot_be_had(tmp_path: Path) -> None:
    sx.register_custom_call("sandbox.mine", lambda x: x + 1)
    called = build(lambda b, x: sx.custom_call("sandbox.mine", x, sx.f32[3]), sx.f32[3])
    try:
        with pytest.raises(sx.UnsupportedError, match=r"the custom call 'sandbox.mine' cannot be had in a sandbox"):
            sx.compile(called, options=OPTIONS)
    finally:
        sx.unregister_custom_call("sandbox.mine")
    fed = sx.compile(build(lambda b: b.infeed(sx.f32[2])))
    with pytest.raises(sx.UnsupportedError, match=r"infeed cannot be had in a sandbox"):
        apart(fed, tmp_path)


def test_c_functions_cannot_be_had(tmp_path: Path) -> None:
    sx.register_custom_call("sandbox.c", 4096)
    try:
        executable = sx.compile(build(lambda b: b.custom_call("sandbox.c", (), sx.f32[1])))
        with pytest.raises(sx.UnsupportedError, match=r"the custom call 'sandbox.c' cannot be had in a sandbox"):
            apart(executable, tmp_path)
    finally:
        sx.unregister_custom_call("sandbox.c")


def test_rules_open_shapes_and_other_targets_are_refused() -> None:
    rules = [sx.lowering_rule("stablehlo.tanh", lambda ctx, x: [x])]
    with pytest.raises(sx.UnsupportedError, match="rules and passes alone"):
        sx.compile(affine(), options=sx.CompileOptions(sandbox=SANDBOX, rules=rules))
    open_shapes = "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }"
    with pytest.raises(sx.UnsupportedError, match="leaves extents open"):
        sx.compile(open_shapes, options=OPTIONS)
    with pytest.raises(sx.UnsupportedError, match="for the CPU alone"):
        sx.compile(affine(), target="gpu:sm_80", options=OPTIONS)


def test_nothing_is_compiled_again_here(tmp_path: Path) -> None:
    there = apart(sx.compile(affine()), tmp_path)
    x = [numbers(4, 8)]
    for ask in (lambda: there.ir("llvm"), lambda: there.kernels, lambda: there.profile(x), lambda: there.check(x)):
        with pytest.raises(sx.CompileError, match="it belongs to a sandbox"):
            ask()
    with pytest.raises(sx.CompileError, match="check runs the program in this process"):
        sx.CompileOptions(sandbox=SANDBOX, check="nan")
    with pytest.raises(sx.CompileError, match="programs in a sandbox have no cache"):
        sx.CompileOptions(sandbox=SANDBOX, cache=tmp_path)


@pytest.mark.parametrize(
    "values",
    [
        {"memory": 0},
        {"memory": "1G"},
        {"time_limit": -1},
        {"time_limit": True},
        {"required": ["walls"]},
        {"memory": 1 << 63},
        {"time_limit": 1e30},
        {"required": None},
    ],
)
def test_values_that_no_sandbox_has(values: dict[str, Any]) -> None:
    with pytest.raises(sx.CompileError, match="sandbox"):
        sx.Sandbox(**values)
    with pytest.raises(sx.CompileError, match="sandbox must be a Sandbox"):
        sx.CompileOptions(sandbox=values)  # type: ignore[arg-type]


def test_what_the_machine_lacks_is_an_error() -> None:
    protections.refuse_without([])
    with pytest.raises(sx.UnsupportedError, match="kernel has no landlock and no seccomp, which the sandbox requires"):
        protections.refuse_without(["landlock", "seccomp"])


# ---- hostile machine code --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile.crafted(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def program(file: Path) -> sx.Executable:
    return sx.load_executable(file, sandbox=sx.Sandbox(memory=256 << 20, time_limit=20))


def answer(executable: sx.Executable, *asked: Any) -> int:
    return int(executable(call(*asked))[0])


@needs_compiler
def test_outside_of_a_sandbox_it_may_do_anything(file: Path, tmp_path: Path) -> None:
    """The checksums are right, so that it runs: the other tests would fail without the sandbox."""
    free = sx.load_executable(file)
    assert answer(free, "getpid") == os.getpid()
    number = answer(free, "openat", -100, b"/etc/passwd", os.O_RDONLY, 0)
    assert number > 2
    os.close(number)
    number = answer(free, "openat", -100, bytes(tmp_path / "made"), os.O_WRONLY | os.O_CREAT, 0o600)
    os.close(number)
    assert (tmp_path / "made").exists()


@needs_compiler
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("openat", (-100, b"/etc/passwd", os.O_RDONLY, 0)),
        ("openat", (-100, bytes(Path.home() / ".bashrc"), os.O_RDONLY, 0)),
        ("open", (b"/etc/hostname", os.O_RDONLY, 0)),
        ("openat2", (-100, b"/etc/passwd", bytes(24), 24)),
        ("openat", (-100, b"/tmp/stablexla-made", os.O_WRONLY | os.O_CREAT, 0o600)),
        ("memfd_create", (b"name", 0)),
        ("mmap", (0, 1 << 20, 3, 0x21, -1, 0)),  # shared, and counted for nobody
        ("prlimit64", (0, 2, bytes(16), 0)),
        ("newfstatat", (-100, b"/etc/passwd", bytes(256), 0)),
        ("readlink", (b"/proc/self/exe", bytes(64), 64)),
        ("process_vm_readv", ()),
    ],
)
def test_calls_that_fail(name: str, arguments: tuple[Any, ...], program: sx.Executable, tmp_path: Path) -> None:
    if name == "process_vm_readv":
        with pytest.raises(sx.ExecutionError, match="SIGSYS"):
            answer(program, name, *arguments)
    else:
        assert answer(program, name, *arguments) == -errno.EPERM
    assert not Path("/tmp/stablexla-made").exists()


@needs_compiler
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("execve", (b"/bin/true", 0, 0)),
        ("socket", (socket.AF_INET, socket.SOCK_STREAM, 0)),
        ("connect", (3, bytes(16), 16)),
        ("clone", (signal.SIGCHLD, 0, 0, 0, 0)),
        ("fork", ()),
        ("ptrace", (16, 1, 0, 0)),
        ("kill", (os.getpid(), 0)),
        ("unlink", (b"/etc/passwd-",)),
        ("mount", (0, b"/", 0, 0, 0)),
        ("bpf", (0, 0, 0)),
        ("setuid", (0,)),
        ("fcntl", (3, 8, os.getpid())),  # F_SETOWN: signals by way of a file
    ],
)
def test_calls_that_end_the_process(name: str, arguments: tuple[Any, ...], program: sx.Executable) -> None:
    with pytest.raises(sx.ExecutionError, match=r"hostile: the run asked the kernel .* \(SIGSYS\)"):
        answer(program, name, *arguments)
    assert answer(program, "getpid") != os.getpid()  # a new process


@needs_compiler
@pytest.mark.parametrize(("what", "how"), [(hostile.NOWHERE, "SIGSEGV"), (hostile.ILLEGAL, "SIGILL")])
def test_crashes_are_errors(what: int, how: str, program: sx.Executable) -> None:
    with pytest.raises(sx.ExecutionError, match=f"hostile: the run ended the process .{how}."):
        program(call(what))
    assert answer(program, "getpid") != os.getpid()


@needs_compiler
def test_memory_is_bounded(program: sx.Executable) -> None:
    made = program(call(hostile.TAKE_ALL))
    assert made[1] == -errno.ENOMEM
    assert 4 <= made[0] <= 40  # 16 MB each: 256 MB, and what threads may have


@needs_compiler
def test_time_is_bounded(file: Path) -> None:
    program = sx.load_executable(file, sandbox=sx.Sandbox(time_limit=0.3))
    with pytest.raises(sx.ExecutionError, match=r"hostile: the run has taken longer than its time limit of 0.3 s"):
        program(call(hostile.FOR_EVER))
    assert answer(program, "getpid") != os.getpid()


@needs_compiler
def test_limits_of_calls_and_cancellation_hold_as_elsewhere(program: sx.Executable) -> None:
    with pytest.raises(sx.ExecutionError, match=r"longer than its time limit of 0.2 s"):
        program.execute([call(hostile.FOR_EVER)], time_limit=0.2)
    run = program.start([call(hostile.FOR_EVER)])
    run.cancel()
    with pytest.raises(sx.ExecutionError, match="the run was cancelled"):
        run.result(30)
    assert answer(program, "getpid") != os.getpid()


@needs_compiler
def test_the_kernel_ends_what_nobody_waits_for(file: Path) -> None:
    """The limit of the processor's time holds where the process that waits is stopped."""
    program = sx.load_executable(file, sandbox=sx.Sandbox(time_limit=1000))
    runner: Any = program._function._kept[0]  # type: ignore[attr-defined]
    runner._limit_processor_time = lambda limit: _two_seconds(runner.pid)
    with pytest.raises(sx.ExecutionError, match="SIGXCPU"):
        program(call(hostile.FOR_EVER))


def _two_seconds(pid: int) -> None:
    import resource

    resource.prlimit(pid, resource.RLIMIT_CPU, (2, resource.RLIM_INFINITY))


@needs_compiler
@pytest.mark.parametrize(
    "data", [b"nonsense", wire._HEAD.pack(b"done", 1 << 60, 0), wire._HEAD.pack(b"done", 4, 0) + b"[[[["]
)
def test_answers_that_are_none(data: bytes, program: sx.Executable) -> None:
    """The machine code writes into the socket itself."""
    assert answer(program, "getpid") != os.getpid()
    pid = program._function._kept[0].pid  # type: ignore[attr-defined]
    link = int(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-3])
    with pytest.raises(sx.ExecutionError, match="says something else than results"):
        answer(program, "sendto", link, data, len(data), 0, 0, 0)


# ---- the parts -------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], None]) -> int:
    """Run a function in a fork; return its exit code, negative for a signal."""
    child = os.fork()
    if child == 0:
        code = 1
        signal.alarm(30)  # it has locks of threads that it does not have
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_process_that_compiles_reads_and_does_not_write(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")

    def work() -> None:
        assert protections.give_up_privileges() == ["no new privileges"]
        assert protections.filter_calls(seccomp.compile_filter()) == ["seccomp"]
        assert (tmp_path / "there").read_text() == "x"
        for refused in (
            lambda: (tmp_path / "made").write_text("x"),
            lambda: (tmp_path / "there").unlink(),
            lambda: os.rename(tmp_path / "there", tmp_path / "moved"),
            lambda: socket.socket(),
            lambda: os.execv("/bin/true", ["true"]),
            lambda: os.fork(),
            lambda: os.kill(os.getppid(), 0),
        ):
            try:
                refused()
            except PermissionError:
                continue
            raise AssertionError(refused)
        thread = threading.Thread(target=lambda: None)  # these there are
        thread.start()
        thread.join()

    assert in_child(work) == 0


def test_landlock_leaves_what_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "file").write_text("x")
    (tmp_path / "closed").write_text("x")

    def work() -> None:
        protections.give_up_privileges()
        if not landlock.confine([str(tmp_path / "open"), "/nowhere"]):
            os._exit(77)
        assert (tmp_path / "open" / "file").read_text() == "x"
        for refused in (
            lambda: (tmp_path / "closed").read_text(),
            lambda: (tmp_path / "open" / "made").write_text("x"),
            lambda: Path("/etc/passwd").read_text(),
        ):
            try:
                refused()
            except PermissionError:
                continue
            raise AssertionError(refused)

    code = in_child(work)
    if code == 77:
        pytest.skip("this kernel has no landlock, or it is turned off")
    assert code == 0


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_processes_that_read_and_compile_are_filtered() -> None:
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    sx.load(to_bytecode(text))
    assert reader._kept is not None
    sx.compile(text, options=sx.CompileOptions(isolated=True))
    for pid in (reader._kept.pid, worker._idle[-1].pid):
        told = status(pid)
        assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2")  # a filter


def test_what_the_process_of_a_sandbox_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No core dumps, few and small files, no secrets; the arrays that it shares have no name, and keep their size."""
    monkeypatch.setenv("SECRET_TOKEN", "secret")
    there = apart(sx.compile(affine()), tmp_path)
    there(numbers(4, 8))
    pid = there._function._kept[0].pid  # type: ignore[attr-defined]
    limits = {which: resource.prlimit(pid, which)[1] for which in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)}
    assert limits == {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 1 << 20}
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE)[1] == 64
    assert b"SECRET_TOKEN" not in Path(f"/proc/{pid}/environ").read_bytes()
    spec = there._signature.parameter_specs()
    shared = SharedArrays(spec, [], 1)
    try:
        assert os.readlink(f"/proc/self/fd/{shared.number}").startswith("/memfd:")
        with pytest.raises(PermissionError):
            os.ftruncate(shared.number, 1)
    finally:
        shared.close()


def test_every_thread_of_a_sandbox_is_filtered(tmp_path: Path) -> None:
    there = apart(sx.compile(affine()), tmp_path)
    there(numbers(4, 8))
    pid = there._function._kept[0].pid  # type: ignore[attr-defined]
    threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    assert all(status(thread)["Seccomp_filters"] == "2" for thread in threads)


def test_the_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.mlir"
    path.write_text("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
    limits = ["--memory-limit", "500M", "--time-limit", "60"]
    assert run.main([str(path), "--sandbox", *limits, "--input", "3.0", "--print"]) == 0
    told = capsys.readouterr()
    assert "[3. 3.]" in told.out
    assert "sandbox: no new privileges" in told.err
    assert "seccomp" in told.err
    assert run.main([str(path), "--sandbox", "--explain"]) == 1
    assert "it belongs to a sandbox" in capsys.readouterr().err
    sx.compile(affine()).save(tmp_path / "saved.sxe")
    assert run.main([str(tmp_path / "saved.sxe"), "--sandbox", *limits]) == 0
    assert "f32[4,5]" in capsys.readouterr().out


@pytest.mark.parametrize("text", [b"\xff", b"[1]", b"{", b"[" * 100000])
def test_values_that_are_none(text: bytes) -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        theirs.sendall(wire._HEAD.pack(b"done", len(text), 0) + text)
        with pytest.raises(ValueError):  # noqa: PT011 - which one does not matter
            wire.receive(mine, most=1 << 20)
        theirs.sendall(wire._HEAD.pack(b"done", 1 << 40, 0))
        with pytest.raises(ValueError, match="a message of 1099511627776 bytes"):
            wire.receive(mine, most=1 << 20)


def test_an_altered_description_harms_nobody(tmp_path: Path) -> None:
    sx.compile(affine()).save(tmp_path / "a.sxe")
    read = container.read(tmp_path / "a.sxe")
    sections = {name: bytes(part) for name, part in read.sections.items()}
    for change in ({"parameters": ["f32[1000000,1000000,10]"]}, {"parameters": ["f32[-4]"]}, {"function": 3}):
        container.write(tmp_path / "b.sxe", {**read.description, **change}, sections)
        with pytest.raises(sx.StablexlaError):
            sx.load_executable(tmp_path / "b.sxe", sandbox=SANDBOX)
