"""The command `tradeoff`: a grid carried out, its table, its report, and a recommendation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from fedgr_secure.app.output import Output
from fedgr_secure.app.sweep import Cell, Outcome
from fedgr_secure.app.tables import ABSENT, number
from fedgr_secure.app.telling import Teller, cells_bar
from fedgr_secure.app.tradeoff import grid as grids
from fedgr_secure.app.tradeoff.engine import Plan, carry_out, folder_of, holds, open_cells
from fedgr_secure.app.tradeoff.recommend import recommend
from fedgr_secure.app.tradeoff.report import write_report
from fedgr_secure.app.tradeoff.results import Measured, Spread, collect
from fedgr_secure.app.tradeoff.shown import markdown
from fedgr_secure.app.tradeoff.table import as_csv, as_json_lines, dictionary, records
from fedgr_secure.checks import claims_proxies, trains_privately
from fedgr_secure.errors import require
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.files import make_folder, write_atomic
from fedgr_secure.sections import Config

CSV, JSON_LINES, MARKDOWN, DICTIONARY = "results.csv", "results.jsonl", "results.md", "columns.csv"
MARK = "grid.json"


@dataclass(frozen=True)
class Asked:
    """What the command was asked for.

    Attributes:
        grid: a shipped grid's name or a TOML file.
        data: the folder of relative data paths, or None.
        out: the folder of all runs, or None: `runs/tradeoff-GRID`.
        seeds: instead of the grid's own number.
        jobs: worker processes.
        target_epsilon: of the recommendation.
        attacks, audits: whether they are made.
    """

    grid: str
    data: Path | None
    out: Path | None
    seeds: int | None
    jobs: int
    target_epsilon: float | None
    attacks: bool
    audits: bool


def tradeoff(asked: Asked, *, as_json: bool) -> int:
    """Carry a grid out, leave table and report, and end in a recommendation.

    Returns:
        The exit code: 0 when everything is complete and no audit refutes a claim; 2 when what is not complete was all
        refused; else 1.

    Raises:
        InputError: a setting, the grid or the folder is not acceptable, before anything is run.
    """
    require(asked.jobs >= 1, f"jobs: {asked.jobs}, allowed: a whole number from 1")
    grid = grids.load(asked.grid, data=asked.data, seeds=asked.seeds)
    _check_target(grid, asked.target_epsilon)
    root = asked.out or Path("runs") / f"tradeoff-{Path(asked.grid).stem}"
    plan = Plan(grid, root, asked.attacks, asked.audits)
    _check_root(root, plan.cells)
    _check_data(plan.cells)
    make_folder(root)
    with RunFolder(root).in_use():
        write_atomic(root / MARK, json.dumps({"title": grid.title, "rows": [row.name for row in grid.rows]}, indent=1))
        outcomes = _carry_out(plan, asked.jobs, Output(quiet=as_json))
        rows = collect(grid, root, attacks=asked.attacks)
        sentence = recommend(rows, grid.reference, asked.target_epsilon)
        table = records(rows)
        texts = {CSV: as_csv(table), JSON_LINES: as_json_lines(table), DICTIONARY: dictionary(rows)}
        for name, text in (texts | {MARKDOWN: f"{markdown(rows)}\n{sentence}\n"}).items():
            write_atomic(root / name, text)
        page = write_report(grid, rows, root, sentence)
    _say(rows, sentence, root, page, Output(quiet=as_json))
    if as_json:
        Output().say(json.dumps({"rows": table, "recommendation": sentence}))
    refuted = {1 for row in rows if row.certified is not None and row.certified.verdict == "FAIL"}
    return min({outcome.failure.code for outcome in outcomes if outcome.failure is not None} | refuted, default=0)


def _check_target(grid: grids.Grid, target: float | None) -> None:
    """Refuse a target that nothing in the grid claims, before hours are spent on it."""
    if target is None:
        return
    claimed = [epsilon for row in grid.rows if (epsilon := least_claim(row.config)) is not None]
    require(len(claimed) > 0, f"target_epsilon: {target:g}, allowed: none in a grid that claims no epsilon")
    least = min(claimed)
    require(target >= least, f"target_epsilon: {target:g}, allowed: from {least:g}, the least that the grid claims")


def least_claim(config: Config) -> float | None:
    """What a run will claim at least: both of its parts together cost more than the larger one."""
    parts = [config.proxies.epsilon] if claims_proxies(config) else []
    weights = config.dp_sgd.weights_epsilon
    return max([*parts, *([weights] if trains_privately(config) and weights is not None else [])], default=None)


def _check_root(root: Path, cells: Sequence[Cell]) -> None:
    """Refuse a folder of somebody else's, or one that holds runs of another grid; changes nothing."""
    require(not root.exists() or root.is_dir(), f"out: {root} is a file, allowed: a folder for the runs and the report")
    require(not (root / "manifest.json").exists(), f"out: {root} is the folder of one run, allowed: another one")
    found = {path.name for path in root.iterdir()} if root.exists() else set()
    mine = MARK in found or found <= {"lock", f"{MARK}.part"}
    require(mine, f"out: {root} holds files that no trade-off wrote, allowed: a new or empty folder, or a trade-off's")
    for cell in cells:
        folder = folder_of(cell)
        require(
            holds(cell) or not RunFolder(folder).holds_run,
            f"out: {folder} holds a run of another configuration; move it away, or name another --out",
        )


def _check_data(cells: Sequence[Cell]) -> None:
    """Refuse a grid of which nothing that is left can be run for want of its data, before every run fails by itself."""
    left = [cell.config.data.path for cell in cells if not (folder_of(cell) / "summary.json").exists()]
    missing = [path for path in left if path is not None and not path.exists()]
    require(
        not left or len(missing) < len(left),
        f"path: {missing[0] if missing else ''} does not exist, allowed: an existing file; --data names its folder",
    )


def _carry_out(plan: Plan, jobs: int, console: Output) -> list[Outcome]:
    cells = open_cells(plan)
    if len(cells) < len(plan.cells):
        console.say(
            f"{len(plan.cells) - len(cells)} of {len(plan.cells)} runs and audits are complete already; runs that were "
            "stopped go on from their checkpoints"
        )
    if cells:
        console.say(f"{len(cells)} runs and audits to do, {min(jobs, len(cells))} at a time")
    teller = Teller(console, total=len(cells))
    with cells_bar(console, len(cells)) as bar:

        def on_done(outcome: Outcome) -> None:
            teller(outcome)
            bar.advance(bar.task_ids[0])

        return carry_out(plan, jobs=jobs, on_done=on_done, cells=cells)


def _say(rows: Sequence[Measured], sentence: str, root: Path, page: Path, console: Output) -> None:
    for setting in dict.fromkeys(row.row.setting for row in rows):
        console.print(_table(setting, [row for row in rows if row.row.setting == setting]))
    console.say(sentence)
    console.say(f"table:  {root / CSV} (what its columns are: {root / DICTIONARY})\nreport: {page}")


def _table(setting: str, rows: Sequence[Measured]) -> Table:
    table = Table(title=Text(setting), title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("Row", overflow="fold", min_width=min(22, max(len(row.row.name) for row in rows)))
    for name in ("Runs", "Acc. (%)", "Pearson", "Eps.", "Cert.", "AUC"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(Text(row.row.name), *_cells(row))
    return table


def _cells(row: Measured) -> list[str]:
    leak, pearson = row.strongest(), row.measure("noise_rate_pearson")
    runs = len(row.summaries)
    partly = f" ({pearson.n}/{runs})" if pearson is not None and pearson.n < runs else ""
    return [
        str(runs),
        _spread(row.measure("accuracy_last10")),
        number(pearson.mean if pearson else None) + partly,
        ABSENT if row.epsilon is None else f"{row.epsilon:.3g}",
        ABSENT if row.certified is None else f"{row.certified.epsilon:.2f}",
        number(leak.metrics.auc.value if leak else None),
    ]


def _spread(found: Spread | None) -> str:
    if found is None:
        return ABSENT
    return f"{100 * found.mean:.1f}" + (f" ±{100 * found.sd:.1f}" if found.sd is not None else "")
