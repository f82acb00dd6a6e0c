"""Partitions: a disjoint cover with the promised sizes, within seconds for 10,000 clients, or a clear refusal."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgr_secure.data.partition import partition
from fedgr_secure.errors import InputError
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import PartitionConfig


def make(labels, clients, seed=0, **settings):
    return partition(np.asarray(labels), clients, config=PartitionConfig(**settings), randomness=Randomness(seed=seed))


def assert_disjoint_cover(shards, samples):
    assert sorted(np.concatenate(shards).tolist()) == list(range(samples))
    for shard in shards:
        assert shard.dtype == np.int64
        assert (np.diff(shard) > 0).all()


def skew(labels, shards):
    """Mean share of a client's most frequent class."""
    return np.mean([np.bincount(labels[shard]).max() / len(shard) for shard in shards])


@given(samples=st.integers(1, 200), data=st.data())
@settings(max_examples=50, deadline=None)
def test_iid_shards_cover_all_samples_and_differ_by_at_most_one(samples, data):
    clients = data.draw(st.integers(1, samples))
    shards = make(np.arange(samples) % 3, clients, seed=data.draw(st.integers(0, 99)))
    assert_disjoint_cover(shards, samples)
    sizes = [len(shard) for shard in shards]
    assert len(sizes) == clients
    assert max(sizes) - min(sizes) <= 1


@given(
    clients=st.integers(1, 30),
    least=st.integers(1, 6),
    spare=st.integers(0, 40),
    classes=st.integers(1, 7),
    alpha=st.sampled_from([1e-300, 1e-3, 0.3, 10.0, 1e300]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_dirichlet_covers_all_samples_and_keeps_min_samples(clients, least, spare, classes, alpha, seed):
    samples = clients * least + spare
    labels = np.random.default_rng(seed).integers(classes, size=samples)
    shards = make(labels, clients, seed, partition="dirichlet", dirichlet_alpha=alpha, min_samples=least)
    assert len(shards) == clients
    assert_disjoint_cover(shards, samples)
    assert min(len(shard) for shard in shards) >= least


def test_dirichlet_skew_follows_alpha():
    labels = np.random.default_rng(0).integers(10, size=10_000)
    sharp, mild, flat = (
        skew(labels, make(labels, 20, partition="dirichlet", dirichlet_alpha=alpha)) for alpha in (0.05, 0.3, 1000.0)
    )
    assert sharp > mild + 0.1
    assert mild > flat + 0.1
    assert flat < 0.2  # ten classes in equal parts have 0.1 each, and 0.13 with the noise of 500 draws


def test_balance_trick_bounds_the_largest_client():
    """A client below N/K may get one more class and then nothing: its size is below N/K plus one class."""
    labels = np.arange(10_000) % 100
    shards = make(labels, 50, partition="dirichlet", dirichlet_alpha=0.1, min_samples=1)
    assert max(len(shard) for shard in shards) < 10_000 / 50 + 100


def test_dirichlet_shares_have_the_moments_of_the_distribution():
    """With one class the sizes are N times Dirichlet(alpha) shares: variance (1/K)(1-1/K)/(K alpha + 1)."""
    clients, samples, alpha = 5, 10_000, 2.0
    shares = [
        len(shard) / samples
        for seed in range(200)
        for shard in make(np.zeros(samples, dtype=int), clients, seed, partition="dirichlet", dirichlet_alpha=alpha)
    ]
    expected = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert np.var(shares) == pytest.approx(expected, rel=0.2)


def test_the_same_seed_gives_the_same_partition_and_another_seed_another():
    for kind in ("iid", "dirichlet"):
        first, again, other = (make(np.arange(300) % 5, 10, seed, partition=kind) for seed in (3, 3, 4))
        assert all((a == b).all() for a, b in zip(first, again, strict=True))
        assert any(a.tolist() != b.tolist() for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("alpha", [0.01, 0.3])
def test_ten_thousand_clients_take_seconds_even_where_no_redraw_can_help(alpha):
    labels = np.arange(100_000) % 10
    start = time.process_time()
    shards = make(labels, 10_000, partition="dirichlet", dirichlet_alpha=alpha, min_samples=10)
    assert time.process_time() - start < 8
    assert {len(shard) for shard in shards} == {10}  # 100,000 images over 10,000 clients leave no choice


def write(tmp_path, rows):
    path = tmp_path / "partition.json"
    path.write_text(rows if isinstance(rows, str) else json.dumps(rows))
    return path


def test_file_partition_is_taken_as_it_is_but_sorted(tmp_path):
    path = write(tmp_path, [[3, 0], [5]])
    shards = make(np.zeros(6), 2, partition="file", partition_file=path)
    assert [shard.tolist() for shard in shards] == [[0, 3], [5]]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[0], []], ["client 1", "no index"]),
        ([[0, 1], [1, 2]], ["index 1", "clients 0 and 1"]),
        ([[0], [2, 2]], ["client 1", "2", "twice"]),
        ([[0], [6]], ["client 1", "6", "0 to 5"]),
        ([[0], [-1]], ["client 1", "-1", "0 to 5"]),
        ([[0], [1.5]], ["client 1", "1.5"]),
        ([[True], [1]], ["client 0", "True"]),
        ([[0], 3], ["client 1", "3", "list"]),
        ([[0]], ["1 lists", "allowed: 2"]),
        ({"a": [0]}, ["dict", "list of index lists"]),
        ("[[0], [1]", ["JSON"]),
    ],
)
def test_bad_partition_files_are_refused_by_name(tmp_path, rows, words):
    with pytest.raises(InputError) as error:
        make(np.zeros(6), 2, partition="file", partition_file=write(tmp_path, rows))
    for word in ["partition_file", *words]:
        assert word in str(error.value)


def test_missing_partition_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.json"):
        make(np.zeros(6), 2, partition="file", partition_file=tmp_path / "none.json")
    with pytest.raises(InputError, match="--partition-file"):
        make(np.zeros(6), 2, partition="file")


def test_too_many_clients_are_refused():
    with pytest.raises(InputError, match="clients: 7, allowed: from 1 to 6"):
        make(np.zeros(6), 7)
    with pytest.raises(InputError, match="min_samples: 10, allowed: at most 5"):
        make(np.zeros(50), 10, partition="dirichlet")
