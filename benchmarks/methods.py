"""Every method beside FedGR on equal terms: accuracy, who is first, and accuracy within equal budgets.

`python -m benchmarks.methods digits` carries out the grid `digits-methods` without attacks and audits, and records it;
`mnist` needs --data FOLDER. What is complete in --runs is not done again; --no-run records what is there.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.common import RESULTS, write_result
from benchmarks.methods_shown import by_setting, run_lines, setting_record, setting_words
from benchmarks.tradeoff import Tradeoff
from fedgr_secure.app.figures import draw_all
from fedgr_secure.app.sweep import slug
from fedgr_secure.app.tables import ABSENT
from fedgr_secure.app.tradeoff import grid as grids
from fedgr_secure.app.tradeoff.budget_figures import BUDGET_FIGURES, Spending
from fedgr_secure.app.tradeoff.budgets import LAST, courses
from fedgr_secure.app.tradeoff.command import Asked, tradeoff
from fedgr_secure.app.tradeoff.drawing import Study
from fedgr_secure.app.tradeoff.report import seed_words
from fedgr_secure.app.tradeoff.results import Measured, collect
from fedgr_secure.app.tradeoff.table import as_csv
from fedgr_secure.errors import require

NOTES = (
    "Mean ± sample standard deviation over seeds; one seed has no spread. 1 MB is 10^6 bytes.",
    "Paper: CIFAR-10, 100 clients (FedGR, arXiv 2412.00452); other data than here, so that orders may be compared and "
    "numbers may not.",
    "Differences are paired by seed, with 95 % intervals by Student's t, each for itself.",
    f"Within a budget: mean accuracy of the last (up to) {LAST} rounds that lie within it; {ABSENT} where none does. "
    "Budgets are shares of what FedAvg spends; a method that stops before its budget is spent keeps what it had.",
    "A client update is one client's turn: methods with two networks train both in it, and what it reads without "
    "training is none.",
    "Time is wall time on a machine that did other things beside.",
)


@dataclass(frozen=True)
class Methods(Tradeoff):
    """A recorded comparison of methods."""

    grid: tyro.conf.Positional[str] = "digits"
    """`digits` or `mnist`: the shipped grid of that name and `-methods`"""
    run: bool = True
    """carry out what is not done yet"""


def main() -> None:
    """Carry the grid out and record it."""
    options = tyro.cli(Methods, description=__doc__)
    root = options.runs / f"methods-{options.grid}"
    name = f"{options.grid}-methods"
    asked = Asked(name, options.data, root, None, options.jobs, None, attacks=False, audits=False)
    code = tradeoff(asked, as_json=False) if options.run else 0
    grid = grids.load(name, data=options.data)
    record(grid, collect(grid, root, attacks=False), root)
    raise SystemExit(code)


def record(grid: grids.Grid, rows: Sequence[Measured], root: Path) -> None:
    """Write tables, figures and the tidy table of what is there.

    Raises:
        InputError: no run is complete, or a file is damaged.
    """
    found = courses(rows, root)
    require(len(found) > 0, f"runs: {root} holds no complete run of the grid, allowed: at least one")
    start, settings = slug(grid.title), by_setting(found).values()
    figures = _draw(Spending(Study.of(grid, rows), found), start)
    text = "\n".join([*(setting_words(own, grid.reference) for own in settings), *figures])
    data = [setting_record(own, grid.reference) for own in settings]
    write_result(grid.title, text, data, None, [*NOTES, *missing_words(grid, rows)])
    (RESULTS / f"{start}.csv").write_text(as_csv([line for own in settings for line in run_lines(own)]))


def _draw(spending: Spending, start: str) -> list[str]:
    """The figures beside the tables, and how Markdown shows them."""
    with tempfile.TemporaryDirectory() as folder:
        for name in draw_all(BUDGET_FIGURES, spending, Path(folder)):
            shutil.copy(Path(folder) / "figures" / name, RESULTS / f"{start}-{name}")
    return [f"![{kind.alt}]({start}-{kind.file})\n" for kind in BUDGET_FIGURES]


def missing_words(grid: grids.Grid, rows: Sequence[Measured]) -> list[str]:
    """What is not there: a sentence per setting without a run, one per row of the others, and what it means."""
    begun = {row.row.setting for row in rows if row.summaries}
    partly = [row for row in rows if row.failed and row.row.setting in begun]
    uneven = "Where seeds are missing, differences are over the seeds that both have, and the tables' means are not."
    return [
        *(f"Missing: {name}, every run." for name in grid.settings if name not in begun),
        *(f"Missing: {row.row.name} ({row.row.setting}), {seed_words(row.failed)}." for row in partly),
        *([uneven] if any(row.summaries for row in partly) else []),
    ]


if __name__ == "__main__":
    main()
