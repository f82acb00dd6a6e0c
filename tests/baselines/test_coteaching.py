"""FL-Coteaching: the schedule, who learns from what, where the share comes from, and whole runs."""

import dataclasses
import math

import numpy as np
import pytest
import tiny_client as tiny
import torch
import torch.nn.functional as F

from fedgr_secure.app.tables import compare_csv, compare_markdown, compare_rows, summary_table
from fedgr_secure.baseline_sections import CoteachingConfig
from fedgr_secure.baselines.coteaching import COTEACHING, Exchange, forget_share, picked, smallest
from fedgr_secure.checks import check, unused
from fedgr_secure.errors import InputError
from fedgr_secure.federation import federation
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.federation.loop import resume, run
from fedgr_secure.messages import Train, Update
from fedgr_secure.method.sieve import fit_mixture, judge
from fedgr_secure.models import build_model
from fedgr_secure.models.output import Output
from fedgr_secure.models.several import Several
from fedgr_secure.sections import ModelConfig


def context(*, norm="group", shard=None, **settings):
    """One client's surroundings with two networks."""
    networks = [build_model(ModelConfig(model="mlp", norm=norm, width=1), tiny.SPEC, seed=seed) for seed in (1, 2)]
    run = tiny.config(epochs=2, coteaching=CoteachingConfig(**settings))
    return tiny.context(run, own=shard, bench=tiny.workbench(run, model=Several(networks)))


# how much is left out


@pytest.mark.parametrize(
    ("round", "exponent", "share"),
    [(0, 1, 0.0), (5, 1, 0.08), (24, 1, 0.384), (25, 1, 0.4), (900, 1, 0.4), (4, 2, 0.256), (5, 2, 0.4)],
)
def test_the_share_grows_to_the_rate(round, exponent, share):
    # 0.4 * 5 / 25 = 0.08; 0.4 * 24 / 25 = 0.384; 0.4 * 4^2 / 25 = 0.256
    assert forget_share(0.4, round, rounds=25, exponent=exponent) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(
    ("count", "forget", "left"), [(10, 0.3, 7), (10, 0.8, 2), (10, 0.75, 2), (5, 0.0, 5), (3, 0.9, 1), (1, 1.0, 1)]
)
def test_at_least_one_sample_is_picked(count, forget, left):
    assert picked(count, forget) == left


def test_the_smallest_losses_and_of_equal_ones_the_first():
    assert smallest(torch.tensor([3.0, 1.0, 2.0, 0.5]), 2).tolist() == [3, 1]
    assert smallest(torch.ones(5), 3).tolist() == [0, 1, 2]
    assert smallest(torch.tensor([math.nan, 2.0, math.inf, 1.0]), 3).tolist() == [3, 1, 2]


# the exchange


class Given(torch.nn.Module):
    """A network that answers the same logits whatever it sees."""

    def __init__(self, margins):
        super().__init__()
        self.margins = torch.nn.Parameter(torch.tensor(margins))

    def forward(self, images):
        return Output(torch.stack([self.margins, torch.zeros_like(self.margins)], 1), images)


def nats(margin):
    """The loss of label 0 with logits (margin, 0)."""
    return math.log(1 + math.exp(-margin))


def exchanged(first, second, forget):
    """The loss and each network's gradient, over a batch in which every label is 0."""
    networks = [Given(first), Given(second)]
    batch = {"images": torch.zeros(len(first), 1), "labels": torch.zeros(len(first), dtype=torch.int64)}
    loss = Exchange(forget)({}, batch, Several(networks))
    loss.backward()
    return loss.item(), *(network.margins.grad.tolist() for network in networks)


def test_each_network_learns_what_the_other_picks():
    # losses fall with the margin: the first network picks samples 0 and 1, the second samples 2 and 3
    first, second = [4.0, 3.0, 0.0, 1.0], [-1.0, 0.5, 2.0, 5.0]
    loss, to_first, to_second = exchanged(first, second, 0.5)
    assert loss == pytest.approx((nats(0.0) + nats(1.0)) / 2 + (nats(-1.0) + nats(0.5)) / 2, rel=1e-6)
    # the gradient of a mean over two: -1/2 / (1 + exp(margin)), on the samples that the other picked and on no other
    assert to_first == pytest.approx([0, 0, -0.5 / 2, -0.5 / (1 + math.e)], rel=1e-5)
    assert to_second == pytest.approx([-0.5 / (1 + math.exp(-1)), -0.5 / (1 + math.exp(0.5)), 0, 0], rel=1e-5)


def test_nothing_left_out_is_two_separate_trainings():
    loss, to_first, _ = exchanged([1.0, 2.0], [0.0, 3.0], 0.0)
    assert loss == pytest.approx((nats(1.0) + nats(2.0) + nats(0.0) + nats(3.0)) / 2, rel=1e-6)
    assert 0 not in to_first


def test_a_batch_of_one_is_learnt_from_even_when_everything_is_to_be_left_out():
    loss, to_first, to_second = exchanged([1.0], [2.0], 1.0)
    assert loss == pytest.approx(nats(1.0) + nats(2.0), rel=1e-6)
    assert to_first[0] < 0 and to_second[0] < 0


# one client


def test_the_task_is_one_training_of_both_networks():
    own = context()
    weights = own.bench.weights()
    task = COTEACHING.client(own, None).answer(Train(4, weights))
    assert (task.client, task.round, task.view, task.epochs) == (3, 4, "plain", 2)
    assert task.columns["labels"].tolist() == own.shard.labels.tolist() and task.start is weights
    reply = task.finish(own.bench.train(task))
    assert isinstance(reply, Update) and (reply.round, reply.samples) == (4, 10)
    moved = [name for name, value in reply.weights.items() if (value != weights[name]).any()]
    assert {name.split(".")[1] for name in moved} == {"0", "1"}


def forgets(own, round=50):
    weights = tiny.shifted(own.bench.weights(), 0.5)
    return COTEACHING.client(own, None).answer(Train(round, weights)).objective.forget, weights


def test_by_default_the_share_is_the_client_s_own_estimate():
    own = context(shard=tiny.shard(40))
    forget, weights = forgets(own)
    logits = own.bench.predict(weights, own.shard.images()).logits.double()
    losses = F.cross_entropy(logits, torch.from_numpy(own.shard.labels), reduction="none").numpy()
    seed = own.randomness.integer("client mixture", client=3, round=50)
    assert forget == judge(fit_mixture(losses, seed=seed), losses).noise_rate
    assert 0 < forget < 1


def test_an_estimate_is_kept_as_a_verdict_and_a_given_rate_is_none():
    own = context(shard=tiny.shard(40))
    weights = tiny.shifted(own.bench.weights(), 0.5)
    losses = own.bench.predict(weights, own.shard.images()).losses(own.shard.labels)
    mixture = fit_mixture(losses, seed=own.randomness.integer("client mixture", client=3, round=50))
    client = COTEACHING.client(own, None)
    assert COTEACHING.verdict(client.state) is None
    client.answer(Train(50, weights))
    kept = COTEACHING.verdict(client.state)
    assert kept.q.tolist() == mixture.clean_probability(losses).tolist() and kept.noise_rate == (kept.q < 0.5).mean()
    told = context(shard=tiny.shard(40), forget="given", forget_rate=0.6)
    client = COTEACHING.client(told, None)
    client.answer(Train(50, weights))
    assert COTEACHING.verdict(client.state) is None


def test_constant_losses_leave_nothing_out():
    own = context(shard=tiny.shard(12))
    zero = {name: np.zeros_like(value) for name, value in own.bench.weights().items()}
    assert COTEACHING.client(own, None).answer(Train(50, zero)).objective.forget == 0.0


@pytest.mark.parametrize(("round", "share"), [(0, 0.0), (5, 0.12), (99, 0.6)])
def test_the_share_as_given(round, share):
    assert forgets(context(forget="given", forget_rate=0.6), round)[0] == pytest.approx(share)


def test_the_share_by_an_oracle_only_where_it_is_told():
    own = context(forget="oracle")
    with pytest.raises(InputError, match="forget: oracle"):
        forgets(own)
    assert forgets(dataclasses.replace(own, oracle_rate=0.3))[0] == pytest.approx(0.3)
    for honest in ({"forget": "estimated"}, {"forget": "given", "forget_rate": 0.5}):
        other = context(**honest)
        assert forgets(dataclasses.replace(other, oracle_rate=0.3))[0] == forgets(other)[0]


@pytest.mark.parametrize("samples", [2, 5, 9])
def test_small_clients_and_small_last_batches_train_with_batch_norm(samples):
    own = context(norm="batch", shard=tiny.shard(samples), forget="given", forget_rate=1.0)  # batches of 4: 4 and 1
    task = COTEACHING.client(own, None).answer(Train(50, own.bench.weights()))
    trained = own.bench.train(task)
    assert all(np.isfinite(value).all() for value in trained.values())


# runs

ORACLE = {"method": "coteaching", "forget": "oracle", "forget_rounds": 1}


def test_the_truth_comes_in_only_where_it_is_asked_for(tiny, tmp_path):
    rates = {}
    for forget in ("estimated", "given", "oracle"):
        for method in ("coteaching", "fedavg"):
            config = tiny(method=method, forget=forget, forget_rate=0.5)
            made = federation.prepare(config, RunFolder(tmp_path / "none"))
            rates[method, forget] = [made.context(client).oracle_rate for client in range(4)]
    told = rates.pop(("coteaching", "oracle"))
    assert told == made.evaluator.truth.realised_rate.tolist() and len(set(told)) > 1
    assert all(found == [None] * 4 for found in rates.values())


def test_an_oracle_that_does_not_know_is_refused(tiny, tmp_path, monkeypatch):
    federate = federation.federate

    def unknown(*arguments):
        data, truth = federate(*arguments)
        return data, dataclasses.replace(truth, realised_rate=np.full(4, np.nan))

    monkeypatch.setattr(federation, "federate", unknown)
    with pytest.raises(InputError, match="forget: oracle, allowed: with true labels; those of client 0 are not known"):
        run(tiny(**ORACLE, cohort=4, out=tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []
    assert run(tiny(method="coteaching", rounds=1, out=tmp_path / "run")).summary.oracle is None


def test_the_result_says_that_an_oracle_was_asked(finished):
    told, honest = finished(**ORACLE).summary, finished(method="coteaching").summary
    assert told.oracle == "the true noise rate of each client" and honest.oracle is None
    rows = {"coteaching": [told], "fedavg": [honest]}
    assert [row["oracle"] for row in compare_rows(rows)] == [told.oracle, None]
    markdown = compare_markdown(rows)
    assert "| coteaching (oracle) | 1 |" in markdown and "| fedavg | 1 |" in markdown
    assert markdown.endswith("coteaching (oracle) was told the true noise rate of each client.\n")
    first, second = compare_csv(rows).splitlines()[1:]
    assert first.endswith(",the true noise rate of each client") and second.endswith(",")
    cells = [list(summary_table(one).columns[1].cells) for one in (told, honest)]
    assert (told.oracle in cells[0]) and len(cells[0]) == len(cells[1]) + 1


def test_two_networks_cost_twice_the_bytes_of_one(finished):
    two, one = finished(method="coteaching").summary, finished(method="fedavg").summary
    assert two.bytes_up == pytest.approx(2 * one.bytes_up, rel=0.05)
    assert two.client_updates == one.client_updates


@pytest.mark.slow
def test_it_runs_under_a_secure_sum(finished):
    changes = {"method": "coteaching", "entropy": "insecure-seeded", "cohort": 4}
    summed, clear = finished(**changes, secagg=True), finished(**changes)
    assert all(record.secure_sum is not None and record.secure_sum.aborted is None for record in summed.rounds)
    for name, value in clear.weights.items():
        np.testing.assert_allclose(summed.weights[name], value, atol=2e-3)


@pytest.mark.slow
def test_a_stopped_run_continues_to_the_same_bytes(stopped, finished):
    folder = stopped(after=3, checkpoint_every=2, method="coteaching")
    resume(folder)
    for name in ("rounds.jsonl", "weights.safetensors", "clients.json"):
        assert (folder / name).read_bytes() == (finished(method="coteaching").folder / name).read_bytes()


# settings


def test_settings_that_cannot_be(tiny):
    with pytest.raises(InputError, match="forget_rate: not given, but forget is 'given'"):
        check(tiny(method="coteaching", forget="given"))
    check(tiny(forget="given"))
    with pytest.raises(InputError, match=r"forget_exponent: 11, allowed: a number above 0, at most 10"):
        check(tiny(forget_exponent=11))
    with pytest.raises(InputError, match=r"weights_epsilon: 2\.0, allowed with method coteaching: none"):
        check(tiny(method="coteaching", weights_epsilon=2.0))


def test_settings_without_effect_are_told(tiny):
    assert unused(tiny(method="fedavg", channel="histogram", forget_rounds=9)) == (
        "forget_rounds: 9 has no effect with method fedavg",
    )
    told = unused(tiny(method="coteaching", channel="histogram", forget_rate=0.5, forget_rounds=9))
    assert told == ("forget_rate: 0.5 has no effect with forget estimated",)
