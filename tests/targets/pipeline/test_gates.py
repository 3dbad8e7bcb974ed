"""Both sides of every gate: arrays of one element fewer than a gate asks for, as many, and one more.

Here the gate moves, and the program stays. Oracle: StableHLO's interpreter, XLA:CPU or numpy; GPUs on the simulated
driver. Catches code that is wrong on one side of a size, and gates that nothing asks.
"""

from __future__ import annotations

import functools
import shutil
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.compiling.core import compile_watched
from stablexla.compiling.request import Request
from stablexla.dialects.choices import GATES
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu import emit
from stablexla.targets.cpu.attention import attention
from stablexla.targets.gpu.pipeline import plain_pipeline
from stablexla.targets.pipeline.dump import KnobWatcher
from stablexla.targets.pipeline.pipelines import Step
from tests.comparison import assert_same
from tests.programs import ORACLES
from tests.targets.gpu.runtime import simulated
from tests.targets.pipeline.gate_programs import PROGRAMS, Array

GPU = "gpu:sm_80"
SMALL = CpuTarget(num_threads=4)
"""Machines differ, and so do the sizes at which their gates decide."""


@dataclass(frozen=True)
class Row:
    """A gate's test.

    Attributes:
        program: whose code is another one when the gate has the value `at` than when it is one less.
        choices: of the other gates.
        bits, features: vectors of the CPU, and the instructions that are emulated.
        general: sends the kernels through the general path.
        stage: at which the code differs.
    """

    program: str
    at: int
    choices: str = "usual"
    bits: int = 256
    features: str = ""
    general: bool = False
    stage: str = "buffers"


ROWS: dict[str, Row] = {
    "arg-search.block": Row("argmax-places", 61),
    "arg-search.blocks-of-part": Row("argmax-places", 2),
    "arg-search.enough-rows": Row("argmax-places", 4, "usual+arg-search.blocks-of-part=1"),
    "assembly.block-bytes": Row("joined", 8160),
    "assembly.most-woven": Row("woven", 3),
    "assembly.part": Row("joined", 26),
    "assignment.longest-written-out": Row("swapped", 5),
    "attention.few-queries": Row("attention-few", 3),
    "attention.most-bytes": Row("attention", 3968),
    "attention.short-sums": Row("attention", 9),
    "attention.worthwhile": Row("attention-few", 7680),
    "channels-last.least-convolutions": Row(
        "channels-first", 4, "usual+channels-last.most-moved=1000", stage="stablehlo"
    ),
    "channels-last.most-moved": Row("channels-first", 34, stage="stablehlo"),
    "check-stops.short": Row("loop-of-scalars", 2100, stage="llvm"),
    "complex-products.least-work": Row("complex-product", 1729),
    "contraction.called-depth": Row("product", 201, "usual+contraction.library-work=1", bits=512),
    "contraction.called-work": Row("product", 120001, "usual+contraction.library-work=1", bits=512),
    "contraction.dots-lhs-bytes": Row("scaled-weights-turned", 6400, "usual+join-factors.least-elements=1"),
    "contraction.far-panels": Row(
        "product-streamed", 9, "usual+machine.l2-bytes=32768+contraction.short-depth=1+contraction.small-bytes=1"
    ),
    "contraction.few-pages-bytes": Row("product-left-turned", 8000),
    "contraction.few-rows": Row("few-rows", 4),
    "contraction.least-work": Row("bf16-few", 81921),
    "contraction.library-work": Row("product", 120000, "usual+contraction.called-work=100000000"),
    "contraction.long-piece": Row(
        "product-streamed", 481, "usual+machine.l2-bytes=32768+contraction.short-depth=1+contraction.small-bytes=1"
    ),
    "contraction.most-blocks": Row("bytes-deep", 6),
    "contraction.most-parts": Row("few-rows", 9, "usual+contraction.part-bytes=64"),
    "contraction.near-panel-bytes": Row("product-deep-wide", 8256),
    "contraction.panels": Row("product-tall", 3, "eager"),
    "contraction.part-bytes": Row("product-deep", 43201),
    "contraction.part-steps": Row("few-rows", 26, "usual+contraction.part-bytes=64"),
    "contraction.read-columns": Row("product", 64, "usual+contraction.short-depth=1+contraction.small-bytes=1"),
    "contraction.rhs-bytes": Row("product-turned", 12000),
    "contraction.rows-lhs-bytes": Row("product-deep", 28800),
    "contraction.short-depth": Row("product", 50),
    "contraction.skinny-rows": Row("product-deep", 8),
    "contraction.small-bytes": Row("product", 29600),
    "contraction.split-rows": Row("product-constant", 21, "usual+contraction.short-depth=1+contraction.small-bytes=1"),
    "contraction.sums-bytes": Row("product-shifted", 640, "usual+contraction.library-work=1000000000"),
    "contraction.thin": Row(
        "product-turned",
        7,
        "usual+contraction.small-bytes=1+contraction.worth-packing-rows=1+contraction.library-work=1",
    ),
    "contraction.worth-packing-bytes": Row("product-tall", 3200),
    "contraction.worth-packing-rows": Row("product-wide", 7),
    "convolution.channels": Row("depthwise-of-halves", 48),
    "convolution.chunk": Row("convolution-wide", 25, "eager"),
    "convolution.few-outputs": Row("convolution-few", 3),
    "convolution.few-products": Row("convolution-few-bytes", 8, features="avx512_vnni+avx_vnni+sse2+emulated"),
    "convolution.least-items": Row("convolution-wide", 20, "eager+machine.l2-bytes=4096+convolution.most-items=40"),
    "convolution.lhs-bytes": Row("convolution", 6272),
    "convolution.most-items": Row("convolution-wide", 10, "eager"),
    "convolution.most-lhs-bytes": Row("convolution-deep", 8448),
    "convolution.most-padded": Row("pointwise-few", 172, "usual+machine.item-work=1000"),
    "convolution.most-phases": Row("convolution-dilated", 2),
    "convolution.most-pixels": Row("convolution", 144),
    "convolution.panel-bytes": Row("convolution", 6912),
    "convolution.pointwise-pixels": Row("pointwise", 73),
    "convolution.stage-bytes": Row("convolution", 1152),
    "convolution.tiles-padding": Row("convolution-of-bytes", 8, features="amx_tile+amx_int8+sse2+emulated", bits=512),
    "convolution.unrolled-taps": Row("depthwise", 3),
    "convolution.written-out": Row("convolution-one", 18),
    "copies.block": Row("put-rows", 513),
    "copies.grain": Row("put-rows", 4, "eager"),
    "dot-units.least-depth": Row("bf16-few-wide", 64, "eager"),
    "dot-units.tiles-depth": Row(
        "bf16-deep", 150, "usual+narrow.least-elements=100000", features="amx_tile+amx_bf16+emulated", bits=512
    ),
    "dot-units.tiles-lhs-bytes": Row(
        "bf16-deep", 40960, "usual+narrow.least-elements=100000", features="amx_tile+amx_bf16+emulated", bits=512
    ),
    "elementwise.block": Row("sums", 289),
    "elementwise.heavy": Row("heavy", 83, "usual+elementwise.stream-bytes=1"),
    "elementwise.long": Row("bf16-chain", 96),
    "elementwise.stream-bytes": Row("heavy", 2405),
    "fft.fine-roots": Row("RFFT-3x48", 17, "usual+fft.one-table=4"),
    "fft.largest-before-prime": Row("FFT-2x67", 11, "eager"),
    "fft.largest-radix": Row("FFT-2x37", 37),
    "fft.largest-unrolled": Row("FFT-3x48", 3),
    "fft.longest-rows": Row("FFT-2x240", 30),
    "fft.one-table": Row("FFT-2x240", 240),
    "fft.shortest-part": Row("FFT-3x48", 7),
    "fft.stack-bytes": Row("FFT-3x48", 12416),
    "fft.sweep": Row("FFT-2x67", 144),
    "fft.worth-sharing": Row("FFT-2x240", 119),
    "general.grain-elements": Row("sorted-short-pairs", 60),
    "general.stack-bytes": Row("sorted-pairs", 5296),
    "group.least-narrow": Row("residual-bytes", 205),
    "group.longest-row": Row("softmax", 40),
    "hoist.enough-rows": Row("hoisted", 5),
    "hoist.most-bytes": Row("hoisted", 3072),
    "join-factors.few-rows": Row("scaled-weights-bf16", 10, "usual+join-factors.least-elements=1"),
    "join-factors.least-elements": Row("scaled-weights", 3073),
    "lapack.worth-threads": Row("eigenvalues", 1081),
    "linalg.largest-in-lanes": Row("cholesky", 6),
    "linalg.room-in-lanes": Row("cholesky", 1152),
    "linalg.worth-a-call": Row("cholesky", 73, "eager"),
    "lookup.least-lookups": Row("looked-up", 301),
    "lookup.most-entries": Row("looked-up", 12, "eager"),
    "machine.group-bytes": Row("bf16-deep", 58368),
    "machine.item-work": Row("product", 60001),
    "machine.l1-bytes": Row("bf16-deep", 30720),
    "machine.l2-bytes": Row("turned", 13200),
    "machine.lhs-bytes": Row("bf16-deep", 51072),
    "machine.nontemporal-bytes": Row("sums", 2401),
    "machine.prefetch-bytes": Row("sums", 2048, "eager"),
    "machine.shared-bytes": Row("product", 12000, "eager"),
    "narrow.dots-lhs-bytes": Row("bf16-few-turned", 131072),
    "narrow.least-elements": Row("bf16-few", 20481),
    "narrow.most-rows": Row("bf16-few-wide", 4),
    "narrow.rows-lhs-bytes": Row("bf16-few-wide", 1024),
    "narrow.sums-bytes": Row("bf16-few-wide", 8800),
    "no-unroll.long-body": Row("sums", 47, stage="llvm"),
    "padding-taps.fewest-positions": Row("convolution-far", 10, stage="stablehlo"),
    "parallel.worthwhile-ns": Row("row-sums", 787),
    "random-bits.blocks": Row("bits", 97),
    "read-first.most": Row("read-old", 15),
    "reduction.few-items": Row("row-sums", 8, "eager"),
    "reduction.long-block": Row("row-sums", 129),
    "reduction.most-parts": Row("column-sums", 15, "usual+reduction.part=8"),
    "reduction.panel-bytes": Row("column-sums", 132, bits=128),
    "reduction.part": Row("column-sums", 6001),
    "repeat.least-bytes": Row("read-twice", 2401),
    "repeats.least-chain": Row("chained", 41),
    "repeats.least-length": Row("layers", 25),
    "repeats.least-saved": Row("layers", 41),
    "rolls.least-elements": Row("rolled", 201),
    "rows.scratch-bytes": Row("softmax", 160),
    "rows.short-row": Row("complex-product", 2),
    "rows.stream-bytes": Row("softmax", 3201),
    "scan-trees.shortest": Row("affine-scan-rows", 71),
    "scan.block": Row("scan", 321),
    "scan.level": Row("scan-any", 32),
    "scan.line-panel": Row("scan-wide", 300, general=True),
    "scan.long-scan": Row("scan-any-rows", 71),
    "scan.many": Row("scan-lines", 6, "eager"),
    "scan.most-carried": Row("scan-rows", 5),
    "scan.panel": Row("scan-many-wide", 672),
    "scan.panel-bytes": Row("affine-scan-wide", 512),
    "scan.stream-bytes": Row("scan", 2801),
    "scatter.block": Row("added-at", 300),
    "scatter.many": Row("put-rows", 5),
    "scatter.worth-sharing": Row("put-rows", 81),
    "slices.small-table": Row("table", 30),
    "sort.column": Row("sorted-long", 65),
    "sort.column-bytes": Row(
        "sorted-columns", 960, "usual+sort.few-elements=1+sort.short-column=1", stage="tensor"
    ),
    "sort.column-length": Row("sorted-columns", 20, "usual+sort.few-elements=1", stage="tensor"),
    "sort.columns": Row("sorted-columns", 13, "usual+sort.few-elements=1", stage="tensor"),
    "sort.few-cells": Row("sorted-few", 12, "usual+sort.library-elements=1"),
    "sort.long-digits": Row("sorted-pairs", 151),
    "sort.few-elements": Row("sorted-columns", 240, "usual+sort.columns=100", stage="tensor"),
    "sort.library-elements": Row("sorted", 350),
    "sort.longest-column": Row("sorted", 70),
    "sort.merge-block": Row("sorted-merged", 100),
    "sort.most-passes": Row("sorted-pairs", 4),
    "sort.parallel-row": Row("sorted-integers", 501),
    "sort.ranked-keys": Row("sorted-columns", 20, stage="tensor"),
    "sort.ranked-row": Row("sorted-short-pairs", 12),
    "sort.short-column": Row("sorted-columns", 20, "usual+sort.few-elements=1+sort.column-bytes=1", stage="tensor"),
    "sort.short-row": Row("sorted-row", 12),
    "sort.smallest-tile": Row("sorted-long", 2049),
    "sort.stack-bytes": Row("sorted-pairs", 1200),
    "sums.block": Row("bf16-deep", 128),
    "sums.level": Row("affine-scan-rows", 32),
    "sums.longest-running": Row("row-sums", 9),
    "top-k.few-rows": Row("top-k", 3, "usual+top-k.part-length=1"),
    "top-k.most-parts": Row("top-k", 4, "usual+top-k.part-length=1"),
    "top-k.part-length": Row("top-k", 101),
    "top-k.selected-part": Row("top-k-many", 3, "eager"),
    "transpose.block-bytes": Row("turned", 200),
    "transpose.block-lines": Row("turned", 66),
    "transpose.grain-bytes": Row("turned-tall", 102400),
    "transpose.item-bytes": Row("turned-blocks", 640),
    "transpose.thin-bytes": Row("turned-thin", 6000),
    "transpose.way-bytes": Row("turned-square", 257, "usual+machine.l2-bytes=2048"),
    "transpose.whole-bytes": Row("turned", 200, "eager"),
    "unroll.most-copies": Row("loop", 5),
    "unroll.most-operations": Row("loop", 45),
    "window.pooled-window": Row("pooled", 9),
    "window.short-window": Row("windows-long", 12, "usual+window.written-window=1"),
    "window.written-operations": Row("windows", 5),
    "window.written-window": Row("windows", 5),
    "gpu-contraction.big-tiles": Row("product-of-integers", 41),
    "gpu-convolution.big-tiles": Row("pointwise", 17, "usual+gpu-convolution.many-tiles=1"),
    "gpu-convolution.least": Row("convolution-few", 4),
    "gpu-convolution.least-depth": Row("pointwise", 17),
    "gpu-convolution.least-of-mma": Row("convolution-few", 4),
    "gpu-convolution.many-tiles": Row("pointwise", 2, "usual+gpu-convolution.big-tiles=1"),
    "gpu-convolution.most-taps": Row("depthwise", 9),
    "gpu-fft.elements": Row("FFT-3x48", 144),
    "gpu-general.thread-bytes": Row("sorted", 280, general=True),
    "gpu-launch.most-blocks": Row("turned-thin", 6),
    "gpu-mma.few-rows": Row("product-broad", 20, "usual+gpu-mma.least-iterations=1"),
    "gpu-mma.least-iterations": Row("product", 2),
    "gpu-mma.longest-chain": Row("bf16-product", 8),
    "gpu-mma.most-parts": Row("product", 2, "usual+gpu-mma.least-iterations=1"),
    "gpu-mma.together": Row("product-tall", 8),
    "gpu-reduction.enough": Row("column-sums", 11),
    "gpu-reduction.many-blocks": Row("column-sums", 2, "usual+gpu-reduction.steps=1"),
    "gpu-reduction.most-parts": Row("column-sums", 3, "usual+gpu-reduction.steps=1"),
    "gpu-reduction.short": Row("windows-large", 9),
    "gpu-reduction.steps": Row("column-sums", 7),
    "gpu-reduction.wanted-blocks": Row("column-sums", 3, "usual+gpu-reduction.steps=1"),
    "gpu-rows.most-kept": Row("row-sums", 3),
    "gpu-rows.most-threads": Row("one-sum", 128),
    "gpu-scan.chunks": Row("scan-lines", 2, "usual+gpu-scan.long=1"),
    "gpu-scan.enough": Row("scan-rows", 121),
    "gpu-scan.few": Row("scan-lines", 6, "usual+gpu-scan.long=1+gpu-scan.chunks=1"),
    "gpu-scan.least": Row("scan-rows", 27),
    "gpu-scan.long": Row("scan-lines", 131, "usual+gpu-scan.chunks=1"),
    "gpu-scan.most-parts": Row("scan-lines", 2, "usual+gpu-scan.long=1+gpu-scan.chunks=1"),
    "gpu-scan.short": Row("scan-lines", 130),
    "gpu-scatter.blocks": Row("added-rows", 8),
    "gpu-scatter.column": Row("added-rows", 20),
    "gpu-scatter.fewest-ranges": Row("added-rows", 8, "usual+gpu-scatter.most-read=1"),
    "gpu-scatter.most-read": Row("added-rows", 400, "usual+gpu-scatter.fewest-ranges=1"),
    "gpu-skinny.least-terms": Row("product-deep", 226),
    "gpu-skinny.most-parts": Row("product-deep", 3),
    "gpu-skinny.most-rows": Row("product-deep", 8),
    "gpu-skinny.most-rows-of-narrow": Row("bf16-few-wide", 4),
    "gpu-sort.most-slots": Row("sorted-few", 1024),
    "gpu-sums.several": Row("product-streamed", 3),
    "gpu-sums.terms": Row("product", 64),
    "gpu-transpose.least": Row("turned-thin", 4),
}

SPLIT = "tests/targets/llvm/test_split_module.py::test"
ELSEWHERE = {
    "convolution.library-work": "tests/targets/llvm/test_library.py::test_convolutions_pack_by_the_library",
    "call-list.least-calls": "tests/targets/llvm/test_call_list.py::test_equal_results_on_both_sides_of_the_gate",
    "calls.most-inlined": "tests/test_growth.py::test_few_calls_are_inlined",
    "early-code.least-kernels": "tests/targets/llvm/test_kept_kernels.py::test_a_program_of_few_kernels",
    "elementary-functions.least-called": "tests/numerics/test_pass.py::test_many_of_a_function_are_calls",
    "elementary-functions.most-evaluated": "tests/numerics/test_pass.py::test_what_is_for_few_elements_is_a_call",
    "no-unroll.framed": "tests/targets/llvm/test_no_unroll.py::test_a_long_loop_with_a_call_has_a_frame",
    "split-module.least-operations": f"{SPLIT}_equal_results",
    "split-module.most-of-block": f"{SPLIT}_a_long_main_is_alone_in_short_blocks",
    "split-module.most-of-small": f"{SPLIT}_a_long_main_with_a_loop_stays_with_its_kernels",
}
"""Tests of both sides of the gates on machine code, which has no text, and of those that take large programs."""


def test_every_gate_has_a_row() -> None:
    sx.pipeline("cpu"), sx.pipeline(GPU)  # which import all gates
    assert GATES.keys() == ROWS.keys() | ELSEWHERE.keys()
    assert not ROWS.keys() & ELSEWHERE.keys()
    for path in ELSEWHERE.values():
        file, _, name = path.partition("::")
        assert f"\ndef {name}(" in (Path(__file__).parents[3] / file).read_text(), path


@functools.cache
def reference(program: str) -> tuple[Any, list[Array]]:
    """Return a program and its results by its oracle."""
    given = PROGRAMS[program]
    built = given.build()
    if given.expected is None:
        return built, ORACLES[given.against](str(built), given.arguments)
    results = given.expected(*given.arguments)
    return built, results if isinstance(results, list) else [results]


def pipeline_of(row: Row, target: str, choices: str) -> sx.Pipeline:
    bits = row.bits if target == "cpu" else None
    pipeline = sx.pipeline(target, sx.CompileOptions(vector_bits=bits, choices="usual"))
    if row.general and target != "cpu":
        pipeline = plain_pipeline(target, sx.CompileOptions(choices="usual"))
    elif row.general or row.features:
        options = "general-only=true" if row.general else f"vector-bits={bits} features={row.features}"
        pipeline = pipeline.replacing_pass("stablexla-emit-kernels", f"stablexla-emit-kernels{{{options}}}")
    return pipeline.with_choices(choices)


RIGHT: set[tuple[Row, str, str]] = set()
"""Code whose results were right: gates of one program have the code of the usual values on one side."""


def code(row: Row, target: str, choices: str) -> str:
    """Return the program's code at the row's stage; that which is new is run, and its results compared."""
    given = PROGRAMS[row.program]
    program, wanted = reference(row.program)
    text = ""

    class Known(Exception):
        pass

    class Reading(KnobWatcher):
        def after_step(self, number: int, step: Step, module: Any, seconds: float) -> None:
            nonlocal text
            if step.name == row.stage:
                text = str(module)
                if (replace(row, at=0), target, text) in RIGHT:
                    raise Known

    options = sx.CompileOptions(pipeline=pipeline_of(row, target, choices))
    try:
        executable = compile_watched(Request(program, target=target, options=options), Reading)
    except Known:
        return text
    results = executable.execute(list(given.arguments))
    for actual, right in zip(results, wanted, strict=True):
        assert_same(np.asarray(actual), np.asarray(right).astype(actual.dtype), scale=given.scale)
    RIGHT.add((replace(row, at=0), target, text))
    return text


@pytest.mark.parametrize("name", sorted(ROWS, key=lambda name: ROWS[name].program))
def test_both_sides(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row, target = ROWS[name], GPU if name.startswith("gpu-") else "cpu"
    for module in (emit, attention):
        monkeypatch.setattr(module, "host_target", lambda: SMALL)
    if target == GPU and shutil.which("g++") is None:
        pytest.skip("no g++, with which the simulator is built")
    with simulated(chip=80) if target == GPU else nullcontext():
        below, at, _ = [code(row, target, f"{row.choices}+{name}={row.at + more}") for more in (-1, 0, 1)]
    assert below != at
