"""A data set in one NumPy file: x_train, y_train, x_test, y_test, and optionally real noisy labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from fedgr_secure.data.checks import as_labels, check_labels
from fedgr_secure.data.files import listed, reason, regular_file, shown
from fedgr_secure.data.stores import Raw, in_memory
from fedgr_secure.data.types import Labels, UInt8
from fedgr_secure.errors import InputError, require
from fedgr_secure.sections import DataConfig

SMALLEST_SIDE = 8
HALF_LEVEL = 0.5 / 255
"""Half a grey level of pixels in 0 to 1, which rounding to whole levels takes back."""

_MIDDLE = 128
_NEEDED = ("x_train", "y_train", "x_test", "y_test")
_DEFAULT_GIVEN = next(f.default for f in dataclasses.fields(DataConfig) if f.name == "given_labels")


def read_npz(config: DataConfig) -> Raw:
    """Read the file at `config.path`.

    Images are N x H x W or N x H x W x C (channels last, at most 4), of whole numbers in both splits or of finite
    floats in both. One range holds for both, decided by the highest value of both: whole numbers are 0 to 255; floats
    are shares of full brightness (0 to 1) if none exceeds 1, and 0 to 255 if the highest is at least 128. Up to
    1/510 beyond either end is rounding, and taken back. What could be either is refused: floats whose highest value
    lies between, whole numbers that stop at 1, and a split that stops at 1 beside one that does not.

    The classes are 0 to the highest number in y_train and y_test. Images count as natural (mirroring keeps the class)
    when they have three channels.

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
    return in_memory(
        (train, true_labels),
        (test, test_labels),
        class_names=tuple(str(number) for number in range(classes)),
        natural=train.shape[1] == 3,
        given_labels=given,
    )


def _arrays(config: DataConfig) -> dict[str, NDArray[np.generic]]:
    path = config.path
    if path is None:
        raise InputError("path: not given, but dataset npz is read from disk: name the .npz file with --path")
    with open_npz(path) as archive:
        keys = list(archive.files)
        _check_keys(config, keys)
        return {key: _array(archive, key, path) for key in (*_NEEDED, config.given_labels) if key in keys}


@contextmanager
def open_npz(path: Path) -> Iterator[NpzFile]:
    """The file at `path`, open; `files` are its keys.

    Raises:
        InputError: it is missing, is no regular file, or is no .npz file.
    """
    regular_file(path, "path", allowed="an existing .npz file")
    try:
        archive = np.load(path, allow_pickle=False)
    except Exception:  # NumPy documents no closed set of errors for a damaged file
        archive = None
    if not isinstance(archive, NpzFile):
        raise InputError(f"path: {shown(path)} cannot be read, allowed: an .npz file, as numpy.savez writes it")
    with archive:
        yield archive


def _array(archive: NpzFile, key: str, path: Path) -> NDArray[np.generic]:
    """One array; of Python objects, which could run code, it is refused."""
    try:
        array = archive[key]
    except Exception as error:  # nor for a damaged member
        why = "it holds Python objects" if "allow_pickle" in str(error) else reason(error)
        raise InputError(f"path: {shown(path)}: {key} cannot be read as a plain array: {why}") from None
    require(isinstance(array, np.ndarray), f"path: {shown(path)}: {key} is no array, allowed: plain arrays")
    return array


def _check_keys(config: DataConfig, keys: list[str]) -> None:
    missing = [key for key in _NEEDED if key not in keys]
    require(not missing, f"path: {shown(config.path)} has no {listed(missing)}; it holds {listed(keys) or 'nothing'}")
    require(
        config.given_labels in keys or config.given_labels == _DEFAULT_GIVEN,
        f"given_labels: {config.given_labels}, allowed: a key of {shown(config.path)}, which holds {listed(keys)}",
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
    scale = _scale(train, test)
    return _to_uint8(train, scale), _to_uint8(test, scale)


def _scale(train: NDArray[np.generic], test: NDArray[np.generic]) -> float:
    """What both splits are multiplied with to span 0 to 255."""
    floats = train.dtype.kind == "f"
    require(
        floats == (test.dtype.kind == "f"),
        f"x_train, x_test: {train.dtype} and {test.dtype}, allowed: whole numbers in both or floats in both",
    )
    one = 1 + HALF_LEVEL
    highs = {"x_train": float(train.max()), "x_test": float(test.max())}
    top = max(highs.values())
    if floats and top < one:
        return 255.0
    require(
        top == 0 or top >= (_MIDDLE if floats else 2),
        f"x_train, x_test: {'floats' if floats else 'whole numbers'} up to {top:.6g}, allowed: up to 255"
        + (f" (at least {_MIDDLE}), or up to 1" if floats else "; with 1 as full brightness only as float"),
    )
    for name, high in highs.items():
        require(
            high == 0 or high >= one,
            f"{name}: values up to {high:g}, allowed: the range of the other split, up to {top:g}",
        )
    return 1.0


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
    slack = HALF_LEVEL if array.dtype.kind == "f" else 0.0
    require(
        low >= -slack and high <= 255 + slack,
        f"{name}: values from {low:g} to {high:g}, allowed: 0 to 255, or 0 to 1 as float",
    )


def _to_uint8(array: NDArray[np.generic], scale: float) -> UInt8:
    if array.dtype.kind == "f":
        array = np.rint(array.astype(np.float32) * np.float32(scale)).clip(0, 255)
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
