"""FedGR's server half against a cohort that only records and replies."""

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from fedgr_secure.aggregate import average
from fedgr_secure.context import ServerContext
from fedgr_secure.errors import DivergedError, InputError
from fedgr_secure.messages import Update
from fedgr_secure.method.fedgr import FEDGR
from fedgr_secure.method.messages import Observe, Proxies, Revise
from fedgr_secure.method.server import FedGRServer, FedGRServerState
from fedgr_secure.method.sieve import fit_mixture
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import Config, FedGRConfig
from privacy.channels.plain import PlainProxies
from privacy.claims import plain_weights

START = {"w": np.zeros(2, np.float32), "batches": np.array(5)}


def losses(seed, clean, wrong):
    draw = np.random.default_rng(seed)
    return np.concatenate([draw.normal(0.5, 0.1, clean), draw.normal(3.0, 0.3, wrong)]).astype(np.float32)


class FakeCohort:
    """Clients that upload given losses and given weights; the messages are kept in order."""

    def __init__(self, losses, samples=None):
        self.losses = losses
        self.samples = samples or {client: len(values) for client, values in losses.items()}
        self.asked = []

    def ask(self, message, *, expect=Update):
        self.asked.append(message)
        one = next(iter(message.values())) if isinstance(message, dict) else message
        assert expect is (Proxies if isinstance(one, Observe) else Update)
        if isinstance(one, Observe):
            return {client: Proxies(one.round, {"proxies": values}) for client, values in self.losses.items()}
        return {client: self._update(one.round, client) for client in self.losses}

    def average(self, message, start, *, samples=None):
        self.said = samples
        return average(start, self.ask(message))

    def _update(self, round, client):
        return Update(round, self.samples[client], {"w": np.full(2, client, np.float32), "batches": np.array(99)})


COHORT = {2: losses(1, 30, 10), 5: losses(2, 10, 40), 7: losses(3, 25, 5)}
POOLED = np.concatenate([COHORT[client] for client in (2, 5, 7)]).astype(np.float64)


def server(state=None, seed=0, **fedgr):
    context = ServerContext(Config(seed=seed, fedgr=FedGRConfig(**fedgr)), START, Randomness(seed), PlainProxies())
    return FedGRServer(context, state)


def scikit(values, round, seed=0):
    """What scikit-learn fits to these losses: means, rising, and the posterior of the smaller one."""
    state = Randomness(seed).integer("mixture", round=round)
    model = GaussianMixture(2, max_iter=50, tol=1e-2, reg_covar=5e-4, random_state=state).fit(values[:, None])
    return np.sort(model.means_.ravel()), lambda x: model.predict_proba(x[:, None])[:, model.means_.argmin()]


def test_a_round_observes_then_revises_then_averages():
    cohort, subject = FakeCohort(COHORT), server()
    mixture = subject.round(4, cohort)
    observe, revise = cohort.asked
    assert isinstance(observe, Observe) and observe.round == 4 and observe.weights is START
    assert isinstance(revise, Revise) and revise.mixture is mixture
    assert (revise.round, revise.weights, revise.q, revise.noise_rate) == (4, None, None, None)
    # n_k = 40, 50, 30 and w_k = 2, 5, 7: (80 + 250 + 210) / 120 = 4.5; the counter stays the server's
    assert subject.state.weights["w"].tolist() == [4.5, 4.5] and subject.state.weights["batches"] == 5
    assert subject.state.newest == {}, "nobody's losses are kept when only the cohort is pooled"


def test_the_next_round_starts_from_the_average():
    cohort, subject = FakeCohort(COHORT), server()
    subject.round(0, cohort)
    subject.round(1, cohort)
    assert cohort.asked[2].weights["w"].tolist() == [4.5, 4.5]


def test_tied_variances_reach_the_fit():
    free, tied = (server(variances=variances).round(0, FakeCohort(COHORT)) for variances in ("free", "tied"))
    assert free.variances[0] != free.variances[1] and tied.variances[0] == tied.variances[1]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_mixture_is_fitted_to_the_cohorts_uploads_alone(seed):
    mixture = server(seed=seed).round(4, FakeCohort(COHORT))
    means, _ = scikit(POOLED, 4, seed)
    np.testing.assert_allclose(mixture.means, means, rtol=1e-9)


def test_every_round_has_a_seed_of_its_own(monkeypatch):
    seeds = []

    def spy(values, *, seed, settings):
        seeds.append(seed)
        return fit_mixture(values, seed=seed, settings=settings)

    monkeypatch.setattr("fedgr_secure.method.server.fit_mixture", spy)
    for number in (0, 1, 0):
        server().round(number, FakeCohort(COHORT))
    assert seeds[0] == seeds[2] != seeds[1]
    assert seeds[1] == Randomness(0).integer("mixture", round=1)


def test_the_order_in_which_clients_reply_does_not_matter():
    turned = dict(reversed(COHORT.items()))
    assert server().round(4, FakeCohort(COHORT)) == server().round(4, FakeCohort(turned))


def test_weights_are_the_samples_that_clients_state():
    subject = server(sieve=False)
    subject.round(0, FakeCohort(COHORT, samples={2: 1, 5: 1, 7: 2}))
    # (2 + 5 + 14) / 4
    assert subject.state.weights["w"].tolist() == [5.25, 5.25]


def test_a_server_that_decides_sends_each_client_its_own_verdict():
    cohort = FakeCohort(COHORT)
    server(decide_at="server").round(4, cohort)
    verdicts = cohort.asked[1]
    _, posterior = scikit(POOLED, 4)
    assert set(verdicts) == {2, 5, 7}
    for client, message in verdicts.items():
        q = posterior(COHORT[client].astype(np.float64))
        np.testing.assert_allclose(message.q, q, atol=1e-9)
        assert message.q.shape == COHORT[client].shape and message.noise_rate == np.mean(q < 0.5)
        assert message.mixture is None and message.weights is None
    assert [verdicts[client].noise_rate for client in (2, 5, 7)] == pytest.approx([10 / 40, 40 / 50, 5 / 30])


def test_all_seen_pools_the_newest_upload_of_everyone():
    subject = server(mixture_data="all_seen")
    subject.round(0, FakeCohort({2: losses(9, 50, 50), 5: COHORT[5]}))
    mixture = subject.round(1, FakeCohort({7: COHORT[7], 2: COHORT[2]}))
    assert set(subject.state.newest) == {"2", "5", "7"}
    for client, values in COHORT.items():
        assert np.array_equal(subject.state.newest[str(client)], values)
        assert subject.state.newest[str(client)].dtype == np.float32
    means, _ = scikit(POOLED, 1)
    np.testing.assert_allclose(mixture.means, means, rtol=1e-9)


def test_all_seen_continues_from_a_stored_state():
    stored = FedGRServerState(START, {"5": COHORT[5], "2": losses(9, 50, 50)}, None, {}, {})
    mixture = server(stored, mixture_data="all_seen").round(1, FakeCohort({2: COHORT[2], 7: COHORT[7]}))
    np.testing.assert_allclose(mixture.means, scikit(POOLED, 1)[0], rtol=1e-9)


def test_without_the_sieve_no_loss_is_asked_for():
    cohort, subject = FakeCohort(COHORT), server(sieve=False)
    assert subject.round(4, cohort) is None
    (revise,) = cohort.asked
    assert isinstance(revise, Revise) and revise.weights is START
    assert (revise.round, revise.mixture, revise.q, revise.noise_rate) == (4, None, None, None)
    assert subject.state.weights["w"].tolist() == [4.5, 4.5]


def test_losses_that_do_not_separate_are_reported_and_training_goes_on():
    subject = server()
    mixture = subject.round(0, FakeCohort({2: np.ones(9, np.float32), 5: np.ones(9, np.float32)}))
    assert mixture.all_clean and "constant" in mixture.note
    assert subject.state.weights["w"].tolist() == [3.5, 3.5]


@pytest.mark.parametrize(
    ("upload", "named"),
    [
        (np.ones((3, 2), np.float32), "client 9: upload .*one float32 vector named proxies"),
        (np.float32([1.0, -0.5]), r"client 9: proxy -0\.5 nats, allowed: from 0 to 100"),
        (np.float32([1.0, 3e38]), r"client 9: proxy 3\.0.*e\+38 nats"),
        (np.float32([np.nan]), "client 9: proxy nan"),
    ],
)
@pytest.mark.parametrize("switches", [{}, {"mixture_data": "all_seen"}, {"decide_at": "server"}])
def test_an_upload_that_no_client_sends_stops_the_round_before_any_training(upload, named, switches):
    cohort, subject = FakeCohort(COHORT | {9: upload}), server(**switches)
    with pytest.raises(InputError, match=named):
        subject.round(0, cohort)
    assert len(cohort.asked) == 1 and subject.state.newest == {}


def test_the_number_of_proxies_is_the_number_of_samples_that_the_average_may_use():
    cohort = FakeCohort(COHORT)
    server().round(3, cohort)
    assert cohort.said == {2: 40, 5: 50, 7: 30}
    server(sieve=False).round(3, cohort)
    assert cohort.said is None


def test_a_diverged_client_leaves_the_state_as_it_was(monkeypatch):
    cohort, subject = FakeCohort(COHORT), server()
    monkeypatch.setattr(
        cohort,
        "_update",
        lambda round, client: Update(round, len(COHORT[client]), START | {"w": np.full(2, np.nan, "f4")}),
    )
    with pytest.raises(DivergedError):
        subject.round(0, cohort)
    assert subject.state.weights is START


def test_the_claims_follow_what_is_uploaded():
    channel, without = PlainProxies(), Config(fedgr=FedGRConfig(sieve=False))
    weights = plain_weights()
    assert [claim.subject for claim in FEDGR.claims(Config(), channel, weights)] == ["loss proxies", "model weights"]
    assert FEDGR.claims(without, channel, weights) == (weights,)
