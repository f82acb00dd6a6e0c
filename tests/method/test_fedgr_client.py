"""FedGR's client half, with a real but tiny model: which message leads to which training."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import tiny_client as tiny
import torch
from reference import slow_averages
from sklearn.mixture import GaussianMixture

from fedgr_secure.messages import Update
from fedgr_secure.method.client import FedGRClient, first_state, verdict_of
from fedgr_secure.method.messages import Observe, Proxies, Revise
from fedgr_secure.method.refine import NO_LABEL
from fedgr_secure.method.sieve import Mixture, MixtureSettings, fit_mixture, judge
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import FedGRConfig
from fedgr_secure.training import TrainingTask
from fedgr_secure.wire import from_bytes, to_bytes
from privacy.channels.plain import PlainProxies

WARMUP = 4
ALL_CLEAN = Mixture((1.0, 1.0), (1.0, 1.0), (1.0, 0.0), all_clean=True)
ONE_HOT = np.eye(tiny.CLASSES, dtype=np.float32)


class Bench:
    """One client and what its workbench was asked to do."""

    def __init__(self, state=None, *, samples=10, epochs=1, norm="group", lr=0.1, **fedgr):
        self.run = tiny.config(epochs=epochs, warmup=WARMUP, lr=lr, fedgr=FedGRConfig(**fedgr))
        self.own = tiny.shard(samples)
        self.context = tiny.context(self.run, own=self.own, norm=norm)
        self.bench = self.context.bench
        # far from initial, so that predictions are confident and losses differ
        self.weights = tiny.shifted(self.bench.weights(), 1.0)
        self.half = FedGRClient(self.context, state)
        self.seen = []
        self.bench.model.register_forward_pre_hook(lambda module, inputs: self.seen.append(inputs[0].clone()))

    def observe(self, round=0):
        return self.half.answer(Observe(round, self.weights))

    def revise(self, round=0, *, weights=None, mixture=None, q=None, noise_rate=None):
        if q is None and mixture is None and weights is None:
            mixture = ALL_CLEAN
        return self.half.answer(Revise(round, weights, mixture, q, noise_rate))

    def task(self, round=WARMUP, **revise):
        self.observe(round)
        return self.revise(round, **revise)

    def train(self, task):
        return task.finish(self.bench.train(task))

    def weak_prediction(self, weights, round):
        draw = Randomness(0).torch("weak view", client=self.own.client, round=round)
        return self.bench.predict(weights, self.own.images(), view="weak", draw=draw)


def losses(subject, weights=None):
    """Cross-entropy of the plain images with the given labels, in NumPy."""
    with torch.no_grad():
        subject.bench.load(weights or subject.weights)
        logits = subject.bench.model.eval()((torch.from_numpy(subject.own.images()) / 255 - 0.5) / 0.25).logits
    logits = logits.double().numpy()
    shifted = logits - logits.max(1, keepdims=True)
    return np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(logits)), subject.own.labels]


# observe


def test_the_first_observation_uploads_the_losses_under_the_global_model():
    subject = Bench()
    reply = subject.observe(2)
    assert isinstance(reply, Proxies) and reply.round == 2 and set(reply.upload) == {"proxies"}
    assert reply.upload["proxies"].dtype == np.float32
    np.testing.assert_allclose(reply.upload["proxies"], losses(subject), rtol=1e-4, atol=1e-5)
    assert (subject.half.state.participations, subject.half.state.observed) == (1, 1)


def test_later_observations_are_folded_into_the_mean():
    subject = Bench()
    subject.observe(0)
    first, subject.weights = losses(subject), tiny.shifted(subject.weights, 1.0)
    again = FedGRClient(subject.context, subject.half.state)
    again.answer(Observe(1, subject.weights))
    np.testing.assert_allclose(again.state.mean_losses, (first + losses(subject)) / 2, rtol=1e-4, atol=1e-5)
    assert (again.state.participations, again.state.observed) == (2, 2)


def test_a_cap_cuts_each_observed_loss_before_the_mean():
    # loss_cap = 0.5 caps at half a blind guess among three classes, 0.5 log 3 nats
    subject = Bench(loss_cap=0.5)
    subject.observe(0)
    first, subject.weights = losses(subject), tiny.shifted(subject.weights, 1.0)
    cap = 0.5 * np.log(3)
    assert (first > cap).any() and (first < cap).any()
    subject.observe(1)
    expected = (np.minimum(first, cap) + np.minimum(losses(subject), cap)) / 2
    np.testing.assert_allclose(subject.half.state.mean_losses, expected, rtol=1e-4, atol=1e-5)


def test_revise_before_observe_and_without_weights_is_an_error():
    with pytest.raises(ValueError, match="before Observe"):
        Bench().revise(0)


# the warm-up


def test_the_warm_up_trains_on_the_given_labels_without_distillation():
    subject = Bench()
    task = subject.task(WARMUP - 1, q=np.zeros(10), noise_rate=1.0)
    assert isinstance(task, TrainingTask) and task.view == "strong" and task.epochs == 1
    assert (task.client, task.round) == (3, WARMUP - 1) and task.start is subject.weights
    assert np.array_equal(task.columns["targets"].numpy(), ONE_HOT[subject.own.labels])
    assert set(task.columns) == {"targets", "global_features"} and task.objective.lambda_b == 0
    assert subject.half.state.pseudo_labels.tolist() == [NO_LABEL] * 10, "no pseudo-label before alpha"


def test_after_the_warm_up_everything_is_on():
    subject = Bench(lambda_b=0.7, lambda_r=0.2, tau=0.4, representation="kl")
    task = subject.task(WARMUP)
    assert set(task.columns) == {"targets", "teacher_logits", "global_features"}
    assert dataclasses.asdict(task.objective) == {"lambda_b": 0.7, "lambda_r": 0.2, "tau": 0.4, "representation": "kl"}


@pytest.mark.parametrize("represent_from, warm", [("start", True), ("warmup", False)])
def test_when_representation_starts(represent_from, warm):
    for round, on in [(WARMUP - 1, warm), (WARMUP, True)]:
        task = Bench(represent_from=represent_from, lambda_r=0.2).task(round)
        assert ("global_features" in task.columns) == on and task.objective.lambda_r == (0.2 if on else 0.0)


@pytest.mark.parametrize("switch", [{"represent": False}, {"lambda_r": 0.0}])
def test_representation_off(switch):
    task = Bench(**switch).task()
    assert "global_features" not in task.columns and task.objective.lambda_r == 0


@pytest.mark.parametrize("switch", [{"distill": False}, {"lambda_b": 0.0}])
def test_distillation_off(switch):
    task = Bench(**switch).task()
    assert "teacher_logits" not in task.columns and task.objective.lambda_b == 0


# the weak view


def test_global_and_teacher_see_the_same_weak_view():
    # the teacher of an earlier round differs from the global model, so its answers differ too
    teacher = tiny.shifted(Bench().weights, 0.5)
    subject = Bench(replace(first_state(10), participations=1, teacher=teacher))
    subject.observe(WARMUP)
    subject.seen.clear()
    task = subject.revise(WARMUP)
    judged, taught = subject.seen
    assert torch.equal(judged, taught)
    plain = subject.bench.views.plain(subject.own.images())
    assert not torch.equal(judged, plain)
    revised = {name: 0.9 * teacher[name] + 0.1 * value for name, value in subject.weights.items()}
    revised = {name: value.astype(np.float32) for name, value in revised.items()}
    expected = subject.weak_prediction(revised, WARMUP)
    torch.testing.assert_close(task.columns["teacher_logits"], expected.logits)
    features = subject.weak_prediction(subject.weights, WARMUP).features
    assert torch.equal(task.columns["global_features"], features)
    assert not torch.allclose(task.columns["teacher_logits"], subject.weak_prediction(subject.weights, WARMUP).logits)


def test_another_round_is_another_weak_view():
    subject = Bench()
    first = subject.task(WARMUP).columns["global_features"]
    assert not torch.equal(first, subject.task(WARMUP + 1).columns["global_features"])


# verdicts and targets


def test_targets_follow_the_decision_table():
    subject = Bench(confidence=0.5)
    q = np.array([1.0, 0.9, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 1.0, 0.25])
    task = subject.task(q=q, noise_rate=0.6)
    probabilities = subject.weak_prediction(subject.weights, WARMUP).logits.softmax(1).numpy()
    pseudo = np.where(probabilities.max(1) > 0.5, probabilities.argmax(1), NO_LABEL)
    known = pseudo != NO_LABEL
    assert known[q < 0.5].any() and not known[q < 0.5].all(), "both kinds of noisy sample must occur"
    assert subject.half.state.pseudo_labels.tolist() == pseudo.tolist()
    share = np.where(q >= 0.5, 1, q)[:, None]
    expected = share * ONE_HOT[subject.own.labels] + (1 - share) * known[:, None] * ONE_HOT[pseudo]
    np.testing.assert_allclose(task.columns["targets"], expected, atol=1e-6)
    high = Bench(subject.half.state, confidence=0.5).task(q=q, noise_rate=0.8)
    np.testing.assert_allclose(high.columns["targets"], known[:, None] * ONE_HOT[pseudo], atol=1e-6)


def test_pseudo_labels_persist_between_participations():
    table = np.arange(10) % 2
    subject = Bench(replace(first_state(10), participations=1, pseudo_labels=table), confidence=1.0)
    task = subject.task(q=np.zeros(10), noise_rate=1.0)
    assert np.array_equal(task.columns["targets"].numpy(), ONE_HOT[table])
    assert subject.half.state.pseudo_labels.tolist() == table.tolist()


def test_without_refinement_only_the_clean_are_trained_on():
    q = np.array([1.0, 0.5, 0.49, 0.0] + [1.0] * 6)
    subject = Bench(refine=False, confidence=0.0)
    targets = subject.task(q=q, noise_rate=0.9).columns["targets"].numpy()
    assert np.array_equal(targets, (q >= 0.5)[:, None] * ONE_HOT[subject.own.labels])
    assert subject.half.state.pseudo_labels.tolist() == [NO_LABEL] * 10


def test_decisions_apply_in_the_same_round_or_in_the_next_participation():
    old, new = np.array([0.0] * 5 + [1.0] * 5), np.array([1.0] * 5 + [0.0] * 5)
    kept = replace(first_state(10), participations=1, q=old, noise_rate=0.5)
    for decisions, applied in [("same_round", new), ("next_participation", old)]:
        subject = Bench(kept, decisions=decisions, refine=False)
        targets = subject.task(q=new, noise_rate=0.75).columns["targets"].numpy()
        assert np.array_equal(targets.sum(1), applied)
        verdict = verdict_of(subject.half.state)
        assert np.array_equal(verdict.q, new) and verdict.noise_rate == 0.75, "the newest is kept either way"


def test_before_its_first_verdict_every_label_counts_as_clean():
    subject = Bench(decisions="next_participation", confidence=0.0)
    targets = subject.task(q=np.zeros(10), noise_rate=1.0).columns["targets"].numpy()
    assert np.array_equal(targets, ONE_HOT[subject.own.labels])


def test_the_client_decides_as_the_server_does():
    mixture = Mixture((0.5, 3.0), (0.2, 1.5), (0.6, 0.4))
    client, server = Bench(decide_at="client"), Bench(decide_at="server")
    upload = server.observe(WARMUP).upload
    verdict = judge(mixture, PlainProxies().rows(0, upload).values)
    decided = server.revise(WARMUP, q=verdict.q, noise_rate=verdict.noise_rate)
    own = client.task(mixture=mixture)
    # float32 keeps 24 bits: relative 6e-8 of a loss below 20, times a slope of log q of at most 100 nats per nat
    np.testing.assert_allclose(client.half.state.q, server.half.state.q, atol=1e-4)
    assert 0 < verdict.noise_rate < 1
    assert client.half.state.noise_rate == server.half.state.noise_rate
    np.testing.assert_allclose(own.columns["targets"], decided.columns["targets"], atol=1e-4)


@pytest.mark.parametrize("variances", ["free", "tied"])
def test_its_own_mixture_has_twenty_iterations(monkeypatch, variances):
    settings = []

    def spy(values, **arguments):
        settings.append(arguments["settings"])
        return fit_mixture(values, **arguments)

    monkeypatch.setattr("fedgr_secure.method.client.fit_mixture", spy)
    subject = Bench(sieve=False, variances=variances)
    subject.revise(WARMUP, weights=subject.weights)
    assert settings == [MixtureSettings(max_iter=20, tol=1e-2, reg_covar=5e-4, tied=variances == "tied")]


def test_a_server_with_weights_and_no_verdict_makes_the_client_fit_its_own_mixture():
    subject = Bench(sieve=False, samples=40, refine=False)
    task = subject.revise(WARMUP, weights=subject.weights)
    state = subject.half.state
    assert (state.participations, state.observed) == (1, 1)
    np.testing.assert_allclose(state.mean_losses, losses(subject), rtol=1e-4, atol=1e-5)
    seed = Randomness(0).integer("client mixture", client=3, round=WARMUP)
    theirs = GaussianMixture(2, max_iter=20, tol=1e-2, reg_covar=5e-4, random_state=seed)
    theirs.fit(state.mean_losses[:, None])
    q = theirs.predict_proba(state.mean_losses[:, None])[:, theirs.means_.argmin()]
    np.testing.assert_allclose(state.q, q, atol=1e-9)
    assert state.noise_rate == np.mean(q < 0.5) and 0 < state.noise_rate < 1
    assert np.array_equal(task.columns["targets"].numpy().sum(1), q >= 0.5)


# the teacher


def teacher_at_start(subject, round=WARMUP, **revise):
    """The teacher's weights before the first local step."""
    task = subject.task(round, **revise)
    return {name: value.copy() for name, value in task.on_step.__self__.weights().items()}


def with_teacher(**changes):
    teacher = tiny.shifted(Bench().weights, 2.0)
    return teacher, replace(first_state(10), participations=1, teacher=teacher, **changes)


def test_the_first_teacher_is_the_global_model():
    subject = Bench()
    assert tiny.same(teacher_at_start(subject), subject.weights)


def test_a_high_noise_client_with_few_pseudo_labels_is_reset_only_on_request():
    few = np.array([1] * 4 + [NO_LABEL] * 6)
    half = np.array([1] * 5 + [NO_LABEL] * 5)
    for pseudo, noise_rate, on, reset in [
        (few, 0.8, True, True),
        (few, 0.79, True, False),
        (half, 0.8, True, False),
        (few, 0.8, False, False),
    ]:
        _, state = with_teacher(pseudo_labels=pseudo)
        subject = Bench(state, reset_teacher=on, confidence=1.0)
        start = teacher_at_start(subject, q=np.zeros(10), noise_rate=noise_rate)
        assert tiny.same(start, subject.weights) == reset


def test_during_the_warm_up_the_teacher_is_the_global_model_or_has_its_own_history():
    teacher, state = with_teacher()
    default = Bench(state)
    task = default.task(WARMUP - 1)
    assert task.on_step is None
    default.train(task)
    assert default.half.state.teacher == {}
    own = Bench(state, teacher_before_warmup="own")
    start = teacher_at_start(own, WARMUP - 1)
    for name, value in start.items():
        np.testing.assert_allclose(value, 0.9 * teacher[name] + 0.1 * own.weights[name], rtol=1e-5, atol=1e-6)


def test_the_kept_teacher_is_the_moving_average_over_the_local_steps():
    _, state = with_teacher()
    subject = Bench(state, epochs=2, gamma_l=0.6)
    start = teacher_at_start(subject)
    task = subject.revise(WARMUP)
    students, follow = [], task.on_step

    def spy(student, step):
        students.append({name: value.detach().numpy().copy() for name, value in student.items()})
        follow(student, step)

    update = subject.train(replace(task, on_step=spy))
    assert len(students) == 2 * 3, "10 samples in batches of 4, two epochs"
    expected = slow_averages.moving_average(start, students, 0.6)
    for name, value in subject.half.state.teacher.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5)
    assert tiny.same(update.weights, students[-1])


def test_without_distillation_no_teacher_is_kept():
    _, state = with_teacher()
    subject = Bench(state, distill=False)
    task = subject.task()
    assert task.on_step is None
    subject.train(task)
    assert subject.half.state.teacher == {}


# the local observation


def test_the_local_observation_adds_one_loss_after_the_first_epoch():
    subject = Bench(epochs=3, local_observation=True)
    task = subject.task()
    before = subject.half.state.mean_losses
    subject.train(task)
    assert (subject.half.state.participations, subject.half.state.observed) == (1, 2)
    # the same training again, with the same draws, shows the local model after its first epoch
    after_epoch = []
    subject.bench.train(replace(task, on_epoch=lambda epoch, weights: after_epoch.append(weights()), on_step=None))
    assert len(after_epoch) == 3
    expected = (before + losses(subject, after_epoch[0])) / 2
    np.testing.assert_allclose(subject.half.state.mean_losses, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_the_local_observation_does_not_change_the_training(norm):
    plain, observed = Bench(epochs=3, norm=norm), Bench(epochs=3, norm=norm, local_observation=True)
    assert tiny.same(plain.train(plain.task()).weights, observed.train(observed.task()).weights)
    assert plain.half.state.observed == 1


def test_one_local_epoch_has_no_local_observation():
    subject = Bench(epochs=1, local_observation=True)
    subject.train(subject.task())
    assert subject.half.state.observed == 1


# what leaves and what stays


def test_the_update_is_the_trained_student_with_its_weight():
    subject = Bench(epochs=2)
    task = subject.task()
    update = subject.train(task)
    assert isinstance(update, Update) and (update.round, update.samples) == (WARMUP, 10)
    assert tiny.same(update.weights, subject.bench.train(replace(task, on_step=None)))
    assert not tiny.same(update.weights, subject.weights)


def test_the_kept_state_passes_through_bytes_and_gives_the_same_next_round():
    first = Bench(epochs=2)
    first.train(first.task(WARMUP))
    kept = first.half.state
    replies = []
    for state in (kept, from_bytes(to_bytes(kept), [type(kept)])):
        subject = Bench(state, epochs=2)
        replies.append((subject.observe(WARMUP + 1), subject.train(subject.revise(WARMUP + 1))))
    assert np.array_equal(replies[0][0].upload["proxies"], replies[1][0].upload["proxies"])
    assert tiny.same(replies[0][1].weights, replies[1][1].weights)


def test_the_servers_arrays_are_never_written_to():
    subject = Bench(epochs=2)
    kept = {name: value.copy() for name, value in subject.weights.items()}
    subject.train(subject.task())
    assert tiny.same(subject.weights, kept)


def test_a_client_that_has_observed_in_this_round_does_not_do_so_again():
    """After a secure sum that was given up the server sends the model again, for those that never had it."""
    subject, late = Bench(), Bench()
    subject.observe(WARMUP)
    mixture = Mixture((0.5, 3.0), (0.2, 1.5), (0.6, 0.4))
    for half in (subject, late):
        half.half.answer(Revise(WARMUP, half.weights, mixture, None, None))
    assert subject.half.state.observed == late.half.state.observed == 1
    assert subject.half.state.participations == late.half.state.participations == 1
    np.testing.assert_array_equal(subject.half.state.mean_losses, late.half.state.mean_losses)
