"""FedNoRo (Wu et al. 2023, IJCAI): find the noisy clients by their losses of each class, then train them apart.

Stage 1 is the warm-up: cross-entropy with logits that are adjusted by the client's own class prior. Then every client
says its mean loss of each class under the global model, and a mixture over the clients' vectors tells noisy from clean
ones. In stage 2 a noisy client leans more and more on the global model's predictions, and its update counts the less
the farther it is from the nearest clean one.

What is ours, or differs from the published code:

* The paper's clients all take part in every round, and all are measured under one model. Here a client says its losses
  the first time that it is drawn from the last complete sweep of the warm-up on, under that round's model; the clients
  are told apart anew whenever one is new, which after a complete sweep none is.
* A class that a client lacks has a prior as if half a sample of it were there; its logarithm would be minus infinity.
* A class in which all clients have the same loss says nothing (0); the code divides 0 by 0.
* Without a clean or without a noisy client in a round, or when all models are alike, the mean is FedAvg's; the code
  divides 0 by 0.
* Distances are between whole models, as in the paper; the code adds the distances of single tensors up.
* The global model predicts once a round, on images as they are; the code has it predict each batch as augmented.
* Its weight rises over all rounds of stage 2; in the code over rounds 10 to 49 of 100 (`--distillation-rounds 39`).
* SGD as for every method here; the paper trains medical images by Adam.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F

from fedgr_secure.baseline_sections import UNSUMMED
from fedgr_secure.baselines.class_losses import (
    ClassLosses,
    Measure,
    check_alike,
    check_said,
    class_vectors,
    distance_weights,
    noisy_clients,
)
from fedgr_secure.baselines.logit_adjustment import AdjustedLoss, log_prior
from fedgr_secure.baselines.task import local_task
from fedgr_secure.context import AskCohort, ClientContext, Method, ServerContext
from fedgr_secure.messages import Update
from fedgr_secure.training import TrainingTask
from fedgr_secure.wire import Array, Weights
from privacy.claims import no_privacy

_VOTES = 9


@dataclass(frozen=True)
class TrainAs:
    """Server to client: train from these weights, as a clean or as a noisy client."""

    round: int
    weights: Weights
    noisy: bool


def ramp(step: int, length: int) -> float:
    """exp(-5 (1 - t)^2) with t from 0 to 1 over `length` rounds (Wu et al. 2023).

    >>> [round(ramp(step, 10), 4) for step in (0, 5, 10, 99)]
    [0.0067, 0.2865, 1.0, 1.0]
    """
    return math.exp(-5 * (1 - min(step / length, 1.0)) ** 2)


class NoRoClient:
    """One client in one round; it keeps nothing between rounds."""

    def __init__(self, context: ClientContext) -> None:
        self.state = None
        self._context = context
        self._config = context.config.fednoro

    def answer(self, message: Measure | TrainAs) -> ClassLosses | TrainingTask:
        """The losses of each class, or a local training."""
        return self._losses(message) if isinstance(message, Measure) else self._task(message)

    def _losses(self, message: Measure) -> ClassLosses:
        shard = self._context.shard
        losses = self._context.bench.predict(message.weights, shard.images()).losses(shard.labels)
        return ClassLosses.of(message.round, losses, shard.labels, self._context.classes)

    def _task(self, message: TrainAs) -> TrainingTask:
        shard, bench, config = self._context.shard, self._context.bench, self._context.config
        columns, weight = {"labels": torch.from_numpy(shard.labels)}, 0.0
        if message.noisy:
            logits = bench.predict(message.weights, shard.images()).logits
            columns["soft"] = F.softmax(logits / self._config.distillation_temperature, dim=1)
            first, rounds = config.federation.warmup, config.federation.rounds
            length = self._config.distillation_rounds or max(rounds - 1 - first, 1)
            weight = self._config.distillation_weight * ramp(message.round - first, length)
        prior = torch.from_numpy(log_prior(shard.labels, self._context.classes)).to(bench.device)
        return local_task(
            self._context,
            message.round,
            message.weights,
            AdjustedLoss(prior, weight),
            columns=columns,
        )


@dataclass(frozen=True)
class NoRoState:
    """The global weights, and by client number what each has said of its classes."""

    weights: Weights
    losses: dict[str, Array]
    counts: dict[str, Array]


class NoRoServer:
    """Measure every client once, tell noisy from clean ones, send roles, average."""

    def __init__(self, context: ServerContext, state: NoRoState | None) -> None:
        self.state = state or NoRoState(context.initial_weights, {}, {})
        self._context = context

    def round(self, number: int, cohort: AskCohort) -> None:
        """One round."""
        federation, weights = self._context.config.federation, self.state.weights
        sweep = -(-federation.clients // federation.cohort)
        if number >= max(federation.warmup // sweep - 1, 0) * sweep:
            self._measure(number, cohort)
        if number < federation.warmup:
            weights = cohort.average(TrainAs(number, weights, noisy=False), weights)
        else:
            noisy = self._noisy()
            tasks = {client: TrainAs(number, weights, client in noisy) for client in cohort.clients}
            said = {client: int(self.state.counts[str(client)].sum()) for client in cohort.clients}
            weights = cohort.average(
                tasks, weights, samples=said, weigh=lambda updates: distance_weights(updates, noisy)
            )
        self.state = replace(self.state, weights=weights)

    def _measure(self, number: int, cohort: AskCohort) -> None:
        """Ask those of the cohort who have not said their losses."""
        new = [client for client in cohort.clients if str(client) not in self.state.losses]
        found = cohort.ask(dict.fromkeys(new, Measure(number, self.state.weights)), expect=ClassLosses)
        losses = self.state.losses | {str(client): reply.losses for client, reply in found.items()}
        counts = self.state.counts | {str(client): reply.counts for client, reply in found.items()}
        check_alike(counts)
        self.state = replace(self.state, losses=losses, counts=counts)

    def _noisy(self) -> frozenset[int]:
        """The noisy ones of all clients that have said their losses; a pure function of what they said."""
        clients = sorted(map(int, self.state.losses))
        losses, counts = (np.stack([of[str(c)] for c in clients]) for of in (self.state.losses, self.state.counts))
        seeds = (self._context.randomness.integer("noisy clients", client=vote) for vote in range(_VOTES))
        found = noisy_clients(class_vectors(losses, counts), seeds)
        return frozenset(client for client, is_noisy in zip(clients, found, strict=True) if is_noisy)


FEDNORO = Method(
    name="fednoro",
    source="Wu et al. 2023, IJCAI",
    stages="warm-up with adjusted logits; noisy clients found by their losses; these then learn from the global model",
    client=lambda context, state: NoRoClient(context),
    server=NoRoServer,
    messages=(Measure, ClassLosses, TrainAs, Update),
    client_state=None,
    server_state=NoRoState,
    claims=lambda config, channel, weights: (
        no_privacy(
            "class-wise losses",
            "plain",
            "The server sees, once, every client's mean loss and number of samples of each class.",
        ),
        weights,
    ),
    check_server=lambda state, samples: check_said(state.losses, state.counts, samples),
    uploads="its mean loss and number of samples of each class, once",
    under_secure_sum=f"nothing: {UNSUMMED['fednoro']}",
)
