"""Secure sums of counts: the cohort's histograms, of which the server sees the total."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.federation.secure import model_digest, parameters_of, refusing
from fedgr_secure.federation.sums import Hearing, Opened, SecureSums
from fedgr_secure.sections import SecureSumConfig
from fedgr_secure.wire import Weights
from privacy.channels.histogram import HistogramProxies
from privacy.secagg import Contribution, Group, Layout, Parameters, default_colluders

PURPOSE = "histogram"


@dataclass(frozen=True)
class SecureCounts:
    """Secure sums of one histogram a client.

    Attributes:
        sums: the run's secure sums.
        parameters: of these, by how many clients are drawn.
    """

    sums: SecureSums
    parameters: Mapping[int, Parameters]

    @classmethod
    def for_run(
        cls, sums: SecureSums, settings: SecureSumConfig, channel: HistogramProxies, *, sizes: Iterable[int]
    ) -> SecureCounts:
        """Set up for one run; `sizes` are those of the cohorts to come.

        Raises:
            InputError: the counts and their noise do not fit the ring, or a cohort is too small for a sum.
        """
        with refusing():
            group = Group(PURPOSE, channel.bins, channel.largest_count, kind="count")
            return cls(sums, {size: parameters_of(Layout((group,), size, 1), settings) for size in sizes})

    def total(
        self,
        round: int,
        clients: Iterable[int],
        model: Weights,
        encode: Callable[[int], NDArray[np.int64]],
        around: Hearing,
    ) -> Opened:
        """The sum of what clients count; `encode` is asked on a client's own side, when it masks."""
        weights = dict.fromkeys(clients, 1)

        def contribute(client: int) -> Contribution:
            """One client's counts."""
            return Contribution({PURPOSE: encode(client)}, np.random.default_rng())

        return self.sums.open(
            round,
            PURPOSE,
            self.parameters[len(weights)],
            model=model_digest(model),
            weights=weights,
            contribute=contribute,
            around=around,
        )


def fewest_honest(settings: SecureSumConfig, sizes: Iterable[int]) -> int:
    """The fewest clients in any opened sum that neither vanish nor collude, whatever the server does.

    Raises:
        InputError: a cohort is too small for a sum.
    """
    fewest = []
    for size in sizes:
        with refusing():
            parameters = parameters_of(Layout((Group(PURPOSE, 1, 1, kind="count"),), size, 1), settings)
        colluders = default_colluders(size) if settings.colluders is None else settings.colluders
        fewest.append(min(parameters.honest, parameters.survivors - colluders))
    return min(fewest)
