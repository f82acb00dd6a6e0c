"""A grid: settings (data, noise, partition) times series (method, channel, epsilons), over seeds.

The TOML file holds `title`, `preset`, `seeds`, `reference` (the series without privacy that others are compared with)
and `audit_draws`; settings of every run under `[base]`; and any number of `[[setting]]` and `[[series]]` tables, each
with a `name` and settings by their flat names, as on the command line. A list in a series is an axis: one row a value.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from fedgr_secure.app import presets
from fedgr_secure.app.sweep import Cell, slug
from fedgr_secure.app.tradeoff.published import SETTINGS
from fedgr_secure.checks import check
from fedgr_secure.config import from_table, override, to_table
from fedgr_secure.errors import InputError, nearest, require
from fedgr_secure.sections import Config
from fedgr_secure.typed import decode, short

_OWN = frozenset({"seed", "out", "force", "record_view"})
"""settings of single runs, which the sweep decides"""


_RESERVED = frozenset(
    {"audits", "figures", "lock", "grid.json", "columns.csv", "tradeoff.html"}
    | {f"results.{kind}" for kind in ("csv", "jsonl", "md")}
)
"""what a trade-off writes beside the folders of its settings"""


@dataclass(frozen=True)
class Head:
    """What a grid says of itself.

    Attributes:
        title: of the report.
        preset: a preset or a TOML file, which the rest changes.
        seeds: how many, from 0.
        reference: the series that private ones are compared with.
        audit_draws: random numbers that the audit of a plan takes.
        base: settings of every run.
        setting: data, noise and partition; a table each.
        series: method and channel; a table each.
    """

    title: str
    series: tuple[dict[str, object], ...]
    preset: str = "digits"
    seeds: int = 3
    reference: str | None = None
    audit_draws: int = 1_500_000
    base: dict[str, object] = field(default_factory=dict)
    setting: tuple[dict[str, object], ...] = ({"name": "default"},)


@dataclass(frozen=True)
class Row:
    """One row of the table: a setting, a series, and a value on each of its axes.

    Attributes:
        setting: its name.
        series: its name.
        axes: by setting name.
        published: the paper's setting that this one follows, or None.
        config: of its runs, but for seed and folder.
    """

    setting: str
    series: str
    axes: dict[str, Any]
    published: str | None
    config: Config

    @property
    def name(self) -> str:
        """The series with its axes, such as "histogram, epsilon 1"."""
        points = (f"{key.replace('_', ' ')} {_short(value)}" for key, value in self.axes.items())
        return ", ".join([self.series, *points])

    def folder(self, root: Path, seed: int) -> Path:
        """Of one run."""
        return root / slug(self.setting) / f"{slug(self.name)}-s{seed}"

    def cell(self, root: Path, seed: int) -> Cell:
        """One run, whose view is recorded for attacks."""
        changes = {"seed": seed, "out": self.folder(root, seed), "record_view": "uploads"}
        return Cell(f"{self.setting}: {self.name}", override(self.config, changes))


@dataclass(frozen=True)
class Grid:
    """A grid that was read and checked.

    Attributes:
        title: of the report.
        rows: setting by setting.
        seeds: how many, from 0.
        reference: the series without privacy, or None.
        audit_draws: random numbers of an audit.
        name: as it was asked for: a shipped grid's, or a path.
    """

    title: str
    rows: tuple[Row, ...]
    seeds: int
    reference: str | None
    audit_draws: int
    name: str = "GRID"

    @property
    def settings(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(dict.fromkeys(row.setting for row in self.rows))

    def cells(self, root: Path) -> list[Cell]:
        """Every run: setting by setting, and in each seed by seed, so that an early stop leaves whole comparisons."""
        return [
            row.cell(root, seed)
            for setting in self.settings
            for seed in range(self.seeds)
            for row in self.rows
            if row.setting == setting
        ]


def names() -> list[str]:
    """The shipped grids' names, sorted."""
    found = (path.name for path in files("fedgr_secure.grids").iterdir())
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def load(name: str, *, data: Path | None = None, seeds: int | None = None) -> Grid:
    """A grid by its shipped name or by the path of a TOML file.

    Args:
        name: of a shipped grid, or a path.
        data: the folder in which relative paths of data are looked for.
        seeds: how many, instead of the grid's own number.

    Raises:
        InputError: neither, or its content is not allowed.
    """
    if name in names():
        with as_file(files("fedgr_secure.grids") / f"{name}.toml") as path:
            head = _head(path, name)
    else:
        require(
            os.path.exists(name),
            f"grid: {name} is neither a file nor a shipped grid{nearest(name, names())}; grids: {', '.join(names())}",
        )
        head = _head(Path(name), name)
    return _grid(head if seeds is None else dataclasses.replace(head, seeds=seeds), name, data)


def _head(path: Path, where: str) -> Head:
    require(path.is_file(), f"grid: {where} cannot be read as TOML: it is not a file")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"grid: {where} cannot be read as TOML: {error}") from None
    head: Head = decode(Head, table, f"grid {where}", defaults=True)
    return head


def _grid(head: Head, where: str, data: Path | None) -> Grid:
    require(1 <= head.seeds <= 1000, f"grid {where}: seeds: {head.seeds}, allowed: a whole number from 1 to 1000")
    least, most = 1000, 10**9
    require(
        least <= head.audit_draws <= most,
        f"grid {where}: audit_draws: {head.audit_draws}, allowed: a whole number from {least} to {most}",
    )
    rows = tuple(
        row for setting in head.setting for series in head.series for row in _rows(head, setting, series, where, data)
    )
    require(len(rows) > 0, f"grid {where}: no row, allowed: at least one setting and one series")
    for place, times in Counter(row.folder(Path(), 0) for row in rows).items():
        require(times == 1, f"grid {where}: two rows are called {place}, allowed: names of their own")
    series = [row.series for row in rows]
    require(
        head.reference is None or head.reference in series,
        f"grid {where}: reference: {head.reference!r}{nearest(head.reference or '', series)}, allowed: a series",
    )
    return Grid(head.title, rows, head.seeds, head.reference, head.audit_draws, where)


def _rows(
    head: Head, setting: Mapping[str, Any], series: Mapping[str, Any], where: str, data: Path | None
) -> Iterator[Row]:
    """The rows of a series in a setting, one for each combination of its lists."""
    setting, series = dict(setting), dict(series)
    place, name = (_name(table, f"grid {where}") for table in (setting, series))
    published, preset = setting.pop("published", None), setting.pop("preset", head.preset)
    require(
        published is None or (isinstance(published, str) and published in SETTINGS),
        f"grid {where}: {place}: published: {short(published)}{nearest(str(published), SETTINGS)}, allowed: "
        f"{', '.join(SETTINGS)}",
    )
    require(isinstance(preset, str), f"grid {where}: {place}: preset: {short(preset)}, allowed: a name or a path")
    changes = {**head.base, **setting, **series}
    for key in changes:
        require(key not in _OWN, f"grid {where}: {name}: {key} is given, allowed: what the sweep does not decide")
    axes = {key: value for key, value in series.items() if isinstance(value, list)}
    for key, points in axes.items():
        require(len(points) > 0, f"grid {where}: {name}: {key}: no value, allowed: at least one")
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        config = _config(preset, {**changes, **point}, f"grid {where}: {place}: {name}", data)
        yield Row(place, name, point, published, config)


def _name(table: dict[str, Any], where: str) -> str:
    name = table.pop("name", None)
    words = isinstance(name, str) and name.isprintable() and any(c.isalnum() for c in slug(name)) and len(name) < 100
    require(words, f"{where}: name: {short(name)}, allowed: words on one line, below 100 characters, in every table")
    kept = ", ".join(sorted(_RESERVED))
    require(slug(str(name)) not in _RESERVED, f"{where}: name: {name!r}, allowed: none of {kept}")
    return str(name)


def _config(preset: str, changes: Mapping[str, Any], where: str, data: Path | None) -> Config:
    """A checked configuration, every value of its setting's type."""
    try:
        config = override(presets.load(preset), changes)
        config = from_table(to_table(config), where="value")
        return check(config if data is None else _within(config, data))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _within(config: Config, data: Path) -> Config:
    """With relative paths of data looked for in a folder."""
    parts = {"path": config.data, "pretrained": config.model, "partition_file": config.partition}
    given = {name: getattr(section, name) for name, section in parts.items()}
    return override(config, {name: data / path for name, path in given.items() if path is not None})


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | int) and not isinstance(value, bool) else str(value)
