"""Class folders and Clothing1M's layout, with tiny generated images."""

import struct

import numpy as np
import pytest
from PIL import Image

from fedgr_secure.checks import check
from fedgr_secure.data import stores
from fedgr_secure.data.sources import load_source
from fedgr_secure.errors import InputError
from fedgr_secure.sections import Config, DataConfig

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
    monkeypatch.setattr(stores, "CHECKED", 0)
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


def test_hidden_files_are_left_out(root):
    for split in ("train", "test"):
        (root / split / "apple" / "._0.png").write_bytes(b"\0\5\x16\7 what macOS keeps beside 0.png")
        (root / split / ".hidden").mkdir()
    source = load(root)
    assert source.true_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert source.test_labels.tolist() == [0, 0, 1, 1]


def deep(dtype="<u2"):
    """A 16-bit image whose rows are the levels 0, 8, 16, ... of 8 bits, times 257."""
    return np.repeat(np.arange(32)[:, None] * 8 * 257, 32, axis=1).astype(dtype)


@pytest.mark.parametrize(
    ("name", "array"),
    [("a.png", deep()), ("a.tif", deep()), ("a.tiff", deep(">u2")), ("a.ppm", deep())],
)
def test_sixteen_bit_grey_images_keep_their_levels(root, name, array):
    path = root / "train" / "apple" / name
    Image.fromarray(array).save(path)
    image = stores.FileImages(root, (f"train/apple/{name}",), 32).take(np.array([0]))[0]
    assert image[:, :, 5].tolist() == [list(range(0, 256, 8))] * 3


def white_at_zero(path):
    Image.fromarray(deep()).save(path)
    entry = "<HHIH"  # tag, type, count, value
    path.write_bytes(path.read_bytes().replace(struct.pack(entry, 262, 3, 1, 1), struct.pack(entry, 262, 3, 1, 0)))


@pytest.mark.parametrize(
    ("make", "mode"),
    [
        (lambda path: Image.fromarray(deep(np.float32) / 65535).save(path), "F"),
        (lambda path: Image.fromarray(deep(np.int32)).save(path), "I"),
        (white_at_zero, "I;16"),
    ],
)
def test_images_whose_white_is_not_known_are_refused(root, make, mode):
    make(root / "test" / "zebra" / "x.tif")
    with pytest.raises(InputError, match=f"zebra/x.tif cannot .*pixels of mode {mode}, allowed: whole numbers of 8 or"):
        load(root)


@pytest.mark.parametrize(("orientation", "corner"), [(1, (0, 0)), (3, (-1, -1)), (6, (0, -1)), (8, (-1, 0))])
@pytest.mark.parametrize("array", [deep("u1"), deep()], ids=["8 bits", "16 bits"])
def test_the_exif_orientation_is_followed(root, orientation, corner, array):
    """Orientation 6: the stored top left corner belongs at the top right."""
    array = np.zeros_like(array)
    array[:8, :8] = np.iinfo(array.dtype).max
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(array).save(root / "train" / "apple" / "0.png", exif=exif)
    image = load(root).train.take(np.array([0]))[0, 0]
    assert [at for at in ((0, 0), (0, -1), (-1, 0), (-1, -1)) if image[at] > 128] == [corner]


def test_exif_that_cannot_be_read_turns_no_image(root):
    Image.new("RGB", (32, 32), RED).save(root / "train" / "apple" / "0.png", exif=b"Exif\0\0 no such header")
    assert load(root).train.take(np.array([0]))[0, 0].min() == 255


def test_an_image_too_slim_to_scale_by_its_short_side_is_refused(tmp_path):
    save(tmp_path / "x.png", RED, size=(1, 101))
    with pytest.raises(InputError, match=r"x\.png is 1 x 101, allowed: sides of at most 1 to 100"):
        stores.FileImages(tmp_path, ("x.png",), 8, crop_from=9).take(np.array([0]))


@pytest.mark.parametrize("name", ["train/zebra/2.png", "test/zebra/1.png"])
@pytest.mark.parametrize("content", [b"no image", None], ids=["text", "truncated"])
def test_a_damaged_image_is_named_before_a_run_starts(root, monkeypatch, name, content):
    monkeypatch.setattr("fedgr_secure.data.sources.STATISTICS_SAMPLE", 1)
    (root / name).write_bytes(content or (root / name).read_bytes()[:45])
    with pytest.raises(InputError, match=f"{name} cannot be read as an image"):
        load(root)


def test_a_damaged_image_of_a_large_set_is_named_when_it_is_taken_with_what_to_do(root, monkeypatch):
    monkeypatch.setattr(stores, "CHECKED", 1)
    (root / "test" / "zebra" / "1.png").write_bytes(b"no image")
    store = load(root).test
    with pytest.raises(InputError, match=r"zebra/1\.png cannot be read .*: replace the file; .* can then be resumed"):
        store.take(np.arange(4))


def test_an_image_size_that_no_memory_holds_is_refused(root):
    with pytest.raises(InputError, match="image_size: 100000, allowed: a whole number from 8 to 1024"):
        check(Config(data=DataConfig(dataset="folder", path=root, image_size=100_000)))


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
        ("noisy_label_kv.txt", [f"{key(0)} {10**20}"], ["noisy_label_kv.txt, line 1", "0 to 13"]),
        ("noisy_label_kv.txt", [f"{key(0)} {'9' * 5000}"], ["noisy_label_kv.txt, line 1", "0 to 13"]),
        ("noisy_label_kv.txt", [f"{key(0)} 3", f"{key(0)} 4"], ["_kv.txt, line 2", key(0), "class 4, and 3"]),
        ("clean_label_kv.txt", [f"{key(4)} 3", f"./{key(4)} 4"], ["_kv.txt, line 2", key(4), "class 4, and 3"]),
        ("noisy_train_key_list.txt", [key(0), key(4)], [key(4), "for training and for test"]),
        ("noisy_train_key_list.txt", [key(0), f"images//{key(4)[7:]}"], [key(4), "for training and for test"]),
        ("noisy_train_key_list.txt", [key(0), key(0)], ["noisy_train_key_list.txt", key(0), "more than once"]),
        ("clean_test_key_list.txt", [key(4), "images/x.jpg"], ["clean_test_key_list.txt", "images/x.jpg", "not in"]),
        ("clean_test_key_list.txt", [key(4), "images"], ["clean_test_key_list.txt", "images", "as a regular file"]),
        ("clean_test_key_list.txt", ["../x.jpg"], ["clean_test_key_list.txt", "../x.jpg", "below"]),
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
    with pytest.raises(InputError, match=r"clean_label_kv\.txt does not exist"):
        load_clothing(clothing)


def test_a_line_of_labels_may_come_twice(clothing):
    write(clothing, "clean_label_kv.txt", [f"{key(1)} 5", f"{key(4)} 1", f"{key(5)} 2", f"{key(4)} 1"])
    assert load_clothing(clothing).test_labels.tolist() == [1, 2]


def test_a_run_that_a_damaged_image_stops_is_resumed_once_the_image_is_replaced(tmp_path, monkeypatch, tiny):
    """The fingerprint takes 256 of the 300 test images, and not image 6, which is damaged after the first round."""
    from fedgr_secure.federation.loop import resume, run

    for split, count in (("train", 20), ("test", 150)):
        for name, colour in (("apple", GREEN), ("zebra", RED)):
            for number in range(count):
                save(tmp_path / split / name / f"{number:03}.png", colour, size=(8, 8))
    path = tmp_path / "test" / "apple" / "006.png"
    assert 6 not in np.linspace(0, 299, 256).astype(np.int64)
    whole = path.read_bytes()
    settings = {
        "dataset": "folder",
        "path": tmp_path,
        "image_size": 8,
        "train_size": None,
        "test_size": None,
        "rounds": 2,
        "method": "fedavg",
    }
    expected = run(tiny(**settings, out=tmp_path / "expected"))
    monkeypatch.setattr(stores, "CHECKED", 0)
    with pytest.raises(InputError, match=r"apple/006\.png cannot be read .*can then be resumed"):
        run(tiny(**settings, out=tmp_path / "run"), on_round=[lambda record: path.write_bytes(b"no image")])
    path.write_bytes(whole)
    assert resume(tmp_path / "run").rounds == expected.rounds
