"""FedGR's server half: a round as the paper tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.context import AskCohort, ServerContext
from fedgr_secure.errors import InputError
from fedgr_secure.method.messages import Observe, Proxies, Revise
from fedgr_secure.method.sieve import Mixture, MixtureSettings, fit_mixture, judge
from fedgr_secure.wire import Weights
from privacy.channels.plain import PlainProxies, ProxySample, Upload, UploadError


@dataclass(frozen=True)
class FedGRServerState:
    """What the server remembers: the global weights, and every client's newest proxies when all of them are pooled."""

    weights: Weights
    newest: dict[str, NDArray[np.float32]]


class FedGRServer:
    """The server. It holds no data and no client; it only sees the messages that `cohort.ask` returns."""

    def __init__(self, context: ServerContext, state: FedGRServerState | None, channel: PlainProxies) -> None:
        self.state = state or FedGRServerState(context.initial_weights, newest={})
        self._config = context.config.fedgr
        self._randomness = context.randomness
        self._channel = channel

    def round(self, number: int, cohort: AskCohort) -> Mixture | None:
        """One round: observe, sieve, refine and revise and train (on the clients), aggregate.

        Raises:
            InputError: a client's upload is not one of the channel's, or has not one proxy per sample.
        """
        mixture, weights = None, self.state.weights
        if self._config.sieve:
            proxies = cohort.ask(Observe(number, weights), expect=Proxies)
            uploads = {client: reply.upload for client, reply in proxies.items()}
            mixture = self._sieve(number, uploads)
            sizes = {client: len(self._channel.rows(client, upload)) for client, upload in uploads.items()}
            new = cohort.average(self._verdicts(number, mixture, uploads), weights, samples=sizes)
        else:
            new = cohort.average(Revise(number, weights, None, None, None), weights)
        self.state = FedGRServerState(new, self.state.newest)
        return mixture

    def _sieve(self, number: int, uploads: Mapping[int, Upload]) -> Mixture:
        """Step 2: one mixture over the cohort's proxies, or over the newest of everyone seen so far."""
        sample = self._pool(uploads)
        if self._config.mixture_data == "all_seen":
            rows = {str(client): self._channel.rows(client, upload) for client, upload in uploads.items()}
            newest = self.state.newest | {client: row.astype(np.float32) for client, row in rows.items()}
            self.state = FedGRServerState(self.state.weights, newest)
            sample = self._pool({int(client): {"proxies": row} for client, row in newest.items()})
        seed = self._randomness.integer("mixture", round=number)
        settings = MixtureSettings(tied=self._config.variances == "tied")
        return fit_mixture(sample.values, seed=seed, settings=settings)

    def _pool(self, uploads: Mapping[int, Upload]) -> ProxySample:
        try:
            return self._channel.pool(uploads)
        except UploadError as error:
            raise InputError(str(error)) from None

    def _verdicts(self, number: int, mixture: Mixture, uploads: Mapping[int, Upload]) -> Revise | dict[int, Revise]:
        """The mixture's parameters to everyone, or q and r_k to each client alone, as published."""
        if self._config.decide_at == "client":
            return Revise(number, None, mixture, None, None)
        verdicts = {client: judge(mixture, self._channel.rows(client, upload)) for client, upload in uploads.items()}
        return {client: Revise(number, None, None, v.q, v.noise_rate) for client, v in verdicts.items()}
