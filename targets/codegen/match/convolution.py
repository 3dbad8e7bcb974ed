"""Pattern match of a convolution kernel: loops as strides, and the dilated window's elements in lhs.

Reads the tensor function only and emits nothing; the choice of code for a `MatchedConvolution` is made elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import replace

import mlir.ir as ir

from stablexla.dialects.attributes.attributes import SpatialDimension
from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import row_major
from stablexla.lowering.rules.convolution import CONVOLUTION, ConvolutionConfig
from stablexla.lowering.support.configs import read_config
from stablexla.lowering.support.operations import body_of
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.match.contraction import (
    Contraction,
    ContractionAxis,
    ContractionOperand,
    EpilogueOp,
    match_epilogue,
    operand_of,
)
from stablexla.targets.codegen.refusals import CONVOLVED, refuse
from stablexla.targets.grouping.matchers import conversion_of, multiplied, starts_at_zero

# The most phases of a dilated lhs that are emitted.
MOST_PHASES = Gate("convolution.most-phases", 32, eager=2)


@dataclass(frozen=True)
class DilationPhase:
    """Outputs t * phases + p of a dimension, with the same window elements in lhs.

    `count` elements of the window, from `first` on, are multiplied; the first lies in lhs at t * stride + `offset`.
    """

    count: int
    first: int
    offset: int


@dataclass(frozen=True)
class WindowDimension:
    """A spatial dimension: sizes, strides in memory, and positions of the window's elements in lhs.

    With lhs dilated (transposed convolution), adjacent outputs see different elements of the window: they are of
    different phases. So no product with a dilation zero is ever computed.

    Attributes:
        size, window, outputs: extents in lhs, rhs and result.
        a, b, c: strides in them, in elements.
        dim: the dimension of the kernel's result, None if its extent is 1.
        phases: one for each output in a round, the period of outputs under dilation.
        stride: distance in lhs between rounds of outputs.
        tap_stride: distance in lhs to the next element of the window in this phase.
        tap_step: distance in the window to that element; negative in a reversed window.
    """

    size: int
    window: int
    outputs: int
    a: int
    b: int
    c: int
    dim: int | None
    phases: tuple[DilationPhase, ...]
    stride: int
    tap_stride: int
    tap_step: int

    @property
    def rounds(self) -> int:
        """Rounds of outputs: those of the first phase."""
        return -(-self.outputs // len(self.phases))

    @property
    def taps(self) -> int:
        """The most window elements (taps) of an output, at least 1."""
        return max(1, *(phase.count for phase in self.phases))

    @property
    def step(self) -> int:
        """Stride in lhs of the elements that are read."""
        if len(self.phases) > 1:
            return 1
        return math.gcd(self.stride, self.tap_stride) if self.taps > 1 else self.stride

    @property
    def first(self) -> int:
        """Offset in lhs of the first output's window, the leftmost of all phases."""
        return min(phase.offset for phase in self.phases)

    def reach(self, rounds: int) -> int:
        """Return the receptive field of so many rounds, in elements of lhs, `step` apart."""
        last = max(phase.offset + max(0, phase.count - 1) * self.tap_stride for phase in self.phases)
        return ((rounds - 1) * self.stride + last - self.first) // self.step + 1


@dataclass(frozen=True)
class MatchedConvolution:
    """A convolution kernel.

    Attributes:
        contraction: implicit GEMM for addressing results: batch axes are the batch and the spatial dimensions but the
            last, m is the last one, n the output features of all groups; and the epilogue.
        outer: the spatial dimensions but the last.
        last: the last one, or a trivial one.
        group: the axis of groups.
        batch: the axis of the batch.
        inputs: the axis of a group's input features.
        outputs: the number of a group's output features.
    """

    contraction: Contraction
    batch: ContractionAxis
    group: ContractionAxis
    outer: tuple[WindowDimension, ...]
    last: WindowDimension
    inputs: ContractionAxis
    outputs: int

    @property
    def taps(self) -> int:
        """Window elements of an output, for each input feature."""
        return math.prod(d.taps for d in (*self.outer, self.last))

    @property
    def window(self) -> int:
        """Elements of the window, for each pair of features."""
        return math.prod(d.window for d in (*self.outer, self.last))


def match_convolution(kernel: Kernel) -> MatchedConvolution | None:
    """Match a kernel as a convolution, or return None."""
    matched = _matched(kernel)
    if matched is None:
        refuse(CONVOLVED)
    return matched


def _matched(kernel: Kernel) -> MatchedConvolution | None:
    found = [op for op in kernel.ops if CONVOLUTION in op.attributes]
    if len(found) != 1 or not starts_at_zero(found[0]):
        return None
    operands = _match_body(found[0], kernel)
    epilogue = match_epilogue(kernel, found[0])
    if operands is None or epilogue is None:
        return None
    reader = _Reader(found[0])
    if any(len(d.phases) > MOST_PHASES() for d in reader.spatial):
        return None
    return reader.convolved(kernel, operands, epilogue)


def _match_body(op: ir.Operation, kernel: Kernel) -> tuple[ContractionOperand, ContractionOperand] | None:
    """Match `yield acc + convert(x) * convert(w)`, where x is loaded from lhs; return both operands."""
    factors, reads = multiplied(op), [o for o in body_of(op) if o.name == "tensor.extract"]
    if not factors or len(reads) != 1:
        return None
    x, w = conversion_of(factors[0], stop=("tensor.extract", "arith.select")), conversion_of(factors[1])
    if x is None or w is None or w[0] != op.regions[0].blocks[0].arguments[0]:
        return None
    a, b = operand_of(kernel, reads[0].operands[0], x[1]), operand_of(kernel, op.operands[0], w[1])
    return None if a is None or b is None else (a, b)


class _Reader:
    """Reader of the attribute that the lowering left, into axes."""

    def __init__(self, op: ir.Operation) -> None:
        config = read_config(ConvolutionConfig, op.attributes[CONVOLUTION], CONVOLUTION)
        self.result = op.results[0]
        self.lhs, self.rhs, self.shape = config.lhs, config.rhs, config.result
        self.a, self.b, self.c = (row_major(shape) for shape in (self.lhs, self.rhs, self.shape))
        self.numbers = config.convolution
        self.spatial = [self._spatial(dimension) for dimension in config.convolution.spatial]

    def convolved(
        self, kernel: Kernel, operands: tuple[ContractionOperand, ContractionOperand], epilogue: tuple[EpilogueOp, ...]
    ) -> MatchedConvolution:
        conv = self.numbers
        groups = conv.feature_groups * conv.batch_groups
        batch, channel = conv.input_batch, conv.input_feature
        inputs = ContractionAxis(self.rhs[conv.kernel_input], self.a[channel], self.b[conv.kernel_input])
        outputs = self.rhs[conv.kernel_output] // groups
        of_batch = ContractionAxis(self.shape[conv.output_batch], self.a[batch], 0, *self._of_result(conv.output_batch))
        of_group = inputs.extent * inputs.a
        a = of_group if conv.feature_groups > 1 else self.lhs[batch] // conv.batch_groups * self.a[batch]
        b, c = self.b[conv.kernel_output], self.c[conv.output_feature]
        group = ContractionAxis(groups, a, outputs * b, outputs * c)
        n = ContractionAxis(outputs * groups, 0, b, *self._of_result(conv.output_feature))
        dimensions = self.spatial or [WindowDimension(1, 1, 1, 0, 0, 0, None, (DilationPhase(1, 0, 0),), 1, 1, 1)]
        *outer, m = (ContractionAxis(d.outputs, d.a, 0, d.c, _dims(d.dim, d.outputs)) for d in dimensions)
        k = replace(inputs, extent=inputs.extent * math.prod(d.taps for d in self.spatial))
        shape = tuple(self.result.type.shape)
        contraction = Contraction(kernel, *operands, self.result, (of_batch, *outer), m, n, k, (), epilogue, shape)
        *outer_dimensions, last = dimensions
        return MatchedConvolution(contraction, of_batch, group, tuple(outer_dimensions), last, inputs, outputs)

    def _of_result(self, dim: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Return stride and dimensions of an axis of the result; the kernel has none of extent 1."""
        return self.c[dim], _dims(self._place(dim), self.shape[dim])

    def _place(self, dim: int) -> int | None:
        return None if self.shape[dim] == 1 else sum(extent != 1 for extent in self.shape[:dim])

    def _spatial(self, d: SpatialDimension) -> WindowDimension:
        size, window, outputs = self.lhs[d.input], self.rhs[d.kernel], self.shape[d.output]
        stride, dilation, tap_dilation = d.stride, d.lhs_dilation, d.rhs_dilation
        rounds = dilation // math.gcd(dilation, stride)
        step = dilation // math.gcd(dilation, tap_dilation)
        phases = []
        for p in range(rounds):
            # Elements of the window on undilated elements of lhs are `step` apart.
            places = ((k, p * stride - d.low + k * tap_dilation) for k in range(min(step, window)))
            first, place = next(((k, at) for k, at in places if at % dilation == 0), (window, 0))
            count = -(-(window - first) // step)
            at = window - 1 - first if d.reversed else first
            phases.append(DilationPhase(count, at if count else 0, place // dilation))
        return WindowDimension(
            size,
            window,
            outputs,
            self.a[d.input],
            self.b[d.kernel],
            self.c[d.output],
            self._place(d.output),
            tuple(phases),
            rounds * stride // dilation,
            step * tap_dilation // dilation,
            -step if d.reversed else step,
        )


def _dims(place: int | None, extent: int) -> tuple[tuple[int, int], ...]:
    return () if place is None else ((place, extent),)
