"""Weights under secure aggregation: the same average as in the clear, and nothing of a single client on the wire."""

import json

import numpy as np
import pytest

from fedgr_secure.checks import check
from fedgr_secure.cohorts import cohort_sizes, draw_cohort
from fedgr_secure.config import override
from fedgr_secure.errors import DivergedError, InputError
from fedgr_secure.federation.cohort import Cohort, draw_dropouts
from fedgr_secure.federation.federation import prepare
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.federation.loop import resume, run
from fedgr_secure.federation.secure import Packing, SecureAggregation
from fedgr_secure.federation.sums import SecureSums
from fedgr_secure.federation.view import ViewRecorder
from fedgr_secure.messages import Train, Update
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import Config, DropoutConfig
from fedgr_secure.wire import to_bytes
from privacy.secagg import Phase
from privacy.secagg.messages import ENVELOPE

START = {
    "layer": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    "running_var": np.float32([100.0, 5000.0]),
    "counter": np.array(7),
}
SAMPLES = {1: 40, 4: 64, 6: 3, 9: 17}


def update(client, spread=0.1):
    draw = np.random.default_rng(client)
    return {
        "layer": (START["layer"] + draw.normal(0, spread, (3, 4))).astype(np.float32),
        "running_var": np.float32(START["running_var"] + draw.normal(0, 30, 2)),
        "counter": np.array(7 + client),
    }


class Halves:
    """A runner whose clients answer with given updates, whatever they are asked."""

    def __init__(self, updates=None):
        self.updates = updates or {client: update(client) for client in SAMPLES}

    def run(self, halves, messages, *, round):
        return {client: Update(round, SAMPLES[client], self.updates[client]) for client in messages}


def secure(**changes):
    config = override(Config(), {"cohort": 4, "secagg": True, "colluders": 0, **changes})
    sums = SecureSums.for_clients(SAMPLES, config.secure_sum, seed=config.seed, threads=1)
    return SecureAggregation.for_run(sums, config.secure_sum, START, ["layer"], SAMPLES, Randomness(0), sizes=[4])


def cohort(aggregation, vanishes=lambda client, phase: False, runner=None, view=None):
    recorder = ViewRecorder(view, "all" if view else "off")
    return Cohort(3, dict.fromkeys(SAMPLES), runner or Halves(), recorder, aggregation, vanishes=vanishes)


def test_the_mean_is_that_of_the_clear_up_to_the_rounding_of_the_ring():
    clear = cohort(None).average(Train(3, START), START)
    subject = cohort(secure())
    hidden = subject.average(Train(3, START), START)
    # every client rounds by less than 2^-b, so the weighted mean is off by less than n / (2^b sum n_k)
    bits = secure().parameters[4].layout.fraction_bits
    for name, group in (("layer", "parameters"), ("running_var", "buffers")):
        # and the float32 of the result rounds once more
        bound = 4 / (2.0 ** bits[group] * sum(SAMPLES.values())) + np.spacing(np.abs(clear[name]).max())
        assert 0 < np.abs(hidden[name].astype(np.float64) - clear[name]).max() <= bound or name == "running_var"
        assert np.abs(hidden[name].astype(np.float64) - clear[name]).max() <= bound
        assert hidden[name].dtype == clear[name].dtype
    assert hidden["counter"] == 7, "integer buffers are left out and keep the server's value"
    assert subject.survivors == tuple(SAMPLES) and subject.updates == 4
    record = subject.secure_sum
    assert record.aborted is None and record.clipped == {"parameters": 0, "buffers": 0} and record.entropy == "system"


@pytest.mark.parametrize("phase", [Phase.ADVERTISE, Phase.SHARE, Phase.MASK, Phase.UNMASK])
def test_who_vanishes_before_the_upload_is_in_neither_average(phase):
    gone = lambda client, at: client == 6 and at is phase  # noqa: E731
    clear, hidden = cohort(None, gone), cohort(secure(), gone)
    expected, got = (subject.average(Train(3, START), START) for subject in (clear, hidden))
    stays = (1, 4, 9) if phase is not Phase.UNMASK else (1, 4, 6, 9)
    assert clear.survivors == hidden.survivors == stays
    np.testing.assert_allclose(got["layer"], expected["layer"], atol=1e-6)


@pytest.mark.parametrize("phase", [Phase.ADVERTISE, Phase.SHARE, Phase.MASK, Phase.UNMASK])
@pytest.mark.parametrize("summed", [False, True], ids=["clear", "summed"])
def test_who_has_vanished_answers_nothing_more(phase, summed):
    subject = cohort(secure() if summed else None, lambda client, at: client == 6 and at is phase)
    assert set(subject.ask(Train(3, START))) == set(SAMPLES), "nobody vanishes before the averaging"
    subject.average(Train(3, START), START)
    down = subject.bytes_down
    stays = set(SAMPLES) - ({6} if summed or phase is not Phase.UNMASK else set())  # in the clear nothing is unmasked
    assert set(subject.ask(Train(3, START))) == stays
    assert subject.bytes_down == down + len(SAMPLES) * len(to_bytes(Train(3, START))), "it is asked all the same"


def test_too_few_survivors_keep_the_model_and_say_so():
    subject = cohort(secure(), lambda client, phase: client in (1, 4) and phase is Phase.MASK)
    assert subject.average(Train(3, START), START) is START
    assert subject.survivors == () and "2 clients left, allowed: from 3" in subject.secure_sum.aborted


def test_nobody_left_in_the_clear_keeps_the_model():
    subject = cohort(None, lambda client, phase: phase is Phase.MASK)
    assert all(np.array_equal(subject.average(Train(3, START), START)[name], START[name]) for name in START)
    assert subject.survivors == ()


def test_clipping_is_counted():
    subject = cohort(secure(update_limit=0.01))
    subject.average(Train(3, START), START)
    beyond = sum(int((np.abs(update(client)["layer"] - START["layer"]) > np.float32(0.01)).sum()) for client in SAMPLES)
    assert subject.secure_sum.clipped["parameters"] == beyond > 0


def test_an_update_that_is_not_finite_stops_the_round_on_the_client_side():
    bad = {client: update(client) for client in SAMPLES}
    bad[4]["layer"] = np.full((3, 4), np.nan, np.float32)
    with pytest.raises(DivergedError, match="client 4, round 3: update"):
        cohort(secure(), runner=Halves(bad)).average(Train(3, START), START)


def test_the_recorded_view_holds_no_client_value_in_any_encoding(tmp_path):
    aggregation = secure()
    cohort(aggregation, view=tmp_path / "view").average(Train(3, START), START)
    files = {path.name: path.read_bytes() for path in (tmp_path / "view" / "round-0000003").iterdir()}
    assert {name.split(".")[0] for name in files} == {
        *("Train", "SumAdvert", "SumIntroductions", "SumShares", "SumBoxes", "SumMasked", "SumSurvivors"),
        *("SumConfirm", "SumConfirmations", "SumUnmask"),
    }
    seen = b"".join(data for name, data in files.items() if not name.startswith("Train"))
    layout = aggregation.parameters[4].layout
    for client in SAMPLES:
        moved = update(client)["layer"] - START["layer"]
        scaled = np.floor(moved * 2.0 ** layout.fraction_bits["parameters"] * SAMPLES[client])
        for values in (update(client)["layer"], moved, scaled.astype(np.int32), scaled.astype(np.int32) + 1):
            for value in values.ravel():
                assert value.tobytes() not in seen, "4 bytes that a single client's value would have"
    # the check can see: the same search finds a vector that was sent in the clear
    sent = next(data for name, data in files.items() if name.startswith("SumMasked"))
    assert sent[ENVELOPE : ENVELOPE + 4] in seen


def test_two_rounds_share_no_byte_of_a_masked_vector_and_insecure_runs_repeat_every_byte():
    def masked(aggregation, round):
        sent = []
        subject = Cohort(round, dict.fromkeys(SAMPLES), Halves(), Spy(sent), aggregation)
        subject.average(Train(round, START), START)
        return b"".join(sent)

    class Spy:
        def __init__(self, sent):
            self.sent_ = sent

        def sent(self, *message):
            pass

        def received(self, round, client, kind, data):
            if kind == "SumMasked":
                self.sent_.append(data[ENVELOPE:])

    real = secure()
    assert masked(real, 0) != masked(real, 1) != masked(real, 0)
    seeded = [masked(secure(entropy="insecure-seeded"), 0) for _ in range(2)]
    assert seeded[0] == seeded[1] != masked(secure(entropy="insecure-seeded"), 1)


def test_packing_leaves_integer_buffers_out_and_comes_back():
    packing = Packing.of(START, ["layer"])
    assert packing.names == {"parameters": ("layer",), "buffers": ("running_var",)}
    difference = packing.difference(update(4), START)
    moved = packing.moved(START, difference)
    np.testing.assert_allclose(moved["layer"], update(4)["layer"], atol=1e-6)
    assert moved["counter"] == 7


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cohort": 1, "secagg": True}, "cohort: 1, allowed with secagg: from 2"),
        ({"method": "central", "dropout": 0.1}, "dropout: 0.1, allowed with method central: 0"),
        ({"dropout_unmask": 0.1, "secagg": False}, "dropout_unmask: 0.1, allowed without secagg: 0"),
        ({"dropout": 1.0}, "dropout: 1.0, allowed: from 0 to below 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes, named):
    with pytest.raises(InputError, match=named):
        check(override(Config(), changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"largest_samples": 63}, "client 4: 64 samples, allowed: at most largest_samples = 63"),
        ({"update_limit": 1e9}, "secagg: group 'parameters'"),
        ({"update_limit": 1e-35}, "secagg: group 'parameters': limit 1e-35"),
        ({"buffer_limit": 3e38}, r"secagg: group 'buffers': limit 3e\+38"),
    ],
)
def test_a_sum_that_could_overflow_or_open_is_refused_before_the_first_round(changes, named):
    with pytest.raises(InputError, match=named):
        secure(**changes)


@pytest.mark.parametrize(("clients", "size", "warmup"), [(20, 19, 3), (20, 7, 3), (5, 5, 0), (9, 4, 30), (6, 4, 0)])
def test_the_sizes_of_cohorts_are_those_that_are_drawn(clients, size, warmup):
    drawn = {
        len(draw_cohort(number, clients=clients, size=size, warmup=warmup, randomness=Randomness(0)))
        for number in range(40)
    }
    assert cohort_sizes(clients=clients, size=size, warmup=warmup) == drawn


def test_smaller_cohorts_of_the_warm_up_are_opened_with_a_threshold_of_their_own(tiny, tmp_path):
    # 4 clients in cohorts of 3 are swept in two cohorts of 2, which a threshold for 3 would never open
    result = run(tiny(clients=4, cohort=3, warmup=2, secagg=True, out=tmp_path / "run"))
    assert [len(record.survivors or record.cohort) for record in result.rounds] == [2, 2, 3, 3]
    assert [record.secure_sum.threshold for record in result.rounds] == [2, 2, 3, 3]
    assert [record.secure_sum.neighbours for record in result.rounds] == [1, 1, 2, 2]
    with pytest.raises(InputError, match="secagg: clients: 1, allowed: from 2"):
        run(tiny(clients=3, cohort=2, warmup=2, secagg=True, out=tmp_path / "single"))


def test_dropouts_follow_the_seed_and_their_rate():
    vanishes = draw_dropouts(DropoutConfig(dropout=0.3), 2, Randomness(0))
    drawn = [vanishes(client, Phase.MASK) for client in range(2000)]
    assert drawn == [vanishes(client, Phase.MASK) for client in range(2000)]
    # 2000 draws of rate .3: five deviations are 5 * sqrt(.21 / 2000) = .051
    assert abs(np.mean(drawn) - 0.3) < 0.051
    assert not any(vanishes(client, Phase.SHARE) for client in range(2000))
    again = draw_dropouts(DropoutConfig(dropout=0.3), 3, Randomness(0))
    assert drawn != [again(client, Phase.MASK) for client in range(2000)]


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedgr"])
def test_a_secure_run_ends_where_the_clear_one_does(method, tiny, tmp_path):
    changes = {"method": method, "cohort": 4, "dropout": 0.2, "seed": 1}
    clear = run(tiny(**changes, out=tmp_path / "clear"))
    hidden = run(tiny(**changes, secagg=True, out=tmp_path / "hidden"))
    lost = 0
    for one, other in zip(clear.rounds, hidden.rounds, strict=True):
        assert one.survivors == other.survivors and other.secure_sum.aborted is None
        lost += one.survivors is not None
    assert lost, "somebody vanished"
    for name, value in clear.weights.items():
        np.testing.assert_allclose(hidden.weights[name], value, atol=2e-4)
    assert any(claim.channel == "secure sum" for claim in hidden.summary.privacy)
    assert not any(claim.channel == "secure sum" for claim in clear.summary.privacy)
    assert (clear.summary.sums_given_up, hidden.summary.sums_given_up) == (None, 0)


def test_a_round_below_the_threshold_is_recorded_and_the_run_goes_on(tiny, tmp_path):
    result = run(tiny(cohort=4, secagg=True, dropout=0.3, seed=2, out=tmp_path / "run"))
    aborted = [record.secure_sum.aborted is not None for record in result.rounds]
    assert any(aborted) and not all(aborted), "with this seed some rounds fail and some do not"
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["secure_sum"]["aborted"] is not None for line in lines] == aborted
    assert result.summary.sums_given_up == sum(aborted)
    timings = (tmp_path / "run" / "timings.jsonl").read_text()
    assert "secure sum: mask" in timings


def test_a_secure_run_resumes_to_the_same_rounds_with_other_keys(tiny, stopped, tmp_path):
    changes = {"cohort": 4, "secagg": True, "dropout": 0.2, "checkpoint_every": 2}
    whole = run(tiny(**changes, out=tmp_path / "whole"))
    resumed = resume(stopped(after=3, **changes))
    assert resumed.rounds == whole.rounds
    assert all(np.array_equal(resumed.weights[name], whole.weights[name]) for name in whole.weights)


def test_batch_norm_sums_running_statistics_in_a_ring_of_their_own(tiny, tmp_path):
    federation = prepare(tiny(cohort=4, secagg=True, norm="batch"), RunFolder(tmp_path / "unused"))
    groups = {group.name: group for group in federation.sums.weights.parameters[4].layout.groups}
    assert groups["buffers"].bits == 64 and groups["parameters"].bits == 32
    federation.round(0)
