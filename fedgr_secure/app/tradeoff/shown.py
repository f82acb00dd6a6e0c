"""The tables of a trade-off as cells in words, for the page and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from fedgr_secure.app.tables import ABSENT, data_size, duration, percent, spread_words
from fedgr_secure.app.tradeoff.results import Measured

UNDEFINED = "undefined"
Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""headings, and rows of as many cells"""


def tables(rows: Sequence[Measured]) -> tuple[tuple[str, Table], ...]:
    """Of one setting, three tables with their titles: what rows are good for, what leaks, what they cost."""
    return (
        ("What it is good for", _use(rows)),
        ("What leaks", _leaks(rows)),
        ("What it costs", _costs(rows)),
    )


def markdown(rows: Sequence[Measured]) -> str:
    """All tables, setting by setting."""
    parts = []
    for setting in dict.fromkeys(row.row.setting for row in rows):
        own = [row for row in rows if row.row.setting == setting]
        parts += [
            f"## {_plain(setting)}\n",
            *(f"**{title}**\n\n{markdown_table(*cells)}" for title, cells in tables(own)),
        ]
    return "\n".join(parts)


def markdown_table(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; numbers in all columns but the first."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *cells]
    return "".join("| " + " | ".join(_plain(cell) for cell in line) + " |\n" for line in lines)


def _plain(cell: str) -> str:
    """Without what Markdown would take for a new cell or for HTML."""
    return cell.replace("|", r"\|").replace("<", "&lt;")


def _use(rows: Sequence[Measured]) -> Table:
    head = ("Row", "Runs", "Accuracy, last 10 (%)", "Accuracy, best (%)", "Noise-rate Pearson", "Verdicts right (%)")
    return (
        (*head, "Calibration error"),
        [
            (
                row_label(row),
                f"{len(row.summaries)} of {len(row.summaries) + len(row.failed)}",
                spread_cell(row, "accuracy_last10", 100, 1),
                spread_cell(row, "accuracy_best", 100, 1),
                spread_cell(row, "noise_rate_pearson", 1, 3),
                spread_cell(row, "mislabel_accuracy", 100, 1),
                spread_cell(row, "mislabel_calibration_error", 1, 3),
            )
            for row in rows
        ],
    )


def row_label(row: Measured) -> str:
    """A row's name, with what its method was told that nobody could know."""
    return row.row.name + (f" (oracle: {row.oracle})" if row.oracle else "")


_SIEVED = ("noise_rate_pearson", "mislabel_accuracy")


def spread_cell(row: Measured, field: str, factor: float, decimals: int) -> str:
    """A measure; "undefined" where the method has it and no run has a value."""
    spread, runs = row.measure(field), len(row.summaries)
    if spread is None:
        return UNDEFINED if runs and field in _SIEVED and row.row.config.method == "fedgr" else ABSENT
    return spread_words(spread.mean, spread.sd, spread.n, runs=runs, factor=factor, decimals=decimals)


def _leaks(rows: Sequence[Measured]) -> Table:
    head = (
        "Row",
        "Claimed epsilon",
        "Strongest attack",
        "AUC [95 %]",
        "TPR at 1 % FPR",
        "TPR at 0.1 % FPR",
        "Certified",
    )
    return (head, [(row.row.name, _claimed(row), *_attack(row), _certified(row)) for row in rows])


def _claimed(row: Measured) -> str:
    if not row.summaries:
        return ABSENT
    if row.epsilon is None:
        return "none"
    return f"{row.epsilon:.3g}, {'whole run' if row.claim('whole run') is not None else 'losses alone'}"


def _attack(row: Measured) -> tuple[str, ...]:
    leak = row.strongest()
    partly = f"; not in every run, and left out: {', '.join(row.partly)}" if row.partly else ""
    if leak is None:
        return (f"not attacked{partly}" if row.summaries else ABSENT, ABSENT, ABSENT, ABSENT)
    rates = [UNDEFINED if rate is None else percent(rate) for rate in (leak.tpr(0.01), leak.tpr(0.001))]
    return (f"{leak.attack} ({leak.game}), on {leak.subject}{partly}", str(leak.metrics.auc), *rates)


def _certified(row: Measured) -> str:
    found = row.certified
    if found is None:
        return ABSENT
    claimed = row.row.config.proxies.epsilon
    charged = f" charged (for {claimed:g})" if found.claimed < 0.999 * claimed else ""
    return f"{found.epsilon:.3g} of {found.claimed:.3g}{charged}: {found.verdict}"


def _costs(rows: Sequence[Measured]) -> Table:
    return (
        ("Row", "Sent by clients (MB)", "Sent by the server (MB)", "Time", "Peak memory"),
        [
            (
                row.row.name,
                spread_cell(row, "bytes_up", 1e-6, 2),
                spread_cell(row, "bytes_down", 1e-6, 2),
                duration(seconds.mean) if (seconds := row.measure("seconds")) else ABSENT,
                data_size(memory.mean) if (memory := row.measure("peak_memory")) else ABSENT,
            )
            for row in rows
        ],
    )
