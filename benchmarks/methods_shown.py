"""A comparison of methods in words and as records: tables by setting, who is first, accuracy within budgets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fedgr_secure.app.tables import ABSENT, duration, spread_words
from fedgr_secure.app.tradeoff.budgets import SHARES, Cost, Course, budgets, within
from fedgr_secure.app.tradeoff.published import compare
from fedgr_secure.app.tradeoff.results import Measured, Spread
from fedgr_secure.app.tradeoff.shown import markdown_table, row_label, spread_cell
from fedgr_secure.app.tradeoff.standing import Standing, standing, standing_words
from fedgr_secure.app.tradeoff.table import Value
from fedgr_secure.records import RoundRecord

COSTS: dict[Cost, tuple[str, str, float]] = {
    "client_updates": ("client updates", "", 1.0),
    "bytes_up": ("MB sent by clients", " MB", 1e-6),
}
"""what budgets are of: in words, the unit, and the factor to it"""
FIELDS = (
    "accuracy_last10",
    "accuracy_best",
    "noise_rate_pearson",
    "mislabel_accuracy",
    "client_updates",
    "bytes_up",
    "bytes_down",
    "seconds",
)


def by_setting(found: Sequence[Course]) -> dict[str, list[Course]]:
    """The rows of each setting, in order."""
    settings: dict[str, list[Course]] = {}
    for course in found:
        settings.setdefault(course.measured.row.setting, []).append(course)
    return settings


def setting_words(found: Sequence[Course], reference: str | None) -> str:
    """All tables of a setting in Markdown, with who is first."""
    rows = ordered([course.measured for course in found])
    parts = [f"## {rows[0].row.setting}\n", results_table(rows)]
    stands = _standing(rows, reference)
    parts.append(f"{standing_words(stands) if stands else f'{reference} has no complete run here.'}\n")
    for cost, (words, _, _) in COSTS.items():
        table = budget_table(found, cost)
        parts.append(
            f"**Accuracy within {words} (%)**\n\n{table}" if table else f"No run of FedAvg to measure {words}."
        )
    return "\n".join(parts)


def _standing(rows: Sequence[Measured], reference: str | None) -> Standing | None:
    return standing(rows, reference) if reference is not None else None


def ordered(rows: Sequence[Measured]) -> list[Measured]:
    """By accuracy of the last ten rounds, the best first."""
    return sorted(rows, key=lambda row: -(spread.mean if (spread := row.measure("accuracy_last10")) else 0.0))


def results_table(rows: Sequence[Measured]) -> str:
    """What each method reached and what it cost, beside the paper's number."""
    head = (
        "Method",
        "Seeds",
        "Accuracy, last 10 (%)",
        "Accuracy, best (%)",
        "Noise-rate Pearson",
        "Verdicts right (%)",
    )
    costs = ("Client updates", "MB up", "MB down", "Time", "Paper, CIFAR-10 (%)")
    return markdown_table((*head, *costs), [_result(row) for row in rows])


def _result(row: Measured) -> list[str]:
    theirs = compare(row.row)
    return [
        row_label(row),
        f"{len(row.summaries)} of {len(row.summaries) + len(row.failed)}",
        spread_cell(row, "accuracy_last10", 100, 1),
        spread_cell(row, "accuracy_best", 100, 1),
        spread_cell(row, "noise_rate_pearson", 1, 3),
        spread_cell(row, "mislabel_accuracy", 100, 1),
        *(
            _mean(row, field, factor)
            for field, factor in (("client_updates", 1), ("bytes_up", 1e-6), ("bytes_down", 1e-6))
        ),
        duration(seconds.mean) if (seconds := row.measure("seconds")) else ABSENT,
        ABSENT if theirs is None else f"{theirs.accuracy:.1f}",
    ]


def _mean(row: Measured, field: str, factor: float) -> str:
    found = row.measure(field)
    return ABSENT if found is None else f"{factor * found.mean:.{0 if factor == 1 else 1}f}"


def budget_table(found: Sequence[Course], cost: Cost) -> str:
    """Accuracy within each budget, the best within the largest first; empty without a run of FedAvg."""
    given = budgets(found, cost)
    if not given:
        return ""
    _, unit, factor = COSTS[cost]
    head = ["Method", *(f"{name} ({factor * budget:.4g}{unit})" for name, budget in given.items())]

    def last(course: Course) -> float:
        spread = course.within(cost, max(given.values()))
        return -spread.mean if spread else 0.0

    return markdown_table(
        head,
        [
            [row_label(course.measured), *(_within(course, cost, budget) for budget in given.values())]
            for course in sorted(found, key=last)
        ],
    )


def _within(course: Course, cost: Cost, budget: float) -> str:
    spread = course.within(cost, budget)
    if spread is None:
        return ABSENT
    return spread_words(spread.mean, spread.sd, spread.n, runs=len(course.runs), factor=100, decimals=1)


def setting_record(found: Sequence[Course], reference: str | None) -> dict[str, Any]:
    """A setting for JSON: every method, who is ahead, and the budgets, in shares, bytes and seconds."""
    rows = ordered([course.measured for course in found])
    stands = _standing(rows, reference)
    return {
        "setting": rows[0].row.setting,
        "methods": [_method_record(row) for row in rows],
        "standing": dataclasses.asdict(stands) if stands else None,
        "budgets": {cost: _budget_record(found, cost) for cost in COSTS},
    }


def _method_record(row: Measured) -> dict[str, Any]:
    theirs = compare(row.row)
    return {
        "method": row.row.name,
        "seeds": [summary.seed for summary in row.summaries],
        "oracle": row.oracle,
        **{field: _plain(row.measure(field)) for field in FIELDS},
        "paper_cifar10_percent": theirs.accuracy if theirs else None,
    }


def _budget_record(found: Sequence[Course], cost: Cost) -> dict[str, Any]:
    given = budgets(found, cost)
    return {
        share: {
            "budget": budget,
            "accuracy": {course.measured.row.name: _plain(course.within(cost, budget)) for course in found},
        }
        for share, budget in given.items()
    }


def _plain(found: Spread | None) -> dict[str, Any] | None:
    return None if found is None else dataclasses.asdict(found)


def run_lines(found: Sequence[Course]) -> list[dict[str, Value]]:
    """The tidy table's lines of a setting: a line per run, empty where a value does not apply."""
    given = {cost: budgets(found, cost) for cost in COSTS}
    lines = []
    for course in found:
        row = course.measured.row
        for summary, rounds in zip(course.measured.summaries, course.runs, strict=True):
            line: dict[str, Value] = {"setting": row.setting, "method": row.name, "seed": summary.seed}
            line |= {field: getattr(summary, field) for field in FIELDS}
            lines.append(line | _spent_line(rounds, given))
    return lines


def _spent_line(rounds: Sequence[RoundRecord], given: Mapping[Cost, Mapping[str, float]]) -> dict[str, Value]:
    """A budget and what was reached within it, for each."""
    line: dict[str, Value] = {}
    for cost, shares in given.items():
        for share in SHARES:
            budget = shares.get(share)
            line[f"{cost}_{share}"] = budget
            line[f"accuracy_within_{cost}_{share}"] = None if budget is None else within(rounds, cost, budget)
    return line
