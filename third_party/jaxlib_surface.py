"""What stablexla sees of jaxlib: operations, attributes, types, passes, and the entry points that it calls itself.

    python third_party/jaxlib_surface.py                writes jaxlib-<line>.json for the jaxlib that is installed
    python third_party/jaxlib_surface.py --against 0.10 prints what differs between that line and the installed one

The files are what docs/versions.md is made from. `--against` exits with 1 when an entry point that stablexla calls is
gone or is called differently.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
PACKAGES = ("stablexla", "dialects", "lowering", "targets")
DIALECTS = ("stablehlo", "chlo", "mhlo", "sdy")
Surface = dict[str, Any]


def recorded(line: str) -> Surface:
    """The surface of a line, such as "0.12"."""
    found: Surface = json.loads((FOLDER / f"jaxlib-{line}.json").read_text())
    return found


def installed(*, passes: bool = True) -> Surface:
    """The surface of the jaxlib that is installed; looking for its passes takes half a minute."""
    from jaxlib.mlir.dialects import stablehlo

    return {
        "jaxlib": metadata.version("jaxlib"),
        "stablehlo": stablehlo.get_current_version(),
        "operations": dict(sorted(pair for name in DIALECTS for pair in _operations(name).items())),
        "attributes and types": sorted(name for dialect in DIALECTS for name in _classes(dialect)),
        "passes": _passes() if passes else [],
        "entry points": {name: _signature(name) for name in sorted(_used())},
    }


def _operations(dialect: str) -> dict[str, list[str]]:
    """Operands, attributes and regions of each operation, by the names that MLIR's bindings give them."""
    module = importlib.import_module(f"jaxlib.mlir.dialects._{dialect}_ops_gen")
    classes = [c for c in vars(module).values() if isinstance(c, type) and "_ODS_REGIONS" in vars(c)]
    return {c.OPERATION_NAME: sorted(n for n, v in vars(c).items() if isinstance(v, property)) for c in classes}


def _classes(dialect: str) -> list[str]:
    module = importlib.import_module(f"jaxlib.mlir.dialects.{dialect}")
    return [f"{dialect}.{name}" for name in dir(module) if name.endswith(("Attr", "Type"))]


def _passes() -> list[str]:
    sys.path.insert(0, str(ROOT / "docs"))
    return sorted(importlib.import_module("find_stablehlo_passes").passes())


def _used() -> set[str]:
    """What the package's files name of jaxlib, with dots."""
    return {name for package in PACKAGES for file in (ROOT / package).rglob("*.py") for name in _used_by(file)}


def _used_by(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname: a.name for a in node.names if a.asname and a.name.startswith("jaxlib")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxlib"):
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    attributes = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    used = {
        f"{names[n.value.id]}.{n.attr}" for n in attributes if isinstance(n.value, ast.Name) and n.value.id in names
    }
    return used | set(names.values())


def _signature(name: str) -> str:
    """How an entry point is called, as its binding says; "missing" where there is none."""
    found = _resolved(name)
    if found is None:
        return "missing"
    if isinstance(found, type):
        return "class"
    if not callable(found):
        return type(found).__name__
    return (found.__doc__ or "").partition("\n")[0].strip() or "callable"


def _resolved(name: str) -> Any:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found
    return None


def _text(surface: Surface) -> str:
    """As JSON, with a line for each operation and entry point."""
    parts = [f'"{key}": {_lines(value)}' for key, value in surface.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(value: Any) -> str:
    if isinstance(value, dict):
        return "{\n  " + ",\n  ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n}"
    return json.dumps(value)


def differences(old: Surface, new: Surface) -> list[tuple[str, str]]:
    """(what, which) differs, in the order of the page: operations, attributes and types, passes, entry points."""
    found = [(f"{kind} that {how}", name) for kind in ("operations", "attributes and types", "passes")
             for how, one, other in (("came", new, old), ("went", old, new))
             for name in one[kind] if name not in other[kind]]  # fmt: skip
    for name in sorted({*old["operations"]} & {*new["operations"]}):
        before, after = (set(each["operations"][name]) for each in (old, new))
        if before != after:
            changes = [f"+{n}" for n in sorted(after - before)] + [f"-{n}" for n in sorted(before - after)]
            found.append(("operations that changed", f"{name}: {', '.join(changes)}"))
    for name, signature in old["entry points"].items():
        now = new["entry points"].get(name, signature)
        if now != signature:
            found.append(("entry points that changed", f"{name}: {signature} -> {now}"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="LINE", help="print what differs from this line, and write nothing")
    options = parser.parse_args()
    surface = installed()
    if options.against:
        found = differences(recorded(options.against), surface)
        for what, which in found:
            print(f"{what}: {which}")
        return int(any(what.startswith("entry points") for what, _ in found))
    line = ".".join(surface["jaxlib"].split(".")[:2])
    (FOLDER / f"jaxlib-{line}.json").write_text(_text(surface))
    return 0


if __name__ == "__main__":
    sys.exit(main())
