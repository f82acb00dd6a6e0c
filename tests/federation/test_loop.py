"""The run loop: what a run leaves behind, that it repeats, and that how it is carried out changes nothing."""

import dataclasses
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedgr_secure.errors import DivergedError, InputError
from fedgr_secure.federation import federation, loop
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.registry import METHODS
from privacy.channels.plain import PlainProxies
from privacy.claims import plain_weights

VARIANTS = {
    "fedgr": {},
    "fedgr, the server decides": {"decide_at": "server"},
    "fedgr without the sieve": {"sieve": False},
    "fedgr with every switch": {
        "decisions": "next_participation",
        "mixture_data": "all_seen",
        "teacher_before_warmup": "own",
        "reset_teacher": True,
        "local_observation": True,
        "local_epochs": 2,
    },
    "fedgr with BatchNorm": {"norm": "batch"},
    "fedavg": {"method": "fedavg"},
    "fedprox": {"method": "fedprox"},
    "central": {"method": "central"},
    "coteaching": {"method": "coteaching"},
    "coteaching with a given rate": {"method": "coteaching", "forget": "given", "forget_rate": 0.5, "forget_rounds": 1},
    "fednoro": {"method": "fednoro"},
    "dividemix": {"method": "dividemix", "baseline_view": "weak"},
    "fedfixer": {"method": "fedfixer", "fixer_rounds": 1},
    "fedelc": {"method": "fedelc", "warmup": 2, "rounds": 5, "checkpoint_every": 5},
    "feddiv": {"method": "feddiv"},
    "fedcorr": {"method": "fedcorr", "warmup": 4, "rounds": 8},
    "rofl": {"method": "rofl"},
    "feddiv under label skew": {"method": "feddiv", "partition": "dirichlet", "min_samples": 5},
}

QUICK = ("fedgr", "fedgr with every switch", "fedavg", "coteaching", "feddiv")
EVERY = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]
"""each variant; those that share their parts with a quick one only among the slow tests"""


def files_of(result):
    """The two files that two equal runs have equal, byte for byte."""
    return [(result.folder / name).read_bytes() for name in ("rounds.jsonl", "weights.safetensors")]


def states_of(result):
    """Every client's and the server's state after the last round, as bytes, and which of them belong together."""
    files = (path for path in (result.folder / "checkpoint").rglob("*") if path.is_file())
    states = {path.name: path.read_bytes() for path in files}
    commit = json.loads(states.pop("checkpoint.json"))
    del commit["belongs"]["run"]  # of the manifest, which says how the run was carried out
    return states | {"commit": commit}


@pytest.mark.parametrize("name", EVERY)
def test_messages_that_pass_through_bytes_change_nothing(finished, name):
    debug, plain = finished(runner="debug", **VARIANTS[name]), finished(**VARIANTS[name])
    assert files_of(debug) == files_of(plain)
    assert states_of(debug) == states_of(plain)


@pytest.mark.parametrize("name", ["fedgr", "fedgr with every switch", "fedavg"])
def test_states_on_disk_change_nothing(finished, name):
    disk, memory = finished(store="disk", **VARIANTS[name]), finished(**VARIANTS[name])
    assert files_of(disk) == files_of(memory)
    assert states_of(disk) == states_of(memory)


def test_every_variant_is_another_run(finished):
    weights = {name: files_of(finished(**changes))[1] for name, changes in VARIANTS.items()}
    # who decides changes q only by the rounding of the uploaded proxies; everything else is visible in the weights
    assert len(set(weights.values())) >= len(VARIANTS) - 1


def test_equal_runs_have_equal_files_and_another_seed_differs(finished, tiny, tmp_path):
    again = loop.run(tiny(out=tmp_path / "again"))
    assert files_of(again) == files_of(finished())
    assert files_of(finished(seed=1))[0] != files_of(finished())[0]


def test_a_run_leaves_its_files(finished):
    result = finished()
    names = {path.name for path in result.folder.iterdir()}
    assert names == {
        "manifest.json",
        "rounds.jsonl",
        "timings.jsonl",
        "summary.json",
        "clients.json",
        "losses.json",
        "weights.safetensors",
        "lock",
        "checkpoint",
    }
    folder = RunFolder(result.folder)
    assert folder.finished
    assert folder.rounds() == list(result.rounds)
    assert folder.clients() == result.clients
    assert folder.summary() == result.summary
    assert [record.round for record in result.rounds] == [0, 1, 2, 3]
    assert [record.stage for record in result.rounds] == ["warm-up", "main", "main", "main"]
    saved = load_file(result.folder / "weights.safetensors")
    assert saved.keys() == result.weights.keys()
    assert all(np.array_equal(saved[name], value) for name, value in result.weights.items())


def test_the_manifest_says_what_was_run(finished, tiny):
    result = finished()
    manifest = RunFolder(result.folder).manifest()
    assert RunFolder(result.folder).config() == tiny(out=result.folder)
    assert manifest.parameters == sum(value.size for value in result.weights.values())
    assert manifest.threads == 1
    assert manifest.device == "cpu"
    assert {"torch", "cryptography", "opendp", "opacus"} < set(manifest.versions)
    assert "not installed" not in manifest.versions.values()
    assert (
        manifest.privacy == result.summary.privacy == METHODS["fedgr"].claims(tiny(), PlainProxies(), plain_weights())
    )


def test_methods_without_proxies_keep_no_losses_and_claim_nothing_of_them(finished):
    result = finished(method="fedavg")
    assert not (result.folder / "losses.json").exists()
    assert result.summary.privacy == (plain_weights(),)
    assert result.summary.mislabel_auc is None
    assert all(client.estimated_rate is None for client in result.clients)
    assert all(record.mixture is None and record.estimated_noise is None for record in result.rounds)


def test_the_summary_follows_from_the_records(finished):
    rounds = 12  # more than ten, so that the last ten are not all
    result = finished(method="fedavg", rounds=rounds)
    records, summary = result.rounds, result.summary
    accuracies = [record.accuracy for record in records]
    assert summary.accuracy_last10 == pytest.approx(sum(accuracies[2:]) / 10, abs=1e-12)
    assert summary.accuracy_last10 != pytest.approx(sum(accuracies) / rounds, abs=1e-6)
    assert summary.accuracy_best == max(accuracies)
    assert summary.rounds == rounds
    assert summary.bytes_up == sum(record.bytes_up for record in records)
    assert summary.bytes_down == sum(record.bytes_down for record in records)
    assert summary.client_updates == sum(record.client_updates for record in records) == 2 * rounds
    assert summary.memorised_share == records[-1].memorised_share
    seconds = {}
    for timing in RunFolder(result.folder).timings():
        assert set(timing.seconds) == {"train", "server", "evaluate"}
        for phase, value in timing.seconds.items():
            assert value >= 0
            seconds[phase] = seconds.get(phase, 0) + value
    assert summary.seconds_by_phase == pytest.approx(seconds, abs=1e-3)
    assert summary.seconds == pytest.approx(sum(seconds.values()), abs=1e-3)
    assert 5e7 < summary.peak_memory < 2e10  # torch alone takes more than the one


def test_fedgr_reports_its_mixture_and_its_newest_scores(finished):
    result = finished()
    last = result.rounds[-1]
    assert all(record.mixture is not None for record in result.rounds)
    assert (result.summary.noise_rate_pearson, result.summary.mislabel_accuracy, result.summary.mislabel_auc) == (
        last.noise_rate_pearson,
        last.mislabel_accuracy,
        last.mislabel_auc,
    )
    losses = RunFolder(result.folder).losses()
    assert losses.mixture == last.mixture
    assert sum(losses.clean) + sum(losses.wrong) == sum(c.samples for c in result.clients if c.participations)


def test_client_records_add_up(finished):
    result = finished()
    assert sum(client.samples for client in result.clients) == 120
    counts = {client.client: 0 for client in result.clients}
    for record in result.rounds:
        for client in record.cohort:
            counts[client] += 1
    assert {client.client: client.participations for client in result.clients} == counts


def test_central_pools_everything_into_one_client_of_one_epoch(finished):
    result = finished(method="central", local_epochs=3)
    assert [client.samples for client in result.clients] == [120]
    assert all(record.cohort == (0,) for record in result.rounds)
    assert files_of(result)[1] == files_of(finished(method="central", local_epochs=1))[1]


@pytest.mark.parametrize(("every", "looks"), [(0, [3]), (1, [0, 1, 2, 3]), (2, [0, 2, 3]), (10, [0, 3])])
def test_memorised_labels_are_counted_when_asked_and_after_the_last_round(finished, every, looks):
    records = finished(method="fedavg", memorised_every=every).rounds
    assert [record.round for record in records if record.memorised_share is not None] == looks


def test_callbacks_get_every_record_in_order(tiny, tmp_path):
    first, second = [], []
    result = loop.run(tiny(method="fedavg", out=tmp_path / "run"), on_round=[first.append, second.append])
    assert first == second == list(result.rounds)


def test_the_truth_reaches_the_evaluator_alone(finished, tiny, tmp_path, monkeypatch):
    """With a false truth the scores change and the training does not."""
    federate = federation.federate

    def lie(source, config, randomness):
        data, truth = federate(source, config, randomness)
        generator = np.random.default_rng(0)
        return data, dataclasses.replace(
            truth,
            true_labels=tuple(generator.permutation(labels) for labels in truth.true_labels),
            wrong=tuple(~wrong for wrong in truth.wrong),
            drawn_rate=1 - truth.drawn_rate,
            realised_rate=1 - truth.realised_rate,
            test_labels=generator.permutation(truth.test_labels),
        )

    cases = (
        {},
        {"decide_at": "server"},
        {"sieve": False},
        {"method": "fedprox"},
        {"method": "coteaching"},
        {"method": "fednoro"},
        {"method": "dividemix"},
        {"method": "fedelc", "warmup": 2, "rounds": 5},
        {"method": "fedfixer", "fixer_rounds": 1},
        {"method": "feddiv"},
        {"method": "rofl"},
        {"method": "fedcorr", "warmup": 4, "rounds": 8},
    )
    truthful = [finished(**changes) for changes in cases]  # before the lie: other tests share these runs
    monkeypatch.setattr(federation, "federate", lie)
    for number, (changes, honest) in enumerate(zip(cases, truthful, strict=True)):
        lied = loop.run(tiny(out=tmp_path / str(number), **changes))
        assert files_of(lied)[1] == files_of(honest)[1]
        assert [r.mixture for r in lied.rounds] == [r.mixture for r in honest.rounds]
        assert [r.cohort for r in lied.rounds] == [r.cohort for r in honest.rounds]
        assert [r.test_loss for r in lied.rounds] != [r.test_loss for r in honest.rounds]
    told = {"method": "coteaching", "forget": "oracle", "forget_rounds": 1}  # the one declared way in
    lied = loop.run(tiny(out=tmp_path / "told", **told))
    monkeypatch.undo()
    assert files_of(lied)[1] != files_of(finished(**told))[1]


def test_a_run_that_diverges_says_where_and_keeps_the_rounds_before(tiny, tmp_path):
    with pytest.raises(DivergedError, match=r"(client \d+, round [1-9]|round [1-9]: .*clients \d+, \d+)"):
        loop.run(tiny(lr=1e6, rounds=20, out=tmp_path / "run"))
    records = RunFolder(tmp_path / "run").rounds()
    assert [record.round for record in records] == list(range(len(records)))
    assert records
    assert not RunFolder(tmp_path / "run").finished


@pytest.mark.filterwarnings("ignore:Error detected in:UserWarning")
@pytest.mark.parametrize(
    ("runner", "lr"), [("sequential", 1e6), ("sequential", 1e10), ("sequential", 1e30), ("debug", 1e10)]
)
def test_whatever_overflows_it_is_reported_as_divergence(tiny, tmp_path, runner, lr):
    """The update, the global model's test loss or, under debug, a gradient may be the first number to go."""
    with pytest.raises(DivergedError, match=r"round \d+"):
        loop.run(tiny(method="fedavg", model="cnn", lr=lr, rounds=30, runner=runner, out=tmp_path / "run"))


def test_refused_input_leaves_no_folder(tiny, tmp_path):
    for changes in ({"clients": 121}, {"device": "abacus"}, {"phi": 2.0}, {"train_size": 9999}):
        with pytest.raises(InputError, match=next(iter(changes))):
            loop.run(tiny(out=tmp_path / "run", **changes))
    assert list(tmp_path.iterdir()) == []


def test_force_replaces_a_run_and_nothing_but_a_run(tiny, tmp_path):
    config = tiny(method="fedavg", rounds=1, out=tmp_path / "run")
    loop.run(config)
    (tmp_path / "run" / "view").mkdir()
    with pytest.raises(InputError, match="holds a run already; --force replaces it"):
        loop.run(config)
    assert (tmp_path / "run" / "view").exists()
    loop.run(tiny(method="fedavg", rounds=1, out=tmp_path / "run", force=True))
    assert not (tmp_path / "run" / "view").exists()
    assert len(RunFolder(tmp_path / "run").rounds()) == 1
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1").write_text("precious")
    (tmp_path / "note").write_text("precious")
    for name, named in (("thesis", "not a run folder"), ("note", "is a file"), ("note/run", "cannot be made")):
        with pytest.raises(InputError, match=named):
            loop.run(tiny(method="fedavg", rounds=1, out=tmp_path / name, force=True))
    assert (tmp_path / "thesis" / "chapter1").read_text() == (tmp_path / "note").read_text() == "precious"


def test_an_empty_folder_is_used(tiny, tmp_path):
    (tmp_path / "run").mkdir()
    assert loop.run(tiny(method="fedavg", rounds=1, out=tmp_path / "run")).summary.rounds == 1


def test_without_a_folder_the_run_is_named_after_method_data_and_seed(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert loop.run(tiny(method="fedavg", rounds=1, seed=5)).folder.as_posix() == "runs/fedavg-digits-s5"
    assert json.loads((tmp_path / "runs/fedavg-digits-s5/summary.json").read_text())["seed"] == 5
