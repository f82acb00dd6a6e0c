"""Whatever the data layer opens is a regular file or a folder; anything else is one line that names it."""

import os
import stat

import numpy as np
import pytest
import torch
from torchvision.models import resnet50

from fedgr_secure.data.files import listed, read_text, shown, visible
from fedgr_secure.data.partition import partition
from fedgr_secure.data.sources import load_source
from fedgr_secure.data.stores import FileImages
from fedgr_secure.errors import InputError
from fedgr_secure.models.resnet import load_backbone
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import DataConfig, PartitionConfig


def by_file(path):
    config = PartitionConfig(partition="file", partition_file=path)
    return partition(np.zeros(6, np.int64), 2, config=config, randomness=Randomness(seed=0))


def from_folder(dataset):
    return lambda path: load_source(DataConfig(dataset=dataset, path=path))


def weights(path):
    with torch.device("meta"):
        load_backbone(resnet50(), path)


FILES = {
    "npz": from_folder("npz"),
    "partition": by_file,
    "image": lambda path: FileImages(path.parent, (path.name,), 8).take(np.array([0])),
    "pretrained": weights,
    "text": lambda path: read_text(path, "path"),
}
FOLDERS = {name: from_folder(name) for name in ("folder", "clothing1m", "mnist")}


def fifo(path):
    os.mkfifo(path)
    return path


PLACES = {
    "fifo": (fifo, "x is a fifo, allowed: a regular file"),
    "device": (lambda path: path.parent.joinpath("/dev/zero"), "/dev/zero is a device, allowed: a regular file"),
    "folder": (lambda path: path.mkdir() or path, "x is a folder, allowed: a regular file"),
    "missing": (lambda path: path, "x does not exist"),
    "below a file": (lambda path: path.write_text("") or path / "y", "x/y does not exist"),
    "dangling": (lambda path: path.symlink_to("nowhere") or path, "x does not exist"),
    "long": (lambda path: path.parent / ("a" * 5000), "cannot be opened: File name too long"),
    "zero byte": (lambda path: path.parent / "a\0b", r"a\\x00b' cannot be opened: embedded null byte"),
    "line break": (lambda path: path.parent / "a\nb", r"a\\nb' does not exist"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("opener", FILES)
def test_what_is_no_regular_file_is_refused_in_one_line(tmp_path, opener, place):
    make, words = PLACES[place]
    path = make(tmp_path / "x")
    with pytest.raises(InputError, match=words) as error:
        FILES[opener](path)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("place", ["fifo", "device", "missing", "below a file", "long", "zero byte"])
@pytest.mark.parametrize("opener", FOLDERS)
def test_what_is_no_folder_is_refused_in_one_line(tmp_path, opener, place):
    with pytest.raises(InputError, match=r"^path: ") as error:
        FOLDERS[opener](PLACES[place][0](tmp_path / "x"))
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("place", ["fifo", "folder", "dangling"])
def test_what_an_image_folder_calls_an_image_is_a_regular_file(tmp_path, place):
    for split in ("train", "test"):
        (tmp_path / split / "apple").mkdir(parents=True)
    PLACES[place][0](tmp_path / "train" / "apple" / "x.png")
    with pytest.raises(InputError, match=r"train/apple/x\.png (is a|does not exist)"):
        load_source(DataConfig(dataset="folder", path=tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_refused(tmp_path):
    tmp_path.chmod(stat.S_IWUSR)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        visible(tmp_path, "path")


def test_text_that_is_not_utf_8_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"path: .*x cannot be read as text: .*utf-8"):
        read_text(tmp_path / "x", "path")


def test_long_lists_and_names_are_cut():
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"
    assert shown("a" * 300) == "a" * 300
    assert shown("a" * 301) == "a" * 120 + "..." + "a" * 60
