"""The classifiers: `build_model` makes any of them from a `ModelConfig`."""

from __future__ import annotations

import torch
from torch import nn

from fedgr_secure.data.types import ImageSpec
from fedgr_secure.errors import require
from fedgr_secure.models.output import Output
from fedgr_secure.models.resnet import build_resnet
from fedgr_secure.models.small import MLP, SmallCNN
from fedgr_secure.sections import ModelConfig

__all__ = ["Output", "build_model"]

SMALLEST_SIDE = {"mlp": 1, "cnn": 4, "resnet18": 8, "resnet34": 8, "resnet50": 32}
"""Below this side a model's last feature map would be empty or all padding."""


def build_model(config: ModelConfig, spec: ImageSpec, seed: int) -> nn.Module:
    """A freshly initialised model on the CPU; the same seed gives the same weights.

    Torch's global random state is left as it was.

    Args:
        config: architecture, normalisation and width.
        spec: shape and classes of the images.
        seed: of the initial weights.

    Returns:
        A module that maps float images (n, channels, height, width) to `Output(logits, features)`.

    Raises:
        InputError: the images are too small for the model, or the pretrained weights do not fit.

    >>> spec = ImageSpec(1, 8, 8, ("zero", "one"), mean=(0.0,), std=(1.0,), natural=False)
    >>> model = build_model(ModelConfig(), spec, seed=0)
    >>> logits, features = model(torch.zeros(5, 1, 8, 8))
    >>> logits.shape, features.shape
    (torch.Size([5, 2]), torch.Size([5, 128]))
    """
    least = SMALLEST_SIDE[config.model]
    require(
        min(spec.height, spec.width) >= least,
        f"model: {config.model} on {spec.height}x{spec.width} images, allowed: sides of at least {least}",
    )
    require(
        config.pretrained is None or config.model == "resnet50",
        f"pretrained: {config.pretrained}, allowed: only with model resnet50, not {config.model}",
    )
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        return _construct(config, spec)


def _construct(config: ModelConfig, spec: ImageSpec) -> nn.Module:
    if config.model == "cnn":
        return SmallCNN(spec, width=config.width, norm=config.norm)
    if config.model == "mlp":
        return MLP(spec, width=config.width, norm=config.norm)
    return build_resnet(config.model, spec, norm=config.norm, pretrained=config.pretrained)
