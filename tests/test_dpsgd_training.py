"""Private training: what one record can change, the noise, the sampling, and its equality with SGD where it is off."""

import dataclasses
import itertools

import numpy as np
import pytest
import tiny_client as tiny
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedgr_secure.baselines.fedavg import ProximalTerm, given_labels
from fedgr_secure.data.types import ArrayImages, Shard
from fedgr_secure.dpsgd import PrivateSGD, secret_generator, torch_generator
from fedgr_secure.errors import InputError
from fedgr_secure.method.client import FedGRClient, first_state
from fedgr_secure.method.messages import Revise
from fedgr_secure.method.sieve import Mixture
from fedgr_secure.models import build_model
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import DPSGDConfig, FedGRConfig, ModelConfig, ProxyConfig
from privacy.channels.plain import PlainProxies
from privacy.dpsgd import DPSGD

CLIENT, ROUND, COUNT = 3, 2, 10


class Fixed:
    """Keys that a test sets."""

    def __init__(self, seed=7):
        self.value, self.confirmed = seed, []

    def key(self, client, round):
        return (self.value + 1000 * client + round).to_bytes(32, "little")

    def confirm(self, client, round, weights):
        self.confirmed.append((client, round, {name: value.copy() for name, value in weights.items()}))


def private(run, *, noise=0.0, clip=1.0, count=COUNT, done=0, seeds=None, trainings=5, **bench):
    """A workbench that trains client 3 by DP-SGD."""
    made, size = tiny.workbench(run, **bench), min(run.training.batch_size, count)
    plan = DPSGD(size / count, run.training.local_epochs * -(-count // size), trainings, noise, 1e-5)
    made.sgd = PrivateSGD({CLIENT: plan}, clip, lambda client: done, seeds or Fixed())
    return made


def labelled(bench, count=COUNT, *, images=None, labels=None, **changes):
    images = tiny.pictures(count) if images is None else images
    labels = torch.arange(count) % tiny.CLASSES if labels is None else labels
    return tiny.task(bench, given_labels, images=images, columns={"labels": labels}, **changes)


def flat(weights):
    return np.concatenate([value.ravel() for value in weights.values()]).astype(np.float64)


def test_without_noise_and_clipping_a_full_batch_is_a_step_of_sgd():
    run = tiny.config(epochs=3, batch=COUNT)
    plain, bench = tiny.workbench(run), private(run, clip=1e6)
    expected, found = plain.train(labelled(plain, epochs=3)), bench.train(labelled(bench, epochs=3))
    np.testing.assert_allclose(flat(found), flat(expected), atol=2e-6)
    assert np.abs(flat(found) - flat(bench.weights())).max() == 0, "the bench holds what was trained"


def test_a_penalty_on_the_weights_is_added_to_the_private_gradient():
    run = tiny.config(epochs=2, batch=COUNT)
    plain, bench = tiny.workbench(run), private(run, clip=1e6)
    anchor = {name: torch.from_numpy(value) + 0.3 for name, value in plain.weights().items()}
    pulled = ProximalTerm(2.0, anchor)
    expected = plain.train(labelled(plain, epochs=2, penalty=pulled))
    free = plain.train(labelled(plain, epochs=2))
    found = bench.train(labelled(bench, epochs=2, penalty=pulled))
    np.testing.assert_allclose(flat(found), flat(expected), atol=5e-6)
    assert np.abs(flat(free) - flat(expected)).max() > 0.01


@given(
    seed=st.integers(0, 2**20),
    row=st.integers(0, COUNT - 1),
    clip=st.sampled_from([0.01, 0.3, 2.0]),
    label=st.integers(0, 2),
)
@settings(max_examples=15)
def test_replacing_a_record_moves_a_step_by_twice_the_clip_at_most(seed, row, clip, label):
    run = tiny.config(batch=COUNT, lr=0.5)
    moved = []
    for replaced in (False, True):
        bench, images = private(run, clip=clip), tiny.pictures(COUNT, seed)
        labels = torch.arange(COUNT) % tiny.CLASSES
        if replaced:
            images[row] = tiny.pictures(1, seed + 1)[0]
            labels[row] = label
        moved.append(flat(bench.train(labelled(bench, images=images, labels=labels))))
    assert np.linalg.norm(moved[0] - moved[1]) <= 2 * clip * 0.5 / COUNT * 1.001 + 1e-6


def revised(run, labels, images, losses, *, noise_of_sieve):
    """The step of a FedGR client whose mixture is public, as a function of its records."""
    bench = private(run, clip=0.05)
    own = Shard(CLIENT, np.arange(COUNT), labels, ArrayImages(images))
    state = dataclasses.replace(
        first_state(COUNT), participations=1, observed=1, mean_losses=losses, pseudo_labels=(labels + 1) % tiny.CLASSES
    )
    client = FedGRClient(tiny.context(run, own=own, bench=bench), state)
    mixture = Mixture((0.1, 3.0), (0.05, 0.5), (1 - noise_of_sieve, noise_of_sieve), None)
    start = bench.weights()
    task = client.answer(Revise(ROUND, start, mixture, None, None))
    return flat(bench.train(task)) - flat(start)


@given(seed=st.integers(0, 2**20), loss=st.floats(0.0, 4.0), label=st.integers(0, 2))
@settings(max_examples=15)
def test_replacing_a_record_of_a_fedgr_client_moves_no_other_record_s_target(seed, loss, label):
    """beta is set so that r_k switches all targets when one record's verdict changes: private training must not."""
    losses = np.where(np.arange(COUNT) == 0, 3.0, 0.05)
    run = tiny.config(
        batch=COUNT,
        lr=0.5,
        fedgr=FedGRConfig(beta=0.15, confidence=1.0),
        dp_sgd=DPSGDConfig(weights_epsilon=8.0),
        proxies=ProxyConfig(channel="histogram"),
    )
    images, labels = tiny.pictures(COUNT, seed), np.zeros(COUNT, np.int64)
    one = revised(run, labels, images, losses, noise_of_sieve=0.5)
    other_images, other_labels, other_losses = images.copy(), labels.copy(), losses.copy()
    other_images[-1], other_labels[-1], other_losses[-1] = tiny.pictures(1, seed + 1)[0], label, max(loss, 3.0)
    two = revised(run, other_labels, other_images, other_losses, noise_of_sieve=0.5)
    assert np.linalg.norm(one - two) <= 2 * 0.05 * 0.5 / COUNT * 1.001 + 1e-6
    coupled = dataclasses.replace(run, dp_sgd=DPSGDConfig())
    one = revised(coupled, labels, images, losses, noise_of_sieve=0.5)
    two = revised(coupled, other_labels, other_images, other_losses, noise_of_sieve=0.5)
    assert np.linalg.norm(one - two) > 2 * 0.05 * 0.5 / COUNT, "without the rule the client's r_k does switch them"


def test_a_client_without_a_public_mixture_is_refused():
    run = tiny.config(dp_sgd=DPSGDConfig(weights_epsilon=8.0))
    client = FedGRClient(tiny.context(run, channel=PlainProxies()), None)
    with pytest.raises(InputError, match=r"^Revise: no mixture, allowed with weights_epsilon"):
        client.answer(Revise(ROUND, tiny.workbench(run).weights(), None, None, None))


def silent(parameters, batch, forward):
    """A loss whose gradient is 0."""
    return F.cross_entropy(forward(batch["images"])[0], batch["labels"]) * 0.0


def noise_of(batch, *, noise, epochs=1, lr=1.0):
    """Standardised movements of every weight, with no gradient: multiples of noise * clip * lr / batch."""
    run = tiny.config(batch=batch, epochs=epochs, lr=lr)
    run = dataclasses.replace(run, training=dataclasses.replace(run.training, momentum=0.0, weight_decay=0.0))
    bench = private(run, noise=noise, clip=2.0, model=build_model(ModelConfig(model="mlp", width=8), tiny.SPEC, seed=5))
    start = bench.weights()
    task = tiny.task(bench, silent, columns={"labels": torch.arange(COUNT) % tiny.CLASSES}, epochs=epochs)
    return (flat(bench.train(task)) - flat(start)) * batch / (2.0 * lr)


@pytest.mark.parametrize("batch", [COUNT, 4])
def test_every_step_adds_noise_of_the_planned_size(batch):
    steps, noise = -(-COUNT // batch), 3.0
    moved = noise_of(batch, noise=noise)
    assert len(moved) > 4000
    accepted = stats.kstest(moved / (noise * steps**0.5), "norm").pvalue
    assert accepted > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(moved / (noise * steps**0.5 * wrong), "norm").pvalue < 1e-9


def test_batches_are_poisson_samples_that_the_public_seed_does_not_tell():
    run = tiny.config(batch=4, epochs=40)
    seen = []
    for seed in (1, 2):
        bench = private(run, seeds=Fixed(seed))
        with_rows = tiny.task(bench, given_labels, epochs=40)
        sgd = bench.sgd(bench, with_rows, {n: bench.model.get_parameter(n) for n in bench.trainable()})
        seen.append([rows.tolist() for _, rows in sgd.batches(COUNT, 40, torch.Generator().manual_seed(0))])
        sgd.close(bench.weights())
    first, second = seen
    assert len(first) == 120 and first != second
    sizes = np.array([len(rows) for rows in first])
    assert set(sizes) > {2, 3, 4, 5, 6} and stats.binomtest(int(sizes.sum()), 120 * COUNT, 0.4).pvalue > 1e-3
    assert all(rows == sorted(set(rows)) for rows in first)


@pytest.mark.parametrize("bit", [0, 33, 64, 127, 200, 255])
def test_every_bit_of_the_key_counts(bit):
    """torch's CPU generator takes the low 32 bits of a seed alone: 2^32 of them can be tried."""
    first, second = secret_generator(bytes(32)), secret_generator((1 << bit).to_bytes(32, "little"))
    assert (first.standard_normal(50) != second.standard_normal(50)).all()
    views = [torch.rand(50, generator=torch_generator(one)) for one in (first, second)]
    assert (views[0] != views[1]).all()
    assert stats.kstest(torch.rand(4000, generator=torch_generator(first)).numpy(), "uniform").pvalue > 1e-3


def test_the_stream_is_that_of_another_library_s_chacha20():
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    key = bytes(range(32))
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(4096))
    assert secret_generator(key).bytes(4096) == stream


def test_the_public_seed_tells_nothing_of_a_private_training_and_the_key_all():
    run, results = tiny.config(batch=4), []
    for public, secret in ((0, 5), (1, 5), (0, 6)):
        bench = private(run, noise=0.0, seeds=Fixed(secret), randomness=Randomness(public))
        results.append(bench.train(labelled(bench, view="strong")))
    assert tiny.same(results[0], results[1]), "views, too, come from the key"
    assert not tiny.same(results[0], results[2])


def test_a_step_that_drew_nobody_moves_by_noise_alone():
    run = tiny.config(batch=1, epochs=4)
    bench = private(run, noise=1.0, seeds=Fixed(3))
    sizes = []
    task = tiny.task(
        bench,
        lambda parameters, batch, forward: sizes.append(len(batch["images"])) or silent(parameters, batch, forward),
        columns={"labels": torch.arange(COUNT) % tiny.CLASSES},
        epochs=4,
    )
    steps = []
    bench.train(dataclasses.replace(task, on_step=lambda live, step: steps.append(flat_live(live))))
    assert len(steps) == 40 and len(sizes) < 40 and min(sizes) > 0
    assert all((early != late).any() for early, late in itertools.pairwise(steps))


def flat_live(live):
    return np.concatenate([value.detach().numpy().copy().ravel() for value in live.values()])


def test_a_record_whose_gradient_is_no_number_counts_for_nothing():
    def broken(parameters, batch, forward):
        logits = forward(batch["images"])[0]
        return (F.cross_entropy(logits, batch["labels"], reduction="none") * batch["factor"]).mean()

    run, results = tiny.config(batch=COUNT), []
    for factor in (float("nan"), 0.0):
        bench = private(run, clip=0.5)
        columns = {"labels": torch.arange(COUNT) % tiny.CLASSES, "factor": torch.ones(COUNT)}
        columns["factor"][4] = factor
        results.append(flat(bench.train(tiny.task(bench, broken, columns=columns))))
    assert np.isfinite(results[0]).all()
    np.testing.assert_allclose(results[0], results[1], atol=1e-6)


def test_a_client_whose_budget_is_used_up_sends_the_weights_as_they_came():
    run, seeds = tiny.config(batch=4), Fixed()
    trained = private(run, noise=1.0, done=4, seeds=seeds)
    start = trained.weights()
    assert not tiny.same(trained.train(labelled(trained)), start) and len(seeds.confirmed) == 1
    spent = private(run, noise=1.0, done=5, seeds=seeds)
    assert tiny.same(spent.train(labelled(spent)), start) and len(seeds.confirmed) == 1


def test_a_training_repeats_with_its_seed_and_leaves_nothing_on_the_model():
    run, results = tiny.config(batch=4), []
    for seed in (5, 5, 6):
        seeds = Fixed(seed)
        bench = private(run, noise=1.0, seeds=seeds)
        before = bench.predict(bench.weights(), tiny.pictures(4)).logits
        results.append(bench.train(labelled(bench)))
        assert seeds.confirmed[0][:2] == (CLIENT, ROUND) and tiny.same(seeds.confirmed[0][2], results[-1])
        start = tiny.workbench(run).weights()
        assert torch.equal(bench.predict(start, tiny.pictures(4)).logits, before)
        assert not any(hasattr(value, "grad_sample") for value in bench.model.parameters())
        bench.train(labelled(bench))
    assert tiny.same(results[0], results[1]) and not tiny.same(results[0], results[2])


@pytest.mark.parametrize(("model", "side"), [("cnn", 8), pytest.param("resnet18", 8, marks=pytest.mark.slow)])
def test_the_models_have_gradients_for_each_record(model, side):
    """Opacus's sampler for convolutions is wrong for the layout in which the small CNN keeps its activations."""
    spec = dataclasses.replace(tiny.SPEC, height=side, width=side)
    run = tiny.config(batch=4)
    images = np.random.default_rng(0).integers(0, 256, (4, 1, side, side), dtype=np.uint8)
    made = build_model(ModelConfig(model=model, width=4), spec, seed=5)
    plain, bench = tiny.workbench(run, model=made, spec=spec), private(run, count=4, clip=1e6, model=made, spec=spec)
    start = plain.weights()
    expected = plain.train(labelled(plain, 4, images=images, start=start))
    found = bench.train(labelled(bench, 4, images=images, start=start))
    np.testing.assert_allclose(flat(found), flat(expected), atol=1e-4)


def test_batch_norm_is_refused_by_the_trainer_too():
    bench = private(tiny.config(batch=4), norm="batch")
    with pytest.raises(InputError, match=r"^weights_epsilon, allowed: with a model that treats each record alone"):
        bench.train(labelled(bench))


def test_a_plan_for_other_numbers_is_refused():
    bench = private(tiny.config(batch=4))
    with pytest.raises(ValueError, match=r"^client 3: rate 0\.4, 6 steps, planned: 0\.4, 3"):
        bench.train(labelled(bench, epochs=2))
