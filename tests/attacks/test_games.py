"""How candidates are drawn: members are records, others nobody's, labels alone tell nothing, references are apart."""

import numpy as np
import pytest

from attacks.games import LABEL, NOBODY, AnyClient, RowLinkage, TargetClient, challenge
from attacks.harness import arena
from attacks.metrics import evaluate

SETTINGS = {"record_view": "uploads", "rounds": 4, "warmup": 2, "rho_max": 0.5}


@pytest.fixture(scope="module")
def run(finished):
    return finished(**SETTINGS).folder


@pytest.fixture(scope="module")
def ground(run):
    return arena(run)


def test_members_are_the_clients_records_in_order(ground):
    challenger, members = ground.challenger, ground.challenger.members
    for shard in challenger.data.shards:
        own = members.client == shard.client
        np.testing.assert_array_equal(members.labels[own], shard.labels)
        np.testing.assert_array_equal(members.row[own], np.arange(len(shard)))
        np.testing.assert_array_equal(challenger.pool[members.image[own]], shard.images())
    assert members.member.all() and challenger.wrong.sum() == sum(map(np.sum, challenger.truth.wrong))


def test_records_from_outside_are_nobody_s_images_and_references_are_no_candidates(ground):
    challenger = ground.challenger
    inside = {image.tobytes() for shard in challenger.data.shards for image in shard.images()}
    assert not any(image.tobytes() in inside for image in challenger.outside)
    # 1437 training images of which 120 are used, and 60 of the test images
    assert len(challenger.outside) > 1200
    for game in (AnyClient(), TargetClient(), RowLinkage()):
        others = ground.candidates(game)
        assert not set(others.image[~others.member]) & set(ground.references.image)
        assert (others.row[~others.member] == NOBODY).all() or game.name == "row"
    assert not ground.references.member.any() and len(ground.references) == 300


def test_the_games_have_the_members_and_others_that_they_say(ground):
    challenger = ground.challenger
    total, outside = len(challenger.members), len(challenger.outside) - 300
    anybody, target, row = (ground.candidates(game) for game in (AnyClient(), TargetClient(), RowLinkage()))
    assert (anybody.member.sum(), len(anybody)) == (total, total + outside)
    assert (target.member.sum(), len(target)) == (total, total + 4 * outside)
    assert (row.member.sum(), len(row)) == (total, 2 * total)
    np.testing.assert_array_equal(row.row[:total], row.row[total:])
    np.testing.assert_array_equal(row.client[:total], row.client[total:])
    assert len(ground.candidates(LABEL)) == total


def test_others_have_wrong_labels_at_the_named_client_s_own_rate(ground):
    challenger, target = ground.challenger, ground.candidates(TargetClient())
    for client, rate in enumerate(challenger.truth.realised_rate):
        mine = (target.client == client) & ~target.member
        true = challenger.outside_labels[target.image[mine] - len(challenger.members)]
        wrong = (target.labels[mine] != true).mean()
        assert abs(wrong - rate) < 4 * (0.25 / mine.sum()) ** 0.5
    assert np.ptp(challenger.truth.realised_rate) > 0.1


@pytest.mark.parametrize("game", [AnyClient(), TargetClient()])
def test_a_label_alone_tells_nobody(ground, game):
    candidates = ground.candidates(game)
    found = evaluate(candidates.labels.astype(float), candidates.member)
    assert found.auc.low - 0.03 < 0.5 < found.auc.high + 0.03


def test_candidates_are_the_same_for_every_attack_and_differ_by_seed(run, ground):
    first, again = ground.candidates(AnyClient()), arena(run).candidates(AnyClient())
    assert all(np.array_equal(getattr(first, name), getattr(again, name)) for name in ("image", "labels", "client"))
    other = arena(run, seed=1).candidates(AnyClient())
    assert not np.array_equal(first.image, other.image)


def test_of_many_records_outside_some_are_drawn_by_the_seed(run, monkeypatch):
    every = {image.tobytes() for image in challenge(run).outside}
    monkeypatch.setattr("attacks.games._MOST_OUTSIDE", 50)
    first, again, other = challenge(run), challenge(run), challenge(run, seed=1)
    assert len(first.outside) == len(first.outside_labels) == 50 < len(every)
    assert {image.tobytes() for image in first.outside} < every
    assert np.array_equal(first.outside, again.outside) and not np.array_equal(first.outside, other.outside)


def test_without_spare_training_images_the_test_images_are_outside(finished):
    result = finished(**SETTINGS | {"train_size": None, "clients": 20, "cohort": 2})
    assert len(challenge(result.folder).outside) == 60
