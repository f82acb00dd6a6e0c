"""Subsets with a known sum: all of them and no others, how many fit by accident, and members of small groups."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.games import Candidates
from attacks.means import MeanReader
from attacks.metrics import evaluate
from attacks.statements import GroupMean, Said
from attacks.subsets import Fitting, SubsetReader, _subsets, by_accident, fitting

EXACT = np.full(1, 1e-9)


@pytest.mark.parametrize(("length", "size"), [(5, 0), (5, 1), (6, 3), (4, 4), (3, 4)])
def test_subsets_are_those_of_itertools(length, size):
    assert [tuple(row) for row in _subsets(length, size).tolist()] == list(itertools.combinations(range(length), size))


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=9),
    st.integers(1, 9),
    st.integers(0, 30),
    st.integers(0, 10),
)
def test_every_subset_with_the_sum_is_found_once(numbers, size, first, second):
    size = min(size, len(numbers))
    found = fitting(np.array(numbers, float), np.array([first, second], float), size, np.full(2, 0.5))
    wanted = [
        subset
        for subset in itertools.combinations(range(len(numbers)), size)
        if np.sum([numbers[at] for at in subset], axis=0).tolist() == [first, second]
    ]
    having = [float(sum(at in subset for subset in wanted)) for at in range(len(numbers))]
    assert isinstance(found, Fitting) and (found.count, found.having.tolist()) == (len(wanted), having)


def test_lists_that_are_too_long_are_left_alone():
    numbers = np.random.default_rng(0).random((400, 1))
    assert fitting(numbers, numbers[:6].sum(0), 6, EXACT) is None, "400 over 3 is over a million"
    assert fitting(np.ones((300, 1)), np.array([4.0]), 4, EXACT) is None, "every pair fits every other"


def test_many_numbers_a_record_take_little_memory():
    """34,220 halves of 60 records; 200 numbers of each half at once would be 160 MB."""
    numbers = np.random.default_rng(0).random((60, 200))
    tracemalloc.start()
    found = fitting(numbers, numbers[:6].sum(0), 6, np.full(200, 1e-9))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.count == 1 and found.having.nonzero()[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert peak < 40e6


@pytest.mark.parametrize(("columns", "slack"), [(1, 1e-4), (2, 2e-2)])
def test_as_many_fit_by_accident_as_is_said(columns, slack):
    """At the peak of sums of normal numbers, of deviation 2, a subset fits with probability (2 slack density)^d."""
    draw, size, length, counts, told = np.random.default_rng(5), 3, 90, [], []
    for _ in range(100):
        numbers = 1 + 2 * draw.normal(size=(length, columns))
        numbers[:, -1] += numbers[:, 0] * (columns - 1)  # as losses of two rounds, not independent
        slacks = np.full(columns, slack)
        counts.append(fitting(numbers, size * numbers.mean(0), size, slacks).count)
        told.append(by_accident(numbers, size, slacks))
    peak = math.comb(length, size) * (2 * slack / math.sqrt(2 * math.pi * 4 * size)) ** columns
    assert np.mean(told) == pytest.approx(peak, rel=0.1)
    assert np.mean(counts) == pytest.approx(peak, rel=0.2)


class World:
    """One client with groups of `size` records, one number each."""

    sizes, classes = (5,), 1

    def __init__(self, mean, size):
        self.said = Said("losses", (GroupMean(0, size, "loss", mean, 0, 0),), {}, {})


def reader_of(kind, numbers, own, size):
    references = _candidates(np.arange(len(numbers)))
    mean = own.mean(0)
    return kind(World(mean, size), lambda group, asked: numbers[asked.image], references)


def _candidates(image, member=None):
    zeros = np.zeros(len(image), np.int64)
    return Candidates(image, zeros, zeros.astype(bool) if member is None else member, zeros, zeros)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_one_subset_that_fits_is_the_group(size):
    numbers = np.random.default_rng(size).gamma(2.0, size=(20, 1))
    found = reader_of(SubsetReader, numbers, numbers[:size], size).named_client(_candidates(np.arange(20)))
    assert found[:size].min() > 4 > -3 > found[size:].max()


def test_a_sum_is_only_as_exact_as_its_numbers():
    numbers = np.random.default_rng(1).gamma(2.0, size=(40, 1))
    near = numbers.astype(np.float32).astype(float) * (1 + 1e-7)
    found = reader_of(SubsetReader, numbers, near[:3], 3).named_client(_candidates(np.arange(40)))
    assert set(np.argsort(found)[-3:]) == {0, 1, 2}


def test_a_group_of_strangers_or_of_many_is_read_by_its_pull_alone():
    numbers = np.random.default_rng(2).gamma(2.0, size=(60, 1))
    candidates = _candidates(np.arange(40))
    for own, size in ((numbers[40:43], 3), (numbers[:9], 9), (numbers[:40], 40)):
        exact, pull = (
            reader_of(kind, numbers, own, size).named_client(candidates) for kind in (SubsetReader, MeanReader)
        )
        assert exact.tolist() == pull.tolist()
    assert not reader_of(SubsetReader, numbers, numbers[:9], 9).reads
    assert reader_of(SubsetReader, numbers, numbers[:8], 8).reads


@pytest.mark.parametrize("inside", [True, False])
def test_members_of_small_groups_are_named_and_nobody_where_nobody_is_one(inside):
    """Else nobody's records: what fits does so by accident, and a coin says who is a member."""
    scores, truth = [], []
    for seed in range(60):
        draw = np.random.default_rng(seed)
        numbers = draw.gamma(2.0, size=(400, 1))
        own = numbers[:4] if inside else draw.gamma(2.0, size=(4, 1))
        member = np.arange(40) < 4
        scores.append(reader_of(SubsetReader, numbers, own, 4).named_client(_candidates(np.arange(40), member)))
        truth.append(member)
    found = evaluate(np.concatenate(scores), np.concatenate(truth))
    if inside:
        assert found.auc.value > 0.98
    else:
        assert found.auc.low < 0.5 < found.auc.high and found.points[1].tpr.low < 0.01
