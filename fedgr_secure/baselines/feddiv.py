"""FedDiv (Li et al. 2024, AAAI): one noise filter for all clients, the mean of the mixtures that each fits alone.

After a warm-up on the given labels each client fits a mixture to its losses under the global model, starting from the
global filter, and uploads the six numbers. The server keeps everybody's newest and sends their mean back; by it a
client tells clean samples (p >= 0.5) from others. A client with more than a tenth of others is noisy: it takes those on
which the global model is sure, with the label that this predicts, and leaves the rest out. While it trains, a sample
counts only where the local model, its logits freed of its own leaning to some classes, predicts what the global one
does. What counts is blended by mixup, with a term that holds the mean prediction near equal shares.

What is ours, or differs from the published code:

* The six numbers are averaged by n_k, each by itself. The code scales the variances by squared weights, as if the mean
  were of random variables; but the filter is to be like the clients' own.
* A round first asks for the filters and then sends their mean, so that it judges losses of the model it was fitted to.
* A client whose losses are constant, or are fewer than two, has no filter; without any, everything counts as clean.
* Filters are of losses in nats under the global model; the code scales each client's losses to 0..1 first, and fits to
  those of the model that its training ended with.
* What the local model predicts is asked anew of every batch. The code asks once, of the model that the client's last
  training ended with, from a client's sixth training on; before that it takes the clean samples alone, and it asks no
  client that is not noisy. It takes relabelled ones only from a client with more than a fifth of others.
* No mixup in the warm-up, where the code has it as later.
* The leaning is the running mean of the local predictions, p = 0.2 p + 0.8 (mean of the batch), from equal shares at
  each start; the code has 0.2 and the factor 0.5 of its logarithm the other way round, keeps p from training to
  training, and takes the mean over predictions above 0.85.
* Samples that do not count are left out of the loss, not of the batch, which may hold one sample for BatchNorm; a batch
  in which none counts teaches nothing, and neither does a client without a sample that it can use.
* The weight of the equal shares is 1, or 0 where the partition is IID, as in the paper (`--prior-weight`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgr_secure.baselines.consistency import ConsistentLoss, usable
from fedgr_secure.baselines.fedavg import given_labels
from fedgr_secure.baselines.filters import (
    FitFilter,
    LocalFilter,
    Refine,
    check_filters,
    local_filter,
    mean_filter,
    rows_of,
)
from fedgr_secure.baselines.task import local_task
from fedgr_secure.baselines.verdicts import NO_VERDICT, check_verdict, newest
from fedgr_secure.context import AskCohort, ClientContext, Method, ServerContext
from fedgr_secure.messages import Train, Update
from fedgr_secure.method.sieve import Mixture, Verdict, judge
from fedgr_secure.training import Objective, Prediction, TrainingTask
from fedgr_secure.wire import Array, Weights
from privacy.claims import no_privacy


class DivClient:
    """One client in one round; it keeps its verdict by the global filter."""

    def __init__(self, context: ClientContext, state: Verdict | None) -> None:
        self.state = state or NO_VERDICT
        self._context = context
        self._config = context.config.feddiv
        self._weights: Weights = {}
        self._seen: Prediction | None = None

    def answer(self, message: Train | FitFilter | Refine) -> LocalFilter | TrainingTask:
        """A filter, or a local training."""
        if isinstance(message, FitFilter):
            return self._filter(message)
        if isinstance(message, Refine):
            return self._refine(message)
        self._weights = message.weights
        labels = self._context.shard.labels
        return self._task(message.round, given_labels, np.arange(len(labels)), {"labels": torch.from_numpy(labels)})

    def _filter(self, message: FitFilter) -> LocalFilter:
        shard, bench = self._context.shard, self._context.bench
        self._weights, self._seen = message.weights, bench.predict(message.weights, shard.images())
        seed = self._context.randomness.integer("local filter", client=shard.client, round=message.round)
        found = local_filter(self._seen.losses(shard.labels), message.filter, seed=seed)
        return LocalFilter(message.round, len(shard), found)

    def _refine(self, message: Refine) -> TrainingTask:
        shard, config, seen = self._context.shard, self._config, self._seen
        assert seen is not None, "a filter is asked for before a training"
        share, clean = seen.probabilities(), np.ones(len(shard), bool)
        if message.filter is not None:
            self.state = judge(message.filter, seen.losses(shard.labels))
            clean = self.state.q >= 0.5
        rows, labels = usable(shard.labels, clean, share, config)
        weight = config.prior_weight
        if weight is None:
            weight = 0.0 if self._context.config.partition.partition == "iid" else 1.0
        draw = self._context.randomness.numpy("mixup", client=shard.client, round=message.round)
        columns = {"labels": torch.from_numpy(labels), "expected": torch.from_numpy(share.argmax(1)[rows])}
        return self._task(message.round, ConsistentLoss(config, weight, draw), rows, columns)

    def _task(
        self, round: int, objective: Objective, rows: NDArray[np.int64], columns: Mapping[str, Tensor]
    ) -> TrainingTask:
        shard, bench = self._context.shard, self._context.bench
        enough = len(rows) >= (2 if bench.has_batch_norm else 1) or len(rows) == len(shard)
        return local_task(
            self._context,
            round,
            self._weights,
            objective,
            images=shard.images()[rows] if enough else shard.images(),
            columns=columns,
            epochs=self._context.config.training.local_epochs if enough else 0,
        )


@dataclass(frozen=True)
class DivState:
    """The global weights, and by client number the newest filters, float64 (3, 2), and numbers of samples."""

    weights: Weights
    filters: dict[str, Array]
    samples: dict[str, Array]


class DivServer:
    """Ask for filters, send their mean, average."""

    def __init__(self, context: ServerContext, state: DivState | None) -> None:
        self.state = state or DivState(context.initial_weights, {}, {})
        self._warmup = context.config.federation.warmup

    def round(self, number: int, cohort: AskCohort) -> Mixture | None:
        """One round."""
        weights, mixture, said = self.state.weights, None, None
        message: Train | Refine = Train(number, weights)
        if number >= self._warmup:
            said = self._ask(number, cohort)
            mixture = self._filter()
            message = Refine(number, mixture)
        self.state = replace(self.state, weights=cohort.average(message, weights, samples=said))
        return mixture

    def _filter(self) -> Mixture | None:
        return mean_filter(self.state.filters, self.state.samples)

    def _ask(self, number: int, cohort: AskCohort) -> dict[int, int]:
        """Take the cohort's newest filters; how many samples each client says it has."""
        found = cohort.ask(FitFilter(number, self.state.weights, self._filter()), expect=LocalFilter)
        new = {str(client): reply for client, reply in found.items() if reply.filter is not None}
        self.state = replace(
            self.state,
            filters=self.state.filters | {client: rows_of(reply.filter) for client, reply in new.items()},
            samples=self.state.samples | {client: np.array(reply.samples) for client, reply in new.items()},
        )
        return {client: reply.samples for client, reply in found.items()}


FEDDIV = Method(
    name="feddiv",
    source="Li et al. 2024, AAAI",
    stages="warm-up on the given labels; then samples by a filter that all clients share, on which two models agree",
    client=DivClient,
    server=DivServer,
    messages=(Train, FitFilter, LocalFilter, Refine, Update),
    client_state=Verdict,
    server_state=DivState,
    claims=lambda config, channel, weights: (
        no_privacy(
            "loss filter",
            "plain",
            "The server sees, in every round after the warm-up, a client's number of samples and two means, variances "
            "and weights of its losses; the weights tell its noise rate.",
        ),
        weights,
    ),
    verdict=newest,
    check_client=check_verdict,
    check_server=lambda state, samples: check_filters(state.filters, state.samples, samples),
    uploads="its number of samples and the six numbers of its mixture over losses",
    under_secure_sum="the model; not the filters, which the server keeps one a client and sees as they are",
)
