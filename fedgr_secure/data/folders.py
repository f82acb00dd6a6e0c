"""Images in folders, decoded when they are taken: one folder per class, or Clothing1M's official layout."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path, PurePosixPath

import numpy as np

from fedgr_secure.data.checks import UNKNOWN, need_folder
from fedgr_secure.data.files import is_folder, listed, read_text, regular_file, shown, visible
from fedgr_secure.data.stores import FileImages, Raw, Statistics
from fedgr_secure.data.types import Labels
from fedgr_secure.errors import require
from fedgr_secure.sections import DataConfig

FOLDER_SIZE = 32
CLOTHING_SIZE = 224
CLOTHING_SHORT_SIDE = 256
"""Clothing1M's usual preparation: short side to 256, central square of 224; other sizes keep the proportion."""

EXTENSIONS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff"}

CLOTHING_NAMES = (
    "T-Shirt",
    "Shirt",
    "Knitwear",
    "Chiffon",
    "Sweater",
    "Hoodie",
    "Windbreaker",
    "Jacket",
    "Down Coat",
    "Suit",
    "Shawl",
    "Dress",
    "Vest",
    "Underwear",
)
_CLOTHING_CLASSES = {str(number) for number in range(len(CLOTHING_NAMES))}

CLOTHING_STATISTICS: Statistics = ((0.6959, 0.6537, 0.6371), (0.3113, 0.3192, 0.3214))
"""The constants that FedGR's authors normalise Clothing1M with."""


def read_folder(config: DataConfig) -> Raw:
    """Read `path/train/<class>/*` and `path/test/<class>/*`; classes are the training folders in sorted order.

    The whole image is turned upright, converted to 8-bit RGB (`decode.decode_rgb`) and resized to `image_size`
    (default 32) squared. Hidden files and folders, and files without an image's ending, are left out.

    Raises:
        InputError: a split is missing or empty, a class has no training image, a test class is not a training class,
            or something that is called an image is no regular file.
    """
    root = need_folder(config.path, config.dataset)
    names = _class_folders(root / "train")
    strangers = sorted(set(_class_folders(root / "test")) - set(names))
    require(
        not strangers, f"path: {root / 'test'} has class {listed(strangers)}, allowed: {listed(names)}, as in train"
    )
    train, true_labels = _class_files(root, "train", names)
    test, test_labels = _class_files(root, "test", names)
    empty = [names[c] for c in np.flatnonzero(np.bincount(true_labels, minlength=len(names)) == 0)]
    require(not empty, f"path: {root / 'train'} has no image of class {listed(empty)}, allowed: at least 1")
    require(len(test) > 0, f"path: {root / 'test'} has no image, allowed: at least 1")
    size = config.image_size or FOLDER_SIZE
    return Raw(
        train=FileImages(root, train, size),
        true_labels=true_labels,
        given_labels=None,
        test=FileImages(root, test, size),
        test_labels=test_labels,
        class_names=tuple(names),
        natural=True,
    )


def _class_folders(split: Path) -> list[str]:
    require(
        is_folder(split, "path"),
        f"path: {shown(split)} is missing, allowed: a folder with one folder of images per class",
    )
    names = [entry.name for entry in visible(split, "path") if is_folder(entry, "path")]
    require(bool(names), f"path: {shown(split)} has no class folder, allowed: one folder of images per class")
    return names


def _class_files(root: Path, split: str, names: list[str]) -> tuple[tuple[str, ...], Labels]:
    files: list[str] = []
    labels: list[int] = []
    for number, name in enumerate(names):
        folder = root / split / name
        entries = visible(folder, "path") if is_folder(folder, "path") else []
        found = [regular_file(entry, "path") for entry in entries if entry.suffix.lower() in EXTENSIONS]
        files += [f"{split}/{name}/{file.name}" for file in found]
        labels += [number] * len(found)
    return tuple(files), np.array(labels, dtype=np.int64)


def read_clothing1m(config: DataConfig) -> Raw:
    """Read Clothing1M (Xiao et al. 2015) in its official layout.

    Training images are those of noisy_train_key_list.txt, with the labels of noisy_label_kv.txt as *given* labels.
    Their *true* label is known only where clean_label_kv.txt lists the same image, and is -1 elsewhere: agreement
    with a given label is never assumed, so accuracy of labels and sieving can be told only on the known ones. Test
    images are those of clean_test_key_list.txt with their clean labels. The clean training and validation lists are
    not used.

    Raises:
        InputError: a list is missing, a line is malformed, an image has no label or two, a label is not 0 to 13, a
            listed image is not there, is listed twice, or is a training and a test image at once.
    """
    root = need_folder(config.path, config.dataset)
    noisy, clean = _label_table(root / "noisy_label_kv.txt"), _label_table(root / "clean_label_kv.txt")
    train, test = _keys(root / "noisy_train_key_list.txt"), _keys(root / "clean_test_key_list.txt")
    size = config.image_size or CLOTHING_SIZE
    short_side = round(size * CLOTHING_SHORT_SIDE / CLOTHING_SIZE)
    given = _lookup(train, noisy, root / "noisy_label_kv.txt")
    both = sorted(set(train) & set(test))
    require(not both, f"path: {shown(root)} lists {listed(both)} for training and for test, allowed: one of them")
    return Raw(
        train=FileImages(root, train, size, short_side),
        true_labels=np.array([clean.get(key, UNKNOWN) for key in train], dtype=np.int64),
        given_labels=given,
        test=FileImages(root, test, size, short_side),
        test_labels=_lookup(test, clean, root / "clean_label_kv.txt"),
        class_names=CLOTHING_NAMES,
        natural=True,
        statistics=CLOTHING_STATISTICS,
    )


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in read_text(path, "path").splitlines() if line.strip()]


def _keys(path: Path) -> tuple[str, ...]:
    """The images of a list, each spelt in one way only."""
    keys = [_key(line, path) for line in _lines(path)]
    require(bool(keys), f"path: {shown(path)} lists no image, allowed: at least 1")
    twice = [key for key, count in Counter(keys).items() if count > 1]
    require(not twice, f"path: {shown(path)} lists {listed(twice)} more than once, allowed: once")
    gone = [key for key in keys if not os.path.isfile(f"{path.parent}/{key}")]
    require(not gone, f"path: {shown(path)} lists {listed(gone)}, not in {shown(path.parent)} as a regular file")
    return tuple(keys)


def _key(text: str, path: Path) -> str:
    key = PurePosixPath(text)
    require(
        not key.is_absolute() and ".." not in key.parts,
        f"path: {shown(path)} lists {shown(text)}, allowed: images below {shown(path.parent)}",
    )
    return str(key)


def _label_table(path: Path) -> dict[str, int]:
    """Image to class. A line may come twice, but not with another class."""
    table: dict[str, int] = {}
    for number, line in enumerate(_lines(path), start=1):
        text, _, label = line.rpartition(" ")
        require(
            bool(text) and label in _CLOTHING_CLASSES,
            f"{shown(path)}, line {number}: {shown(line)!r}, allowed: an image, a space, a class from 0 to 13",
        )
        key, value = _key(text.strip(), path), int(label)
        before = table.setdefault(key, value)
        require(
            before == value, f"{shown(path)}, line {number}: {shown(key)} has class {value}, and {before} further up"
        )
    return table


def _lookup(keys: tuple[str, ...], table: dict[str, int], path: Path) -> Labels:
    missing = [key for key in keys if key not in table]
    require(not missing, f"path: {shown(path)} has no label for {listed(missing)}")
    return np.array([table[key] for key in keys], dtype=np.int64)
