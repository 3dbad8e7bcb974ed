"""The sanitizers: how the runtime is built, what they are told, and the tests that run under each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
RUNTIME = "tests/targets/runtime"


@dataclass(frozen=True)
class Group:
    """Tests that run in one process.

    Attributes:
        name: what they are of.
        tests: files, or names of tests, as pytest takes them.
        without: the reason why each of these, parts of names, does not run here.
        seconds: after which the process is ended, which is a failure.
    """

    name: str
    tests: tuple[str, ...]
    without: tuple[tuple[str, str], ...] = ()
    seconds: int = 600

    def command(self) -> list[str]:
        """Return Python's arguments."""
        left_out = " or ".join(name for name, _ in self.without)
        chosen = ["-k", f"not ({left_out})"] if left_out else []
        # what native code prints is not captured, and reaches the command
        return ["-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "--capture=sys", *chosen, *self.tests]


@dataclass(frozen=True)
class Sanitizer:
    """A build of the runtime and what runs on it.

    Attributes:
        name: "address" or "thread".
        flags: as the compiler's `-fsanitize` takes them.
        libraries: of the compiler, that have to be there before Python is.
        options: variables of the environment; `{reports}` and `{here}` are folders.
        groups: what runs.
        finds: what its reports say of the faults in probe.cpp.
        launcher: of Python.
    """

    name: str
    flags: str
    libraries: tuple[str, ...]
    options: dict[str, str]
    groups: tuple[Group, ...]
    finds: tuple[str, ...]
    launcher: tuple[str, ...] = ()


ADDRESS = Sanitizer(
    "address",
    "address,undefined",
    # with libstdc++ in the process from the beginning, as libraries of Python's packages throw by their own
    ("libasan.so", "libubsan.so", "libstdc++.so"),
    {
        # Python frees little at its end, which LeakSanitizer would report
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0:use_sigaltstack=0:allocator_may_return_null=1:"
        "log_path={reports}/asan:suppressions={here}/address.supp",
        # the two share what the last one says of reports
        "UBSAN_OPTIONS": "print_stacktrace=1:log_path={reports}/asan:suppressions={here}/undefined.supp",
        "PYTHONMALLOC": "malloc",  # the bindings' objects lie in Python's memory
    },
    (
        Group("arguments and results", (f"{RUNTIME}/test_arguments.py", f"{RUNTIME}/test_results.py")),
        Group("donation", (f"{RUNTIME}/test_donation.py",)),
        Group(
            "callbacks and queues",
            (f"{RUNTIME}/test_callbacks.py", f"{RUNTIME}/test_queues.py"),
            (("test_python_may_end_while", "a forced unwind has no object, to which `catch` binds its reference"),),
        ),
        Group("the pool", (f"{RUNTIME}/test_threads.py",)),
        Group("stopping", (f"{RUNTIME}/test_stopping.py",)),
        Group("saved programs and their loader", (f"{RUNTIME}/test_saved.py",)),
        Group("the cache", (f"{RUNTIME}/test_cache.py",)),
        Group(
            "collectives",
            (
                f"{RUNTIME}/test_collective_runtime.py",
                f"{RUNTIME}/test_collective_failures.py",
                f"{RUNTIME}/test_device_messages.py",
                "tests/distributed/test_execute.py",
                "tests/distributed/test_exchanges.py",
            ),
        ),
        Group("custom calls", ("tests/ops/test_custom_call.py", "tests/interop/test_ffi.py")),
        Group("PJRT", (f"{RUNTIME}/test_pjrt_table.py", f"{RUNTIME}/test_pjrt_abi.py")),
        Group("shutdown", (f"{RUNTIME}/test_shutdown.py",)),
    ),
    ("heap-buffer-overflow", "signed integer overflow"),
)
THREAD = Sanitizer(
    "thread",
    "thread",
    ("libtsan.so",),
    {
        "TSAN_OPTIONS": "die_after_fork=0:halt_on_error=0:exitcode=0:history_size=5:second_deadlock_stack=1:"
        "log_path={reports}/tsan:suppressions={here}/thread.supp",
        "OPENBLAS_NUM_THREADS": "1",  # its threads are not instrumented
    },
    (
        Group("the pool", (f"{RUNTIME}/test_threads.py",)),
        Group(
            "stopping",
            (f"{RUNTIME}/test_stopping.py",),
            (
                (
                    "test_cancelling_from_another_thread",
                    "says in which kernel the run is then; so slow, it is in others",
                ),
            ),
        ),
        Group("callbacks and queues", (f"{RUNTIME}/test_callbacks.py", f"{RUNTIME}/test_queues.py")),
        Group(
            "collectives",
            (f"{RUNTIME}/test_collective_runtime.py", f"{RUNTIME}/test_device_messages.py"),
        ),
        Group("results and memory", (f"{RUNTIME}/test_results.py", f"{RUNTIME}/test_donation.py")),
        Group("saved programs and their loader", (f"{RUNTIME}/test_saved.py",)),
        Group("PJRT", (f"{RUNTIME}/test_pjrt_table.py",)),
    ),
    ("data race",),
    # its shadow memory has no room for programs at random addresses of this system
    ("setarch", "-R"),
)
SANITIZERS = {each.name: each for each in (ADDRESS, THREAD)}
