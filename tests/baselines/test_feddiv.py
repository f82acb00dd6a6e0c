"""FedDiv: filters and their mean, which samples are used, which of a batch count, mixup, and whole runs."""

import dataclasses
import math
import re

import numpy as np
import pytest
import tiny_client as tiny
import torch
import torch.nn.functional as F
from scipy.stats import norm

from fedgr_secure.baseline_sections import FedDivConfig
from fedgr_secure.baselines.consistency import ConsistentLoss, consistent, usable
from fedgr_secure.baselines.feddiv import FEDDIV, DivState
from fedgr_secure.baselines.filters import (
    FitFilter,
    LocalFilter,
    Refine,
    local_filter,
    mean_filter,
    of_rows,
    rows_of,
)
from fedgr_secure.baselines.mixup import MixedLoss, blend, soft_cross_entropy
from fedgr_secure.checks import check, unused
from fedgr_secure.context import ServerContext
from fedgr_secure.errors import InputError
from fedgr_secure.federation.cohort import Cohort
from fedgr_secure.federation.loop import resume
from fedgr_secure.federation.view import ServerView, ViewRecorder
from fedgr_secure.messages import Train, Update
from fedgr_secure.method.sieve import Mixture
from fedgr_secure.models.output import Output
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import FederationConfig, PartitionConfig
from fedgr_secure.wire import from_bytes, to_bytes
from privacy.channels.plain import PlainProxies

TWO = Mixture((0.2, 2.0), (0.01, 0.25), (0.7, 0.3))

# filters


def drawn(clean=700, wrong=300, seed=0):
    draw = np.random.default_rng(seed)
    return np.concatenate([draw.normal(0.2, 0.1, clean), draw.normal(2.0, 0.5, wrong)])


def test_a_filter_finds_the_two_modes_with_the_clean_one_first():
    for start in (None, TWO, Mixture((0.0, 1.0), (0.2, 0.2), (0.5, 0.5))):
        found = local_filter(drawn(), start, seed=0)
        np.testing.assert_allclose(rows_of(found), rows_of(TWO), rtol=0.15, atol=0.02)


def test_the_em_starts_from_the_global_filter():
    """One step of EM by hand: few losses, and the tolerance is met at once."""
    losses = np.array([0.0, 0.1, 0.2, 1.9, 2.1])
    near, far = (
        local_filter(losses, Mixture((m, m + 0.5), (v, v), (0.5, 0.5)), seed=0) for m, v in ((0, 0.1), (50, 1))
    )
    assert near.means == pytest.approx((0.1, 2.0), abs=0.01)
    assert near.weights == pytest.approx((0.6, 0.4), abs=0.01)
    assert far.means != pytest.approx(near.means, abs=0.1)


@pytest.mark.parametrize("share", [1 + 9e-7, 1.0])
def test_a_filter_of_one_component_alone_is_a_start(share):
    found = local_filter(drawn(), Mixture((0.2, 2.0), (0.1, 0.1), (share, 0.0)), seed=0)
    assert np.isfinite(rows_of(found)).all()


@pytest.mark.parametrize(
    ("means", "variances", "words"),
    [
        ((0.1, 1e308), (1.0, 1.0), "filter: means (0.1, 1e+308), allowed: from 0 to 1e+39"),
        ((-0.1, 1.0), (1.0, 1.0), "filter: means (-0.1, 1.0)"),
        ((0.1, 1.0), (5e-324, 1.0), "filter: variances (5e-324, 1.0), allowed: from 1e-06 to 1e+78"),
        ((0.1, 1.0), (1.0, 1e300), "filter: variances (1.0, 1e+300)"),
    ],
)
def test_a_filter_that_no_losses_have_is_refused(means, variances, words):
    """In the mean it would stop everybody's run: by overflow, or as the start of an EM."""
    filter = Mixture(means, variances, (0.5, 0.5))
    for make in (lambda: LocalFilter(1, 4, filter), lambda: FitFilter(1, {}, filter)):
        with pytest.raises(ValueError, match=re.escape(words)):
            make()
    state = DivState(START, {"0": rows_of(filter)}, {"0": np.array(4)})
    with pytest.raises(InputError, match=re.escape(f"client 0: {words}")):
        FEDDIV.check_server(state, [4, 2])


def test_the_largest_filters_have_a_mean_and_are_a_start():
    losses = np.array([0.1, 3e38, 6e38, 0.2])
    own = local_filter(losses, None, seed=0)
    whole = mean_filter({"0": rows_of(LocalFilter(1, 2**62, own).filter)}, {"0": np.array(2**62)})
    assert local_filter(losses, FitFilter(1, {}, whole).filter, seed=0) is not None


def test_losses_that_are_no_number_are_left_out():
    losses = drawn()
    spoilt = np.concatenate([losses, [np.nan, np.inf]])
    assert local_filter(spoilt, TWO, seed=0) == local_filter(losses, TWO, seed=0)


@pytest.mark.parametrize("losses", [[], [1.0], [np.nan, 3.0], [2.0] * 9, [1e6, 1e6 + 1e-3]], ids=str)
def test_losses_that_cannot_be_told_apart_have_no_filter(losses):
    assert local_filter(np.array(losses), TWO, seed=0) is None


def test_the_mean_filter_by_hand():
    one, other = np.array([[0.0, 1.0], [0.1, 0.4], [0.9, 0.1]]), np.array([[0.4, 3.0], [0.3, 0.8], [0.5, 0.5]])
    found = mean_filter({"0": one, "7": other}, {"0": np.array(10), "7": np.array(30)})
    # (one + 3 other) / 4, in all rows: variances too count by the plain weights
    np.testing.assert_allclose(rows_of(found), [[0.3, 2.5], [0.25, 0.7], [0.6, 0.4]], rtol=1e-12)
    assert mean_filter({}, {}) is None


# which samples


CLEAN = np.array([True, True, False, False])
SHARE = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.25, 0.0, 0.75], [0.3, 0.4, 0.3]], np.float32)
GIVEN = np.array([1, 1, 0, 0])


def test_a_noisy_client_relabels_what_the_model_is_sure_of_and_leaves_the_rest():
    rows, labels = usable(GIVEN, CLEAN, SHARE, FedDivConfig())
    assert rows.tolist() == [0, 1, 2] and labels.tolist() == [1, 1, 2]  # clean samples keep even doubtful labels


def test_a_clean_client_uses_everything_as_given():
    clean = np.ones(20, bool)
    clean[:2] = False  # exactly a tenth
    rows, labels = usable(np.zeros(20, int), clean, np.tile(SHARE[2], (20, 1)), FedDivConfig())
    assert rows.tolist() == list(range(20)) and not labels.any()
    clean[2] = False
    assert usable(np.zeros(20, int), clean, np.tile(SHARE[2], (20, 1)), FedDivConfig())[1][:4].tolist() == [2, 2, 2, 0]


def test_all_noisy_and_nothing_sure_leaves_nothing():
    rows, labels = usable(GIVEN, ~np.ones(4, bool), SHARE[3:].repeat(4, 0), FedDivConfig())
    assert len(rows) == len(labels) == 0


# which of a batch


def test_the_leaning_is_taken_from_the_logits():
    # logits (1, 0.5): class 0. After 0.5 log (0.8, 0.2): 1 + 0.1116 < 0.5 + 0.8047, class 1
    logits, prior = torch.tensor([[1.0, 0.5]]), torch.tensor([0.8, 0.2])
    assert consistent(logits, prior, torch.tensor([1]), 0.5).tolist() == [True]
    assert consistent(logits, prior, torch.tensor([0]), 0.5).tolist() == [False]
    assert consistent(logits, prior, torch.tensor([0]), 0.0).tolist() == [True]
    assert consistent(logits, torch.tensor([0.5, 0.5]), torch.tensor([0]), 0.5).tolist() == [True]


def test_a_class_that_is_never_predicted_has_a_finite_prior():
    assert consistent(torch.tensor([[1.0, 0.0]]), torch.tensor([1.0, 0.0]), torch.tensor([1]), 0.5).tolist() == [True]


class Fixed:
    """Draws lambda = 0.25, and partners in reverse."""

    def beta(self, a, b):
        assert (a, b) == (1.0, 1.0)
        return 0.25

    def permutation(self, count):
        return np.arange(count)[::-1].copy()


def test_blending_by_hand():
    images, targets = torch.tensor([[0.0], [10.0], [20.0]]), torch.eye(3)
    mixed, blended = blend(images, targets, torch.tensor([0, 2]), Fixed())
    assert mixed.tolist() == [[15.0], [10.0], [5.0]]  # 0.25 * 0 + 0.75 * 20, itself, 0.25 * 20
    assert blended.tolist() == [[0.25, 0, 0.75], [0, 1, 0], [0.75, 0, 0.25]]
    assert soft_cross_entropy(torch.zeros(3, 3), blended).item() == pytest.approx(math.log(3))


def test_the_loss_on_mixed_samples_by_hand():
    def forward(images):
        return Output(torch.cat([images, torch.zeros_like(images)], 1), images)

    loss = MixedLoss(Fixed(), 2)({}, {"images": torch.tensor([[4.0], [0.0]]), "labels": torch.tensor([0, 1])}, forward)
    # blended inputs 1 and 3; targets (1/4, 3/4) and (3/4, 1/4)
    first, second = ((math.log(1 + math.exp(-x)), math.log(1 + math.exp(x))) for x in (1, 3))
    assert loss.item() == pytest.approx(
        (0.25 * first[0] + 0.75 * first[1] + 0.75 * second[0] + 0.25 * second[1]) / 2, rel=1e-6
    )


def consistent_loss(margins, expected, labels, *, weight=0.0, **settings):
    """Over a network with logits (image, 0)."""
    parameter = torch.ones(1, requires_grad=True)

    def forward(images):
        return Output(torch.cat([images * parameter, torch.zeros_like(images)], 1), images)

    objective = ConsistentLoss(FedDivConfig(**settings), weight, Fixed())
    batch = {"images": torch.tensor(margins)[:, None], "labels": torch.tensor(labels)}
    loss = objective({}, batch | {"expected": torch.tensor(expected)}, forward)
    loss.backward()
    return loss.item(), objective.prior, parameter.grad.item()


def test_only_consistent_samples_count():
    # samples 0 and 1 agree, sample 2 does not; as their own partners' mirror images: 0.25 * 4 + 0.75 * 2 and reverse
    loss, prior, _ = consistent_loss([4.0, 2.0, 9.0], [0, 0, 1], [0, 0, 0], debias_factor=0.0)
    assert loss == pytest.approx((math.log(1 + math.exp(-2.5)) + math.log(1 + math.exp(-3.5))) / 2, rel=1e-6)
    mean = np.mean([1 / (1 + math.exp(-x)) for x in (4, 2, 9)])
    np.testing.assert_allclose(prior.numpy(), [0.2 * 0.5 + 0.8 * mean, 0.2 * 0.5 + 0.8 * (1 - mean)], rtol=1e-6)


def test_the_term_of_equal_shares_by_hand():
    plain, _, _ = consistent_loss([math.log(3)], [0], [0])
    weighted, _, _ = consistent_loss([math.log(3)], [0], [0], weight=2.0)
    # mean prediction (3/4, 1/4): KL(equal || mean) = (log (2/3) + log 2) / 2
    assert weighted - plain == pytest.approx(2 * (math.log(2 / 3) + math.log(2)) / 2, rel=1e-5)


def test_a_batch_in_which_none_counts_teaches_nothing():
    assert consistent_loss([4.0, 2.0], [1, 1], [0, 0], weight=1.0, debias_factor=0.0)[::2] == (0.0, 0.0)


# one client


def context(count=12, *, norm="group", own=None, partition="iid", **settings):
    run = tiny.config(epochs=2, feddiv=FedDivConfig(**settings), partition=PartitionConfig(partition=partition))
    return tiny.context(run, own=own or tiny.shard(count), norm=norm)


def asked(own, start=None, *, size=0.5, round=9):
    weights = tiny.shifted(own.bench.weights(), size)
    client = FEDDIV.client(own, None)
    return client, client.answer(FitFilter(round, weights, start)), weights


def test_a_client_sends_six_numbers_of_its_losses_under_the_received_model():
    own = context()
    _, said, weights = asked(own)
    logits = own.bench.predict(weights, own.shard.images()).logits.double()
    losses = F.cross_entropy(logits, torch.from_numpy(own.shard.labels), reduction="none").numpy()
    seed = own.randomness.integer("local filter", client=3, round=9)
    assert said == LocalFilter(9, 12, local_filter(losses, None, seed=seed)) and said.filter.means[0] > 0
    assert from_bytes(to_bytes(said), FEDDIV.messages) == said
    nothing = LocalFilter(9, 12, None)
    assert from_bytes(to_bytes(nothing), FEDDIV.messages) == nothing


def test_a_client_is_judged_by_the_global_filter_not_by_its_own():
    own = context()
    client, _, weights = asked(own)
    share = own.bench.predict(weights, own.shard.images()).probabilities()
    losses = -np.log(share[np.arange(12), own.shard.labels])
    cut = np.sort(losses)[5:7].mean()
    task = client.answer(Refine(9, Mixture((cut - 1, cut + 1), (0.5, 0.5), (0.5, 0.5))))
    wrong = norm.pdf(losses, cut - 1, 0.7) < norm.pdf(losses, cut + 1, 0.7)  # equal variances: beyond the middle
    kept = ~wrong | (share.max(1) >= 0.75)
    assert wrong.sum() == 6 and len(task.images) == kept.sum()
    assert task.columns["labels"].tolist() == np.where(wrong, share.argmax(1), own.shard.labels)[kept].tolist()
    assert task.columns["expected"].tolist() == share.argmax(1)[kept].tolist()
    assert task.start is weights and (task.epochs, task.round, task.view) == (2, 9, "plain")
    assert task.finish(own.bench.train(task)).samples == 12
    kept = FEDDIV.verdict(client.state)
    near, far = (0.5 * norm.pdf(losses, mean, 0.5**0.5) for mean in (cut - 1, cut + 1))
    np.testing.assert_allclose(kept.q, near / (near + far), rtol=1e-5)
    assert kept.noise_rate == 0.5, "six of twelve"


def test_without_a_filter_everything_is_clean():
    own = context()
    client, _, _ = asked(own)
    task = client.answer(Refine(9, None))
    assert task.columns["labels"].tolist() == own.shard.labels.tolist()
    assert FEDDIV.verdict(client.state) is None


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_a_client_without_a_usable_sample_returns_the_model(norm):
    own = context(norm=norm)
    client, _, weights = asked(own, size=0.01)  # nothing above 0.75
    task = client.answer(Refine(9, Mixture((-9.0, 1.0), (0.1, 0.1), (0.5, 0.5))))
    assert task.epochs == 0 and tiny.same(task.finish(own.bench.train(task)).weights, weights)


@pytest.mark.parametrize("samples", [2, 5, 9])  # batches of 4: also of one sample
def test_small_clients_train_with_batch_norm(samples):
    own = context(samples, norm="batch")
    client, _, _ = asked(own)
    task = client.answer(Refine(9, TWO))
    assert all(np.isfinite(value).all() for value in own.bench.train(task).values())


@pytest.mark.parametrize(
    ("partition", "given", "weight"), [("iid", None, 0.0), ("dirichlet", None, 1.0), ("iid", 0.3, 0.3)]
)
def test_the_weight_of_the_equal_shares(partition, given, weight):
    client, _, _ = asked(context(partition=partition, prior_weight=given))
    assert client.answer(Refine(9, None)).objective.prior_weight == weight


def test_the_warmup_is_plain_training():
    own = context()
    weights = own.bench.weights()
    task = FEDDIV.client(own, None).answer(Train(0, weights))
    assert task.columns.keys() == {"labels"} and task.columns["labels"].tolist() == own.shard.labels.tolist()
    assert task.start is weights and len(task.images) == 12


# the server

START = {"w": np.zeros(2, np.float32)}


class Clients:
    """Client k has 10 + k samples; its filter has the clean mean k / 10, or it has none."""

    def __init__(self, silent=()):
        self.silent, self.asked = silent, []

    def run(self, halves, messages, *, round):
        self.asked += [(round, client, message) for client, message in messages.items()]
        return {client: self.reply(client, message) for client, message in messages.items()}

    def reply(self, client, message):
        if isinstance(message, FitFilter):
            found = None if client in self.silent else Mixture((client / 10, 2.0), (0.1, 0.1), (0.5, 0.5))
            return LocalFilter(message.round, 10 + client, found)
        return Update(message.round, 10 + client, {"w": np.full(2, client, np.float32)})


def play(clients, *rounds, warmup=1):
    run = dataclasses.replace(tiny.config(), federation=FederationConfig(clients=4, cohort=2, warmup=warmup, rounds=9))
    subject = FEDDIV.server(ServerContext(run, START, Randomness(0), PlainProxies()), None)
    mixtures = [
        subject.round(number, Cohort(number, dict.fromkeys(cohort), clients, ViewRecorder(None)))
        for number, cohort in rounds
    ]
    return subject, mixtures


def test_the_server_keeps_everybody_s_newest_filter():
    clients = Clients(silent=(3,))
    subject, mixtures = play(clients, (0, (0, 1)), (1, (1, 2)), (2, (0, 3)))
    assert mixtures[0] is None
    assert mixtures[1].means[0] == pytest.approx((11 * 0.1 + 12 * 0.2) / 23)
    assert mixtures[2].means[0] == pytest.approx((11 * 0.1 + 12 * 0.2) / 33)  # client 0's clean mean is 0
    fits = [(r, c, m.filter) for r, c, m in clients.asked if isinstance(m, FitFilter)]
    assert fits == [(1, 1, None), (1, 2, None), (2, 0, mixtures[1]), (2, 3, mixtures[1])]
    refines = [(r, c, m.filter) for r, c, m in clients.asked if isinstance(m, Refine)]
    assert refines == [(1, 1, mixtures[1]), (1, 2, mixtures[1]), (2, 0, mixtures[2]), (2, 3, mixtures[2])]
    np.testing.assert_allclose(subject.state.weights["w"], 13 * 3 / 23, rtol=1e-6)


def test_clients_without_a_filter_are_no_failure():
    subject, mixtures = play(Clients(silent=(0, 1)), (1, (0, 1)))
    assert mixtures == [None] and not subject.state.filters


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"samples": {}}, "filters, allowed: of the clients whose numbers"),
        ({"filters": {"7": rows_of(TWO)}, "samples": {"7": np.array(4)}}, "filters: client '7', allowed: 0 to 1"),
        ({"filters": {"0": rows_of(TWO)[:2]}}, "client 0: filter, allowed: float64[3, 2]"),
        ({"filters": {"0": -rows_of(TWO)}}, "client 0: mixture"),
        ({"samples": {"0": np.array(5)}}, "samples: client 0: 5, allowed: 4"),
        ({"samples": {"0": np.array(np.nan)}}, "samples: client 0: nan, allowed: 4"),
        ({"samples": {"0": np.array(4.5)}}, "samples: client 0: 4.5, allowed: 4"),
    ],
)
def test_a_stored_state_that_no_run_wrote_is_refused(changes, words):
    state = DivState(START, {"0": rows_of(TWO)}, {"0": np.array(4)})
    FEDDIV.check_server(state, [4, 2])
    assert of_rows(state.filters["0"]) == TWO
    with pytest.raises(InputError, match=re.escape(words)):
        FEDDIV.check_server(dataclasses.replace(state, **changes), [4, 2])


# runs

RUN = {"method": "feddiv", "partition": "dirichlet", "min_samples": 5}


def test_a_run_tells_what_it_gives_away_and_records_it(finished):
    result = finished(**RUN, record_view="uploads")
    filters, weights = result.summary.privacy
    assert filters.subject == "loss filter" and filters.epsilon is None and weights.channel == "plain"
    view = ServerView(result.folder / "view", FEDDIV.messages)
    assert [view.senders(number, "LocalFilter") for number in (1, 2, 3)] == [
        set(record.cohort) for record in result.rounds[1:]
    ]
    assert [record.mixture is not None for record in result.rounds] == [False, True, True, True]


@pytest.mark.slow
def test_a_stopped_run_continues_to_the_same_bytes(stopped, finished):
    folder = stopped(after=3, checkpoint_every=2, **RUN)
    resume(folder)
    for name in ("rounds.jsonl", "weights.safetensors", "clients.json"):
        assert (folder / name).read_bytes() == (finished(**RUN).folder / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"dropout": 0.4}, {"norm": "batch"}, {"warmup": 0}], ids=str)
def test_other_surroundings(finished, changes):
    assert len(finished(**RUN | changes).rounds) == 4


def test_its_weights_travel_under_a_secure_sum(finished):
    changes = {"method": "feddiv", "entropy": "insecure-seeded", "cohort": 4}
    summed, clear = finished(**changes, secagg=True), finished(**changes)
    assert all(record.secure_sum is not None and record.secure_sum.aborted is None for record in summed.rounds)
    for name, value in clear.weights.items():
        np.testing.assert_allclose(summed.weights[name], value, atol=5e-3)


def test_settings(tiny):
    with pytest.raises(InputError, match=r"weights_epsilon: 2\.0, allowed with method feddiv: none \(the filter"):
        check(tiny(method="feddiv", weights_epsilon=2.0))
    assert unused(tiny(method="fedavg", channel="histogram", noisy_above=0.5)) == (
        "noisy_above: 0.5 has no effect with method fedavg",
    )
