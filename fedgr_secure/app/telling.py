"""What a sweep says while it goes on: how each cell ended, how many are left, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedgr_secure.app.output import Output
from fedgr_secure.app.sweep import Outcome
from fedgr_secure.app.tables import duration, percent

_DAY = 24 * 3600.0


class Teller:
    """Says how each cell of a sweep ended; a reason that it gave before, only by whose it was."""

    def __init__(self, console: Output, *, total: int | None = None) -> None:
        """With `total`, each line says how many of so many cells are done, and about how long the rest takes."""
        self._console, self._errors, self._total = console, Output(stderr=True), total
        self._said: dict[str, str] = {}
        self._done, self._started = 0, time.perf_counter()

    def __call__(self, outcome: Outcome) -> None:
        """Say one more."""
        self._done += 1
        cell = outcome.cell
        who = f"{self._place()}{cell.name}, seed {cell.config.seed}"
        if outcome.summary is not None:
            lost = outcome.summary.sums_given_up
            note = f", {lost} of {outcome.summary.rounds} secure sums given up" if lost else ""
            self._console.say(f"{who}: last-10 accuracy {percent(outcome.summary.accuracy_last10)}{note}")
        elif outcome.failure is None:
            self._console.say(f"{who}: done")
        if outcome.failure is not None:
            words = outcome.failure.words
            self._errors.say(f"{who}: failed: {self._said.get(words, words)}", style="red")
            self._said.setdefault(words, f"as {cell.name}, seed {cell.config.seed}")

    def _place(self) -> str:
        if self._total is None:
            return ""
        left = (time.perf_counter() - self._started) / self._done * (self._total - self._done)
        rest = f", about {duration(left)} left" if self._done < self._total else ""
        return f"[{self._done} of {self._total}{rest}] "


@contextmanager
def cells_bar(console: Output, total: int) -> Iterator[Progress]:
    """A bar over the cells of a sweep; silent when the console is not a terminal. Advance its only task, 0."""
    bar = Progress(
        BarColumn(bar_width=30),
        TextColumn("{task.completed:.0f}/{task.total:.0f} done", markup=False),
        TimeElapsedColumn(),
        TextColumn("elapsed,", markup=False),
        TimeRemainingColumn(),
        TextColumn("left", markup=False),
        console=console,
        speed_estimate_period=_DAY,
        disable=not console.is_terminal,
    )
    bar.add_task("", total=total)
    with bar:
        yield bar
