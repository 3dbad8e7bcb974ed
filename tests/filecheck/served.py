"""The command-line tools for lit, from one process that has imported them: `served.py ask SOCKET opt ...` asks it.

A command of the text tests works for tens of milliseconds, and importing MLIR takes several hundred. The server forks
for each command; the child has the command's files, folder and environment. `ask SOCKET python FILE ...` runs a
program, for which `serve SOCKET MODULE ...` imports more than the tools do.
"""

import os
import socket
import sys

WARM = """func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.sine %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}
"""


def ask(path: str, words: list[str]) -> int:
    """Runs one command there; returns its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        environment = [f"{name}={value}" for name, value in os.environ.items()]
        parts = [os.getcwd(), str(len(words)), *words, *environment]
        socket.send_fds(connection, [b"\0".join(map(os.fsencode, parts)) + b"\0\0"], [0, 1, 2])
        answer = connection.recv(1)
        return answer[0] if answer else 70


def serve(path: str, modules: list[str]) -> None:
    """Answers until standard input ends."""
    import contextlib
    import importlib
    import select

    _import_what_tools_import()
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(16)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listening, sys.stdin], [], [])
            _reap()
            if sys.stdin in ready:
                return
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _run(connection)
            connection.close()


def _reap() -> None:
    """Children answer themselves, and nobody waits for them: their time counts as the server's once they have ended."""
    import contextlib

    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _import_what_tools_import() -> None:
    """A child runs commands and tells which modules they took; MLIR's contexts and threads are not inherited."""
    import importlib
    import tempfile

    reading, writing = os.pipe()
    if os.fork() == 0:
        from stablexla.tools import opt, run, translate

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
            file.write(WARM)
            file.flush()
            for main, words in ((opt.main, ["--stage=llvm"]), (run.main, ["--input=iota", "--compare=interpreter"])):
                main([file.name, *words])
            translate.main([file.name, "--to=hlo-text"])
        os.write(writing, "\n".join(name for name in sys.modules if name.startswith("stablexla.")).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as names:
        for name in names.read().split():
            importlib.import_module(name)
    os.wait()


def _run(connection: socket.socket) -> None:
    """Becomes the command, and does not return."""
    import importlib
    import runpy
    import traceback

    data, files, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    while not data.endswith(b"\0\0"):
        data += connection.recv(1 << 16)
    folder, count, *parts = map(os.fsdecode, data[:-2].split(b"\0"))
    words, environment = parts[: int(count)], parts[int(count) :]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(item.split("=", 1) for item in environment)
    tool, *sys.argv[1:] = words
    code: object = 70
    try:
        if tool == "python":
            del sys.argv[0]
            sys.path[0] = os.path.dirname(sys.argv[0])
            runpy.run_path(sys.argv[0], run_name="__main__")
            code = 0
        else:
            code = importlib.import_module(f"stablexla.tools.{tool}").main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # as the interpreter would
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(bytes([int(code or 0) & 255]) if isinstance(code, int | None) else b"\1")
    os._exit(0)


if __name__ == "__main__":
    what, socket_path, *rest = sys.argv[1:]
    sys.exit(ask(socket_path, rest) if what == "ask" else serve(socket_path, rest))
