"""A run that is stopped, even by kill -9, continues to the very numbers of a run that was not."""

import json
import multiprocessing
import random
import signal
import time

import numpy as np
import pytest

from fedgr_secure.app import cli
from fedgr_secure.errors import CheckpointError, InputError
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.federation.loop import complete, resume, rounds_done, run
from fedgr_secure.federation.view import ServerView
from fedgr_secure.registry import METHODS

LONG = {"rounds": 18, "warmup": 6, "memorised_every": 4}


def same_files(one, other):
    names = ("rounds.jsonl", "weights.safetensors", "clients.json", "losses.json")
    return [name for name in names if (one / name).read_bytes() != (other / name).read_bytes()] == []


@pytest.fixture(scope="module")
def uninterrupted(finished):
    return finished(**LONG)


@pytest.fixture(scope="module")
def processes():
    """Processes that share nothing with this one; what they import is imported once for all."""
    context = multiprocessing.get_context("forkserver")
    slow_imports = ["torch._dynamo", "sklearn.datasets", "sklearn.mixture", "sklearn.model_selection"]
    context.set_forkserver_preload(["fedgr_secure.app.commands", "fedgr_secure.federation.loop", *slow_imports])
    return context


def lines(folder):
    path = folder / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_in_mid_run(processes, arguments, folder, *, after):
    """Start the command line in a process, kill it (SIGKILL) a moment after so many rounds; rounds that it did."""
    process = processes.Process(target=cli.main, args=(["run", "--out", str(folder), *arguments],))
    process.start()
    deadline = time.monotonic() + 120
    while lines(folder) < after and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(random.uniform(0, 0.04))  # anywhere in the next round
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"it ended by itself with {process.exitcode}"
    assert not RunFolder(folder).finished
    return lines(folder)


@pytest.mark.parametrize(
    ("extra", "earliest", "latest", "checkpoints"),
    [
        pytest.param("--store memory --checkpoint-every 3", 4, 8, True, marks=pytest.mark.slow),
        ("--store disk --checkpoint-every 3 --record-view all", 4, 8, True),
        pytest.param("--store disk --checkpoint-every 18", 1, 8, False, marks=pytest.mark.slow),
    ],
    ids=["memory", "disk", "disk, before the first checkpoint"],
)
def test_a_killed_run_resumes_to_the_same_bytes(
    processes, uninterrupted, tiny_flags, tmp_path, extra, earliest, latest, checkpoints
):
    folder, after = tmp_path / "run", random.randint(earliest, latest)
    did = kill_in_mid_run(processes, [*tiny_flags(**LONG), *extra.split()], folder, after=after)
    done = rounds_done(folder)
    assert (0 < done <= did) if checkpoints else done == 0
    result = resume(folder)
    assert same_files(folder, uninterrupted.folder), f"killed after {did} rounds, resumed from {done}"
    assert result.rounds == uninterrupted.rounds
    if "--record-view" in extra:
        assert ServerView(folder / "view", METHODS["fedgr"].messages).rounds() == list(range(18))


def test_a_run_resumed_twice_is_still_the_same(stopped, finished):
    folder = stopped(after=1, checkpoint_every=1, store="disk")

    def stop(record):
        if record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(folder, on_round=[stop])
    assert rounds_done(folder) == 3
    resume(folder)
    assert same_files(folder, finished().folder)


def test_without_checkpoints_a_resume_starts_over(stopped, finished):
    folder = stopped(after=3, checkpoint_every=0)
    assert rounds_done(folder) == 0
    resume(folder)
    assert same_files(folder, finished().folder)


@pytest.mark.parametrize("method", ["fedavg", "central"])
def test_methods_without_client_state_resume(stopped, finished, method):
    folder = stopped(after=3, checkpoint_every=2, method=method)
    resume(folder)
    names = ("rounds.jsonl", "weights.safetensors", "clients.json")
    for name in names:
        assert (folder / name).read_bytes() == (finished(method=method).folder / name).read_bytes()


@pytest.mark.parametrize("changes", [{"mixture_data": "all_seen"}, {"decisions": "next_participation"}], ids=str)
def test_state_that_outlives_rounds_is_in_the_checkpoint(stopped, finished, changes):
    folder = stopped(after=3, checkpoint_every=2, **changes)
    resume(folder)
    assert same_files(folder, finished(**changes).folder)


def test_a_run_stopped_after_its_last_round_only_lacks_the_summary(stopped, finished):
    folder = stopped(after=4, checkpoint_every=2)
    assert not RunFolder(folder).finished
    resume(folder)
    assert same_files(folder, finished().folder)


def test_the_seconds_of_the_rounds_before_count_in_the_summary(stopped):
    folder = stopped(after=3, checkpoint_every=2)
    kept = RunFolder(folder).timings()[:2]
    summary = resume(folder).summary
    assert RunFolder(folder).timings()[:2] == kept
    assert summary.seconds == pytest.approx(
        sum(sum(timing.seconds.values()) for timing in RunFolder(folder).timings()), abs=1e-3
    )


def npz(path, labels):
    generator = np.random.default_rng(0)
    images = generator.integers(256, size=(60, 8, 8)).astype(np.uint8)
    np.savez(path, x_train=images, y_train=labels, x_test=images[:20], y_test=np.arange(20) % 4)


def test_a_resume_on_other_data_is_refused(stopped, tmp_path):
    path, labels = tmp_path / "data.npz", np.arange(60) % 4
    npz(path, labels)
    folder = stopped(after=2, checkpoint_every=1, dataset="npz", path=path, train_size=None, test_size=None)
    npz(path, np.roll(labels, 1))
    before = (folder / "rounds.jsonl").read_bytes()
    with pytest.raises(InputError, match=r"was started on other data than .*data\.npz holds now"):
        resume(folder)
    assert (folder / "rounds.jsonl").read_bytes() == before
    npz(path, labels)
    assert resume(folder).summary.rounds == 4


def test_a_complete_run_is_not_resumed(finished):
    with pytest.raises(InputError, match="is complete; nothing to resume"):
        resume(finished().folder)


def test_a_folder_without_a_run_is_not_resumed(tmp_path):
    with pytest.raises(InputError, match="no run was started in it"):
        resume(tmp_path)


def test_records_that_lack_rounds_of_the_checkpoint_are_refused(stopped):
    folder = stopped(after=3, checkpoint_every=3)
    path = folder / "rounds.jsonl"
    path.write_text(path.read_text().split("\n")[0] + "\n")
    with pytest.raises(InputError, match=r"rounds\.jsonl: 1 lines, allowed: 3 at least"):
        resume(folder)


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_damaged_client_state_is_refused_before_anything_changes(stopped, store):
    folder = stopped(after=3, checkpoint_every=3, store=store)
    path = next((folder / "checkpoint" / "clients").iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=path.name):
        resume(folder)
    assert not RunFolder(folder).finished


def test_complete_reads_resumes_or_runs(tiny, stopped, finished, tmp_path):
    config = tiny(out=tmp_path / "stopped", checkpoint_every=2)
    stopped(after=3, checkpoint_every=2, out=tmp_path / "stopped")
    resumed = complete(config)
    assert same_files(tmp_path / "stopped", finished().folder)
    assert complete(config) == resumed  # seconds and all: it was read
    with pytest.raises(InputError, match="holds a run of another configuration; --force replaces it"):
        complete(tiny(out=tmp_path / "stopped", lr=0.01))
    assert complete(tiny(out=tmp_path / "new", method="fedavg", rounds=1)).rounds == 1
    assert complete(tiny(out=tmp_path / "new", method="fedavg", rounds=2, force=True)).rounds == 2


def test_complete_does_not_take_a_run_on_other_data_for_its_own(tiny, tmp_path):
    path, labels = tmp_path / "data.npz", np.arange(60) % 4
    npz(path, labels)
    data = {"dataset": "npz", "path": path, "train_size": None, "test_size": None}
    config = tiny(out=tmp_path / "run", method="fedavg", rounds=1, **data)
    summary = complete(config)
    assert complete(config) == summary
    npz(path, np.roll(labels, 1))
    with pytest.raises(InputError, match=r"run was started on other data than .*data\.npz holds now; --force replaces"):
        complete(config)


@pytest.mark.parametrize("change", [{"seed": 5}, {"method": "fedprox"}, {"rounds": 3}, {"data": "mnist"}], ids=str)
def test_complete_refuses_a_summary_of_another_run(tiny, tmp_path, change):
    config = tiny(out=tmp_path / "run", method="fedavg", rounds=1)
    complete(config)
    path = tmp_path / "run" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=r"summary\.json is of \(method.*\) .*; --force replaces the run"):
        complete(config)


def test_settings_that_do_not_decide_results_may_differ(tiny, finished):
    result = finished()
    same = tiny(out=result.folder, checkpoint_every=0, record_view="uploads", threads=1)
    assert complete(same) == result.summary


def test_a_run_that_was_resumed_may_be_replaced(stopped, tiny):
    folder = stopped(after=3, checkpoint_every=2)
    run(tiny(out=folder, method="fedavg", rounds=1, force=True))
    assert not (folder / "checkpoint").exists()
