"""DP-SGD in a federation: the ledger, the claims, what a kill does to the budget, and what is refused."""

import pytest

from fedgr_secure.checks import check
from fedgr_secure.errors import CheckpointError, InputError
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.federation.loop import resume, run
from privacy.dpsgd import plan_dpsgd

BOTH = {"secagg": True, "channel": "histogram", "cohort": 3, "epsilon": 5.0, "weights_epsilon": 6.0, "rounds": 6}
SEEDED = BOTH | {"noise": "insecure-seeded"}


def test_the_ledger_charges_every_round_in_which_a_client_is_drawn(finished):
    result = finished(**BOTH, trainings=3)
    drawn = {}
    for record in result.rounds:
        for client in record.cohort:
            drawn[client] = drawn.get(client, 0) + 1
        charged = record.training.trainings
        assert charged == {str(client): min(drawn[client], 3) for client in record.cohort}
        assert 0 < record.training.epsilon <= 6.0 <= 6.0 + 5.0
        assert record.training.epsilon <= record.training.total_epsilon < 11.0
        assert set(record.training.sent) == {client for client in record.cohort if drawn[client] <= 3}
    assert any(count > 3 for count in drawn.values()), "somebody's trainings are used up"
    plan = plan_dpsgd(6.0, 1e-5, rate=30 / 30, steps=1, trainings=3)
    assert result.rounds[-1].training.epsilon == pytest.approx(plan.spent(3), abs=0.02)
    for client in result.clients:
        assert client.trainings == min(client.participations, 3)
        assert client.total_epsilon > client.epsilon


def test_the_claims_are_of_proxies_weights_and_everything(finished):
    proxies, weights, everything = finished(**BOTH, trainings=3).summary.privacy
    assert (proxies.subject, weights.subject, everything.subject) == ("loss proxies", "model weights", "whole run")
    assert proxies.epsilon == 5.0 and weights.epsilon == 6.0 and 6.0 < everything.epsilon < 11.0
    assert {claim.delta for claim in (proxies, weights, everything)} == {1e-5}
    assert {claim.adjacency for claim in (proxies, weights, everything)} == {"replace-one"}
    assert "Poisson" in weights.sampling and "at most 3 trainings" in weights.statement
    assert "not covered" in everything.statement and "floating point" in weights.statement


def test_a_plan_of_one_release_is_charged_for_one_in_the_whole_run(finished):
    settings = {"channel": "noisy", "noising": "once", "epsilon": 1.0, "weights_epsilon": 2.0, "rounds": 2}
    assert 2.0 < finished(**settings).summary.privacy[2].epsilon < 3.01  # six releases, the default, would be 8


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "central"])
def test_methods_without_proxies_spend_on_weights_alone(finished, method):
    result = finished(method=method, weights_epsilon=4.0, rounds=2)
    weights, everything = result.summary.privacy
    assert weights.epsilon == 4.0 and everything.epsilon == pytest.approx(4.0, abs=0.01)
    assert "loss proxies" not in everything.statement
    assert all(record.training is not None and record.release is None for record in result.rounds)


def test_noise_of_a_seed_claims_nothing_and_repeats(finished, tiny, tmp_path):
    result = finished(**SEEDED)
    assert all(claim.epsilon is None for claim in result.summary.privacy)
    assert "simulation" in result.summary.privacy[1].statement
    assert all(record.training.epsilon is None and record.training.sent == () for record in result.rounds)
    again = run(tiny(**SEEDED, out=tmp_path / "again"))
    assert again.rounds == result.rounds
    system = [run(tiny(**BOTH | {"rounds": 1, "channel": "noisy"}, out=tmp_path / name)).rounds for name in ("a", "b")]
    assert system[0][0].test_loss != system[1][0].test_loss


def test_masks_of_a_seed_take_the_whole_run_s_claim_too(finished):
    _, weights, everything = finished(**BOTH | {"entropy": "insecure-seeded", "rounds": 2}).summary.privacy
    assert weights.epsilon == 6.0 and everything.epsilon is None


def test_a_killed_run_repeats_its_trainings_to_the_byte(stopped):
    folder = stopped(after=5, checkpoint_every=2, **BOTH)
    before = RunFolder(folder).rounds()
    kept = sorted((folder / "checkpoint" / "trainings").iterdir())
    assert len(kept) == 3 and all("round-0000004" in path.name for path in kept)
    result = resume(folder)
    assert result.rounds[:5] == tuple(before)
    assert [record.training.trainings for record in result.rounds[:5]] == [r.training.trainings for r in before]
    assert list((folder / "checkpoint" / "trainings").iterdir()) == [], "the last checkpoint holds every round"


def test_a_round_whose_secret_seed_is_gone_is_not_played_again(stopped):
    folder = stopped(after=5, checkpoint_every=2, **BOTH)
    next(iter(sorted((folder / "checkpoint" / "trainings").iterdir()))).unlink()
    with pytest.raises(CheckpointError, match=r"^private training .* is gone, though round 4 was played"):
        resume(folder)


def test_a_training_that_comes_to_something_else_under_the_same_noise_is_not_sent(stopped, monkeypatch):
    folder = stopped(after=5, checkpoint_every=2, **BOTH)
    from fedgr_secure.method import refine

    real = refine.one_hot
    monkeypatch.setattr("fedgr_secure.method.client.one_hot", lambda *given: 0.5 * real(*given))
    monkeypatch.setattr(
        "fedgr_secure.method.client.refined_targets", lambda given, *rest, **more: 0.5 * real(given, 10)
    )
    with pytest.raises(InputError, match=r"private training .*: came to other weights than the first time"):
        resume(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channel": "plain"}, r"^weights_epsilon: 6\.0, allowed with channel histogram or noisy"),
        ({"sieve": False}, r"^weights_epsilon: 6\.0, allowed with the sieve on"),
        ({"reset_teacher": True}, r"^reset_teacher: on, allowed with weights_epsilon: off"),
        ({"norm": "batch"}, r"^norm: batch, allowed with weights_epsilon: group"),
        ({"adjacency": "add-remove"}, r"^adjacency: add-remove, allowed with weights_epsilon: replace-one or label"),
        ({"adjacency": "client"}, r"^adjacency: client, allowed with weights_epsilon: replace-one or label"),
        ({"delta": 0.0}, r"^delta: 0\.0, allowed with weights_epsilon: above 0"),
        ({"weights_epsilon": 0.0}, r"^weights_epsilon: 0\.0, allowed: a finite number above 0"),
        ({"gradient_clip": 0.0}, r"^gradient_clip: 0\.0"),
        ({"trainings": 0}, r"^trainings: 0"),
    ],
)
def test_settings_that_would_break_the_claim_are_refused(tiny, changes, message):
    with pytest.raises(InputError, match=message):
        check(tiny(**BOTH | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": 0.01}, r"^delta: 0\.01, allowed: above 0 and below 1/n"),
        ({"weights_epsilon": 1e-9}, r"^weights_epsilon: epsilon: 1e-09, allowed: more"),
    ],
)
def test_budgets_that_say_nothing_are_refused_when_the_data_are_known(tiny, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        run(tiny(method="fedavg", **{"weights_epsilon": 4.0} | changes, out=tmp_path / "run"))
