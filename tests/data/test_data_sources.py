"""Digits, npz files and subsets: what comes out, and what is refused."""

import io
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from fedgr_secure.data.sources import load_source
from fedgr_secure.data.stores import measure
from fedgr_secure.data.types import ArrayImages
from fedgr_secure.errors import InputError
from fedgr_secure.sections import DataConfig


def arrays(shape=(8, 9), dtype=np.uint8, train=12, test=6, classes=3):
    draw = np.random.default_rng(0)
    return {
        "x_train": draw.integers(256, size=(train, *shape)).astype(dtype),
        "y_train": (np.arange(train) % classes).astype(np.uint8),
        "x_test": draw.integers(256, size=(test, *shape)).astype(dtype),
        "y_test": (np.arange(test) % classes).astype(np.uint8),
    }


@pytest.fixture
def load_npz(tmp_path):
    def load(contents, **settings):
        path = tmp_path / "data.npz"
        np.savez(path, **contents)
        return load_source(DataConfig(dataset="npz", path=path, **settings))

    return load


def everything(store):
    return store.take(np.arange(len(store)))


def test_digits_are_split_in_proportion_and_scaled_to_full_brightness():
    source = load_source(DataConfig())
    assert (len(source.train), len(source.test)) == (1437, 360)
    assert (source.spec.channels, source.spec.height, source.spec.width, source.spec.classes) == (1, 8, 8, 10)
    assert not source.spec.natural
    assert everything(source.train).max() == 255
    train_share = np.bincount(source.true_labels) / 1437
    assert np.bincount(source.test_labels) / 360 == pytest.approx(train_share, abs=0.003)
    together = np.concatenate([everything(source.train), everything(source.test)]).reshape(1797, -1)
    from sklearn.datasets import load_digits

    assert np.rint(together * (16 / 255)).sum() == load_digits().data.sum()


def test_statistics_normalise_the_training_pixels():
    source = load_source(DataConfig())
    pixels = everything(source.train) / 255
    assert source.spec.mean == pytest.approx([pixels.mean()])
    assert source.spec.std == pytest.approx([pixels.std()])


def test_statistics_are_per_channel_and_a_flat_channel_divides_by_one():
    images = np.zeros((2, 2, 4, 4), dtype=np.uint8)
    images[1, 1] = 255
    assert measure(ArrayImages(images), np.arange(2)) == ((0.0, 0.5), (1.0, 0.5))


def test_subsets_are_stable_nested_and_aligned():
    full = load_source(DataConfig())
    small, again, larger = (load_source(DataConfig(train_size=n, test_size=n)) for n in (50, 50, 80))
    assert (everything(small.train) == everything(again.train)).all()
    table = {image.tobytes(): label for image, label in zip(everything(full.train), full.true_labels, strict=True)}
    for image, label in zip(everything(small.train), small.true_labels, strict=True):
        assert table[image.tobytes()] == label
    assert {i.tobytes() for i in everything(small.train)} < {i.tobytes() for i in everything(larger.train)}
    assert (len(small.test), len(small.test_labels)) == (50, 50)


def test_subset_is_pinned():
    """The images that train_size keeps are part of a published result: they may never change."""
    assert load_source(DataConfig(train_size=10)).true_labels.tolist() == PINNED_LABELS


PINNED_LABELS = [3, 0, 4, 0, 6, 5, 0, 7, 9, 0]


@pytest.mark.parametrize(("name", "available"), [("train_size", 1437), ("test_size", 360)])
def test_a_subset_larger_than_the_set_is_refused(name, available):
    with pytest.raises(InputError, match=f"{name}: 2000, allowed: from 1 to {available}"):
        load_source(DataConfig(**{name: 2000}))


def test_image_size_is_refused_where_it_would_be_ignored():
    with pytest.raises(InputError, match="image_size: 16, allowed: only with dataset folder or clothing1m"):
        load_source(DataConfig(image_size=16))


def test_npz_grey_and_colour(load_npz):
    contents = arrays()
    grey = load_npz(contents)
    assert (everything(grey.train)[:, 0] == contents["x_train"]).all()
    assert (grey.spec.channels, grey.spec.height, grey.spec.width, grey.spec.natural) == (1, 8, 9, False)
    assert grey.spec.class_names == ("0", "1", "2")
    contents = arrays(shape=(8, 9, 3))
    colour = load_npz(contents)
    assert (everything(colour.test)[:, 2] == contents["x_test"][..., 2]).all()
    assert (colour.spec.channels, colour.spec.natural) == (3, True)


@pytest.mark.parametrize("scale", [1, 255])
def test_npz_floats_of_either_range_give_the_same_pixels(load_npz, scale):
    contents = arrays()
    expected = contents["x_train"].copy()
    expected[0, 0, 0] = contents["x_train"][0, 0, 0] = 255
    for name in ("x_train", "x_test"):
        contents[name] = (contents[name] / np.float32(255) * np.float32(scale)).astype(np.float32)
    assert (everything(load_npz(contents).train)[:, 0] == expected).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("low", "high"), [(-1e-7, 1.0000001), (-1e-3, 1.001)])
@pytest.mark.parametrize("split", ["x_train", "x_test"])
def test_npz_floats_just_beyond_zero_and_one_are_rounding(load_npz, dtype, low, high, split):
    """One pixel above 1 must not turn either split black."""
    contents = {name: array / 255 if name.startswith("x") else array for name, array in arrays().items()}
    contents[split][0, 0, :2] = low, high
    for name in ("x_train", "x_test"):
        contents[name] = contents[name].astype(dtype)
    source, expected = load_npz(contents), arrays()
    expected[split][0, 0, :2] = 0, 255
    assert (everything(source.train)[:, 0] == expected["x_train"]).all()
    assert (everything(source.test)[:, 0] == expected["x_test"]).all()


def brightest(contents, dtype, highs):
    for name, high in zip(("x_train", "x_test"), highs, strict=True):
        contents[name] = np.zeros(contents[name].shape, dtype)
        contents[name][0, 0, 0] = high


@pytest.mark.parametrize(
    ("dtype", "highs", "words"),
    [
        (np.float32, (1.02, 1), ["floats up to 1.02", "up to 255 (at least 128), or up to 1"]),
        (np.float32, (0.5, 16), ["floats up to 16", "up to 255 (at least 128), or up to 1"]),
        (np.float32, (127.5, 100), ["floats up to 127.5", "at least 128"]),
        (np.uint8, (1, 1), ["whole numbers up to 1,", "only as float"]),
        (np.float32, (1, 255), ["x_train: values up to 1,", "the other split, up to 255"]),
        (np.float32, (255, 1), ["x_test: values up to 1,", "the other split, up to 255"]),
        (np.int64, (255, 1), ["x_test: values up to 1,", "the other split, up to 255"]),
        (np.float32, (255.1, 255), ["x_train", "255.1", "0 to 255"]),
    ],
)
def test_npz_pixels_whose_range_is_not_clear_are_refused(load_npz, dtype, highs, words):
    contents = arrays()
    brightest(contents, dtype, highs)
    with pytest.raises(InputError) as error:
        load_npz(contents)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(("dtype", "highs"), [(np.uint8, (2, 16)), (np.float32, (128, 60)), (np.uint8, (0, 255))])
def test_npz_pixels_whose_range_is_clear_are_taken_as_they_are(load_npz, dtype, highs):
    contents = arrays()
    brightest(contents, dtype, highs)
    source = load_npz(contents)
    assert (everything(source.train).max(), everything(source.test).max()) == highs


def test_npz_whole_numbers_in_one_split_and_floats_in_the_other_are_refused(load_npz):
    contents = arrays()
    contents["x_test"] = contents["x_test"] / 255
    with pytest.raises(
        InputError, match="x_train, x_test: uint8 and float64, allowed: whole numbers in both or floats"
    ):
        load_npz(contents)


def test_npz_labels_may_be_a_column(load_npz):
    contents = arrays()
    contents["y_train"] = contents["y_train"][:, None]
    assert load_npz(contents).true_labels.tolist() == [0, 1, 2] * 4


def test_npz_given_labels(load_npz):
    contents = arrays()
    assert load_npz(contents).given_labels is None
    contents["y_train_noisy"] = contents["human"] = np.full(12, 2)
    contents["human"] = np.full(12, 1)
    assert load_npz(contents).given_labels.tolist() == [2] * 12
    subset = load_npz(contents, given_labels="human", train_size=5)
    assert subset.given_labels.tolist() == [1] * 5


def nan_pixel(contents):
    contents["x_train"] = contents["x_train"].astype(np.float32)
    contents["x_train"][5, 0, 0] = np.nan


def infinite_pixels(contents):
    contents["x_test"] = contents["x_test"].astype(np.float32)
    contents["x_test"][2:4, 0, 0] = [np.inf, -np.inf]


def put(key, value):
    def change(contents):
        contents[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.pop("y_test"), ["no y_test", "x_train"]),
        (nan_pixel, ["x_train", "nan in image 5"]),
        (infinite_pixels, ["x_test", "2 pixels", "inf in image 2"]),
        (put("x_train", np.full((12, 8, 9), 300.0)), ["x_train", "300", "0 to 255"]),
        (put("x_train", np.full((12, 8, 9), -1.0)), ["x_train", "-1", "0 to 255"]),
        (put("x_train", np.zeros((12, 72), np.uint8)), ["x_train", "(12, 72)"]),
        (put("x_train", np.zeros((12, 3, 9, 8), np.uint8)), ["x_train", "8 channels", "last axis"]),
        (put("x_train", np.zeros((12, 8, 9), bool)), ["x_train", "bool"]),
        (put("x_train", np.zeros((12, 4, 9), np.uint8)), ["x_train", "side 4", "at least 8"]),
        (put("x_train", np.zeros((0, 8, 9), np.uint8)), ["x_train", "0 images"]),
        (put("x_test", np.zeros((6, 9, 9), np.uint8)), ["x_test", "(9, 9)", "(8, 9)"]),
        (put("y_train", np.zeros(11, int)), ["y_train", "11 labels", "12"]),
        (put("y_train", np.full(12, -1)), ["y_train", "-1"]),
        (put("y_train", np.full(12, 10**6)), ["y_train", "1000000"]),
        (put("y_train", np.full(12, 2**64 - 1, np.uint64)), ["y_train", "18446744073709551615", "64 bits"]),
        (put("y_train", np.zeros(12)), ["y_train", "float64"]),
        (put("y_train", np.zeros((12, 3), int)), ["y_train", "(12, 3)"]),
        (put("y_test", np.zeros(2, int)), ["y_test", "2 labels", "6"]),
        (put("y_train_noisy", np.full(12, 3)), ["y_train_noisy", "3 at position 0", "0 to 2"]),
        (put("y_train_noisy", np.zeros(5, int)), ["y_train_noisy", "5 labels", "12"]),
        (put("y_train", np.array([{}] * 12)), ["data.npz: y_train", "plain array", "it holds Python objects"]),
    ],
)
def test_bad_npz_contents_are_refused_by_name(load_npz, change, words):
    contents = arrays()
    change(contents)
    with pytest.raises(InputError) as error:
        load_npz(contents)
    for word in words:
        assert word in str(error.value)
    assert "allow_pickle" not in str(error.value)


def npy(array, header=None):
    """The bytes of an .npy file, with another header if one is given."""
    stream = io.BytesIO()
    np.save(stream, array)
    data = stream.getvalue()
    size = int.from_bytes(data[8:10], "little")
    return data if header is None else data[:10] + header.encode().ljust(size - 1) + b"\n" + data[10 + size :]


def npy_header(shape, descr="|u1"):
    return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"


LABELS = np.zeros(12, np.uint8)


@pytest.mark.parametrize(
    "member",
    [
        b"",
        b"plain text",
        npy(LABELS)[:-5],
        npy(LABELS)[:20],
        npy(LABELS, "{'descr': ("),
        npy(LABELS, "12"),
        npy(LABELS, "{1: 2}"),
        npy(LABELS, npy_header("(12,)", descr="no type")),
        npy(LABELS, npy_header("(12,)", descr="|O")),
        npy(LABELS, npy_header("(10**9,)")),
        npy(LABELS, npy_header("(4000000000000000,)")),
        npy(LABELS, npy_header("(99999999999999999999999,)")),
        npy(LABELS, npy_header("(-3,)")),
    ],
    ids=range(13),
)
def test_an_npz_member_that_is_no_plain_array_is_named(tmp_path, member):
    path = tmp_path / "odd.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays().items():
            archive.writestr(f"{name}.npy", member if name == "y_train" else npy(array))
    with pytest.raises(InputError, match=r"odd\.npz: y_train (cannot be read as a plain array|is no array)") as error:
        load_source(DataConfig(dataset="npz", path=path))
    assert "allow_pickle" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("offset", "value"), [(8, 1), (10, 99)])  # the flag "encrypted"; an unknown compression
def test_an_npz_member_that_zip_cannot_unpack_is_named(tmp_path, offset, value):
    path = tmp_path / "odd.npz"
    np.savez(path, **arrays())
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + offset] = value
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"odd\.npz: x_train cannot be read as a plain array"):
        load_source(DataConfig(dataset="npz", path=path))


def test_npz_labels_that_start_at_one_are_refused(load_npz):
    contents = arrays()
    contents["y_train"] += 1
    contents["y_test"] += 1
    with pytest.raises(InputError, match="lowest class 1, allowed: class numbers that start at 0"):
        load_npz(contents)


def test_npz_key_that_is_asked_for_but_missing_is_refused_with_the_keys_found(load_npz):
    with pytest.raises(InputError, match=r"given_labels: human, allowed: a key of .* holds x_train, y_train"):
        load_npz(arrays(), given_labels="human")


@pytest.mark.parametrize("content", [b"not a zip", b"", b"PK\x03\x04 broken"])
def test_damaged_npz_is_refused(tmp_path, content):
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.npz cannot be read"):
        load_source(DataConfig(dataset="npz", path=path))


def test_single_array_file_is_refused(tmp_path):
    path = tmp_path / "one.npy"
    np.save(path, np.zeros(3))
    with pytest.raises(InputError, match=r"one\.npy cannot be read"):
        load_source(DataConfig(dataset="npz", path=path))


def test_missing_npz_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.npz"):
        load_source(DataConfig(dataset="npz", path=tmp_path / "nothing.npz"))
    with pytest.raises(InputError, match="--path"):
        load_source(DataConfig(dataset="npz"))


def test_importing_the_data_package_imports_no_torch():
    code = "import sys, fedgr_secure.data.sources, fedgr_secure.data.federated; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
