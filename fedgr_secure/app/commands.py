"""What the commands do: run, report, print."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from fedgr_secure.app import secure_report, tables
from fedgr_secure.app.output import Output
from fedgr_secure.app.progress import LiveProgress
from fedgr_secure.app.report import write_report
from fedgr_secure.app.runfolder import read_run
from fedgr_secure.app.sweep import CSV, MARKDOWN, Cell, cell_folder, check_root, sweep
from fedgr_secure.app.telling import Teller
from fedgr_secure.baseline_sections import STAGED
from fedgr_secure.checks import check, unused
from fedgr_secure.config import data_name
from fedgr_secure.errors import require
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.files import write_atomic
from fedgr_secure.records import Summary
from fedgr_secure.sections import Config, Method


def run(config: Config, *, as_json: bool) -> None:
    """Run once, with live progress, and leave figures and a report."""
    check(config)
    from fedgr_secure.federation import loop

    console = Output(quiet=as_json)
    for words in unused(config):
        console.say(f"note: {words}")
    with LiveProgress(config.federation.rounds, _title(config), console) as progress:
        result = loop.run(config, on_round=[progress])
    _finish(result.folder, result.summary, console, as_json=as_json)


def resume(folder: Path, *, as_json: bool) -> None:
    """Continue a stopped run."""
    config = check(RunFolder(folder).config())
    require(
        not RunFolder(folder).finished,
        f"run folder: {folder} is complete; nothing to resume; its report: "
        f"fedgr-secure report {shlex.quote(str(folder))}",
    )
    from fedgr_secure.federation import loop

    console = Output(quiet=as_json)
    done = loop.rounds_done(folder)
    console.say(f"continuing {folder} after round {done} of {config.federation.rounds}")
    with LiveProgress(config.federation.rounds, _title(config), console, completed=done) as progress:
        result = loop.resume(folder, on_round=[progress])
    _finish(result.folder, result.summary, console, as_json=as_json)


def report(folder: Path) -> None:
    """Write figures and report of a run again."""
    Output().say(f"report: {write_report(folder)}")


def compare(config: Config, *, methods: Sequence[Method], seeds: int, jobs: int, as_json: bool) -> int:
    """Run methods over seeds, print the table, save it.

    Returns:
        The exit code: 0 when every run is complete; 2 when those that are not were all refused; else 1.

    Raises:
        InputError: a setting is not acceptable, or the folder holds something that no comparison wrote.
    """
    _check_comparison(methods, seeds, jobs)
    root = config.output.out or Path("runs") / f"compare-{data_name(config)}"
    check_root(root)
    cells = [
        Cell(method, _with(config, method, seed, cell_folder(root, method, seed)))
        for seed in range(config.seed, config.seed + seeds)
        for method in methods
    ]
    console = Output(quiet=as_json)
    outcomes = sweep(cells, jobs=min(jobs, len(cells)), on_done=Teller(console))
    rows: dict[str, list[Summary]] = {
        name: found for name in methods if (found := [o.summary for o in outcomes if o.cell.name == name and o.summary])
    }
    if rows:
        write_atomic(root / MARKDOWN, tables.compare_markdown(rows))
        write_atomic(root / CSV, tables.compare_csv(rows))
        console.print(tables.compare_table(rows))
        console.say(f"runs and table: {root}")
    if as_json:
        Output().say(json.dumps(tables.compare_rows(rows)))
    codes = {outcome.failure.code for outcome in outcomes if outcome.failure is not None}
    return min(codes, default=0)


def _check_comparison(methods: Sequence[Method], seeds: int, jobs: int) -> None:
    require(1 <= seeds <= 10_000, f"seeds: {seeds}, allowed: a whole number from 1 to 10000 (each is a run a method)")
    require(jobs >= 1, f"jobs: {jobs}, allowed: a whole number from 1")
    given = " ".join(methods) or "none"
    require(len(set(methods)) == len(methods) > 0, f"methods: {given}, allowed: each once, at least one")


def _with(config: Config, method: Method, seed: int, folder: Path) -> Config:
    output = dataclasses.replace(config.output, out=folder)
    return dataclasses.replace(config, method=method, seed=seed, output=output)


def _title(config: Config) -> str:
    return f"{config.method} on {data_name(config)}"


def _finish(folder: Path, summary: Summary, console: Output, *, as_json: bool) -> None:
    page = write_report(folder)
    if as_json:
        Output().say(json.dumps(dataclasses.asdict(summary)))
        return
    console.print(tables.summary_table(summary))
    for claim in summary.privacy:
        console.say(f"privacy of {claim}")
    run = read_run(folder)
    if summary.method in STAGED and all(record.stage == "warm-up" for record in run.rounds):
        name = tables.METHOD_NAMES.get(summary.method, summary.method)
        console.say(f"{name}: all {summary.rounds} rounds were its first stage (--warmup); what it is for never began")
    fitted = [record.mixture.note for record in run.rounds if record.mixture is not None]
    if fitted and (fitted[-1] or "").startswith("all clean"):
        console.say(f"FedGR: the last sieve found nothing ({fitted[-1]})")
    for warning in secure_report.warnings(run):
        console.say(f"secure sums: {warning}")
    console.say(f"run folder: {folder}\nreport:     {page}")
