"""What a grid came to: one row per setting and series, over its seeds, read back from the run folders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attacks.metrics import FALSE_POSITIVE_RATES, Interval, Metrics, Scores, evaluate, roc
from attacks.results import Caps, Outcome, Scored, read_results, read_scores
from fedgr_secure.app.tables import spread
from fedgr_secure.app.tradeoff.audits import Certified, read_audit
from fedgr_secure.app.tradeoff.engine import folder_of, holds
from fedgr_secure.app.tradeoff.grid import Grid, Row
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.records import Summary
from privacy.claims import PrivacyClaim

MEMBERSHIP = ("any", "target", "row")
"""games that ask whether a record is a member, or whose row is its own; what a claim on a record is about"""
_CURVE = 400


@dataclass(frozen=True)
class Spread:
    """Over the runs in which a measure applies.

    Attributes:
        mean: of them.
        sd: sample standard deviation; None for one run.
        n: how many.
    """

    mean: float
    sd: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread | None:
        """Of those that are known; None without any."""
        known = [value for value in values if value is not None]
        return cls(**spread(known)) if known else None  # type: ignore[arg-type]


@dataclass(frozen=True)
class Leak:
    """An attack in a game, with the scores of all runs of a row together.

    Attributes:
        attack, game, subject: by name; the subject is what it reads.
        metrics: of all scores.
        curve: false and true positive rates, float64 (points,) each.
        caps: what the claim on the subject allows; None without one.
    """

    attack: str
    game: str
    subject: str
    metrics: Metrics
    curve: tuple[Scores, Scores]
    caps: Caps | None

    def tpr_interval(self, rate: float) -> Interval | None:
        """The share of members found at one of `FALSE_POSITIVE_RATES`; None where too few others were asked about."""
        point = self.metrics.points[FALSE_POSITIVE_RATES.index(rate)]
        return point.tpr if point is not None else None

    def tpr(self, rate: float) -> float | None:
        """Its value alone."""
        found = self.tpr_interval(rate)
        return found.value if found is not None else None


@dataclass(frozen=True)
class Measured:
    """A row and its runs.

    Attributes:
        row: of the grid.
        summaries: of the complete runs, by rising seed.
        failed: runs that are missing, as seeds.
        leaks: every membership attack that was made on all of them, the strongest (by area) first.
        partly: attacks that only some of the runs have, and that are left out for that.
        certified: what an audit of the plan came to; None where there is none.
    """

    row: Row
    summaries: tuple[Summary, ...]
    failed: tuple[int, ...]
    leaks: tuple[Leak, ...]
    certified: Certified | None
    partly: tuple[str, ...] = ()

    @property
    def oracle(self) -> str | None:
        """What the method was told that nobody could know; None for nothing."""
        return self.summaries[0].oracle if self.summaries else None

    def measure(self, field: str) -> Spread | None:
        """A field of the summaries."""
        return Spread.of([getattr(summary, field) for summary in self.summaries])

    def phase(self, name: str) -> Spread | None:
        """Seconds of a phase."""
        return Spread.of([summary.seconds_by_phase.get(name) for summary in self.summaries])

    def claim(self, subject: str) -> PrivacyClaim | None:
        """The claim of the runs on a subject: of several the weakest (plans may differ a little with the partition)."""
        made = [claim for summary in self.summaries for claim in summary.privacy if claim.subject == subject]
        return max(made, key=lambda claim: math.inf if claim.epsilon is None else claim.epsilon, default=None)

    @property
    def claim_made(self) -> PrivacyClaim:
        """On everything that a client sends, or else on the loss proxies, or else on the weights."""
        subjects = ("whole run", "loss proxies", "model weights")
        return next(claim for subject in subjects if (claim := self.claim(subject)) is not None)

    @property
    def epsilon(self) -> float | None:
        """Of the claim that is made; None where nothing is claimed, and without a complete run."""
        return self.claim_made.epsilon if self.summaries else None

    def strongest(self, subject: str | None = None) -> Leak | None:
        """The attack with the largest area, of all or of those that read a subject."""
        return next((leak for leak in self.leaks if subject in (None, leak.subject)), None)


def collect(grid: Grid, root: Path, *, attacks: bool = True) -> tuple[Measured, ...]:
    """Every row of a grid from its run folders; rows without a complete run have no summary.

    Args:
        grid: its rows and seeds.
        root: the folder of all runs.
        attacks: whether what attacks came to is read.

    Raises:
        InputError: a file is damaged, or a folder holds a run of another configuration.
    """
    return tuple(_measured(grid, row, root, attacks) for row in grid.rows)


def _measured(grid: Grid, row: Row, root: Path, attacks: bool) -> Measured:
    cells = {seed: row.cell(root, seed) for seed in range(grid.seeds)}
    found = {seed: RunFolder(folder_of(cell)) for seed, cell in cells.items() if holds(cell)}
    complete = {seed: summary for seed, folder in found.items() if (summary := folder.summary()) is not None}
    leaks, partly = _leaks([found[seed].path for seed in complete]) if attacks else ((), ())
    return Measured(
        row,
        tuple(complete.values()),
        tuple(seed for seed in cells if seed not in complete),
        leaks,
        read_audit(root, row.config, grid.audit_draws),
        partly,
    )


def _leaks(folders: Sequence[Path]) -> tuple[tuple[Leak, ...], tuple[str, ...]]:
    """Every membership attack that was made on all of these runs, scores pooled; and those made on some alone."""
    played: dict[tuple[str, str], list[tuple[Outcome, Scored]]] = {}
    for folder in folders:
        attacked = read_results(folder)
        if attacked is None:
            continue
        scores = read_scores(folder)
        for outcome in attacked.outcomes:
            if outcome.game in MEMBERSHIP and outcome.metrics is not None:
                played.setdefault((outcome.attack, outcome.game), []).append(
                    (outcome, scores[f"{outcome.attack}.{outcome.game}"])
                )
    leaks = [_leak(parts) for parts in played.values() if len(parts) == len(folders)]
    partly = tuple(f"{attack} ({game})" for (attack, game), parts in played.items() if len(parts) < len(folders))
    return tuple(sorted((leak for leak in leaks if leak), key=lambda leak: -leak.metrics.auc.value)), partly


def _leak(parts: Sequence[tuple[Outcome, Scored]]) -> Leak | None:
    scores = np.concatenate([scored.scores for _, scored in parts])
    truth = np.concatenate([scored.truth for _, scored in parts])
    metrics = evaluate(scores, truth)
    if metrics is None:
        return None
    one = parts[0][0]
    return Leak(one.attack, one.game, one.subject, metrics, _curve(scores, truth), one.caps)


def _curve(scores: Scores, truth: np.ndarray) -> tuple[Scores, Scores]:
    """The ROC at up to a few hundred false positive rates, even on a logarithmic axis."""
    fpr, tpr = roc(scores, truth)
    wanted = np.geomspace(1 / (~truth).sum(), 1.0, _CURVE)
    at = np.unique(np.concatenate([[0], np.searchsorted(fpr, wanted, side="right") - 1, [len(fpr) - 1]]))
    return fpr[at], tpr[at]
