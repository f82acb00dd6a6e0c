"""A resume checks everything first: what does not belong together is refused in one line, and nothing changes."""

import dataclasses
import hashlib
import json
import shutil

import numpy as np
import pytest

from fedgr_secure.errors import CheckpointError, InputError
from fedgr_secure.federation.loop import resume
from fedgr_secure.method.client import FedGRState
from fedgr_secure.method.server import FedGRServerState
from fedgr_secure.wire import from_bytes, to_bytes


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return {}, tmp_path_factory.mktemp("originals")


@pytest.fixture
def copied(originals, stopped, tmp_path):
    """`copied(...)` is a copy of a run that stopped after three rounds, with a checkpoint of two."""

    def copy(**changes):
        made, root = originals
        key = repr(changes)
        if key not in made:
            made[key] = stopped(after=3, checkpoint_every=2, out=root / str(len(made)), **changes)
        return shutil.copytree(made[key], tmp_path / "copy")

    return copy


@pytest.fixture
def folder(copied):
    """A run of FedGR; its view holds three rounds."""
    return copied(record_view="uploads", mixture_data="all_seen")


def everything(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder, named, kind=InputError):
    before = everything(folder)
    with pytest.raises(kind, match=named) as caught:
        resume(folder)
    assert len(str(caught.value).splitlines()) == 1
    assert everything(folder) == before


def edit(path, change):
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table))


def setting(section, name, value):
    return lambda manifest: (manifest["config"][section] if section else manifest["config"]).update({name: value})


@pytest.mark.parametrize(
    "change",
    [
        setting("training", "lr", 0.2),
        setting("federation", "rounds", 5),
        setting("federation", "rounds", 1),
        setting(None, "seed", 0.0),
        setting("fedgr", "beta", 0.7),
        setting("output", "memorised_every", 3),
        setting("output", "threads", 2),
        lambda manifest: manifest["versions"].update(torch="1.0"),
        lambda manifest: manifest["config"]["training"].pop("local_epochs"),
        lambda manifest: manifest.update(threads=2),
        lambda manifest: manifest.update(parameters=3),
        lambda manifest: manifest.update(privacy=[]),
    ],
)
def test_an_edited_manifest_is_refused(copied, change):
    folder = copied(method="fedavg")
    edit(folder / "manifest.json", change)
    refused(folder, r"belongs to other settings.*manifest\.json|seed: 0\.0, allowed: int")


def test_what_does_not_decide_results_may_be_edited(copied, finished):
    folder = copied(method="fedavg")
    for change in (setting("output", "checkpoint_every", 1), setting("output", "out", "elsewhere")):
        edit(folder / "manifest.json", change)
    edit(folder / "manifest.json", lambda manifest: manifest.update(command=["by", "hand"]))
    assert resume(folder).rounds == finished(method="fedavg").rounds


@pytest.mark.parametrize("threads", [0, -5, 2**40])
def test_impossible_threads_in_a_manifest_are_refused(copied, threads):
    folder = copied(method="fedavg")
    edit(folder / "manifest.json", lambda manifest: manifest.update(threads=threads))
    refused(folder, rf"manifest\.json: threads: {threads}, allowed: a whole number from 1 to 1024")


def test_edited_records_are_refused(copied):
    folder = copied(method="fedavg")
    path = folder / "rounds.jsonl"
    path.write_text(path.read_text().replace('"accuracy": 0.', '"accuracy": 0.9', 1))
    refused(folder, r"belongs to other records than the first 2 of .*rounds\.jsonl")


def test_garbage_after_the_records_of_the_checkpoint_is_cut_off(copied, finished):
    folder = copied(method="fedavg")
    for name in ("rounds.jsonl", "timings.jsonl"):
        with (folder / name).open("ab") as stream:
            stream.write(b"\xff\x00\n\xfe" + 5000 * b"[")
    assert resume(folder).rounds == finished(method="fedavg").rounds


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("rounds.jsonl", lambda lines: [lines[0]], r"rounds\.jsonl: 1 lines, allowed: 2 at least"),
        ("timings.jsonl", lambda lines: [lines[0]], r"timings\.jsonl: 1 lines, allowed: 2 at least"),
        ("timings.jsonl", lambda lines: [lines[0], b"\xff\n"], r"timings\.jsonl, line 2: is not UTF-8"),
        ("timings.jsonl", lambda lines: lines[::-1], r"timings\.jsonl, line 1: round 2, not 0"),
    ],
)
def test_records_that_lack_something_are_refused(copied, name, change, named):
    folder = copied(method="fedavg")
    (folder / name).write_bytes(b"".join(change((folder / name).read_bytes().splitlines(keepends=True))))
    refused(folder, named)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda clients: clients.clear(), r"client \d: state of round None, allowed: [01], its last of the 2 rounds"),
        (lambda clients: clients.pop(), r"client \d: state of round None, allowed: [01]"),
        (lambda clients: clients[-1].update(client=99), r"client 99: state of round \d, allowed: None"),
        (lambda clients: clients[0].update(round=1 - clients[0]["round"]), r"client \d: state of round \d, allowed"),
        (lambda clients: clients[0].update(sha256="0" * 64), "client state .*client-.*: cannot be read: damaged"),
    ],
)
def test_a_checkpoint_that_names_other_states_than_the_run_left_is_refused(folder, change, named):
    edit(folder / "checkpoint" / "checkpoint.json", lambda commit: change(commit["clients"]))
    if "99" in named:  # (the first difference is the client that is gone)
        named = r"client \d: state of round None"
    refused(folder, named, CheckpointError)


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_flipped_bit_in_a_client_state_is_refused(copied, store):
    folder = copied(store=store)
    path = min((folder / "checkpoint" / "clients").iterdir())
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    refused(folder, rf"{path.name}: cannot be read: damaged", CheckpointError)


def forge(path, kind, commit, entry, change):
    """Write another state under the checksum that fits it."""
    data = to_bytes(dataclasses.replace(state := from_bytes(path.read_bytes(), [kind]), **change(state)))
    path.write_bytes(data)
    edit(commit, lambda table: entry(table, hashlib.sha256(data).hexdigest()))


LONG = np.zeros(999)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda s: {"q": LONG}, r"q: float64\[999\], allowed: float64\[\d+\]"),
        (lambda s: {"q": np.full_like(s.q, np.nan)}, "q, allowed: from 0 to 1"),
        (lambda s: {"q": s.q.astype(np.float32)}, "q: float32"),
        (lambda s: {"q": s.q[None]}, r"q: float64\[1, \d+\]"),
        (lambda s: {"mean_losses": LONG}, "mean_losses: .*999"),
        (lambda s: {"mean_losses": np.full_like(s.q, np.inf)}, "mean_losses, allowed: finite numbers"),
        (lambda s: {"pseudo_labels": s.pseudo_labels[1:]}, "pseudo_labels: int64"),
        (lambda s: {"pseudo_labels": s.pseudo_labels + 11}, "pseudo_labels, allowed: from -1 to 9"),
        (lambda s: {"released": np.array(3)}, r"released: int64\[\], allowed: int64"),
        (lambda s: {"noise_rate": 1.5}, "noise_rate: 1.5, allowed: from 0 to 1"),
        (lambda s: {"participations": 0}, "participations: 0 with 1 observed"),
        (lambda s: {"observed": -1}, "participations: 1 with -1 observed"),
        (lambda s: {"teacher": {"w": LONG}}, "teacher: other tensors"),
    ],
)
def test_a_client_state_that_does_not_fit_the_client_is_refused(folder, change, named):
    commit = folder / "checkpoint" / "checkpoint.json"
    one = json.loads(commit.read_text())["clients"][0]
    path = folder / "checkpoint" / "clients" / f"client-{one['client']:07d}.round-{one['round']:07d}"
    forge(path, FedGRState, commit, lambda table, sha: table["clients"][0].update(sha256=sha), change)
    refused(folder, f"client {one['client']}: state .*{path.name}: {named}", CheckpointError)


def weights(change):
    return lambda state: {"weights": change(dict(state.weights))}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (weights(lambda w: {}), "weights: other tensors"),
        (weights(lambda w: {k: v[:1] for k, v in w.items()}), "weights: .* allowed: float32"),
        (weights(lambda w: {k: v.astype(np.float64) for k, v in w.items()}), "weights: .* is float64"),
        (weights(lambda w: {k: np.full_like(v, np.nan) for k, v in w.items()}), "holds a non-finite number"),
        (lambda s: {"newest": {"x": LONG}}, "newest: client 'x', allowed: 0 to 3"),
        (lambda s: {"newest": {"0": LONG.astype(np.float32)}}, r"newest: client 0: float32\[999\]"),
        (lambda s: {"newest": {k: v * np.float32("nan") for k, v in s.newest.items()}}, "allowed: finite numbers"),
    ],
)
def test_a_server_state_that_does_not_fit_the_model_is_refused(folder, change, named):
    commit, path = (folder / "checkpoint" / name for name in ("checkpoint.json", "server.round-0000002"))
    forge(path, FedGRServerState, commit, lambda table, sha: table.update(server_sha256=sha), change)
    refused(folder, f"server state .*{path.name}: .*{named}", CheckpointError)
