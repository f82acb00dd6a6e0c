"""FedNoRo: adjusted logits, vectors of class-wise losses, who is noisy, distillation, weights by distance, runs."""

import dataclasses
import math
import re

import numpy as np
import pytest
import tiny_client as tiny
import torch
import torch.nn.functional as F

from fedgr_secure.baseline_sections import FedNoRoConfig
from fedgr_secure.baselines.class_losses import (
    ClassLosses,
    Measure,
    check_said,
    class_vectors,
    distance_weights,
    noisy_clients,
)
from fedgr_secure.baselines.fednoro import FEDNORO, NoRoState, TrainAs, ramp
from fedgr_secure.baselines.logit_adjustment import AdjustedLoss, log_prior
from fedgr_secure.checks import check, unused
from fedgr_secure.context import ServerContext
from fedgr_secure.data.types import ArrayImages, Shard
from fedgr_secure.errors import CheckpointError, InputError
from fedgr_secure.federation.checkpoint import Checkpoints
from fedgr_secure.federation.cohort import Cohort
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.federation.loop import resume
from fedgr_secure.federation.view import ServerView, ViewRecorder
from fedgr_secure.messages import Update
from fedgr_secure.models.output import Output
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import FederationConfig
from fedgr_secure.wire import from_bytes, to_bytes
from privacy.channels.plain import PlainProxies

# adjusted logits


def test_the_prior_is_the_share_of_each_class_and_half_a_sample_of_an_absent_one():
    np.testing.assert_allclose(log_prior(np.array([0, 0, 0, 1]), 2), np.log([0.75, 0.25]), rtol=1e-6)
    np.testing.assert_allclose(log_prior(np.array([0, 0, 0, 1]), 3), np.log(np.array([3, 1, 0.5]) / 4.5), rtol=1e-6)
    assert log_prior(np.array([2]), 40).dtype == np.float32 and np.isfinite(log_prior(np.array([2]), 40)).all()


def loss_of(logits, labels, prior, weight=0.0, soft=None):
    batch = {"images": torch.zeros(len(labels), 1), "labels": torch.tensor(labels)}
    batch |= {} if soft is None else {"soft": torch.tensor(soft)}
    objective = AdjustedLoss(torch.tensor(prior), weight)
    return objective({}, batch, lambda images: Output(torch.tensor(logits), images)).item()


def test_the_adjusted_loss_by_hand():
    # with equal logits the prediction is the prior itself: -log 0.75 and -log 0.25
    prior = [math.log(0.75), math.log(0.25)]
    assert loss_of([[0.0, 0.0]], [0], prior) == pytest.approx(-math.log(0.75), rel=1e-6)
    assert loss_of([[1.0, 1.0], [2.0, 2.0]], [0, 1], prior) == pytest.approx(
        -(math.log(0.75) + math.log(0.25)) / 2, rel=1e-6
    )
    # logits (0, ln 3) undo the prior 3 : 1
    assert loss_of([[0.0, math.log(3)]], [0], prior) == pytest.approx(math.log(2), rel=1e-6)


def test_the_distillation_by_hand():
    # adjusted prediction (1/2, 1/2); KL((0.9, 0.1) || (1/2, 1/2)) = 0.9 ln 1.8 + 0.1 ln 0.2
    prior, logits = [math.log(0.75), math.log(0.25)], [[0.0, math.log(3)]]
    divergence = 0.9 * math.log(1.8) + 0.1 * math.log(0.2)
    for weight in (0.0, 0.3, 1.0):
        expected = (1 - weight) * math.log(2) + weight * divergence
        assert loss_of(logits, [0], prior, weight, [[0.9, 0.1]]) == pytest.approx(expected, rel=1e-5)
    assert loss_of(logits, [0], prior, 1.0, [[1.0, 0.0]]) == pytest.approx(math.log(2), rel=1e-5)  # 0 ln 0 is 0


@pytest.mark.parametrize(("step", "value"), [(0, math.exp(-5)), (5, math.exp(-1.25)), (10, 1.0), (40, 1.0)])
def test_the_ramp(step, value):
    assert ramp(step, 10) == pytest.approx(value, rel=1e-12)


# one client


def context(labels, *, norm="group", warmup=4, rounds=15, **settings):
    own = Shard(3, np.arange(len(labels)), np.array(labels), ArrayImages(tiny.pictures(len(labels))))
    run = tiny.config(epochs=2, fednoro=FedNoRoConfig(**settings))
    run = dataclasses.replace(run, federation=FederationConfig(warmup=warmup, rounds=rounds))
    return tiny.context(run, own=own, norm=norm)


def test_a_client_says_its_mean_loss_of_each_class():
    own = context([0, 0, 1, 0])
    weights = tiny.shifted(own.bench.weights(), 0.5)
    said = FEDNORO.client(own, None).answer(Measure(3, weights))
    logits = own.bench.predict(weights, own.shard.images()).logits.double()
    losses = -F.log_softmax(logits, 1)[torch.arange(4), torch.tensor([0, 0, 1, 0])].numpy()
    np.testing.assert_allclose(said.losses, [(losses[0] + losses[1] + losses[3]) / 3, losses[2], 0.0], rtol=1e-12)
    assert said.counts.tolist() == [3, 1, 0] and said.round == 3
    again = from_bytes(to_bytes(said), FEDNORO.messages)
    assert np.array_equal(again.losses, said.losses) and np.array_equal(again.counts, said.counts)


def test_a_loss_that_is_no_number_counts_as_a_large_one():
    said = ClassLosses.of(0, np.array([np.inf, np.nan, 1.0]), np.array([0, 1, 2]), 3)
    assert np.isfinite(said.losses).all() and said.losses[:2].min() > 1e38 and said.losses[2] == 1.0


@pytest.mark.parametrize(
    ("losses", "counts", "words"),
    [
        ([-1.0, 1.0], [1, 1], "losses"),
        ([np.nan, 1.0], [1, 1], "losses"),
        ([1e40, 1.0], [1, 1], re.escape("losses: float64[2], allowed: a number from 0 to 1e+39 a class")),
        ([1.0], [1, 1], "losses"),
        ([1.0, 1.0], [1, -1], "counts"),
        ([0.0, 0.0], [0, 0], "counts: 0 samples"),
        ([1.0, 1.0], [1, 0], "0 for a class without samples"),
    ],
)
def test_what_no_client_can_have_said_is_refused(losses, counts, words):
    with pytest.raises(ValueError, match=words):
        ClassLosses(0, np.array(losses), np.array(counts))


def task_of(own, *, round, noisy):
    weights = tiny.shifted(own.bench.weights(), 0.5)
    return FEDNORO.client(own, None).answer(TrainAs(round, weights, noisy)), weights


def test_a_clean_client_trains_on_its_given_labels_alone():
    own = context([0, 0, 1, 0])
    task, weights = task_of(own, round=9, noisy=False)
    assert (task.client, task.round, task.view, task.epochs) == (3, 9, "plain", 2) and task.start is weights
    assert task.columns.keys() == {"labels"} and task.objective.weight == 0.0
    np.testing.assert_allclose(task.objective.log_prior, np.log(np.array([3, 1, 0.5]) / 4.5), rtol=1e-6)
    reply = task.finish(own.bench.train(task))
    assert isinstance(reply, Update) and (reply.round, reply.samples) == (9, 4)


@pytest.mark.parametrize(
    ("round", "settings", "weight"),
    [
        (4, {}, 0.8 * math.exp(-5)),  # the first after a warm-up of 4
        (9, {}, 0.8 * math.exp(-5 * 0.5**2)),  # half way to the last, 14
        (14, {}, 0.8),
        (9, {"distillation_rounds": 5}, 0.8),
        (14, {"distillation_weight": 0.4}, 0.4),
    ],
)
def test_a_noisy_client_leans_on_the_global_model_more_and_more(round, settings, weight):
    own = context([0, 0, 1, 0], **settings)
    task, weights = task_of(own, round=round, noisy=True)
    assert task.objective.weight == pytest.approx(weight, rel=1e-12)
    logits = own.bench.predict(weights, own.shard.images()).logits
    torch.testing.assert_close(task.columns["soft"], F.softmax(logits / 0.8, 1))


def test_a_stage_of_one_round_has_a_weight():
    task, _ = task_of(context([0, 1], warmup=4, rounds=5), round=4, noisy=True)
    assert task.objective.weight == pytest.approx(0.8 * math.exp(-5))


@pytest.mark.parametrize("labels", [[1, 1], [0, 1, 2, 0, 1], [2] * 9], ids=str)  # batches of 4: also of one sample
@pytest.mark.parametrize("noisy", [False, True])
def test_absent_classes_and_small_batches_train_with_batch_norm(labels, noisy):
    own = context(labels, norm="batch")
    task, _ = task_of(own, round=14, noisy=noisy)
    assert all(np.isfinite(value).all() for value in own.bench.train(task).values())


# who is noisy


def test_the_vectors_by_hand():
    # class 0: 1, 3, 2 -> 0, 1, 1/2; class 1: client 1 lacks it and gets the least, 4: 0, 0, 1; class 2: constant;
    # class 3: nobody has it
    losses = np.array([[1.0, 4.0, 7.0, 0.0], [3.0, 0.0, 7.0, 0.0], [2.0, 6.0, 7.0, 0.0]])
    counts = np.array([[5, 1, 1, 0], [5, 0, 1, 0], [5, 2, 1, 0]])
    expected = [[0, 0, 0, 0], [1, 0, 0, 0], [0.5, 1, 0, 0]]
    np.testing.assert_allclose(class_vectors(losses, counts), expected, rtol=1e-12)


def test_the_clients_with_larger_losses_are_noisy():
    draw = np.random.default_rng(0)
    noisy = np.array([True, False] * 10)
    vectors = np.clip(draw.normal(np.where(noisy, 0.8, 0.2)[:, None], 0.05, (20, 5)), 0, 1)
    assert (noisy_clients(vectors, range(9)) == noisy).all()
    assert (noisy_clients(1 - vectors, range(9)) == ~noisy).all()


@pytest.mark.parametrize("vectors", [np.zeros((6, 3)), np.full((2, 4), 0.5), np.array([[0.2, 0.9]])], ids=str)
def test_nobody_is_noisy_where_nothing_tells_clients_apart(vectors):
    assert not noisy_clients(vectors, range(9)).any()


def test_two_clients_can_be_told_apart():
    assert noisy_clients(np.array([[0.0, 0.0], [1.0, 1.0]]), range(9)).tolist() == [False, True]


def test_the_partition_that_most_fits_find_wins(monkeypatch):
    import sklearn.mixture

    class Fitted:
        def __init__(self, components, random_state):
            self.flip = random_state < 4  # 4 of 9 fits say the opposite
            self.means_ = np.array([[0.0], [1.0]])

        def fit(self, vectors):
            return self

        def predict(self, vectors):
            return (vectors[:, 0] > 0.5) ^ self.flip

    monkeypatch.setattr(sklearn.mixture, "GaussianMixture", Fitted)
    vectors = np.array([[0.1], [0.9], [0.8]])
    assert noisy_clients(vectors, range(9)).tolist() == [False, True, True]
    assert noisy_clients(vectors, range(7)).tolist() == [True, False, False]


# weights by distance


def updates(**of):
    """Updates by client number: samples and a model of two tensors."""
    return {int(c[1:]): Update(0, n, {"a": np.float32([x, 0]), "b": np.float32([[y]])}) for c, (n, x, y) in of.items()}


def test_the_weights_by_hand():
    # clean 0 at (0, 0) and 1 at (10, 0); noisy 2 at (3, 4): 5 from 0 and sqrt(65) from 1; noisy 3 at (10, 2): 2 from 1
    found = distance_weights(updates(c0=(10, 0, 0), c1=(20, 10, 0), c2=(30, 3, 4), c3=(40, 10, 2)), frozenset({2, 3}))
    assert found == pytest.approx({0: 10, 1: 20, 2: 30 * math.exp(-1), 3: 40 * math.exp(-2 / 5)})


def test_counters_have_no_distance():
    made = updates(c0=(10, 0, 0), c1=(10, 3, 4), c2=(10, 0, 10))
    for client, update in made.items():
        update.weights["steps"] = np.array(1000 * (client == 1))
    assert distance_weights(made, frozenset({1, 2})) == pytest.approx({0: 10, 1: 10 * math.exp(-0.5), 2: 10 / math.e})


@pytest.mark.parametrize("noisy", [{0, 1}, set(), {1}], ids=["all noisy", "all clean", "equal models"])
def test_without_a_distance_the_weights_are_fedavg_s(noisy):
    made = updates(c0=(10, 1, 1), c1=(30, 1, 1 if noisy == {1} else 5))
    assert distance_weights(made, frozenset(noisy)) == {0: 10, 1: 30}
    assert distance_weights({}, frozenset(noisy)) == {}


# the server

START = {"w": np.zeros(2, np.float32)}


class Clients:
    """Client k answers with losses and a model of its own."""

    def __init__(self, bad=()):
        self.bad, self.asked = bad, []

    def run(self, halves, messages, *, round):
        self.asked += [(round, client, message) for client, message in messages.items()]
        return {client: self.reply(client, message) for client, message in messages.items()}

    def reply(self, client, message):
        if isinstance(message, Measure):
            level = (3.0 if client in self.bad else 0.5) + 0.01 * client
            return ClassLosses(message.round, np.full(3, level), np.array([10 + client, 5, 5]))
        return Update(message.round, 20 + client, {"w": np.full(2, client, np.float32)})


def server(state=None, *, clients=4, cohort=2, warmup=5, rounds=20):
    run = dataclasses.replace(
        tiny.config(), federation=FederationConfig(clients=clients, cohort=cohort, warmup=warmup, rounds=rounds)
    )
    return FEDNORO.server(ServerContext(run, START, Randomness(0), PlainProxies()), state)


def play(subject, clients, *rounds):
    """Rounds as pairs of a number and a cohort."""
    for number, cohort in rounds:
        subject.round(number, Cohort(number, dict.fromkeys(cohort), clients, ViewRecorder(None)))


def test_every_client_is_measured_once_in_the_last_complete_sweep():
    subject, clients = server(), Clients(bad=(1, 2))  # sweeps of 2 rounds: rounds 0-1 and 2-3 are complete, 4 is not
    play(subject, clients, (0, (0, 1)), (1, (2, 3)), (2, (0, 2)), (3, (1, 3)), (4, (0, 3)), (5, (1, 2)), (6, (0, 1)))
    measured = [(round, client) for round, client, message in clients.asked if isinstance(message, Measure)]
    assert measured == [(2, 0), (2, 2), (3, 1), (3, 3)]
    roles = [(round, client, m.noisy) for round, client, m in clients.asked if isinstance(m, TrainAs)]
    assert not any(noisy for round, client, noisy in roles if round < 5)
    assert [role for role in roles if role[0] >= 5] == [(5, 1, True), (5, 2, True), (6, 0, False), (6, 1, True)]


def test_without_a_warmup_a_client_is_measured_when_it_first_comes():
    subject, clients = server(warmup=0), Clients(bad=(1,))
    play(subject, clients, (0, (0, 1)), (1, (1, 3)))
    assert [(r, c) for r, c, m in clients.asked if isinstance(m, Measure)] == [(0, 0), (0, 1), (1, 3)]


def test_the_average_is_by_distance_only_in_stage_two():
    subject, clients = server(warmup=2, clients=4, cohort=2), Clients(bad=(2,))
    play(subject, clients, (0, (0, 2)), (1, (1, 3)))
    np.testing.assert_allclose(subject.state.weights["w"], (21 * 1 + 23 * 3) / 44, rtol=1e-6)
    play(subject, clients, (2, (0, 2)))  # client 2 is the farthest: e^-1
    np.testing.assert_allclose(subject.state.weights["w"], 22 / math.e * 2 / (20 + 22 / math.e), rtol=1e-6)
    play(subject, clients, (3, (1, 3)))  # both clean
    np.testing.assert_allclose(subject.state.weights["w"], (21 * 1 + 23 * 3) / 44, rtol=1e-6)


def test_an_update_of_other_samples_than_were_counted_is_refused():
    class More(Clients):
        def reply(self, client, message):
            reply = super().reply(client, message)
            return dataclasses.replace(reply, samples=10**6) if isinstance(reply, Update) else reply

    with pytest.raises(InputError, match="client 0, round 0: an update of 1000000 samples, allowed: 20 as before"):
        play(server(warmup=0), More(), (0, (0, 1)))


def test_clients_speak_of_the_same_classes():
    class Fewer(Clients):
        def reply(self, client, message):
            reply = super().reply(client, message)
            return dataclasses.replace(reply, losses=reply.losses[:2], counts=reply.counts[:2]) if client else reply

    with pytest.raises(InputError, match=re.escape("class-wise losses: of [2, 3] classes, allowed: one number")):
        play(server(warmup=0), Fewer(), (0, (0, 1)))


def test_a_secure_sum_cannot_be_weighed_by_what_is_in_it():
    cohort = Cohort(0, {0: None, 1: None}, Clients(), ViewRecorder(None), secure=object())
    with pytest.raises(InputError, match="secagg: on, allowed: off"):
        cohort.average(TrainAs(0, START, False), START, weigh=lambda updates: {})


def said(**changes):
    values = {"losses": {"0": np.array([1.0, 0.0])}, "counts": {"0": np.array([4, 0])}} | changes
    return NoRoState(START, **values)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"counts": {}}, "losses, allowed: of the clients whose counts there are"),
        ({"losses": {"7": np.ones(2)}, "counts": {"7": np.array([2, 2])}}, "losses: client '7', allowed: 0 to 1"),
        ({"losses": {"0": np.array([np.nan, 0.0])}}, "client 0: losses"),
        ({"counts": {"0": np.array([5, 0])}}, "counts: client 0: 5 samples, allowed: 4"),
        (
            {
                "losses": {"0": np.array([1.0, 0.0]), "1": np.array([1.0])},
                "counts": {"0": np.array([4, 0]), "1": np.array([2])},
            },
            "class-wise losses: of [1, 2] classes",
        ),
    ],
)
def test_a_stored_state_that_no_run_wrote_is_refused(changes, words):
    FEDNORO.check_server(said(), [4, 2])
    state = said(**changes)
    with pytest.raises(InputError, match=re.escape(words)):
        check_said(state.losses, state.counts, [4, 2])


# runs

RUN = {"method": "fednoro", "warmup": 2, "rounds": 5}


def test_a_run_tells_what_it_gives_away_and_records_it(finished):
    result = finished(**RUN, record_view="uploads")
    losses, weights = result.summary.privacy
    assert losses.subject == "class-wise losses" and losses.epsilon is None and weights.channel == "plain"
    view = ServerView(result.folder / "view", FEDNORO.messages)
    seen = [message.client for number in view.rounds() for message in view.messages(number, [ClassLosses])]
    assert sorted(seen) == [0, 1, 2, 3] and set(view.senders(0, "ClassLosses")) <= {0, 1, 2, 3}
    plain = finished(method="fedavg", warmup=2, rounds=5).summary
    said = sum(path.stat().st_size for path in (result.folder / "view").rglob("ClassLosses.up.*"))
    assert said > 0 and result.summary.bytes_up == plain.bytes_up + said
    assert result.summary.client_updates == plain.client_updates


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 4], ids=["in the warm-up", "in stage two"])
def test_a_stopped_run_continues_to_the_same_bytes(stopped, finished, after):
    folder = stopped(after=after, checkpoint_every=1, **RUN)
    resume(folder)
    for name in ("rounds.jsonl", "weights.safetensors", "clients.json"):
        assert (folder / name).read_bytes() == (finished(**RUN).folder / name).read_bytes()


def test_a_checkpoint_with_another_client_s_counts_is_refused(stopped):
    folder = stopped(after=4, checkpoint_every=1, **RUN)
    checkpoints = Checkpoints(RunFolder(folder).checkpoints, NoRoState)
    path = checkpoints.server_file(4)
    state = from_bytes(path.read_bytes(), [NoRoState])
    path.write_bytes(to_bytes(dataclasses.replace(state, counts={c: n + 1 for c, n in state.counts.items()})))
    with pytest.raises(CheckpointError):
        resume(folder)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"dropout": 0.4}, {"norm": "batch"}, {"cohort": 4, "warmup": 0}], ids=str)
def test_other_surroundings(finished, changes):
    assert len(finished(**RUN | changes).rounds) == 5


def test_it_refuses_secure_sums_and_dp_sgd_by_name(tiny):
    check(tiny(method="fednoro"))
    with pytest.raises(InputError, match=r"secagg: on, allowed with method fednoro: off, by --no-secagg \(its server"):
        check(tiny(method="fednoro", secagg=True))
    with pytest.raises(InputError, match=r"weights_epsilon: 2\.0, allowed with method fednoro: none \(its mean"):
        check(tiny(method="fednoro", weights_epsilon=2.0))


def test_settings_without_effect_are_told(tiny):
    assert unused(tiny(method="fedavg", channel="histogram", distillation_weight=0.5)) == (
        "distillation_weight: 0.5 has no effect with method fedavg",
    )
