"""Figures held against what is demanded of them: one row each, a table, and the recorded results."""

from __future__ import annotations

import json
import operator
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from cryptography.hazmat.backends.openssl import backend

RESULTS = Path(__file__).parent / "results"

SENSES: dict[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le, "<": operator.lt}


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: what is measured.
        ours, other: the two figures; `other` is None when it was not run.
        unit: of both.
        against: whose figure `other` is.
        measured: what the demand is about: a ratio of the two, or `ours`.
        demand: the bound, None if the row is for information.
        sense: which side of the bound is good.
        part, date, load, command: which part of the script, when, at which one-minute load average, and how.
    """

    name: str
    ours: float
    other: float | None
    unit: str
    against: str
    measured: float | None
    demand: float | None
    sense: Literal[">=", "<=", "<"] = ">="
    part: str = ""
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())
    load: float = field(default_factory=lambda: round(os.getloadavg()[0], 1))
    command: str = ""

    @property
    def met(self) -> str:
        """Whether the demand is met."""
        if self.demand is None:
            return "-"
        if self.measured is None:
            return "not run"
        return "yes" if SENSES[self.sense](self.measured, self.demand) else "NO"

    def cells(self) -> list[str]:
        """As text."""
        ours, other = f"{_number(self.ours)} {self.unit}", f"{_number(self.other)} ({self.against})"
        demand = "-" if self.demand is None else f"{self.sense} {self.demand:g}"
        measured, load = _number(self.measured), f"{self.load:.1f}"
        return [self.name, ours, other if self.against else "-", measured, demand, self.met, load]


COLUMNS = ("What", "Here", "Against", "Measured", "Demanded", "Met", "Load")


def faster(name: str, ours: float, other: float | None, unit: str, least: float | None, against: str = "Flower") -> Row:
    """A row that demands to be so many times as fast as something else."""
    return Row(name, ours, other, unit, against, None if other is None else other / ours, least)


def record(title: str, rows: Sequence[Row], parts: Sequence[str], note: str) -> None:
    """Record rows as Markdown and JSON.

    What was recorded for other parts with the same versions stays.

    Args:
        title: of the result.
        rows: all rows of some parts.
        parts: every part, in the order of the table.
        note: a sentence on what is measured.
    """
    path = RESULTS / f"{title.lower().replace(' ', '-')}.json"
    old = json.loads(path.read_text()) if path.exists() else {}
    kept = [Row(**row) for row in old.get("rows", [])] if old.get("versions") == versions() else []
    measured = {row.part for row in rows}
    merged = sorted([*(r for r in kept if r.part not in measured), *rows], key=lambda row: parts.index(row.part))
    found = {"title": title, "versions": versions(), "rows": [asdict(row) for row in merged]}
    path.write_text(json.dumps(found, indent=1) + "\n")
    path.with_suffix(".md").write_text(_markdown(title, merged, note))


def _markdown(title: str, rows: Sequence[Row], note: str) -> str:
    lines = [f"# {title}", "", f"| {' | '.join(COLUMNS)} |", "| --- | ---: | ---: | ---: | ---: | --- | ---: |"]
    lines += [f"| {' | '.join(row.cells())} |" for row in rows]
    lines += [
        "",
        f"* {note}",
        f"* *Load* is the one-minute load average of {os.cpu_count()} cores. Above that the row shared them with other",
        "  work: CPU times are longer than on an idle machine, and wall times mean nothing.",
        "",
        *(f"Command: `{command}`  " for command in dict.fromkeys(row.command for row in rows)),
        f"Date: {', '.join(sorted({row.date for row in rows}))}  ",
        f"Versions: {', '.join(f'{name} {value}' for name, value in versions().items())}",
    ]
    return "\n".join(lines) + "\n"


def versions() -> dict[str, str]:
    """Of everything that the figures depend on."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "cpu": _cpu()}
    for package in ("numpy", "cryptography", "flwr", "pycryptodome"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return {**found, "openssl": backend.openssl_version_text()}


def _cpu() -> str:
    """The processor's name, where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _number(value: float | None) -> str:
    if value is None:
        return "not run"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"
