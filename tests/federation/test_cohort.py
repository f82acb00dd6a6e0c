"""Who is drawn in a round, and what the cohort counts, checks and records."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chisquare

from fedgr_secure.cohorts import draw_cohort
from fedgr_secure.errors import InputError
from fedgr_secure.federation.cohort import Cohort
from fedgr_secure.messages import Train, Update
from fedgr_secure.method.messages import Proxies
from fedgr_secure.randomness import Randomness
from fedgr_secure.wire import to_bytes


def draw(round, clients, size, warmup, seed=0):
    return draw_cohort(round, clients=clients, size=size, warmup=warmup, randomness=Randomness(seed))


@pytest.mark.parametrize(
    ("clients", "size", "cohorts"), [(10, 3, 4), (4, 2, 2), (11, 4, 3), (20, 5, 4), (7, 7, 1), (1, 1, 1), (9, 1, 9)]
)
def test_every_sweep_of_the_warmup_draws_every_client_once(clients, size, cohorts):
    for sweep in range(3):
        drawn = [draw(sweep * cohorts + i, clients, size, warmup=3 * cohorts) for i in range(cohorts)]
        assert sorted(client for cohort in drawn for client in cohort) == list(range(clients))
        sizes = [len(cohort) for cohort in drawn]
        assert max(sizes) <= size
        assert max(sizes) - min(sizes) <= 1


def test_the_warmup_reshuffles_between_sweeps_and_between_seeds():
    first, second = ([draw(4 * sweep + i, 20, 5, warmup=8) for i in range(4)] for sweep in range(2))
    assert first != second
    assert first != [draw(i, 20, 5, warmup=8, seed=1) for i in range(4)]


def test_the_warmup_may_end_inside_a_sweep():
    drawn = [draw(round, 10, 3, warmup=5) for round in range(5)]
    assert len(drawn[4]) in (2, 3)  # the first cohort of the second sweep: ten clients in four nearly equal parts
    assert len(draw(5, 10, 3, warmup=5)) == 3


def test_after_the_warmup_every_set_of_clients_is_equally_likely():
    sets, rounds = list(combinations(range(5), 2)), 3000
    counts = Counter(draw(round, 5, 2, warmup=2) for round in range(2, 2 + rounds))
    assert set(counts) == set(sets)
    observed = np.array([counts[pair] for pair in sets])
    assert chisquare(observed).pvalue > 1e-3
    tilted = np.where([0 in pair for pair in sets], 1.5 * observed, observed)  # the test notices a favoured client
    assert chisquare(tilted * observed.sum() / tilted.sum()).pvalue < 1e-9


def test_a_cohort_of_everybody_and_a_federation_of_one():
    assert draw(9, 6, 6, warmup=0) == (0, 1, 2, 3, 4, 5)
    assert draw(0, 1, 1, warmup=5) == draw(5, 1, 1, warmup=5) == (0,)


def test_a_draw_depends_on_its_arguments_alone():
    wanted = [draw(round, 12, 5, warmup=4) for round in range(8)]
    np.random.default_rng(0).random(5)
    np.random.seed(3)
    assert [draw(round, 12, 5, warmup=4) for round in reversed(range(8))] == wanted[::-1]
    assert all(cohort == tuple(sorted(set(cohort))) for cohort in wanted)
    assert len({draw(round, 12, 5, warmup=0) for round in range(8)}) > 1


class FakeRunner:
    """Answers by a function of (client, message)."""

    def __init__(self, answer):
        self.answer = answer

    def run(self, halves, messages, *, round):
        return {client: self.answer(client, message) for client, message in messages.items()}


class FakeRecorder:
    """Remembers what it was told."""

    def __init__(self):
        self.calls = []

    def sent(self, *call):
        self.calls.append(("sent", *call))

    def received(self, *call):
        self.calls.append(("received", *call))


def weights(size):
    return {"w": np.arange(size, dtype=np.float32)}


def cohort_of(clients, answer, round=7):
    return Cohort(round, dict.fromkeys(clients), FakeRunner(answer), FakeRecorder())


def update(client, message):
    return Update(message.round, 1, weights(10 + client))


def test_a_broadcast_is_counted_for_every_client_and_recorded_once():
    cohort, message = cohort_of((5, 2, 9), update), Train(7, weights(100))
    replies = cohort.ask(message)
    assert list(replies) == [2, 5, 9]
    assert cohort.bytes_down == 3 * len(to_bytes(message))
    assert cohort.bytes_up == sum(len(to_bytes(update(client, message))) for client in (2, 5, 9))
    assert cohort.updates == 3
    assert cohort.recorder.calls == [
        ("sent", 7, None, "Train", to_bytes(message)),
        *(("received", 7, client, "Update", to_bytes(replies[client])) for client in (2, 5, 9)),
    ]


def test_a_message_for_each_client_is_counted_and_recorded_by_client():
    messages = {client: Train(7, weights(client)) for client in (2, 9)}
    cohort = cohort_of((2, 9), lambda client, message: Proxies(7, {"proxies": weights(client)["w"]}))
    cohort.ask(messages, expect=Proxies)
    assert cohort.bytes_down == sum(len(to_bytes(message)) for message in messages.values())
    assert cohort.updates == 0  # proxies are no local training
    assert [call[:4] for call in cohort.recorder.calls] == [
        ("sent", 7, 2, "Train"),
        ("sent", 7, 9, "Train"),
        ("received", 7, 2, "Proxies"),
        ("received", 7, 9, "Proxies"),
    ]


def test_counts_and_seconds_add_up_over_the_messages_of_a_round():
    cohort, message = cohort_of((0, 1), update), Train(7, weights(3))
    cohort.ask(message)
    once = cohort.bytes_up, cohort.bytes_down, cohort.seconds["train"]
    cohort.ask(message)
    assert (cohort.bytes_up, cohort.bytes_down) == (2 * once[0], 2 * once[1])
    assert list(cohort.seconds) == ["train"]
    assert cohort.seconds["train"] > once[2] > 0


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        (Proxies(7, {}), "client 1, round 7: answered Proxies, allowed: Update of this round"),
        (Update(6, 1, {}), "client 1, round 7: answered Update, allowed: Update of this round"),
        (None, "client 1, round 7: answered NoneType"),
    ],
)
def test_a_reply_of_another_type_or_round_is_refused_before_it_is_recorded(reply, named):
    cohort = cohort_of((1,), lambda client, message: reply)
    with pytest.raises(InputError, match=named):
        cohort.ask(Train(7, weights(1)))
    assert [call[0] for call in cohort.recorder.calls] == ["sent"]
    assert cohort.bytes_up == cohort.updates == 0


def test_another_number_of_samples_than_a_client_has_said_is_refused_in_the_clear():
    cohort, message = cohort_of((1, 2), update), Train(7, weights(1))
    with pytest.raises(InputError, match="client 2, round 7: an update of 1 samples, allowed: 3 as before"):
        cohort.average(message, message.weights, samples={1: 1, 2: 3})


def test_the_average_in_the_clear_is_received_and_counted_like_any_reply():
    def ones(client, message):
        return Update(7, client, {"w": np.full(2, client, np.float32)})

    cohort, message = cohort_of((1, 2), ones), Train(7, weights(2))
    # (1 * 1 + 2 * 2) / 3
    assert cohort.average(message, message.weights)["w"].tolist() == pytest.approx([5 / 3, 5 / 3])
    assert cohort.updates == 2 and cohort.survivors == (1, 2)
    assert [call[0] for call in cohort.recorder.calls] == ["sent", "received", "received"]
