"""One run as attacks find it: its challenger, what the server knows, and what all attacks share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attacks.games import AnyClient, Candidates, Challenger, Game, challenge
from attacks.histogram import CountReader
from attacks.knowledge import Knowledge, LogProbabilities, know, losses_of
from attacks.local_models import LocalReader, SureReader
from attacks.matching import Matcher
from attacks.means import MeanReader
from attacks.observed import Observed
from attacks.shadows import Labelled, Shadows, train_shadows
from attacks.statements import GroupMean
from attacks.subsets import SubsetReader
from fedgr_secure.errors import require
from privacy.channels.histogram import HistogramProxies

_MOST_REFERENCES = 300
_MOST_SHADOWS = 1024


@dataclass(frozen=True)
class Arena:
    """One run, its challenger and the server's knowledge, with everything that attacks share.

    Attributes:
        challenger: holds the truth.
        knowledge: the server's.
        seed: of candidates, their labels and the references.
        shadows: how many shadow federations are trained for the attacks that need any; 0: these are left out.
    """

    challenger: Challenger
    knowledge: Knowledge
    seed: int = 0
    shadows: int = 0

    def _draw(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, purpose])

    @cached_property
    def known(self) -> LogProbabilities:
        """What every global model says of the pool of images."""
        return self.knowledge.log_probabilities(self.challenger.pool)

    @cached_property
    def _outside(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """References, and the records from outside that are left for the games: never the same image."""
        order = self._draw(0).permutation(len(self.challenger.outside))
        count = min(_MOST_REFERENCES, len(order) // 2)
        return order[:count], order[count:]

    @cached_property
    def references(self) -> Candidates:
        """Records that the attacker has, with labels by the noise of random clients."""
        records, draw = self._outside[0], self._draw(1)
        return self.challenger.others(draw.choice(self.challenger.members.client, len(records)), records, draw)

    def candidates(self, game: Game) -> Candidates:
        """The game's candidates; the same for every attack."""
        return game.sample(self.challenger, self._outside[1], self._draw(2))

    def matcher(self, rows: dict[int, Observed] | None = None) -> Matcher:
        """Matches the run's rows, or a variant of them."""
        rows = self.knowledge.observed if rows is None else rows
        return Matcher(self.knowledge, rows, self.known, self.references)

    @cached_property
    def counts(self) -> CountReader:
        """Reads the opened sums of counts."""
        channel = self.knowledge.channel
        assert isinstance(channel, HistogramProxies)
        return CountReader(self.knowledge, channel, self.known, self.references)

    @cached_property
    def means(self) -> MeanReader:
        """Reads what clients said of groups of their records."""
        return MeanReader(self.knowledge, self._numbers, self.references)

    @cached_property
    def subsets(self) -> SubsetReader:
        """Reads the same from a list that has all records of a group."""
        return SubsetReader(self.knowledge, self._numbers, self.references)

    @cached_property
    def local_models(self) -> LocalReader:
        """Reads the clients' own models."""
        return LocalReader(self.knowledge, self.challenger.pool)

    @cached_property
    def sure_models(self) -> SureReader:
        """Reads how sure they are."""
        return SureReader(self.local_models)

    def _numbers(self, group: GroupMean, candidates: Candidates) -> NDArray[np.float64]:
        """What each record would put into a group's mean, float64 (n, d)."""
        if group.kind == "features":
            if group.round not in self._features:
                self._features[group.round] = self.knowledge.features(group.round, self.challenger.pool)
            return self._features[group.round][candidates.image]
        place = self.knowledge.rounds.index(group.round)
        losses = losses_of(self.known[[place]], candidates.labels, candidates.image).T
        return losses if group.kind == "loss" else np.hstack([losses, losses**2])

    @cached_property
    def _features(self) -> dict[int, NDArray[np.float64]]:
        return {}

    @property
    def has_rows(self) -> bool:
        """Whether the server saw a number for each sample."""
        return bool(self.knowledge.uploads)

    @property
    def has_counts(self) -> bool:
        """Whether the server opened histograms."""
        return bool(self.knowledge.releases)

    @cached_property
    def shadowed(self) -> Shadows:
        """What shadow federations, each on half of the candidates of the game `any`, say of them and of references."""
        challenger, candidates = self.challenger, self.candidates(AnyClient())
        truth = challenger.truth
        return train_shadows(
            self.knowledge.config,
            challenger.data.spec,
            Labelled(challenger.pool[candidates.image], candidates.labels),
            Labelled(truth.test.take(np.arange(len(truth.test))), truth.test_labels),
            shadows=self.shadows,
            seed=self.seed,
            population=challenger.pool[self.references.image],
        )

    def losses(self, candidates: Candidates) -> NDArray[np.float64]:
        """Of candidates under every global model, float64 (rounds, n)."""
        return losses_of(self.known, candidates.labels, candidates.image)


def arena(run: Path, *, seed: int = 0, shadows: int = 0) -> Arena:
    """Everything about a finished run whose view was recorded.

    Raises:
        InputError: no finished run, nothing recorded, or too few records from outside.
    """
    require(0 <= seed < 2**63, f"seed: {seed}, allowed: a whole number from 0, below 2^63")
    require(
        shadows == 0 or 3 <= shadows <= _MOST_SHADOWS,
        f"shadows: {shadows}, allowed: 0, or from 3 (LiRA needs a variance) to {_MOST_SHADOWS}",
    )
    return Arena(challenge(run, seed=seed), know(run), seed, shadows)
