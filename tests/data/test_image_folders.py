"""Class folders and Clothing1M's layout, with tiny generated images."""

import numpy as np
import pytest
from PIL import Image

from fedgr_secure.config import DataConfig
from fedgr_secure.data import stores
from fedgr_secure.data.sources import load_source
from fedgr_secure.errors import InputError

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def save(path, colour, size=(12, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def root(tmp_path):
    for split, count in (("train", 3), ("test", 2)):
        for name, colour in (("zebra", RED), ("apple", GREEN)):
            for number in range(count):
                save(tmp_path / split / name / f"{number}.png", colour)
    return tmp_path


def load(root, **settings):
    return load_source(DataConfig(dataset="folder", path=root, **settings))


def test_folders_are_classes_in_sorted_order(root):
    save(root / "train" / "apple" / "photo.JPG", GREEN)
    (root / "train" / "apple" / "notes.txt").write_text("not an image")
    source = load(root)
    assert source.spec.class_names == ("apple", "zebra")
    assert source.true_labels.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert source.test_labels.tolist() == [0, 0, 1, 1]
    images = source.train.take(np.array([6, 0]))
    assert images.shape == (2, 3, 32, 32)
    assert images.dtype == np.uint8
    assert images[:, :, 5, 5].tolist() == [list(RED), list(GREEN)]
    assert source.spec.natural


def test_image_size_statistics_and_subset(root):
    source = load(root, image_size=16, train_size=4)
    assert (source.spec.height, source.spec.width) == (16, 16)
    share = source.true_labels.mean()  # zebras are red, apples green
    assert source.spec.mean == pytest.approx((share, 1 - share, 0))
    assert source.spec.std == pytest.approx((np.sqrt(share * (1 - share)),) * 2 + (1.0,))
    for position in range(4):
        red = source.train.take(np.array([position]))[0, 0].mean() == 255
        assert red == (source.true_labels[position] == 1)


def test_statistics_of_a_large_folder_come_from_a_fixed_sample(root, monkeypatch):
    for number in range(3, 20):
        save(root / "train" / "apple" / f"{number}.png", GREEN)
    monkeypatch.setattr("fedgr_secure.data.sources.STATISTICS_SAMPLE", 2)
    taken = []
    decode = stores.FileImages._decode

    def count(self, path):
        taken.append(path)
        return decode(self, path)

    monkeypatch.setattr(stores.FileImages, "_decode", count)
    first = load(root).spec
    decoded = len(taken)
    assert decoded <= 2 + 4  # the sample, and single images for shapes and checks, of 23
    assert load(root).spec == first


def test_grey_and_transparent_images_become_rgb(root):
    Image.new("L", (8, 8), 7).save(root / "train" / "apple" / "00.png")
    Image.new("RGBA", (8, 8), (9, 9, 9, 255)).save(root / "train" / "apple" / "01.png")
    images = load(root).train.take(np.array([1, 2]))
    assert images.shape == (2, 3, 32, 32)
    assert set(load(root).train.take(np.arange(4)).mean(axis=(1, 2, 3))) >= {7.0, 9.0}


def test_bad_folders_are_refused_by_name(root):
    save(root / "test" / "stranger" / "0.png", BLUE)
    with pytest.raises(InputError, match="stranger, allowed: apple, zebra"):
        load(root)
    (root / "train" / "stranger").mkdir()
    with pytest.raises(InputError, match="no image of class stranger"):
        load(root)


def test_missing_splits_are_refused(tmp_path):
    with pytest.raises(InputError, match="train is missing"):
        load(tmp_path)
    (tmp_path / "train").mkdir()
    with pytest.raises(InputError, match="train has no class folder"):
        load(tmp_path)
    with pytest.raises(InputError, match="nowhere"):
        load(tmp_path / "nowhere")


def test_a_folder_with_one_class_is_refused(tmp_path):
    for split in ("train", "test"):
        save(tmp_path / split / "only" / "0.png", RED)
    with pytest.raises(InputError, match="classes: 1, allowed: at least 2"):
        load(tmp_path)


def test_a_damaged_image_is_named_when_it_is_taken(root):
    (root / "train" / "zebra" / "2.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"zebra/2\.png cannot be read as an image"):
        load(root)


@pytest.fixture
def clothing(tmp_path):
    for number in range(6):
        save(tmp_path / f"images/0/{number},9.jpg", (40 * number, 0, 0), size=(40, 20))
    write(tmp_path, "noisy_train_key_list.txt", [key(0), key(1), key(2)])
    write(tmp_path, "clean_test_key_list.txt", [key(4), key(5)])
    write(tmp_path, "noisy_label_kv.txt", [f"{key(0)} 3", f"{key(1)} 4", f"{key(2)} 13", f"{key(4)} 0"])
    write(tmp_path, "clean_label_kv.txt", [f"{key(1)} 5", f"{key(4)} 1", f"{key(5)} 2"])
    return tmp_path


def key(number):
    return f"images/0/{number},9.jpg"


def write(root, name, lines):
    (root / name).write_text("\n".join(lines) + "\n")


def load_clothing(root, **settings):
    return load_source(DataConfig(dataset="clothing1m", path=root, **settings))


def test_clothing1m_reads_given_and_known_true_labels(clothing):
    source = load_clothing(clothing)
    assert source.given_labels.tolist() == [3, 4, 13]
    assert source.true_labels.tolist() == [-1, 5, -1]  # only the second image has a clean label
    assert source.test_labels.tolist() == [1, 2]
    assert source.spec.classes == 14
    assert source.train.take(np.array([1])).shape == (1, 3, 224, 224)
    assert abs(int(source.train.take(np.array([1]))[0, 0].mean()) - 40) <= 2  # JPEG
    assert source.spec.mean == (0.6959, 0.6537, 0.6371)


def test_clothing1m_resizes_the_short_side_and_cuts_the_centre(tmp_path, clothing):
    image = np.zeros((64, 128, 3), dtype=np.uint8)
    image[:, :32] = image[:, 96:] = 255  # the outer quarters, beyond the central square
    Image.fromarray(image).save(clothing / key(0), quality=95)
    square = load_clothing(clothing, image_size=56).train.take(np.array([0]))[0]
    assert square.shape == (3, 56, 56)
    assert square.max() < 40
    taller = np.ascontiguousarray(image.transpose(1, 0, 2))
    Image.fromarray(taller).save(clothing / key(0), quality=95)
    assert load_clothing(clothing, image_size=56).train.take(np.array([0])).max() < 40


@pytest.mark.parametrize(
    ("name", "lines", "words"),
    [
        ("noisy_train_key_list.txt", [], ["noisy_train_key_list.txt", "no image"]),
        ("noisy_train_key_list.txt", ["images/x.jpg"], ["images/x.jpg", "not in"]),
        ("noisy_train_key_list.txt", [key(0), key(5)], ["noisy_label_kv.txt", "no label for " + key(5)]),
        ("clean_label_kv.txt", [f"{key(4)} 1"], ["clean_label_kv.txt", "no label for " + key(5)]),
        ("noisy_label_kv.txt", [f"{key(0)} 14"], ["noisy_label_kv.txt", "14", "0 to 13"]),
        ("noisy_label_kv.txt", [f"{key(0)} shirt"], ["noisy_label_kv.txt, line 1", "shirt"]),
        ("noisy_label_kv.txt", ["3"], ["line 1", "'3'"]),
    ],
)
def test_bad_clothing1m_lists_are_refused_by_name(clothing, name, lines, words):
    write(clothing, name, lines)
    with pytest.raises(InputError) as error:
        load_clothing(clothing)
    for word in words:
        assert word in str(error.value)


def test_a_missing_clothing1m_list_is_refused(clothing):
    (clothing / "clean_label_kv.txt").unlink()
    with pytest.raises(InputError, match=r"clean_label_kv\.txt is missing"):
        load_clothing(clothing)
