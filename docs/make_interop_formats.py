"""Writes `interop_formats.md`: which forms of programs are read and written here, in which versions.

Every line is tried: a program is written in the form or for the version, recognised, read back and run. The artifacts
of other producers are tried by `--artifacts FOLDER`; without it the page keeps what they gave before.
"""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import jaxlib.mlir.ir as ir
import numpy as np

import stablexla as sx
from stablexla.interop.encodings.bytecode import NEWEST, read_bytecode
from stablexla.interop.encodings.formats import Format, recognise
from stablexla.interop.encodings.versions import CURRENT, MINIMUM, resolve, serialise, targets
from stablexla.interop.encodings.writers import FORMS, write
from stablexla.interop.loading import load_bytes
from stablexla.tools.translate import ENDINGS

PAGE = Path(__file__).parent / "interop_formats.md"
# What came with a version, of what a program may use.
NEWS = {
    "0.9.0": "the first with promises",
    "0.12.0": "bytecode 3",
    "0.14.0": "bytecode 4",
    "0.15.0": "bytecode 6",
    "0.16.0": "`collective_broadcast`",
    "0.18.0": "quantized types per axis",
    "0.19.0": "`composite`",
    "1.0.0": "read for five years, written for readers of two years before",
    "1.1.0": "batching dimensions of `gather` and `scatter`",
    "1.2.0": "2-bit integers",
    "1.3.0": "dictionaries as `custom_call`'s configuration",
    "1.4.0": "`tan`",
    "1.5.0": "collectives of several arrays",
    "1.6.0": "algorithms of `dot_general`",
    "1.7.0": "`f8E4M3`, `f8E3M4`",
    "1.8.0": "`f4E2M1FN`, `f6`, `f8E8M0FNU`",
    "1.9.0": "`result_accuracy` of `exponential`",
    "1.10.0": "`result_accuracy` of the other functions",
    "1.11.0": "other dialects within artifacts",
    "1.13.0": "buffers in `custom_call`",
    "1.15.0": "`async_start`, `async_done`",
    "1.16.0": "replica groups by the axes of a mesh",
    "1.17.0": "futures in `custom_call`",
    "1.18.0": "tilings of `custom_call`'s results",
    "1.19.0": "`collective_reduce`",
    "1.20.0": "`collective_broadcast` of several arrays, and with roots",
}
WEIGHTS = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
PROGRAM = f"""func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<f32>) {{
  %w = stablehlo.constant dense<{WEIGHTS.tolist()}> : tensor<4x4xf32>
  %y = stablehlo.dot %x, %w : (tensor<4xf32>, tensor<4x4xf32>) -> tensor<4xf32>
  %0 = stablehlo.tanh %y : tensor<4xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0]
      : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %0, %1 : tensor<4xf32>, tensor<f32>
}}"""
X = np.array([-1, 0, 0.5, 2], np.float32)

TOP = """# Forms and versions of programs

Made by `python docs/make_interop_formats.py`, with jaxlib {jaxlib}. Every line was tried: the program was written so,
read back, and gave the same results to the bit.

`sx.load` and `sx.compile` take any of these, from a file, from `bytes`, or as text; the tools too. What it is, is seen
by what is in it. `stablexla-translate` turns one into another, and `stablexla-translate --info FILE` tells what a file
holds.

## Forms

| form | read | written | ending of `stablexla-translate -o` |
|---|---|---|---|
"""

REST = """
Text is UTF-8; comments and a byte order mark before it do no harm. Text and bytecode may be of StableHLO, CHLO, VHLO,
MHLO, Shardy, func and the other dialects that jaxlib's MLIR has. HLO is read as XLA prints it before its passes and
after them, such as what `--xla_dump_to` wrote: [every opcode of HLO](hlo_opcodes.md). HLO text may also lack the line
`HloModule`: computations, of which the one marked `ENTRY` is run or else the last, or a single instruction. Tuples are
taken apart, and branches between the blocks of a function (`cf.br`, `cf.cond_br`, `cf.switch`) become loops and
conditionals.

Bytes of unknown origin are read in a process of their own ([decision 0008](decisions/0008-reading-bytes.md)); those
that you trust are read in place by `sx.load(data, trusted=True)`. When a module has no function `main`, another one is
run by `sx.load(program, entry="name")`, `sx.compile(program, entry="name")`, and `--entry=name` of the tools. Of the
other functions only those that it calls matter.

## Versions of StableHLO

Artifacts of {minimum} to {current} are read and written: {count} versions, not counting patch levels. The option
`--target-version` also takes `minimum`, `current`, `week-4` ({week4}) and `week-12` ({week12}). A program that uses
something younger than the version is refused with the oldest version that has all of it.

An artifact of a version newer than {current} is read when it uses nothing that is not known here, and is refused
otherwise: the error says what wrote it, which operation is the first one too new, and for which version to write it.

| version | bytecode | read back | new in it |
|---|---|---|---|
"""

ONNX = """
## ONNX

ONNX is no form that is read here. The package `torch-mlir` writes it as StableHLO; it needs `onnx` beside it. Its
`torch-mlir-opt` lies in the package, in `torch_mlir/_mlir_libs`. The weights are constants of the program, and
`entry="g"` is the name of the model's graph:

```sh
python -m torch_mlir.tools.import_onnx model.onnx -o model.torch.mlir
torch-mlir-opt --pass-pipeline="builtin.module(torch-onnx-to-torch-backend-pipeline,
    torch-backend-to-stablehlo-backend-pipeline)" model.torch.mlir -o model.mlir
stablexla-run model.mlir --entry=g
```

Sizes have to be known: `onnx.shape_inference.infer_shapes` before it writes those of inner values. Operators that
torch-mlir has no lowering for are refused by it. The other way is a module of PyTorch, by `onnx2torch`, and
`stablexla.interop.torch.compile` ([PyTorch](pytorch.md)).
"""
ARTIFACTS = "## Artifacts of other producers\n"
ABOUT_ARTIFACTS = """
StableHLO's repository keeps an artifact of each version, `stablehlo_legalize_to_vhlo.*.mlir.bc` in
`stablehlo/tests/vhlo`, written when that version was new. Each has a function for each operation, attribute and type.
Tried by `python docs/make_interop_formats.py --artifacts FOLDER`: the artifact is read, and each function compiled for
the first numbers of devices that its groups fit.

| version | functions read | compiled | custom calls of unregistered targets | refused |
|---|--:|--:|--:|--:|
"""
DEVICES = [(1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (16, 1), (1, 16)]
"""Numbers of replicas and partitions."""

BYTECODE = """
MLIR bytecode outside of artifacts is read and written in the versions 0 to {newest} of its encoding. It makes no
promise across versions of StableHLO: write artifacts for what is to be read later.

{total}
"""


def runs(program: bytes, expected: list[np.ndarray]) -> bool:
    """Whether a program gives these results, to the bit."""
    results = sx.compile(program).execute([X])
    return all(np.array_equal(ours, theirs) for ours, theirs in zip(results, expected, strict=True))


def form_rows(module: ir.Module, expected: list[np.ndarray]) -> Iterator[tuple[bool, str]]:
    for form in Format:
        endings = ", ".join(f"`{ending}`" for ending, of in ENDINGS.items() if of is form)
        if form not in FORMS:
            good = runs(_exported(), expected)
            yield good, f"| {form.described} | {_yes(good)} | by JAX | |"
            continue
        data = write(module, form)
        good = recognise(data) is form and runs(data, expected)
        yield good, f"| {form.described} | {_yes(good)} | {_yes(good)} | {endings} |"


def _exported() -> bytes:
    """The program, written in JAX and by JAX."""
    import jax
    import jax.numpy as jnp
    from jax import export

    def function(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = jnp.tanh(x @ WEIGHTS)
        return y, y.sum()

    return bytes(
        export.export(jax.jit(function), platforms=["cpu"])(jax.ShapeDtypeStruct((4,), np.float32)).serialize()
    )


def version_rows(module: ir.Module, expected: list[np.ndarray]) -> Iterator[tuple[bool, str]]:
    for version in targets():
        data = serialise(module, version)
        good = runs(data, expected)
        yield good, f"| {version} | {read_bytecode(data).version} | {_yes(good)} | {NEWS.get(version, '')} |"


def artifacts_section(folder: Path) -> str:
    """Try the artifacts in a folder."""
    tried = sorted((_version(path), *_compiled(path)) for path in folder.glob("*[0-9].mlir.bc"))
    rows = [f"| {'.'.join(map(str, version))} | {' | '.join(map(str, counts))} |\n" for version, counts, _ in tried]
    _, _, refused = tried[-1]
    listed = [f"- {', '.join(f'`{name}`' for name in names)}: {why}\n" for why, names in refused.items()]
    return ABOUT_ARTIFACTS + "".join(rows) + "\nRefused of the newest:\n\n" + "".join(listed) + "\n"


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.name.split(".")[-3].split("_"))


def _compiled(path: Path) -> tuple[list[int], dict[str, list[str]]]:
    """The numbers of a row, and the reasons of refusals with the functions of each."""
    data = path.read_bytes()
    module = load_bytes(data, str(path))
    names = [op.attributes["sym_name"].value for op in module.body.operations if len(op.operation.regions[0].blocks)]
    refused: dict[str, list[str]] = {}
    calls = 0
    for name in names:
        why = _refusal(module, name)
        if "there is no target" in why:
            calls += 1
        elif why:
            refused.setdefault(why, []).append(name)
    many = sum(map(len, refused.values()))
    return [len(names), len(names) - calls - many, calls, many], refused


def _refusal(module: ir.Module, name: str) -> str:
    """Why a function does not compile for any of the numbers of devices; nothing when it does for one."""
    why = ""
    for replicas, partitions in DEVICES:
        try:
            sx.compile(module, entry=name, num_replicas=replicas, num_partitions=partitions)
        except sx.StablexlaError as error:
            said = error.summary.split("\n")[0]
            if not re.search("names (device|replica|partition)", said):
                return said
            why = why or said
        else:
            return ""
    return why


def _yes(good: bool) -> str:
    return "yes" if good else "**no**"


def page(artifacts: str = "") -> str:
    """The page's text.

    Args:
        artifacts: the section on those of other producers; that of the page when not given.
    """
    artifacts = artifacts or PAGE.read_text().partition(ARTIFACTS)[2].partition("## ")[0]
    module = sx.load(PROGRAM)
    expected = sx.compile(module).execute([X])
    forms, versions = list(form_rows(module, expected)), list(version_rows(module, expected))
    weeks = {"week4": resolve("week-4"), "week12": resolve("week-12")}
    good = sum(ok for ok, _ in forms), sum(ok for ok, _ in versions)
    total = f"{good[0]} of {len(forms)} forms and {good[1]} of {len(versions)} versions were read back and ran."
    return (
        TOP.format(jaxlib=metadata.version("jaxlib"))
        + "\n".join(row for _, row in forms)
        + "\n"
        + REST.format(minimum=MINIMUM, current=CURRENT, count=len(versions), **weeks)
        + "\n".join(row for _, row in versions)
        + "\n"
        + BYTECODE.format(newest=NEWEST, total=total)
        + ONNX
        + "\n"
        + ARTIFACTS
        + artifacts
        + runpy.run_path(str(PAGE.with_name("dialect_operations.py")))["section"]()
    )


def main() -> int:
    """Writes the page, or, with --check, says whether it is as it would be written."""
    folders = [Path(folder) for option, folder in pairwise(sys.argv) if option == "--artifacts"]
    text = page(artifacts_section(folders[0]) if folders else "")
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text() == text else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
