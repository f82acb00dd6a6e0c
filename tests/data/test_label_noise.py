"""Label noise: the promised number of flips, to the promised classes, from the untouched true labels."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedgr_secure.data.cifar100 import FINE_CLASSES, FINE_TO_SUPERCLASS, SUPERCLASSES
from fedgr_secure.data.noise import asymmetric_partners, corrupt, noisy_clients
from fedgr_secure.errors import InputError
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import NoiseConfig


def make(true_labels, clients=1, classes=10, seed=0, given=None, **settings):
    true_labels = np.asarray(true_labels, dtype=np.int64)
    shards = np.array_split(np.arange(len(true_labels)), clients)
    return corrupt(
        true_labels,
        shards,
        classes=classes,
        config=NoiseConfig(**settings),
        randomness=Randomness(seed=seed),
        given=given,
    )


def flips(corruption, true_labels):
    parts = np.array_split(np.asarray(true_labels), len(corruption.labels))
    return np.array([(labels != part).sum() for labels, part in zip(corruption.labels, parts, strict=True)])


@given(
    sizes=st.integers(1, 60),
    clients=st.integers(1, 12),
    classes=st.integers(2, 12),
    low=st.floats(0, 1),
    high=st.floats(0, 1),
    kind=st.sampled_from(["symmetric", "asymmetric", "mixed"]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_exactly_int_n_rho_labels_are_wrong(sizes, clients, classes, low, high, kind, seed):
    low, high = sorted((low, high))
    true_labels = np.random.default_rng(seed).integers(classes, size=sizes * clients)
    noisy = make(true_labels, clients, classes, seed, label_noise=kind, rho_min=low, rho_max=high)
    assert (noisy.drawn_rate >= low).all()
    assert (noisy.drawn_rate <= high).all()
    expected = np.floor(sizes * noisy.drawn_rate + 1e-9).astype(int)
    assert flips(noisy, true_labels).tolist() == expected.tolist()
    for labels in noisy.labels:
        assert labels.min() >= 0
        assert labels.max() < classes


def test_float_error_does_not_lose_a_flip():
    """100 * 0.29 is 28.999999999999996 in floats."""
    true_labels = np.zeros(100)
    assert flips(make(true_labels, rho_min=0.29, rho_max=0.29), true_labels).tolist() == [29]
    config = NoiseConfig(phi=0.29)
    assert len(noisy_clients(100, config=config, randomness=Randomness(seed=0))) == 29


def test_symmetric_noise_is_uniform_over_the_other_classes():
    """Chi-square at level 1e-4 accepts 60,000 uniform draws, and would reject the map to the next class."""
    true_labels = np.full(60_000, 3)
    labels = make(true_labels, rho_min=1.0, rho_max=1.0).labels[0]
    counts = np.bincount(labels, minlength=10)
    assert counts[3] == 0
    assert chisquare(np.delete(counts, 3)).pvalue > 1e-4


def test_including_the_true_class_lowers_the_effective_rate_to_c_minus_1_over_c():
    """Of m flips a share (C-1)/C is wrong; the standard deviation is sqrt(m (1/C) (1-1/C))."""
    true_labels = np.arange(40_000) % 4
    noisy = make(true_labels, classes=4, rho_min=0.5, rho_max=0.5, include_true_class=True)
    wrong, flipped = flips(noisy, true_labels)[0], 20_000
    assert abs(wrong - flipped * 3 / 4) < 5 * np.sqrt(flipped * 3 / 16)


@pytest.mark.parametrize(("name", "classes"), [("next", 10), ("pairs", 10), ("groups", 100), ("superclasses", 100)])
def test_asymmetric_transition_matrix_comes_from_the_frozen_true_labels(name, classes):
    """At rate 1 every label is its class's partner: flips made one after the other would move some twice."""
    true_labels = np.repeat(np.arange(classes), 20)
    noisy = make(true_labels, classes=classes, label_noise="asymmetric", asymmetric_map=name, rho_min=1, rho_max=1)
    transition = np.zeros((classes, classes))
    np.add.at(transition, (true_labels, noisy.labels[0]), 1 / 20)
    expected = np.zeros((classes, classes))
    expected[np.arange(classes), asymmetric_partners(name, classes)] = 1
    assert transition == pytest.approx(expected)


def test_pairs_are_the_classic_cifar10_map_and_realise_less_than_rho():
    classic = {9: 1, 2: 0, 3: 5, 5: 3, 4: 7}
    assert asymmetric_partners("pairs", 10).tolist() == [classic.get(c, c) for c in range(10)]
    true_labels = np.arange(1000) % 10
    noisy = make(true_labels, label_noise="asymmetric", asymmetric_map="pairs", rho_min=1, rho_max=1)
    assert flips(noisy, true_labels).tolist() == [500]


def test_groups_stay_inside_consecutive_fives():
    partners = asymmetric_partners("groups", 100)
    assert (partners // 5 == np.arange(100) // 5).all()
    assert partners[[0, 4, 98, 99]].tolist() == [1, 0, 99, 95]


def test_superclass_partners_stay_in_the_superclass_and_form_one_cycle_of_five():
    partners, groups = asymmetric_partners("superclasses", 100), np.array(FINE_TO_SUPERCLASS)
    assert (groups[partners] == groups).all()
    current, cycle = np.arange(100), []
    for _ in range(5):
        current = partners[current]
        cycle.append(current)
    assert (cycle[-1] == np.arange(100)).all()
    assert all((step != np.arange(100)).all() for step in cycle[:-1])
    assert FINE_CLASSES[partners[FINE_CLASSES.index("beaver")]] == "dolphin"
    assert FINE_CLASSES[partners[FINE_CLASSES.index("whale")]] == "beaver"


def test_cifar100_has_twenty_superclasses_of_five():
    assert len(SUPERCLASSES) == 20
    assert np.bincount(FINE_TO_SUPERCLASS).tolist() == [5] * 20
    assert len(set(FINE_CLASSES)) == 100


def test_superclasses_agree_with_the_coarse_labels_of_the_data_set():
    """The coarse label that CIFAR-100's own files give to fine classes 0 to 99 (apple, 0, is 4: fruit)."""
    assert list(FINE_TO_SUPERCLASS) == [int(number) for number in COARSE.split()]


COARSE = """
    4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 12 14 16 9 11 5
    5 19 8 8 15 13 14 17 18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 12 9 13 15 13
    16 19 2 4 6 19 5 5 8 19 18 1 2 15 6 0 17 8 14 13
"""


@pytest.mark.parametrize(
    ("name", "classes", "words"),
    [
        ("pairs", 100, "pairs, allowed: only with CIFAR-10's 10 classes, not 100"),
        ("groups", 12, "groups, allowed: only with a multiple of 5 classes, not 12"),
        ("superclasses", 10, "superclasses, allowed: only with CIFAR-100's 100, not 10"),
    ],
)
def test_maps_that_do_not_exist_are_refused(name, classes, words):
    with pytest.raises(InputError, match=words):
        make([0, 1], classes=classes, label_noise="asymmetric", asymmetric_map=name)


def test_exact_draw_picks_int_phi_k_clients_and_bernoulli_only_on_average():
    exact = [len(noisy_clients(50, config=NoiseConfig(phi=0.3), randomness=Randomness(seed=s))) for s in range(200)]
    config = NoiseConfig(phi=0.3, client_draw="bernoulli")
    drawn = [len(noisy_clients(50, config=config, randomness=Randomness(seed=s))) for s in range(200)]
    assert set(exact) == {15}
    assert np.mean(drawn) == pytest.approx(15, abs=5 * np.sqrt(50 * 0.3 * 0.7 / 200))
    assert np.var(drawn) == pytest.approx(50 * 0.3 * 0.7, rel=0.5)


def test_every_client_is_noisy_in_some_run():
    seen = {int(c) for s in range(60) for c in noisy_clients(10, config=NoiseConfig(phi=0.3), randomness=Randomness(s))}
    assert seen == set(range(10))


def test_clean_clients_keep_their_labels():
    true_labels = np.arange(1000) % 10
    noisy = make(true_labels, clients=10, phi=0.4, rho_min=0.5, rho_max=0.5)
    assert sorted(flips(noisy, true_labels)) == [0] * 6 + [50] * 4
    assert sorted(noisy.kind) == ["none"] * 6 + ["symmetric"] * 4
    assert ((noisy.drawn_rate == 0) == (np.array(noisy.kind) == "none")).all()


def test_two_clients_flip_different_positions_to_different_classes():
    noisy = make(np.zeros(200), clients=2, rho_min=0.5, rho_max=0.5)
    assert (noisy.labels[0] != noisy.labels[1]).any()
    assert len(set(make(np.zeros(200), clients=20).drawn_rate)) == 20


def test_a_clients_labels_do_not_depend_on_the_other_clients():
    alone = make(np.zeros(50), clients=1, rho_min=0.5, rho_max=0.5)
    among = make(np.zeros(150), clients=3, rho_min=0.5, rho_max=0.5)
    assert (alone.labels[0] == among.labels[0]).all()


def test_mixed_noise_tosses_a_coin_per_client():
    true_labels = np.zeros(20_000)
    noisy = make(true_labels, clients=200, label_noise="mixed", rho_min=1, rho_max=1)
    assert set(noisy.kind) == {"symmetric", "asymmetric"}
    assert abs(noisy.kind.count("symmetric") - 100) < 5 * np.sqrt(200 / 4)
    for labels, kind in zip(noisy.labels, noisy.kind, strict=True):
        assert (set(labels.tolist()) == {1}) == (kind == "asymmetric")


def test_given_and_none():
    given = np.array([1, 1, 0, 0])
    taken = make([0, 1, 0, 1], clients=2, given=given, label_noise="given")
    assert [labels.tolist() for labels in taken.labels] == [[1, 1], [0, 0]]
    assert np.isnan(taken.drawn_rate).all()
    assert taken.kind == ("given", "given")
    clean = make([0, 1, 0, 1], clients=2, given=given, label_noise="none")
    assert [labels.tolist() for labels in clean.labels] == [[0, 1], [0, 1]]
    assert clean.kind == ("none", "none")


def test_given_labels_that_are_not_there_are_refused():
    with pytest.raises(InputError, match="label_noise: given"):
        make([0, 1], label_noise="given")


@pytest.mark.parametrize("kind", ["none", "symmetric", "asymmetric", "mixed"])
def test_synthetic_noise_needs_known_true_labels(kind):
    with pytest.raises(InputError, match=f"label_noise: {kind}, allowed: given, .* 2 of 3 .* unknown"):
        make([0, -1, -1], given=np.array([0, 1, 0]), label_noise=kind)


def test_the_true_labels_are_not_touched():
    true_labels = np.zeros(100, dtype=np.int64)
    make(true_labels, rho_min=1, rho_max=1)
    assert not true_labels.any()


def test_ten_thousand_clients_take_seconds():
    start = time.process_time()
    noisy = make(np.arange(100_000) % 10, clients=10_000, label_noise="mixed")
    assert time.process_time() - start < 6
    assert len(noisy.labels) == 10_000
