"""The figures of a trade-off: what privacy costs, what leaks all the same, and what was certified."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attacks.metrics import Interval
from fedgr_secure.app.attack_report import roc_axes, roc_curve
from fedgr_secure.app.figures import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    FigureKind,
    bars,
    new_figure,
    percent_axis,
)
from fedgr_secure.app.tables import ABSENT, data_size, duration
from fedgr_secure.app.tradeoff.audits import Certified
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
from fedgr_secure.app.tradeoff.epsilon_figures import sieve_figure, utility_figure
from fedgr_secure.app.tradeoff.results import Leak, Measured, Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Which points (leak, utility) no other beats: none leaks less and is as useful, or leaks as little and is more so.

    >>> front([(0.5, 0.7), (0.6, 0.9), (0.6, 0.8), (1.0, 0.9)])
    [0, 1]
    """
    return [
        place
        for place, (leak, utility) in enumerate(points)
        if not any(a <= leak and b >= utility and (a, b) != (leak, utility) for a, b in points)
    ]


def on_front(rows: Sequence[Measured]) -> list[Measured]:
    """The rows of a setting that no other beats; an attack that is worse than guessing (.5) counts as guessing."""
    placed = [(row, leak, spread) for row in rows for leak, spread in [_placed(row)] if leak and spread]
    points = [(max(0.5, leak.metrics.auc.value), spread.mean) for _, leak, spread in placed]
    return [placed[place][0] for place in front(points)]


def leakage_figure(study: Study) -> Figure | None:
    """Accuracy against what the strongest attack finds, with the Pareto front."""
    settings = study.by_setting([row for row in study.rows if None not in _placed(row)])
    if not settings:
        return None
    figure, panels = setting_panels("What leaks: accuracy against the strongest attack", settings, height=3.0, most=2)
    for name, rows in settings.items():
        _leakage_panel(study, panels[name][0], rows)
    one_legend(figure)
    return figure


def _leakage_panel(study: Study, axes: Axes, rows: Sequence[Measured]) -> None:
    axes.axvline(0.5, color=GREY, linestyle=":", linewidth=1.2, label="guessing")
    best = sorted(on_front(rows), key=_auc)
    xs, ys = [_auc(row) for row in best], [_accuracy(row).mean for row in best]
    axes.step(xs, ys, where="post", color="#A0A0A0", linewidth=5, alpha=0.55, label="Pareto front", zorder=1.5)
    axes.plot(xs, ys, "o", color="#A0A0A0", markersize=14, alpha=0.55, zorder=1.5)
    for row in rows:
        leak, spread = _leak(row).metrics.auc, _accuracy(row)
        axes.errorbar(
            leak.value,
            spread.mean,
            xerr=_bars_of(leak),
            yerr=bar_length(spread.sd),
            **study.own_style(row.row) | {"linestyle": "none"},
            markersize=7,
            capsize=2,
            elinewidth=1,
            label=study.label(row.row.name),
        )
    note(axes, "area under the ROC (.5: guessing)", "Front: " + in_words([row.row.name for row in best]))
    axes.set_ylabel("accuracy, last 10 rounds (%)")
    percent_axis(axes.yaxis)


def _bars_of(value: Interval) -> list[list[float]]:
    """Lengths of error bars, (2, 1); a bootstrap's interval may leave the value out by a hair."""
    return [[max(0.0, value.value - value.low)], [max(0.0, value.high - value.value)]]


def certified_figure(study: Study) -> Figure | None:
    """Certified against claimed epsilon; an audit that several rows share is one point."""
    found = {(line_of(row.row), row.certified): row for row in study.rows if row.certified is not None}
    if not found:
        return None
    audits = [(row, certified) for (_, certified), row in found.items() if certified is not None]
    figure, (axes,) = new_figure("What is certain: certified against claimed epsilon", height=4.0)
    shown = [one.claimed for _, one in audits] + [one.epsilon for _, one in audits if one.epsilon > 0]
    low, high = min(shown) / 2, max(shown) * 1.6
    axes.plot([low, high], [low, high], color=GREY, linestyle="--", linewidth=1.1, label="all of the claim")
    axes.fill_between([low, high], [low, high], high, color="#DDDDDD", alpha=0.6, linewidth=0, label="beyond the claim")
    for place, (row, one) in enumerate(audits):
        _certified_point(study, axes, row, one, low, size=max(5.0, 9 - 0.5 * place))  # points on others stay visible
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low * 0.85, high))
    axes.set(xlabel="epsilon that was claimed (or charged, if less)", ylabel="certified: epsilon is at least")
    plain_ticks(axes, sorted({float(f"{one.claimed:.2g}") for _, one in audits}))
    plain_ticks(axes, None)
    one_legend(figure, columns=2)
    return figure


def _certified_point(study: Study, axes: Axes, row: Measured, one: Certified, low: float, *, size: float) -> None:
    style = study.style(row.row) | {"linestyle": "none", "markersize": size}
    style["markerfacecolor"] = "white" if one.verdict == "NO POWER" else style["color"]
    if one.verdict == "FAIL":
        style |= {"markeredgecolor": BLACK, "markeredgewidth": 2.5}
    label = f"{line_of(row.row)}: {one.verdict}"
    axes.plot(one.claimed, max(one.epsilon, low), **style, label=label, zorder=3)
    words = [*(["0"] if one.epsilon <= low else []), *(["FAIL"] if one.verdict == "FAIL" else [])]
    if words:
        axes.annotate(" ".join(words), (one.claimed, max(one.epsilon, low)), (7, 2), textcoords="offset points")


def cost_figure(study: Study) -> Figure | None:
    """Seconds, megabytes and memory per row."""
    settings = study.by_setting(study.rows)
    if not settings:
        return None
    heights = [0.7 + 0.21 * len(rows) for rows in settings.values()]
    figure, axes = new_figure("What it costs", rows=len(settings), columns=3, height=0.6 + sum(heights))
    axes[0].get_gridspec().set_height_ratios(heights)  # type: ignore[union-attr]
    for place, (name, rows) in enumerate(settings.items()):
        _cost_panels(axes[3 * place : 3 * place + 3], name, rows)
    return figure


def _cost_panels(panels: Sequence[Axes], setting: str, rows: Sequence[Measured]) -> None:
    kinds = (
        ("seconds", 1.0, duration, BLUE, "time of a run (s)"),
        ("bytes_up", 1e-6, data_size, ORANGE, "sent by clients (MB)"),
        ("peak_memory", 1e-9, data_size, GREEN, "peak memory (GB)"),
    )
    for place, (axes, (field, factor, words, colour, unit)) in enumerate(zip(panels, kinds, strict=True)):
        spreads = [row.measure(field) for row in rows]
        values = [factor * spread.mean if spread else 0.0 for spread in spreads]
        texts = [words(spread.mean) if spread else ABSENT for spread in spreads]
        names = [textwrap.fill(row.row.name, 46) if place == 0 else "" for row in rows]
        bars(axes, names, values, texts, colour=colour)
        axes.tick_params(axis="y", labelsize=8, length=0)
        axes.set_xlim(0, 2 * max([*values, 1e-9]))
        axes.set_xlabel(unit, fontsize=8.5)
    panels[0].set_title(textwrap.fill(setting, 87), loc="left", color=GREY)


def roc_figure(study: Study) -> Figure | None:
    """The strongest attack on each row."""
    settings = study.by_setting([row for row in study.rows if row.strongest() is not None])
    if not settings:
        return None
    figure, panels = setting_panels(
        "What leaks: members found against others taken for one", settings, height=3.0, most=2
    )
    for name, rows in settings.items():
        axes = panels[name][0]
        least = min([1e-2, *(1 / _leak(row).metrics.others for row in rows)])
        roc_axes(axes, least=least)
        for row in rows:
            leak, style = _leak(row), study.own_style(row.row)
            label = study.label(row.row.name)
            roc_curve(axes, *leak.curve, leak.metrics.others, least=least, **style, label=label)
    one_legend(figure)
    return figure


def _placed(row: Measured) -> tuple[Leak | None, Spread | None]:
    return row.strongest(), row.measure("accuracy_last10")


def _leak(row: Measured) -> Leak:
    leak = row.strongest()
    assert leak is not None
    return leak


def _accuracy(row: Measured) -> Spread:
    spread = row.measure("accuracy_last10")
    assert spread is not None
    return spread


def _auc(row: Measured) -> float:
    return _leak(row).metrics.auc.value


FIGURES: tuple[FigureKind[Study], ...] = (
    FigureKind(
        "utility.png",
        utility_figure,
        "Line charts, one per setting, of test accuracy against the claimed epsilon, with lines for rows without one.",
        "Accuracy against the claimed epsilon: of everything that a client sends where its weights are private, else "
        "of the loss proxies alone. Smaller epsilons (left) promise more. Points are means over seeds and bars sample "
        "standard deviations; points are moved sideways a little so that bars can be told apart. Level lines, with a "
        "band of one deviation, are rows that claim no epsilon; the black one is the reference without privacy.",
    ),
    FigureKind(
        "sieve.png",
        sieve_figure,
        "Line charts of noise-rate correlation and right verdicts against the claimed epsilon, by setting.",
        "What the sieve still knows: the correlation of estimated with true noise rates (1 is perfect, 0 is no "
        "knowledge) and the share of clean-or-wrong verdicts that are right. On easy data accuracy stays high when the "
        "sieve has failed, and only these show it. Estimates that are all alike have no correlation: an open marker is "
        "a mean over the other runs, or lies in the grey strip if there are none; beside it stands in how many.",
    ),
    FigureKind(
        "leakage.png",
        leakage_figure,
        "Scatter charts, one per setting, of test accuracy against the area under the ROC of the strongest attack.",
        "Accuracy against what was measured: the area under the ROC of the strongest membership attack on anything "
        "that the server sees, with its 95 % interval; bars upwards are standard deviations over seeds. Up and to the "
        "left is better. The grey staircase is the Pareto front: no row leaks less without being less accurate. Rows "
        "whose bars overlap are not told apart. The strongest attack is picked afterwards, so that an area just above "
        ".5 may be luck; and an attack that finds nothing proves nothing: another might.",
    ),
    FigureKind(
        "certified.png",
        certified_figure,
        "Scatter chart of the certified lower bound on epsilon against the claimed epsilon, with the diagonal.",
        "Audits play the worst case through the code that clients run. A point on the diagonal: all of the claimed "
        "epsilon is really spent; far below it: the bound is loose, or the audit too small (open markers: no power). "
        "Above it, in the grey, the claim would be refuted (FAIL). The number 0 marks audits that certify nothing.",
    ),
    FigureKind(
        "roc.png",
        roc_figure,
        "ROC curves of the strongest attack on each row, on logarithmic axes, one panel per setting.",
        "How many members the strongest attack on a row finds (upwards) at how many false alarms (to the right); on "
        "the dashed line it guesses. The left side counts: there a few records are found almost for certain.",
    ),
    FigureKind(
        "cost.png",
        cost_figure,
        "Bar charts of the time, the data sent by clients, and the peak memory of a run, by row.",
        "Means over seeds of one run: wall time, what all its clients sent, and the largest memory of its process. "
        "Times depend on what else the machine did.",
    ),
)
