"""FedGR's server half: a round as the paper tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.aggregate import average
from fedgr_secure.context import AskCohort, ServerContext
from fedgr_secure.method.messages import Observe, Proxies, Revise
from fedgr_secure.method.sieve import Mixture, MixtureSettings, fit_mixture, judge
from fedgr_secure.wire import Weights
from privacy.channels.plain import PlainProxies


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
        """One round: observe, sieve, refine and revise and train (on the clients), aggregate."""
        mixture = None
        if self._config.sieve:
            proxies = cohort.ask(Observe(number, self.state.weights), expect=Proxies)
            mixture = self._sieve(number, proxies)
            updates = cohort.ask(self._verdicts(number, mixture, proxies))
        else:
            updates = cohort.ask(Revise(number, self.state.weights, None, None, None))
        self.state = FedGRServerState(average(self.state.weights, updates), self.state.newest)
        return mixture

    def _sieve(self, number: int, proxies: Mapping[int, Proxies]) -> Mixture:
        """Step 2: one mixture over the cohort's proxies, or over the newest of everyone seen so far."""
        uploads = {client: reply.upload for client, reply in proxies.items()}
        if self._config.mixture_data == "all_seen":
            rows = {str(client): self._channel.rows(upload) for client, upload in uploads.items()}
            newest = self.state.newest | {client: row.astype(np.float32) for client, row in rows.items()}
            self.state = FedGRServerState(self.state.weights, newest)
            uploads = {int(client): {"proxies": row} for client, row in newest.items()}
        seed = self._randomness.integer("mixture", round=number)
        settings = MixtureSettings(tied=self._config.variances == "tied")
        return fit_mixture(self._channel.pool(uploads).values, seed=seed, settings=settings)

    def _verdicts(self, number: int, mixture: Mixture, proxies: Mapping[int, Proxies]) -> Revise | dict[int, Revise]:
        """The mixture's parameters to everyone, or q and r_k to each client alone, as published."""
        if self._config.decide_at == "client":
            return Revise(number, None, mixture, None, None)
        verdicts = {client: judge(mixture, self._channel.rows(reply.upload)) for client, reply in proxies.items()}
        return {client: Revise(number, None, None, v.q, v.noise_rate) for client, v in verdicts.items()}
