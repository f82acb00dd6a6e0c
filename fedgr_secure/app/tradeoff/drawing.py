"""What the figures of a trade-off share: who looks like what, panels by setting, one legend, plain ticks."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedgr_secure.app.figures import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    new_figure,
)
from fedgr_secure.app.tradeoff.grid import Grid, Row
from fedgr_secure.app.tradeoff.results import Measured

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
        series = list(dict.fromkeys(line_of(one) for one in self.grid.rows))
        place = series.index(line_of(row))
        others = [name for name in series if name != self.grid.reference]
        black = line_of(row) == self.grid.reference
        return {
            "color": BLACK if black else _COLOURS[others.index(line_of(row)) % len(_COLOURS)],
            "marker": _MARKERS[place % len(_MARKERS)],
            "linestyle": _LINES[place % len(_LINES)],
        }

    def own_style(self, row: Row) -> dict[str, Any]:
        """With a marker and a line of the row's own within the series: the largest epsilon has a full marker."""
        mates = [one.name for one in self.grid.rows if one.setting == row.setting and line_of(one) == line_of(row)]
        place = len(mates) - 1 - mates.index(row.name)
        style = self.style(row)
        fill = "full" if place == 0 else _FILLS[(place - 1) % len(_FILLS)]
        return style | {"fillstyle": fill, "markerfacecoloralt": "white", "linestyle": _LINES[place % len(_LINES)]}

    def label(self, name: str) -> str:
        """A name for the legend, which says which is the reference."""
        return f"{name} (reference)" if name == self.grid.reference else name


def line_of(row: Row) -> str:
    """The series, with its axes but for the epsilon that a figure has as its own axis."""
    shown = next((key for key in _EPSILONS if key in row.axes), None)
    return dataclasses.replace(row, axes={key: value for key, value in row.axes.items() if key != shown}).name


def setting_panels(
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


def plain_ticks(axes: Axes, epsilons: Sequence[float] | None) -> None:
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


def one_legend(figure: Figure, *, columns: int = 2) -> None:
    """One legend below all panels; what is in several is named once."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found[label] = handle  # of several the last: the first may have but undefined points
    lines = max(axes.get_xlabel().count("\n") for axes in figure.axes)
    figure.set_figheight(figure.get_figheight() + 0.165 * -(-len(found) // columns) + 0.16 * lines)
    names = [textwrap.fill(name, 100 // columns) for name in found]
    figure.legend(list(found.values()), names, loc="outside lower left", ncols=columns, fontsize=8)


def note(axes: Axes, label: str, note: str) -> None:
    """Name the x axis, with a note of any length below."""
    lines = textwrap.wrap(note, 108 // _columns(axes))
    axes.set_xlabel("\n".join([label, *(line.replace(_JOINED, " ") for line in lines)]), fontsize=8.5)


def in_words(names: Sequence[str]) -> str:
    """Names in a note, which breaks between them alone."""
    return " | ".join(name.replace(" ", _JOINED) for name in names)


def bar_length(deviation: float | None) -> float:
    """Of an error bar; not a number (no bar) for a single run."""
    return math.nan if deviation is None else deviation
