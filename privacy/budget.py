"""What a plan may spend, and what has been spent: budgets, neighbours and schedules of releases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from privacy.errors import check_whole, require

Adjacency = Literal["replace-one", "add-remove", "label", "client"]
"""Neighbouring data sets: another record in one place (numbers of records are public); one record more or less; another
label of one record; other records of one whole client."""


@dataclass(frozen=True)
class Budget:
    """The bound that everything a channel releases of one unit (a record, a label, a client) keeps.

    Attributes:
        epsilon: in nats, over all releases together.
        delta: the failure probability; below one over the number of records.
        releases: in how many a client takes part at most.
        adjacency: what the unit is.
        records: of all clients together.
        largest: records of one client at most; what the adjacency "client" is about.
    """

    epsilon: float
    delta: float
    releases: int
    adjacency: Adjacency
    records: int
    largest: int

    def __post_init__(self) -> None:
        check_whole("records", self.records, 1, 2**40)
        check_whole("records of one client", self.largest, 1, 2**31)
        require(
            math.isfinite(self.epsilon) and self.epsilon > 0,
            f"epsilon: {self.epsilon}, allowed: a finite number above 0",
        )
        require(
            0 < self.delta < 1 / self.records,
            f"delta: {self.delta}, allowed: above 0 and below 1/n = {1 / self.records:.3g} for {self.records} records "
            "(at 1/n a mechanism may publish somebody's record)",
        )
        check_whole("releases", self.releases, 1, 10**6)

    @property
    def units(self) -> int:
        """How many records change between neighbours."""
        return self.largest if self.adjacency == "client" else 1


@dataclass(frozen=True)
class Schedule:
    """In which rounds uploads are asked for.

    Attributes:
        first: the first such round.
        dense_until: every round from the first to before this one is one.
        every: from there on, every so many rounds; 0: no more.
    """

    first: int
    dense_until: int
    every: int

    def due(self, round: int) -> bool:
        """Whether this round is one.

        >>> [round for round in range(20) if Schedule(10, 12, 3).due(round)]
        [10, 11, 12, 15, 18]
        """
        if round < self.dense_until:
            return round >= self.first
        return self.every > 0 and (round - self.dense_until) % self.every == 0
