"""FedGR's server half: a round as the paper tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.context import AskCohort, ServerContext, Tally
from fedgr_secure.errors import InputError
from fedgr_secure.method.evidence import Evidence, NoisyCounts, NoisyValues, combine
from fedgr_secure.method.fit import fit_evidence, noisy_verdict
from fedgr_secure.method.messages import Observe, Proxies, Revise
from fedgr_secure.method.sieve import Mixture, MixtureSettings, Verdict, fit_mixture, judge, nothing_known
from fedgr_secure.wire import Array, Weights
from privacy.channels.channel import NoiseKind, RowChannel, Rows, Upload, UploadError, pooled
from privacy.channels.histogram import HistogramProxies


@dataclass(frozen=True)
class FedGRServerState:
    """What the server remembers.

    Attributes:
        weights: the global model.
        newest: float32, every client's newest proxies by client number, when all of them are pooled.
        mixture: the newest one; None before the first.
        window: the decayed sum of the released histograms (`remembered`); empty before the first.
        asked: by client number, for how many histograms it was asked (a whole number, as an array).
    """

    weights: Weights
    newest: dict[str, NDArray[np.float32]]
    mixture: Mixture | None
    window: dict[str, Array]
    asked: dict[str, Array]


class FedGRServer:
    """The server. It holds no data and no client; it only sees the messages that the cohort returns."""

    def __init__(self, context: ServerContext, state: FedGRServerState | None) -> None:
        self.state = state or FedGRServerState(context.initial_weights, {}, None, {}, {})
        self._config = context.config.fedgr
        self._decay = context.config.proxies.window_decay
        self._randomness = context.randomness
        self._channel = context.channel

    def round(self, number: int, cohort: AskCohort) -> Mixture | None:
        """One round: observe, sieve, refine and revise and train (on the clients), aggregate.

        Returns:
            The mixture that was fitted in this round, if one was.

        Raises:
            InputError: a client's upload is not one of the channel's, or has not one proxy per sample.
        """
        state = self.state
        if not self._config.sieve:
            self._train(cohort, Revise(number, state.weights, None, None, None))
            return None
        if isinstance(self._channel, HistogramProxies):
            return self._round_of_counts(self._channel, number, cohort)
        if not self._channel.due(number):
            self._train(cohort, Revise(number, state.weights, state.mixture or nothing_known(), None, None))
            return None
        return self._round_of_rows(cast(RowChannel, self._channel), number, cohort)

    def _train(
        self, cohort: AskCohort, message: Revise | Mapping[int, Revise], samples: Mapping[int, int] | None = None
    ) -> None:
        """Steps 3 to 5 on the clients, and the average of what they learned."""
        weights = cohort.average(message, self.state.weights, samples=samples)
        self.state = replace(self.state, weights=weights)

    # every client's proxies, noisy or not

    def _round_of_rows(self, channel: RowChannel, number: int, cohort: AskCohort) -> Mixture:
        replies = cohort.ask(Observe(number, self.state.weights), expect=Proxies)
        rows = {client: self._read(channel, client, reply.upload) for client, reply in replies.items()}
        mixture = self._sieve(number, rows)
        sizes = {client: len(row.values) for client, row in rows.items()}
        self._train(cohort, self._verdicts(number, mixture, rows), sizes)
        return mixture

    def _read(self, channel: RowChannel, client: int, upload: Upload) -> Rows:
        try:
            return channel.rows(client, upload)
        except UploadError as error:
            raise InputError(str(error)) from None

    def _sieve(self, number: int, rows: Mapping[int, Rows]) -> Mixture:
        """Step 2: one mixture over the cohort's proxies, or over the newest of everyone seen so far."""
        values, sds = pooled(rows)
        if self._config.mixture_data == "all_seen":
            newest = self.state.newest | {str(client): row.values.astype(np.float32) for client, row in rows.items()}
            self.state = replace(self.state, newest=newest)
            values, sds = pooled({int(client): Rows(row.astype(np.float64)) for client, row in newest.items()})
        kinds = {row.kind for row in rows.values()}
        if sds.any():
            kind: NoiseKind = "laplace" if kinds == {"laplace"} else "gaussian"
            return self._fitted(number, NoisyValues(values, sds, kind, (0.0, self._channel.largest)))
        seed = self._randomness.integer("mixture", round=number)
        mixture = fit_mixture(values, seed=seed, settings=MixtureSettings(tied=self._config.variances == "tied"))
        self.state = replace(self.state, mixture=mixture)
        return mixture

    def _fitted(self, number: int, evidence: Evidence) -> Mixture:
        """The mixture under noise of a known size."""
        seed = self._randomness.integer("mixture", round=number)
        mixture = fit_evidence(evidence, seed=seed, variances=self._config.variances)
        self.state = replace(self.state, mixture=mixture)
        return mixture

    def _verdicts(self, number: int, mixture: Mixture, rows: Mapping[int, Rows]) -> Revise | dict[int, Revise]:
        """The mixture's parameters to everyone, or q and r_k to each client alone, as published."""
        if self._config.decide_at == "client":
            return Revise(number, None, mixture, None, None)
        verdicts = {client: self._judge(mixture, row) for client, row in rows.items()}
        return {client: Revise(number, None, None, v.q, v.noise_rate) for client, v in verdicts.items()}

    def _judge(self, mixture: Mixture, row: Rows) -> Verdict:
        if row.sd == 0:
            return judge(mixture, row.values)
        return noisy_verdict(mixture, NoisyValues(row.values, np.full(len(row.values), row.sd), row.kind))

    # the cohort's counts alone

    def _round_of_counts(self, channel: HistogramProxies, number: int, cohort: AskCohort) -> Mixture | None:
        """Where a release is due, the mixture of the newest histograms; then the training, with the newest there is."""
        mixture, tally = None, None
        if channel.due(number) and self._has_budget(channel, cohort.clients):
            tally = cohort.tally(Observe(number, self.state.weights), self.state.weights, expect=Proxies)
            counted = {str(client): np.array(self._asked(client) + 1) for client in cohort.clients}
            self.state = replace(self.state, asked=self.state.asked | counted)
            mixture = self._of_counts(channel, number, tally) if tally is not None else None
        newest = self.state.mixture or nothing_known()
        weights = None if tally is not None else self.state.weights  # after a sum that was given up some lack them
        self._train(cohort, Revise(number, weights, newest, None, None))
        return mixture

    def _asked(self, client: int) -> int:
        return int(self.state.asked.get(str(client), 0))

    def _has_budget(self, channel: HistogramProxies, clients: tuple[int, ...]) -> bool:
        """Whether anybody's proxies would be in the counts: noise alone is not worth a sum."""
        return any(self._asked(client) < channel.budget.releases for client in clients)

    def _of_counts(self, channel: HistogramProxies, number: int, tally: Tally) -> Mixture:
        counts = tally.counts.astype(np.float64)
        new = NoisyCounts(
            edges=np.asarray(channel.edges),
            counts=counts,
            variance=channel.variance(len(tally.contributors)),
            total=max(float(counts.sum()), 1.0),
        )
        window = combine(recalled(channel.edges, self.state.window), new, self._decay)
        self.state = replace(self.state, window=remembered(window))
        return self._fitted(number, window)


def remembered(window: NoisyCounts) -> dict[str, Array]:
    """The decayed sum of histograms as arrays for the server's state; the channel knows the edges."""
    names = ("counts", "variance", "total", "sampling")
    return {name: np.asarray(getattr(window, name), dtype=np.float64) for name in names}


def recalled(edges: tuple[float, ...], arrays: Mapping[str, Array]) -> NoisyCounts | None:
    """The decayed sum of histograms from the server's state; None before the first.

    Raises:
        InputError: the arrays are not those of a histogram with these edges.
    """
    if not arrays:
        return None
    try:
        total, sampling = float(arrays["total"]), float(arrays["sampling"])
        return NoisyCounts(np.asarray(edges), arrays["counts"], arrays["variance"], total, sampling)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"window: {error}, allowed: counts, variance, total and sampling of a histogram") from None
