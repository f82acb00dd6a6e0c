"""RandAugment (Cubuk et al. 2020) and cutout (DeVries & Taylor 2017), where each image of a batch has its own
operations and magnitudes.

The geometric operations of an image are composed into one affine map and sampled once; the photometric ones follow, in
the order drawn. The fourteen operations and their ranges are those of FixMatch (Sohn et al. 2020, table 12).
Images are float32 (n, channels, height, width) with values in [0, 255].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional

ROTATION = torch.pi / 6
"""radians at magnitude 1"""
SHEAR = 0.3
"""pixels per pixel at magnitude 1"""
TRANSLATION = 0.3
"""share of the side at magnitude 1"""
ENHANCEMENT = 0.9
"""distance from 1 of a blending factor at magnitude 1"""
GREY = 127.5
"""the value that cutout leaves"""


@dataclass(frozen=True)
class Plan:
    """The random draws of n images, k operations each.

    Attributes:
        operation: int64 (n, k), an index into `OPERATIONS`.
        magnitude: float32 (n, k), in [-1, 1]; operations without a direction use its absolute value.
        square: int64 (n, 4), cutout's top, left, bottom, right; the ends are exclusive and may lie outside.
    """

    operation: Tensor
    magnitude: Tensor
    square: Tensor

    def part(self, images: slice) -> Plan:
        """The draws of some of the images."""
        return Plan(self.operation[images], self.magnitude[images], self.square[images])


@dataclass(frozen=True)
class RandAugment:
    """How strong views are made.

    Attributes:
        operations: random operations per image.
        magnitude: the largest strength, as a share of the published range.
        cutout: the largest side of the erased square, as a share of the image's shorter side.
    """

    operations: int
    magnitude: float
    cutout: float

    def draw(self, count: int, shape: tuple[int, int, int], generator: Generator) -> Plan:
        """All random numbers for `count` images of `shape` (channels, height, width)."""
        drawn = (count, self.operations)
        operation = torch.randint(len(OPERATIONS), drawn, generator=generator)
        magnitude = (2 * torch.rand(drawn, generator=generator) - 1) * self.magnitude
        longest = int(self.cutout * min(shape[1:]))
        side = torch.randint(longest + 1, (count, 1), generator=generator)
        centre = (torch.rand((count, 2), generator=generator) * torch.tensor(shape[1:])).long()
        corner = centre - side // 2
        return Plan(operation, magnitude, torch.cat([corner, corner + side], dim=1))

    def apply(self, images: Tensor, plan: Plan) -> Tensor:
        """The augmented images; the argument is overwritten."""
        moved = (plan.operation < len(GEOMETRIC)).any(1).nonzero().flatten()
        if len(moved):
            maps = affine_maps(plan.operation[moved], plan.magnitude[moved], images.shape[2], images.shape[3])
            images.index_copy_(0, moved, sample(images.index_select(0, moved), maps))
        for operation, magnitude in zip(plan.operation.unbind(1), plan.magnitude.unbind(1), strict=True):
            order, sizes = operation.argsort(stable=True), operation.bincount(minlength=len(OPERATIONS)).tolist()
            for name, chosen in zip(OPERATIONS, order.split(sizes), strict=True):
                if name in PHOTOMETRIC and len(chosen):
                    changed = PHOTOMETRIC[name](images.index_select(0, chosen), magnitude[chosen])
                    images.index_copy_(0, chosen, changed.clamp_(0, 255))
        return cut_out(images, plan.square) if self.cutout else images


def affine_maps(operation: Tensor, magnitude: Tensor, height: int, width: int) -> Tensor:
    """Compose each image's geometric operations (n, k) into the map from output to input pixels.

    Returns:
        float32 (n, 2, 3) on (x, y, 1), pixels counted from the image's centre.
    """

    def strength(name: str, largest: float) -> Tensor:
        return torch.where(operation == GEOMETRIC.index(name), largest * magnitude, 0.0)

    angle = strength("rotate", ROTATION)
    cosine, sine = angle.cos(), angle.sin()
    zero, one = torch.zeros_like(angle), torch.ones_like(angle)
    first = [cosine, strength("shear_x", SHEAR) - sine, strength("translate_x", TRANSLATION * width)]
    second = [strength("shear_y", SHEAR) + sine, cosine, strength("translate_y", TRANSLATION * height)]
    steps = torch.stack([*first, *second, zero, zero, one], dim=-1).view(*operation.shape, 3, 3)
    composed = steps[:, 0]
    for turn in range(1, steps.shape[1]):
        composed = composed @ steps[:, turn]
    return composed[:, :2]


def sample(images: Tensor, maps: Tensor) -> Tensor:
    """Bilinear sampling at mapped pixels (n, 2, 3); what lies outside the image is black."""
    height, width = images.shape[2:]
    row, column = torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2
    grid = torch.empty(len(images), 2, height, width)  # what affine_grid makes, several times faster
    for axis, half in enumerate((width / 2, height / 2)):
        by_column, by_row, shift = (maps[:, axis] / half)[:, :, None].unbind(1)
        torch.add((by_row * row + shift)[:, :, None], (by_column * column)[:, None, :], out=grid[:, axis])
    grid = grid.permute(0, 2, 3, 1)
    sampled = functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return sampled.clamp_(0, 255)


def cut_out(images: Tensor, square: Tensor) -> Tensor:
    """Fill each image's square (n, 4: top, left, bottom, right) with grey, in place."""
    top, left, bottom, right = square[:, :, None].unbind(1)
    row, column = torch.arange(images.shape[2]), torch.arange(images.shape[3])
    rows, columns = (row >= top) & (row < bottom), (column >= left) & (column < right)
    return images.masked_fill_((rows[:, :, None] & columns[:, None, :])[:, None], GREY)


def blend(images: Tensor, base: Tensor, factor: Tensor) -> Tensor:
    """`base` at factor 0, the images at 1, beyond them above 1; clipped to [0, 255]. `factor` is (n,)."""
    return torch.lerp(base.expand_as(images), images, factor.view(-1, 1, 1, 1)).clamp_(0, 255)


def luminance(images: Tensor) -> Tensor:
    """Grey value (n, 1, height, width): ITU-R 601 weights for three channels, the mean for any other number."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    red, green, blue = images.unbind(1)
    return (0.2989 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)[:, None]


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black."""
    return (images * factor.view(-1, 1, 1, 1)).clamp_(0, 255)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean grey value."""
    return blend(images, luminance(images).mean((2, 3), keepdim=True), factor)


def colour(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey image; without three channels nothing changes."""
    return blend(images, luminance(images), factor) if images.shape[1] == 3 else images


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the image smoothed by the kernel (1 1 1; 1 5 1; 1 1 1) / 13; the border stays."""
    if min(images.shape[2:]) < 3:
        return images
    rows = images[:, :, :-2] + images[:, :, 1:-1] + images[:, :, 2:]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    smooth = images.clone()
    smooth[:, :, 1:-1, 1:-1] = box.add_(images[:, :, 1:-1, 1:-1], alpha=4).div_(13)
    return blend(images, smooth, factor)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the `bits` (n,) highest bits of each value."""
    step = torch.exp2(8 - bits).view(-1, 1, 1, 1)
    return images.div(step).floor_().mul_(step)


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the values at or above the `threshold` (n,)."""
    return torch.where(images >= threshold.view(-1, 1, 1, 1), 255 - images, images)


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel to [0, 255]; a constant channel stays."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    flat = high <= low
    scale = 255 / torch.where(flat, 255.0, high - low)
    return (images - torch.where(flat, 0.0, low)).mul_(scale)


def equalize(images: Tensor) -> Tensor:
    """Map each channel so that its 256 levels are used evenly; a channel of one level stays."""
    channels, pixels = images.shape[0] * images.shape[1], images.shape[2] * images.shape[3]
    level = images.round().int().view(channels, pixels)
    place = (level + 256 * torch.arange(channels, dtype=torch.int32)[:, None]).view(-1)
    counts = torch.bincount(place, minlength=256 * channels).view(channels, 256)
    brightest = counts.gather(1, level.amax(1, keepdim=True).long())
    step = (pixels - brightest) // 255
    table = ((counts.cumsum(1) - counts + step // 2) // step.clamp(min=1)).clamp_(max=255)
    table = torch.where(step == 0, torch.arange(256), table).float()
    return table.view(-1).index_select(0, place).view(images.shape)


def _factor(magnitude: Tensor) -> Tensor:
    return 1 + ENHANCEMENT * magnitude


GEOMETRIC = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
PHOTOMETRIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "brightness": lambda images, magnitude: brightness(images, _factor(magnitude)),
    "contrast": lambda images, magnitude: contrast(images, _factor(magnitude)),
    "colour": lambda images, magnitude: colour(images, _factor(magnitude)),
    "sharpness": lambda images, magnitude: sharpness(images, _factor(magnitude)),
    "posterize": lambda images, magnitude: posterize(images, 8 - (4 * magnitude.abs()).round()),
    "solarize": lambda images, magnitude: solarize(images, 256 * (1 - magnitude.abs())),
    "autocontrast": lambda images, magnitude: autocontrast(images),
    "equalize": lambda images, magnitude: equalize(images),
}
OPERATIONS = (*GEOMETRIC, *PHOTOMETRIC, "identity")
"""The fourteen operations; a plan's numbers are indices into this."""
