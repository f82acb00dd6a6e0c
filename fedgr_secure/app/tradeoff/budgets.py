"""Accuracy within a budget: what a method has reached by the time its clients have trained, or sent, so much.

Rounds of different methods are not alike: one trains two networks and sends both, another trains clients one after the
other. Equal budgets of local trainings or of bytes compare them on equal terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Literal

from fedgr_secure.app.tradeoff.results import Measured, Spread
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.records import RoundRecord

Cost = Literal["client_updates", "bytes_up"]
"""what is spent: a field of the rounds"""
LAST = 5
"""rounds whose accuracy is averaged: the last within the budget"""
SHARES = {"quarter": 0.25, "half": 0.5, "all": 1.0}
"""budgets, as shares of what the measure spends in a whole run"""


def spent(rounds: Sequence[RoundRecord], cost: Cost) -> list[int]:
    """What a run had cost by the end of each round."""
    return list(accumulate(getattr(record, cost) for record in rounds))


def reached(rounds: Sequence[RoundRecord]) -> list[float]:
    """Where a run stood after each round: mean accuracy of the last five rounds so far, or of all if fewer."""
    return [fmean(record.accuracy for record in rounds[max(0, end - LAST) : end]) for end in range(1, len(rounds) + 1)]


def within(rounds: Sequence[RoundRecord], cost: Cost, budget: float) -> float | None:
    """Where a run stood when the budget was spent; None where not one round lies within it."""
    whole = sum(total <= budget for total in spent(rounds, cost))
    return reached(rounds[:whole])[-1] if whole else None


@dataclass(frozen=True)
class Course:
    """A row of a grid, round by round.

    Attributes:
        measured: the row with the summaries of its complete runs.
        runs: their rounds, in the same order; at least one run.
    """

    measured: Measured
    runs: tuple[Sequence[RoundRecord], ...]

    def within(self, cost: Cost, budget: float) -> Spread | None:
        """Accuracy within a budget, over the runs that have a round within it."""
        return Spread.of([within(rounds, cost, budget) for rounds in self.runs])

    def most(self, cost: Cost) -> int:
        """What the dearest of the runs cost."""
        return max(spent(rounds, cost)[-1] for rounds in self.runs)

    def line(self, cost: Cost) -> tuple[list[float], list[float]]:
        """What a run had cost and where it stood after each round: means over the runs."""
        return (
            [fmean(one) for one in zip(*(spent(rounds, cost) for rounds in self.runs), strict=False)],
            [fmean(one) for one in zip(*(reached(rounds) for rounds in self.runs), strict=False)],
        )


def courses(rows: Sequence[Measured], root: Path) -> tuple[Course, ...]:
    """The rounds of every complete run; rows without one are left out.

    Raises:
        InputError: a file is damaged.
    """
    return tuple(
        Course(row, tuple(RunFolder(row.row.folder(root, one.seed)).rounds() for one in row.summaries))
        for row in rows
        if row.summaries
    )


def budgets(found: Sequence[Course], cost: Cost, measure: str = "fedavg") -> dict[str, float]:
    """A quarter, half and all of what the measure's method spends; empty where it has no run."""
    totals = [course.most(cost) for course in found if course.measured.row.config.method == measure]
    return {name: share * max(totals) for name, share in SHARES.items()} if totals else {}
