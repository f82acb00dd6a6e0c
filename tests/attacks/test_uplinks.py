"""Attacks on what baselines' clients say, and on local models: right values, nulls, hostile views."""

import dataclasses
import shutil

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import attacks.subsets
from attacks.arena import arena
from attacks.games import Candidates, TargetClient
from attacks.harness import attack, chosen
from attacks.knowledge import know
from attacks.means import MeanReader, Scale, pulled
from attacks.metrics import evaluate
from attacks.statements import GroupMean, Said
from fedgr_secure.app import cli
from fedgr_secure.baselines.centroids import Centroids
from fedgr_secure.baselines.class_losses import ClassLosses
from fedgr_secure.baselines.filters import LocalFilter
from fedgr_secure.errors import InputError
from fedgr_secure.messages import Update
from fedgr_secure.wire import to_bytes

SAID = {"record_view": "all", "rounds": 8, "warmup": 4, "train_size": 240, "clients": 6, "cohort": 3, "width": 4}
SAID |= {"dropout": 0.1}


@pytest.fixture(scope="module")
def ground(finished):
    return lambda method, **changes: arena(finished(method=method, **SAID | changes).folder)


# the likelihood ratio


@pytest.mark.parametrize("count", [2, 3, 40])
def test_the_ratio_is_that_of_two_gaussians(count):
    draw = np.random.default_rng(count)
    mean, records = draw.normal(size=3), draw.normal(size=(5, 3))
    without = multivariate_normal(np.zeros(3), np.eye(3) / count).logpdf(mean)
    within = [multivariate_normal(x / count, np.eye(3) * (count - 1) / count**2).logpdf(mean) for x in records]
    np.testing.assert_allclose(pulled(mean, records, count), np.array(within) - without, atol=1e-10)


def test_a_mean_of_one_record_is_that_record():
    found = pulled(np.array([0.7]), np.array([[0.7], [0.7001]]), 1)
    assert found[0] > 10 and found[1] < -1000


def test_numbers_are_made_independent_about_each_label():
    draw = np.random.default_rng(0)
    labels, mix = draw.integers(0, 3, 4000), np.array([[2.0, 0.0], [1.0, 0.5]])
    numbers = draw.normal(size=(4000, 2)) @ mix + 10 * labels[:, None]
    scale = Scale.of(numbers, labels, by_label=True)
    away = np.concatenate([scale.away(numbers[labels == label], label) for label in range(3)])
    np.testing.assert_allclose(np.cov(away.T), np.eye(2), atol=0.05)
    np.testing.assert_allclose(scale.away(numbers, 7), (numbers - numbers.mean(0)) @ scale.whiten)


class World:
    """One client whose n records are d Gaussian numbers each, as a run's knowledge would show it."""

    sizes, classes = (20,), 1

    def __init__(self, said):
        self.said = said


@pytest.mark.parametrize("inside", [True, False])
def test_areas_are_what_theory_says_where_all_is_gaussian(inside):
    """With d numbers and n records the ratio is about N(+-d / 2n, d / n), and its area Phi(sqrt(d / 2n))."""
    draw, n, d, areas = np.random.default_rng(1), 20, 10, []
    for _ in range(40):
        pool = draw.normal(size=(n + n + 2000, d))
        group = pool[:n] if inside else draw.normal(size=(n, d))  # else nobody's records: a coin says who is a member
        said = Said("features", (GroupMean(None, n, "features", group.mean(0), 0, 0),), {}, {})
        picked = np.arange(2 * n)
        candidates = _candidates(picked, member=picked < n)
        references = _candidates(np.arange(2 * n, len(pool)), member=np.zeros(2000, bool))
        reader = MeanReader(World(said), lambda group, asked, pool=pool: pool[asked.image], references)
        areas.append(evaluate(reader.named_client(candidates), candidates.member).auc.value)
    wanted = norm.cdf(np.sqrt(d / (2 * n))) if inside else 0.5
    assert abs(np.mean(areas) - wanted) < 0.04


def _candidates(image, member):
    zeros = np.zeros(len(image), np.int64)
    return Candidates(image, zeros, member, zeros, zeros)


# what clients really say


def test_class_losses_are_means_of_what_the_server_computes(ground):
    found = ground("fednoro")
    members, said = found.challenger.members, found.knowledge.said
    assert said.subject == "class-wise losses" and len({group.client for group in said.means}) >= 5
    for group in said.means:
        own = members.take(np.flatnonzero((members.client == group.client) & (members.labels == group.label)))
        assert group.count == len(own)
        np.testing.assert_allclose(found._numbers(group, own).mean(0), group.values, atol=1e-5)
    for client, share in said.classes.items():
        labels = members.labels[members.client == client]
        np.testing.assert_allclose(share, np.bincount(labels, minlength=10) / len(labels))


def test_class_losses_name_the_members_of_small_classes(ground):
    found = ground("fednoro")
    candidates = found.candidates(TargetClient())
    exact, pull = (
        evaluate(reader.named_client(candidates), candidates.member) for reader in (found.subsets, found.means)
    )
    assert found.subsets.reads and exact.auc.low > 0.75 and exact.auc.low > pull.auc.high
    assert exact.points[1].tpr.low > 3 * pull.points[1].tpr.value
    (whose,) = [one for chosen_ in chosen(["subsets"]) for one, _ in chosen_.play(found) if one.game == "source"]
    assert whose.share.low > 2 * whose.chance


def test_subsets_say_nothing_where_none_can_be_listed(ground, monkeypatch):
    """There they score as `means` does, and would pass its figures off as their own."""
    monkeypatch.setattr(attacks.subsets, "_MOST_HALVES", 0)
    (subsets,) = chosen(["subsets"])
    assert subsets.fits(ground("fednoro")) and subsets.play(ground("fednoro")) == []


def test_mixtures_tell_mean_and_mean_square_of_the_losses(ground):
    found = ground("feddiv")
    members, said = found.challenger.members, found.knowledge.said
    assert said.subject == "loss filter" and len(said.means) >= 8
    for group in said.means:
        own = members.take(np.flatnonzero(members.client == group.client))
        np.testing.assert_allclose(found._numbers(group, own).mean(0), group.values, rtol=1e-4)


@pytest.mark.slow
def test_centroids_are_near_the_mean_features_of_their_class(ground):
    """They follow a model that moves, so near is all: by chance a tenth would be nearest to their own class."""
    found = ground("rofl")
    members, said = found.challenger.members, found.knowledge.said
    nearest = []
    for group in said.means:
        own = members.take(np.flatnonzero(members.client == group.client))
        features = found._numbers(group, own)
        means = {label: features[own.labels == label].mean(0) for label in np.unique(own.labels)}
        nearest.append(min(means, key=lambda label: np.linalg.norm(means[label] - group.values)) == group.label)
    assert said.subject == "class centroids" and np.mean(nearest) > 0.2


@pytest.mark.slow
def test_centroids_that_did_not_move_tell_which_classes_a_client_lacks(ground):
    """Clients start from the global centroids, so that all of them seem to have every class after a while.

    Late in a run predictions replace labels, so that a class may be learnt that a client does not have.
    """
    right = []
    found = ground("rofl", partition="dirichlet", dirichlet_alpha=0.1)
    members, shares = found.challenger.members, found.knowledge.said.classes
    for client, share in shares.items():
        seen, has = np.flatnonzero(share), np.unique(members.labels[members.client == client])
        right += np.isin(seen, has).tolist()
        assert len(seen) > len(has) / 2 and abs(share.sum() - 1) < 1e-9
    assert np.mean(right) > 0.85
    (outcome,) = [one for chosen_ in chosen(["classes"]) for one, _ in chosen_.play(found)]
    assert outcome.correlation is not None  # that of a mix with a list is weak where noise gives everybody every label
    groups = {(group.client, group.label) for group in found.knowledge.said.means}
    assert groups == {(client, label) for client, share in shares.items() for label in np.flatnonzero(share)}


@pytest.mark.parametrize(
    ("method", "by", "least"),
    [
        ("fednoro", "mean loss", 0.8),
        ("feddiv", "share of the noisy component", 0.5),
        ("fedcorr", "mean dimension", 0.0),
    ],
)
@pytest.mark.slow
def test_what_clients_say_tells_how_many_labels_are_wrong(ground, method, by, least):
    outcomes = {one.game: one for chosen_ in chosen(["rates"]) for one, _ in chosen_.play(ground(method))}
    assert outcomes[by].correlation.value > least and outcomes[by].subject != "loss proxies"


@pytest.mark.slow
def test_class_losses_of_few_records_tell_members(ground):
    found = ground("fednoro", clients=24, cohort=12)  # ten records a client: a class is often of one
    candidates = found.candidates(TargetClient())
    metrics = evaluate(found.means.named_client(candidates), candidates.member)
    assert metrics.auc.low > 0.7
    alone = {(g.client, g.label) for g in found.knowledge.said.means if g.count == 1}
    is_alone = np.array([pair in alone for pair in zip(candidates.client, candidates.labels, strict=True)])
    exact = evaluate(found.means.named_client(candidates)[is_alone], candidates.member[is_alone])
    assert exact.auc.value > 0.999 and is_alone.sum() > 50


# local models


@pytest.mark.slow
def test_in_the_clear_local_models_tell_members_and_whose_they_are(ground):
    found = ground("fedavg", local_epochs=5, train_size=120)
    members, knowledge = found.challenger.members, found.knowledge
    for client, (received, sent) in knowledge.trained.items():
        own = members.take(np.flatnonzero(members.client == client))
        fell = [
            knowledge.bench.predict(weights, found.challenger.pool[own.image]).losses(own.labels)
            for weights in (received, sent)
        ]
        np.testing.assert_allclose(
            found.local_models.fallen[client][own.image, own.labels], fell[0] - fell[1], atol=1e-5
        )
    outcomes = {one.game: one for chosen_ in chosen(["local"]) for one, _ in chosen_.play(found)}
    assert outcomes["target"].metrics.auc.low > 0.75
    assert outcomes["source"].share.low > 0.4 > outcomes["source"].chance


@pytest.mark.slow
def test_models_of_clients_that_correct_labels_are_told_by_how_sure_they_are(ground):
    """The loss of a wrong label rises where its client has learnt another; how sure it is of the image rises, too."""
    found = ground("rofl", record_view="all", local_epochs=5, train_size=120, rounds=16, width=8, dropout=0.0)
    members, knowledge = found.challenger.members, found.knowledge
    for client, (received, sent) in knowledge.trained.items():
        own = members.take(np.flatnonzero(members.client == client)).image
        before, after = (knowledge.log_shares(weights, found.challenger.pool[own]) for weights in (received, sent))
        np.testing.assert_allclose(found.local_models.surer[client][own], after.max(1) - before.max(1), atol=1e-5)
    area = {}
    for name in ("local", "sureness"):
        (attack_,) = chosen([name])
        outcomes = {one.game: one for one, _ in attack_.play(found)}
        assert outcomes.keys() == {"any", "target", "source"}
        area[name] = outcomes["target"].metrics.auc
    assert area["sureness"].low > 0.5 and area["sureness"].value > area["local"].value


def test_the_only_client_is_not_calibrated_away(finished):
    settings = {**SAID, "clients": 1, "cohort": 1, "train_size": 40, "dropout": 0.0, "rounds": 2, "local_epochs": 10}
    found = arena(finished(method="fedavg", **settings).folder)
    played = {one.game: one for chosen_ in chosen(["local"]) for one, _ in chosen_.play(found)}
    assert played["target"].metrics.auc.low > 0.6


@pytest.mark.slow
def test_sureness_is_blind_to_labels(ground):
    found = ground("fedavg", record_view="all", local_epochs=5, train_size=120)
    candidates = found.candidates(TargetClient())
    others = dataclasses.replace(candidates, labels=(candidates.labels + 1) % 10)
    scores = found.sure_models.named_client(candidates)
    assert np.array_equal(scores, found.sure_models.named_client(others))
    assert evaluate(scores, candidates.member).auc.low > 0.6


@pytest.mark.slow
def test_a_local_model_that_predicts_no_numbers_is_named(ground, finished, tmp_path):
    settings = SAID | {"record_view": "all"}
    result = finished(method="fedavg", **settings)
    folder, client = shutil.copytree(result.folder, tmp_path / "run"), result.rounds[-1].cohort[0]
    weights = {name: np.full_like(value, 1e20) for name, value in result.weights.items()}
    (folder / "view" / "round-0000007" / f"Update.up.{client}").write_bytes(to_bytes(Update(7, 40, weights)))
    with pytest.raises(InputError, match=rf"^client {client}: predictions of its own model that are no numbers"):
        attack(folder, ["local"])


@pytest.mark.parametrize("method", ["fedgr", "feddiv", "dividemix"])
@pytest.mark.slow
def test_local_models_of_every_kind_of_exchange_are_measured(ground, method):
    """FedGR's second message of a round leaves the weights out, FedDiv's has none, DivideMix has two networks."""
    found = ground(method)
    played = {one.game: one for chosen_ in chosen(["local"]) for one, _ in chosen_.play(found)}
    assert len(found.knowledge.trained) >= 5 and np.isfinite(played["target"].metrics.auc.value)
    assert played["source"].share.value > played["source"].chance


@pytest.mark.slow
def test_each_client_is_measured_from_the_model_that_it_received(ground):
    """FedCorr hands the model on: the second client of a round starts from what the first has left."""
    found = ground("fedcorr", rounds=3, warmup=3)
    trained = [
        {name: value.tobytes() for name, value in model.items()}
        for pair in found.knowledge.trained.values()
        for model in pair
    ]
    received, sent = trained[::2], trained[1::2]
    assert all(one != other for one, other in zip(received, sent, strict=True))
    assert sum(one in sent for one in received) >= 2, "those of the last round but one"


@pytest.mark.parametrize(
    ("changes", "told"), [({}, True), ({"record_view": "all"}, False), ({"secagg": True, "cohort": 4}, False)]
)
@pytest.mark.slow
def test_a_view_without_local_models_says_what_the_server_also_saw(finished, capsys, changes, told):
    settings = {**SAID, "record_view": "uploads", "dropout": 0.0, "rounds": 2, **changes}
    assert cli._run(["attack", str(finished(method="fedavg", **settings).folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ("Clients' own models came up in the clear and are not in this view" in said) == told


@pytest.mark.slow
def test_under_secure_sums_there_is_no_local_model(finished):
    settings = {**SAID, "secagg": True, "rounds": 3, "cohort": 4}
    folder = finished(method="fedavg", **settings).folder
    assert know(folder).trained == {}
    with pytest.raises(InputError, match=r"shows nothing that local can read"):
        attack(folder, ["local"])


# views that no run leaves


@pytest.mark.parametrize(
    ("method", "message", "says"),
    [
        ("fednoro", ClassLosses(4, np.ones(10), np.full(10, 9)), "90 samples, allowed: 40"),
        ("fednoro", ClassLosses(4, np.ones(3), np.array([10, 10, 20])), "3 classes, allowed: 10"),
        ("feddiv", LocalFilter(4, 40, None), "allowed: of the round's cohort"),
        ("rofl", Centroids(4, np.zeros((3, 8), np.float32), np.ones(3, bool)), "3 classes, allowed: 10"),
    ],
)
def test_a_view_that_no_run_leaves_is_refused(ground, finished, tmp_path, method, message, says):
    folder = shutil.copytree(finished(method=method, **SAID).folder, tmp_path / "run")
    cohort = finished(method=method, **SAID).rounds[4].cohort
    client = 77 if "cohort" in says else cohort[0]
    (folder / "view" / "round-0000004" / f"{type(message).__name__}.up.{client}").write_bytes(to_bytes(message))
    with pytest.raises(InputError, match=rf"^server view: .*round 4, client {client}: .*{says}"):
        know(folder)


@pytest.mark.slow
def test_an_update_of_a_client_that_was_not_drawn_is_refused(finished, tmp_path):
    result = finished(method="fedavg", **SAID | {"record_view": "all"})
    folder = shutil.copytree(result.folder, tmp_path / "run")
    place = folder / "view" / "round-0000004"
    shutil.copy(place / f"Update.up.{result.rounds[4].cohort[0]}", place / "Update.up.77")
    with pytest.raises(InputError, match=r"^server view: .*round 4, client 77: Update, allowed: of the round's cohort"):
        know(folder)


@pytest.mark.slow
def test_a_round_in_which_nobody_was_asked_leaves_the_model_as_it_was(finished, tmp_path):
    """FedCorr's stage 2 asks the clean clients alone, of whom a round may have none."""
    changes = {"warmup": 4, "finetuning_rounds": 14, "phi": 1.0, "cohort": 1, "record_view": "all"}
    result = finished(method="fedcorr", rounds=20, **changes)
    models = know(result.folder).models
    silent = [
        record.round for record in result.rounds if not (result.folder / "view" / f"round-{record.round:07d}").exists()
    ]
    assert silent and sorted(models) == list(range(21))
    for number in silent:
        assert all(np.array_equal(models[number][name], models[number + 1][name]) for name in models[number])
    folder = shutil.copytree(result.folder, tmp_path / "run")
    shutil.rmtree(folder / "view" / "round-0000002")  # in which somebody was asked
    with pytest.raises(InputError, match=r"holds no global model of round \[2\]"):
        know(folder)


def test_centroids_of_another_model_are_refused(finished, tmp_path):
    result = finished(method="rofl", **SAID)
    folder = shutil.copytree(result.folder, tmp_path / "run")
    message = Centroids(4, np.zeros((10, 3), np.float32), np.ones(10, bool))
    client = result.rounds[4].cohort[0]
    (folder / "view" / "round-0000004" / f"Centroids.up.{client}").write_bytes(to_bytes(message))
    with pytest.raises(InputError, match=rf"^client {client}: means of 3 features, allowed: "):
        attack(folder, ["means"])
