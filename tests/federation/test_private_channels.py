"""Private channels in a federation: what the server sees, what is charged, and what a kill does to the budget."""

import dataclasses
import hashlib

import numpy as np
import pytest

from fedgr_secure.checks import check
from fedgr_secure.config import override
from fedgr_secure.errors import CheckpointError, InputError
from fedgr_secure.federation import federation as federations
from fedgr_secure.federation.channels import channel_for
from fedgr_secure.federation.cohort import Cohort
from fedgr_secure.federation.counts import SecureCounts, fewest_honest
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.federation.loop import resume, run
from fedgr_secure.federation.releases import KeptReleases
from fedgr_secure.federation.sums import SecureSums
from fedgr_secure.federation.view import ViewRecorder
from fedgr_secure.method.messages import Observe, Proxies
from fedgr_secure.sections import Config
from fedgr_secure.wire import to_bytes
from privacy.channels.channel import Memory
from privacy.mechanisms import InsecureSeededNoise
from privacy.secagg import Phase

PRIVATE = {"secagg": True, "channel": "histogram", "noise": "insecure-seeded", "cohort": 3, "epsilon": 5.0}
CLIENTS = (1, 4, 6, 9, 11)
MODEL = {"w": np.ones(3, np.float32)}


def private_counts(**changes):
    config = override(Config(), PRIVATE | {"cohort": 5} | changes)
    channel = channel_for(config, classes=10, samples=[40] * 20, sizes=[5])
    sums = SecureSums.for_clients(CLIENTS, config.secure_sum, seed=0, threads=1)
    return channel, SecureCounts.for_run(sums, config.secure_sum, channel, sizes=[5])


class Counting:
    """A runner whose clients answer with given counts."""

    def __init__(self, counts):
        self.counts = counts

    def run(self, halves, messages, *, round):
        return {client: Proxies(round, {"counts": self.counts[client]}) for client in messages}


@pytest.mark.parametrize("gone", [(), (6,), (6, 11)])
@pytest.mark.parametrize("phase", [Phase.ADVERTISE, Phase.MASK])
def test_the_server_gets_the_sum_of_the_survivors_counts_and_sees_no_client_s(tmp_path, gone, phase):
    channel, counts = private_counts()
    rng = np.random.default_rng(3)
    each = {client: rng.integers(-30, 60, channel.bins) for client in CLIENTS}
    recorder = ViewRecorder(tmp_path, "all")
    vanishes = lambda client, at: client in gone and at is phase  # noqa: E731
    cohort = Cohort(3, dict.fromkeys(CLIENTS), Counting(each), recorder, counts=counts, vanishes=vanishes)
    tally = cohort.tally(Observe(3, MODEL), MODEL, expect=Proxies)
    stay = [client for client in CLIENTS if client not in gone]
    if len(stay) < counts.parameters[5].survivors:
        assert tally is None and "allowed: from" in cohort.counted.aborted
    else:
        assert tally.contributors == tuple(stay)
        assert tally.counts.tolist() == sum(each[client] for client in stay).tolist()
    seen = b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file())
    assert len(seen) > 500 and cohort.released
    for client in CLIENTS:
        for kind in ("<i8", "<i4"):
            vector = each[client].astype(kind).tobytes()
            assert vector not in seen and vector[:32] not in seen


def test_the_noise_is_made_for_the_fewest_honest_clients_of_any_cohort():
    settings = Config().secure_sum
    # cohorts of 10: one may collude, t = 6 stay at least; of 3: one may, all 3 must stay
    assert fewest_honest(settings, [10]) == 5
    assert fewest_honest(settings, [3]) == fewest_honest(settings, [3, 10]) == 1
    assert fewest_honest(dataclasses.replace(settings, colluders=3), [10]) == 4


def test_a_release_is_charged_recorded_and_in_the_report(finished):
    result = finished(**PRIVATE, rounds=6, releases=2)
    records = [record for record in result.rounds if record.release is not None]
    assert [record.round for record in result.rounds if record.release is None and record.secure_sum is None] == []
    last = {}
    for record in records:
        assert record.release.secure_sum.aborted is None
        for client, charged in record.release.releases.items():
            assert last.get(client, 0) <= charged <= 2
            last[client] = charged
        assert record.release.epsilon is None and record.release.sent == record.cohort
    assert max(last.values()) == 2
    for client in result.clients:
        assert client.releases == last.get(str(client.client), 0)
        assert client.epsilon is None
    claim = result.summary.privacy[0]
    assert claim.channel == "histogram" and claim.epsilon is None, "noise of a seed claims nothing"


def test_system_noise_claims_the_budget_and_differs_from_run_to_run(tiny, tmp_path):
    settings = PRIVATE | {"noise": "system", "rounds": 2}
    runs = [run(tiny(out=tmp_path / name, **settings)) for name in ("one", "two")]
    assert runs[0].summary.privacy[0].epsilon == 5.0
    released = [record.release for record in runs[0].rounds if record.release is not None]
    assert 0 < released[0].epsilon <= 5.0 and max(client.epsilon for client in runs[0].clients) <= 5.0
    one, two = ([record.mixture for record in result.rounds] for result in runs)
    assert one != two


def test_a_round_that_is_played_again_draws_no_new_noise_and_charges_nothing_twice(stopped, tmp_path, monkeypatch):
    drawn = []

    class Spied(InsecureSeededNoise):
        def __init__(self, round):
            super().__init__(np.random.default_rng())  # new at every call, as the system's
            self.round = round

        def gaussian(self, sigma, size):
            drawn.append(self.round)
            return super().gaussian(sigma, size)

    monkeypatch.setattr(federations.Federation, "_noise", lambda self, client, round: Spied(round))
    settings = PRIVATE | {"noise": "system", "rounds": 6, "releases": 9, "train_size": 120}
    folder = stopped(after=5, checkpoint_every=2, **settings)
    before = RunFolder(folder).rounds()
    assert len(before) == 5 and 4 in drawn
    drawn.clear()
    result = resume(folder)
    assert set(drawn) == {5}, "round 4, which the checkpoint lacks, sends what it sent"
    assert result.rounds[:5] == tuple(before)
    asked = {}
    for record in result.rounds:
        for client in record.cohort if record.release is not None else ():
            asked[str(client)] = asked.get(str(client), 0) + 1
            assert record.release.releases[str(client)] == asked[str(client)]


def test_a_private_run_resumes_to_the_numbers_of_one_that_was_not_stopped(stopped, finished):
    settings = PRIVATE | {"rounds": 6, "releases": 3, "store": "disk"}
    folder = stopped(after=5, checkpoint_every=2, **settings)
    assert resume(folder).rounds == finished(**settings).rounds


def test_kept_releases(tmp_path):
    kept, made = KeptReleases(tmp_path / "releases", "plan"), []

    def make():
        made.append(1)
        return {"counts": np.array([len(made), -5])}, Memory(len(made), np.array([7]))

    first, again = kept.once(3, 9, make), kept.once(3, 9, make)
    assert len(made) == 1 and first[0]["counts"].tolist() == again[0]["counts"].tolist() == [1, -5]
    assert again[1].releases == 1 and again[1].total.tolist() == [7]
    kept.once(4, 9, make), kept.once(3, 10, make)
    assert len(made) == 3
    kept.records.forget_before(10)
    kept.once(3, 10, make)
    assert len(made) == 3
    kept.once(3, 9, make)
    assert len(made) == 4
    path = tmp_path / "releases" / "round-0000010.client-0000003"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CheckpointError, match=r"^release .*client-0000003: cannot be read"):
        kept.once(3, 10, make)
    data = to_bytes(Observe(1, MODEL))
    path.write_bytes(hashlib.sha256(data).digest() + data)
    with pytest.raises(CheckpointError, match=r"^release .*client-0000003: cannot be read: message type: Observe"):
        kept.once(3, 10, make)
    path.write_bytes((tmp_path / "releases" / "round-0000009.client-0000003").read_bytes())
    with pytest.raises(CheckpointError, match="of another client, round or plan"):
        kept.once(3, 10, make)
    with pytest.raises(CheckpointError, match="of another client, round or plan"):
        KeptReleases(tmp_path / "releases", "another").once(3, 9, make)


@pytest.mark.parametrize("lost", ["the checkpoint", "one release"])
def test_a_round_whose_releases_are_gone_is_not_played_again(stopped, lost):
    """New noise on what was released already would spend the budget twice, with the counts of the first time."""
    folder = stopped(after=5, checkpoint_every=2, **PRIVATE, rounds=6)
    kept = sorted((folder / "checkpoint" / "releases").iterdir())
    assert kept and all("round-0000004" in path.name for path in kept)
    if lost == "one release":
        kept[0].unlink()
    else:
        (folder / "checkpoint" / "checkpoint.json").unlink()
    before = (folder / "rounds.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match=r"^release .* is gone, though round \d was played"):
        resume(folder)
    assert (folder / "rounds.jsonl").read_bytes() == before


def test_masks_of_a_seed_leave_one_share_of_the_noise_and_claim_nothing(tiny, tmp_path):
    result = run(tiny(**PRIVATE | {"noise": "system", "entropy": "insecure-seeded"}, rounds=2, out=tmp_path / "run"))
    assert all(claim.epsilon is None for claim in result.summary.privacy)
    assert all(client.epsilon is None for client in result.clients)
    assert all(record.release.epsilon is None for record in result.rounds if record.release is not None)


def test_the_view_holds_both_sums_of_a_round(tiny, tmp_path):
    result = run(tiny(**PRIVATE, rounds=2, record_view="all", out=tmp_path / "run"))
    round_ = next(record for record in result.rounds if record.release is not None)
    folder = result.folder / "view" / f"round-{round_.round:07d}"
    for name, sums in (("Counts", round_.release.secure_sum), ("Sum", round_.secure_sum)):
        for phase, kind in (("mask", "Masked"), ("share", "Shares")):
            sizes = [path.stat().st_size for path in folder.glob(f"{name}{kind}.up.*")]
            assert len(sizes) == len(round_.cohort) and sum(sizes) == sums.bytes_up[phase]


@pytest.mark.parametrize("changes", [{"noising": "once"}, {"noising": "per_loss", "mechanism": "gaussian"}])
@pytest.mark.parametrize("place", ["client", "server"])
def test_rows_with_noise_run_end_to_end(finished, changes, place):
    settings = {"channel": "noisy", "noise": "insecure-seeded", "epsilon": 50.0, "decide_at": place, "rounds": 6}
    result = finished(**settings, **changes, releases=3)
    assert result.summary.privacy[0].channel == "noisy"
    assert all(record.release.secure_sum is None for record in result.rounds[1:])
    assert max(client.releases for client in result.clients) == (1 if changes["noising"] == "once" else 3)
    assert all(record.mixture is not None for record in result.rounds[1:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channel": "histogram"}, "channel: histogram, allowed: with --secagg"),
        ({"channel": "histogram", "secagg": True, "decide_at": "server"}, "decide_at: server, allowed with channel"),
        (
            {"channel": "noisy", "mixture_data": "all_seen"},
            "mixture_data: all_seen, allowed with channel",
        ),
        ({"channel": "noisy", "local_observation": True}, "local_observation: on, allowed with channel noisy: off"),
        ({"channel": "noisy", "noising": "fresh_on_mean"}, r"noising: fresh_on_mean, allowed: .*--allow-fresh-noise"),
        ({"bins": 1}, "bins: 1, allowed: a whole number from 2"),
        ({"clip": 0.0}, "clip: 0.0, allowed: a finite number above 0"),
        ({"epsilon": -1.0}, "epsilon: -1.0, allowed"),
    ],
)
def test_channels_that_the_other_settings_rule_out_are_refused(changes, message):
    with pytest.raises(InputError, match=f"^{message}"):
        check(override(Config(), {"secagg": False, "channel": "plain"} | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channel": "noisy", "epsilon": 1e-300}, "scale for epsilon 1e-300: .*, allowed"),
        ({"adjacency": "client", "largest_samples": 39}, "largest_samples: 39, allowed: at least 40"),
        ({"delta": 0.1}, "delta: 0.1, allowed: above 0 and below 1/n = 0.00125 for 800 records"),
        ({"epsilon": 1e-9, "delta": 1e-10}, "secagg: group 'histogram': limit .* allowed: at most"),
        ({"channel": "noisy", "adjacency": "add-remove"}, "adjacency: add-remove, allowed with the noisy channel"),
        (
            {"channel": "noisy", "noising": "diagonal", "mechanism": "laplace"},
            "mechanism: laplace, allowed with the plan",
        ),
    ],
)
def test_budgets_that_cannot_be_are_bad_input(changes, message):
    with pytest.raises(InputError, match=f"^{message}"):
        private_counts(**changes)


def test_a_run_without_settings_is_private():
    config = check(Config())
    assert config.secure_sum.secagg and config.secure_sum.entropy == "system"
    assert (config.proxies.channel, config.proxies.epsilon, config.proxies.noise) == ("histogram", 1.0, "system")
    channel = channel_for(config, classes=10, samples=[72] * 20, sizes=[10])
    assert channel.spent(channel.budget.releases) <= 1.0 and channel.honest == 5


def test_the_plain_channel_keeps_no_upload_on_disk(stopped):
    assert not (stopped(after=2, checkpoint_every=0) / "checkpoint" / "releases").exists()
