"""A live progress bar over the rounds, fed with `RoundRecord`s."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from fedgr_secure.app.tables import number, percent
from fedgr_secure.records import RoundRecord

_DAY = 24 * 3600.0


class _TwoLines(Progress):
    """The bar, and below it the figures of the newest round, so that both fit into 80 columns."""

    figures = Text()

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar's line and the figures' line."""
        yield from super().get_renderables()
        if self.figures:
            yield self.figures


class LiveProgress:
    """Shows how far a run is; call it with each round's record. Silent when the console is not a terminal.

    >>> import io
    >>> with LiveProgress(2, "FedGR on digits", console=Console(file=io.StringIO())) as progress:
    ...     progress.silent
    True
    """

    def __init__(self, rounds: int, title: str, console: Console | None = None, *, completed: int = 0) -> None:
        """A bar of `rounds` rounds of which `completed` are done already; it writes to stderr by default."""
        self._console = console if console is not None else Console(stderr=True)
        self.silent = not self._console.is_terminal
        self._bar = _TwoLines(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}", markup=False),
            TimeElapsedColumn(),
            TextColumn("elapsed,", markup=False),
            TimeRemainingColumn(),
            TextColumn("left", markup=False),
            console=self._console,
            speed_estimate_period=_DAY,  # a round may take minutes; rich forgets its last step after 30 s by default
            disable=self.silent,
        )
        self._task = self._bar.add_task(title, total=rounds, completed=completed)

    def __enter__(self) -> Self:
        if not self.silent:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.silent:
            self._bar.stop()

    def __call__(self, record: RoundRecord) -> None:
        """Show that `record`'s round is done, and its figures."""
        self._bar.figures = Text("  " + _figures(record))
        self._bar.update(self._task, completed=record.round + 1)


def _figures(record: RoundRecord) -> str:
    """What a round reports in one line, leaving out what does not apply.

    >>> _figures(RoundRecord(0, "warm-up", (1,), 0.5, 1.2, 0.25, None, None, None, None, None, 10, 10, 1))
    'warm-up   accuracy 50.0%   estimated noise 25.0%'
    """
    parts = [record.stage, f"accuracy {percent(record.accuracy)}"]
    if record.estimated_noise is not None:
        parts.append(f"estimated noise {percent(record.estimated_noise)}")
    if record.noise_rate_pearson is not None:
        parts.append(f"Pearson {number(record.noise_rate_pearson, 2)}")
    return "   ".join(parts)
