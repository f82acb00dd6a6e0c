"""What the benchmark scripts share: variants of a configuration, a resumable sweep, and a recorded table."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from fedgr_secure.app.sweep import Cell, Outcome, cell_folder, slug, sweep
from fedgr_secure.app.tables import compare_markdown, compare_rows, compare_table, duration, percent
from fedgr_secure.config import override, to_table
from fedgr_secure.errors import nearest, require
from fedgr_secure.federation.folder import versions
from fedgr_secure.records import Summary
from fedgr_secure.sections import Config

RESULTS = Path(__file__).parent / "results"

PUBLISHED: dict[str, Any] = {"secagg": False, "channel": "plain"}
"""weights and loss proxies in the clear, as FedGR publishes them"""

ABLATIONS: dict[str, dict[str, Any]] = {
    "fedgr w/o sieve": {"sieve": False},
    "fedgr w/o refine": {"refine": False},
    "fedgr w/o distill": {"distill": False},
    "fedgr w/o represent": {"represent": False},
}
"""FedGR's ablations by the names that METHOD gives to its parts."""


@dataclass(frozen=True)
class Options:
    """What every benchmark script takes."""

    seeds: int = 1
    """seeds per row, from 0"""
    jobs: int = 2
    """worker processes, one torch thread each"""
    runs: Path = Path("runs/benchmarks")
    """where the run folders go; complete ones are not run again"""
    record: bool = True
    """write the table to benchmarks/results/"""
    rows: tuple[str, ...] = ()
    """only these rows of the table (default: all)"""


def run_table(
    title: str, base: Config, variants: Mapping[str, Mapping[str, Any]], options: Options, *, notes: Sequence[str] = ()
) -> dict[str, list[Summary]]:
    """Run every variant over the seeds, print the table, and record it.

    Args:
        title: of the table; its slug names the run folders and the result files.
        base: the configuration that the variants change.
        variants: changes by row name.
        options: seeds, jobs, folders.
        notes: sentences that are recorded under the table.

    Returns:
        The summaries by row name; rows whose every run failed are left out.
    """
    for row in options.rows:
        require(row in variants, f"rows: unknown row {row!r}{nearest(row, variants)}; rows: {', '.join(variants)}")
    variants = {name: changes for name, changes in variants.items() if not options.rows or name in options.rows}
    console = Console()
    root = options.runs / slug(title)
    cells = [
        Cell(name, override(base, {**changes, "seed": seed, "out": cell_folder(root, name, seed)}))
        for seed in range(options.seeds)
        for name, changes in variants.items()
    ]

    def say(outcome: Outcome) -> None:
        result = outcome.error if outcome.summary is None else _words(outcome.summary)
        console.print(f"{title}: {outcome.cell.name}, seed {outcome.cell.config.seed}: {result}", highlight=False)

    outcomes = sweep(cells, jobs=options.jobs, on_done=say)
    rows = {name: [o.summary for o in outcomes if o.cell.name == name and o.summary] for name in variants}
    rows = {name: summaries for name, summaries in rows.items() if summaries}
    console.print(compare_table(rows))
    if options.record:
        failed = [f"{o.cell.name}, seed {o.cell.config.seed} failed: {o.error}" for o in outcomes if o.error]
        write_result(title, compare_markdown(rows), compare_rows(rows), base, [*notes, *failed])
    return rows


def write_result(title: str, table: str, data: Any, base: Config | None, notes: Sequence[str]) -> None:
    """Record a result as Markdown for people and JSON for scripts, with command, versions and date.

    Args:
        title: of the table.
        table: Markdown.
        data: what JSON keeps of it.
        base: the configuration of the runs; None where nothing was trained.
        notes: sentences under the table.
    """
    RESULTS.mkdir(exist_ok=True)
    module = f"benchmarks.{Path(sys.argv[0]).stem}"
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    command = f"python -m {module} {shlex.join(words)}".strip()
    found = versions()
    date = datetime.now(UTC).date().isoformat()
    lines = [f"# {title}", "", table, "", *[f"* {note}" for note in notes], ""]
    software = ", ".join(f"{name} {version}" for name, version in found.items())
    lines += [f"Command: `{command}`  ", f"Date: {date}  ", f"Versions: {software}"]
    (RESULTS / f"{slug(title)}.md").write_text("\n".join(lines) + "\n")
    path = Path(base.data.path.name) if base and base.data.path else None
    config = to_table(override(base, {"path": path})) if base else None
    record = {
        "title": title,
        "command": command,
        "date": date,
        "versions": found,
        "config": config,
        "notes": [*notes],
        "rows": data,
    }
    (RESULTS / f"{slug(title)}.json").write_text(json.dumps(record, indent=1) + "\n")


def _words(summary: Summary) -> str:
    return f"last-10 {percent(summary.accuracy_last10)}, {duration(summary.seconds)}"
