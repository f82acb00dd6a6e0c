"""An image file as 8-bit RGB, upright: what Pillow gets wrong or leaves to its caller is settled here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedgr_secure.data.files import reason, regular_file, shown
from fedgr_secure.errors import InputError, require

if TYPE_CHECKING:
    from PIL import Image

_BITS, _PHOTOMETRIC = 258, 262
"""TIFF's tags for the bits of a sample, and for whether 0 is black (1)."""


def decode_rgb(path: Path) -> Image.Image:
    """The image as 8-bit RGB, turned upright as its EXIF orientation says.

    Grey images of 16 bits are scaled to 8 (Pillow would cut them off at 255). Floats and 32-bit numbers are refused:
    one file does not tell what its white is.

    Raises:
        InputError: it is missing, is no regular file, is damaged, or has pixels of another kind.
    """
    from PIL import Image

    regular_file(path, "image")
    try:
        with Image.open(path) as image:
            image.load()
            sixteen = _is_sixteen_bit(image)
            upright = _upright(image)
            return (_eight_bit(upright) if sixteen else upright).convert("RGB")
    except Exception as error:  # Pillow documents no closed set of errors for a damaged file
        raise InputError(
            f"image: {shown(path)} cannot be read as an image ({reason(error)}): replace the file; "
            "a run that it stopped can then be resumed"
        ) from None


def _is_sixteen_bit(image: Image.Image) -> bool:
    """Whether the image is grey of 16 bits; Pillow opens such PPM (and with old versions PNG) files in mode I."""
    if image.mode != "F" and not image.mode.startswith("I"):
        return False
    tags = getattr(image, "tag_v2", {})
    sixteen = image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))
    require(
        sixteen and tags.get(_BITS, (16,)) == (16,) and tags.get(_PHOTOMETRIC, 1) == 1,
        f"pixels of mode {image.mode}, allowed: whole numbers of 8 or 16 bits with black at 0",
    )
    return True


def _upright(image: Image.Image) -> Image.Image:
    from PIL import ImageOps

    try:
        image.getexif()
    except Exception:  # EXIF that nobody can read turns no image
        return image
    return ImageOps.exif_transpose(image)


def _eight_bit(image: Image.Image) -> Image.Image:
    from PIL import Image

    return Image.fromarray(np.rint(np.asarray(image) * (255 / 65535)).astype(np.uint8))
