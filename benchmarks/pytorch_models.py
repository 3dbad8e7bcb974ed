"""Models of PyTorch for `benchmarks.pytorch`, in their published sizes with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.real.torch_models import calling, whisper_model

Made = tuple[nn.Module, tuple[Any, ...]]
MODELS: dict[str, tuple[Callable[[], Made], tuple[str, ...]]] = {}


def model(name: str, *needs: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Enter a function that makes a module and its inputs; `needs` are packages beside PyTorch."""

    def register(make: Callable[[], Made]) -> Callable[[], Made]:
        MODELS[name] = (make, needs)
        return make

    return register


def in_type(made: Made, dtype: torch.dtype) -> Made:
    """Convert a module's floats, and those of its inputs."""
    module, inputs = made
    return module.to(dtype), tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


def _first(model: nn.Module, *inputs: torch.Tensor) -> torch.Tensor:
    """Return the one tensor of a model's results: its logits, its last hidden state or its image."""
    made = model(*inputs)
    for name in ("logits", "last_hidden_state", "sample", "out"):
        if name in made:
            return made[name]
    return made[0]


def _vision(name: str, size: int = 224, batch: int = 2) -> None:
    @model(name, "torchvision")
    def make() -> Made:
        import torchvision.models as zoo

        return zoo.get_model(name, weights=None), (torch.randn(batch, 3, size, size),)


for _name in ("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "densenet121",
              "vgg11_bn", "squeezenet1_1", "shufflenet_v2_x1_0", "convnext_tiny", "swin_t", "vit_b_16",
              "regnet_y_400mf", "mnasnet1_0"):  # fmt: skip
    _vision(_name)


@model("resnet50, batch 8", "torchvision")
def _batch() -> Made:
    import torchvision.models as zoo

    return zoo.resnet50(weights=None), (torch.randn(8, 3, 224, 224),)


@model("deeplabv3_mobilenet_v3_large", "torchvision")
def _segmentation() -> Made:
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large

    return calling(deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None), _first), (
        torch.randn(2, 3, 160, 160),
    )


@model("ssdlite_backbone", "torchvision")
def _detection() -> Made:
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    def heads(detector: nn.Module, x: torch.Tensor) -> torch.Tensor:
        """The network without the choice of boxes, whose number depends on the image."""
        made = detector.head(list(detector.backbone(x).values()))
        return torch.cat([made["bbox_regression"], made["cls_logits"]], -1)

    detector = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
    return calling(detector, heads), (torch.randn(2, 3, 320, 320),)


def _timm(name: str, batch: int = 1) -> None:
    @model(f"timm {name}", "timm")
    def make() -> Made:
        import timm

        return timm.create_model(name, pretrained=False), (torch.randn(batch, 3, 224, 224),)


for _name in ("resnet50d", "efficientnet_b3", "convnextv2_nano", "vit_small_patch16_224", "deit_tiny_patch16_224",
              "swin_tiny_patch4_window7_224", "mixer_s16_224", "mobilevit_s", "regnetx_008", "resnext50_32x4d",
              "tf_efficientnetv2_b0", "coatnet_nano_rw_224", "beit_base_patch16_224", "cait_xxs24_224", "ghostnet_100",
              "hrnet_w18_small", "levit_128s", "poolformer_s12", "res2net50_26w_4s", "nfnet_l0"):  # fmt: skip
    _timm(_name, 2 if _name == "levit_128s" else 1)  # a batch norm of one row has no variance


def _words(batch: int = 1, length: int = 128) -> torch.Tensor:
    return torch.randint(0, 1000, (batch, length))


@model("bert-base", "transformers")
def _bert(pools: bool = True) -> Made:
    from transformers import BertConfig, BertModel

    plain = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return calling(BertModel(plain, add_pooling_layer=pools), _first), (_words(),)


@model("bert-base, 37 tokens", "transformers")
def _short_bert() -> Made:
    module, _ = _bert()
    return module, (_words(length=37),)


@model("gpt2", "transformers")
def _gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    plain = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    return calling(GPT2LMHeadModel(plain), _first), (_words(),)


@model("llama-160m", "transformers")
def _llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
        num_key_value_heads=4, use_cache=False,
    )  # fmt: skip
    return calling(LlamaForCausalLM(config), _first), (_words(),)


@model("t5-small", "transformers")
def _t5() -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=512, d_ff=2048, num_layers=6, num_heads=8, dropout_rate=0.0, use_cache=False, decoder_start_token_id=0
    )
    return calling(T5ForConditionalGeneration(config), _decoded), (_words(), _words(length=32))


def _decoded(model: nn.Module, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = model(input_ids=source, decoder_input_ids=target).logits
    return made


@model("whisper-tiny", "transformers")
def _whisper() -> Made:
    def decoded(model: nn.Module, sound: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = model(decoder_input_ids=tokens, input_features=sound, use_cache=False).logits
        return made

    return calling(whisper_model(), decoded), (torch.randn(1, 80, 3000), _words(length=16))


@model("vit-base", "transformers")
def _vit() -> Made:
    from transformers import ViTConfig, ViTModel

    return calling(ViTModel(ViTConfig()), _first), (torch.randn(1, 3, 224, 224),)


@model("mamba, 4 layers", "transformers")
def _mamba() -> Made:
    from transformers import MambaConfig, MambaForCausalLM

    four = MambaConfig(num_hidden_layers=4, use_cache=False)
    return calling(MambaForCausalLM(four), _first), (_words(length=64),)


@model("unet", "diffusers")
def _unet() -> Made:
    from diffusers import UNet2DModel

    unet = UNet2DModel(sample_size=32, block_out_channels=(64, 128, 256, 256), layers_per_block=2)
    return calling(unet, _first), (torch.randn(1, 3, 32, 32), torch.tensor([10]))


@model("vae", "diffusers")
def _vae() -> Made:
    from diffusers import AutoencoderKL

    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(64, 128),
    )
    return calling(vae, lambda model, x: model(x, sample_posterior=False).sample), (torch.randn(1, 3, 64, 64),)


@model("mlp, 32 rows")
def _mlp() -> Made:
    layers = [layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.ReLU())]
    return nn.Sequential(*layers), (torch.randn(32, 512),)


@model("lstm language model")
def _lstm() -> Made:
    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10000, 256)
            self.lstm = nn.LSTM(256, 512, num_layers=2, batch_first=True)
            self.head = nn.Linear(512, 10000)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.head(self.lstm(self.embed(words))[0])
            return made

    return Language(), (_words(4, 35),)


@model("graph network")
def _graph() -> Made:
    class Network(nn.Module):
        """Two layers of messages along edges, summed at their ends by scatter."""

        def __init__(self) -> None:
            super().__init__()
            self.message = nn.ModuleList(nn.Linear(2 * 64, 64) for _ in range(2))
            self.enter, self.leave = nn.Linear(16, 64), nn.Linear(64, 7)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.enter(x))
            for layer in self.message:
                sent = torch.relu(layer(torch.cat([x[edges[0]], x[edges[1]]], 1)))
                x = x + torch.zeros_like(x).index_add(0, edges[1], sent)
            made: torch.Tensor = self.leave(x)
            return made

    return Network(), (torch.randn(2708, 16), torch.randint(0, 2708, (2, 10556)))


@model("vision transformer, bf16 autocast")
def _autocast() -> Made:
    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 192, 16, 16)
            layer = nn.TransformerEncoderLayer(192, 3, 768, dropout=0.0, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
            self.head = nn.Linear(192, 100)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                made: torch.Tensor = self.head(self.layers(self.patch(x).flatten(2).mT).mean(1))
                return made

    return Transformer(), (torch.randn(2, 3, 224, 224),)


def _in_bf16(name: str) -> None:
    make, needs = MODELS[name]

    @model(f"{name}, bf16", *needs)
    def made() -> Made:
        return in_type(make(), torch.bfloat16)


for _name in ("resnet18", "resnet50", "resnet50, batch 8", "mobilenet_v3_large", "densenet121", "convnext_tiny",
              "swin_t", "vit_b_16", "bert-base", "bert-base, 37 tokens", "gpt2", "llama-160m", "unet",
              "mlp, 32 rows"):  # fmt: skip
    _in_bf16(_name)


def _in_int8(name: str) -> None:
    make, needs = MODELS[name]
    MODELS[f"{name}, int8"] = (make, (*needs, "torchao"))


for _name in ("resnet18", "resnet50", "resnet50, batch 8", "mobilenet_v2"):
    _in_int8(_name)


@model("bert-base, int8", "transformers", "torchao")
def _bert_in_int8() -> Made:
    return _bert(pools=False)  # torchao's quantizer fails on a layer whose results nobody reads
