"""Generates text tokens with a small Llama-like model, and says how fast: tokens a second, memory, share of bandwidth.

`--from jax` runs the decoder that is written below in JAX; `--from transformers` exports `LlamaForCausalLM` of Hugging
Face's transformers, with its key-value cache as buffers. Both read the same safetensors file, with the names of a Llama
on Hugging Face; without `--weights FILE`, random weights are made, written and read back. Nothing is downloaded.

Decoding one token reads every weight once, so that memory bandwidth limits it. `--type` makes the weights smaller:
`bf16`, or `int8` and `int4`, which are stored as integers with scales, and are dequantised inside the program.

    python examples/language_model.py --type int8 --layers 4 --width 512 --heads 8
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stablexla.interop.jax import jit

TYPES = ("f32", "bf16", "int8", "int4")
GROUP = 64  # consecutive weights of a row that share a scale in int4
EPSILON, THETA = 1e-6, 10000.0  # of the normalisation, and of the rotary positions

COMPARE = (
    "generate the same by jax.jit, or by transformers' own generate; the exit code is 1 when tokens differ, as in bf16 "
    "they may, where rounding decides between two that are nearly as likely"
)

Weights = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """The sizes of a Llama; `context` is how many tokens the key-value cache holds."""

    layers: int
    width: int
    heads: int
    key_heads: int
    hidden: int
    vocabulary: int
    context: int

    @property
    def head(self) -> int:
        """How many numbers a head has."""
        return self.width // self.heads

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Each weight's name and shape, as in a file on Hugging Face: a matrix has a row for each output."""
        keys = self.key_heads * self.head
        yield "model.embed_tokens.weight", (self.vocabulary, self.width)
        for layer in range(self.layers):
            before = f"model.layers.{layer}"
            yield f"{before}.input_layernorm.weight", (self.width,)
            yield f"{before}.self_attn.q_proj.weight", (self.width, self.width)
            yield f"{before}.self_attn.k_proj.weight", (keys, self.width)
            yield f"{before}.self_attn.v_proj.weight", (keys, self.width)
            yield f"{before}.self_attn.o_proj.weight", (self.width, self.width)
            yield f"{before}.post_attention_layernorm.weight", (self.width,)
            yield f"{before}.mlp.gate_proj.weight", (self.hidden, self.width)
            yield f"{before}.mlp.up_proj.weight", (self.hidden, self.width)
            yield f"{before}.mlp.down_proj.weight", (self.width, self.hidden)
        yield "model.norm.weight", (self.width,)
        yield "lm_head.weight", (self.vocabulary, self.width)


# ---- weights: random ones, safetensors files, and quantisation ------------------------------------------------------

_DTYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
}


def random_weights(size: Size, seed: int) -> Weights:
    """Weights of about the size that keeps a layer's results near 1; the logits are far enough apart."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in size.shapes():
        if len(shape) == 1:
            made[name] = np.ones(shape, np.float32)
        else:
            made[name] = rng.standard_normal(shape, np.float32) / np.float32(math.sqrt(shape[1]))
    return made


def save_weights(path: Path, weights: Weights) -> None:
    """Write a safetensors file: the header's length in 8 bytes, the header in JSON, the arrays one after the other."""
    codes = {dtype: code for code, dtype in _DTYPES.items()}
    header, end = {}, 0
    for name, array in weights.items():
        header[name] = {"dtype": codes[array.dtype], "shape": array.shape, "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64 + 56)  # with the 8 bytes before it: arrays begin at a multiple of 64
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in weights.values():
            file.write(np.ascontiguousarray(array).view(np.uint8).data)


def load_weights(path: Path) -> Weights:
    """Read a safetensors file; the arrays are mapped, and read from the disk where they are used.

    Raises:
        ValueError: the file is none of safetensors, or has an element type that this example does not know.
    """
    mapped = np.memmap(path, np.uint8, "r")
    length = int.from_bytes(mapped[:8].tobytes(), "little")
    try:
        header = json.loads(mapped[8 : 8 + length].tobytes())
    except ValueError:
        raise ValueError(f"{path} is no safetensors file: its first bytes are no header in JSON") from None
    made = {}
    for name, row in header.items():
        if name == "__metadata__":
            continue
        if row["dtype"] not in _DTYPES:
            raise ValueError(f"{path}: {name} is of type {row['dtype']}, not of {', '.join(_DTYPES)}")
        first, last = (8 + length + offset for offset in row["data_offsets"])
        made[name] = mapped[first:last].view(_DTYPES[row["dtype"]]).reshape(row["shape"])
    return made


def checked(weights: Weights, size: Size) -> Weights:
    """The weights of a model of this size.

    Raises:
        ValueError: a weight is missing or has another shape.
    """
    if "lm_head.weight" not in weights and "model.embed_tokens.weight" in weights:  # Llama's name for tied weights
        weights = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}
    for name, shape in size.shapes():
        found = weights[name].shape if name in weights else "not there"
        if found != shape:
            raise ValueError(
                f"{name} is {found} in the file, but {shape} for these --layers, --width, --heads, ...; "
                "give those of the model's config.json"
            )
    return {name: weights[name] for name, _ in size.shapes()}


def converted(name: str, array: np.ndarray, kind: str) -> Weights:
    """A weight as it is stored for `--type`; integers are for the matrices of products, all others stay f32.

    Returns:
        The weight by its name; of integers, their scales as `name.scale`, too.
    """
    if kind == "bf16":
        return {name: np.asarray(array, ml_dtypes.bfloat16)}
    wide = np.asarray(array, np.float32)
    if kind == "f32" or wide.ndim == 1 or name == "model.embed_tokens.weight":
        return {name: wide}
    largest, group = (7, GROUP) if kind == "int4" else (127, wide.shape[1])
    groups = wide.reshape(len(wide), -1, group)
    scale = np.maximum(np.abs(groups).max(2, keepdims=True), 1e-30) / largest
    integers = np.rint(groups / scale).astype(np.int8).reshape(wide.shape)
    if kind == "int4":  # two to a byte, the first one in the low half; 8 is added, so that neither has a sign
        shifted = (integers + 8).astype(np.uint8)
        integers = shifted[:, ::2] | shifted[:, 1::2] << 4
    return {name: integers, f"{name}.scale": scale[:, :, 0]}


# ---- the decoder, in JAX ---------------------------------------------------------------------------------------------


def dequantised(weights: Weights, name: str) -> Any:
    """A matrix in floats: convert, scale. The compiler is free to do both where the product reads the matrix."""
    matrix, scale = weights[name], weights.get(f"{name}.scale")
    if scale is None:
        return matrix
    if matrix.dtype == jnp.int8:
        return matrix.astype(jnp.float32) * scale
    halves = jnp.stack([matrix & 15, matrix >> 4], -1).reshape(*scale.shape, GROUP)
    return ((halves.astype(jnp.float32) - 8) * scale[:, :, None]).reshape(len(matrix), -1)


def product(weights: Weights, name: str, x: Any) -> Any:
    """The product of rows `x` with a matrix that has a row for each output."""
    return x @ dequantised(weights, f"{name}.weight").T


def normalised(weights: Weights, name: str, x: Any) -> Any:
    """Root mean square normalisation, computed in f32."""
    wide = x.astype(jnp.float32)
    wide *= jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + EPSILON)
    return weights[f"{name}.weight"] * wide.astype(x.dtype)


def rotated(x: Any, places: Any) -> Any:
    """Rotary positions: each pair (i, i + half) of a head's numbers is rotated by an angle of its place in the text."""
    half = x.shape[-1] // 2
    angles = places[:, None, None] * THETA ** (-jnp.arange(half, dtype=jnp.float32) / half)
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def attention(weights: Weights, name: str, size: Size, x: Any, cache: Any, start: Any) -> tuple[Any, Any]:
    """Attention of new tokens to all tokens so far, and the key-value cache with the new ones in it."""
    places = start + jnp.arange(len(x))
    q, k, v = (product(weights, f"{name}.{kind}_proj", x).reshape(len(x), -1, size.head) for kind in "qkv")
    new = rotated(k, places), v
    keys, values = (jax.lax.dynamic_update_slice(old, each, (start, 0, 0)) for old, each in zip(cache, new))
    groups = rotated(q, places).reshape(len(x), size.key_heads, -1, size.head)  # query heads that share a key head
    scores = jnp.einsum("nkgd,tkd->kgnt", groups, keys).astype(jnp.float32) / math.sqrt(size.head)
    is_past = jnp.arange(size.context) <= places[:, None]
    shares = jax.nn.softmax(jnp.where(is_past, scores, -jnp.inf)).astype(x.dtype)
    mixed = jnp.einsum("kgnt,tkd->nkgd", shares, values).reshape(len(x), -1)
    return product(weights, f"{name}.o_proj", mixed), (keys, values)


def feed_forward(weights: Weights, name: str, x: Any) -> Any:
    """The two layers of each token alone, gated."""
    gate = jax.nn.silu(product(weights, f"{name}.gate_proj", x))
    return product(weights, f"{name}.down_proj", gate * product(weights, f"{name}.up_proj", x))


def logits_of(weights: Weights, size: Size, caches: Any, tokens: Any, start: Any) -> tuple[Any, Any]:
    """The logits after the last of the tokens, the first of which is at place `start`; and the caches."""
    x = weights["model.embed_tokens.weight"][tokens]
    written = []
    for layer, cache in enumerate(caches):
        name = f"model.layers.{layer}"
        normal = normalised(weights, f"{name}.input_layernorm", x)
        mixed, cache = attention(weights, f"{name}.self_attn", size, normal, cache, start)
        written.append(cache)
        x += mixed
        x += feed_forward(weights, f"{name}.mlp", normalised(weights, f"{name}.post_attention_layernorm", x))
    return product(weights, "lm_head", normalised(weights, "model.norm", x[-1:]))[0], written


def next_token(
    weights: Weights, caches: Any, tokens: Any, start: Any, key: Any, *, size: Size, temperature: float
) -> Any:
    """The token after these, and the caches; drawn at a temperature above 0, otherwise the likeliest."""
    logits, caches = logits_of(weights, size, caches, tokens, start)
    logits = logits.astype(jnp.float32)
    if temperature > 0:
        chosen = jax.random.categorical(jax.random.fold_in(key, start), logits / temperature)
    else:
        chosen = jnp.argmax(logits)
    return chosen.astype(jnp.int32)[None], caches


def empty_caches(size: Size, dtype: Any) -> list[tuple[Any, Any]]:
    """Keys and values of each layer, with room for all tokens."""
    shape = size.context, size.key_heads, size.head
    return [(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(size.layers)]


class JaxDecoder:
    """Runs `next_token`. Each call donates the key-value caches, so that new keys are written into them in place."""

    def __init__(self, weights: Weights, size: Size, temperature: float, seed: int, compile: Callable[..., Any] = jit):
        """`compile` is stablexla's `jit`, or `jax.jit`, whose tokens are the same."""
        self.weights = jax.tree.map(jnp.asarray, weights)
        self.caches = empty_caches(size, self.weights["model.norm.weight"].dtype)
        self.key = jax.random.key(seed)
        self.compiled = compile(partial(next_token, size=size, temperature=temperature), donate_argnums=1)

    def __call__(self, tokens: list[int], start: int) -> int:
        """The token after these, the first of which is at place `start`; all before it have been given."""
        token, self.caches = self.compiled(self.weights, self.caches, *self._places(tokens, start), self.key)
        return int(token[0])

    def compile(self, prompt: list[int]) -> Any:
        """Compile for a prompt and for a single token; the executable of the latter."""
        for tokens in (prompt, prompt[:1]):
            made = self.compiled.executable(self.weights, self.caches, *self._places(tokens, 0), self.key)
        return made

    def _places(self, tokens: list[int], start: int) -> tuple[Any, Any]:
        return np.array(tokens, np.int32), np.int32(start)


# ---- LlamaForCausalLM of transformers --------------------------------------------------------------------------------


class TransformersDecoder:
    """Runs transformers' own Llama, exported for one token a call; its `StaticCache` is written in place."""

    def __init__(self, weights: Weights, size: Size, temperature: float, seed: int) -> None:
        import torch
        from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
        from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

        from stablexla.interop.torch import from_exported

        self.torch, self.temperature = torch, temperature
        self.generator = torch.Generator().manual_seed(seed)
        config = LlamaConfig(
            vocab_size=size.vocabulary,
            hidden_size=size.width,
            intermediate_size=size.hidden,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.key_heads,
            max_position_embeddings=size.context,
            rms_norm_eps=EPSILON,
            attn_implementation="sdpa",
            bos_token_id=None,
            eos_token_id=None,
        )
        with torch.device("meta"):
            self.model = LlamaForCausalLM(config).eval()
        self.model.generation_config = GenerationConfig(use_cache=True, cache_implementation="static")
        self._take(weights)
        held = TorchExportableModuleWithStaticCache(self.model, batch_size=1, max_cache_len=size.context, device="cpu")
        with torch.no_grad():
            self.program = from_exported(torch.export.export(held, (), self._arguments(0, 0), strict=False))

    def __call__(self, tokens: list[int], start: int) -> int:
        """The token after these, the first of which is at place `start`; all before it have been given."""
        for place, token in enumerate(tokens, start):
            logits = self.program(**self._arguments(token, place))[0, -1].float()
        if self.temperature == 0:
            return int(logits.argmax())
        shares = self.torch.softmax(logits / self.temperature, 0)
        return int(self.torch.multinomial(shares, 1, generator=self.generator))

    def compile(self, prompt: list[int]) -> Any:
        """The executable, which is there already."""
        return self.program.executable

    def _arguments(self, token: int, place: int) -> dict[str, Any]:
        return {"input_ids": self.torch.tensor([[token]]), "cache_position": self.torch.tensor([place])}

    def _take(self, weights: Weights) -> None:
        """Replace the model's parameters, which have no memory yet, and the layers whose weights are quantised."""
        torch = self.torch
        for name, array in weights.items():
            if name.endswith(".scale"):
                continue
            path, _, last = name.rpartition(".")
            scale = weights.get(f"{name}.scale")
            if scale is not None:
                self.model.set_submodule(path, quantised_linear(tensor(array), tensor(scale)))
            else:
                setattr(self.model.get_submodule(path), last, torch.nn.Parameter(tensor(array), requires_grad=False))
        rotary = self.model.model.rotary_emb  # its frequencies are computed when it is made
        self.model.model.rotary_emb = type(rotary)(self.model.config)


def tensor(array: np.ndarray) -> Any:
    """A tensor with an array's numbers; PyTorch does not know numpy's bf16."""
    import torch

    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def quantised_linear(matrix: Any, scale: Any) -> Any:
    """A linear layer of PyTorch on quantised weights: the same dequantisation as in JAX."""
    import torch

    class QuantisedLinear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("matrix", matrix)
            self.register_buffer("scale", scale)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.matrix.dtype == torch.int8:
                return x @ (self.matrix.to(x.dtype) * self.scale).T
            halves = torch.stack([self.matrix & 15, self.matrix >> 4], -1).reshape(*self.scale.shape, GROUP)
            return x @ ((halves.to(x.dtype) - 8) * self.scale[:, :, None]).reshape(len(self.matrix), -1).T

    return QuantisedLinear()


# ---- generation, and what it took ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Generated:
    """Tokens, and the seconds for the first one, which reads the prompt, and for each later one on average."""

    tokens: list[int]
    first: float
    later: float


def generate(decoder: Callable[[list[int], int], int], prompt: list[int], count: int, progress: Progress) -> Generated:
    """Generate so many tokens after a prompt."""
    start = perf_counter()
    tokens = [decoder(prompt, 0)]
    first = perf_counter() - start
    start = perf_counter()
    for number in progress.track(range(count - 1), description="generating"):
        tokens.append(decoder(tokens[-1:], len(prompt) + number))
    return Generated(tokens, first, (perf_counter() - start) / (count - 1))


def bytes_of(weights: Weights) -> int:
    """Of all weights, scales among them."""
    return sum(array.nbytes for array in weights.values())


def cache_bytes(weights: Weights, size: Size) -> int:
    """Of keys and values, which have the type that is computed in."""
    return 2 * size.layers * size.context * size.key_heads * size.head * weights["model.norm.weight"].itemsize


def report(weights: Weights, size: Size, executable: Any, made: Generated) -> Iterator[str]:
    """Lines about speed and memory.

    A token reads all weights but for the embeddings, of which it needs one row, and the whole key-value cache.
    """
    embeddings = weights["model.embed_tokens.weight"].nbytes
    read = bytes_of(weights) - embeddings + embeddings // size.vocabulary + cache_bytes(weights, size)
    yield f"first token after {1e3 * made.first:.1f} ms, then {1 / made.later:,.0f} tokens a second"
    parts = {
        "weights": bytes_of(weights),
        "key-value cache": cache_bytes(weights, size),
        "temporaries": executable.arena_bytes,
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    said = ", ".join(f"{name} {count / 1e6:,.1f} MB" for name, count in parts.items())
    yield f"memory: {said}; the whole process at most {peak / 1e6:,.0f} MB"
    # Each profile has the limits of this machine, which are measured once.
    limits = jit(jnp.negative).profile(jnp.ones(1), runs=1).limits
    rate = read / made.later
    yield (
        f"bandwidth: {read / 1e6:,.1f} MB a token, {rate / 1e9:.1f} GB/s; {rate / limits.bandwidth:.0%} of the "
        f"{limits.bandwidth / 1e9:.1f} GB/s of a copy on {limits.threads} threads"
    )


# ---- the command line ------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The options."""
    first, _, rest = (__doc__ or "").partition("\n\n")
    made = argparse.ArgumentParser(description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--from", dest="source", choices=["jax", "transformers"], default="jax", help="where the model is written")
    add("--type", choices=TYPES, default="f32", help="of the weights (default: f32)")
    add("--layers", type=int, default=2, help="default: %(default)s")
    add("--width", type=int, default=128, help="numbers of a token between layers (default: %(default)s)")
    add("--heads", type=int, default=4, help="heads of attention (default: %(default)s)")
    add("--key-heads", type=int, metavar="N", help="heads of keys and values, which others share (default: --heads)")
    add("--hidden", type=int, metavar="N", help="numbers between the layers of a feed-forward (default: 3 widths)")
    add("--vocabulary", type=int, default=256, help="how many tokens there are (default: %(default)s)")
    add("--context", type=int, default=128, help="how many tokens the cache holds (default: %(default)s)")
    add("--tokens", type=int, default=32, help="how many to generate (default: %(default)s)")
    add("--prompt", type=int, nargs="+", default=[1, 2, 3, 4], metavar="TOKEN", help="numbers of tokens")
    add("--temperature", type=float, default=0.0, help="above 0, tokens are drawn (default: 0, the likeliest)")
    add("--seed", type=int, default=0, help="of random weights and of drawn tokens (default: 0)")
    add("--weights", type=Path, metavar="FILE", help="a safetensors file, written with random weights if not there")
    add("--compare", action="store_true", help=COMPARE)
    return made


def size_of(options: argparse.Namespace) -> Size:
    """The sizes that were given.

    Raises:
        ValueError: they do not fit together.
    """
    key_heads, hidden = options.key_heads or options.heads, options.hidden or 3 * options.width
    if options.width % (2 * options.heads):
        raise ValueError(f"--width {options.width} is no multiple of 2 x --heads {options.heads}")
    if options.heads % key_heads:
        raise ValueError(f"--heads {options.heads} is no multiple of --key-heads {key_heads}")
    if options.type == "int4" and (options.width % GROUP or hidden % GROUP):
        raise ValueError(f"int4 takes a --width and --hidden that are multiples of {GROUP}, the weights of a scale")
    if len(options.prompt) + options.tokens > options.context:
        raise ValueError(
            f"{len(options.prompt)} tokens of the prompt and {options.tokens} more are over --context {options.context}"
        )
    if options.tokens < 2:
        raise ValueError(f"--tokens {options.tokens} is too few: from 2 on there is a speed")
    if options.compare and options.source == "transformers" and options.temperature > 0:
        raise ValueError("--compare --from transformers is for --temperature 0: PyTorch draws other random numbers")
    if not all(0 <= token < options.vocabulary for token in options.prompt):
        raise ValueError(f"--prompt has tokens that are not between 0 and --vocabulary {options.vocabulary}")
    sizes = options.layers, options.width, options.heads, key_heads, hidden, options.vocabulary, options.context
    return Size(*sizes)


def read_weights(options: argparse.Namespace, size: Size, progress: Progress) -> Weights:
    """Read the file, which is made first where it is not there, and convert its weights to `--type`."""
    with tempfile.TemporaryDirectory() as folder:
        path = options.weights or Path(folder) / "random.safetensors"
        if not path.exists():
            save_weights(path, random_weights(size, options.seed))
        found = checked(load_weights(path), size)
        weights: Weights = {}
        for name, array in progress.track(found.items(), description="reading weights"):
            # copied out of the file, which may be gone afterwards
            weights |= {key: np.array(value) for key, value in converted(name, array, options.type).items()}
        return weights


def main(arguments: list[str] | None = None) -> int:
    """Generates, and says how fast."""
    options = parser().parse_args(arguments)
    console = Console()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        try:
            size = size_of(options)
            weights = read_weights(options, size, progress)
        except (OSError, ValueError) as error:
            print(error, file=sys.stderr)
            return 2
        task = progress.add_task("compiling", total=None)
        start = perf_counter()
        made_by = JaxDecoder if options.source == "jax" else TransformersDecoder
        try:
            decoder = made_by(weights, size, options.temperature, options.seed)
        except ImportError as error:
            print(f"--from transformers: {error}; pip install 'stablexla[torch]' transformers", file=sys.stderr)
            return 2
        executable = decoder.compile(options.prompt)
        seconds = perf_counter() - start
        progress.remove_task(task)
        made = generate(decoder, options.prompt, options.tokens, progress)
        count = sum(math.prod(shape) for _, shape in size.shapes())
        print(f"{count:,} parameters in {options.type}, compiled in {seconds:.1f} s: {len(executable.kernels)} kernels")
        print("tokens:", *made.tokens)
        for line in report(weights, size, executable, made):
            print(line)
        return compared(decoder, weights, size, options, made, progress) if options.compare else 0


def compared(
    decoder: Any, weights: Weights, size: Size, options: argparse.Namespace, made: Generated, progress: Progress
) -> int:
    """Generate the same with JAX's or transformers' own code; 1 where the tokens differ."""
    if options.source == "jax":
        other = JaxDecoder(weights, size, options.temperature, options.seed, jax.jit)
        generate(other, options.prompt, 2, progress)  # compiles
        wanted = generate(other, options.prompt, options.tokens, progress)
        print(f"jax.jit: {1 / wanted.later:,.0f} tokens a second")
        tokens = wanted.tokens
    else:
        torch = decoder.torch
        prompt = torch.tensor([options.prompt])
        with torch.no_grad():
            found = decoder.model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=options.tokens, do_sample=False
            )
        tokens = found[0, len(options.prompt) :].tolist()
    print("the tokens are equal" if tokens == made.tokens else f"other tokens: {tokens}")
    return int(tokens != made.tokens)


if __name__ == "__main__":
    sys.exit(main())
