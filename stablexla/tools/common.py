"""The common part of the command-line tools: compile options, reading input, and errors."""

from __future__ import annotations

import argparse
import io
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from jaxlib.mlir.ir import Module

from stablexla.compiling.staged import StagedText
from stablexla.dialects.display.control_characters import escaped
from stablexla.dialects.errors import CompileError, ParseError, StablexlaError
from stablexla.dialects.rules import one_program
from stablexla.interop.entry import with_entry
from stablexla.interop.loading import load, load_bytes
from stablexla.targets.kinds import target_names
from stablexla.targets.pipeline.options import DEFAULT_TARGET, MAIN, OPT_LEVELS, VECTOR_BITS, CompileOptions
from stablexla.targets.pipeline.printing import Form
from stablexla.tools.parser import Printed, UsageError, list_of_chips, list_of_targets
from stablexla.tools.terminal import print_error
from stablexla.tools.user_code import add_code_options, read_pipeline, rule_of

FAILED = 1
INTERRUPTED = 128 + 2
"""The exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""
APART = "--apart"
"""Says to a tool that it runs in the process that `--isolated` asks for."""
STDIN = "<stdin>"
"""The name of standard input in errors."""


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `compile_options` reads."""
    group = parser.add_argument_group("compilation")
    help_ = "what to compile for: cpu (default), gpu, gpu:sm_90 ..."
    group.add_argument("--target", type=target, default=DEFAULT_TARGET, metavar="NAME", help=help_)
    group.add_argument("--list-targets", action=Printed, text=list_of_targets, help="print the targets, and end")
    group.add_argument("--list-chips", action=Printed, text=list_of_chips, help="print the GPUs' chips, and end")
    group.add_argument("--opt-level", type=int, choices=OPT_LEVELS, help="LLVM's optimisation level")
    group.add_argument(
        "--vector-bits", type=int, choices=VECTOR_BITS, help="width of vectors (default: this machine's)"
    )
    group.add_argument("--num-threads", type=int, metavar="N", help="threads that one call may use")
    group.add_argument("--flush-denormals", action="store_true", help="count denormal numbers as zero")
    group.add_argument(
        "--excess-precision", action="store_true", help="keep f32 between the bf16 operations of a kernel"
    )
    group.add_argument("--isolated", action="store_true", help="in another process, whose crash is an error here")
    group.add_argument(APART, action="store_true", help=argparse.SUPPRESS)
    group.add_argument("--time-limit", type=seconds, metavar="S", help="seconds that compiling may take, and a run")
    group.add_argument("--cache", type=Path, metavar="DIR", help="a folder in which compiled programs are kept")
    add_code_options(parser)


def add_entry_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the entry function of a module."""
    help_ = "the function of the program to run; it becomes main (default: main)"
    parser.add_argument("--entry", metavar="NAME", default=MAIN, help=help_)


def add_text_options(group: argparse._ArgumentGroup) -> None:
    """Add the options that `form_of` reads."""
    group.add_argument("--mlir-print-debuginfo", action="store_true", help="print locations")
    group.add_argument("--mlir-print-op-generic", action="store_true", help="print operations in their generic form")
    larger = "leave out constants of more elements"
    group.add_argument("--mlir-elide-elementsattrs-if-larger", metavar="N", type=int, help=larger)


def form_of(given: argparse.Namespace) -> Form:
    """Return the form in which modules are printed."""
    return Form(given.mlir_print_debuginfo, given.mlir_print_op_generic, given.mlir_elide_elementsattrs_if_larger)


def target(text: str) -> str:
    """Parse an option's target; the text after the colon is checked at look-up."""
    if text.partition(":")[0] not in target_names():
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(target_names())}; --list-targets lists them")
    return text


def count(text: str) -> int:
    """Parse an option's number, from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 on, not {text}")
    return number


def seconds(text: str) -> float:
    """Parse an option's number of seconds."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"a number of seconds, not {text}")
    return number


def compile_options(arguments: argparse.Namespace) -> CompileOptions:
    """Return the options that were given.

    Raises:
        CompileError: as `read_pipeline` and `rule_of`.
    """
    plain = (
        "opt_level",
        "num_threads",
        "flush_denormals",
        "excess_precision",
        "vector_bits",
        "isolated",
        "time_limit",
        "cache",
    )
    return CompileOptions(
        pipeline=None if arguments.pipeline is None else read_pipeline(arguments.pipeline),
        rules=[rule_of(text) for text in arguments.rule],
        **{name: getattr(arguments, name) for name in plain},
    )


def source_of(arguments: argparse.Namespace) -> Path | bytes:
    """Return the file of the arguments, or, for `-`, what standard input gives."""
    return sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file)


def read_input(file: str) -> tuple[bytes, str]:
    """Return the contents of a file, or of standard input for `-`, and its name in errors.

    Raises:
        ParseError: it cannot be read.
    """
    if file == "-":
        return sys.stdin.buffer.read(), STDIN
    try:
        return Path(file).read_bytes(), file
    except OSError as error:
        raise ParseError(f"cannot be read: {error.strerror}", file=file) from None


def program_of(arguments: argparse.Namespace, source: Path | bytes) -> Module:
    """Return the program in a file, whose name its locations then have, or in the contents of standard input.

    Raises:
        ParseError, VerificationError: as `sx.load`.
    """
    module = load(source) if isinstance(source, Path) else load_bytes(source, STDIN)
    return with_entry(module, arguments.entry)


def lowered_input(arguments: argparse.Namespace, source: Path | bytes) -> StagedText | None:
    """Return the program if its first line says that it is at a later stage; `--target` is set to that one's.

    Raises:
        CompileError: options that came too late for it.
    """
    lowered = StagedText.of(source, STDIN)
    if lowered is None:
        return None
    late = {"--entry": arguments.entry != MAIN, "--shapes": bool(getattr(arguments, "shapes", None))}
    for option, given in late.items():
        if given and lowered.header.stage != "stablehlo":
            raise CompileError(f"{option}: the program is at the stage {lowered.header.stage!r} already")
    target = lowered.target(arguments.target)
    arguments.target = target.name
    return None if lowered.rest(target, CompileOptions()) is None else lowered


def tell(error: StablexlaError) -> None:
    """Print an error as the tools do: `error: file:line:column: what`."""
    print_error(error.on_command_line())


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(escaped(f"warning: {message}"), file=sys.stderr)


def run_tool(main: Callable[[], int], refuse: Callable[[str], int] | None = None) -> int:
    """Return the exit code of a tool: that of `main`, 1 after an error, which is printed, or 130 after Ctrl-C.

    Args:
        main: the work.
        refuse: prints what a `UsageError` of it says, and returns the exit code for that.
    """
    if sys.stdout is None:  # the caller closed it
        sys.stdout = io.TextIOWrapper(io.BytesIO())
    try:
        with warnings.catch_warnings(), one_program():
            warnings.showwarning = _show_warning
            return main()
    except UsageError as error:
        assert refuse is not None
        return refuse(str(error))
    except StablexlaError as error:
        tell(error)
    except KeyboardInterrupt:
        print_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away, and Python would complain about it at exit
    except MemoryError as error:
        print_error(f"there is no memory left: {error or 'for this program'}")
    except RecursionError:
        print_error("the program is nested too deep for this tool")
    except OSError as error:  # a file that cannot be written
        print_error(f"{error.filename or 'output'}: {error.strerror}")
    return FAILED
