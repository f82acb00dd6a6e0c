"""The torchvision sets, from tiny files in each set's own on-disk format. Nothing is fetched."""

import pickle
import struct

import numpy as np
import pytest

pytest.importorskip("torchvision")

from fedgr_secure.data.sources import load_source
from fedgr_secure.data.torchvision_sets import CLASS_NAMES, STATISTICS
from fedgr_secure.errors import InputError
from fedgr_secure.sections import DataConfig

DRAW = np.random.default_rng(1)


def write_idx(path, array):
    """The idx format: two zero bytes, 8 for unsigned bytes, the number of axes, each length big-endian, the bytes."""
    path.write_bytes(struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes())


def write_mnist(root, folder):
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    expected = {}
    for split, prefix, count in (("train", "train", 20), ("test", "t10k", 10)):
        images = DRAW.integers(256, size=(count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        write_idx(raw / f"{prefix}-images-idx3-ubyte", images)
        write_idx(raw / f"{prefix}-labels-idx1-ubyte", labels)
        expected[split] = images[:, None], labels
    return expected


def write_cifar(root, folder, files, key, meta):
    base = root / folder
    base.mkdir(parents=True)
    expected = {"train": [[], []], "test": [[], []]}
    for split, name in files:
        images = DRAW.integers(256, size=(10, 3, 32, 32), dtype=np.uint8)
        labels = list(range(10))
        (base / name).write_bytes(pickle.dumps({"data": images.reshape(10, -1), key: labels}))
        expected[split][0].append(images)
        expected[split][1] += labels
    (base / meta[0]).write_bytes(pickle.dumps({meta[1]: [str(c) for c in range(100)]}))
    return {split: (np.concatenate(images), np.array(labels)) for split, (images, labels) in expected.items()}


def write_cifar10(root):
    files = [("train", f"data_batch_{i}") for i in range(1, 6)] + [("test", "test_batch")]
    return write_cifar(root, "cifar-10-batches-py", files, "labels", ("batches.meta", "label_names"))


def write_cifar100(root):
    files = [("train", "train"), ("test", "test")]
    return write_cifar(root, "cifar-100-python", files, "fine_labels", ("meta", "fine_label_names"))


def write_svhn(root):
    from scipy.io import savemat

    expected = {}
    for split, count in (("train", 20), ("test", 10)):
        images = DRAW.integers(256, size=(count, 3, 32, 32), dtype=np.uint8)
        labels = np.arange(count) % 10
        on_disk = np.where(labels == 0, 10, labels)[:, None]  # the files call the digit nought 10
        savemat(root / f"{split}_32x32.mat", {"X": images.transpose(2, 3, 1, 0), "y": on_disk})
        expected[split] = images, labels
    return expected


WRITERS = {
    "mnist": lambda root: write_mnist(root, "MNIST"),
    "fashion-mnist": lambda root: write_mnist(root, "FashionMNIST"),
    "cifar10": write_cifar10,
    "cifar100": write_cifar100,
    "svhn": write_svhn,
}


@pytest.fixture
def any_checksum(monkeypatch):
    """Accept files by existence: tiny files cannot have the published checksums."""
    import torchvision.datasets.cifar
    import torchvision.datasets.svhn

    for module in (torchvision.datasets.cifar, torchvision.datasets.svhn):
        monkeypatch.setattr(module, "check_integrity", lambda path, md5=None: _exists(path))


def _exists(path):
    from pathlib import Path

    return Path(path).is_file()


@pytest.mark.parametrize("name", list(WRITERS))
def test_files_on_disk_come_out_as_channels_first_bytes_and_labels(tmp_path, any_checksum, name):
    expected = WRITERS[name](tmp_path)
    source = load_source(DataConfig(dataset=name, path=tmp_path))
    for split, store, labels in (
        ("train", source.train, source.true_labels),
        ("test", source.test, source.test_labels),
    ):
        images, classes = expected[split]
        assert (store.take(np.arange(len(store))) == images).all()
        assert labels.dtype == np.int64
        assert labels.tolist() == classes.tolist()
    assert source.given_labels is None
    assert source.spec.natural == (name in ("fashion-mnist", "cifar10", "cifar100"))
    assert source.spec.class_names == CLASS_NAMES[name]
    assert source.spec.classes == (100 if name == "cifar100" else 10)
    assert (source.spec.mean, source.spec.std) == STATISTICS[name]
    assert len(source.spec.mean) == source.spec.channels


@pytest.mark.parametrize("name", list(WRITERS))
def test_a_missing_set_is_refused_with_the_way_out(tmp_path, name):
    with pytest.raises(InputError, match=f"does not hold {name} .*--path.*--download"):
        load_source(DataConfig(dataset=name, path=tmp_path))


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn"])
def test_a_set_with_a_wrong_checksum_is_refused(tmp_path, name):
    WRITERS[name](tmp_path)
    with pytest.raises(InputError, match=f"does not hold {name} .*corrupted"):
        load_source(DataConfig(dataset=name, path=tmp_path))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:12],
        lambda data: b"",
        lambda data: b"\0\0\x08\2" + data[4:],  # two axes
        lambda data: b"\0\0\x63\3" + data[4:],  # an unknown type
        lambda data: b"\1\2\3\4" + data[4:],
        lambda data: data[:4] + b"\xff" * 12 + data[16:],
    ],
)
@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
def test_a_damaged_set_is_refused(tmp_path, damage, name):
    write_mnist(tmp_path, "MNIST")
    file = tmp_path / "MNIST" / "raw" / name
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InputError, match=r"does not hold mnist \(.+\): .*--path") as error:
        load_source(DataConfig(dataset="mnist", path=tmp_path))
    assert "\n" not in str(error.value)


def test_torchvisions_advice_to_its_own_callers_is_left_out(tmp_path):
    with pytest.raises(InputError) as error:
        load_source(DataConfig(dataset="cifar10", path=tmp_path))
    assert "download=True" not in str(error.value)


def test_a_download_into_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file cannot be made: File exists"):
        load_source(DataConfig(dataset="cifar10", path=tmp_path / "file", download=True))


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"nowhere, allowed: an existing folder with the cifar10 data"):
        load_source(DataConfig(dataset="cifar10", path=tmp_path / "nowhere"))


def test_a_failed_download_is_an_input_error_and_only_download_tries_one(tmp_path, monkeypatch):
    import torchvision.datasets

    asked = []

    def unreachable(root, *, train, download):
        asked.append(download)
        raise OSError("no network")

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", unreachable)
    with pytest.raises(InputError, match=r"cifar10 \(no network\): the download failed"):
        load_source(DataConfig(dataset="cifar10", path=tmp_path / "new", download=True))
    with pytest.raises(InputError, match="--download"):
        load_source(DataConfig(dataset="cifar10", path=tmp_path))
    assert asked == [True, False]
