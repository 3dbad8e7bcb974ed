"""Runs Whisper's encoder and decoder on a tone, with random weights; the words mean nothing, but they are PyTorch's.

The model is that of Hugging Face's transformers, exported by `torch.export`: one program for the encoder, one for the
decoder. Sound becomes a spectrogram by the library's own feature extractor. Nothing is downloaded. Needs
`pip install 'stablexla[torch,models]'`; the exit code is 1 when tokens differ from PyTorch's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from beside import apart, are_there, fastest, say_speed, step

RATE, SECONDS = 16000, 30  # of the sound that Whisper hears at once
START = 1  # the token that all texts begin with


def tone(frequency: float) -> np.ndarray:
    """A tone that swells and fades twice a second."""
    time = np.arange(RATE * SECONDS) / RATE
    return (np.sin(2 * np.pi * frequency * time) * np.sin(2 * np.pi * time) ** 2).astype(np.float32)


def model_of(layers: int, width: int, heads: int, words: int, tokens: int) -> Any:
    """A Whisper with random weights, of one seed."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=words,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        max_target_positions=tokens,
        init_std=0.2,  # so that words differ
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0),
        attn_implementation="sdpa",
    )
    return WhisperForConditionalGeneration(config).eval()


def halves(model: Any) -> tuple[Any, Any]:
    """Modules for the encoder, and for the decoder's logits of all tokens so far."""
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model.get_encoder()

        def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
            return self.encoder(spectrogram).last_hidden_state

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor, heard: torch.Tensor) -> torch.Tensor:
            return self.model(decoder_input_ids=tokens, encoder_outputs=(heard,), use_cache=False).logits

    return Encoder().eval(), Decoder().eval()


def listen(encode: Callable[..., Any], decode: Callable[..., Any], spectrogram: Any, count: int) -> list[int]:
    """The likeliest tokens, one by one. There is room for all from the beginning; a token sees only those before it."""
    import torch

    heard = encode(spectrogram)
    tokens = torch.full((1, count + 1), START)
    for place in range(count):
        tokens[0, place + 1] = decode(tokens, heard)[0, place].argmax()
    return [int(token) for token in tokens[0, 1:]]


def parser() -> argparse.ArgumentParser:
    """The options."""
    first, _, rest = (__doc__ or "").partition("\n\n")
    made = argparse.ArgumentParser(description=first, epilog=rest)
    made.add_argument("--layers", type=int, default=4, help="of the encoder and of the decoder (default: 4, as tiny)")
    made.add_argument("--width", type=int, default=384, help="numbers of a token (default: 384, as tiny)")
    made.add_argument("--heads", type=int, default=6, help="of attention (default: 6)")
    made.add_argument("--words", type=int, default=2000, help="size of the vocabulary (default: %(default)s)")
    made.add_argument("--tokens", type=int, default=12, help="how many to say (default: %(default)s)")
    made.add_argument("--frequency", type=float, default=440.0, help="of the tone, in Hz (default: 440)")
    return made


def main() -> int:
    options = parser().parse_args()
    if not are_there("torch", "transformers"):
        return 2
    import torch
    from transformers import WhisperFeatureExtractor

    from stablexla.interop import torch as sx_torch

    with step("making the model and the spectrogram"):
        model = model_of(options.layers, options.width, options.heads, options.words, options.tokens + 1)
        sound = WhisperFeatureExtractor()(tone(options.frequency), sampling_rate=RATE, return_tensors="pt")
        spectrogram = sound.input_features
    encoder, decoder = halves(model)
    tokens = torch.full((1, options.tokens + 1), START)
    with torch.no_grad():
        wanted = encoder(spectrogram)
        with step("exporting and compiling encoder and decoder"):
            encode = sx_torch.compile(encoder, (spectrogram,))
            decode = sx_torch.compile(decoder, (tokens, wanted))
        said = listen(encode, decode, spectrogram, options.tokens)
        right = listen(encoder, decoder, spectrogram, options.tokens)
        print("tokens:", *said)
        print(f"the encoder's result is {apart(encode(spectrogram), wanted):.1e} apart from PyTorch's")
        pairs = ("encoder", encode, encoder, (spectrogram,)), ("a token", decode, decoder, (tokens, wanted))
        for what, ours, theirs, given in pairs:
            ours_time, their_time = fastest(lambda f=ours, g=given: f(*g)), fastest(lambda f=theirs, g=given: f(*g))
            say_speed(what, ours_time, their_time, "PyTorch")
    print("the tokens are equal" if said == right else f"PyTorch's tokens: {right}")
    return int(said != right)


if __name__ == "__main__":
    sys.exit(main())
