"""The examples, run as a user runs them: from a checkout, each as a program of its own, with the figures it claims."""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attacks.metrics import evaluate

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(script, *arguments):
    """What a script prints; it must end with exit code 0."""
    command = [sys.executable, f"examples/{script}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def figures(pattern, text):
    """The numbers that a pattern's groups find, once."""
    found = re.findall(pattern, text, re.MULTILINE)
    assert len(found) == 1, text
    return [float(number) for number in np.atleast_1d(found[0])]


@pytest.mark.slow
def test_the_benchmark_shows_what_privacy_costs_and_what_it_prevents(tmp_path):
    said = run("benchmark.py", "--out", tmp_path)
    line = r"^{}\s+(\S+)%\s+{}\s.*AUC (\S+) "
    plain, plain_area = figures(line.format("FedGR, plain", "none"), said)
    private, private_area = figures(line.format("FedGR, histogram, epsilon 1", "1"), said)
    fedavg, _ = figures(line.format("FedAvg", "none"), said)
    assert min(plain, private) > 70 and fedavg > 60
    assert min(plain, private) > fedavg
    assert plain_area > 0.9 > 0.7 > private_area
    kept = [path.parent.name for path in tmp_path.rglob("summary.json")]
    assert sorted(kept) == ["fedavg-s0", "fedgr-histogram-epsilon-1-s0", "fedgr-plain-s0"]


@pytest.mark.slow
def test_the_attack_script_finds_members_in_the_clear_and_none_in_the_histogram(tmp_path):
    said = run("attack.py", "--out", tmp_path)
    assert figures(r"^plain run, matching, any: AUC (\S+) ", said)[0] > 0.9
    assert figures(r"^plain run, nearest number: AUC (\S+) ", said)[0] > 0.9
    assert figures(r"at 1.0% false positives: (\S+) ", said)[0] > 0.5
    assert figures(r"^gate: AUC of \w+, \w+: (\S+) .*kept$", said)[0] < 0.65
    assert {path.name for path in tmp_path.iterdir()} == {"plain", "private"}


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "code", "word"), [(3.0, 1, "ABOVE"), (0.0, 0, "kept")])
def test_the_gate_of_the_attack_script_is_closed_by_an_attack_that_works(shift, code, word, capsys):
    gate = runpy.run_path(str(EXAMPLES / "attack.py"))["gate"]
    member = np.arange(400) % 2 == 0
    metrics = evaluate(np.random.default_rng(0).normal(size=400) + shift * member, member)
    assert gate("mine", metrics) == code
    assert capsys.readouterr().out.rstrip().endswith(word)


@pytest.mark.slow
def test_imported_parts_sieve_a_foreign_simulator():
    said = run("import_into_simulator.py")
    line = r"^{}: accuracy (\S+), Pearson of noise rates (\S+), releases charged (\d+)$"
    without, _, _ = figures(line.format("no sieve"), said)
    for name, releases in (("sieve, losses in the clear", 0), ("sieve, histogram at epsilon 1", 4)):
        accuracy, pearson, charged = figures(line.format(name), said)
        assert accuracy > without + 0.04 and accuracy > 0.85
        assert pearson > 0.9
        assert charged == releases


def test_the_foreign_simulator_knows_nothing_of_ours():
    tree = ast.parse((EXAMPLES / "simulator.py").read_text())
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not {name.split(".")[0] for name in names} & {"fedgr_secure", "privacy", "attacks"}
