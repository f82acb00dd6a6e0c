"""What must never be lost: other people's files, a run in use, and what lies outside the folders that were named."""

import multiprocessing
import os

import numpy as np
import pytest
import torch

from fedgr_secure.checks import check
from fedgr_secure.config import override
from fedgr_secure.data.folders import _keys
from fedgr_secure.data.types import ImageSpec
from fedgr_secure.data.views import Views
from fedgr_secure.errors import InputError
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.federation.loop import complete, resume, run
from fedgr_secure.federation.store import StateFolder
from fedgr_secure.sections import Config, ViewConfig


@pytest.mark.parametrize("content", ['{"name": "my web app"}', "{}", "", "not json"])
def test_force_keeps_away_from_a_folder_with_another_programs_manifest(tmp_path, tiny, content):
    (tmp_path / "manifest.json").write_text(content)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"manifest\.json"):
        run(tiny(out=tmp_path, force=True))
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_force_keeps_away_from_a_run_folder_with_a_users_own_file(tmp_path, tiny):
    out = tmp_path / "run"
    run(tiny(out=out, rounds=1))
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        run(tiny(out=out, rounds=1, force=True))
    (out / "notes.txt").unlink()
    assert run(tiny(out=out, rounds=2, force=True)).summary.rounds == 2


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("x" * 300, "(out|run folder): .*xxx: cannot be used: File name too long"),
        ("x\0y", "allowed: a path without a NUL character"),
        ("dangling", "dangling is a link to nowhere, allowed: a new or empty folder"),
        ("locked", "lock.*(cannot be written|not a regular file)"),
    ],
)
def test_places_that_cannot_be_used_are_refused_in_one_line(tmp_path, tiny, name, named):
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "locked").mkdir()
    os.mkfifo(tmp_path / "locked" / "lock")
    for start in (run, complete):
        with pytest.raises(InputError, match=named) as caught:
            start(tiny(out=tmp_path / name, method="fedavg", rounds=1))
        assert len(str(caught.value).splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "locked"]


def test_a_link_to_a_run_is_replaced_where_it_leads(tmp_path, tiny):
    run(tiny(out=tmp_path / "run", method="fedavg", rounds=1))
    (tmp_path / "link").symlink_to("run")
    run(tiny(out=tmp_path / "link", method="fedavg", rounds=2, force=True))
    assert RunFolder(tmp_path / "run").summary().rounds == 2
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("name", ["manifest.json", "rounds.jsonl", "checkpoint/checkpoint.json", "lock"])
def test_a_pipe_in_the_place_of_a_file_is_refused_and_nobody_waits_for_it(stopped, name):
    folder = stopped(after=2, method="fedavg", checkpoint_every=1)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match=r"not a regular file|no run was started|lock: cannot be written"):
        resume(folder)


def test_more_threads_than_any_machine_has_are_refused(tmp_path, tiny):
    with pytest.raises(InputError, match="threads: 1025, allowed: a whole number from 1 to 1024"):
        run(tiny(out=tmp_path / "run", threads=1025))


def hold(path, held, let_go):
    with RunFolder(path).in_use():
        held.set()
        let_go.wait(60)


def test_a_run_folder_in_use_is_neither_resumed_nor_replaced(tmp_path, tiny, stopped):
    folder = stopped(after=2)
    context = multiprocessing.get_context("forkserver")
    held, let_go = context.Event(), context.Event()
    other = context.Process(target=hold, args=(folder, held, let_go))
    other.start()
    assert held.wait(60)
    try:
        with pytest.raises(InputError, match="in use by another process"):
            resume(folder)
        with pytest.raises(InputError, match="in use by another process"):
            run(tiny(out=folder, force=True))
    finally:
        let_go.set()
        other.join()
    assert resume(folder).summary.rounds == 4


def test_pruning_leaves_files_of_other_names(tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    (tmp_path / "client-0000001.round-0000001").write_text("old")
    StateFolder(tmp_path, None).prune({})
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("key", ["../outside.jpg", "/etc/passwd", "images/../../outside.jpg"])
def test_key_lists_do_not_lead_out_of_their_folder(tmp_path, key):
    (tmp_path / "list.txt").write_text(key + "\n")
    with pytest.raises(InputError, match="allowed: images below"):
        _keys(tmp_path / "list.txt")


def test_batch_norm_with_batches_of_one_is_refused():
    with pytest.raises(InputError, match="batch_size: 1"):
        check(override(Config(), {"norm": "batch", "batch_size": 1}))


def test_many_operations_keep_pixels_in_range():
    spec = ImageSpec(1, 8, 8, ("a", "b"), mean=(0.0,), std=(1.0,), natural=False)
    views = Views.for_images(spec, ViewConfig(randaugment_ops=20, randaugment_magnitude=1.0))
    images = np.random.default_rng(0).integers(256, size=(400, 1, 8, 8)).astype(np.uint8)
    for seed in range(5):
        made = views.strong(images, torch.Generator().manual_seed(seed))
        assert made.min() >= 0 and made.max() <= 1
