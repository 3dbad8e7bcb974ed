"""The emitter of convolutions: random ones for every width of vectors, and how they are cut; numpy is the reference."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.dialects.element_types import element_type
from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.cpu.convolution import plan as convolution_plan
from stablexla.targets.cpu.convolution import units as convolution_units
from tests.comparison import assert_same
from tests.ops.convolution_reference import convolve, wide
from tests.programs import run
from tests.targets.cpu.harness import compile_kernel
from tests.targets.grouping.stages import outlined

NHWC = sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC")


# Types of sums, by the kinds of types that are narrower; ml_dtypes has the kind V.
SUMS = {"i": np.dtype(np.int32), "u": np.dtype(np.uint32), "f": np.dtype(np.float32), "V": np.dtype(np.float32)}
# What a machine has, an element type, and the instruction that is taken.
INSTRUCTIONS = {
    "tiles bf16": (("amx_bf16", "amx_tile", "sse2"), ml_dtypes.bfloat16),
    "tiles f16": (("amx_fp16", "amx_tile", "sse2"), np.float16),
    "tiles ss": (("amx_int8", "amx_tile", "sse2"), np.int8),
    "tiles uu": (("amx_int8", "amx_tile", "sse2"), np.uint8),
    "bf16": (("avx512_bf16", "sse2"), ml_dtypes.bfloat16),
    "pairs": (("avx512_vnni", "avx_vnni", "sse2"), np.int8),
    "dot ss": (("asimd", "asimddp"), np.int8),
    "dot uu": (("asimd", "asimddp"), np.uint8),
    "dot bf16": (("asimd", "bf16"), ml_dtypes.bfloat16),
}


class Drawn:
    """A convolution at random: orders of dimensions, sizes, window and groups; integers are summed in 32 bits."""

    def __init__(self, seed: int, dtype: Any = np.float32) -> None:
        self.dtype = np.dtype(dtype)
        self.rng = rng = np.random.default_rng(seed)
        count = int(rng.choice([0, 1, 1, 2, 2, 2, 2, 3]))
        letters = "WHD"[:count]
        self.orders = [self._shuffled(word + letters) for word in ("NC", "IO", "NC")]
        self.numbers = sx.ConvDimensionNumbers.of(*self.orders)
        kind = rng.choice(["plain", "plain", "features", "channels", "batch"])
        groups = 1 if kind == "plain" else int(rng.choice([2, 3, 8, 24]))
        inputs = int(rng.choice([1, 2, 3, 8, 17]))
        outputs = groups * (1 if kind == "channels" else int(rng.choice([1, 2, 7, 8, 20, 33])))
        self.feature_groups, self.batch_groups = (1, groups) if kind == "batch" else (groups, 1)
        size = {"N": int(rng.integers(1, 4)) * self.batch_groups, "C": inputs * self.feature_groups}
        kernel = {"I": inputs, "O": outputs}
        self.window: dict[str, Any] = {"strides": [], "padding": [], "lhs_dilation": [], "rhs_dilation": []}
        self.window["reversal"] = [bool(r) for r in rng.integers(0, 2, count)]
        for letter in self.orders[0].replace("N", "").replace("C", ""):
            self._draw_spatial(letter, size, kernel, small=count == 3)
        self.lhs = self._normal([size[letter] for letter in self.orders[0]])
        self.rhs = self._normal([kernel[letter] for letter in self.orders[1]])

    def _shuffled(self, word: str) -> str:
        return "".join(self.rng.permutation(list(word)))

    def _draw_spatial(self, letter: str, size: dict[str, int], kernel: dict[str, int], *, small: bool) -> None:
        rng = self.rng
        kernel[letter] = int(rng.integers(1, 4 if small else 6))
        dilations = [int(rng.choice([1, 1, 1, 2, 3])) for _ in range(2)]
        span = (kernel[letter] - 1) * dilations[1] + 1
        padding = [int(p) for p in rng.integers(-1, span + 1, 2)]
        least = max(1, -(-(span - sum(padding) - 1) // dilations[0]) + 1)
        size[letter] = least + int(rng.integers(0, 5 if small else 20))
        self.window["strides"].append(int(rng.choice([1, 1, 2, 3])))
        self.window["padding"].append(tuple(padding))
        self.window["lhs_dilation"].append(dilations[0])
        self.window["rhs_dilation"].append(dilations[1])

    def _normal(self, shape: list[int]) -> np.ndarray:
        if self.dtype.kind not in "iu":
            return self.rng.normal(size=shape).astype(self.dtype)
        limits = np.iinfo(self.dtype)
        return self.rng.integers(limits.min, limits.max + 1, shape, self.dtype)

    @property
    def sums(self) -> Any:
        return self.dtype if self.dtype.kind == "f" and self.dtype.itemsize > 2 else SUMS[self.dtype.kind]

    @property
    def expected(self) -> np.ndarray:
        groups = {"feature_groups": self.feature_groups, "batch_groups": self.batch_groups}
        return convolve(wide(self.lhs), wide(self.rhs), self.numbers, **self.window, **groups).astype(self.sums)

    def make(self, b: sx.XlaBuilder, x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        window = self.window
        return sx.conv_general_dilated(
            x,
            w,
            window["strides"],
            window["padding"],
            window["lhs_dilation"],
            window["rhs_dilation"],
            self.numbers,
            feature_group_count=self.feature_groups,
            batch_group_count=self.batch_groups,
            window_reversal=window["reversal"],
            preferred_element_type=element_type(self.sums),
        )

    def kernels(self, computation: sx.XlaComputation) -> str:
        """The program in kernels; the convolution's own also where taps meet nothing but padding."""
        return str(outlined(str(computation), without="stablexla-drop-padding-taps"))

    def check_alone(self, target: CpuTarget | None = None) -> None:
        """The kernel alone, its operands at the end of what may be read, its items cut in several ways."""
        b = sx.XlaBuilder("test")
        shapes = (sx.Shape(element_type(a.dtype), a.shape) for a in (self.lhs, self.rhs))
        root = self.make(b, *(b.parameter(i, shape) for i, shape in enumerate(shapes)))
        text = self.kernels(b.build(root))
        if 'stablexla.kernel = "convolution"' not in text:
            return
        text, order = kernel_alone(text)
        kernel = compile_kernel(text, target)
        arrays = [(self.lhs, self.rhs)[i].reshape(b.shape) for i, b in zip(order, kernel.inputs, strict=True)]
        (result,) = kernel.in_all_ways(*arrays)
        assert_same(result.view(self.sums).reshape(root.shape.dimensions), self.expected, scale=2e-6)


def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the emitter think that items have next to no memory."""
    for name, size in (("LHS_BYTES", 2 << 10), ("STAGE_BYTES", 4 << 10), ("PANEL_BYTES", 1 << 10), ("ITEM_WORK", 500)):
        monkeypatch.setattr(getattr(convolution_plan, name), "usual", size)


def kernel_alone(text: str) -> tuple[str, list[int]]:
    """The only kernel of a program, and which of the program's parameters it takes."""
    with upstream_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        (main,) = (op for op in module.body.operations if op.name.value == "main")
        (call,) = (op for op in main.entry_block.operations if op.operation.name == "func.call")
        sources = [v if isinstance(v.owner, ir.Block) else v.owner.operands[0] for v in call.operands]
        order = [list(main.arguments).index(value) for value in sources]
        main.erase()
        return str(module), order


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("seed", range(20))
def test_random_convolutions(bits: int, seed: int) -> None:
    drawn = Drawn(seed * 1000 + bits)
    options = sx.CompileOptions(vector_bits=bits)
    run(drawn.make, drawn.lhs, drawn.rhs, against=[], expected=[drawn.expected], scale=2e-6, options=options)


@pytest.mark.parametrize("seed", [*range(100, 120), 1130])
def test_nothing_else_is_read_or_written(seed: int) -> None:
    """In the last one the phases of a dimension differ in how many elements of the window they meet."""
    Drawn(seed).check_alone()


@pytest.mark.parametrize("seed", range(15))
def test_random_convolutions_in_small_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With next to no memory for an item everything is cut: rows, columns, features, output features."""
    cut_small(monkeypatch)
    Drawn(seed).check_alone()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("seed", range(300, 308))
def test_integers_in_pairs(dtype: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly, however they overflow. Neighbouring features are multiplied together; the last one may have none."""
    if seed % 2:
        cut_small(monkeypatch)
    Drawn(seed, dtype).check_alone()


@pytest.mark.parametrize("seed", range(308, 312))
def test_pairs_without_their_instruction(seed: int) -> None:
    Drawn(seed, np.int8).check_alone(replace(host_target(), features=("sse2",), emulated=True))


def machine(instruction: str) -> CpuTarget:
    """One that has the instruction, written out in vectors."""
    bits = 128 if instruction.startswith("dot") else 512
    return replace(host_target(), vector_bits=bits, features=INSTRUCTIONS[instruction][0], emulated=True)


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
@pytest.mark.parametrize("seed", range(320, 332))
def test_groups_of_features(instruction: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order of dimensions, with windows of any kind; pixels of a tile that are and are not evenly spaced."""
    monkeypatch.setattr(convolution_units.TILES_PADDING, "usual", 64)
    if seed % 2:
        cut_small(monkeypatch)
    Drawn(seed, INSTRUCTIONS[instruction][1]).check_alone(machine(instruction))


@pytest.mark.parametrize("instruction", [name for name in INSTRUCTIONS if name.startswith("tiles")])
@pytest.mark.parametrize("seed", range(332, 338))
def test_tiles_of_this_machine(instruction: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor's own, where it has them."""
    monkeypatch.setattr(convolution_units.TILES_PADDING, "usual", 64)
    Drawn(seed, INSTRUCTIONS[instruction][1]).check_alone()


class Layer(Drawn):
    """A layer of 33 output features, features last, of two images."""

    def __init__(self, dtype: Any, features: int, width: int, stride: int, kernel: str = "HWIO") -> None:
        self.dtype, self.rng = np.dtype(dtype), np.random.default_rng(features)
        self.numbers = sx.ConvDimensionNumbers.of("NHWC", kernel, "NHWC")
        self.feature_groups = self.batch_groups = 1
        self.window = {
            "strides": [1, stride],
            "padding": [(1, 1), (0, 2)],
            "lhs_dilation": [1, 1],
            "rhs_dilation": [1, 1],
            "reversal": [False, False],
        }
        sizes = {"H": 3, "W": 3, "I": features, "O": 33}
        self.lhs, self.rhs = self._normal([2, 5, width, features]), self._normal([sizes[letter] for letter in kernel])


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
@pytest.mark.parametrize("features", [2, 7, 8, 15, 16, 17, 64, 70])
@pytest.mark.parametrize(("width", "stride"), [(5, 1), (6, 1), (7, 1), (16, 1), (17, 1), (32, 2), (66, 2)])
def test_layers_by_groups_of_features(
    instruction: str, features: int, width: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one feature less than tiles need, as many and more; rows shorter than a tile, as long and longer, whose
    padding is and is not summed with them."""
    units = spy_on_plans("units_of", monkeypatch)
    Layer(INSTRUCTIONS[instruction][1], features, width, stride).check_alone(machine(instruction))
    least = 8 if "f16" in instruction else 16
    few = 3 * features < least and instruction.startswith("tiles")
    name = instruction.replace(" ", "_") if not few else "plain" if "f16" in instruction else "pairs"
    assert {unit.product.name for unit in units} == {name}
    assert {unit.whole_rows for unit in units} == {name.startswith("tiles") and features < least}


class First(Drawn):
    """A first layer of a network: few features, a large window, every other pixel."""

    def __init__(self, dtype: Any, features: int, window: int, kernel: str, stride: int = 2) -> None:
        self.dtype, self.rng = np.dtype(dtype), np.random.default_rng(window)
        self.numbers = sx.ConvDimensionNumbers.of("NHWC", kernel, "NHWC")
        self.feature_groups = self.batch_groups = 1
        self.window = {
            "strides": [stride, stride],
            "padding": [(window // 2, window // 2)] * 2,
            "lhs_dilation": [1, 1],
            "rhs_dilation": [1, 1],
            "reversal": [False, False],
        }
        sizes = {"H": window, "W": window, "I": features, "O": 40}
        self.lhs = self._normal([1, 21, 37, features])
        self.rhs = self._normal([sizes[letter] for letter in kernel])


@pytest.mark.parametrize("instruction", [name for name in INSTRUCTIONS if name.startswith("tiles")])
@pytest.mark.parametrize(("features", "window"), [(3, 7), (3, 11), (1, 16), (4, 5), (5, 13)])
@pytest.mark.parametrize("kernel", ["HWIO", "OIHW"])
@pytest.mark.parametrize("stride", [1, 2, 5])
def test_first_layers_by_rows_of_their_windows(
    instruction: str, features: int, window: int, kernel: str, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of less than a tile's row, of one and of several; weights in the order of either kind."""
    units = spy_on_plans("units_of", monkeypatch)
    First(INSTRUCTIONS[instruction][1], features, window, kernel, stride).check_alone(machine(instruction))
    assert {(unit.product.is_tiles, unit.whole_rows) for unit in units} <= {(True, True), (False, False)}
    assert features == 1 or units[-1].whole_rows


def test_neighbours_of_a_window_s_row_are_not_multiplied() -> None:
    """A row of 21 numbers is multiplied as 32, and what lies behind them, infinities here, must not become NaN."""
    drawn = First(ml_dtypes.bfloat16, 3, 7, "HWIO")
    drawn.lhs[:, :, ::9] = np.inf
    with np.errstate(invalid="ignore"):
        for target in (machine("tiles bf16"), host_target()):
            drawn.check_alone(target)


class Widened(Layer):
    """One of bytes, of which one operand has a sign."""

    def __init__(self, signed: int, features: int) -> None:
        super().__init__(np.int8, features, 9, 1)
        if signed:
            self.lhs = self.lhs.view(np.uint8)
        else:
            self.rhs = self.rhs.view(np.uint8)

    def make(self, b: sx.XlaBuilder, x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        return super().make(b, *(sx.convert_element_type(operand, "s32") for operand in (x, w)))

    def kernels(self, computation: sx.XlaComputation) -> str:
        return sx.compile(computation).ir("kernels")


@pytest.mark.parametrize("features", [3, 4, 5, 24])
@pytest.mark.parametrize(
    ("instruction", "signed", "taken"),
    [("tiles ss", 0, "tiles_su"), ("tiles ss", 1, "tiles_us"), ("pairs", 0, "pairs"), ("pairs", 1, "bytes")],
)
def test_bytes_of_which_one_has_a_sign(
    instruction: str, signed: int, taken: str, features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instruction on vectors multiplies unsigned bytes of lhs by signed ones."""
    monkeypatch.setattr(convolution_units.TILES_PADDING, "usual", 64)
    units = spy_on_plans("units_of", monkeypatch)
    Widened(signed, features).check_alone(machine(instruction))
    assert units[-1].product.name == taken


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
@pytest.mark.parametrize("kernel", ["HWIO", "HWOI", "OIHW", "OHWI", "IOHW", "WHIO"])
def test_orders_of_weights(instruction: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that vectors don't pack are single elements, and pairs of integers on x86."""
    units = spy_on_plans("units_of", monkeypatch)
    Layer(INSTRUCTIONS[instruction][1], 24, 9, 1, kernel).check_alone(machine(instruction))
    instead = "plain" if "f16" in instruction or instruction.startswith("dot") else "pairs"
    assert units[-1].product.name == (instead if kernel == "IOHW" else instruction.replace(" ", "_"))


@pytest.mark.parametrize("least", [1, 1000])
@pytest.mark.parametrize("seed", range(200, 215))
def test_random_convolutions_of_large_weights(seed: int, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With next to no cache the weights decide what an item is: whole images, several of them, some output features."""
    monkeypatch.setattr(convolution_plan.LEAST_ITEMS, "usual", least)
    monkeypatch.setattr(convolution_plan.ITEM_WORK, "usual", 5000)
    Drawn(seed).check_alone(replace(host_target(), l2_bytes=64))


def spy_on_plans(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a function of the planner returns from here on."""
    plans, function = [], getattr(convolution_plan, name)
    monkeypatch.setattr(convolution_plan, name, lambda *given: plans.append(function(*given)) or plans[-1])
    return plans


class Channels(Drawn):
    """A window of its own for each channel, of images whose channels are contiguous; rows and columns may differ."""

    def __init__(
        self, size: tuple[int, ...], channels: int, window: tuple[int, ...], *, dtype: Any = np.float32
    ) -> None:
        self.dtype, self.rng = np.dtype(dtype), np.random.default_rng(sum(size) + channels)
        letters = "WHD"[: len(size)][::-1]
        self.numbers = sx.ConvDimensionNumbers.of(f"N{letters}C", f"{letters}IO", f"N{letters}C")
        self.feature_groups, self.batch_groups, count = channels, 1, len(size)
        self.window: dict[str, Any] = {"strides": [1] * count, "padding": [(w // 2, w // 2) for w in window]}
        self.window |= {"lhs_dilation": [1] * count, "rhs_dilation": [1] * count, "reversal": [False] * count}
        self.lhs, self.rhs = self._normal([2, *size, channels]), self._normal([*window, 1, channels])


IN_PLACE: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "one tile": (((7, 7), 35, (5, 5)), {}),
    "one element": (((1, 1), 64, (3, 3)), {}),
    "one line": (((50,), 33, (3,)), {}),
    "tiles of 14 and fewer": (((3, 13), 16, (3, 3)), {}),
    "tiles of 14": (((3, 14), 16, (3, 3)), {}),
    "tiles of 14 and more": (((3, 15), 16, (3, 3)), {}),
    "tiles with all taps": (((2, 61), 48, (3, 3)), {}),
    "edges of several tiles": (((2, 70), 17, (3, 7)), {"padding": [(1, 1), (40, 35)], "rhs_dilation": [1, 6]}),
    "strides": (((9, 57), 31, (3, 5)), {"strides": [2, 3]}),
    "dilations": (((11, 40), 32, (3, 3)), {"rhs_dilation": [2, 5], "padding": [(2, 2), (5, 5)]}),
    "cropped": (((8, 40), 16, (3, 3)), {"padding": [(-1, 2), (0, -3)]}),
    "reversed": (((6, 30), 24, (3, 5)), {"reversal": [True, True], "padding": [(2, 0), (0, 4)]}),
    "nothing but padding": (((2, 3), 16, (3, 3)), {"padding": [(4, 4), (5, 5)]}),
    "one channel fewer than the lanes": (((6, 20), 15, (3, 3)), {}),
    "a row of eight taps": (((3, 30), 16, (1, 8)), {}),
}


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("name", IN_PLACE)
def test_channels_are_read_in_place(name: str, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels in two corners are infinite and NaN: taps in the padding must not read them."""
    given, window = IN_PLACE[name]
    plans, drawn = spy_on_plans("_plan_of_channels", monkeypatch), Channels(*given)
    drawn.window |= window
    flat = drawn.lhs.reshape(2, -1, given[1])
    flat[0, 0], flat[1, -1] = np.inf, np.nan
    drawn.check_alone(replace(host_target(), vector_bits=bits))
    assert plans[-1].in_place == (given[1] >= bits // 32)


@pytest.mark.parametrize("more", ["nine taps", "planes", "dilated images", "halves"])
def test_channels_are_packed(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where reading in place has no code for the window, or elements would be converted for each of its rows."""
    window = {"nine taps": (1, 9), "planes": (2, 2, 3)}.get(more, (3, 3))
    plans = spy_on_plans("_plan_of_channels", monkeypatch)
    drawn = Channels((4, 4, 20)[-len(window) :], 32, window, dtype=np.float16 if more == "halves" else np.float32)
    if more == "dilated images":
        drawn.window["lhs_dilation"] = [1, 2]
    drawn.check_alone(replace(host_target(), vector_bits=256))
    assert not plans[-1].in_place


class Gradient(Drawn):
    """The gradient of a layer's weights as JAX has it: the images are input features, the window is a whole image."""

    def __init__(
        self,
        images: int,
        inputs: int,
        outputs: int,
        dilation: int,
        *,
        reversal: bool = False,
        dtype: Any = np.float32,
    ) -> None:
        self.dtype, self.rng = np.dtype(dtype), np.random.default_rng(outputs)
        self.numbers = sx.ConvDimensionNumbers.of("CHWN", "IHWO", "HWNC")
        self.feature_groups = self.batch_groups = 1
        self.window = {
            "strides": [1, 1],
            "padding": [(1, 2), (2, 0)],
            "lhs_dilation": [1, 1],
            "rhs_dilation": [dilation, dilation],
            "reversal": [reversal, reversal],
        }
        self.lhs, self.rhs = self._normal([images, 39, 21, inputs]), self._normal([images, 19, 11, outputs])


@pytest.mark.parametrize("reversal", [False, True])
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 64), (3, 64), (7, 128), (5, 20)])
def test_gradients_of_weights_in_parts(
    inputs: int, outputs: int, images: int, reversal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window's parts are items, the last one smaller; weights of one image are read where they lie."""
    monkeypatch.setattr(convolution_plan.ITEM_WORK, "usual", 500)
    plans, drawn = spy_on_plans("_in_parts", monkeypatch), Gradient(images, inputs, outputs, 2, reversal=reversal)
    drawn.check_alone(replace(host_target(), l2_bytes=64))
    assert plans[-1].depth == 3


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
@pytest.mark.parametrize(("images", "reversal"), [(3, False), (2, True)])
def test_gradients_by_groups_of_features(
    instruction: str, images: int, reversal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts of the window, whose partial sums are kept; the images are the features that are padded to groups."""
    monkeypatch.setattr(convolution_plan.ITEM_WORK, "usual", 500)
    monkeypatch.setattr(convolution_units.TILES_PADDING, "usual", 64)
    dtype = INSTRUCTIONS[instruction][1]
    plans, drawn = spy_on_plans("_in_parts", monkeypatch), Gradient(images, 5, 20, 2, reversal=reversal, dtype=dtype)
    drawn.check_alone(replace(machine(instruction), l2_bytes=64))
    assert plans[-1].depth == 3


class FewOutputs(Drawn):
    """A convolution with wide rows and few output features."""

    def __init__(self, seed: int, wider: int = 0, dtype: Any = np.float32, sums: Any = None) -> None:
        super().__init__(seed, dtype)
        self._sums = sums
        size = dict(zip(self.orders[0], self.lhs.shape, strict=True))
        kernel = dict(zip(self.orders[1], self.rhs.shape, strict=True))
        last = [letter for letter in self.orders[2] if letter not in "NC"][-1:]
        place = [letter for letter in self.orders[0] if letter not in "NC"].index(last[0]) if last else 0
        for letter in last:
            size[letter] += int(self.rng.integers(30, 50)) + wider
            self.window["strides"][place] = self.window["lhs_dilation"][place]
        size["C"] = self.feature_groups * (inputs := int(self.rng.choice([1, 3, 17, 20])))
        kernel |= {"I": inputs, "O": self.feature_groups * self.batch_groups * int(self.rng.choice([1, 2, 3]))}
        self.lhs = self._normal([size[letter] for letter in self.orders[0]])
        self.rhs = self._normal([kernel[letter] for letter in self.orders[1]])

    @property
    def sums(self) -> Any:
        return self._sums or super().sums


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("seed", [400, 402, 403, 404, 405, 406, 408, 410, 411, 413, 415, 417, 418, 421, 423])
def test_pixels_in_lanes(seed: int, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few output features; lhs is transposed, copied in runs, or element by element."""
    plans = spy_on_plans("_plan_across", monkeypatch)
    FewOutputs(seed).check_alone(replace(host_target(), vector_bits=bits))
    assert plans[-1].across


@pytest.mark.parametrize(("dtype", "sums"), [(np.int8, np.int8), (np.uint8, np.uint16), (np.int8, np.int32)])
@pytest.mark.parametrize("seed", [400, 411, 418, 421])
def test_integers_in_lanes_of_pixels(seed: int, dtype: Any, sums: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly, however they overflow: narrow sums are of 16 bits."""
    plans = spy_on_plans("_plan_across", monkeypatch)
    monkeypatch.setattr(convolution_plan.FEW_PRODUCTS, "usual", 60)
    drawn = FewOutputs(seed, dtype=dtype, sums=np.dtype(sums))
    drawn.check_alone(replace(host_target(), vector_bits=512))
    assert plans[-1].across


@pytest.mark.parametrize("sums", [np.int8, np.int32])
def test_integers_whose_pixels_are_apart(sums: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stride the lanes are output features, and groups of input features have their instruction."""
    plans, drawn = spy_on_plans("_plan_across", monkeypatch), FewOutputs(421, dtype=np.int8, sums=np.dtype(sums))
    monkeypatch.setattr(convolution_plan.FEW_PRODUCTS, "usual", 60)
    drawn.window["strides"] = [2 * stride for stride in drawn.window["strides"]]
    drawn.check_alone(replace(host_target(), vector_bits=512, features=INSTRUCTIONS["pairs"][0], emulated=True))
    assert plans == [None]


@pytest.mark.parametrize(("seed", "stage"), [(400, 20 << 10), (405, 20 << 10), (411, 1 << 10), (421, 3 << 10)])
def test_pixels_of_long_rows_in_lanes(seed: int, stage: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is cut in blocks, the last of them smaller; in the last two the results' pixels are adjacent."""
    monkeypatch.setattr(convolution_plan.STAGE_BYTES, "usual", stage)
    plans, drawn = spy_on_plans("_plan_across", monkeypatch), FewOutputs(seed, wider=400)
    drawn.check_alone(replace(host_target(), vector_bits=512))
    assert plans[-1].rounds <= 256


LAYERS = {
    "direct": ("NHWC", "HWIO", {"feature_group_count": 1}),
    "features first": ("NCHW", "OIHW", {"feature_group_count": 1}),
    "channels": ("NHWC", "HWIO", {"feature_group_count": 24}),
    "groups": ("NCHW", "OIHW", {"feature_group_count": 3}),
    "phases": ("NHWC", "HWIO", {"lhs_dilation": (2, 2)}),
}


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_results_may_lie_where_the_epilogue_reads(layer: str, pieces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A residual is added: with its buffer for the result, and with the work cut, the bits stay the same."""
    if pieces:
        cut_small(monkeypatch)
    image, kernel, more = LAYERS[layer]
    window: dict[str, Any] = {"lhs_dilation": None, "feature_group_count": 1, **more}
    numbers = sx.ConvDimensionNumbers.of(image, kernel, image)
    sizes = {"N": 2, "C": 24, "H": 9, "W": 11, "O": 24, "I": 24 // window["feature_group_count"]}
    rng, b = np.random.default_rng(0), sx.XlaBuilder("test")
    x = rng.normal(size=[sizes[letter] for letter in image]).astype(np.float32)
    w = rng.normal(size=[{**sizes, "H": 3, "W": 3}[letter] for letter in kernel]).astype(np.float32)
    v, k = (b.parameter(i, sx.Shape("f32", a.shape)) for i, a in enumerate((x, w)))
    y = sx.conv_general_dilated(
        v, k, (1, 1), "SAME", window["lhs_dilation"], None, numbers, feature_group_count=window["feature_group_count"]
    )
    rest = rng.normal(size=y.shape.dimensions).astype(np.float32)
    bias = rng.normal(size=24).astype(np.float32)
    added = sx.add(sx.add(y, b.parameter(2, y.shape)), b.parameter(3, sx.f32[24]), (image.index("C"),))
    text, order = kernel_alone(sx.compile(b.build(sx.max(added, b.constant(np.float32(0))))).ir("kernels"))
    kernel_code = compile_kernel(text)
    assert kernel_code.emitted.in_place
    arrays = [(x, w, rest, bias)[i].reshape(a.shape) for i, a in zip(order, kernel_code.inputs, strict=True)]
    (result,) = kernel_code.in_all_ways(*arrays)
    expected = convolve(
        wide(x),
        wide(w),
        numbers,
        strides=(1, 1),
        padding=((1, 1), (1, 1)),
        lhs_dilation=window["lhs_dilation"],
        feature_groups=window["feature_group_count"],
    )
    along = bias.reshape([24 if letter == "C" else 1 for letter in image])
    assert_same(result, np.maximum(expected + rest + along, 0).astype(np.float32), scale=1e-6)


def paths(make: Any, *shapes: sx.Shape) -> list[str]:
    """How the kernels of a program were written."""
    b = sx.XlaBuilder("test")
    executable = sx.compile(b.build(make(*(b.parameter(i, s) for i, s in enumerate(shapes)))))
    return [kernel.path for kernel in executable.kernels]


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f16", "s8", "s32", "u64"])
def test_usual_types_are_emitted(name: str) -> None:
    def make(x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        return sx.conv_with_general_dimensions(x, w, (1, 1), "SAME", NHWC)

    shapes = sx.Shape(name, (1, 6, 6, 3)), sx.Shape(name, (3, 3, 3, 8))
    assert set(paths(make, *shapes)) == {"emitted"}


def test_what_follows_is_one_kernel() -> None:
    """Bias and activation are applied where the sums are written."""

    def make(x: sx.XlaOp, w: sx.XlaOp, bias: sx.XlaOp) -> sx.XlaOp:
        y = sx.conv_with_general_dimensions(x, w, (1, 1), "SAME", NHWC)
        return sx.tanh(sx.add(y, bias, broadcast_dimensions=(3,)))

    assert paths(make, sx.f32[1, 6, 6, 3], sx.f32[3, 3, 3, 8], sx.f32[8]) == ["emitted"]


@pytest.mark.parametrize(
    ("name", "size", "outputs", "kind"),
    [
        ("f32", 5, 16, "contraction"),
        ("f32", 6, 16, "convolution"),
        ("f32", 6, 17, "contraction"),
        ("s8", 6, 16, "contraction"),
    ],
)
def test_one_element_windows(name: str, size: int, outputs: int, kind: str) -> None:
    """They are products of matrices, but share the code of convolutions where many pixels have fewer features."""
    b = sx.XlaBuilder("test")
    x, w = b.parameter(0, sx.Shape(name, (1, size, size, 16))), b.parameter(1, sx.Shape(name, (1, 1, 16, outputs)))
    executable = sx.compile(b.build(sx.conv_with_general_dimensions(x, w, (1, 1), "SAME", NHWC)))
    assert f"@{kind}_0" in executable.ir("kernels")
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, p.shape.dimensions).astype(p.shape.element_type.dtype) for p in (x, w)]
    np.testing.assert_array_equal(executable(*arrays), arrays[0] @ arrays[1][0, 0])


def test_convolutions_share_functions() -> None:
    """Layers of several sizes, strides and windows have one function for sums, and one for more than 256 products, one
    for packing weights, one epilogue, and loops over items where lhs is packed, and where it is read in place."""
    b = sx.XlaBuilder("test")
    y, number = b.parameter(0, sx.f32[1, 16, 12, 8]), 1
    for window, stride, features in ((3, 1, 16), (3, 2, 32), (1, 2, 16), (5, 1, 48)):
        w = b.parameter(number, sx.f32[window, window, y.shape.dimensions[3], features])
        y, number = sx.tanh(sx.conv_with_general_dimensions(y, w, (stride, stride), "SAME", NHWC)), number + 1
    text = sx.compile(b.build(y), options=sx.CompileOptions(vector_bits=256)).ir("buffers")
    shared = [line.split("@")[1].split("(")[0] for line in text.splitlines() if "func.func private @stablexla_" in line]
    assert sorted(shared) == [
        "stablexla_copy_runs_f32_f32_f32",
        "stablexla_epilogue_of_f32",
        "stablexla_fill_pixels_i32",
        "stablexla_fill_taps_i32",
        "stablexla_pack_lines_16_f32_all_f32_f32_index",
        "stablexla_pack_lines_16_f32_f32_f32",
        "stablexla_sum_pixels_6x2_f32_f32_f32_i32_i32",
        "stablexla_sum_pixels_6x2_in_added_blocks_f32_f32_f32_i32_i32",
        "stablexla_sum_pixels_6x2_in_added_blocks_in_chunks_of_whole_rows_f32_f32_f32_index",
        "stablexla_sum_pixels_6x2_in_chunks_of_images_in_place_f32_f32_f32_index",
        "stablexla_sum_pixels_6x2_in_chunks_of_whole_rows_f32_f32_f32_index",
    ]


@pytest.mark.parametrize("size", [(2, 5, 7), (1, 1, 3), (1, 17, 1), (3, 20, 6)])
@pytest.mark.parametrize("outputs", [1, 8, 16, 17, 24, 40])
def test_pixels_of_whole_rows_and_images(size: tuple[int, int, int], outputs: int) -> None:
    """Sums written straight, in pieces and with a rest, read in place and packed: the same bits, of small integers."""
    rng, (images, height, width) = np.random.default_rng(outputs), size
    x = rng.integers(-4, 5, (images, height + 2, width + 2, 4)).astype(np.float32)
    w = rng.integers(-4, 5, (3, 3, 4, outputs)).astype(np.float32)
    bias = rng.integers(-4, 5, outputs).astype(np.float32)

    @functools.cache
    def compiled(padding: str, biased: bool, shape: tuple[int, ...]) -> sx.Executable:
        b = sx.XlaBuilder("test")
        v, k, c = (b.parameter(i, sx.Shape("f32", s)) for i, s in enumerate((shape, w.shape, bias.shape)))
        y = sx.conv_with_general_dimensions(v, k, (1, 1), padding, NHWC)
        return sx.compile(b.build(sx.add(y, c, broadcast_dimensions=(3,)) if biased else y))

    def make(padding: str, biased: bool) -> np.ndarray:
        given = x if padding == "VALID" else x[:, 1:-1, 1:-1]
        return np.asarray(compiled(padding, biased, given.shape)(given, w, bias))

    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    np.testing.assert_array_equal(make("VALID", False), np.einsum("nhwcij,ijco->nhwo", windows, w))
    np.testing.assert_array_equal(make("VALID", True), np.einsum("nhwcij,ijco->nhwo", windows, w) + bias)
    x[:, [0, -1]], x[:, :, [0, -1]] = 0, 0
    np.testing.assert_array_equal(make("SAME", True), make("VALID", True))
    np.testing.assert_array_equal(make("SAME", False), make("VALID", False))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_do_not_depend_on_threads(threads: int) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((1, 30, 30, 40), (3, 3, 40, 48)))
    b = sx.XlaBuilder("test")
    root = sx.conv_with_general_dimensions(
        b.parameter(0, sx.f32[1, 30, 30, 40]), b.parameter(1, sx.f32[3, 3, 40, 48]), (1, 1), "SAME", NHWC
    )
    computation = b.build(root)
    one = sx.compile(computation, options=sx.CompileOptions(num_threads=1))(x, w)
    np.testing.assert_array_equal(sx.compile(computation, options=sx.CompileOptions(num_threads=threads))(x, w), one)


@pytest.mark.parametrize(
    ("window", "features", "kinds"),
    [
        (2, 128, {""}),
        (3, 86, {"added"}),
        (4, 4096, {"added"}),  # in parts, of fewer features
        (1024, 16, {"added"}),
        (4097, 4, {"compensated"}),
        (16384, 1, {"added"}),
        (16385, 1, {"compensated"}),
    ],
)
def test_long_sums(window: int, features: int, kinds: set[str]) -> None:
    """Of equal numbers, whose rounding errors all have the same sign: in one running sum the longest is some 1e-4 off.

    Oracle: the exact sum.
    """
    b = sx.XlaBuilder("long")
    x, w = b.parameter(0, sx.f32[1, window + 7, features]), b.parameter(1, sx.f32[window, features, 16])
    numbers = sx.ConvDimensionNumbers.of("NWC", "WIO", "NWC")
    executable = sx.compile(b.build(sx.conv_with_general_dimensions(x, w, (1,), "VALID", numbers)))
    names = re.findall(r"@stablexla_(?:sum|add)_pixels_\w*", executable.ir("buffers"))
    assert {"".join(re.findall("_in_([a-z]*)_blocks", name)) for name in names} == kinds
    tenth = np.float32(0.1)
    sums = executable(np.full(x.shape.dimensions, tenth), np.full(w.shape.dimensions, tenth))
    exact = window * features * float(tenth) ** 2
    np.testing.assert_allclose(sums.astype(np.float64), exact, rtol=100 * 2.0**-24)


@pytest.mark.parametrize("images", [1, 2, 3])
@pytest.mark.parametrize(("l2_bytes", "prefetches"), [(294911, True), (294912, False), (294913, False)])
def test_weights_that_exceed_half_of_l2_are_prefetched(images: int, l2_bytes: int, prefetches: bool) -> None:
    """Packed ones of a frozen network, by all items; the results are those of weights that stay in L2.

    Oracle: numpy, of small integers.
    """
    rng = np.random.default_rng(images)
    x = rng.integers(-4, 5, (images, 12, 12, 64)).astype(np.float32)
    w = rng.integers(-4, 5, (3, 3, 64, 64)).astype(np.float32)  # 147,456 bytes
    b = sx.XlaBuilder("frozen")
    weights = b.constant(np.ascontiguousarray(np.moveaxis(w, 3, 0)))
    numbers = sx.ConvDimensionNumbers.of("NHWC", "OHWI", "NHWC")
    y = sx.conv_with_general_dimensions(b.parameter(0, sx.Shape("f32", x.shape)), weights, (1, 1), "VALID", numbers)
    choices = f"usual+machine.l2-bytes={l2_bytes}+convolution.least-items=1"
    executable = sx.compile(b.build(y), options=sx.CompileOptions(choices=choices))
    names = re.findall(r"@stablexla_(?:sum|add)_pixels_\w*", executable.ir("buffers"))
    assert {"_ahead" in name for name in names} == {prefetches}
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    np.testing.assert_array_equal(executable(x), np.einsum("nhwcij,ijco->nhwo", windows, w))


@pytest.mark.parametrize("outputs", [64, 128, 256])
@pytest.mark.parametrize(
    ("image", "window", "groups", "stride"),
    [
        ((4, 2, 4, 1), (1, 5), 1, 1),
        ((4, 2, 6, 4), (1, 5), 4, 2),
        ((16, 7, 2, 4), (2, 4), 4, 1),
        ((2, 7, 2, 2), (2, 1), 2, 2),
    ],
)
def test_weights_of_one_item(
    image: tuple[int, ...], window: tuple[int, int], groups: int, stride: int, outputs: int
) -> None:
    """Items that share their weights with no other, of one panel and of several, read them where they lie."""
    rng, inputs = np.random.default_rng(0), image[3] // groups
    b = sx.XlaBuilder("test")
    x, w = b.parameter(0, sx.f32[image]), b.parameter(1, sx.f32[(*window, inputs, groups * outputs)])
    y = sx.conv_general_dilated(
        x, w, (stride, stride), ((1, 1), (1, 1)), (1, 1), (1, 1), NHWC, feature_group_count=groups
    )
    arrays = [rng.integers(-4, 5, p.shape.dimensions).astype(np.float32) for p in (x, w)]
    kept = [array.copy() for array in arrays]
    made = sx.compile(b.build(y))(*arrays)
    padded = np.pad(kept[0], ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, window, (1, 2))[:, ::stride, ::stride]
    of_groups = windows.reshape(*windows.shape[:3], groups, inputs, *window)
    expected = np.einsum("nhwgcij,ijcgo->nhwgo", of_groups, kept[1].reshape(*window, inputs, groups, outputs))
    np.testing.assert_array_equal(made, expected.reshape(made.shape))
    for array, before in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(array, before)
