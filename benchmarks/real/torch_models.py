"""Models of Hugging Face's transformers with random weights, in the sizes in which they are published."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.real.registry import Made, of_torch

if TYPE_CHECKING:
    import torch


def calling(model: Any, call: Callable[..., Any]) -> Any:
    """A module that calls a model, and returns tensors alone."""
    import torch

    class Calling(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: torch.Tensor) -> Any:
            return call(self.model, *inputs)

    return Calling().eval()


def seeded() -> Any:
    """PyTorch, with weights to come from one seed."""
    import torch

    torch.manual_seed(0)
    return torch


def with_cache(model: Any, token: Any, *past: Any) -> Any:
    """The logits of a token after cached ones, and the caches with it."""
    from transformers import DynamicCache

    cache = DynamicCache()
    for layer in range(len(past) // 2):
        cache.update(past[2 * layer], past[2 * layer + 1], layer)
    made = model(input_ids=token, past_key_values=cache, use_cache=True)
    return made.logits, *(t for each in made.past_key_values.layers for t in (each.keys, each.values))


@of_torch("llama-decode", "a token of a Llama, 8 layers of 512, after 255 cached", "transformers", tolerance=1e-3)
def llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch = seeded()
    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        attn_implementation="sdpa",
    )
    past = [torch.randn(1, 4, 255, 64) for _ in range(2 * config.num_hidden_layers)]
    return calling(LlamaForCausalLM(config), with_cache), (torch.tensor([[17]]), *past)


@of_torch("gpt2-64-tokens", "logits of 64 tokens, GPT-2 small", "transformers", tolerance=1e-3)
def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch = seeded()
    model = GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa"))
    return calling(model, lambda m, x: m(x, use_cache=False).logits), (torch.randint(0, 50257, (1, 64)),)


def whisper_model() -> Any:
    """Whisper tiny."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        d_model=384,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
        attn_implementation="sdpa",
    )
    return WhisperForConditionalGeneration(config)


@of_torch("whisper-encoder", "30 seconds of sound through Whisper tiny", "transformers", tolerance=1e-3)
def whisper_encoder() -> Made:
    torch = seeded()
    encoder = whisper_model().get_encoder()
    return calling(encoder, lambda m, x: m(x).last_hidden_state), (torch.randn(1, 80, 3000),)


@of_torch("whisper-decoder", "logits of 16 tokens after 30 seconds of sound", "transformers", tolerance=1e-3)
def whisper_decoder() -> Made:
    torch = seeded()

    def decode(model: Any, tokens: torch.Tensor, sound: torch.Tensor) -> Any:
        return model(decoder_input_ids=tokens, encoder_outputs=(sound,), use_cache=False).logits

    return calling(whisper_model(), decode), (torch.randint(0, 50257, (1, 16)), torch.randn(1, 1500, 384))


def images_through(model: Any, side: int = 224, batch: int = 1) -> Made:
    """A classifier of images and some images."""
    import torch

    return calling(model, lambda m, x: m(x).logits), (torch.randn(batch, 3, side, side),)


@of_torch("vit-tiny", "an image of 224x224 through ViT-Ti/16", "transformers", tolerance=1e-3)
def vit() -> Made:
    from transformers import ViTConfig, ViTForImageClassification

    seeded()
    config = ViTConfig(hidden_size=192, num_attention_heads=3, intermediate_size=768, num_labels=1000)
    return images_through(ViTForImageClassification(config))


@of_torch("resnet-50-torch", "an image of 224x224 through ResNet-50", "transformers", tolerance=1e-3)
def resnet() -> Made:
    from transformers import ResNetConfig, ResNetForImageClassification

    seeded()
    return images_through(ResNetForImageClassification(ResNetConfig(num_labels=1000)))


@of_torch("swin-tiny", "an image of 224x224 through Swin-T", "transformers", tolerance=1e-3)
def swin() -> Made:
    from transformers import SwinConfig, SwinForImageClassification

    seeded()
    return images_through(SwinForImageClassification(SwinConfig(num_labels=1000)))


@of_torch("convnext-tiny", "an image of 224x224 through ConvNeXt-T", "transformers", tolerance=1e-3)
def convnext() -> Made:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    seeded()
    return images_through(ConvNextForImageClassification(ConvNextConfig(num_labels=1000)))
