"""Tokens a second of a small Llama beside llama.cpp's, on the same weights: python -m benchmarks.llama_cpp_decode.

The model is that of `examples/language_model.py`; llama.cpp reads it from a GGUF file that is written here: int8 as its
Q8_0 and int4 as its Q4_0, which have scales for each 32 weights of a row where the example has one for a row, and for
each 64. Both keep keys and values in f32, and have the same threads. They generate in turn; the shortest turn counts.
In f32 their tokens are compared before.

llama.cpp rounds the vector that a quantised matrix is multiplied with to 8 bits; stablexla computes what the program
says, in f32. It needs `pip install llama-cpp-python gguf`, which builds llama.cpp with cmake.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.language_model import EPSILON, THETA, TYPES, JaxDecoder, Size, Weights, converted, random_weights
from stablexla.targets.runtime import default_num_threads

FORMS = {"f32": "F32", "bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}
"""Of weights, as GGUF calls them."""
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{kind}_proj": f"attn_{kind}" for kind in "qkv"},
    "self_attn.o_proj": "attn_output",
    **{f"mlp.{kind}_proj": f"ffn_{kind}" for kind in ("gate", "up", "down")},
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
"""Of weights in GGUF, by those of a Llama on Hugging Face."""


class LlamaCpp:
    """llama.cpp on a GGUF file, called as `JaxDecoder` is: with some tokens, and the place of the first."""

    def __init__(self, path: Path, size: Size, threads: int) -> None:
        import llama_cpp

        self.library, self._size = llama_cpp, size
        self._quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path.name}")
        given = llama_cpp.llama_context_default_params()
        given.n_ctx = given.n_batch = given.n_ubatch = size.context
        given.n_threads = given.n_threads_batch = threads
        given.type_k = given.type_v = llama_cpp.GGML_TYPE_F32
        self._context = llama_cpp.llama_init_from_model(self._model, given)

    def __call__(self, tokens: list[int], start: int) -> int:
        """The token after these; those from place `start` on are forgotten before."""
        library, array = self.library, (ctypes.c_int32 * len(tokens))(*tokens)
        library.llama_memory_seq_rm(library.llama_get_memory(self._context), 0, start, -1)
        if library.llama_decode(self._context, library.llama_batch_get_one(array, len(tokens))):
            raise RuntimeError("llama.cpp cannot decode")
        logits = library.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(logits, (self._size.vocabulary,)).argmax())


def write_gguf(path: Path, weights: Weights, size: Size, kind: str) -> None:
    """Write the weights as a GGUF file, the matrices of products quantised as `FORMS` says."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(size.context)
    writer.add_embedding_length(size.width)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(size.hidden)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.key_heads)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_dimension_count(size.head)
    writer.add_rope_freq_base(THETA)
    writer.add_vocab_size(size.vocabulary)
    writer.add_tokenizer_model("no_vocab")
    for name, array in weights.items():
        matrix = array.ndim == 2 and not name.startswith("model.embed")
        form = gguf.GGMLQuantizationType[FORMS[kind] if matrix else "F32"]
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            array = interleaved(array, size.head)
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(array, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name: str) -> str:
    """The name of a weight in GGUF.

    >>> gguf_name("model.layers.3.self_attn.o_proj.weight"), gguf_name("lm_head.weight")
    ('blk.3.attn_output.weight', 'output.weight')
    """
    path, _, last = name.rpartition(".")
    if not path.startswith("model.layers."):
        return f"{NAMES[path]}.{last}"
    layer, _, inner = path.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{NAMES[inner]}.{last}"


def interleaved(matrix: np.ndarray, head: int) -> np.ndarray:
    """The rows of queries or keys for llama.cpp, which rotates neighbours where the example rotates (i, i + half)."""
    halves = matrix.reshape(-1, 2, head // 2, matrix.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(matrix.shape)


def measure(weights: Weights, size: Size, kind: str, prompt: int, options: argparse.Namespace) -> Iterator[Any]:
    """Measure one type: milliseconds of a prompt and of a token, for both."""
    stored: Weights = {}
    for name, array in weights.items():
        stored |= converted(name, array, kind)
    ours = JaxDecoder(stored, size, 0.0, 0)
    tokens = [int(token) for token in np.random.default_rng(1).integers(0, size.vocabulary, prompt)]
    ours.compile(tokens)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_gguf(path, weights, size, kind)
        engines = (ours, LlamaCpp(path, size, options.threads))
        best = [[float("inf")] * 2 for _ in engines]
        said: list[list[int]] = [[], []]
        for _ in range(options.rounds):
            for number, engine in enumerate(engines):
                start = perf_counter()
                made = [engine(tokens, 0)]
                first = perf_counter() - start
                start = perf_counter()
                for place in range(prompt, prompt + options.tokens):
                    made.append(engine(made[-1:], place))
                later = (perf_counter() - start) / options.tokens
                best[number] = [min(pair) for pair in zip(best[number], (first, later), strict=True)]
                said[number] = made
        if kind == "f32" and said[0] != said[1]:
            raise RuntimeError(f"tokens differ: {said[0]}, but {said[1]} of llama.cpp")
        yield from best


def main() -> int:
    """Print the table."""
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = made.add_argument
    sizes = {"layers": 6, "width": 1024, "heads": 16, "hidden": 2816, "vocabulary": 4096, "context": 512}
    for name, default in sizes.items():
        add(f"--{name}", type=int, default=default, help="default: %(default)s")
    add("--types", default=",".join(TYPES), help="of weights (default: %(default)s)")
    add("--prompt", type=int, default=128, help="tokens of the prompt (default: %(default)s)")
    add("--tokens", type=int, default=48, help="tokens of a turn (default: %(default)s)")
    add("--rounds", type=int, default=5, help="turns of each (default: %(default)s)")
    add("--threads", type=int, default=default_num_threads(), help="default: %(default)s")
    options = made.parse_args()
    size = Size(
        options.layers, options.width, options.heads, options.heads, options.hidden, options.vocabulary, options.context
    )
    if not all(map(find_spec, ("gguf", "llama_cpp"))):
        print("llama.cpp is not installed: pip install llama-cpp-python gguf", file=sys.stderr)
        return 2
    weights = random_weights(size, 0)
    table = Table(title=f"{sum(w.size for w in weights.values()):,} parameters, a prompt of {options.prompt} tokens")
    heads = ("type", "GGUF", "tokens/s", "llama.cpp", "ratio", "prompt ms", "llama.cpp", "ratio")
    for head in heads:
        table.add_column(head, justify="left" if head in heads[:2] else "right")
    for kind in options.types.split(","):
        (first, later), (their_first, their_later) = measure(weights, size, kind, options.prompt, options)
        numbers = (1 / later, 1 / their_later, their_later / later, 1e3 * first, 1e3 * their_first, their_first / first)
        table.add_row(kind, FORMS[kind], *(f"{number:.3g}" for number in numbers))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
