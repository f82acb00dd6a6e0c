"""One model that is several networks: what it answers, how it trains, and which weights a run starts it from."""

import dataclasses

import pytest
import tiny_client as tiny
import torch
import torch.nn.functional as F

from attacks.models import predictor
from fedgr_secure.config import override
from fedgr_secure.federation.model import model_of
from fedgr_secure.models import build_model
from fedgr_secure.models.several import Several, each_output
from fedgr_secure.randomness import Randomness
from fedgr_secure.registry import METHODS
from fedgr_secure.sections import ModelConfig

IMAGES = torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
MLP = ModelConfig(model="mlp", width=1)


def network(seed):
    return build_model(MLP, tiny.SPEC, seed=seed)


@pytest.fixture
def two_networks(monkeypatch):
    """FedAvg, as if it trained two networks."""
    monkeypatch.setitem(METHODS, "fedavg", dataclasses.replace(METHODS["fedavg"], networks=2))


def config(seed=7, **changes):
    return override(tiny.config(model=MLP, seed=seed), {"method": "fedavg", **changes})


def test_the_answer_is_the_mean_of_the_logits_and_all_features():
    one, two = network(1), network(2)
    output = Several([one, two])(IMAGES)
    torch.testing.assert_close(output.logits, (one(IMAGES).logits + two(IMAGES).logits) / 2)
    assert torch.equal(output.features, torch.cat([one(IMAGES).features, two(IMAGES).features], 1))
    each = each_output(Several([one, two]), IMAGES)
    assert torch.equal(each[0].logits, one(IMAGES).logits) and torch.equal(each[1].logits, two(IMAGES).logits)
    with pytest.raises(AssertionError, match="MLP"):
        each_output(one, IMAGES)


def test_each_network_trains_as_it_would_alone():
    def loss(parameters, batch, forward):
        outputs = each_output(forward, batch["images"]) if isinstance(forward, Several) else [forward(batch["images"])]
        return sum(F.cross_entropy(output.logits, batch["labels"]) for output in outputs)

    columns = {"labels": torch.arange(10) % tiny.CLASSES}
    run = tiny.config(epochs=2)
    both = tiny.workbench(run, model=Several([network(1), network(2)]))
    trained = both.train(tiny.task(both, loss, columns=columns, epochs=2))
    for position, seed in enumerate((1, 2)):
        alone = tiny.workbench(run, model=network(seed))
        for name, value in alone.train(tiny.task(alone, loss, columns=columns, epochs=2)).items():
            assert (trained[f"networks.{position}.{name}"] == value).all()


def test_a_run_s_only_network_is_what_it_always_was():
    ours = model_of(config(), tiny.SPEC).state_dict()
    theirs = build_model(MLP, tiny.SPEC, seed=Randomness(7).integer("initial weights")).state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_second_network_differs_and_leaves_the_first_as_it_was(two_networks):
    first, second = model_of(config(), tiny.SPEC).networks
    alone = build_model(MLP, tiny.SPEC, seed=Randomness(7).integer("initial weights"))
    assert torch.equal(first.classifier.weight, alone.classifier.weight)
    assert not torch.equal(first.classifier.weight, second.classifier.weight)
    again, other = (model_of(config(seed), tiny.SPEC).networks[1].classifier.weight for seed in (7, 8))
    assert torch.equal(second.classifier.weight, again) and not torch.equal(again, other)


def test_attacks_ask_the_same_model_as_the_clients_train(two_networks):
    run, images = config(), tiny.pictures(5)
    model = model_of(run, tiny.SPEC)
    bench = tiny.workbench(run, model=model)
    asked = predictor(run, tiny.SPEC)(bench.weights(), images)
    expected = F.log_softmax(bench.predict(bench.weights(), images).logits.double(), dim=1).numpy()
    assert asked.shape == (5, tiny.CLASSES) and (asked == expected).all()
