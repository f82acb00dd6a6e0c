"""A data set in one NumPy file: x_train, y_train, x_test, y_test, and optionally real noisy labels."""

from __future__ import annotations

import dataclasses
import zipfile

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.config import DataConfig
from fedgr_secure.data.checks import as_labels, check_labels, listed
from fedgr_secure.data.stores import Raw
from fedgr_secure.data.types import ArrayImages, Labels, UInt8
from fedgr_secure.errors import InputError, require

SMALLEST_SIDE = 8
_NEEDED = ("x_train", "y_train", "x_test", "y_test")
_DEFAULT_GIVEN = next(f.default for f in dataclasses.fields(DataConfig) if f.name == "given_labels")


def read_npz(config: DataConfig) -> Raw:
    """Read the file at `config.path`.

    Images are N x H x W or N x H x W x C (channels last, at most 4), either whole numbers from 0 to 255, or finite
    floats. Floats are taken as shares of full brightness when none of the file's two splits exceeds 1, and as values
    from 0 to 255 otherwise. The classes are 0 to the highest number in y_train and y_test. Images count as natural
    (mirroring keeps the class) when they have three channels.

    `config.given_labels` names the key with the given, possibly wrong labels. It may be absent under its default
    name; asking for another key that is not there is refused.

    Raises:
        InputError: naming the key, what it holds and what is allowed.
    """
    arrays = _arrays(config)
    train, test = _pixels(arrays)
    true_labels, test_labels = as_labels("y_train", arrays["y_train"]), as_labels("y_test", arrays["y_test"])
    classes = _classes(true_labels, test_labels)
    check_labels("y_train", true_labels, images=len(train), classes=classes)
    check_labels("y_test", test_labels, images=len(test), classes=classes)
    given = None
    if config.given_labels in arrays:
        given = as_labels(config.given_labels, arrays[config.given_labels])
        check_labels(config.given_labels, given, images=len(train), classes=classes)
    return Raw(
        train=ArrayImages(train),
        true_labels=true_labels,
        given_labels=given,
        test=ArrayImages(test),
        test_labels=test_labels,
        class_names=tuple(str(number) for number in range(classes)),
        natural=train.shape[1] == 3,
    )


def _arrays(config: DataConfig) -> dict[str, NDArray[np.generic]]:
    path = config.path
    if path is None:
        raise InputError("path: not given, but dataset npz is read from disk: name the .npz file with --path")
    require(path.is_file(), f"path: {path}, allowed: an existing .npz file")
    try:
        with np.load(path, allow_pickle=False) as archive:
            keys = list(archive.files)
            _check_keys(config, keys)
            return {key: archive[key] for key in (*_NEEDED, config.given_labels) if key in keys}
    except InputError:
        raise
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(f"path: {path} cannot be read as an .npz file of plain arrays: {error}") from None


def _check_keys(config: DataConfig, keys: list[str]) -> None:
    missing = [key for key in _NEEDED if key not in keys]
    require(not missing, f"path: {config.path} has no {listed(missing)}; it holds {listed(keys) or 'nothing'}")
    require(
        config.given_labels in keys or config.given_labels == _DEFAULT_GIVEN,
        f"given_labels: {config.given_labels}, allowed: a key of {config.path}, which holds {listed(keys)}",
    )


def _pixels(arrays: dict[str, NDArray[np.generic]]) -> tuple[UInt8, UInt8]:
    """Both splits as uint8, channels first; floats of both splits are scaled alike."""
    train, test = arrays["x_train"], arrays["x_test"]
    for name, array in (("x_train", train), ("x_test", test)):
        _check_pixels(name, array)
    require(
        train.shape[1:] == test.shape[1:],
        f"x_test: images of shape {test.shape[1:]}, allowed: {train.shape[1:]}, as in x_train",
    )
    floats = [array for array in (train, test) if array.dtype.kind == "f"]
    scale = 255.0 if floats and max(float(array.max()) for array in floats) <= 1 else 1.0
    return _to_uint8(train, scale), _to_uint8(test, scale)


def _check_pixels(name: str, array: NDArray[np.generic]) -> None:
    require(
        array.ndim in (3, 4),
        f"{name}: shape {array.shape}, allowed: (N, height, width) or (N, height, width, channels)",
    )
    require(array.dtype.kind in "iuf", f"{name}: dtype {array.dtype}, allowed: uint8 or float")
    require(len(array) > 0, f"{name}: 0 images, allowed: at least 1")
    require(
        array.ndim == 3 or 1 <= array.shape[3] <= 4,
        f"{name}: shape {array.shape}, {array.shape[-1]} channels, allowed: 1 to 4, as the last axis",
    )
    side = min(array.shape[1:3])
    require(side >= SMALLEST_SIDE, f"{name}: images of side {side}, allowed: at least {SMALLEST_SIDE}")
    with np.errstate(invalid="ignore"):
        low, high = float(array.min()), float(array.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        bad = np.argwhere(~np.isfinite(array))
        raise InputError(
            f"{name}: {len(bad)} pixels are not finite (first: {array[tuple(bad[0])]} in image {bad[0][0]}), "
            "allowed: finite numbers"
        )
    require(low >= 0 and high <= 255, f"{name}: values from {low:g} to {high:g}, allowed: 0 to 255, or 0 to 1 as float")


def _to_uint8(array: NDArray[np.generic], scale: float) -> UInt8:
    if array.dtype.kind == "f":
        array = np.rint(array.astype(np.float32) * np.float32(scale))
    pixels = array.astype(np.uint8)
    return pixels[:, None] if pixels.ndim == 3 else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


def _classes(true_labels: Labels, test_labels: Labels) -> int:
    """Number of classes; a highest label beyond the number of images, or no class 0 at all, is a mistake."""
    both = np.concatenate([true_labels, test_labels])
    require(len(both) > 0, "y_train: 0 labels, allowed: at least 1")
    highest = int(both.max())
    require(
        highest < len(both),
        f"y_train, y_test: highest class {highest}, allowed: below the number of images, {len(both)}",
    )
    require(int(both.min()) <= 0, f"y_train, y_test: lowest class {both.min()}, allowed: class numbers that start at 0")
    return highest + 1
