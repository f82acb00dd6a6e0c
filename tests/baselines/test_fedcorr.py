"""FedCorr: dimensions on known geometry, levels and relabelling, who trains when and from what, and whole runs."""

import dataclasses
import re

import numpy as np
import pytest
import tiny_client as tiny
import torch

from fedgr_secure.baseline_sections import FedCorrConfig
from fedgr_secure.baselines.correction import (
    LARGEST,
    AskDimension,
    CorrClientState,
    CorrState,
    Dimension,
    Estimate,
    NoiseLevel,
    TrainStage,
    larger_scored,
)
from fedgr_secure.baselines.dimension import intrinsic_dimensions, mean_dimension
from fedgr_secure.baselines.fedcorr import FEDCORR
from fedgr_secure.checks import check, unused
from fedgr_secure.context import ServerContext
from fedgr_secure.errors import InputError
from fedgr_secure.federation.cohort import Cohort
from fedgr_secure.federation.loop import resume
from fedgr_secure.federation.view import ServerView, ViewRecorder
from fedgr_secure.messages import Update
from fedgr_secure.method.sieve import fit_mixture, judge
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import FederationConfig
from fedgr_secure.wire import from_bytes, to_bytes
from privacy.channels.plain import PlainProxies

# dimensions


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_uniform_points_in_a_ball_have_its_dimension(dimension):
    draw = np.random.default_rng(dimension)
    directions = draw.normal(size=(4000, dimension))
    radii = draw.random((4000, 1)) ** (1 / dimension)
    points = radii * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    inside = radii[:, 0] < 0.6  # away from the border, where half of the neighbours are missing
    flat = np.hstack([points, np.zeros((4000, 3))])  # what space they lie in does not matter
    found = intrinsic_dimensions(flat, 20)[inside]
    # the reciprocals of the estimates have the mean (k - 1) / (k d) where the k-th point is one of the k
    assert 1 / np.mean(1 / found) == pytest.approx(dimension * 20 / 19, rel=0.08)


def test_a_dimension_by_hand():
    points = np.array([[0.0], [1.0], [2.0], [4.0]], np.float32)
    # from 0 at distances 1, 2, 4: -3 / (log 1/4 + log 1/2 + 0); from 2: 1, 2, 2: -3 / log 1/2
    found = intrinsic_dimensions(points, 3)
    assert found[0] == pytest.approx(1 / np.log(2)) and found[2] == pytest.approx(3 / np.log(2))
    assert intrinsic_dimensions(points, 99) == pytest.approx(found)
    # two neighbours: from 0 at 1, 2; from 1 at 1, 1, which say nothing; from 2 at 1, 2; from 4 at 2, 3
    two = intrinsic_dimensions(points, 2)
    assert np.isnan(two[1]) and two[[0, 2]] == pytest.approx(2 / np.log(2)) and two[3] == pytest.approx(2 / np.log(1.5))
    assert mean_dimension(points, 2) == pytest.approx((4 / np.log(2) + 2 / np.log(1.5)) / 3)


@pytest.mark.parametrize("points", [np.zeros((1, 2)), np.zeros((5, 2)), np.array([[0.0], [1.0]])], ids=len)
def test_points_that_say_nothing_have_the_least_dimension(points):
    assert mean_dimension(points.astype(np.float32), 20) == 0.0


def test_many_points_are_looked_at_in_parts():
    points = np.random.default_rng(0).random((700, 3)).astype(np.float32)
    far = np.linalg.norm(points[:, None].astype(np.float64) - points[None], axis=2)
    near = np.sort(far, axis=1)[:, 1:6]
    np.testing.assert_allclose(intrinsic_dimensions(points, 5), -1 / np.log(near / near[:, -1:]).mean(1), rtol=1e-9)


def test_the_clients_of_the_larger_mean_are_noisy():
    scores = {"3": (9.0, 3.0), "0": (2.0, 1.0), "11": (8.8, 2.0), "7": (4.3, 1.0), "2": (2.1, 1.0)}
    assert larger_scored({k: np.array(v) for k, v in scores.items()}, range(9)) == {11, 7}  # 3, 2, 4.4, 4.3, 2.1
    assert larger_scored({"0": np.array([2.0, 1.0]), "1": np.array([4.0, 2.0])}, range(9)) == set()
    assert larger_scored({}, range(9)) == set()


# one client


def context(count=40, *, norm="group", own=None, **settings):
    run = tiny.config(epochs=2, fedcorr=FedCorrConfig(**settings))
    return tiny.context(run, own=own or tiny.shard(count), norm=norm)


def half(own, state=None, size=1.0):
    return FEDCORR.client(own, state), tiny.shifted(own.bench.weights(), size)


def test_the_level_and_the_labels_of_a_noisy_client():
    own = context()
    client, weights = half(own)
    share = own.bench.predict(weights, own.shard.images()).probabilities()
    losses = own.bench.predict(weights, own.shard.images()).losses(own.shard.labels)
    seed = own.randomness.integer("client mixture", client=3, round=5)
    level = judge(fit_mixture(losses, seed=seed), losses).noise_rate
    said = client.answer(Estimate(5, weights))
    assert said == NoiseLevel(5, level) and 0 < level < 1
    expected = own.shard.labels.copy()
    worst = sorted(range(40), key=lambda sample: -losses[sample])[: int(40 * level * 0.5)]
    for sample in worst:
        if share[sample].max() > 0.5:
            expected[sample] = share[sample].argmax()
    assert client.state.labels.tolist() == expected.tolist() and (expected != own.shard.labels).any()
    task = client.answer(TrainStage(5, weights, 0.0, False))
    assert task.columns["labels"].tolist() == expected.tolist()
    again = FEDCORR.client(own, from_bytes(to_bytes(client.state), [CorrClientState]))
    assert again.state.labels.tolist() == expected.tolist()
    assert own.shard.labels.tolist() == tiny.shard(40).labels.tolist()  # the given ones are not written over


def test_no_sure_prediction_corrects_nothing():
    own = context(relabel_confidence=1.0)
    client, weights = half(own)
    client.answer(Estimate(5, weights))
    assert client.state.labels.tolist() == own.shard.labels.tolist()


def test_constant_losses_are_no_noise():
    own = context()
    zero = {name: np.zeros_like(value) for name, value in own.bench.weights().items()}
    client, _ = half(own)
    assert client.answer(Estimate(0, zero)).level == 0.0
    assert client.state.labels.tolist() == own.shard.labels.tolist()


def test_stage_three_corrects_all_sure_samples_once():
    own = context()
    client, weights = half(own)
    share = own.bench.predict(weights, own.shard.images()).probabilities()
    expected = np.where(share.max(1) > 0.5, share.argmax(1), own.shard.labels)
    task = client.answer(TrainStage(5, weights, 0.0, True))
    assert task.columns["labels"].tolist() == expected.tolist() and client.state.corrected
    later, _ = half(own, client.state)
    other = tiny.shifted(own.bench.weights(), 3.0)
    assert later.answer(TrainStage(9, other, 0.0, True)).columns["labels"].tolist() == expected.tolist()


def test_the_proximal_term_is_the_squared_distance():
    own = context()
    client, weights = half(own)
    task = client.answer(TrainStage(5, weights, 1.5, False))
    name = own.bench.trainable()[0]
    moved = {n: torch.from_numpy(weights[n]) for n in own.bench.trainable()}
    assert task.penalty(moved).item() == 0
    moved[name] = moved[name] + 2
    assert task.penalty(moved).item() == pytest.approx(1.5 * 4 * weights[name].size, rel=1e-5)
    assert client.answer(TrainStage(5, weights, 0.0, False)).penalty is None


def test_the_dimension_is_of_the_trained_model_s_predictions():
    own = context()
    client, weights = half(own)
    with pytest.raises(InputError, match="client 3, round 5: no dimension before a training"):
        client.answer(AskDimension(5))
    task = client.answer(TrainStage(5, weights, 0.0, False))
    assert (task.client, task.round, task.epochs, task.view) == (3, 5, 2, "plain") and task.start is weights
    trained = own.bench.train(task)
    reply = task.finish(trained)
    assert isinstance(reply, Update) and reply.samples == 40
    share = own.bench.predict(trained, own.shard.images()).probabilities()
    assert client.answer(AskDimension(5)) == Dimension(5, mean_dimension(share, 20))


@pytest.mark.parametrize("samples", [2, 5, 9])  # batches of 4: also of one sample
def test_small_clients_of_one_class_train_with_batch_norm(samples):
    own = context(norm="batch", own=dataclasses.replace(tiny.shard(samples), labels=np.ones(samples, np.int64)))
    client, weights = half(own, size=0.3)
    client.answer(Estimate(5, weights))
    trained = own.bench.train(client.answer(TrainStage(5, weights, 0.5, True)))
    assert all(np.isfinite(value).all() for value in trained.values())


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan])
def test_what_no_client_can_say_is_refused(bad):
    with pytest.raises(ValueError, match="level"):
        NoiseLevel(0, bad)
    with pytest.raises(ValueError, match="mean"):
        Dimension(0, -1.0 if bad == 1.1 else min(bad, -0.1))


def test_a_dimension_that_no_distances_have_is_refused():
    """A mixture squares it: one client's 1e160 would stop everybody's run."""
    close = np.nextafter(np.float32(1), np.float32(2))  # all but equally far
    line = np.array([[0.0], [1.0], [-1.0], [close]], np.float32)
    assert 1e6 < np.nanmax(intrinsic_dimensions(line, 3)) < LARGEST
    with pytest.raises(ValueError, match=re.escape("mean: 1e+160, allowed: from 0 to 1e+30")):
        Dimension(0, 1e160)
    said = {str(client): np.array([value, 1.0]) for client, value in enumerate((1.0, 2.0, LARGEST))}
    assert larger_scored(said, range(9)) == {2}


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_a_client_is_not_driven_away_from_what_it_receives(bad):
    with pytest.raises(ValueError, match=r"proximal: .*, allowed: a finite number from 0"):
        TrainStage(0, {}, bad, False)


# the server

START = {"w": np.zeros(1, np.float32)}


class Clients:
    """Client k adds k + 1 to the model it is given; the bad ones have larger dimensions and the level 0.6."""

    def __init__(self, bad=(), mild=()):
        self.bad, self.mild, self.asked = bad, mild, []

    def run(self, halves, messages, *, round):
        self.asked += [(round, client, message) for client, message in messages.items()]
        return {client: self.reply(client, message) for client, message in messages.items()}

    def reply(self, client, message):
        if isinstance(message, Estimate):
            return NoiseLevel(message.round, 0.05 if client in self.mild else 0.6)
        if isinstance(message, AskDimension):
            return Dimension(message.round, (5.0 if client in self.bad else 2.0) + 0.01 * client)
        return Update(message.round, 10, {"w": message.weights["w"] + np.float32(client + 1)})


def server(*, warmup=4, rounds=12, **settings):
    run = tiny.config(fedcorr=FedCorrConfig(**settings))
    run = dataclasses.replace(run, federation=FederationConfig(clients=4, cohort=2, warmup=warmup, rounds=rounds))
    return FEDCORR.server(ServerContext(run, START, Randomness(0), PlainProxies()), None)


def play(subject, clients, *rounds, **how):
    for number, cohort in rounds:
        subject.round(number, Cohort(number, dict.fromkeys(cohort), clients, ViewRecorder(None), **how))


SWEEPS = ((0, (0, 1)), (1, (2, 3)), (2, (0, 2)), (3, (1, 3)))


def of(clients, kind):
    return [(number, client, message) for number, client, message in clients.asked if isinstance(message, kind)]


def test_in_stage_one_each_starts_where_the_one_before_ended():
    subject, clients = server(), Clients()
    play(subject, clients, (0, (0, 1, 2, 3)))
    tasks = of(clients, TrainStage)
    total = 0
    for _, client, message in tasks:
        assert message.weights["w"].tolist() == [total] and (message.proximal, message.relabel) == (0.0, False)
        total += client + 1
    assert subject.state.weights["w"].tolist() == [10] and {client for _, client, _ in tasks} == {0, 1, 2, 3}
    orders = set()
    for number in range(9):
        clients.asked.clear()
        play(subject, clients, (number % 4, (0, 1, 2, 3)))
        orders.add(tuple(client for _, client, _ in of(clients, TrainStage)))
    assert len(orders) > 1


def test_the_second_sweep_holds_and_relabels_the_noisy_clients():
    subject, clients = server(), Clients(bad=(1, 2))
    play(subject, clients, *SWEEPS)
    assert {(number, client) for number, client, _ in of(clients, Estimate)} == {(2, 2), (3, 1)}
    held = {(number, client): message.proximal for number, client, message in of(clients, TrainStage)}
    assert held == pytest.approx({key: 5.0 * 0.6 * (key in {(2, 2), (3, 1)}) for key in held})
    assert subject.state.dimensions["2"].tolist() == [pytest.approx(2 * 5.02), 2.0]
    for number, client, message in of(clients, Estimate):  # under the model that the client also trains from
        (task,) = [m for r, c, m in of(clients, TrainStage) if (r, c) == (number, client)]
        assert message.weights["w"] == task.weights["w"]


def test_the_stages():
    subject, clients = server(), Clients(bad=(1, 2), mild=(2,))
    play(subject, clients, *SWEEPS)
    clients.asked.clear()
    play(subject, clients, (4, (0, 1)), (5, (1, 2)), (6, (1, 2)), (7, (0, 3)), (8, (0, 1)), (11, (1, 2)))
    assert [(r, c) for r, c, _ in of(clients, Estimate)] == [(4, 1), (5, 2)]  # once each
    trained = [(r, c, m.relabel, m.proximal) for r, c, m in of(clients, TrainStage)]
    tuned = [(4, 0, False, 0.0), (5, 2, False, 0.0), (6, 2, False, 0.0), (7, 0, False, 0.0), (7, 3, False, 0.0)]
    assert trained == [*tuned, (8, 0, False, 0.0), (8, 1, True, 0.0), (11, 1, True, 0.0), (11, 2, True, 0.0)]


def test_the_length_of_stage_two_can_be_given():
    subject, clients = server(finetuning_rounds=1), Clients(bad=(1, 2))
    play(subject, clients, *SWEEPS)
    play(subject, clients, (4, (0, 1)), (5, (0, 1)))
    assert [(r, c) for r, c, _ in of(clients, TrainStage) if r > 3] == [(4, 0), (5, 0), (5, 1)]


def test_a_round_of_stage_two_without_a_clean_client_changes_nothing():
    subject, clients = server(), Clients(bad=(1, 2))
    play(subject, clients, *SWEEPS)
    before = subject.state.weights["w"].copy()
    play(subject, clients, (4, (1, 2)))
    assert subject.state.weights["w"] == before and not [r for r, _, _ in of(clients, TrainStage) if r == 4]


def test_in_stage_two_the_survivors_are_those_that_were_to_train():
    subject, clients = server(), Clients(bad=(1, 2))
    play(subject, clients, *SWEEPS)
    for gone, stays in ((None, (0, 3)), (3, (0,)), (1, (0, 3))):
        cohort = Cohort(
            4,
            dict.fromkeys((0, 1, 3)),
            clients,
            ViewRecorder(None),
            vanishes=lambda client, phase, gone=gone: client == gone,
        )
        subject.round(4, cohort)
        assert cohort.survivors == stays


@pytest.mark.parametrize("warmup", [0, 1])
def test_clients_that_were_never_scored_are_clean(warmup):
    subject, clients = server(warmup=warmup), Clients(bad=(1, 2))
    play(subject, clients, *((number, (0, 1)) for number in range(3)))
    assert not of(clients, Estimate) or warmup
    assert len([1 for r, _, _ in of(clients, TrainStage) if r == 2]) >= 1


def test_a_client_that_vanishes_hands_nothing_on():
    subject, clients = server(), Clients()
    play(subject, clients, (0, (0, 1, 2)), vanishes=lambda client, phase: client == 1)
    assert subject.state.weights["w"].tolist() == [4] and subject.state.dimensions.keys() == {"0", "2"}


def test_the_survivors_of_a_round_are_those_of_all_its_averages():
    cohort = Cohort(0, dict.fromkeys((0, 1, 2)), Clients(), ViewRecorder(None), vanishes=lambda c, phase: c == 1)
    server().round(0, cohort)
    assert cohort.survivors == (0, 2) and cohort.updates == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dimensions": {"7": np.array([2.0, 1.0])}}, "scores: client '7', allowed: 0 to 1"),
        ({"dimensions": {"0": np.array([2.0])}}, "dimensions: client 0"),
        ({"dimensions": {"0": np.array([np.nan, 1.0])}}, "dimensions: client 0"),
        ({"dimensions": {"0": np.array([1.0, 0.0])}}, "dimensions: client 0"),
        ({"dimensions": {"0": np.array([1e31, 1.0])}}, "dimensions: client 0"),
        ({"levels": {"1": np.array(1.5)}}, "levels: client 1, allowed: from 0 to 1"),
        ({"levels": {"1": np.array([0.5])}}, "levels: client 1"),
    ],
)
def test_a_stored_server_state_that_no_run_wrote_is_refused(changes, words):
    state = CorrState(START, {"0": np.array([2.0, 1.0])}, {"1": np.array(0.5)})
    FEDCORR.check_server(state, [4, 2])
    with pytest.raises(InputError, match=re.escape(words)):
        FEDCORR.check_server(dataclasses.replace(state, **changes), [4, 2])


@pytest.mark.parametrize(
    ("labels", "words"),
    [([0, 1], "labels: int64[2], allowed: int64[3]"), ([0, 1, 3], "labels, allowed: 0 to 2"), ([0.0, 1, 2], "float64")],
)
def test_stored_labels_that_no_client_wrote_are_refused(labels, words):
    FEDCORR.check_client(CorrClientState(np.array([0, 1, 2]), False), context(3))
    with pytest.raises(InputError, match=re.escape(words)):
        FEDCORR.check_client(CorrClientState(np.array(labels), False), context(3))


# runs

RUN = {"method": "fedcorr", "warmup": 4, "rounds": 8}


def test_a_run_tells_what_it_gives_away_and_records_it(finished):
    result = finished(**RUN, record_view="uploads")
    scores, weights = result.summary.privacy
    assert scores.subject == "noise scores" and scores.epsilon is None and weights.channel == "plain"
    view = ServerView(result.folder / "view", FEDCORR.messages)
    assert [view.senders(number, "Dimension") for number in range(4)] == [set(r.cohort) for r in result.rounds[:4]]
    assert [record.client_updates for record in result.rounds[:4]] == [2] * 4  # no more than any other method
    assert all(record.client_updates <= 2 for record in result.rounds)


@pytest.mark.slow
@pytest.mark.parametrize("after", [3, 5, 7])
def test_a_stopped_run_continues_to_the_same_bytes(stopped, finished, after):
    folder = stopped(after=after, checkpoint_every=1, **RUN)
    resume(folder)
    for name in ("rounds.jsonl", "weights.safetensors", "clients.json"):
        assert (folder / name).read_bytes() == (finished(**RUN).folder / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"dropout": 0.5}, {"norm": "batch"}, {"warmup": 0}], ids=str)
def test_other_surroundings(finished, changes):
    assert len(finished(**RUN | changes).rounds) == 8


def test_settings(tiny):
    check(tiny(method="fedcorr"))
    with pytest.raises(InputError, match=r"secagg: on, allowed with method fedcorr: off, by --no-secagg \(its first"):
        check(tiny(method="fedcorr", secagg=True))
    with pytest.raises(InputError, match=r"weights_epsilon: 2\.0, allowed with method fedcorr: none \(its scores"):
        check(tiny(method="fedcorr", weights_epsilon=2.0))
    assert unused(tiny(method="fedavg", channel="histogram", relabel_ratio=0.7)) == (
        "relabel_ratio: 0.7 has no effect with method fedavg",
    )
