"""Tables for the terminal and for saving: one run's summary, and methods compared over seeds."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from fedgr_secure.errors import require
from fedgr_secure.records import Summary

METHOD_NAMES = {
    "fedgr": "FedGR",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "central": "Central training",
    "coteaching": "FL-Coteaching",
    "fednoro": "FedNoRo",
    "dividemix": "FL-DivideMix",
    "fedelc": "FedELC",
    "fedfixer": "FedFixer",
    "feddiv": "FedDiv",
    "rofl": "RoFL",
    "fedcorr": "FedCorr",
}
ABSENT = "-"


@dataclass(frozen=True)
class Measure:
    """A column of the comparison: a field of `Summary`, its heading, the factor to its unit there, its decimals."""

    field: str
    heading: str
    factor: float
    decimals: int


MEASURES = (
    Measure("accuracy_last10", "Acc. last 10 (%)", 100, 2),
    Measure("accuracy_best", "Acc. best (%)", 100, 2),
    Measure("noise_rate_pearson", "Noise rate Pearson", 1, 3),
    Measure("mislabel_accuracy", "Verdicts right (%)", 100, 2),
    Measure("memorised_share", "Wrong labels learnt (%)", 100, 2),
    Measure("bytes_up", "MB up per run", 1e-6, 2),
    Measure("seconds", "Time (s)", 1, 1),
    Measure("sums_given_up", "Sums given up", 1, 1),
)

_MARKDOWN_START = ("Method", "Runs")
_CSV_START = ("method", "seeds")


def percent(share: float | None, decimals: int = 1) -> str:
    """A share as a percentage; a dash for none.

    >>> percent(0.931), percent(None)
    ('93.1%', '-')
    """
    return ABSENT if share is None else f"{100 * share:.{decimals}f}%"


def number(value: float | None, decimals: int = 3) -> str:
    """A number with fixed decimals; a dash for none.

    >>> number(0.98765), number(None)
    ('0.988', '-')
    """
    return ABSENT if value is None else f"{value:.{decimals}f}"


def data_size(count: float) -> str:
    """Bytes in decimal units.

    >>> data_size(950), data_size(12_345_678), data_size(3.2e9)
    ('950 bytes', '12.3 MB', '3.2 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def duration(seconds: float) -> str:
    """Seconds, with hours and minutes where there are any.

    >>> duration(4.26), duration(83), duration(7322)
    ('4.3 s', '1 min 23 s', '2 h 2 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def summary_table(summary: Summary) -> Table:
    """The figures of one finished run, a row each, for the end of `fedgr-secure run`."""
    title = f"{METHOD_NAMES.get(summary.method, summary.method)} on {summary.data}, seed {summary.seed}"
    table = Table(title=escape(title), show_header=False, title_justify="left")
    table.add_column("what")
    table.add_column("value", justify="right")
    for what, value in (
        (f"Test accuracy, mean of the last {min(10, summary.rounds)} rounds", percent(summary.accuracy_last10)),
        ("Test accuracy, best round", percent(summary.accuracy_best)),
        ("Estimated against true noise rates, Pearson", number(summary.noise_rate_pearson)),
        ("Clean-or-wrong verdicts that are right", percent(summary.mislabel_accuracy)),
        ("Clean-or-wrong ranking, area under the ROC", number(summary.mislabel_auc)),
        ("Wrong labels the model has memorised", percent(summary.memorised_share)),
        ("Rounds", str(summary.rounds)),
        ("Local trainings", str(summary.client_updates)),
        ("Time", duration(summary.seconds)),
        ("Sent by clients", data_size(summary.bytes_up)),
        ("Sent by the server", data_size(summary.bytes_down)),
        *([("Oracle: the clients were told", summary.oracle)] if summary.oracle else []),
    ):
        table.add_row(what, value)
    return table


def compare_rows(rows: Mapping[str, Sequence[Summary]]) -> list[dict[str, Any]]:
    """Each method over its seeds, as plain values in the units of `summary.json`.

    A measure is `{"mean", "sd", "n"}`: the mean and sample standard deviation (null for one seed) over the n runs
    in which it applies, or null when it applies in none.

    Raises:
        InputError: a method without a run.
    """
    return [_compare_row(name, summaries) for name, summaries in rows.items()]


def _compare_row(name: str, summaries: Sequence[Summary]) -> dict[str, Any]:
    require(len(summaries) > 0, f"compare: no run for {name!r}, allowed: at least one")
    row: dict[str, Any] = {"method": name, "seeds": [summary.seed for summary in summaries]}
    for measure in MEASURES:
        values = [v for summary in summaries if (v := getattr(summary, measure.field)) is not None]
        row[measure.field] = spread(values) if values else None
    row["oracle"] = next((summary.oracle for summary in summaries if summary.oracle), None)
    return row


def _label(row: Mapping[str, Any]) -> str:
    """A method's name in a table for people, which marks one that was told of the truth."""
    return f"{row['method']} (oracle)" if row["oracle"] else str(row["method"])


def _told_truth(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the marked methods were told, in a sentence each; empty where there is none."""
    return "".join(f" {_label(row)} was told {row['oracle']}." for row in rows if row["oracle"])


def spread(values: Sequence[float]) -> dict[str, float | int | None]:
    """Mean and sample standard deviation (divisor n - 1)."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": deviation, "n": len(values)}


def _cell(measure: Measure, row: Mapping[str, Any]) -> str:
    """`mean ± sd` in the measure's unit; says so when the measure applies in only some of the runs."""
    value = row[measure.field]
    if value is None:
        return ABSENT
    return spread_words(**value, runs=len(row["seeds"]), factor=measure.factor, decimals=measure.decimals)


def spread_words(mean: float, sd: float | None, n: int, *, runs: int, factor: float = 1, decimals: int = 2) -> str:
    """`mean ± sd` times a factor; says so when the measure applies in only n of the runs.

    >>> spread_words(0.912, 0.01, 3, runs=3, factor=100), spread_words(0.5, None, 1, runs=2)
    ('91.20 ± 1.00', '0.50 (in 1 of 2 runs)')
    """
    text = f"{factor * mean:.{decimals}f}"
    if sd is not None:
        text += f" ± {factor * sd:.{decimals}f}"
    return text if n == runs else f"{text} (in {n} of {runs} runs)"


def _told(rows: Sequence[Mapping[str, Any]]) -> list[Measure]:
    """The columns worth a reader's width: those that apply to any run; the files for programs have all."""
    return [measure for measure in MEASURES if any(row[measure.field] is not None for row in rows)]


def compare_table(rows: Mapping[str, Sequence[Summary]]) -> Table:
    """Methods side by side: mean ± sample standard deviation over seeds."""
    compared = compare_rows(rows)
    title = f"Mean ± sample standard deviation over seeds.{_told_truth(compared)}".removesuffix(".")
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("Method", overflow="fold")
    table.add_column("Runs", justify="right", min_width=4)
    told = _told(compared)
    for measure in told:  # on a narrow terminal a heading breaks between words, never within one
        longest = max(map(len, measure.heading.split()))
        table.add_column(measure.heading, justify="right", min_width=max(6, longest))
    for row in compared:
        cells = [_cell(measure, row).replace("± ", "±") for measure in told]
        table.add_row(escape(_label(row)), str(len(row["seeds"])), *cells)
    return table


def compare_markdown(rows: Mapping[str, Sequence[Summary]]) -> str:
    """The comparison as a Markdown table, for `compare.md`."""
    compared = compare_rows(rows)
    told = _told(compared)
    headings = [*_MARKDOWN_START, *(measure.heading for measure in told)]
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)]]
    for row in compared:
        cells = [_cell(measure, row) for measure in told]
        lines.append([_label(row).replace("|", r"\|"), str(len(row["seeds"])), *cells])
    table = "".join("| " + " | ".join(line) + " |\n" for line in lines)
    notes = f"one seed has no spread. 1 MB is 10^6 bytes.{_told_truth(compared)}"
    return f"{table}\nMean ± sample standard deviation over seeds; {notes}\n"


def compare_csv(rows: Mapping[str, Sequence[Summary]]) -> str:
    """The comparison as CSV in the units of `summary.json`: mean, sd and n per measure; empty where none applies."""
    parts = ("mean", "sd", "n")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_CSV_START, *(f"{m.field}_{part}" for m in MEASURES for part in parts), "oracle"])
    for row in compare_rows(rows):
        values = [row[m.field] or dict.fromkeys(parts) for m in MEASURES]
        seeds = " ".join(map(str, row["seeds"]))
        writer.writerow([row["method"], seeds, *(value[part] for value in values for part in parts), row["oracle"]])
    return text.getvalue()


def is_table(path: Path) -> bool:
    """Whether a comparison's table may be written at `path`: there is none, or one that a comparison wrote."""
    starts = ("| " + " | ".join(_MARKDOWN_START) + " | ", ",".join(_CSV_START) + ",")
    if not path.exists():
        return True
    return path.is_file() and path.read_text(encoding="utf-8", errors="replace").startswith(starts)
