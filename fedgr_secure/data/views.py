"""The views of an image: plain, weak (crop and flip), strong (weak, then RandAugment and cutout), all normalised.

Every random number of a call is drawn first, from the generator given; the images are then processed in chunks of
bounded size, so that the result depends on the generator's state alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Generator, Tensor

from fedgr_secure.data.randaugment import RandAugment
from fedgr_secure.data.types import ImageSpec, UInt8
from fedgr_secure.errors import require
from fedgr_secure.sections import ViewConfig

CHUNK_VALUES = 1 << 20
"""Values (images x channels x height x width) worked on at a time; the best of 2^18 .. 2^21 on a CPU."""


@dataclass(frozen=True)
class Views:
    """Makes the views of uint8 images (n, channels, height, width), NumPy or torch, on the CPU.

    Every method returns float32 (n, channels, height, width), normalised with the data set's mean and std.

    >>> spec = ImageSpec(1, 8, 8, ("zero", "one"), mean=(0.5,), std=(0.5,), natural=False)
    >>> views = Views.for_images(spec, ViewConfig())
    >>> images = np.zeros((3, 1, 8, 8), np.uint8)
    >>> views.plain(images).mean().item(), views.strong(images, Generator().manual_seed(1)).shape
    (-1.0, torch.Size([3, 1, 8, 8]))

    Attributes:
        shape: (channels, height, width) of the images.
        mean: per channel, of pixels in [0, 1].
        std: per channel.
        padding: pixels of reflected border that the random crop may reach into.
        flip: mirror with probability one half.
        augment: what a strong view adds to a weak one.
        baseline: the view that methods without one of their own train on.
    """

    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int
    flip: bool
    augment: RandAugment
    baseline: Literal["plain", "weak", "strong"]

    @classmethod
    def for_images(cls, spec: ImageSpec, config: ViewConfig) -> Views:
        """The views of a data set.

        Raises:
            InputError: the crop's padding is not smaller than the image.
        """
        side = min(spec.height, spec.width)
        padding = side // 8 if config.crop_padding is None else config.crop_padding
        require(0 <= padding < side, f"crop_padding: {padding}, allowed: from 0 to {side - 1} (the side less one)")
        usual: Literal["plain", "weak"] = "weak" if spec.natural else "plain"
        return cls(
            shape=(spec.channels, spec.height, spec.width),
            mean=spec.mean,
            std=spec.std,
            padding=padding,
            flip=spec.natural if config.flip is None else config.flip,
            augment=RandAugment(config.randaugment_ops, config.randaugment_magnitude, config.cutout),
            baseline=usual if config.baseline_view == "auto" else config.baseline_view,
        )

    def plain(self, images: UInt8 | Tensor) -> Tensor:
        """The images as they are."""
        return self._render(images, lambda pixels, part: pixels.float())

    def weak(self, images: UInt8 | Tensor, generator: Generator) -> Tensor:
        """A random crop of the reflect-padded image, mirrored at random where the data allow it."""
        place, flip = self._draw(len(images), generator)
        return self._render(images, lambda pixels, part: self._crop(pixels, place[part], flip[part]).float())

    def strong(self, images: UInt8 | Tensor, generator: Generator) -> Tensor:
        """A weak view, then random operations (Cubuk et al. 2020) and cutout (DeVries & Taylor 2017)."""
        place, flip = self._draw(len(images), generator)
        plan = self.augment.draw(len(images), self.shape, generator)

        def make(pixels: Tensor, part: slice) -> Tensor:
            return self.augment.apply(self._crop(pixels, place[part], flip[part]).float(), plan.part(part))

        return self._render(images, make)

    def _render(self, images: UInt8 | Tensor, make: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """Apply `make` (uint8 in, float32 in [0, 255] out) chunk by chunk, and normalise."""
        require(
            images.dtype in (np.uint8, torch.uint8) and images.ndim == 4 and tuple(images.shape[1:]) == self.shape,
            f"images: {images.dtype} {tuple(images.shape)}, allowed: uint8 (n, {', '.join(map(str, self.shape))})",
        )
        views = torch.empty(tuple(images.shape))
        step = max(1, CHUNK_VALUES // math.prod(self.shape))
        for start in range(0, len(images), step):
            part = slice(start, start + step)
            views[part] = self._normalise(make(_tensor(images[part]), part))
        return views

    def _draw(self, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Where each crop starts, int64 (n, 2), and which images are mirrored, bool (n,)."""
        place = torch.randint(2 * self.padding + 1, (count, 2), generator=generator)
        flip = torch.rand(count, generator=generator) < (0.5 if self.flip else 0.0)
        return place, flip

    def _crop(self, pixels: Tensor, place: Tensor, flip: Tensor) -> Tensor:
        """Crop and mirror by index, without interpolation: uint8 in, uint8 out."""
        channels, height, width = self.shape
        rows = _reflect(torch.arange(height) + place[:, :1] - self.padding, height)
        columns = torch.arange(width).expand(len(pixels), width)
        columns = torch.where(flip[:, None], width - 1 - columns, columns)
        columns = _reflect(columns + place[:, 1:] - self.padding, width)
        index = (rows[:, :, None] * width + columns[:, None, :]).view(-1, 1, height * width)
        return pixels.reshape(-1, channels, height * width).gather(2, index.expand(-1, channels, -1)).view(pixels.shape)

    def _normalise(self, pixels: Tensor) -> Tensor:
        """Values in [0, 255] to (value / 255 - mean) / std, in place."""
        std = torch.tensor(self.std).view(-1, 1, 1)
        return pixels.mul_(1 / (255 * std)).sub_(torch.tensor(self.mean).view(-1, 1, 1) / std)


def _tensor(images: UInt8 | Tensor) -> Tensor:
    if isinstance(images, Tensor):
        return images
    images = np.ascontiguousarray(images)
    return torch.from_numpy(images if images.flags.writeable else images.copy())


def _reflect(index: Tensor, size: int) -> Tensor:
    """Indices beyond either border, mirrored at the border's pixel (which is not repeated)."""
    index = index.abs()
    return torch.where(index >= size, 2 * (size - 1) - index, index)
