"""FL-DivideMix: refined, guessed, sharpened and mixed labels, which samples keep theirs, fallbacks, and whole runs."""

import math

import numpy as np
import pytest
import tiny_client as tiny
import torch
import torch.nn.functional as F

from fedgr_secure.baseline_sections import DivideMixConfig
from fedgr_secure.baselines import dividemix
from fedgr_secure.baselines.dividemix import DIVIDEMIX, MixMatch, both_learn, min_max, prior_penalty, sharpen
from fedgr_secure.checks import check, unused
from fedgr_secure.errors import InputError
from fedgr_secure.federation.loop import resume
from fedgr_secure.messages import Train, Update
from fedgr_secure.method.sieve import Mixture, fit_mixture
from fedgr_secure.models import build_model
from fedgr_secure.models.output import Output
from fedgr_secure.models.several import Several, each_output
from fedgr_secure.sections import ModelConfig

# the parts of the loss


def test_losses_are_scaled_to_0_and_1():
    assert min_max(np.array([2.0, 6.0, 3.0])).tolist() == [0, 1, 0.25]
    assert min_max(np.full(3, 7.0)).tolist() == [0, 0, 0]
    found = min_max(np.array([1.0, np.nan, 3.0, np.inf]))
    assert found[[0, 2]].tolist() == [0, 1] and not np.isfinite(found[[1, 3]]).any()
    assert np.isnan(min_max(np.array([np.nan]))).all()


def test_sharpening_by_hand():
    # 0.8^2 : 0.2^2 = 16 : 1; 0.5^2 : 0.3^2 : 0.2^2 = 25 : 9 : 4; a share of 0 stays 0
    torch.testing.assert_close(sharpen(torch.tensor([[0.8, 0.2]]), 0.5), torch.tensor([[16 / 17, 1 / 17]]))
    torch.testing.assert_close(sharpen(torch.tensor([[0.5, 0.3, 0.2]]), 0.5), torch.tensor([[25, 9, 4]]) / 38)
    assert sharpen(torch.tensor([[1.0, 0.0]]), 0.5).tolist() == [[1, 0]]


def test_the_penalty_by_hand():
    # the mean of (0.9, 0.1) and (0.5, 0.5) is (0.7, 0.3): 1/2 ln(0.5/0.7) + 1/2 ln(0.5/0.3)
    shares = torch.tensor([[0.9, 0.1], [0.5, 0.5]])
    expected = 0.5 * math.log(0.5 / 0.7) + 0.5 * math.log(0.5 / 0.3)
    assert prior_penalty(shares.log()).item() == pytest.approx(expected, rel=1e-5)
    assert prior_penalty(torch.full((4, 5), 0.2).log()).item() == pytest.approx(0, abs=1e-6)
    assert prior_penalty(F.log_softmax(torch.tensor([[900.0, 0.0]]), 1)).item() == pytest.approx(450 - math.log(2))


def batch_of(labels, clean, labelled):
    """A batch of two classes in which both networks are told the same."""
    both = {"clean": torch.tensor(clean), "labelled": torch.tensor(labelled)}
    columns = {name: torch.stack([column, column], 1) for name, column in both.items()}
    return {"images": torch.zeros(len(labels), 2), "labels": torch.tensor(labels), **columns}


class Fixed:
    """A generator that mixes every sample with its neighbour, by a share of 1/4 (which becomes 3/4)."""

    def beta(self, one, other):
        assert one == other == 4.0
        return 0.25

    def permutation(self, count):
        return np.roll(np.arange(count), -1)


def objective(**changes):
    return MixMatch(**{"draw": Fixed(), "temperature": 0.5, "beta": 4.0, "unlabelled": 2.0} | changes)


def test_refined_and_guessed_labels_by_hand():
    batch = batch_of([0, 0], [0.9, 0.1], [True, False])
    batch["clean"][0, 1] = 0.5  # the second network is told otherwise
    own = [torch.tensor([[0.6, 0.4], [0.7, 0.3]]), torch.tensor([[0.2, 0.8], [0.1, 0.9]])]
    # network 0: 0.9 (1, 0) + 0.1 (0.6, 0.4) = (0.96, 0.04); both guess the other sample as (0.4, 0.6)
    first, second = (objective().targets(batch, own, number) for number in (0, 1))
    torch.testing.assert_close(first, sharpen(torch.tensor([[0.96, 0.04], [0.4, 0.6]]), 0.5))
    # network 1: 0.5 (1, 0) + 0.5 (0.2, 0.8) = (0.6, 0.4)
    torch.testing.assert_close(second, sharpen(torch.tensor([[0.6, 0.4], [0.4, 0.6]]), 0.5))
    batch["labelled"][1, 1] = True  # now its own prediction and label: 0.1 (1, 0) + 0.9 (0.1, 0.9) = (0.19, 0.81)
    torch.testing.assert_close(objective().targets(batch, own, 1)[1:], sharpen(torch.tensor([[0.19, 0.81]]), 0.5))


class Linear(torch.nn.Module):
    """Logits are the images times a weight; remembers what it saw."""

    def __init__(self, weight=1.0):
        super().__init__()
        self.weight, self.seen = torch.nn.Parameter(torch.tensor(weight)), []

    def forward(self, images):
        self.seen.append(images.detach())
        return Output(self.weight * images, images)


def test_the_mixed_loss_by_hand():
    network, views = Linear(), [torch.tensor([[2.0, 0.0], [0.0, 4.0]])]
    targets, labelled = torch.tensor([[1.0, 0.0], [0.2, 0.8]]), torch.tensor([True, False])
    loss = objective().mixed_loss(network, views, targets, labelled)
    # 3/4 of itself and 1/4 of the other: inputs (1.5, 1) and (0.5, 3), targets (0.8, 0.2) and (0.4, 0.6)
    assert network.seen[0].tolist() == [[1.5, 1.0], [0.5, 3.0]]
    p, q = 1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(2.5))
    cross_entropy = -(0.8 * math.log(p) + 0.2 * math.log(1 - p))
    squares = ((q - 0.4) ** 2 + (1 - q - 0.6) ** 2) / 2
    mean = (p + q) / 2
    penalty = 0.5 * math.log(0.5 / mean) + 0.5 * math.log(0.5 / (1 - mean))
    assert loss.item() == pytest.approx(cross_entropy + 2.0 * squares + penalty, rel=1e-5)
    alone = objective(unlabelled=0.0).mixed_loss(network, views, targets, labelled)
    assert alone.item() == pytest.approx(cross_entropy + penalty, rel=1e-5)


@pytest.mark.parametrize("labelled", [[True, True], [False, False], [True], [False]], ids=str)
def test_a_batch_of_one_kind_or_of_one_sample_has_a_finite_loss_and_gradient(labelled):
    networks = Several([Linear(1.0), Linear(-2.0)])
    batch = batch_of([1] * len(labelled), [1.0] * len(labelled), labelled)
    batch["images"] = torch.eye(2)[: len(labelled)] * 5
    draw = np.random.default_rng(0)
    loss = MixMatch(draw, 0.5, 4.0, 25.0)({}, batch, networks)
    loss.backward()
    assert torch.isfinite(loss) and all(torch.isfinite(p.grad) and p.grad != 0 for p in networks.parameters())


def test_the_guess_is_a_mean_over_both_views_and_networks_without_a_gradient():
    networks = Several([Linear(1.0), Linear(2.0)])
    batch = batch_of([0], [0.0], [False]) | {"images": torch.tensor([[1.0, 0.0]]), "second": torch.tensor([[3.0, 0.0]])}
    seen = []

    class Watching(MixMatch):
        def mixed_loss(self, network, views, targets, labelled):
            seen.append((len(views), targets))
            return super().mixed_loss(network, views, targets, labelled)

    Watching(Fixed(), 0.5, 4.0, 1.0)({}, batch, networks)
    mean = sum(1 / (1 + math.exp(-x)) for x in (1, 3, 2, 6)) / 4
    assert [count for count, _ in seen] == [2, 2] and not seen[0][1].requires_grad
    torch.testing.assert_close(seen[0][1], sharpen(torch.tensor([[mean, 1 - mean]]), 0.5))
    # the mixed views are 3/4 of one and 1/4 of the other
    assert networks.networks[0].seen[-1].tolist() == [[1.5, 0.0], [2.5, 0.0]]


# one client


def context(*, norm="group", shard=None, warmup=2, **settings):
    networks = [build_model(ModelConfig(model="mlp", norm=norm, width=1), tiny.SPEC, seed=seed) for seed in (1, 2)]
    run = tiny.config(epochs=2, warmup=warmup, dividemix=DivideMixConfig(**settings))
    return tiny.context(run, own=shard or tiny.shard(40), bench=tiny.workbench(run, model=Several(networks)))


def task_of(own, round=10, weights=None):
    weights = weights or tiny.shifted(own.bench.weights(), 0.5)
    return DIVIDEMIX.client(own, None).answer(Train(round, weights)), weights


def test_until_the_warm_up_ends_both_networks_learn_the_given_labels():
    own = context()
    task, _ = task_of(own, round=1)
    assert task.objective is both_learn and set(task.columns) == {"labels"} and not task.second
    client = DIVIDEMIX.client(own, None)
    client.answer(Train(1, own.bench.weights()))
    assert DIVIDEMIX.verdict(client.state) is None, "nothing is judged yet"
    images, labels = torch.randn(6, 1, 4, 4), torch.arange(6) % 3
    outputs = each_output(own.bench.model, images)
    expected = F.cross_entropy(outputs[0].logits, labels) + F.cross_entropy(outputs[1].logits, labels)
    torch.testing.assert_close(both_learn({}, {"images": images, "labels": labels}, own.bench.model), expected)
    reply = task.finish(own.bench.train(task))
    assert isinstance(reply, Update) and (reply.round, reply.samples) == (1, 40)
    assert isinstance(task_of(own, round=2)[0].objective, MixMatch)


def test_each_network_s_clean_samples_are_what_the_other_s_losses_say():
    own, told = context(), []
    weights = tiny.shifted(own.bench.weights(), 0.5)
    client = DIVIDEMIX.client(own, None)
    task = client.answer(Train(10, weights))
    logits = {}
    with torch.no_grad():
        own.bench.load(weights)
        own.bench.model.eval()
        images = own.bench.views.plain(own.shard.images())
        logits = [output.logits.double() for output in each_output(own.bench.model, images)]
    for number, other in ((0, 1), (1, 0)):
        losses = F.cross_entropy(logits[other], torch.from_numpy(own.shard.labels), reduction="none").numpy()
        scaled = (losses - losses.min()) / (losses.max() - losses.min())
        seed = own.randomness.integer(f"client mixture of network {other + 1}", client=3, round=10)
        clean = fit_mixture(scaled, seed=seed, settings=dividemix._EM).clean_probability(scaled)
        np.testing.assert_allclose(task.columns["clean"][:, number], clean, atol=1e-6)
        assert (task.columns["labelled"][:, number].numpy() == (clean > 0.5)).all()
        told.append(clean)
    kept = DIVIDEMIX.verdict(client.state)
    np.testing.assert_allclose(kept.q, sum(told) / 2, atol=1e-12)
    assert kept.noise_rate == (kept.q < 0.5).mean()
    assert 0 < task.columns["labelled"].float().mean() < 1


@pytest.mark.parametrize(("round", "weight"), [(2, 0.0), (6, 6.25), (18, 25.0), (900, 25.0)])
def test_the_unlabelled_part_rises(round, weight):
    assert task_of(context(), round)[0].objective.unlabelled == weight  # 25 * 4 / 16 = 6.25


def test_constant_losses_keep_every_label():
    own = context()
    zero = {name: np.zeros_like(value) for name, value in own.bench.weights().items()}
    task, _ = task_of(own, weights=zero)
    assert task.columns["labelled"].all() and (task.columns["clean"] == 1).all()
    assert all(np.isfinite(value).all() for value in own.bench.train(task).values())


def told(monkeypatch, *means):
    """Mixtures as given, of the second network and then of the first."""
    mixtures = iter(Mixture((mean, mean + 1e-3), (1e-8, 1e-8), (0.5, 0.5)) for mean in means)
    monkeypatch.setattr(dividemix, "fit_mixture", lambda *_, **__: next(mixtures))


@pytest.mark.parametrize("means", [(-9.0, -9.0), (-9.0, 9.0), (9.0, -9.0)], ids=["both", "second", "first"])
def test_a_network_without_a_labelled_sample_trains_as_in_the_warm_up(monkeypatch, means):
    told(monkeypatch, *means)  # below all losses: the wrong component is nearer, or both are too far
    task, _ = task_of(context())
    assert task.objective is both_learn and set(task.columns) == {"labels"} and not task.second


def test_mixing_has_an_address_of_its_own():
    own = context()
    task, weights = task_of(own)
    first = own.bench.train(task)
    assert tiny.same(first, own.bench.train(task_of(own, weights=weights)[0]))
    tasks = [task_of(own, round, weights)[0] for round in (10, 10, 11)]
    shares = [task.objective.draw.beta(4, 4) for task in tasks]
    assert shares[0] == shares[1] != shares[2]


@pytest.mark.parametrize("samples", [2, 5, 9])
def test_small_clients_and_small_last_batches_train_with_batch_norm(samples):
    own = context(norm="batch", shard=tiny.shard(samples))  # batches of 4: 4 and 1
    task, _ = task_of(own, round=20)
    assert all(np.isfinite(value).all() for value in own.bench.train(task).values())


# two views


def test_a_second_view_is_another_draw_of_the_same_images():
    bench, seen = tiny.workbench(), []

    def look(parameters, batch, forward):
        seen.append(batch)
        return forward(batch["images"]).logits.sum()

    bench.train(tiny.task(bench, look, view="weak", second=True))
    bench.train(tiny.task(bench, look, view="plain", second=True))
    assert all(torch.equal(batch["images"], batch["second"]) for batch in seen[3:])
    assert any(not torch.equal(batch["images"], batch["second"]) for batch in seen[:3])
    means = [torch.cat([batch[name] for batch in seen[:3]]).sort(0)[0].mean() for name in ("images", "second")]
    assert abs(means[0] - means[1]) < 0.5 and [len(batch["second"]) for batch in seen[:3]] == [4, 4, 2]


# runs


def test_two_networks_cost_twice_the_bytes_of_one(finished):
    two, one = finished(method="dividemix").summary, finished(method="fedavg").summary
    assert two.bytes_up == pytest.approx(2 * one.bytes_up, rel=0.05)
    assert two.client_updates == one.client_updates


@pytest.mark.slow
def test_it_runs_under_a_secure_sum(finished):
    changes = {"method": "dividemix", "entropy": "insecure-seeded", "cohort": 4}
    summed, clear = finished(**changes, secagg=True), finished(**changes)
    assert all(record.secure_sum is not None and record.secure_sum.aborted is None for record in summed.rounds)
    for name, value in clear.weights.items():
        np.testing.assert_allclose(summed.weights[name], value, atol=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("view", ["plain", "weak"])
def test_a_stopped_run_continues_to_the_same_bytes(stopped, finished, view):
    run = {"method": "dividemix", "baseline_view": view}
    folder = stopped(after=3, checkpoint_every=2, **run)
    resume(folder)
    for name in ("rounds.jsonl", "weights.safetensors", "clients.json"):
        assert (folder / name).read_bytes() == (finished(**run).folder / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"norm": "batch"}, {"warmup": 0}, {"phi": 0.0}, {"phi": 1.0, "rho_max": 1.0}], ids=str
)
def test_other_surroundings(finished, changes):
    assert len(finished(**{"method": "dividemix"} | changes).rounds) == 4


def test_settings(tiny):
    with pytest.raises(
        InputError, match=r"weights_epsilon: 2\.0, allowed with method dividemix: none \(its loss mixes"
    ):
        check(tiny(method="dividemix", weights_epsilon=2.0))
    with pytest.raises(InputError, match=r"mix_clean: 1\.0, allowed: from 0 to below 1"):
        check(tiny(mix_clean=1.0))
    assert unused(tiny(method="fedavg", channel="histogram", mix_rounds=9)) == (
        "mix_rounds: 9 has no effect with method fedavg",
    )
