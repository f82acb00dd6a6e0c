"""The figures of a trade-off: what privacy costs, what leaks all the same, and what was certified."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attacks.metrics import Interval
from fedgr_secure.app.attack_report import roc_axes, roc_curve
from fedgr_secure.app.figures import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    FigureKind,
    bars,
    new_figure,
    percent_axis,
)
from fedgr_secure.app.tables import ABSENT, data_size, duration
from fedgr_secure.app.tradeoff.audits import Certified
from fedgr_secure.app.tradeoff.grid import Grid, Row
from fedgr_secure.app.tradeoff.results import Leak, Measured, Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
_MARKERS = "osD^v<>ph"
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 4)))
_FILLS = ("left", "bottom", "right", "top")
_EPSILONS = ("weights_epsilon", "epsilon")
_JOINED = "\u00a0"


@dataclass(frozen=True)
class Study:
    """What is drawn: a grid and the rows that have a complete run."""

    grid: Grid
    rows: tuple[Measured, ...]

    @classmethod
    def of(cls, grid: Grid, rows: Sequence[Measured]) -> Study:
        """Of all rows, of which those without a run are left out."""
        return cls(grid, tuple(row for row in rows if row.summaries))

    def by_setting(self, rows: Sequence[Measured]) -> dict[str, list[Measured]]:
        """Some of the rows by their settings, in the order of the grid."""
        found = {name: [row for row in rows if row.row.setting == name] for name in self.grid.settings}
        return {name: own for name, own in found.items() if own}

    def style(self, row: Row) -> dict[str, Any]:
        """Colour, marker and line of the row's series; the reference is black."""
        series = list(dict.fromkeys(_line(one) for one in self.grid.rows))
        place = series.index(_line(row))
        others = [name for name in series if name != self.grid.reference]
        black = _line(row) == self.grid.reference
        return {
            "color": BLACK if black else _COLOURS[others.index(_line(row)) % len(_COLOURS)],
            "marker": _MARKERS[place % len(_MARKERS)],
            "linestyle": _LINES[place % len(_LINES)],
        }

    def own_style(self, row: Row) -> dict[str, Any]:
        """With a marker and a line of the row's own within the series: the largest epsilon has a full marker."""
        mates = [one.name for one in self.grid.rows if one.setting == row.setting and _line(one) == _line(row)]
        place = len(mates) - 1 - mates.index(row.name)
        style = self.style(row)
        fill = "full" if place == 0 else _FILLS[(place - 1) % len(_FILLS)]
        return style | {"fillstyle": fill, "markerfacecoloralt": "white", "linestyle": _LINES[place % len(_LINES)]}

    def label(self, name: str) -> str:
        """A name for the legend, which says which is the reference."""
        return f"{name} (reference)" if name == self.grid.reference else name


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
    figure, panels = _panels(what, settings, height=2.6, each=len(measures))
    for name, own in settings.items():
        for axes, (field, words) in zip(panels[name], measures, strict=True):
            _epsilon_panel(study, axes, own, field)
            axes.set_ylabel(words)
            if "%" in words:
                percent_axis(axes.yaxis)
    _legend(figure)
    return figure


def _epsilon_panel(study: Study, axes: Axes, rows: Sequence[Measured], field: str) -> None:
    """One measure in one setting: a line per series, a band where nothing is claimed, and what is undefined."""
    lines: dict[str, list[Measured]] = {}
    for row in rows:
        lines.setdefault(_line(row.row) if row.epsilon is not None else row.row.name, []).append(row)
    epsilons = sorted({row.epsilon for row in rows if row.epsilon is not None})
    axes.set_xscale("log")
    axes.set_xlim(epsilons[0] / 1.6, epsilons[-1] * 1.6)
    _plain_ticks(axes, epsilons)
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
    counts = ["k/n: undefined in k of n runs"] if any(_undefined(row, field) for row in rows) else []
    nowhere = [row.row.name for row in rows if row.epsilon is None and row.measure(field) is None]
    _note(axes, "claimed epsilon", "; ".join([*counts, *([f"undefined: {_names(nowhere)}"] if nowhere else [])]))


def _undefined(row: Measured, field: str) -> str:
    """In how many of a row's runs a measure is undefined, as "1/2"; empty where it is known in all."""
    runs, spread = len(row.summaries), row.measure(field)
    lost = runs - (spread.n if spread is not None else 0)
    return f"{lost}/{runs}" if lost else ""


def _note(axes: Axes, label: str, note: str) -> None:
    """Name the x axis, with a note of any length below."""
    lines = textwrap.wrap(note, 108 // _columns(axes))
    axes.set_xlabel("\n".join([label, *(line.replace(_JOINED, " ") for line in lines)]), fontsize=8.5)


def _names(names: Sequence[str]) -> str:
    """Names in a note, which breaks between them alone."""
    return " | ".join(name.replace(" ", _JOINED) for name in names)


def _band(study: Study, axes: Axes, row: Measured, field: str, label: str) -> None:
    spread = row.measure(field)
    if spread is None:
        return
    style = study.style(row.row)
    axes.axhline(spread.mean, color=style["color"], linestyle=style["linestyle"], label=label, zorder=1.8)
    if spread.sd:
        axes.axhspan(spread.mean - spread.sd, spread.mean + spread.sd, color=style["color"], alpha=0.13, linewidth=0)
    at = axes.get_yaxis_transform()
    axes.text(0.99, spread.mean, _undefined(row, field), transform=at, ha="right", va="bottom", fontsize=7)


def _line_of_points(
    study: Study, axes: Axes, rows: Sequence[Measured], field: str, label: str, *, shift: float
) -> None:
    """Means with deviations; a point of which some runs are undefined is open, one of which all are lies below."""
    points = sorted(((row.epsilon or 0.0, row) for row in rows), key=lambda point: point[0])
    known = [(epsilon * shift, spread, row) for epsilon, row in points if (spread := row.measure(field))]
    style = study.style(rows[0].row)
    if known:
        xs, ys = [x for x, _, _ in known], [spread.mean for _, spread, _ in known]
        errors = [_length(spread.sd) for _, spread, _ in known]
        axes.errorbar(xs, ys, yerr=errors, **style, markersize=5.5, capsize=3, elinewidth=1.1, label=label, zorder=3)
    hollow = {"marker": style["marker"], "color": style["color"], "markerfacecolor": "white", "linestyle": "none"}
    for epsilon, row in points:
        if words := _undefined(row, field):
            spread = row.measure(field)
            at = axes.transData if spread is not None else axes.get_xaxis_transform()
            place = (epsilon * shift, spread.mean if spread is not None else 0.05)
            axes.plot(*place, **hollow, markersize=5.5, zorder=4, transform=at, label=None if known else label)
            axes.annotate(words, place, (4, 3), xycoords=at, textcoords="offset points", fontsize=7, zorder=5)


def _length(deviation: float | None) -> float:
    """Of an error bar; not a number (no bar) for a single run."""
    return math.nan if deviation is None else deviation


def leakage_figure(study: Study) -> Figure | None:
    """Accuracy against what the strongest attack finds, with the Pareto front."""
    settings = study.by_setting([row for row in study.rows if None not in _placed(row)])
    if not settings:
        return None
    figure, panels = _panels("What leaks: accuracy against the strongest attack", settings, height=3.0, most=2)
    for name, rows in settings.items():
        _leakage_panel(study, panels[name][0], rows)
    _legend(figure)
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
            yerr=_length(spread.sd),
            **study.own_style(row.row) | {"linestyle": "none"},
            markersize=7,
            capsize=2,
            elinewidth=1,
            label=study.label(row.row.name),
        )
    _note(axes, "area under the ROC (.5: guessing)", "Front: " + _names([row.row.name for row in best]))
    axes.set_ylabel("accuracy, last 10 rounds (%)")
    percent_axis(axes.yaxis)


def _bars_of(value: Interval) -> list[list[float]]:
    """Lengths of error bars, (2, 1); a bootstrap's interval may leave the value out by a hair."""
    return [[max(0.0, value.value - value.low)], [max(0.0, value.high - value.value)]]


def certified_figure(study: Study) -> Figure | None:
    """Certified against claimed epsilon; an audit that several rows share is one point."""
    found = {(_line(row.row), row.certified): row for row in study.rows if row.certified is not None}
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
    _plain_ticks(axes, sorted({float(f"{one.claimed:.2g}") for _, one in audits}))
    _plain_ticks(axes, None)
    _legend(figure, columns=2)
    return figure


def _certified_point(study: Study, axes: Axes, row: Measured, one: Certified, low: float, *, size: float) -> None:
    style = study.style(row.row) | {"linestyle": "none", "markersize": size}
    style["markerfacecolor"] = "white" if one.verdict == "NO POWER" else style["color"]
    if one.verdict == "FAIL":
        style |= {"markeredgecolor": BLACK, "markeredgewidth": 2.5}
    label = f"{_line(row.row)}: {one.verdict}"
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
    figure, panels = _panels("What leaks: members found against others taken for one", settings, height=3.0, most=2)
    for name, rows in settings.items():
        axes = panels[name][0]
        least = min([1e-2, *(1 / _leak(row).metrics.others for row in rows)])
        roc_axes(axes, least=least)
        for row in rows:
            leak, style = _leak(row), study.own_style(row.row)
            label = study.label(row.row.name)
            roc_curve(axes, *leak.curve, leak.metrics.others, least=least, **style, label=label)
    _legend(figure)
    return figure


def _line(row: Row) -> str:
    """The series, with its axes but for the epsilon that a figure has as its own axis."""
    shown = next((key for key in _EPSILONS if key in row.axes), None)
    return dataclasses.replace(row, axes={key: value for key, value in row.axes.items() if key != shown}).name


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


def _panels(
    what: str, settings: Sequence[str] | dict[str, Any], *, height: float, each: int = 1, most: int = 3
) -> tuple[Figure, dict[str, list[Axes]]]:
    """A panel per setting (or several, one below another), up to `most` side by side."""
    columns = min(most, len(settings))
    blocks = -(-len(settings) // columns)
    figure, axes = new_figure(what, rows=blocks * each, columns=columns, height=0.5 + height * blocks * each)
    panels: dict[str, list[Axes]] = {}
    for place, name in enumerate(settings):
        first = (place // columns) * each * columns + place % columns
        panels[name] = [axes[first + i * columns] for i in range(each)]
        words = textwrap.fill(name, 87 // columns)
        panels[name][0].set_title(words, loc="left", color=GREY, fontsize=8 if columns > 2 else 9)
    for spare in set(axes) - {one for own in panels.values() for one in own}:
        spare.remove()
    return figure, panels


def _columns(axes: Axes) -> int:
    grid = axes.get_gridspec()
    assert grid is not None
    return int(grid.ncols)


def _plain_ticks(axes: Axes, epsilons: Sequence[float] | None) -> None:
    """Ticks at the epsilons of the x axis; or without any, plain numbers on the y axis."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    axis = axes.xaxis if epsilons is not None else axes.yaxis
    if epsilons is not None:
        axis.set_major_locator(FixedLocator(list(_apart(epsilons))))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axis.set_minor_formatter(NullFormatter())


def _apart(values: Sequence[float]) -> Iterator[float]:
    """Rising values without those whose labels would overlap the one before."""
    last = 0.0
    for value in values:
        if value >= last * 1.35:
            last = value
            yield value


def _legend(figure: Figure, *, columns: int = 2) -> None:
    """One legend below all panels; what is in several is named once."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found[label] = handle  # of several the last: the first may have but undefined points
    lines = max(axes.get_xlabel().count("\n") for axes in figure.axes)
    figure.set_figheight(figure.get_figheight() + 0.165 * -(-len(found) // columns) + 0.16 * lines)
    names = [textwrap.fill(name, 100 // columns) for name in found]
    figure.legend(list(found.values()), names, loc="outside lower left", ncols=columns, fontsize=8)


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
