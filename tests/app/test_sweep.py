"""Sweeps: finished work is read, stopped work is resumed, one failing cell does not stop the rest."""

import csv
import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import quick_cells
from run_folders import make_folder

from fedgr_secure.app import cli
from fedgr_secure.app.failures import failure
from fedgr_secure.app.sweep import Cell, cell_folder, sweep
from fedgr_secure.errors import DivergedError, InputError
from fedgr_secure.federation import loop
from fedgr_secure.sections import Config


@pytest.fixture
def compare(capsys, tiny_flags, tmp_path):
    """`compare(flags)` is the exit code, what was printed as JSON and the words on standard error."""

    def run(*flags):
        with pytest.raises(SystemExit) as ended:
            cli.main(
                ["compare", *tiny_flags(rounds=2), "--jobs", "1", "--json", "--out", str(tmp_path / "all"), *flags]
            )
        out, err = capsys.readouterr()
        return ended.value.code, json.loads(out), " ".join(err.split())

    return run


@pytest.fixture
def work(monkeypatch):
    """What was really done: the folders of the runs that were started and resumed."""
    done = {"run": [], "resume": []}
    really_run, really_resume = loop.run, loop.resume

    def run(config, **options):
        done["run"].append(config.output.out.name)
        return really_run(config, **options)

    def resume(path, **options):
        done["resume"].append(path.name)
        return really_resume(path, **options)

    monkeypatch.setattr(loop, "run", run)
    monkeypatch.setattr(loop, "resume", resume)
    return done


def test_a_comparison_runs_reuses_resumes_and_refuses(compare, work, tmp_path):
    names = ["fedavg-s5", "fedgr-s5", "fedavg-s6", "fedgr-s6"]
    asked = ("--methods", "fedavg", "fedgr", "--seeds", "2", "--seed", "5")
    code, rows, err = compare(*asked)
    assert (code, err) == (0, "")
    assert [row["method"] for row in rows] == ["fedavg", "fedgr"]
    assert work == {"run": names, "resume": []}
    summaries = [json.loads((tmp_path / "all" / name / "summary.json").read_text()) for name in names]
    for row, method in zip(rows, ("fedavg", "fedgr"), strict=True):
        own = [summary["accuracy_last10"] for summary in summaries if summary["method"] == method]
        assert row["accuracy_last10"]["mean"] == pytest.approx(sum(own) / 2)
    assert "fedgr" in (tmp_path / "all" / "compare.md").read_text()
    with (tmp_path / "all" / "compare.csv").open() as stream:
        assert {line["method"] for line in csv.DictReader(stream)} == {"fedavg", "fedgr"}

    assert compare(*asked)[:2] == (0, rows)  # everything is read
    assert work == {"run": names, "resume": []}

    (tmp_path / "all" / "fedgr-s5" / "summary.json").unlink()  # as if it had been stopped at its end
    code, again, _ = compare(*asked)
    assert (code, work["resume"]) == (0, ["fedgr-s5"])
    assert again[1]["accuracy_last10"] == rows[1]["accuracy_last10"]

    code, found, err = compare(*asked, "--lr", "0.01")
    assert (code, found) == (2, [])
    assert err.count("holds a run of another configuration; --force replaces it") == 4
    assert work["run"] == names

    code, found, _ = compare(*asked, "--lr", "0.01", "--force")
    assert code == 0
    assert len(work["run"]) == 8


def test_a_comparison_shares_data_labels_and_first_weights(compare, tmp_path):
    compare("--methods", "fedavg", "fedprox", "--seeds", "1", "--mu", "0")
    one, other = (tmp_path / "all" / f"{method}-s0" for method in ("fedavg", "fedprox"))
    # FedProx without its proximal term is FedAvg: any difference in data or start would show
    assert (one / "weights.safetensors").read_bytes() == (other / "weights.safetensors").read_bytes()
    assert (one / "rounds.jsonl").read_bytes() == (other / "rounds.jsonl").read_bytes()


def test_a_failing_cell_is_named_and_the_others_still_appear(compare):
    code, rows, err = compare("--methods", "fedprox", "fedavg", "--seeds", "2", "--mu", "1e30", "--batch-size", "8")
    assert code == 1
    assert [row["method"] for row in rows] == ["fedavg"]
    for seed in (0, 1):
        assert f"fedprox, seed {seed}: failed: " in err
    assert "round 0" in err
    assert "fedavg" not in err


def test_bad_data_is_said_once_and_exits_with_two(compare):
    code, rows, err = compare("--methods", "fedavg", "fedgr", "--seeds", "2", "--dataset", "npz", "--path", "none.npz")
    assert (code, rows) == (2, [])
    assert err.startswith(
        "fedavg, seed 0: failed: path: none.npz does not exist, allowed: an existing .npz file fedgr, seed 0: "
    )
    assert err.count("failed: as fedavg, seed 0") == 3


def test_what_no_comparison_wrote_is_kept(capsys, tiny_flags, tmp_path):
    (tmp_path / "file").write_text("mine")
    make_folder(tmp_path / "run")
    for name in ("compare.md", "compare.csv"):
        (tmp_path / name[8:]).mkdir()
        (tmp_path / name[8:] / name).write_text("mine")
    for out, said in (
        ("file", "file is a file, allowed: a folder"),
        ("run", "run is the folder of one run"),
        ("md", "compare.md was not written by a comparison"),
        ("csv", "compare.csv was not written by a comparison"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(["compare", *tiny_flags(), "--force", "--out", str(tmp_path / out)])
        assert ended.value.code == 2
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1
    assert {p.read_text() for p in (tmp_path / "file", *tmp_path.glob("*/compare.*"))} == {"mine"}


@pytest.mark.parametrize(
    "error", [DivergedError("round 3: nan"), MemoryError(), InputError("lr: -1"), OSError(5, "I/O")]
)
def test_a_foreseen_error_is_said_in_words(tiny, tmp_path, monkeypatch, error):
    def broken(config, **options):
        raise error

    monkeypatch.setattr(loop, "run", broken)
    (outcome,) = sweep([Cell("one", tiny(out=tmp_path / "one"))], jobs=1)
    assert outcome.failure == failure(error)
    assert type(error).__name__ not in outcome.error


@pytest.mark.parametrize("order", [["killed", "done", "gives up", "last"], ["done", "gives up", "last", "killed"]])
def test_a_worker_that_dies_fails_alone(tmp_path, order):
    reasons = {"killed": "its worker process was killed", "gives up": "its worker process ended with exit code 3"}
    cells = [Cell(name, Config()) for name in order]
    outcomes = sweep(cells, jobs=2, work=quick_cells.work)
    assert [outcome.cell for outcome in outcomes] == cells
    assert [outcome.error for outcome in outcomes] == [reasons.get(name) for name in order]
    assert [outcome.summary is None for outcome in outcomes] == [name in reasons for name in order]


def test_an_unexpected_error_is_an_outcome_too(tiny, tmp_path, monkeypatch):
    def broken(config, **options):
        raise ZeroDivisionError("over nothing")

    monkeypatch.setattr(loop, "run", broken)
    (outcome,) = sweep([Cell("one", tiny(out=tmp_path / "one"))], jobs=1)
    assert outcome.summary is None
    assert outcome.error == "ZeroDivisionError: over nothing"


def test_bad_settings_in_any_cell_stop_the_sweep_before_it_starts(tiny, tmp_path):
    cells = [Cell("good", tiny(out=tmp_path / "good")), Cell("bad", tiny(out=tmp_path / "bad", rounds=0))]
    with pytest.raises(InputError, match="rounds: 0"):
        sweep(cells, jobs=1)
    assert list(tmp_path.iterdir()) == []


def test_cells_of_a_seed_and_a_name_have_folders_of_their_own():
    names = ["fedgr", "fedgr w/o sieve", "fedgr w/o refine"]
    folders = {cell_folder(Path("root"), name, seed) for name in names for seed in (0, 1)}
    assert len(folders) == 6
    assert all(folder.parent == Path("root") for folder in folders)


@pytest.mark.slow
def test_worker_processes_give_the_same_results_and_a_killed_one_is_reported(tiny, finished, tmp_path):
    others = set(multiprocessing.active_children())

    def kill_workers(outcome):
        for child in set(multiprocessing.active_children()) - others:
            os.kill(child.pid, signal.SIGKILL)

    ended = []
    cells = [Cell(f"fedavg {seed}", tiny(method="fedavg", seed=seed, out=tmp_path / str(seed))) for seed in (0, 1)]
    outcomes = sweep(cells, jobs=2, on_done=ended.append)
    assert [outcome.cell for outcome in outcomes] == cells  # in order, however they ended
    assert sorted(outcome.cell.name for outcome in ended) == ["fedavg 0", "fedavg 1"]
    wanted = (finished(method="fedavg").folder / "rounds.jsonl").read_bytes()
    assert (tmp_path / "0" / "rounds.jsonl").read_bytes() == wanted

    long = [Cell(f"long {i}", tiny(rounds=2000, seed=i, out=tmp_path / f"long{i}")) for i in range(2)]
    short = Cell("short", tiny(method="fedavg", rounds=1, out=tmp_path / "short"))
    outcomes = sweep([short, *long], jobs=2, on_done=kill_workers)
    assert outcomes[0].summary is not None
    assert [outcome.error for outcome in outcomes[1:]] == ["its worker process was killed"] * 2
    assert not any((tmp_path / f"long{i}" / "summary.json").exists() for i in range(2))
