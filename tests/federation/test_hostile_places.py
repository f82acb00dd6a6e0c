"""What must never be lost: other people's files, a run in use, and what lies outside the folders that were named."""

import multiprocessing

import numpy as np
import pytest
import torch

from fedgr_secure.config import Config, ViewConfig, check, override
from fedgr_secure.data.folders import _keys
from fedgr_secure.data.types import ImageSpec
from fedgr_secure.data.views import Views
from fedgr_secure.errors import InputError
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.federation.loop import resume, run
from fedgr_secure.federation.store import StateFolder


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
