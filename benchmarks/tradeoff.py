"""A grid of `fedgr-secure tradeoff`, recorded: tables, figures and the tidy table.

With a grid that needs data, name its folder: `python -m benchmarks.tradeoff mnist --data FOLDER`. What is complete in
--runs is not done again.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.common import RESULTS, write_result
from fedgr_secure.app.sweep import slug
from fedgr_secure.app.tradeoff import grid as grids
from fedgr_secure.app.tradeoff.command import CSV, MARKDOWN, Asked, tradeoff
from fedgr_secure.app.tradeoff.results import collect
from fedgr_secure.app.tradeoff.table import records

FIGURES = ("utility", "sieve", "leakage")


@dataclass(frozen=True)
class Tradeoff:
    """A recorded trade-off."""

    grid: tyro.conf.Positional[str] = "digits"
    """a shipped grid, or a TOML file"""
    data: Path | None = None
    """the folder of the grid's data"""
    jobs: int = 2
    """worker processes"""
    runs: Path = Path("runs/benchmarks")
    """where the run folders go"""


def main() -> None:
    """Carry a grid out and record it."""
    options = tyro.cli(Tradeoff, description=__doc__)
    root = options.runs / f"tradeoff-{Path(options.grid).stem}"
    asked = Asked(options.grid, options.data, root, None, options.jobs, None, attacks=True, audits=True)
    code = tradeoff(asked, as_json=False)
    grid = grids.load(options.grid, data=options.data)
    rows = collect(grid, root)
    title = f"{grid.title}, privacy against utility"
    failed = [f"{row.row.name} ({row.row.setting}): seeds {row.failed} are missing" for row in rows if row.failed]
    write_result(title, (root / MARKDOWN).read_text(), records(rows), None, failed)
    shutil.copy(root / CSV, RESULTS / f"{slug(title)}.csv")
    for name in FIGURES:
        shutil.copy(root / "figures" / f"{name}.png", RESULTS / f"{slug(title)}-{name}.png")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
