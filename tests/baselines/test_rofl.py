"""RoFL: centroids and how they move, which labels stand, the loss by hand, the server, and whole runs."""

import dataclasses
import math
import re

import numpy as np
import pytest
import tiny_client as tiny
import torch

from fedgr_secure.baseline_sections import RoFLConfig
from fedgr_secure.baselines.centroids import (
    AskCentroids,
    Centroids,
    LocalCentroids,
    TrainNear,
    class_means,
    mean_centroids,
    nearest,
)
from fedgr_secure.baselines.rofl import ROFL, RobustLoss, RoFLState
from fedgr_secure.checks import check, unused
from fedgr_secure.context import ServerContext
from fedgr_secure.errors import InputError
from fedgr_secure.federation.cohort import Cohort
from fedgr_secure.federation.loop import resume
from fedgr_secure.federation.view import ServerView, ViewRecorder
from fedgr_secure.messages import Update
from fedgr_secure.models.output import Output
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import FederationConfig
from fedgr_secure.wire import from_bytes, to_bytes
from privacy.channels.plain import PlainProxies

NONE = (np.zeros((0, 0), np.float32), np.zeros(0, bool))


def t(*rows):
    return torch.tensor(rows)


# centroids


def test_class_means_by_hand():
    means, found = class_means(t([1.0, 0.0], [3.0, 2.0], [5.0, 5.0]), t(2, 2, 0), 4)
    assert means.tolist() == [[5, 5], [0, 0], [2, 1], [0, 0]] and found.tolist() == [True, False, True, False]


def test_a_centroid_moves_by_the_squared_cosine():
    # class 0: cos((1, 0), (3, 4)) = 0.6: 0.64 * (1, 0) + 0.36 * (3, 4). Class 1 is orthogonal and stays, 2 is new.
    # Class 3 has no sample, and class 4 was never there.
    local = LocalCentroids(
        t([1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [7.0, 7.0], [0.0, 0.0]), t(True, True, False, True, False)
    )
    local.follow(t([2.0, 4.0], [4.0, 4.0], [0.0, 9.0], [2.0, 3.0]), t(0, 0, 1, 2))
    np.testing.assert_allclose(local.values, [[1.72, 1.44], [1, 0], [2, 3], [7, 7], [0, 0]], rtol=1e-6)
    assert local.present.tolist() == [True, True, True, True, False]


def test_the_distance_to_a_centroid_by_hand():
    local = LocalCentroids(t([1.0, 0.0], [9.0, 9.0]), t(True, False))
    assert local.squares(t([4.0, 4.0], [4.0, 4.0]), t(0, 1)).tolist() == [(9 + 16) / 2, 0.0]


def test_the_nearest_is_by_angle_and_present():
    values = t([10.0, 0.0], [0.0, 1.0], [1.0, 1.0])
    features = t([1.0, 0.1], [0.1, 1.0], [2.0, 2.1])
    assert nearest(features, values, t(True, True, True)).tolist() == [0, 1, 2]
    assert nearest(features, values, t(True, False, False)).tolist() == [0, 0, 0]
    assert nearest(features, -values, t(False, True, False)).tolist() == [1, 1, 1]


def sent(values, present):
    return Centroids(0, np.array(values, np.float32), np.array(present))


def test_the_global_centroids_by_hand():
    values, present = np.array([[1, 0], [1, 0], [5, 5], [0, 0]], np.float32), np.array([True, True, True, False])
    one = sent([[3, 4], [-1, 0], [0, 0], [1, 3]], [True, True, False, True])
    other = sent([[2, 0], [0, -2], [0, 0], [3, 3]], [True, True, False, True])
    found, has = mean_centroids(values, present, {0: one, 4: other})
    # class 0: similarities 0.6 and 1: (0.6 * (3, 4) + (2, 0)) / 1.6. Class 1: opposite and orthogonal, the plain mean.
    # Class 2: nobody has it. Class 3: there was none, the plain mean of (1, 3) and (3, 3)
    expected = [[3.8 / 1.6, 2.4 / 1.6], [-0.5, -1], [5, 5], [2, 3]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert has.all() and found.dtype == np.float32


def test_a_centroid_that_points_away_does_not_count():
    former = np.array([[1, 0]], np.float32), np.array([True])
    found, _ = mean_centroids(*former, {0: sent([[2, 0]], [True]), 1: sent([[-3, 4]], [True])})  # 1 and -0.6
    np.testing.assert_allclose(found, [[2, 0]], rtol=1e-6)


def test_the_first_global_centroids_are_plain_means():
    one, other = (
        sent([[1, 0], [0, 0], [0, 0]], [True, False, False]),
        sent([[3, 2], [7, 7], [0, 0]], [True, True, False]),
    )
    found, has = mean_centroids(*NONE, {0: one, 1: other})
    assert found.tolist() == [[2, 1], [7, 7], [0, 0]] and has.tolist() == [True, True, False]
    again, still = mean_centroids(found, has, {})
    assert again is found and still is has


def test_centroids_of_other_shapes_are_refused():
    one, other = sent([[1, 0]], [True]), sent([[1, 0], [1, 0]], [True, True])
    with pytest.raises(InputError, match=re.escape("centroids: of shapes [(1, 2), (2, 2)], allowed: one shape")):
        mean_centroids(*NONE, {0: one, 1: other})
    with pytest.raises(InputError, match="one shape"):
        mean_centroids(other.values, other.present, {0: one})


@pytest.mark.parametrize(
    ("values", "present", "words"),
    [
        (np.zeros(2, np.float32), [True, True], "centroids: float32"),
        (np.zeros((2, 2)), [True, True], "centroids: float64"),
        (np.full((2, 2), np.nan, np.float32), [True, True], "finite"),
        (np.zeros((2, 2), np.float32), [True], "centroids: float32"),
        (np.ones((2, 2), np.float32), [True, False], "0 for an absent class"),
    ],
)
def test_what_is_no_centroid_is_refused(values, present, words):
    with pytest.raises(ValueError, match=words):
        Centroids(0, values, np.array(present))
    with pytest.raises(InputError, match=words):
        ROFL.check_server(RoFLState({}, values, np.array(present)), [4])


# the loss


def robust(features, given, predicted, *, forget=0.0, cen=0.0, entropy=0.0, replaces=False, anchors=None, local=None):
    """Over a network whose logits are its features; loss, the features' gradient, the centroids afterwards."""
    features = torch.tensor(features, requires_grad=True)
    width = features.shape[1]
    local = local or LocalCentroids(torch.zeros(width, width), torch.zeros(width, dtype=torch.bool))
    anchors = anchors or (torch.zeros(width, width), torch.zeros(width, dtype=torch.bool))
    objective = RobustLoss(forget, cen, entropy, local, anchors, replaces)
    batch = {"images": features, "labels": torch.tensor(given), "predicted": torch.tensor(predicted)}
    loss = objective({}, batch, lambda images: Output(images, images))
    loss.backward()
    return loss.item(), features.grad, objective.local


def nats(margin):
    return math.log(1 + math.exp(-margin))


def test_only_small_losses_teach():
    loss, gradient, local = robust([[3.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [-2.0, 0.0]], [0] * 4, [1] * 4, forget=0.5)
    assert loss == pytest.approx((nats(3) + nats(0)) / 2, rel=1e-6)
    assert gradient[2:].abs().sum() == 0 and gradient[0, 0] < 0
    assert local.values.tolist() == [[1.5, 0], [0, 0]] and local.present.tolist() == [True, False]


def test_labels_that_the_global_centroid_contradicts_are_replaced():
    anchors = (torch.eye(3), t(True, True, False))
    # sample 0 agrees, sample 1 is nearer to class 0 than to its class 1, sample 2's class 2 has no global centroid
    features, given, predicted = [[2.0, 0.0, 0.0], [2.0, 0.0, 0.0], [2.0, 0.0, 0.0]], [0, 1, 2], [2, 0, 0]
    first, other = math.log(1 + 2 * math.exp(-2)), math.log(math.exp(2) + 2)
    replaced, _, _ = robust(features, given, predicted, replaces=True, anchors=anchors)
    assert replaced == pytest.approx((first + first + other) / 3, rel=1e-6)
    kept, _, _ = robust(features, given, predicted, replaces=False, anchors=anchors)
    assert kept == pytest.approx((first + other + other) / 3, rel=1e-6)
    unknown, _, _ = robust(features, given, predicted, replaces=True)
    assert unknown == pytest.approx(kept, rel=1e-6)


def test_the_centroid_term_by_hand_moves_the_features():
    local = LocalCentroids(t([1.0, 0.0], [0.0, 0.0]), t(True, False))
    plain, without, _ = robust([[3.0, 4.0]], [0], [0], local=dataclasses.replace(local))
    loss, gradient, _ = robust([[3.0, 4.0]], [0], [0], cen=0.5, local=dataclasses.replace(local))
    assert loss - plain == pytest.approx(0.5 * (4 + 16) / 2, rel=1e-5)
    np.testing.assert_allclose(gradient - without, [[0.5 * 2, 0.5 * 4]], rtol=1e-5)  # w (f - c) 2 / 2


def test_the_entropy_by_hand():
    plain, _, _ = robust([[math.log(3), 0.0]], [0], [0])
    loss, _, _ = robust([[math.log(3), 0.0]], [0], [0], entropy=0.8)
    assert loss - plain == pytest.approx(0.8 * (0.75 * math.log(4 / 3) + 0.25 * math.log(4)), rel=1e-5)


# one client


def context(count=12, *, norm="group", rounds=30, own=None, **settings):
    run = tiny.config(epochs=2, rofl=RoFLConfig(**settings))
    run = dataclasses.replace(run, federation=FederationConfig(rounds=rounds, warmup=0))
    return tiny.context(run, own=own or tiny.shard(count), norm=norm)


def task_of(own, round=9, anchors=NONE):
    weights = tiny.shifted(own.bench.weights(), 0.5)
    client = ROFL.client(own, None)
    return client, client.answer(TrainNear(round, weights, *anchors)), weights


def test_the_task_of_a_client():
    own = context()
    client, task, weights = task_of(own)
    seen = own.bench.predict(weights, own.shard.images())
    assert task.columns["labels"].tolist() == own.shard.labels.tolist()
    assert task.columns["predicted"].tolist() == seen.logits.argmax(1).tolist()
    assert (task.client, task.round, task.epochs, task.view) == (3, 9, 2, "plain") and task.start is weights
    for number in range(3):
        mean = seen.features[own.shard.labels == number].mean(0)
        torch.testing.assert_close(task.objective.local.values[number], mean)
    reply = task.finish(own.bench.train(task))
    assert isinstance(reply, Update) and (reply.round, reply.samples) == (9, 12)
    said = client.answer(AskCentroids(9))
    assert np.array_equal(said.values, task.objective.local.values.numpy()) and said.present.all()
    again = from_bytes(to_bytes(said), ROFL.messages)
    assert np.array_equal(again.values, said.values) and np.array_equal(again.present, said.present)


def test_a_client_starts_from_the_global_centroids_where_there_are_any():
    own = context(own=dataclasses.replace(tiny.shard(12), labels=np.zeros(12, np.int64)))
    width = own.bench.predict(own.bench.weights(), own.shard.images()).features.shape[1]
    values, present = np.zeros((3, width), np.float32), np.array([False, True, False])
    values[1] = 7
    client, task, weights = task_of(own, anchors=(values, present))
    mean = own.bench.predict(weights, own.shard.images()).features.mean(0)
    torch.testing.assert_close(task.objective.local.values[0], mean)
    assert task.objective.local.values[1].tolist() == [7.0] * width
    assert task.objective.local.present.tolist() == [True, True, False]  # class 2 is absent everywhere
    own.bench.train(task)
    said = client.answer(AskCentroids(9))
    assert said.present.tolist() == [True, True, False] and not said.values[2].any()


@pytest.mark.parametrize(
    ("round", "settings", "cen", "replaces", "forget"),
    [
        (0, {}, 0.0, False, 0.0),
        (1, {}, 1 / 3, False, 0.02),  # a tenth of 30 rounds is 3
        (3, {}, 1.0, True, 0.06),
        (29, {}, 1.0, True, 0.2),
        (5, {"pseudo_after": 10, "lambda_cen": 0.4}, 0.2, False, 0.1),
        (0, {"pseudo_after": 0}, 1.0, True, 0.0),
    ],
)
def test_the_schedules(round, settings, cen, replaces, forget):
    objective = task_of(context(**settings), round)[1].objective
    assert (objective.cen, objective.forget) == pytest.approx((cen, forget))
    assert objective.replaces == replaces and objective.entropy == 0.8


def test_global_centroids_of_another_model_are_refused():
    own = context()
    anchors = np.ones((2, 5), np.float32), np.ones(2, bool)
    with pytest.raises(InputError, match=r"centroids: float32\[2, 5\], allowed: float32\[3, "):
        task_of(own, anchors=anchors)


def test_centroids_come_after_a_training():
    with pytest.raises(InputError, match="client 3, round 2: no centroids before a training"):
        ROFL.client(context(), None).answer(AskCentroids(2))


@pytest.mark.parametrize("samples", [2, 5, 9])  # batches of 4: also of one sample
def test_small_clients_train_with_batch_norm(samples):
    own = context(samples, norm="batch")
    _, task, _ = task_of(own)
    assert all(np.isfinite(value).all() for value in own.bench.train(task).values())


def test_constant_losses_and_features_stay_finite():
    own = context()
    zero = {name: np.zeros_like(value) for name, value in own.bench.weights().items()}
    task = ROFL.client(own, None).answer(TrainNear(9, zero, *NONE))
    assert all(np.isfinite(value).all() for value in own.bench.train(task).values())


# the server


def test_those_whose_update_arrived_are_asked_for_centroids():
    start, asked = {"w": np.zeros(2, np.float32)}, []

    class Clients:
        def run(self, halves, messages, *, round):
            asked.extend((client, type(message).__name__) for client, message in messages.items())
            return {client: self.reply(client, message) for client, message in messages.items()}

        def reply(self, client, message):
            if isinstance(message, TrainNear):
                return Update(message.round, 10, {"w": np.full(2, client, np.float32)})
            return dataclasses.replace(sent([[client, 1]], [True]), round=message.round)

    subject = ROFL.server(ServerContext(tiny.config(), start, Randomness(0), PlainProxies()), None)
    cohort = Cohort(
        0, dict.fromkeys((1, 2, 4)), Clients(), ViewRecorder(None), vanishes=lambda client, phase: client == 2
    )
    subject.round(0, cohort)
    assert asked == [(1, "TrainNear"), (4, "TrainNear"), (1, "AskCentroids"), (4, "AskCentroids")]
    assert subject.state.values.tolist() == [[2.5, 1]] and subject.state.weights["w"].tolist() == [2.5, 2.5]


# runs

RUN = {"method": "rofl", "pseudo_after": 2}


def test_a_run_tells_what_it_gives_away_and_records_it(finished):
    result = finished(**RUN, record_view="uploads")
    centroids, weights = result.summary.privacy
    assert centroids.subject == "class centroids" and centroids.epsilon is None and weights.channel == "plain"
    view = ServerView(result.folder / "view", ROFL.messages)
    assert [view.senders(number, "Centroids") for number in range(4)] == [set(r.cohort) for r in result.rounds]
    plain = finished(method="fedavg").summary
    said = sum(path.stat().st_size for path in (result.folder / "view").rglob("Centroids.up.*"))
    assert said > 0 and result.summary.bytes_up == plain.bytes_up + said
    assert result.summary.client_updates == plain.client_updates


@pytest.mark.slow
def test_a_stopped_run_continues_to_the_same_bytes(stopped, finished):
    folder = stopped(after=3, checkpoint_every=2, **RUN)
    resume(folder)
    for name in ("rounds.jsonl", "weights.safetensors", "clients.json"):
        assert (folder / name).read_bytes() == (finished(**RUN).folder / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"dropout": 0.6}, {"norm": "batch"}, {"partition": "dirichlet", "min_samples": 5}],
    ids=str,
)
def test_other_surroundings(finished, changes):
    assert len(finished(**RUN | changes).rounds) == 4


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.6}, {"dropout_keys": 0.6}, {"dropout_unmask": 0.6}], ids=str)
def test_its_weights_travel_under_a_secure_sum(finished, changes):
    run = {"method": "rofl", "entropy": "insecure-seeded", "cohort": 4}
    summed = finished(**run | changes, secagg=True)
    assert len(summed.rounds) == 4
    if not changes:
        for name, value in finished(**run).weights.items():
            np.testing.assert_allclose(summed.weights[name], value, atol=5e-3)


def test_who_vanishes_at_unmasking_sends_no_centroids(finished):
    run = {"method": "rofl", "entropy": "insecure-seeded", "cohort": 4, "pseudo_after": 2}
    result = finished(**run, secagg=True, dropout_unmask=0.2, record_view="uploads")
    view, gone = ServerView(result.folder / "view", ROFL.messages), 0
    for record in result.rounds:
        summed, unmasked = set(record.secure_sum.survivors), view.senders(record.round, "SumUnmask")
        assert view.senders(record.round, "Centroids") == summed & unmasked
        gone += len(summed - unmasked)
    assert gone, "somebody was in a sum and gone when it was opened"


def test_settings(tiny):
    with pytest.raises(InputError, match=r"weights_epsilon: 2\.0, allowed with method rofl: none \(its centroids"):
        check(tiny(method="rofl", weights_epsilon=2.0))
    assert unused(tiny(method="fedavg", channel="histogram", lambda_cen=0.5)) == (
        "lambda_cen: 0.5 has no effect with method fedavg",
    )
