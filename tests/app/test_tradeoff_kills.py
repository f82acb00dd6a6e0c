"""A trade-off that is killed at any moment finishes, when it is started again, with the table of one that was not."""

import csv
import os
import signal
import subprocess
import sys
import time

import pytest

from fedgr_secure.app.tradeoff.table import VARYING

GRID = """
title = "Killed"
seeds = 1
reference = "plain"

[base]
train_size = 120
model = "mlp"
width = 2
local_epochs = 1
clients = 4
cohort = 2
rounds = 12
warmup = 4
checkpoint_every = 2
entropy = "insecure-seeded"
noise = "insecure-seeded"

[[series]]
name = "plain"
channel = "plain"

[[series]]
name = "noisy"
channel = "noisy"
epsilon = [4]
"""


def start(grid, out):
    code = "import sys; from fedgr_secure.app.cli import main; main(sys.argv[1:])"
    words = [sys.executable, "-c", code, "tradeoff", str(grid), "--out", str(out), "--jobs", "2"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def table(out):
    """What does not depend on the clock or the machine."""
    with (out / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    fixed = [name for name in rows[0] if not name.startswith(VARYING)]
    assert len(fixed) > 60
    return [{name: row[name] for name in fixed} for row in rows]


@pytest.mark.slow
def test_a_killed_trade_off_ends_with_the_same_table(tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID)
    whole = start(grid, tmp_path / "whole")
    began = time.monotonic()
    assert whole.wait(500) == 0, whole.stderr.read()
    took = time.monotonic() - began
    for kill in (1, 3, 5):  # from the start of the first workers to the report
        sweep = start(grid, tmp_path / "killed")
        time.sleep(took * (0.15 + 0.1 * kill) / 2)
        os.kill(sweep.pid, signal.SIGKILL)
        sweep.wait()
    last = start(grid, tmp_path / "killed")
    errors = last.communicate(timeout=500)[1]
    assert (last.returncode, errors) == (0, "")
    assert table(tmp_path / "killed") == table(tmp_path / "whole")
    assert (tmp_path / "killed" / "tradeoff.html").stat().st_size > 10_000
