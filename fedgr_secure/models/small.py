"""Two small models that a CPU trains in seconds."""

from __future__ import annotations

from torch import Tensor, nn

from fedgr_secure.data.types import ImageSpec
from fedgr_secure.models.norm import Norm, norm_1d, norm_2d
from fedgr_secure.models.output import Output

FEATURES = 128
"""Size of the small CNN's representation."""


def channels_last(images: Tensor) -> Tensor:
    """The same images, stored channel by channel within each pixel; a CPU then convolves and pools twice as fast.

    Written with views, since `Tensor.to(memory_format=...)` is not defined under `torch.func.vmap` and does nothing for
    grey images. The weights keep their usual layout.
    """
    channels, height, width = images.shape[1:]
    return images.permute(0, 2, 3, 1).flatten(1).unflatten(1, (height, width, channels)).permute(0, 3, 1, 2)


class SmallCNN(nn.Module):
    """Two convolutions, one hidden layer. Pooling precedes the norm: a quarter of the work, the same shapes.

    Args:
        spec: the images; each side at least 4.
        width: channels of the first convolution; the second has twice as many.
        norm: normalisation layer.
    """

    def __init__(self, spec: ImageSpec, *, width: int, norm: Norm) -> None:
        super().__init__()
        layer = norm_2d(norm)
        self.maps = nn.Sequential(
            nn.Conv2d(spec.channels, width, 3, padding=1, bias=False),
            nn.MaxPool2d(2),
            layer(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.MaxPool2d(2),
            layer(2 * width),
            nn.ReLU(),
        )
        self.hidden = nn.Linear(2 * width * (spec.height // 4) * (spec.width // 4), FEATURES)
        self.activation = nn.ReLU()
        self.classifier = nn.Linear(FEATURES, spec.classes)

    def forward(self, images: Tensor) -> Output:
        """Float (n, channels, height, width) to logits (n, classes) and features (n, 128)."""
        features = self.activation(self.hidden(self.maps(channels_last(images)).flatten(1)))
        return Output(self.classifier(features), features)


class MLP(nn.Module):
    """Two hidden layers of 8 * width units.

    Args:
        spec: the images, of any size.
        width: an eighth of the hidden units.
        norm: normalisation layer.
    """

    def __init__(self, spec: ImageSpec, *, width: int, norm: Norm) -> None:
        super().__init__()
        layer, units = norm_1d(norm), 8 * width
        self.body = nn.Sequential(
            nn.Flatten(),
            nn.Linear(spec.channels * spec.height * spec.width, units),
            layer(units),
            nn.ReLU(),
            nn.Linear(units, units),
            layer(units),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(units, spec.classes)

    def forward(self, images: Tensor) -> Output:
        """Float (n, channels, height, width) to logits (n, classes) and features (n, 8 * width)."""
        features = self.body(images)
        return Output(self.classifier(features), features)
