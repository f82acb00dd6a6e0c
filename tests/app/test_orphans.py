"""A sweep that is killed takes its worker processes with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def children(pid):
    """Process ids of the children, from Linux's process table."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's process table")
def test_workers_end_with_a_killed_sweep(tmp_path, tiny_flags):
    flags = [*tiny_flags(rounds=100000), "--out", str(tmp_path / "out"), "--seeds", "1", "--methods", "fedavg", "fedgr"]
    code = "import sys; from fedgr_secure.app.cli import main; main(sys.argv[1:])"
    sweep = subprocess.Popen([sys.executable, "-c", code, "compare", *flags, "--jobs", "2"])
    try:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline and not list(tmp_path.glob("out/*/rounds.jsonl")):
            time.sleep(0.2)
        workers = children(sweep.pid)
        assert len(workers) >= 2
    finally:
        sweep.kill()
        sweep.wait()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(map(alive, workers)):
        time.sleep(0.2)
    left = [pid for pid in workers if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
