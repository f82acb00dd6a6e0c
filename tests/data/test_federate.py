"""The builder: shards hold given labels only, the truth is aligned with them, central sees the same wrong labels."""

import dataclasses
import json

import numpy as np
import pytest

from fedgr_secure.config import override
from fedgr_secure.data.federated import federate
from fedgr_secure.data.sources import load_source
from fedgr_secure.data.types import ArrayImages, ImageSpec, Source
from fedgr_secure.errors import InputError
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import Config, DataConfig, FederationConfig, NoiseConfig, PartitionConfig


def source(true_labels=None, given=None, samples=60, classes=3):
    images = np.random.default_rng(0).integers(256, size=(samples, 1, 8, 8)).astype(np.uint8)
    labels = np.arange(samples) % classes if true_labels is None else np.asarray(true_labels)
    spec = ImageSpec(1, 8, 8, tuple(map(str, range(classes))), (0.5,), (0.25,), False)
    return Source(spec, ArrayImages(images), labels, given, ArrayImages(images[:6]), labels[:6].clip(0))


def config(method="fedgr", clients=6, **noise):
    return Config(method=method, federation=FederationConfig(clients=clients, cohort=2), noise=NoiseConfig(**noise))


def build(given_source, settings, seed=0):
    return federate(given_source, settings, Randomness(seed=seed))


def test_truth_is_aligned_with_the_shards():
    data_source = source()
    data, truth = build(data_source, config())
    assert [shard.client for shard in data.shards] == list(range(6))
    for k, shard in enumerate(data.shards):
        assert (truth.true_labels[k] == data_source.true_labels[shard.index]).all()
        assert (truth.wrong[k] == (shard.labels != truth.true_labels[k])).all()
        assert truth.realised_rate[k] == int(10 * truth.drawn_rate[k] + 1e-9) / 10
        assert (shard.images() == data_source.train.array[shard.index]).all()
    assert truth.realised_rate.max() > 0
    assert truth.test is data_source.test


def test_shards_do_not_expose_the_truth():
    """No field of what clients get holds the true labels of a fully noisy client."""
    data, truth = build(source(), config(rho_min=1, rho_max=1))
    for shard, true in zip(data.shards, truth.true_labels, strict=True):
        assert (shard.labels != true).all()
        assert {f.name for f in dataclasses.fields(shard)} == {"client", "index", "labels", "store"}


@pytest.mark.parametrize("kind", ["symmetric", "asymmetric", "mixed"])
@pytest.mark.parametrize("partition", ["iid", "dirichlet"])
def test_central_pools_the_very_same_wrong_labels(kind, partition):
    settings = config(label_noise=kind)
    settings = dataclasses.replace(settings, partition=PartitionConfig(partition=partition, min_samples=2))
    federated, truth = build(source(), settings)
    central, whole = build(source(), dataclasses.replace(settings, method="central"))
    assert [shard.client for shard in central.shards] == [0]
    (shard,) = central.shards
    assert shard.index.tolist() == list(range(60))
    for part, wrong in zip(federated.shards, truth.wrong, strict=True):
        assert (shard.labels[part.index] == part.labels).all()
        assert (whole.wrong[0][part.index] == wrong).all()
    sizes = [len(part) for part in federated.shards]
    assert whole.realised_rate == pytest.approx([np.average(truth.realised_rate, weights=sizes)])
    assert whole.drawn_rate == pytest.approx([np.average(truth.drawn_rate, weights=sizes)])
    assert whole.kind == (kind,)


def test_central_with_some_clean_clients_keeps_the_kind_of_the_noisy_ones():
    assert build(source(), config("central", phi=0.5))[1].kind == ("symmetric",)
    assert build(source(), config("central", phi=0.0))[1].kind == ("none",)


def test_given_labels_are_used_and_unknown_truth_is_left_out():
    true_labels = np.full(60, -1)
    true_labels[:20] = 0
    given = np.arange(60) % 2  # of the 20 known, the odd 10 are wrong
    data, truth = build(source(true_labels, given), config(clients=3, label_noise="given"))
    for k, shard in enumerate(data.shards):
        assert (shard.labels == given[shard.index]).all()
        assert (truth.wrong[k] == ((shard.index < 20) & (shard.index % 2 == 1))).all()
    assert sum(wrong.sum() for wrong in truth.wrong) == 10
    assert np.isnan(truth.drawn_rate).all()
    assert truth.kind == ("given",) * 3
    whole = build(source(true_labels, given), config("central", clients=3, label_noise="given"))[1]
    assert whole.realised_rate.tolist() == [0.5]


def test_realised_rate_is_nan_where_no_truth_is_known():
    given = np.arange(60) % 3
    settings = dataclasses.replace(
        config(label_noise="given"), partition=PartitionConfig(partition="dirichlet", min_samples=2)
    )
    truth = build(source(np.full(60, -1), given), settings)[1]
    assert np.isnan(truth.realised_rate).all()
    assert not any(wrong.any() for wrong in truth.wrong)


def test_dirichlet_follows_the_given_labels_where_the_truth_is_unknown():
    given = np.arange(60) % 3
    settings = dataclasses.replace(
        config(label_noise="given"),
        partition=PartitionConfig(partition="dirichlet", min_samples=2, dirichlet_alpha=0.2),
    )
    unknown = build(source(np.full(60, -1), given), settings)[0]
    known = build(source(given, given), settings)[0]
    assert all((a.index == b.index).all() for a, b in zip(unknown.shards, known.shards, strict=True))


def test_the_partition_does_not_depend_on_the_noise():
    noisy, clean = (build(source(), config(label_noise=kind))[0] for kind in ("symmetric", "none"))
    assert all((a.index == b.index).all() for a, b in zip(noisy.shards, clean.shards, strict=True))


def test_given_noise_without_given_labels_names_the_key_and_the_keys_found(tmp_path):
    path = tmp_path / "data.npz"
    images = np.zeros((60, 8, 8), dtype=np.uint8)
    labels = np.arange(60) % 3
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels, y_human=labels)
    data = DataConfig(dataset="npz", path=path)
    settings = dataclasses.replace(config(label_noise="given"), data=data)
    with pytest.raises(InputError, match=r"no key 'y_train_noisy'; it holds .*y_human.*--given-labels"):
        build(load_source(data), settings)
    with pytest.raises(InputError, match="label_noise: given, but dataset digits has no given labels"):
        build(source(), config(label_noise="given"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"true_labels": np.full(60, 3)}, "true labels: 3 at position 0, allowed: classes 0 to 2"),
        ({"true_labels": np.full(60, -1)}, "true labels: -1 at position 0, allowed: classes 0 to 2"),
        ({"true_labels": np.zeros(59, int)}, "true labels: 59 labels, allowed: 60"),
        ({"given_labels": np.full(60, -1)}, "given labels: -1 at position 0"),
        ({"given_labels": np.zeros(1, int)}, "given labels: 1 labels, allowed: 60"),
        ({"test_labels": np.full(6, 7)}, "test labels: 7 at position 0"),
        ({"test": ArrayImages(np.zeros((0, 1, 8, 8), np.uint8))}, "test images: 0, allowed: at least 1"),
        ({"test": ArrayImages(np.zeros((6, 3, 8, 8), np.uint8))}, r"test images: uint8 of shape \(3, 8, 8\)"),
        ({"train": ArrayImages(np.zeros((60, 1, 8, 8)))}, "training images: float64 of shape"),
    ],
)
def test_sources_whose_parts_do_not_fit_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        build(dataclasses.replace(source(), **changes), config())


@pytest.mark.parametrize("method", ["fedgr", "central"])
def test_batch_norm_wants_two_samples_of_every_client_unless_they_are_pooled(method, tmp_path):
    path = tmp_path / "parts.json"
    path.write_text(json.dumps([[0], [1, 2]]))
    parts = {"partition": "file", "partition_file": path, "clients": 2, "cohort": 2, "rounds": 1}
    settings = override(Config(), {**parts, "norm": "batch", "method": method})
    if method == "central":
        assert len(build(source(samples=3), settings)[0].shards) == 1
    else:
        with pytest.raises(InputError, match="norm: batch, but a client has 1 sample and never trains"):
            build(source(samples=3), settings)
