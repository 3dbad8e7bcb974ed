"""The runtime built with a sanitizer, and an environment in which Python loads it in the place of the installed one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.pjrt_library import LIBRARY
from tests.sanitize.sanitizers import HERE, Sanitizer

ROOT = HERE.parents[1]
FOLDER = ROOT / "build" / "sanitize"
MODULE = "stablexla.targets.runtime._runtime"
# Before the finder of the editable install, which knows the installed one.
_SITE = """
import importlib.util
import sys


class Sanitized:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, {library!r}) if name == {module!r} else None


sys.meta_path.insert(0, Sanitized)
"""


def build(sanitizer: Sanitizer) -> Path:
    """Build the native module and the library without Python, unless they are new enough; return the module."""
    folder, tools = FOLDER / sanitizer.name, Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"}
    configure = [
        *(str(tools / "cmake"), "-S", str(ROOT), "-B", str(folder), "-G", "Ninja"),
        *("-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DSTABLEXLA_SANITIZERS={sanitizer.flags}"),
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    for command in (configure, [str(tools / "cmake"), "--build", str(folder)]):
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    library = folder / f"_runtime{sysconfig.get_config_var('EXT_SUFFIX')}"
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(_SITE.format(library=str(library), module=MODULE))
    return library


def build_probe(sanitizer: Sanitizer) -> Path:
    """Build the library with known faults."""
    library = FOLDER / sanitizer.name / "probe.so"
    flags = [f"-fsanitize={sanitizer.flags}", "-std=c++17", "-g", "-O0", "-fPIC", "-shared"]
    subprocess.run(["g++", *flags, str(HERE / "probe.cpp"), "-o", str(library)], check=True)
    return library


def environment_of(sanitizer: Sanitizer) -> dict[str, str]:
    """Return the environment of Python, with an empty folder for reports."""
    reports = reports_of(sanitizer)
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    found = {name: text.format(reports=reports, here=HERE) for name, text in sanitizer.options.items()}
    found["PYTHONPATH"] = os.pathsep.join([str(FOLDER / sanitizer.name / "site"), str(ROOT)])
    found[LIBRARY] = str(FOLDER / sanitizer.name / "libstablexla_pjrt.so")
    found["STABLEXLA_PYTHON"] = sys.executable
    found["LD_PRELOAD"] = " ".join(_library(name) for name in sanitizer.libraries)
    return {**os.environ, **found}


def reports_of(sanitizer: Sanitizer) -> Path:
    """Return the folder in which each process leaves what its sanitizer found."""
    return FOLDER / sanitizer.name / "reports"


def _library(name: str) -> str:
    done = subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True)
    return str(Path(done.stdout.strip()).resolve())
