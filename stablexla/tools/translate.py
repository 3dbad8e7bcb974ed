"""`stablexla-translate`: converts programs between forms, and describes files."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import jaxlib.mlir.ir as ir
from rich.console import Console

from stablexla.dialects.display.tables import console, show_table
from stablexla.dialects.errors import UnsupportedError
from stablexla.interop.encodings.file_information import Information, inform
from stablexla.interop.encodings.formats import Format
from stablexla.interop.encodings.versions import CURRENT, MINIMUM, resolve
from stablexla.interop.encodings.writers import FORMS, write
from stablexla.interop.entry import with_entry
from stablexla.interop.loading import load, load_bytes
from stablexla.tools.common import FAILED, add_entry_option, add_text_options, form_of, read_input, run_tool
from stablexla.tools.parser import Parser, UsageError
from stablexla.tools.saved_files import add_key_option, describe, is_saved, key_of
from stablexla.tools.terminal import highlighted, print_error

EXAMPLES = f"""
forms (--to, or by the ending of -o FILE):
  text       MLIR text                      .mlir
  bytecode   MLIR bytecode                  .mlirbc
  artifact   StableHLO portable artifact    .stablehlo  for StableHLO --target-version or newer
  hlo-text   HLO text                       .hlo, .hlo.txt
  hlo        HLO proto                      .pb, .hlo.pb
What FILE is, is seen by what is in it. Files of jax.export are read as well, and programs of torch.export (.pt2), which
take PyTorch; PyTorch's reader is not made for files of people whom you don't trust.

versions (--target-version): {MINIMUM} to {CURRENT}, or a name
  minimum    the oldest that can be written: {MINIMUM}
  current    this build's: {CURRENT} (default)
  week-4     what a consumer of that age reads ({resolve("week-4")}); week-12 one of that ({resolve("week-12")})

examples:
  stablexla-translate model.mlirbc                          as text, on standard output
  stablexla-translate model.mlir -o model.mlirbc
  stablexla-translate model.mlir -o model.stablehlo --to=artifact --target-version=1.3.0
  stablexla-translate model.mlir -o model.hlo               as XLA reads it
  stablexla-translate before_optimizations.hlo | stablexla-opt - --stage=tensor
  stablexla-translate model.pt2 --to=stablehlo -o model.stablehlo --state-dict weights.safetensors
  stablexla-translate --info model.stablehlo                versions, functions, operations; --json for programs
  stablexla-translate --info model.sxe --key-file key       what a saved executable holds, and who signed it
  stablexla-translate model.mlir --entry=predict --to=text  another function becomes main

exit codes: 0 it was written, or told of; 1 it cannot be read, or not be written in that form; 2 wrong usage
"""
_STABLEHLO = "stablehlo"
ENDINGS = {
    ".mlir": Format.TEXT,
    ".mlirbc": Format.BYTECODE,
    ".stablehlo": Format.ARTIFACT,
    ".hlo": Format.HLO_TEXT,
    ".hlo.txt": Format.HLO_TEXT,
    ".pb": Format.HLO_PROTO,
}


def parser() -> Parser:
    """Return the parser of all options."""
    description = "Reads a program in any form, checks it, and writes it in another; or tells what a file holds."
    parser = Parser("stablexla-translate", description, EXAMPLES)
    add = parser.add_argument
    add("file", nargs="?", default="-", metavar="FILE", help="the program; - is standard input (default)")
    forms = [*(form.value for form in FORMS), _STABLEHLO]
    told = "the form to write (default: by -o's ending, else text); stablehlo is artifact"
    add("--to", choices=forms, metavar="FORM", help=told)
    add("-o", dest="output", metavar="FILE", default="-", help="where to write (default: standard output)")
    add("--info", action="store_true", help="tell what the file holds instead")
    add("--json", action="store_true", help="with --info, as JSON")
    add_key_option(parser)
    add_entry_option(parser)
    artifact = parser.add_argument_group("artifacts and bytecode")
    artifact.add_argument("--target-version", metavar="VERSION", help="the oldest StableHLO to read it; see below")
    artifact.add_argument("--bytecode-version", type=int, metavar="N", help="of MLIR's encoding (default: the newest)")
    artifact.add_argument(
        "--allow-other-dialects",
        action="store_true",
        help="let operations into an artifact that no version of StableHLO promises to read",
    )
    pytorch = parser.add_argument_group("programs of torch.export")
    pytorch.add_argument(
        "--weights",
        choices=["parameters", "constants"],
        default="parameters",
        help="what parameters and buffers become: the first parameters of main (default), or constants in it",
    )
    pytorch.add_argument("--state-dict", metavar="FILE", help="write parameters and buffers there, as safetensors")
    add_text_options(parser.add_argument_group("text"))
    return parser


def _form(arguments: argparse.Namespace) -> Format:
    if arguments.to:
        return Format.ARTIFACT if arguments.to == _STABLEHLO else Format(arguments.to)
    if arguments.output == "-":
        return Format.ARTIFACT if arguments.target_version else Format.TEXT
    for ending in sorted(ENDINGS, key=len, reverse=True):
        if arguments.output.endswith(ending):
            return ENDINGS[ending]
    raise UsageError(f"{arguments.output}: its ending tells no form; give one by --to=FORM")


def _check(arguments: argparse.Namespace, form: Format) -> None:
    """Raise UsageError for options that the form does not have."""
    if arguments.target_version and form is not Format.ARTIFACT:
        raise UsageError(f"--target-version is for artifacts, not for {form.described}; add --to=artifact")
    if arguments.allow_other_dialects and form is not Format.ARTIFACT:
        raise UsageError(f"--allow-other-dialects is for artifacts, not for {form.described}")
    if arguments.bytecode_version is not None and form is not Format.BYTECODE:
        raise UsageError(f"--bytecode-version is for bytecode, not for {form.described}")
    if arguments.bytecode_version is not None and not 0 <= arguments.bytecode_version <= 6:
        raise UsageError("--bytecode-version is a number from 0 to 6")
    if arguments.target_version:
        try:
            resolve(arguments.target_version)
        except UnsupportedError as error:
            raise UsageError(f"--target-version: {error}") from None
    if form not in (Format.TEXT, Format.HLO_TEXT) and arguments.output == "-" and sys.stdout.isatty():
        raise UsageError(f"{form.described} is no text for a terminal: -o FILE, or a pipe")


def _load(arguments: argparse.Namespace) -> ir.Module:
    file, entry = arguments.file, arguments.entry
    if file == "-":
        return with_entry(load_bytes(*read_input(file)), entry)
    if file.endswith(".pt2") and is_zipfile(file):
        return _of_pytorch(arguments)
    if arguments.state_dict or arguments.weights != "parameters":
        raise UsageError(f"{file} is no program of torch.export: it goes without --weights and --state-dict")
    return load(Path(file), entry=entry)


def _of_pytorch(arguments: argparse.Namespace) -> ir.Module:
    """Return the module of a program of PyTorch, and write its parameters and buffers where they are asked for."""
    from stablexla.interop import torch as interop

    exported = interop.load_exported(arguments.file)
    if arguments.state_dict:
        interop.save_state(exported, arguments.state_dict)
    return interop.portable_module(exported, constants=arguments.weights == "constants")


def _translate(arguments: argparse.Namespace) -> int:
    form = _form(arguments)
    _check(arguments, form)
    module = _load(arguments)
    written = write(
        module,
        form,
        target=arguments.target_version or "current",
        bytecode_version=arguments.bytecode_version,
        allow_other_dialects=arguments.allow_other_dialects,
        text=form_of(arguments),
    )
    if arguments.output == "-":
        sys.stdout.buffer.write(highlighted(written, sys.stdout))
        sys.stdout.buffer.flush()
    else:
        Path(arguments.output).write_bytes(written)
    return 0


def _info(arguments: argparse.Namespace) -> int:
    if arguments.to or arguments.output != "-" or arguments.target_version:
        raise UsageError("--info writes nothing: it goes without --to, -o and --target-version")
    data, file = read_input(arguments.file)
    if is_saved(data):
        return _info_of_saved(describe(data, file, key_of(arguments)), arguments)
    found = inform(data, file)
    if arguments.json:
        print(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        show(found, console())
    return FAILED if found.problem else 0


def _info_of_saved(found: dict[str, Any], arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _table(console(), ("", ""), [(name, str(value)) for name, value in found.items() if value])
    return 0


def show(found: Information, where: Console) -> None:
    """Print the facts about a file as tables, with an empty line after each."""
    rows = {
        "file": found.file,
        "form": found.form.described,
        "bytes": f"{found.size:,}",
        "written by": found.producer,
        "StableHLO": _stablehlo(found),
        "bytecode": "" if found.bytecode is None else f"version {found.bytecode}",
        "module": found.module,
        "not known here": ", ".join(found.unknown),
        **found.attributes,
    }
    _table(where, ("", ""), [(name, value) for name, value in rows.items() if value])
    if found.functions:
        functions = [("public" if f.public else "private", f"@{f.name}", f.type) for f in found.functions]
        _table(where, ("functions", str(len(functions)), ""), functions)
    if found.operations:
        dialects: Counter[str] = Counter()
        for name, count in found.operations.items():
            dialects[name.partition(".")[0]] += count
        whole = ", ".join(f"{dialect} {count:,}" for dialect, count in dialects.most_common())
        counts = sorted(found.operations.items(), key=lambda item: (-item[1], item[0]))
        total = f"{found.operations.total():,}"
        _table(
            where,
            ("operations", total, whole),
            [(name, f"{count:,}", "") for name, count in counts],
            # Programs read the lines of a pipe, which have the counts on the left.
            numbers=(total,) if where.is_terminal else (),
        )
    if found.problem:
        print_error(found.problem)


def _stablehlo(found: Information) -> str:
    return f"{found.stablehlo} (this build reads {MINIMUM} to {CURRENT})" if found.stablehlo else ""


def _table(where: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> None:
    show_table(where, heads, rows, numbers)
    print(file=where.file)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.json and not arguments.info:
        raise UsageError("--json is for --info")
    return _info(arguments) if arguments.info else _translate(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; return its exit code."""
    options = parser()
    arguments = options.parse_args(argv)
    return run_tool(lambda: _run(arguments), options.refuse)


if __name__ == "__main__":
    sys.exit(main())
