"""Figures against the claimed epsilon: what privacy costs in accuracy, and what the sieve still knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedgr_secure.app.figures import (
    GREY,
    percent_axis,
)
from fedgr_secure.app.tradeoff.drawing import (
    Study,
    bar_length,
    in_words,
    line_of,
    note,
    one_legend,
    plain_ticks,
    setting_panels,
)
from fedgr_secure.app.tradeoff.results import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def utility_figure(study: Study) -> Figure | None:
    """Accuracy against the claimed epsilon."""
    measures = [("accuracy_last10", "accuracy, last 10 rounds (%)")]
    return _against_epsilon(study, study.rows, "What privacy costs: accuracy against claimed epsilon", measures)


def sieve_figure(study: Study) -> Figure | None:
    """What the sieve knows against the claimed epsilon."""
    measures = [
        ("noise_rate_pearson", "Pearson of noise rates"),
        ("mislabel_accuracy", "verdicts that are right (%)"),
    ]
    rows = [row for row in study.rows if row.row.config.method == "fedgr"]
    return _against_epsilon(study, rows, "What privacy costs: the sieve against claimed epsilon", measures)


def _against_epsilon(
    study: Study, rows: Sequence[Measured], what: str, measures: Sequence[tuple[str, str]]
) -> Figure | None:
    settings = study.by_setting(rows)
    settings = {name: own for name, own in settings.items() if any(row.epsilon is not None for row in own)}
    if not any(row.measure(field) for own in settings.values() for row in own for field, _ in measures):
        return None
    figure, panels = setting_panels(what, settings, height=2.6, each=len(measures))
    for name, own in settings.items():
        for axes, (field, words) in zip(panels[name], measures, strict=True):
            _epsilon_panel(study, axes, own, field)
            axes.set_ylabel(words)
            if "%" in words:
                percent_axis(axes.yaxis)
    one_legend(figure)
    return figure


def _epsilon_panel(study: Study, axes: Axes, rows: Sequence[Measured], field: str) -> None:
    """One measure in one setting: a line per series, a band where nothing is claimed, and what is undefined."""
    lines: dict[str, list[Measured]] = {}
    for row in rows:
        lines.setdefault(line_of(row.row) if row.epsilon is not None else row.row.name, []).append(row)
    epsilons = sorted({row.epsilon for row in rows if row.epsilon is not None})
    axes.set_xscale("log")
    axes.set_xlim(epsilons[0] / 1.6, epsilons[-1] * 1.6)
    plain_ticks(axes, epsilons)
    for place, (name, own) in enumerate(lines.items()):
        if own[0].epsilon is None:
            _band(study, axes, own[0], field, study.label(name))
        else:
            _line_of_points(study, axes, own, field, study.label(name), shift=1.025 ** (place - len(lines) / 2))
    low, high = axes.get_ylim()
    axes.set_ylim(low, min(high, 1.02))  # shares and correlations end at 1
    _say_undefined(axes, rows, field)


def _say_undefined(axes: Axes, rows: Sequence[Measured], field: str) -> None:
    """A strip for points without a value, and below the panel what a fraction means and who is drawn nowhere."""
    if any(row.epsilon is not None and row.measure(field) is None for row in rows):
        low, high = axes.get_ylim()
        axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= high])
        axes.set_ylim(low - 0.18 * (high - low), high)
        axes.fill_between([0, 1], 0.12, color="#E8E8E8", linewidth=0, transform=axes.transAxes, zorder=0.5)
        axes.text(-0.02, 0.05, "none", transform=axes.transAxes, ha="right", va="center", fontsize=8, color=GREY)
    counts = ["k/n: defined in k of n runs"] if any(_partly_defined(row, field) for row in rows) else []
    nowhere = [row.row.name for row in rows if row.epsilon is None and row.measure(field) is None]
    note(axes, "claimed epsilon", "; ".join([*counts, *([f"undefined: {in_words(nowhere)}"] if nowhere else [])]))


def _partly_defined(row: Measured, field: str) -> str:
    """In how many of a row's runs a measure is defined, as "1/2"; empty where it is in all."""
    runs, spread = len(row.summaries), row.measure(field)
    known = spread.n if spread is not None else 0
    return f"{known}/{runs}" if known < runs else ""


def _band(study: Study, axes: Axes, row: Measured, field: str, label: str) -> None:
    spread = row.measure(field)
    if spread is None:
        return
    style = study.style(row.row)
    axes.axhline(spread.mean, color=style["color"], linestyle=style["linestyle"], label=label, zorder=1.8)
    if spread.sd:
        axes.axhspan(spread.mean - spread.sd, spread.mean + spread.sd, color=style["color"], alpha=0.13, linewidth=0)
    at = axes.get_yaxis_transform()
    axes.text(0.99, spread.mean, _partly_defined(row, field), transform=at, ha="right", va="bottom", fontsize=7)


def _line_of_points(
    study: Study, axes: Axes, rows: Sequence[Measured], field: str, label: str, *, shift: float
) -> None:
    """Means with deviations; a point of which some runs are undefined is open, one of which all are lies below."""
    points = sorted(((row.epsilon or 0.0, row) for row in rows), key=lambda point: point[0])
    known = [(epsilon * shift, spread, row) for epsilon, row in points if (spread := row.measure(field))]
    style = study.style(rows[0].row)
    if known:
        xs, ys = [x for x, _, _ in known], [spread.mean for _, spread, _ in known]
        errors = [bar_length(spread.sd) for _, spread, _ in known]
        axes.errorbar(xs, ys, yerr=errors, **style, markersize=5.5, capsize=3, elinewidth=1.1, label=label, zorder=3)
    hollow = {"marker": style["marker"], "color": style["color"], "markerfacecolor": "white", "linestyle": "none"}
    for epsilon, row in points:
        if words := _partly_defined(row, field):
            spread = row.measure(field)
            at = axes.transData if spread is not None else axes.get_xaxis_transform()
            place = (epsilon * shift, spread.mean if spread is not None else 0.05)
            axes.plot(*place, **hollow, markersize=5.5, zorder=4, transform=at, label=None if known else label)
            axes.annotate(words, place, (4, 3), xycoords=at, textcoords="offset points", fontsize=7, zorder=5)
