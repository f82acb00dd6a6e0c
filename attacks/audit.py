"""The audit of a claimed epsilon: play the worst case through the shipped channel, and bound what the claim can be.

A scouting part of the trials chooses what to look at: how the canary behaves, which score, which threshold; and tells
whether uploads past the budget's releases still say something of the canaries. Fresh trials are then measured. Every
method gets an equal share of the error, so that with the stated confidence *all* bounds are below the truth, the
largest among them; two of them if the noise is of the claimed kind, which is a part of the claim: either way a sound
channel is flagged no more often than that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from attacks.bounds import Rates, best_threshold, gaussian_mu, gaussian_sum, one_run, rates, two_sample
from attacks.families import Gaussians
from attacks.histogram_game import Histograms
from attacks.metrics import Scores
from attacks.row_game import Rows
from attacks.worst_case import LIKELIHOOD, Game, Play, Seen, learn, past
from fedgr_secure.errors import InputError, require
from privacy.channels.channel import Channel
from privacy.channels.histogram import HistogramProxies
from privacy.channels.noisy import NoisyProxies
from privacy.claims import PrivacyClaim
from privacy.mechanisms import NoiseSource

Verdict = Literal["PASS", "FAIL", "NO POWER"]

POWER = 0.6
"""the share of a claim that must be certified for a pass to mean anything"""
ONE_RUN = 10_000
"""canaries of the one-run bound: its price grows with canaries times delta"""
LEAST_TRIALS = 100
_LEAST_NOISE = 1.0
"""scale from which discrete Gaussians have the moments of continuous ones, to 1e-6, and their sums are such ones"""
_SCOUTS = 4
"""a play is scouted with one in so many of the trials"""
_PAST = 0.01
"""share of the error for uploads past the budget, which say nothing if it is kept"""
_LIKELY = 0.5
"""the error at which a bound is a fair guess"""

_Option = TypeVar("_Option")


@dataclass(frozen=True)
class Bound:
    """What one method certifies.

    Attributes:
        method: its name.
        epsilon: at the claim's delta; 0 where it certifies nothing.
        how: what it looked at.
    """

    method: str
    epsilon: float
    how: str


@dataclass(frozen=True)
class AuditResult:
    """An audit's outcome.

    Attributes:
        claim: what was audited.
        accounted: the epsilon that the channel's ledger charges for all releases; below the claim where noise cannot
            be as small as the claim allows.
        bounds: of every method; with probability `confidence` all are below the truth.
        play: how the canaries behaved over the rounds.
        trials: canaries that were measured, besides those that scouted.
        past: whether uploads past the budget's releases tell canaries apart.
        integers: whether nothing but integers was uploaded; a claim of discrete noise rests on it.
        dtypes: of what was uploaded.
        confidence: of all bounds together.
        seconds: of wall time.
    """

    claim: PrivacyClaim
    accounted: float
    bounds: tuple[Bound, ...]
    play: str
    trials: int
    integers: bool
    dtypes: tuple[str, ...]
    confidence: float
    seconds: float
    past: bool = False

    @property
    def claimed(self) -> float:
        """The epsilon that must hold: the smaller of claim and ledger."""
        return min(self.claim.epsilon or 0.0, self.accounted)

    @property
    def best(self) -> Bound:
        """The method that certifies most."""
        return max(self.bounds, key=lambda bound: bound.epsilon)

    @property
    def verdict(self) -> Verdict:
        """FAIL above the claim, on what is no integer or past the budget; NO POWER below `POWER` of the claim."""
        if self.past or not self.integers or self.best.epsilon > self.claimed:
            return "FAIL"
        return "PASS" if self.best.epsilon >= POWER * self.claimed else "NO POWER"

    def of(self, method: str) -> float:
        """What one method certifies."""
        return next(bound.epsilon for bound in self.bounds if bound.method == method)


@dataclass(frozen=True)
class _Cut:
    """A score and a threshold that scouting has chosen."""

    score: str
    threshold: float


def audit(
    channel: Channel,
    noise: NoiseSource,
    *,
    trials: int,
    coins: np.random.Generator | None = None,
    confidence: float = 0.95,
) -> AuditResult:
    """Audit what a channel claims of its loss proxies.

    Args:
        channel: noisy or histogram; what it claims is held against it.
        noise: what its clients draw from: `SystemNoise` for the shipped mechanism.
        trials: canaries to measure; scouting takes a quarter as many for each of two to four plays.
        coins: of the canaries; from the operating system by default.
        confidence: of all bounds together, above 0 and below 1.

    Raises:
        InputError: the channel claims nothing, or the trials are too few.
    """
    require(trials >= LEAST_TRIALS, f"trials: {trials}, allowed: an integer from {LEAST_TRIALS}")
    require(0 < confidence < 1, f"confidence: {confidence}, allowed: above 0 and below 1")
    start, game, coins = time.perf_counter(), game_of(channel), coins or np.random.default_rng()
    alpha = (1 - confidence) * (1 - _PAST) / _methods(game)
    scouted = [(play, game.play(play, trials // _SCOUTS, noise, coins)) for play in game.scouted]
    play, sample, family = _scout(game, scouted, noise, coins, alpha)
    seen = game.play(play, trials, noise, coins)
    bounds = [_two_sample(game, seen, sample, alpha), _one_run(game, seen, alpha), *_kind(game, seen, family, alpha)]
    return AuditResult(
        claim=claim_of(channel),
        accounted=game.channel.spent(game.channel.budget.releases) or 0.0,
        bounds=tuple(bounds),
        play=play.name,
        trials=seen.truth.size,
        integers=seen.integers,
        dtypes=tuple(sorted(seen.dtypes)),
        confidence=confidence,
        seconds=time.perf_counter() - start,
        past=_past(scouted[1][1], game.channel.budget.releases, (1 - confidence) * _PAST),
    )


def game_of(channel: Channel) -> Game:
    """The game of a channel.

    Raises:
        InputError: the channel claims nothing, or its claims are of another kind.
    """
    if isinstance(channel, NoisyProxies) and claim_of(channel).epsilon is not None:
        return Rows(channel)
    if isinstance(channel, HistogramProxies) and claim_of(channel).epsilon is not None:
        return Histograms(channel)
    raise InputError(
        f"channel: {channel.name}, which claims no epsilon here; allowed: noisy or histogram, not insecure"
    )


def claim_of(channel: Channel) -> PrivacyClaim:
    """What is audited."""
    return channel.claims()[0]


def draws(channel: Channel, trials: int) -> int:
    """Random numbers that an audit of so many trials takes, if the channel is sound."""
    game = game_of(channel)
    costs = [game.draws(play) for play in game.scouted]
    return sum(costs) * (trials // _SCOUTS) + costs[0] * trials


def _scout(
    game: Game, scouted: Sequence[tuple[Play, Seen]], noise: NoiseSource, coins: np.random.Generator, alpha: float
) -> tuple[Play, _Cut, _Cut]:
    """The play to measure on fresh trials, and the best cuts in it: for any mechanism, and for the family.

    What `beyond`, the second play, asks for is scouted as well, and goes before the play that suits sound channels.
    """
    learned = learn(scouted[1][1], game.channel.budget.releases)
    if learned is not None:
        scouted = [(learned, game.play(learned, scouted[1][1].truth.size, noise, coins)), *scouted]
    play, seen = _chosen(scouted, lambda entry, level: _promise(game, entry[1], alpha, level), alpha)
    return play, _cut(seen, _epsilons(game), alpha), _cut(seen, gaussian_mu, alpha)


def _past(seen: Seen, releases: int, alpha: float) -> bool:
    """Whether the first round past the budget, or as many as the budget's, tell the canaries apart."""
    apart = past(seen, releases)
    return bool(max(apart[0], apart[releases - 1]) > stdtrit(seen.truth.size - 2, 1 - alpha / 2))


def _chosen(options: Sequence[_Option], promise: Callable[[_Option, float], float], alpha: float) -> _Option:
    """The first option, which is best for a sound channel, unless a later one surely promises more than it seems to.

    Args:
        options: to choose from.
        promise: the bound of an option at an error level.
        alpha: the error level of being sure.
    """
    bar = promise(options[0], _LIKELY)
    more = [0.0, *(promise(option, alpha) - bar for option in options[1:])]
    return options[int(np.argmax(more))]


def _promise(game: Game, seen: Seen, alpha: float, level: float) -> float:
    """The most that is certified at an error level, but for the choice of the cuts, which is made at alpha."""
    sample, family = _cut(seen, _epsilons(game), alpha), _cut(seen, gaussian_mu, alpha)
    bounds = [_two_sample(game, seen, sample, level), *_kind(game, seen, family, level)]
    return max(bound.epsilon for bound in bounds)


def _cut(seen: Seen, bound: Callable[[Rates], NDArray[np.float64]], alpha: float) -> _Cut:
    """The score and the threshold to use."""
    cuts = [_Cut(name, best_threshold(*seen.of(name), bound, alpha=alpha)) for name in seen.scores]

    def promise(cut: _Cut, level: float) -> float:
        return float(bound(_measured(seen, cut, level)[0])[0])

    return _chosen(cuts, promise, alpha)


def _epsilons(game: Game) -> Callable[[Rates], NDArray[np.float64]]:
    delta = _delta(game)
    return lambda found: two_sample(found, delta)


def _delta(game: Game) -> float:
    return claim_of(game.channel).delta or 0.0


def _measured(seen: Seen, cut: _Cut, alpha: float) -> tuple[Rates, str]:
    """The rates of a cut on fresh trials, and the words for them."""
    found = rates(*seen.of(cut.score), np.array([cut.threshold]), alpha=alpha)
    return found, f"{cut.score}: TPR at least {found.tpr[0]:.3g}, FPR at most {found.fpr[0]:.3g}"


def _two_sample(game: Game, seen: Seen, cut: _Cut, alpha: float) -> Bound:
    found, how = _measured(seen, cut, alpha)
    return Bound("two-sample", float(two_sample(found, _delta(game))[0]), how)


def _adds_up(game: Game) -> bool:
    """Whether Gaussian noise is wide enough for sums of it to be Gaussian."""
    return isinstance(game.family, Gaussians) and game.noise >= _LEAST_NOISE


def _holds(game: Game) -> bool:
    """Whether the family's trade-off function is the mechanism's: narrow noise must be on one integer alone."""
    return not isinstance(game.family, Gaussians) or _adds_up(game) or game.integers == 1


def _methods(game: Game) -> int:
    """How many share the error."""
    return 2 + _holds(game) + _adds_up(game)


def _kind(game: Game, seen: Seen, cut: _Cut, alpha: float) -> list[Bound]:
    """The bounds for noise of the claimed kind, of those that are valid."""
    bounds = [_family(game, seen, cut, alpha)] if _holds(game) else []
    if isinstance(game.family, Gaussians) and _adds_up(game):
        bounds.append(_sum(game.family, seen, alpha))
    return bounds


def _family(game: Game, seen: Seen, cut: _Cut, alpha: float) -> Bound:
    found, how = _measured(seen, cut, alpha)
    return Bound("trade-off", game.family.epsilon(game.family.strength(found)), how)


def _one_run(game: Game, seen: Seen, alpha: float) -> Bound:
    scores, truth = seen.scores[LIKELIHOOD][:ONE_RUN], seen.truth[:ONE_RUN]
    guesses = _guesses(game.imagined(scores.size, np.random.default_rng(0)))
    epsilon = one_run(scores, truth, guesses=guesses, delta=_delta(game), alpha=alpha)
    return Bound("one-run", epsilon, f"{guesses} guesses on {scores.size} canaries")


def _guesses(ratios: Scores) -> int:
    """How many guesses certify most if the claim is exact: the surest are few, and many average out more.

    The share of right guesses that is expected, less two standard errors and two guesses.
    """
    sure = 1 / (1 + np.exp(-np.sort(np.abs(ratios))[::-1]))
    count = np.arange(1, sure.size + 1)
    right = np.cumsum(sure) / count
    low = right - 2 * np.sqrt(right * (1 - right) / count) - 2 / count
    return max(2, (int(np.argmax(low)) + 1) // 2 * 2)


def _sum(family: Gaussians, seen: Seen, alpha: float) -> Bound:
    mu = gaussian_sum(seen.scores[LIKELIHOOD], seen.truth, alpha=alpha)
    return Bound("sum", family.epsilon(mu), f"mu at least {mu:.4g} from the means of {seen.truth.size} canaries")
