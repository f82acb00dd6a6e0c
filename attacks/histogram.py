"""Membership from secure histograms: a record's bin should hold one more than a population explains.

The server sees the noisy counts of a cohort. It can say what every bin holds on average, from references under each
contributor's own rounds, and in which bin a record would lie. The score is the log likelihood ratio of one count more
in that bin, Gaussian, summed over the releases that the named client was in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.games import Candidates
from attacks.knowledge import Knowledge, LogProbabilities, Release, losses_of
from attacks.per_client import ClientReader
from privacy.channels.histogram import HistogramProxies

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class CountReader(ClientReader):
    """Scores candidates against the opened sums of a run.

    Attributes:
        knowledge: the server's; its channel is the histogram.
        channel: the same channel.
        known: what every global model says of the pool of images.
        references: records from outside that the attacker has.
    """

    knowledge: Knowledge
    channel: HistogramProxies
    known: LogProbabilities
    references: Candidates

    def of_client(self, client: int, candidates: Candidates) -> Scores:
        """The log likelihood ratio that one client has the records, float64 (n,)."""
        found = np.zeros(len(candidates))
        for release, expected in zip(self.knowledge.releases, self._expected, strict=True):
            if not self._counted(client, release):
                continue
            bins = self._bins(client, release, candidates)
            spread = self.channel.variance(len(release.contributors)) + expected[bins]
            found += (release.counts[bins] - expected[bins] - 0.5) / spread
        return found

    def _counted(self, client: int, release: Release) -> bool:
        """Whether the client's samples can be in a sum: it contributed, and its budget was not used up."""
        counted = self.knowledge.counted
        before = sum(client in clients for number, clients in counted.items() if number < release.round)
        return client in release.contributors and before < self.channel.budget.releases

    @cached_property
    def _expected(self) -> list[NDArray[np.float64]]:
        """What each bin of each sum holds on average: every contributor's samples, spread as the references are."""
        found = []
        for release in self.knowledge.releases:
            total = np.zeros(self.channel.bins)
            for client in release.contributors:
                if self._counted(client, release):
                    bins = self._bins(client, release, self.references)
                    counts = np.bincount(bins, minlength=self.channel.bins) + 1 / self.channel.bins
                    total += self.knowledge.sizes[client] * counts / counts.sum()
            found.append(total)
        return found

    def _bins(self, client: int, release: Release, candidates: Candidates) -> NDArray[np.int64]:
        """Where a client's records would be counted."""
        drawn = [place for place in self.knowledge.drawn(client) if self.knowledge.rounds[place] <= release.round]
        losses = losses_of(self.known[drawn], candidates.labels, candidates.image)
        means = np.clip(losses, 0.0, self.knowledge.largest).mean(0)
        edges = np.asarray(self.channel.edges)
        return np.clip(np.searchsorted(edges, means, side="right") - 1, 0, self.channel.bins - 1)
