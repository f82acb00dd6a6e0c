"""Figures of what accuracy costs: where methods stand after so many local trainings, or so much sent by clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fedgr_secure.app.figures import FigureKind, percent_axis
from fedgr_secure.app.tradeoff.budgets import LAST, Cost, Course
from fedgr_secure.app.tradeoff.drawing import Study, note, one_legend, setting_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNITS: dict[Cost, tuple[str, float]] = {
    "client_updates": ("local trainings of all clients", 1.0),
    "bytes_up": ("sent by clients (MB; 1 MB = 10^6 bytes)", 1e-6),
}


@dataclass(frozen=True)
class Spending:
    """What is drawn: rows round by round, each in the look that the whole grid gives it."""

    study: Study
    courses: tuple[Course, ...]


def budget_figure(spending: Spending, cost: Cost) -> Figure | None:
    """Accuracy against what it cost: a panel per setting, a line per row."""
    settings = spending.study.by_setting([course.measured for course in spending.courses])
    if not settings:
        return None
    unit, _ = _UNITS[cost]
    figure, panels = setting_panels(f"Accuracy against cost: {unit.split(' (')[0]}", settings, height=3.0, most=2)
    for name, (axes,) in panels.items():
        own = [course for course in spending.courses if course.measured.row.setting == name]
        _panel(spending.study, axes, own, cost)
    one_legend(figure, columns=4)
    return figure


def _panel(study: Study, axes: Axes, found: Sequence[Course], cost: Cost) -> None:
    unit, factor = _UNITS[cost]
    for course in found:
        row = course.measured.row
        costs, accuracies = course.line(cost)
        reference = row.series == study.grid.reference
        axes.plot(
            [factor * one for one in costs],
            accuracies,
            **study.style(row),
            markersize=4,
            markevery=max(1, len(costs) // 8),
            linewidth=2.4 if reference else 1.2,
            zorder=4 if reference else 3,
            label=study.label(row.name),
        )
    axes.set_xlim(left=0)
    axes.set_ylabel(f"accuracy, last {LAST} rounds so far (%)")
    percent_axis(axes.yaxis)
    note(axes, unit, "")


def _kind(file: str, cost: Cost, words: str) -> FigureKind[Spending]:
    return FigureKind(
        file,
        partial(budget_figure, cost=cost),
        f"Line charts, one per setting, of test accuracy against {words}; a line per method.",
        f"Mean accuracy of the last {LAST} rounds so far against {words}; means over seeds.",
    )


BUDGET_FIGURES = (
    _kind("updates.png", "client_updates", "the local trainings of all clients"),
    _kind("bytes.png", "bytes_up", "what all clients had sent"),
)
