"""Classifies scikit-learn's two photographs by ViT or ResNet-50 of transformers, with random weights.

The classes mean nothing, but they are PyTorch's: both run the same module, stablexla by way of `torch.export`. Nothing
is downloaded. Needs `pip install 'stablexla[examples,torch,models]'`; the exit code is 1 when results differ.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from beside import apart, are_there, fastest, say_speed, step

MOST_APART = 1e-3


def photographs(side: int) -> Any:
    """China's temple and a flower, as squares of numbers about zero."""
    import torch
    from sklearn.datasets import load_sample_images

    whole = torch.stack([torch.from_numpy(image.copy()) for image in load_sample_images().images])
    scaled = whole.permute(0, 3, 1, 2).float() / 127.5 - 1
    return torch.nn.functional.interpolate(scaled, (side, side), mode="bilinear", antialias=True)


def model_of(name: str, side: int, layers: int) -> Any:
    """A module from images to logits, with weights of one seed; `layers` are a stage's in a residual network."""
    import torch
    import transformers as t

    torch.manual_seed(0)
    if name == "vit":
        sizes = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768}
        config = t.ViTConfig(image_size=side, num_hidden_layers=layers or 12, num_labels=1000, **sizes)
        model: Any = t.ViTForImageClassification(config)
    else:
        depths = [layers] * 4 if layers else [3, 4, 6, 3]
        model = t.ResNetForImageClassification(t.ResNetConfig(depths=depths, num_labels=1000))

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.model(images).logits

    return Classifier().eval()


def parser() -> argparse.ArgumentParser:
    """The options."""
    first, _, rest = (__doc__ or "").partition("\n\n")
    made = argparse.ArgumentParser(description=first, epilog=rest)
    made.add_argument("--model", choices=["vit", "resnet"], default="vit", help="which network (default: vit)")
    made.add_argument("--side", type=int, default=224, help="pixels, a multiple of 32 (default: 224)")
    made.add_argument("--layers", type=int, default=0, help="fewer than the model is published with")
    return made


def main() -> int:
    options = parser().parse_args()
    if not are_there("sklearn", "torch", "transformers"):
        return 2
    if options.side % 32 or options.side < 32:
        print(f"--side {options.side} is no multiple of 32", file=sys.stderr)
        return 2
    import torch

    from stablexla.interop import torch as sx_torch

    with step("making the model"):
        images, model = photographs(options.side), model_of(options.model, options.side, options.layers)
    with torch.no_grad():
        with step("exporting and compiling"):
            program = sx_torch.compile(model, (images,))
        found, wanted = program(images), model(images)
        for name, logits in zip(("the temple", "the flower"), found):
            best = logits.softmax(0).topk(3)
            likely = (f"{place} ({share:.1%})" for share, place in zip(best.values.tolist(), best.indices.tolist()))
            print(f"{name} is of the classes {', '.join(likely)}")
        say_speed("both", fastest(lambda: program(images)), fastest(lambda: model(images)), "PyTorch")
    difference = apart(found, wanted)
    print(f"{len(program.executable.kernels)} kernels; results are {difference:.1e} apart from PyTorch's")
    return int(not difference <= MOST_APART)


if __name__ == "__main__":
    sys.exit(main())
