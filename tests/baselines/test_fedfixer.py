"""FedFixer: who learns what, both regularisers, the model that stays on its client, and whole runs."""

import math

import numpy as np
import pytest
import tiny_client as tiny
import torch
import torch.nn.functional as F

from fedgr_secure.baseline_sections import FedFixerConfig
from fedgr_secure.baselines.fedavg import ProximalTerm
from fedgr_secure.baselines.fedfixer import FEDFIXER, FixerState, NearReceived, Picking, check_client
from fedgr_secure.checks import check, unused
from fedgr_secure.data.types import ArrayImages, Shard
from fedgr_secure.errors import DivergedError, InputError
from fedgr_secure.federation.loop import resume
from fedgr_secure.federation.view import ServerView
from fedgr_secure.messages import Train, Update
from fedgr_secure.models.output import Output
from fedgr_secure.models.several import Several, each_output
from fedgr_secure.training import OWN
from fedgr_secure.wire import from_bytes

# the loss


class Given(torch.nn.Module):
    """A model that answers the logits (margin, 0) whatever it sees."""

    def __init__(self, margins):
        super().__init__()
        self.margins = torch.nn.Parameter(torch.tensor(margins))

    def forward(self, images):
        return Output(torch.stack([self.margins, torch.zeros_like(self.margins)], 1), images)


def picking(first, second, *, forget, confidence=0.0, shares=(0.75, 0.25)):
    """The loss and each model's gradient, over a batch in which every label is 0."""
    models = [Given(first), Given(second)]
    batch = {"images": torch.zeros(len(first), 1), "labels": torch.zeros(len(first), dtype=torch.int64)}
    loss = Picking(forget, confidence, torch.tensor(shares))({}, batch, Several(models))
    loss.backward()
    return loss.item(), *(model.margins.grad.tolist() for model in models)


def nats(margin):
    """The loss of label 0 with logits (margin, 0)."""
    return math.log(1 + math.exp(-margin))


def test_each_model_learns_what_the_other_picks():
    # the global model's losses are smallest for 0 and 1, the personalised one's for 2 and 3
    loss, shared, own = picking([4.0, 3.0, 0.0, 1.0], [-1.0, 0.5, 2.0, 5.0], forget=0.5)
    assert loss == pytest.approx((nats(0.0) + nats(1.0)) / 2 + (nats(-1.0) + nats(0.5)) / 2, rel=1e-6)
    assert shared == pytest.approx([0, 0, -0.5 / 2, -0.5 / (1 + math.e)], rel=1e-5)
    assert own == pytest.approx([-0.5 / (1 + math.exp(-1)), -0.5 / (1 + math.exp(0.5)), 0, 0], rel=1e-5)


def test_the_confidence_regulariser_by_hand():
    # each model learns one sample: CE(0) - 0.4 (0.75 CE(0) + 0.25 CE(1)), where CE(1) = CE(0) + margin
    loss, shared, own = picking([2.0, 1.0], [-1.0, 3.0], forget=0.5, confidence=0.4)
    expected = sum(0.6 * nats(margin) - 0.1 * margin for margin in (1.0, -1.0))
    assert loss == pytest.approx(expected, rel=1e-5)
    assert shared[0] == own[1] == 0
    assert shared[1] == pytest.approx(-0.6 / (1 + math.e) - 0.1, rel=1e-4)


def test_boundless_confidence_has_an_end():
    loss, shared, _ = picking([500.0], [500.0], forget=1.0, confidence=0.4)
    assert loss == pytest.approx(2 * 0.4 * 0.25 * math.log(1e-8), rel=1e-4) and shared == [0]


def test_the_distance_moves_the_personalised_model_alone():
    term = NearReceived(ProximalTerm(0.5, {"w": torch.tensor([1.0, 2.0])}))
    shared, own = torch.tensor([9.0, 9.0], requires_grad=True), torch.tensor([4.0, 6.0], requires_grad=True)
    value = term({"w": shared, OWN + "w": own})
    value.backward()
    assert value.item() == 0.25 * (9 + 16) and own.grad.tolist() == [1.5, 2.0] and shared.grad is None


# one client


def context(labels=None, *, norm="group", **settings):
    labels = np.array([0, 1, 2, 0, 1, 0] if labels is None else labels, np.int64)
    own = Shard(3, np.arange(len(labels)), labels, ArrayImages(tiny.pictures(len(labels))))
    return tiny.context(tiny.config(epochs=2, fedfixer=FedFixerConfig(**settings)), own=own, norm=norm)


def train(own, state=None, *, round=4):
    """The task, the reply, and the state after it, from the same received weights."""
    half = FEDFIXER.client(own, state)
    task = half.answer(Train(round, tiny.shifted(context().bench.weights(), 0.3)))
    return task, task.finish(own.bench.train(task)), half.state


def test_the_task_and_where_the_personalised_model_starts():
    own = context()
    task, reply, state = train(own)
    assert task.own is task.start and task.objective.forget == pytest.approx(0.2 * 4 / 10)
    torch.testing.assert_close(task.objective.labels, torch.tensor([3, 2, 1]) / 6)
    assert isinstance(reply, Update) and (reply.round, reply.samples) == (4, 6)
    assert reply.weights.keys() == state.personal.keys() == task.start.keys()
    assert not tiny.same(reply.weights, state.personal)
    again = train(own, state, round=5)[0]
    assert again.own is state.personal and again.start is not again.own


@pytest.mark.parametrize(("round", "share"), [(0, 0.0), (5, 0.3), (10, 0.6), (99, 0.6)])
def test_the_share_grows(round, share):
    assert train(context(fixer_forget=0.6), round=round)[0].objective.forget == pytest.approx(share)


def test_without_picking_and_regularisers_each_trains_as_alone():
    own = context(fixer_forget=0.0, fixer_confidence=0.0, fixer_distance=0.0)
    start = tiny.shifted(own.bench.weights(), 0.9)
    task, reply, state = train(own, FixerState(start))
    assert task.penalty is None

    def alone(parameters, batch, forward):
        return F.cross_entropy(forward(batch["images"])[0], batch["labels"])

    for weights, trained in ((task.start, reply.weights), (start, state.personal)):
        bench = tiny.workbench(own.config)
        single = tiny.task(
            bench, alone, images=own.shard.images(), columns=task.columns, start=weights, epochs=2, round=4
        )
        assert tiny.same(bench.train(single), trained)


def test_a_strong_distance_holds_the_personalised_model_at_the_received_one():
    far = tiny.shifted(context().bench.weights(), 2.0)
    gaps = []
    for weight in (0.0, 5.0):
        task, _, state = train(context(fixer_distance=weight), FixerState(far))
        gaps.append(sum(np.abs(state.personal[name] - value).sum() for name, value in task.start.items()))
    assert gaps[1] < 0.5 * gaps[0]


def test_training_leaves_what_was_kept_as_it_was():
    kept = FixerState(tiny.shifted(context().bench.weights(), 0.5))
    copies = {name: value.copy() for name, value in kept.personal.items()}
    first, second = train(context(), kept)[2], train(context(), kept)[2]
    assert tiny.same(kept.personal, copies) and tiny.same(first.personal, second.personal)


@pytest.mark.parametrize("labels", [[1, 1], [0, 1, 2, 0, 1], [2] * 9], ids=str)  # batches of 4: also of one sample
def test_absent_classes_and_small_batches_train_with_batch_norm(labels):
    own = context(labels, norm="batch", fixer_forget=1.0)
    half = FEDFIXER.client(own, None)
    weights = own.bench.weights()
    reply = own.bench.train(half.answer(Train(50, weights)))
    for trained in (reply, half.state.personal):
        assert all(np.isfinite(value).all() for value in trained.values())
        assert any("running_mean" in name and (value != weights[name]).any() for name, value in trained.items())


def test_constant_losses_train_on_the_first_samples():
    zero = {name: np.zeros_like(value) for name, value in context().bench.weights().items()}
    own = context()
    trained = own.bench.train(FEDFIXER.client(own, None).answer(Train(50, zero)))
    assert all(np.isfinite(value).all() for value in trained.values())


def test_a_personalised_model_that_diverges_is_refused():
    own = context()
    task = FEDFIXER.client(own, None).answer(Train(2, own.bench.weights()))
    with pytest.raises(DivergedError, match=r"client 3, round 2: own model: .* holds a non-finite number"):
        task.keep({name: value * np.float32("nan") for name, value in task.start.items()})


def test_a_stored_model_of_another_kind_is_refused():
    own = context()
    check_client(FixerState({}), own)
    check_client(FixerState(own.bench.weights()), own)
    with pytest.raises(InputError, match="personal: other tensors than the global model's"):
        check_client(FixerState({"w": np.zeros(2)}), own)


def test_the_objective_sees_the_shared_model_first():
    bench, seen = tiny.workbench(), []
    own = tiny.shifted(bench.weights(), 1.0)

    def look(parameters, batch, forward):
        outputs = each_output(forward, batch["images"])
        seen.append([output.logits.detach().clone() for output in outputs])
        names = {name for name in parameters if name.startswith(OWN)}
        assert {name.removeprefix(OWN) for name in names} == parameters.keys() - names == set(bench.trainable())
        return outputs[1].logits.square().mean()

    kept, start = [], bench.weights()
    trained = bench.train(tiny.task(bench, look, own=own, keep=kept.append))
    assert len(kept) == 1 and not tiny.same(kept[0], own)
    draw = bench.randomness.torch("local training", client=3, round=2)
    images = tiny.pictures(10)[torch.randperm(10, generator=draw).split(4)[0].numpy()]
    for number, weights in enumerate((start, own)):
        torch.testing.assert_close(seen[0][number], bench.predict(weights, images).logits)
    assert trained.keys() == start.keys()


# runs

RUN = {"method": "fedfixer", "fixer_rounds": 1}


def personal_models(result):
    """What the clients keep, from the checkpoint."""
    paths = [path for path in sorted((result.folder / "checkpoint").rglob("*")) if path.is_file()]
    found = [path.read_bytes() for path in paths]
    return [from_bytes(data, [FixerState]).personal for data in found if b"FixerState" in data[:8192]]


def test_no_personalised_weight_is_in_the_server_s_view(finished):
    settings = {"batch_size": 8}  # several steps a training; after the very first both models are still equal
    result = finished(**RUN, **settings, record_view="all", checkpoint_every=1)
    kept = personal_models(result)
    assert len(kept) == 4 and all(kept)
    view = ServerView(result.folder / "view", FEDFIXER.messages)
    messages = [seen.message for number in view.rounds() for seen in view.messages(number)]
    assert all(message.weights.keys() == result.weights.keys() for message in messages)
    data = b"".join(path.read_bytes() for path in (result.folder / "view").rglob("*") if path.is_file())
    for personal in kept:
        for name, value in personal.items():
            assert (value != result.weights[name]).any() and value.tobytes() not in data, name
    assert result.summary.bytes_up == finished(method="fedavg", **settings).summary.bytes_up


@pytest.mark.slow
def test_it_runs_under_a_secure_sum(finished):
    changes = {**RUN, "entropy": "insecure-seeded", "cohort": 4}
    summed, clear = finished(**changes, secagg=True), finished(**changes)
    assert all(record.secure_sum is not None and record.secure_sum.aborted is None for record in summed.rounds)
    for name, value in clear.weights.items():
        np.testing.assert_allclose(summed.weights[name], value, atol=2e-2)


@pytest.mark.slow
def test_a_stopped_run_continues_to_the_same_bytes(stopped, finished):
    folder = stopped(after=3, checkpoint_every=2, **RUN)
    resume(folder)
    for name in ("rounds.jsonl", "weights.safetensors", "clients.json"):
        assert (folder / name).read_bytes() == (finished(**RUN).folder / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"norm": "batch"}, {"dropout": 0.4, "checkpoint_every": 1}, {"phi": 0.0}], ids=str)
def test_other_surroundings(finished, changes):
    assert len(finished(**RUN | changes).rounds) == 4


def test_settings(tiny):
    with pytest.raises(InputError, match=r"weights_epsilon: 2\.0, allowed with method fedfixer: none \(its loss picks"):
        check(tiny(method="fedfixer", weights_epsilon=2.0))
    assert unused(tiny(method="fedavg", channel="histogram", fixer_rounds=9)) == (
        "fixer_rounds: 9 has no effect with method fedavg",
    )
