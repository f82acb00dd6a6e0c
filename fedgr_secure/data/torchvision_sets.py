"""MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100 and SVHN, read through torchvision from a folder on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedgr_secure.data.checks import need_folder
from fedgr_secure.data.cifar100 import FINE_CLASSES
from fedgr_secure.data.files import reason, shown
from fedgr_secure.data.stores import Raw, Statistics, in_memory
from fedgr_secure.data.types import Labels, UInt8
from fedgr_secure.errors import InputError
from fedgr_secure.sections import DataConfig

DIGIT_NAMES = tuple("0123456789")
FASHION_NAMES = (
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

CLASS_NAMES = {
    "mnist": DIGIT_NAMES,
    "fashion-mnist": FASHION_NAMES,
    "cifar10": CIFAR10_NAMES,
    "cifar100": FINE_CLASSES,
    "svhn": DIGIT_NAMES,
}

STATISTICS: dict[str, Statistics] = {
    "mnist": ((0.1307,), (0.3081,)),
    "fashion-mnist": ((0.2860,), (0.3530,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
    "svhn": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
}
"""Constants in common use, so that no client's pixels are measured; those of CIFAR are the ones that FedGR's authors
normalise with (CIFAR-10's deviations are the mean of the per-image ones, hence below the pixels' own .247)."""

NATURAL = {"fashion-mnist", "cifar10", "cifar100"}
"""A mirrored digit is another sign or none; a mirrored shirt, cat or truck is still one."""


def read_torchvision(config: DataConfig) -> Raw:
    """Read a torchvision data set from `config.path`; fetch it first only if `config.download` says so.

    Images are uint8, grey (N, 1, 28, 28) or colour (N, 3, 32, 32). CIFAR-100 has its 100 fine labels.

    Raises:
        InputError: the set is not in the folder or is damaged, or the download failed.
    """
    name = config.dataset
    if config.download and config.path is not None:
        _make_folder(config.path)
    folder = need_folder(config.path, name)
    return in_memory(
        _split(name, folder, True, config.download),
        _split(name, folder, False, config.download),
        class_names=CLASS_NAMES[name],
        natural=name in NATURAL,
        statistics=STATISTICS[name],
    )


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"path: {shown(path)} cannot be made: {reason(error)}") from None


def _split(name: str, folder: Path, train: bool, download: bool) -> tuple[UInt8, Labels]:
    try:
        return _arrays(_opener(name)(folder, train, download))
    except Exception as error:  # torchvision documents no closed set of errors for a missing or damaged file
        advice = (
            "the download failed, or a file that is there is damaged"
            if download
            else "name the folder that holds it whole with --path, or fetch it into an empty one with --download"
        )
        raise InputError(f"path: {shown(folder)} does not hold {name} ({reason(error)}): {advice}") from None


def _opener(name: str) -> Callable[[Path, bool, bool], Any]:
    from torchvision import datasets

    if name == "svhn":
        return lambda folder, train, download: datasets.SVHN(
            str(folder), split="train" if train else "test", download=download
        )
    kind: Any = {
        "mnist": datasets.MNIST,
        "fashion-mnist": datasets.FashionMNIST,
        "cifar10": datasets.CIFAR10,
        "cifar100": datasets.CIFAR100,
    }[name]
    return lambda folder, train, download: kind(str(folder), train=train, download=download)


def _arrays(data: Any) -> tuple[UInt8, Labels]:
    """Channels-first pixels and int64 labels: MNIST holds N x H x W, CIFAR N x H x W x C, SVHN N x C x H x W."""
    pixels = np.asarray(data.data)
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.shape[-1] == 3:
        pixels = pixels.transpose(0, 3, 1, 2)
    labels = data.labels if hasattr(data, "labels") else data.targets
    return np.ascontiguousarray(pixels), np.asarray(labels).astype(np.int64)
