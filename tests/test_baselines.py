"""FedAvg, FedProx and central training."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_client as tiny
import torch

from fedgr_secure.aggregate import average
from fedgr_secure.baselines.fedavg import CENTRAL, FEDAVG, FEDPROX, ProximalTerm, given_labels
from fedgr_secure.context import ServerContext
from fedgr_secure.messages import Train, Update
from fedgr_secure.models.output import Output
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import Config, FedProxConfig, ViewConfig
from fedgr_secure.training import TrainingTask
from privacy.channels.plain import PlainProxies
from privacy.claims import plain_weights


def half(method, *, mu=0.1, epochs=2, view="weak"):
    run = tiny.config(epochs=epochs, fedprox=FedProxConfig(mu=mu), views=ViewConfig(baseline_view=view))
    context = tiny.context(run)
    return method.client(context, None), context.bench


def update(method, **settings):
    """The reply to one message with the initial weights."""
    client, bench = half(method, **settings)
    task = client.answer(Train(4, bench.weights()))
    return task.finish(bench.train(task))


def test_the_task_is_cross_entropy_on_the_given_labels():
    client, bench = half(FEDAVG, view="plain")
    weights = bench.weights()
    task = client.answer(Train(4, weights))
    assert isinstance(task, TrainingTask) and task.start is weights
    assert (task.client, task.round, task.view, task.epochs) == (3, 4, "plain", 2)
    assert task.columns["labels"].tolist() == tiny.shard().labels.tolist()
    assert client.state is None


def test_the_update_carries_its_samples():
    reply = update(FEDAVG)
    assert isinstance(reply, Update) and (reply.round, reply.samples) == (4, 10)


def test_fedprox_without_its_term_is_fedavg_bit_for_bit():
    assert tiny.same(update(FEDPROX, mu=0.0).weights, update(FEDAVG).weights)
    assert not tiny.same(update(FEDPROX, mu=0.5).weights, update(FEDAVG).weights)


def test_the_proximal_term_holds_the_weights_back():
    start = half(FEDAVG)[1].weights()

    def distance(weights):
        return sum(float(((weights[name] - start[name]) ** 2).sum()) for name in start)

    far, near, nearest = (distance(update(FEDPROX, mu=mu).weights) for mu in (0.0, 1.0, 5.0))
    assert far > near > nearest


def test_the_proximal_loss_and_its_gradient_by_hand():
    # two classes with equal logits: log 2. mu/2 |w - a|^2 = 0.5 * 0.4 * (4 + 9) = 2.6, its gradient mu (w - a)
    w = torch.tensor([3.0, -1.0], requires_grad=True)
    anchor = {"w": torch.tensor([1.0, 2.0]), "a buffer": torch.tensor([7.0])}
    batch = {"images": torch.zeros(4, 1), "labels": torch.tensor([0, 1, 0, 1])}
    loss = given_labels({"w": w}, batch, lambda images: Output(torch.zeros(4, 2), images))
    loss = loss + ProximalTerm(0.4, anchor)({"w": w})
    loss.backward()
    assert loss.item() == pytest.approx(np.log(2) + 2.6)
    np.testing.assert_allclose(w.grad, [0.4 * 2, 0.4 * -3], rtol=1e-6)


def copying(steps):
    """An `on_step` that keeps every student."""
    return lambda student, step: steps.append({name: value.detach().clone() for name, value in student.items()})


def test_the_anchor_is_the_weights_that_the_server_sent():
    # the first step starts at the anchor, where the proximal gradient is 0: one step of FedProx is one of FedAvg
    replies = []
    for method in (FEDAVG, FEDPROX):
        client, bench = half(method, mu=5.0)
        steps = []
        task = client.answer(Train(4, tiny.shifted(bench.weights(), 0.5)))
        bench.train(replace(task, on_step=copying(steps)))
        replies.append(steps)
    avg, prox = replies
    assert all(torch.equal(avg[0][name], prox[0][name]) for name in avg[0])
    assert not all(torch.allclose(avg[1][name], prox[1][name]) for name in avg[1])


def test_central_training_is_one_epoch_a_round():
    client, bench = half(CENTRAL, epochs=7)
    assert client.answer(Train(0, bench.weights())).epochs == 1
    assert CENTRAL.pooled and not FEDAVG.pooled and not FEDPROX.pooled


@pytest.mark.parametrize("method", [FEDAVG, FEDPROX, CENTRAL], ids=lambda method: method.name)
def test_the_server_sends_the_model_and_averages_by_samples(method):
    start = {"w": np.zeros(2, np.float32)}
    server = method.server(ServerContext(Config(), start, Randomness(0), PlainProxies()), None)
    asked = []

    class Cohort:
        def average(self, message, start):
            asked.append(message)
            updates = {k: Update(message.round, n, {"w": np.full(2, k, np.float32)}) for k, n in ((1, 30), (5, 10))}
            return average(start, updates)

    assert server.round(6, Cohort()) is None
    (message,) = asked
    assert isinstance(message, Train) and message.round == 6 and message.weights is start
    # (30 * 1 + 10 * 5) / 40
    assert server.state.weights["w"].tolist() == [2.0, 2.0]
    again = method.server(ServerContext(Config(), start, Randomness(0), PlainProxies()), server.state)
    assert again.state.weights["w"].tolist() == [2.0, 2.0]


def test_the_only_claim_is_that_there_is_none():
    for method in (FEDAVG, FEDPROX, CENTRAL):
        assert method.claims(Config(), PlainProxies(), plain_weights()) == (plain_weights(),)
    assert plain_weights().epsilon is None
