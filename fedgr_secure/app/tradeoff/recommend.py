"""Which private row to take at a target epsilon, what it costs, and the evidence, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from fedgr_secure.app.tables import data_size, number
from fedgr_secure.app.tradeoff.audits import Certified
from fedgr_secure.app.tradeoff.results import Leak, Measured

_SIEVE = 0.05
"""how far below the reference's correlation of noise rates a sieve still counts as working"""
_PASSABLE = 0.5
"""the least correlation of a sieve that works, whatever the reference's"""
_USUAL = 1.0
_WIDE = 0.1
"""an interval of accuracies that says nothing"""


@dataclass(frozen=True)
class Change:
    """A paired difference.

    Attributes:
        mean: over the seeds that both have.
        low, high: 95 % interval (Student's t); None for fewer than two seeds.
        seeds: how many.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int


def target_of(rows: Sequence[Measured], given: float | None) -> float | None:
    """The target: what was asked for; else 1, or the least that is claimed where that is more; None without a claim."""
    claimed = [row.epsilon for row in rows if row.epsilon is not None]
    if given is not None or not claimed:
        return given
    return max(_USUAL, min(claimed))


def recommend(rows: Sequence[Measured], reference: str | None, given: float | None) -> str:
    """A sentence or two per setting."""
    target = target_of(rows, given)
    if target is None:
        return "No complete row claims an epsilon: there is nothing to recommend."
    settings = dict.fromkeys(row.row.setting for row in rows)
    return "\n".join(_setting(name, [r for r in rows if r.row.setting == name], reference, target) for name in settings)


def _setting(name: str, rows: Sequence[Measured], reference: str | None, target: float) -> str:
    head = f"{name}, epsilon at most {target:g}: "
    base = next((row for row in rows if row.row.series == reference and row.summaries), None)
    claiming = [row for row in rows if row.epsilon is not None and row.epsilon <= target * (1 + 1e-9)]
    refuted = [row for row in claiming if row.certified is not None and row.certified.verdict == "FAIL"]
    whole = [row for row in claiming if not row.failed and row not in refuted]
    kinds = dict.fromkeys(row.claim_made.adjacency for row in whole)
    left = f" Refuted by their audits: {'; '.join(row.row.name for row in refuted)}." if refuted else ""
    if not kinds:
        return f"{head}no row whose runs are all complete claims that.{left}"
    return head + " ".join(_best([r for r in whole if r.claim_made.adjacency == kind], base) for kind in kinds) + left


def _best(private: Sequence[Measured], base: Measured | None) -> str:
    """Of rows that protect the same thing."""
    working = [row for row in private if sieves(row, base)]
    best = choice(working or private)
    warning = "" if working else f"No sieve works at that{_alike(base)}: verdicts are worth little; by accuracy alone, "
    asleep = (
        [row for row in private if row not in working and _accuracy(row)[0] > _accuracy(best)[0]] if working else []
    )
    aside = "; ".join(f"{row.row.name} ({100 * _accuracy(row)[0]:.1f} %)" for row in asleep)
    left = f" More accurate, but left aside, as their sieves know too little: {aside}." if asleep else ""
    return f"{warning}{_take(best)} {_cost(best, base)} {_evidence(best, base)}{left}"


def _alike(base: Measured | None) -> str:
    """Where the reference's sieve fails, too, epsilon is not to blame."""
    if base is None or base.row.config.method != "fedgr" or sieves(base, None):
        return ""
    return f", nor does that of {base.row.series} (too few rounds or images, rather than too small an epsilon)"


def sieves(row: Measured, base: Measured | None) -> bool:
    """Whether its noise rates are estimated in every run, and nearly as well as the reference's.

    Methods without a sieve have nothing that could fail, and where nobody knows the truth nothing tells.
    """
    if row.row.config.method != "fedgr" or row.measure("mislabel_accuracy") is None:
        return True
    known = base.measure("noise_rate_pearson") if base is not None else None
    found = row.measure("noise_rate_pearson")
    least = max(_PASSABLE, known.mean - _SIEVE) if known is not None else _PASSABLE
    return found is not None and found.n == len(row.summaries) and found.mean >= least


def choice(rows: Sequence[Measured]) -> Measured:
    """Of the rows within a standard error of the best accuracy (Breiman et al. 1984) that of the smallest epsilon."""
    best = max(rows, key=lambda row: _accuracy(row)[0])
    mean, error = _accuracy(best)
    near = [row for row in rows if _accuracy(row)[0] >= mean - error]
    return min(near, key=lambda row: (row.epsilon or math.inf, -_accuracy(row)[0]))


def _accuracy(row: Measured) -> tuple[float, float]:
    """Mean and its standard error."""
    found = row.measure("accuracy_last10")
    assert found is not None
    return found.mean, (found.sd or 0.0) / math.sqrt(found.n)


def paired(row: Measured, base: Measured, field: str) -> Change | None:
    """How a field of the summaries differs from the reference's, seed by seed; None without a common seed."""
    from scipy.stats import t

    other = {summary.seed: getattr(summary, field) for summary in base.summaries}
    pairs = [(getattr(one, field), other[one.seed]) for one in row.summaries if one.seed in other]
    changes = [mine - theirs for mine, theirs in pairs if mine is not None and theirs is not None]
    if not changes:
        return None
    mean, count = fmean(changes), len(changes)
    if count == 1:
        return Change(mean, None, None, 1)
    half = float(t.ppf(0.975, count - 1)) * stdev(changes) / math.sqrt(count)
    return Change(mean, mean - half, mean + half, count)


def _take(row: Measured) -> str:
    claim = row.claim_made
    return (
        f"take {row.row.name} ({claim.subject}: epsilon {claim.epsilon:g} at delta {claim.delta:g}, {claim.adjacency})."
    )


def _cost(row: Measured, base: Measured | None) -> str:
    mean, _ = _accuracy(row)
    up = row.measure("bytes_up")
    assert up is not None
    if base is None or base is row:
        return f"Accuracy {100 * mean:.1f} %, {data_size(up.mean)} sent by clients."
    change, theirs = paired(row, base, "accuracy_last10"), base.measure("bytes_up")
    assert theirs is not None
    words = f"Accuracy {100 * mean:.1f} %"
    if change is not None:
        words += f", {100 * change.mean:+.1f} points beside {base.row.series} ({_interval(change)})"
    ratio = up.mean / theirs.mean - 1 if theirs.mean else 0.0
    return f"{words}; clients send {data_size(up.mean)}, {100 * ratio:+.1f} %."


def _interval(change: Change) -> str:
    wide = change.low is not None and change.high is not None and change.high - change.low > _WIDE
    return interval_words(change) + (", too few to tell" if wide else "")


def interval_words(change: Change) -> str:
    """The interval of a paired difference in points, and over how many seeds."""
    if change.low is None or change.high is None:
        return "one seed, no interval"
    return f"95 %: {100 * change.low:+.1f} to {100 * change.high:+.1f}, {change.seeds} paired seeds"


def _evidence(row: Measured, base: Measured | None) -> str:
    parts = []
    leak, theirs = row.strongest(), base.strongest() if base is not None and base is not row else None
    if leak is not None:
        beside = f" ({base.row.series}: {number(theirs.metrics.auc.value)})" if base and theirs else ""
        tried = ", ".join(sorted(f"{one.attack} {one.game}" for one in row.leaks))
        parts.append(f"of the attacks tried ({tried}) the strongest has an area of {_area(leak)}{beside}")
    if row.certified is not None:
        found = row.certified
        verdict = f"{found.verdict}{_more(found)}"
        parts.append(
            f"an audit certifies an epsilon of at least {found.epsilon:.2f}, of {found.claimed:.3g} ({verdict})"
        )
    said = f"Evidence: {'; '.join(parts)}." if parts else "Nothing was attacked or audited."
    weights = row.claim("model weights")
    private = weights is not None and weights.epsilon is not None
    return said if private else f"{said} The models themselves claim nothing."


def _more(found: Certified) -> str:
    return ": larger audit_draws would tell more" if found.verdict == "NO POWER" else ""


def _area(leak: Leak) -> str:
    return f"{leak.metrics.auc} ({leak.attack}, {leak.game})"
