"""A benchmark from Python: a grid of runs, an attack on every run, and one line per row.

python examples/benchmark.py                 # into a temporary folder
python examples/benchmark.py --out runs/mine # keeps the run folders; the same command again runs nothing twice
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import tyro

from fedgr_secure.app.sweep import Outcome
from fedgr_secure.app.tradeoff import engine, grid, results

GRID = Path(__file__).with_name("grid.toml")


def say(outcome: Outcome) -> None:
    """How one run ended."""
    print(f"{outcome.cell.name}: {outcome.error or 'done'}", flush=True)


def line(row: results.Measured) -> str:
    """Accuracy, claimed epsilon, and the attack with the largest area under its curve."""
    accuracy, strongest = row.measure("accuracy_last10"), row.strongest()
    cells = [
        f"{row.row.name:30}",
        f"{accuracy.mean:9.1%}" if accuracy else f"{'failed':>9}",
        f"{'none' if row.epsilon is None else f'{row.epsilon:g}':>8}",
        f"  {strongest.attack}, {strongest.game}: AUC {strongest.metrics.auc}" if strongest else "  no attack",
    ]
    return "".join(cells)


def main(out: Path | None = None) -> None:
    """Carry `grid.toml` out.

    Args:
        out: folder of all runs (default: a temporary one).
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = out or Path(scratch)
        rows = grid.load(str(GRID))
        # audits, which take longer than these runs, are left out; with them, row.certified is what they came to
        outcomes = engine.carry_out(engine.Plan(rows, root, audits=False), jobs=2, on_done=say)
        print(f"\n{'':30}{'accuracy':>9}{'epsilon':>8}  strongest attack")
        for row in results.collect(rows, root):
            print(line(row))
    if any(outcome.failure for outcome in outcomes):
        raise SystemExit(1)


if __name__ == "__main__":  # each run has a process of its own, which imports this file again
    tyro.cli(main)
