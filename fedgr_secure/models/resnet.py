"""ResNets (He et al. 2016) from torchvision's blocks, with either normalisation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from fedgr_secure.data.files import reason, regular_file, shown
from fedgr_secure.data.types import ImageSpec
from fedgr_secure.errors import InputError, require
from fedgr_secure.models.norm import Norm, norm_2d
from fedgr_secure.models.output import Output

if TYPE_CHECKING:
    from torchvision.models.resnet import ResNet

Depth = Literal["resnet18", "resnet34", "resnet50"]


class ResNetClassifier(nn.Module):
    """A torchvision ResNet whose last linear layer stands apart, so that its input can be returned.

    Args:
        backbone: a torchvision ResNet; its `fc` is taken out.
        classes: number of classes.
    """

    def __init__(self, backbone: ResNet, *, classes: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(backbone.fc.in_features, classes)
        backbone.fc = nn.Identity()
        self.backbone = backbone

    def forward(self, images: Tensor) -> Output:
        """Float (n, channels, height, width) to logits (n, classes) and features (n, 512 or 2048)."""
        features = self.backbone(images)
        return Output(self.classifier(features), features)


def build_resnet(depth: Depth, spec: ImageSpec, *, norm: Norm, pretrained: Path | None) -> ResNetClassifier:
    """A ResNet; 18 and 34 layers with the stem for 32x32 images, 50 layers with the one for 224x224.

    Raises:
        InputError: `pretrained` does not fit the model, or cannot be read.
    """
    if pretrained is not None:
        require(norm == "batch", f"norm: {norm}, allowed: batch with pretrained weights ({pretrained})")
        require(spec.channels == 3, f"pretrained: {pretrained}, allowed: for 3 channels, not {spec.channels}")
    backbone = _backbone(depth, norm)
    if depth != "resnet50":
        _replace_stem(backbone, nn.Conv2d(spec.channels, 64, 3, padding=1, bias=False))
        backbone.maxpool = nn.Identity()
    elif spec.channels != 3:
        _replace_stem(backbone, nn.Conv2d(spec.channels, 64, 7, stride=2, padding=3, bias=False))
    for module in backbone.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False  # per-sample gradients (hooks, functorch) must not find overwritten inputs
    if pretrained is not None:
        load_backbone(backbone, pretrained)
    return ResNetClassifier(backbone, classes=spec.classes)


def _backbone(depth: Depth, norm: Norm) -> ResNet:
    from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

    class Basic(BasicBlock):
        """The same block without torchvision's in-place sum, which hooks for per-sample gradients do not survive."""

        def forward(self, x: Tensor) -> Tensor:
            """(n, c, h, w) to (n, c', h', w')."""
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            return self.relu(out + (x if self.downsample is None else self.downsample(x)))

    class Bottle(Bottleneck):
        """The same for three convolutions."""

        def forward(self, x: Tensor) -> Tensor:
            """(n, c, h, w) to (n, c', h', w')."""
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.relu(self.bn2(self.conv2(out)))
            out = self.bn3(self.conv3(out))
            return self.relu(out + (x if self.downsample is None else self.downsample(x)))

    layers = [2, 2, 2, 2] if depth == "resnet18" else [3, 4, 6, 3]
    return ResNet(Bottle if depth == "resnet50" else Basic, layers, norm_layer=norm_2d(norm))


def _replace_stem(backbone: ResNet, stem: nn.Conv2d) -> None:
    """A new first convolution, initialised as torchvision initialises the old one (He et al. 2015)."""
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    backbone.conv1 = stem


def load_backbone(backbone: ResNet, path: Path) -> None:
    """Load torchvision ImageNet weights from disk: every tensor but the classifier's must fit.

    Raises:
        InputError: the file is missing or damaged, or its names or shapes differ from the model's.
    """
    regular_file(path, "pretrained")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load documents no closed set of errors for a damaged file
        raise InputError(f"pretrained: {shown(path)} cannot be read as torch weights: {reason(error)}") from None
    require(isinstance(state, dict), f"pretrained: {path} holds a {type(state).__name__}, allowed: a state dict")
    wanted = {name: value for name, value in backbone.state_dict().items() if not name.startswith("fc.")}
    given = {name: value for name, value in state.items() if not str(name).startswith("fc.")}
    bad = sorted(
        str(name)
        for name in wanted.keys() | given.keys()
        if getattr(given.get(name), "shape", None) != getattr(wanted.get(name), "shape", None)
    )
    require(not bad, f"pretrained: {path} does not fit a ResNet-50; {len(bad)} tensors differ, the first is {bad[:1]}")
    backbone.load_state_dict(given, strict=False)
