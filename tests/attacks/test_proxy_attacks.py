"""Attacks on loss proxies: certain in the clear, within the claim under noise, and nothing where nothing is to find."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from attacks.games import AnyClient, RowLinkage, TargetClient, _spare
from attacks.harness import ATTACKS, arena, attack, chosen
from attacks.knowledge import know
from attacks.matching import Matcher
from attacks.metrics import evaluate
from attacks.observed import Observed
from attacks.rates import classes_of_rows, rates_of_counts, rates_of_rows
from attacks.results import Attacked, Caps, Outcome, read_results, read_scores, write_results
from fedgr_secure.app import attack_report, cli, report
from fedgr_secure.app.attack import Gate, _with_earlier
from fedgr_secure.app.figures import attacks_figure
from fedgr_secure.app.runfolder import read_run
from fedgr_secure.errors import InputError
from fedgr_secure.federation.loop import run
from fedgr_secure.method.client import FedGRClient
from fedgr_secure.method.messages import Counted, Proxies
from fedgr_secure.records import RoundRecord
from fedgr_secure.wire import to_bytes

CLEAR = {"record_view": "uploads", "rounds": 12, "warmup": 6, "train_size": 240, "width": 8, "local_epochs": 5}
ROWS = CLEAR | {"channel": "noisy", "noising": "per_loss", "mechanism": "gaussian", "releases": 4}
ROWS |= {"noise": "insecure-seeded"}  # the same noise in every run of these tests
COUNTS = CLEAR | {"channel": "histogram", "secagg": True, "cohort": 3, "epsilon": 2.0, "noise": "insecure-seeded"}


@pytest.fixture(scope="module")
def clear(finished):
    return arena(finished(**CLEAR).folder)


@pytest.fixture(scope="module")
def counted(finished):
    return arena(finished(**COUNTS).folder)


def test_in_the_clear_the_server_knows_everything(clear):
    outcomes = {one.game: one for chosen_ in chosen(["matching", "source", "label"]) for one, _ in chosen_.play(clear)}
    for game in ("any", "target", "row"):
        metrics = outcomes[game].metrics
        assert metrics.auc.value > 0.9999
        assert all(
            point.tpr.value > 0.99 and point.realised.value == 0 for point in metrics.points if point is not None
        )
    assert outcomes["source"].share.value > 0.99 > 0.5 > outcomes["source"].chance
    assert outcomes["label"].share.value > 0.99 > 0.9 > outcomes["label"].chance


@pytest.mark.parametrize(("decimals", "newest"), [(3, False), (1, False), (1, True)])
def test_rounding_hides_little_and_less_over_rounds(clear, decimals, newest):
    rows = {
        client: (observed.newest(1) if newest else observed).rounded(decimals)
        for client, observed in clear.knowledge.observed.items()
    }
    candidates = clear.candidates(TargetClient())
    found = evaluate(clear.matcher(rows).named_client(candidates), candidates.member)
    exact = evaluate(clear.matcher().named_client(candidates), candidates.member)
    low, high = (0.55, 0.97) if newest else (0.97, 1.0)
    assert low < found.auc.value <= high <= exact.auc.value + 0.001 or found.auc.value <= exact.auc.value


@pytest.mark.slow
def test_noisy_rows_leak_more_with_a_larger_epsilon_and_stay_below_their_cap(finished):
    areas = []
    for epsilon in (1.0, 50.0):
        ground = arena(finished(**ROWS, epsilon=epsilon).folder)
        candidates = ground.candidates(RowLinkage())
        found = evaluate(ground.matcher().named_row(candidates), candidates.member)
        areas.append(found.auc.value)
        caps = Caps.of(epsilon, 1e-5)
        assert found.auc.low <= caps.auc
        assert all(point.tpr.low <= cap for point, cap in zip(found.points, caps.tpr, strict=True) if point)
    assert areas[0] < areas[1] - 0.05 and areas[1] > 0.6


def test_rows_are_read_with_the_noise_of_the_plan(finished):
    knowledge = know(finished(**ROWS, epsilon=50.0).folder)
    for client, observed in knowledge.observed.items():
        assert len(observed.at) == min(4, len(knowledge.uploads[client])) and not observed.averaged
        assert observed.scale[0] == pytest.approx(knowledge.channel.noises[0].scale * knowledge.channel.grid.step)


def test_the_server_s_sums_are_those_of_the_records(counted):
    knowledge = counted.knowledge
    assert not knowledge.uploads and len(knowledge.releases) >= 3
    for release in knowledge.releases:
        assert release.counts.shape == (24,) and set(release.contributors) <= knowledge.measured[release.round]
    with pytest.raises(InputError, match=r"shows nothing that source can read"):
        attack(counted_folder(counted), ["source"])


def counted_folder(ground):
    return ground.knowledge.config.output.out


@pytest.mark.slow
def test_counts_without_noise_betray_a_client_and_with_it_stay_below_the_cap(counted, finished):
    candidates = counted.candidates(TargetClient())
    found = evaluate(counted.counts.named_client(candidates), candidates.member)
    assert found.auc.low <= Caps.of(2.0, 1e-5).auc and found.auc.low < 0.56
    loud = arena(finished(**COUNTS | {"epsilon": 1e4, "bins": 400, "releases": 8}).folder)
    candidates = loud.candidates(TargetClient())
    assert evaluate(loud.counts.named_client(candidates), candidates.member).auc.low > 0.52


@pytest.mark.slow
def test_the_expected_counts_fit_the_counts(finished):
    ground = arena(finished(**COUNTS | {"epsilon": 1e4, "releases": 8}).folder)
    for release, expected in zip(ground.knowledge.releases, ground.counts._expected, strict=True):
        assert expected.sum() == pytest.approx(release.counts.sum(), abs=40)
        assert np.corrcoef(expected, release.counts)[0, 1] > 0.6


@pytest.mark.parametrize("game", [AnyClient(), TargetClient(), RowLinkage()])
@pytest.mark.parametrize("kind", ["rows", "counts"])
def test_attacks_find_nothing_where_nobody_is_a_member(clear, counted, finished, game, kind):
    """Both sides are drawn from outside; who is called a member is a coin."""
    if kind == "counts" and game.name == "row":
        return
    ground = counted if kind == "counts" else arena(finished(**ROWS, epsilon=8.0).folder)
    candidates = ground.candidates(game)
    strangers = candidates.take(np.flatnonzero(~candidates.member))
    coin = np.random.default_rng(5).random(len(strangers)) < 0.5
    reader = ground.counts if kind == "counts" else ground.matcher()
    score = {
        "any": lambda: reader.any_client(strangers),
        "target": lambda: reader.named_client(strangers),
        "row": lambda: reader.named_row(strangers),
    }[game.name]
    found = evaluate(score(), coin)
    assert found.auc.low - 0.01 <= 0.5 <= found.auc.high + 0.01


def test_a_client_s_share_of_wrong_labels_is_that_of_its_high_rows():
    draw, rows, shares = np.random.default_rng(4), {}, {2: 0.1, 5: 0.7, 6: 0.4}
    for client, share in shares.items():
        levels = np.where(draw.random(2000) < share, 3.0, 0.4)
        scale = np.array([0.3, 0.6, 3.0])
        values = levels + draw.normal(0, 1, (3, 2000)) * scale[:, None]
        rows[client] = Observed(values, np.arange(3), False, scale, "gaussian", 9.0)
    assert rates_of_rows(rows, 1.7) == pytest.approx(shares, abs=0.03)


def test_cohorts_are_told_apart_by_regression():
    """Sums of known shares over changing cohorts, with little noise."""
    draw, sizes = np.random.default_rng(2), (40, 50, 60, 30, 45, 55)
    shares = np.array([0.1, 0.6, 0.3, 0.8, 0.2, 0.5])
    releases = []
    for number in range(40):
        who = tuple(sorted(draw.choice(6, 3, replace=False).tolist()))
        high = sum(sizes[k] * shares[k] for k in who)
        counts = np.array([sum(sizes[k] for k in who) - high, high]) + draw.normal(0, 0.5, 2)
        releases.append(dataclasses.make_dataclass("R", ["round", "counts", "contributors"])(number, counts, who))
    knowledge = dataclasses.make_dataclass("K", ["sizes", "releases"])(sizes, tuple(releases))
    found = rates_of_counts(knowledge, np.array([0.0, 1.0, 2.0]), 1.0)
    estimates = np.array([found[k] for k in range(6)])
    assert np.corrcoef(estimates, shares)[0, 1] > 0.97 and np.abs(estimates - shares).max() < 0.2


@pytest.mark.slow
def test_a_skewed_mix_of_classes_shows_in_rows(finished):
    ground = arena(finished(**CLEAR | {"partition": "dirichlet", "dirichlet_alpha": 0.1}).folder)
    found = classes_of_rows(ground.knowledge, ground.knowledge.observed, ground.known, ground.references)
    assert all(share.min() >= 0 and share.sum() == pytest.approx(1.0) for share in found.values())
    shards = ground.challenger.data.shards
    truth = np.concatenate([np.bincount(shards[k].labels, minlength=10) / len(shards[k]) for k in sorted(found)])
    assert np.corrcoef(np.concatenate([found[k] for k in sorted(found)]), truth)[0, 1] > 0.1


def test_large_questions_are_answered_in_parts(clear, monkeypatch):
    candidates = clear.candidates(AnyClient()).take(np.arange(50))
    whole = clear.matcher().any_client(candidates)
    monkeypatch.setattr("attacks.matching._AT_A_TIME", 400)
    monkeypatch.setattr("attacks.observed._CHUNK", 400)
    np.testing.assert_allclose(clear.matcher().any_client(candidates), whole)
    rounded = {k: one.rounded(1) for k, one in clear.knowledge.observed.items()}
    parts = Matcher(clear.knowledge, rounded, clear.known, clear.references).any_client(candidates)
    monkeypatch.undo()
    np.testing.assert_allclose(clear.matcher(rounded).any_client(candidates), parts)


# results, report, command


def test_results_and_scores_come_back_as_they_were(clear, tmp_path):
    attacked, scores = attack(counted_folder(clear), ["matching", "rates"])
    assert [one.game for one in attacked.outcomes] == ["any", "target", "row", "rates"]
    write_results(tmp_path, attacked, scores)
    assert read_results(tmp_path) == attacked
    again = read_scores(tmp_path)
    assert again.keys() == scores.keys() == {"matching.any", "matching.target", "matching.row", "rates.rates"}
    for name, one in scores.items():
        np.testing.assert_array_equal(again[name].scores, one.scores)
    found = evaluate(again["matching.any"].scores, again["matching.any"].truth)
    assert found == attacked.outcomes[0].metrics, "others can apply their own metrics"
    assert read_results(tmp_path / "nowhere") is None


def test_the_claim_s_caps_stand_beside_what_was_measured(finished, counted, clear):
    assert all(one.caps is None for one in attack(counted_folder(counted))[0].outcomes), "a simulation claims nothing"
    attacked, _ = attack(finished(**COUNTS | {"noise": "system", "rounds": 6}).folder)
    assert [one.attack for one in attacked.outcomes] == ["histogram", "histogram", "rates", "threshold", "series"]
    assert attacked.outcomes[0].caps == Caps.of(2.0, 1e-5)
    assert all(one.caps is None for one in attacked.outcomes[2:]), "the models are not private"
    assert all(one.caps is None for one in attack(counted_folder(clear), ["matching"])[0].outcomes)


def test_an_unknown_attack_and_a_run_without_a_view_are_refused(finished):
    with pytest.raises(InputError, match=r"^attacks: unknown 'matchin' \(did you mean matching\?\); attacks: "):
        chosen(["matchin"])
    assert chosen([]) == ATTACKS
    with pytest.raises(InputError, match=r"^server view: .*record one with --record-view uploads"):
        attack(finished().folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("auc", r"^fail_above: auc, allowed: \[GAME:\]MEASURE=BOUND"),
        ("acu=0.5", r"^fail_above: 'acu' \(did you mean auc\?\), allowed measures"),
        ("auc=high", r"^fail_above: bound 'high', allowed: a number from -1 to 1"),
        ("auc=nan", r"^fail_above: bound 'nan', allowed"),
        ("auc=7", r"^fail_above: bound '7', allowed"),
    ],
)
def test_gates_that_are_none(text, message):
    with pytest.raises(InputError, match=message):
        Gate.read(text)


def test_a_gate_breaks_only_with_the_whole_interval(clear):
    outcome, _ = chosen(["matching"])[0].play(clear)[1]
    assert Gate.read("auc=0.6").broken(outcome) and Gate.read("target:tpr0.1=0.9").broken(outcome)
    assert not Gate.read("row:auc=0.6").applies(outcome) and not Gate.read("share=0.1").applies(outcome)
    assert not Gate.read("auc=1").broken(outcome)
    low = outcome.metrics.points[0].tpr.low
    assert not Gate.read(f"tpr10={low + 1e-6}").broken(outcome), "its interval reaches below"


def test_the_command_writes_files_and_report_and_keeps_gates(clear, tmp_path, capsys, monkeypatch):
    folder = shutil.copytree(counted_folder(clear), tmp_path / "run")
    assert cli._run(["attack", str(folder), "--attacks", "matching", "source"]) == 0
    text = capsys.readouterr().out
    assert "Is this record in anybody's training data? (matching)" in text and "source, source" in text
    page = (folder / "report.html").read_text()
    assert "Attacks: what the server finds out" in page and (folder / "figures" / "attacks.png").exists()
    assert page.count("<img") == len(list((folder / "figures").iterdir()))
    figure = attacks_figure(read_run(folder))
    assert figure.axes[0].get_xlabel() == "false positive rate" and "Attacks: members found" in figure.get_suptitle()
    monkeypatch.setattr(report, "write_figures", lambda run, folder: ())  # they take seconds, and have been drawn
    assert cli._run(["attack", str(folder), "--attacks", "source", "--fail-above", "share=0.5", "--json"]) == 1
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert said["outcomes"][0]["attack"] == "source" and said["broken"][0].startswith("share of source, source")
    assert "above the gate: share of source" in err
    assert cli._run(["attack", str(folder), "--attacks", "source", "--fail-above", "auc=0.5"]) == 2
    assert "auc: undefined or not measured" in capsys.readouterr().err


def test_words_say_what_is_found_and_what_is_not(clear, counted):
    capped = dataclasses.replace(chosen(["matching"])[0].play(clear)[0][0], caps=Caps.of(1.0, 0.0))
    (row,) = attack_report.rows(Attacked(1, 0, (capped,), 0.0))
    cells = dict(zip(attack_report.HEAD, row, strict=True))
    assert cells["Attacker also has"] == "records of the same distribution"
    assert cells["Balanced accuracy"] == cells["Advantage"] == "1.000"
    assert cells["Allowed by the claim"].endswith("balanced accuracy 0.731, advantage 0.462")
    found = attack_report.words(chosen(["matching"])[0].play(clear)[0][0])
    assert found.startswith("Is this record in anybody's training data? (matching) Area under the ROC 1.000")
    assert "are found while 0.00% of the others" in found
    rates = attack_report.words(chosen(["rates"])[0].play(counted)[0][0])
    assert rates.startswith("How many of a client's labels are wrong? (rates) Estimates correlate")
    source = attack_report.words(chosen(["source"])[0].play(clear)[0][0])
    assert "of the answers are right, better than chance" in source


def test_only_cohorts_are_taken_from_the_records():
    """The records hold the truth's figures too; the server knows who was drawn and nothing else of them."""
    import inspect

    from attacks import knowledge

    used = [line for line in inspect.getsource(knowledge).splitlines() if "record." in line]
    assert used and all("record.round" in line or "record.cohort" in line for line in used)
    assert {"round", "cohort"} <= {field.name for field in dataclasses.fields(RoundRecord)}


@pytest.mark.slow
def test_models_alone_are_attacked_with_and_without_shadows(finished):
    folder = finished(method="fedavg", record_view="uploads", rounds=6, local_epochs=5, width=8).folder
    attacked, scores = attack(folder, shadows=4)
    assert [one.attack for one in attacked.outcomes] == [
        "threshold",
        "series",
        "lira",
        "lira-offline",
        "rmia",
        "rmia-offline",
    ]
    assert {one.subject for one in attacked.outcomes} == {"model weights"}
    assert all(one.metrics.members == 120 and np.isfinite(one.metrics.auc.value) for one in attacked.outcomes)
    assert scores["lira.any"].scores.shape == scores["threshold.any"].scores.shape
    assert max(one.metrics.auc.value for one in attacked.outcomes) > 0.6, "FedAvg learns wrong labels by heart"
    with pytest.raises(InputError, match=r"^shadows: 2, allowed: 0, or from 3 \(LiRA needs a variance\)"):
        attack(folder, shadows=2)
    with pytest.raises(InputError, match=r"shows nothing that lira can read"):
        attack(folder, ["lira"])


# what clients really measured, and views that no run leaves


class Told:
    """Notes what every client measures, as it does it."""

    def __init__(self, monkeypatch):
        self.means, real = {}, FedGRClient._observe

        def observe(half, weights):
            real(half, weights)
            of = half._context.shard.client
            self.means.setdefault(of, []).append(half.state.mean_losses.copy())

        monkeypatch.setattr(FedGRClient, "_observe", observe)


@pytest.mark.parametrize(
    "changes",
    [
        {"channel": "noisy", "epsilon": 1e3, "dropout": 0.3},
        pytest.param(
            {"channel": "noisy", "epsilon": 1e3, "dropout": 0.3, "secagg": True, "cohort": 3, "colluders": 0},
            marks=pytest.mark.slow,
        ),
        {"channel": "plain", "dropout": 0.3, "loss_cap": 0.9},
        pytest.param(
            {"channel": "histogram", "secagg": True, "dropout": 0.2, "cohort": 4, "epsilon": 1e3, "loss_cap": 0.9},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_expected_rows_are_what_clients_measured_also_where_some_vanish(tiny, tmp_path, monkeypatch, changes):
    told = Told(monkeypatch)
    run(tiny(**{**CLEAR, "noise": "insecure-seeded", "local_epochs": 1, **changes}, out=tmp_path / "run"))
    ground = arena(tmp_path / "run")
    knowledge, members = ground.knowledge, ground.challenger.members
    for client, means in told.means.items():
        drawn = knowledge.drawn(client)
        assert len(drawn) == len(means)
        losses = np.minimum(ground.losses(members)[drawn][:, members.client == client], knowledge.largest)
        np.testing.assert_allclose(losses.mean(0), means[-1], atol=1e-5)
        if client in knowledge.observed:
            observed = knowledge.observed[client]
            np.testing.assert_allclose(observed.expected(losses)[-1], means[observed.at[-1]], atol=1e-5)
    assert told.means, "somebody measured"


def test_a_client_is_in_as_many_sums_as_it_was_charged_for(tiny, tmp_path):
    """Also where a sum was given up: its counts were sent, and are charged."""
    settings = {**COUNTS, "dropout": 0.35, "cohort": 4, "releases": 3, "local_epochs": 1, "rounds": 14}
    result = run(tiny(**settings, out=tmp_path / "run"))
    sums = [record.release.secure_sum for record in result.rounds if record.release is not None]
    assert any(one.aborted for one in sums) and any(not one.aborted for one in sums)
    knowledge = know(tmp_path / "run")
    for client in result.clients:
        sent = sum(client.client in clients for clients in knowledge.counted.values())
        assert min(sent, 3) == client.releases


def test_losses_of_local_models_are_not_modelled_and_refused(finished):
    with pytest.raises(InputError, match=r"^local_observation: on, allowed for attacks on rows: off"):
        attack(finished(**CLEAR | {"local_observation": True, "rounds": 3, "local_epochs": 2}).folder)


def test_copies_of_members_are_not_outside(clear):
    members = clear.challenger.pool[: len(clear.challenger.members)]
    twice = np.concatenate([members[:3], clear.challenger.outside[:2], clear.challenger.outside[:2]])
    assert _spare(twice, members).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("name", "message", "says"),
    [
        ("Proxies.up.0", Proxies(8, {"proxies": np.zeros(61, np.float32)}), "client 0: 61 rows, allowed: 60"),
        ("Proxies.up.0", Proxies(8, {"proxies": np.full(60, -1, np.float32)}), "client 0: proxy -1"),
        ("Proxies.up.0", Proxies(8, {"other": np.zeros(60, np.float32)}), "client 0: upload"),
        (
            "Proxies.up.77",
            Proxies(8, {"proxies": np.zeros(60, np.float32)}),
            "rows of client 77, allowed: of its cohort",
        ),
        ("Counted.up.all", Counted(8, np.zeros(24, np.int64), np.array([0])), "24 counts of clients"),
    ],
)
def test_a_view_that_no_run_leaves_is_refused(clear, tmp_path, name, message, says):
    folder = shutil.copytree(counted_folder(clear), tmp_path / "run")
    cohort = clear.knowledge.measured[8]
    name = name.replace(".0", f".{min(cohort)}") if name.endswith(".0") else name
    (folder / "view" / "round-0000008" / name).write_bytes(to_bytes(message))
    with pytest.raises(InputError, match=r"^server view: .*round 8") as caught:
        know(folder)
    assert says.replace("client 0", f"client {min(cohort)}") in str(caught.value)


def test_a_view_without_a_round_is_refused(clear, tmp_path):
    folder = shutil.copytree(counted_folder(clear), tmp_path / "run")
    shutil.rmtree(folder / "view" / "round-0000005")
    with pytest.raises(InputError, match=r"no global model of round \[5\], allowed: one of every round"):
        know(folder)


@pytest.fixture(scope="module")
def attacked_folder(clear, tmp_path_factory):
    folder = shutil.copytree(counted_folder(clear), tmp_path_factory.mktemp("attacked") / "run")
    write_results(folder, *attack(folder, ["source", "matching"]))
    return folder


@pytest.mark.parametrize("text", ['{"schema": 1}', "[]", "{", "\\xff"])
def test_results_of_another_schema_are_named(tmp_path, text):
    (tmp_path / "attacks.json").write_text(text)
    with pytest.raises(InputError, match=r"attacks\.json"):
        read_results(tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "no archive", "other arrays"])
def test_damaged_scores_are_refused_in_one_line(attacked_folder, tmp_path, damage):
    folder = shutil.copytree(attacked_folder, tmp_path / "run")
    path = folder / "attacks.npz"
    data = bytearray(path.read_bytes())
    if damage == "other arrays":
        np.savez(path, **{"matching.any.scores": np.array(["x"]), "matching.any.truth": np.zeros(3)})
    else:
        data[len(data) // 2] ^= 0xFF
        shorter = {"truncated": data[:-40], "empty": b"", "flipped": data, "no archive": b"\x93NUMPY" + bytes(90)}
        path.write_bytes(bytes(shorter[damage]))
    with pytest.raises(InputError, match=r"attacks\.npz") as caught:
        read_scores(folder)
        attack_report.draw_roc(read_run(folder), None)
    assert "\n" not in str(caught.value)


def test_a_seed_that_numpy_does_not_take_is_refused(finished, capsys):
    folder = str(finished(**CLEAR).folder)
    for seed in ("-1", str(2**63)):
        assert cli._run(["attack", folder, "--seed", seed]) == 2
        assert f"seed: {seed}, allowed" in capsys.readouterr().err


def test_attacks_one_after_the_other_stay_in_the_report(clear, tmp_path):
    folder = shutil.copytree(counted_folder(clear), tmp_path / "run")
    for names in (["source", "rates"], ["label"], ["source"]):
        write_results(folder, *_with_earlier(folder, *attack(folder, names)))
    assert [one.attack for one in read_results(folder).outcomes] == ["rates", "label", "source"]
    assert set(read_scores(folder)) == {"rates.rates", "label.label", "source.source"}


@pytest.mark.parametrize(
    ("inside", "outside", "says"),
    [
        (np.r_[np.full(30, 9.0), np.linspace(0, 1, 970)], np.linspace(0.02, 1.02, 3000), "3.0% are found"),
        (np.linspace(0, 1, 500), np.linspace(2, 3, 500), "Worse than guessing"),
        (np.linspace(0, 1, 500), np.linspace(0, 1, 500), "Not told from guessing"),
    ],
)
def test_words_do_not_hide_a_few_that_are_found_behind_an_average(inside, outside, says):
    found = evaluate(np.concatenate([inside, outside]), np.arange(len(inside) + len(outside)) < len(inside))
    outcome = Outcome("matching", "any", "is it?", "nothing", "loss proxies", found)
    assert says in attack_report.words(outcome)
