"""What the commands do: run, report, print."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedgr_secure.app import tables
from fedgr_secure.app.figures import write_figures
from fedgr_secure.app.progress import LiveProgress
from fedgr_secure.app.report import write_report
from fedgr_secure.app.runfolder import read_run
from fedgr_secure.app.sweep import Cell, Outcome, cell_folder, sweep
from fedgr_secure.config import Config, Method, check, data_name
from fedgr_secure.errors import require
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.files import write_atomic
from fedgr_secure.records import Summary


def run(config: Config, *, as_json: bool) -> None:
    """Run once, with live progress, and leave figures and a report."""
    check(config)
    from fedgr_secure.federation import loop

    console = Console(quiet=as_json)
    with LiveProgress(config.federation.rounds, _title(config), console) as progress:
        result = loop.run(config, on_round=[progress])
    _finish(result.folder, result.summary, console, as_json=as_json)


def resume(folder: Path, *, as_json: bool) -> None:
    """Continue a stopped run."""
    config = check(RunFolder(folder).config())
    require(not RunFolder(folder).finished, f"run folder: {folder} is complete; nothing to resume")
    from fedgr_secure.federation import loop

    console = Console(quiet=as_json)
    done = loop.rounds_done(folder)
    console.print(f"continuing {folder} after round {done} of {config.federation.rounds}")
    with LiveProgress(config.federation.rounds, _title(config), console, completed=done) as progress:
        result = loop.resume(folder, on_round=[progress])
    _finish(result.folder, result.summary, console, as_json=as_json)


def report(folder: Path) -> None:
    """Write figures and report of a run again."""
    write_figures(read_run(folder), folder)
    Console().print(f"report: {write_report(folder)}")


def compare(config: Config, *, methods: Sequence[Method], seeds: int, jobs: int, as_json: bool) -> int:
    """Run methods over seeds, print the table, save it; 1 when a run failed."""
    require(seeds >= 1, f"seeds: {seeds}, allowed: a whole number from 1")
    require(jobs >= 1, f"jobs: {jobs}, allowed: a whole number from 1")
    require(len(set(methods)) == len(methods) > 0, f"methods: {' '.join(methods)}, allowed: each once, at least one")
    root = config.output.out or Path("runs") / f"compare-{data_name(config)}"
    cells = [
        Cell(method, _with(config, method, seed, cell_folder(root, method, seed)))
        for seed in range(config.seed, config.seed + seeds)
        for method in methods
    ]
    console, errors = Console(quiet=as_json), Console(stderr=True)

    def say(outcome: Outcome) -> None:
        seed = outcome.cell.config.seed
        if outcome.summary is None:
            errors.print(f"{outcome.cell.name}, seed {seed}: failed: {outcome.error}", style="red", markup=False)
        else:
            accuracy = tables.percent(outcome.summary.accuracy_last10)
            console.print(f"{outcome.cell.name}, seed {seed}: last-10 accuracy {accuracy}", highlight=False)

    outcomes = sweep(cells, jobs=min(jobs, len(cells)), on_done=say)
    rows: dict[str, list[Summary]] = {
        name: found for name in methods if (found := [o.summary for o in outcomes if o.cell.name == name and o.summary])
    }
    if rows:
        write_atomic(root / "compare.md", tables.compare_markdown(rows))
        write_atomic(root / "compare.csv", tables.compare_csv(rows))
        console.print(tables.compare_table(rows))
        console.print(f"runs and table: {root}", markup=False)
    if as_json:
        print(json.dumps(tables.compare_rows(rows)))
    return int(any(outcome.summary is None for outcome in outcomes))


def _with(config: Config, method: Method, seed: int, folder: Path) -> Config:
    output = dataclasses.replace(config.output, out=folder)
    return dataclasses.replace(config, method=method, seed=seed, output=output)


def _title(config: Config) -> str:
    return f"{config.method} on {data_name(config)}"


def _finish(folder: Path, summary: Summary, console: Console, *, as_json: bool) -> None:
    write_figures(read_run(folder), folder)
    page = write_report(folder)
    if as_json:
        print(json.dumps(dataclasses.asdict(summary)))
        return
    console.print(tables.summary_table(summary))
    for claim in summary.privacy:
        console.print(f"privacy of {claim}", markup=False, highlight=False)
    console.print(f"run folder: {folder}\nreport:     {page}", markup=False, highlight=False)
