"""FedFixer (Ji et al. 2024, AAAI): a global and a personalised model pick samples for each other on every client.

A client trains the received model and one of its own. In each batch either learns the samples whose loss is small for
the *other*, less a confidence regulariser; the personalised model is held near the received one. Only the global model
is uploaded and averaged: the personalised one never leaves its client.

The paper's abstract is all that could be read, and no code of the authors. Ours are therefore:

* every coefficient: the share that is left out, over how many rounds it grows (as in Co-teaching, `coteaching`), and
  the weights of both regularisers;
* the confidence regulariser, which is that of Cheng et al. (2021, ICLR, CORES2): less the mean loss over labels as the
  client has them, whatever the sample's own; probabilities count from 1e-8 in it, so that it has an end;
* the distance regulariser, (lambda / 2) ||v - w||^2 from the personalised model v to the received one w, over
  parameters; it moves v alone;
* samples are picked by their cross-entropy, without the regulariser, and both models learn in the same step;
* the personalised model starts as the model that the client receives first. Only the distance tells both apart in
  that training, from its second step on: after a single step the personalised model is still what is uploaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedgr_secure.aggregate import check_weights
from fedgr_secure.baselines.coteaching import forget_share, picked, smallest
from fedgr_secure.baselines.fedavg import AveragingServer, ProximalTerm, ServerState
from fedgr_secure.baselines.task import local_task
from fedgr_secure.context import ClientContext, Method
from fedgr_secure.messages import Train, Update
from fedgr_secure.models.several import each_output
from fedgr_secure.training import OWN, Forward, TrainingTask
from fedgr_secure.wire import Weights

_LEAST = 1e-8


@dataclass(frozen=True)
class FixerState:
    """What a client keeps: its personalised model; empty before its first training."""

    personal: Weights


@dataclass(frozen=True)
class Picking:
    """Each model's regularised loss on the samples that the other one picks; the sum of both, in nats.

    Attributes:
        forget: the share of a batch that is left out.
        confidence: weight of the confidence regulariser.
        labels: float (C,), the shares of the client's labels.
    """

    forget: float
    confidence: float
    labels: Tensor

    def __call__(self, parameters: Mapping[str, Tensor], batch: Mapping[str, Tensor], forward: Forward) -> Tensor:
        """Scalar. One batch is looked at as a whole: a sample's part depends on the others' losses."""
        given, logits = batch["labels"], [output.logits for output in each_output(forward, batch["images"])]
        first, second = (F.cross_entropy(each, given, reduction="none") for each in logits)
        count = picked(len(given), self.forget)
        for_first, for_second = smallest(second, count), smallest(first, count)
        learnt = first[for_first].mean() + second[for_second].mean()
        return learnt - self.confidence * (self.doubt(logits[0][for_first]) + self.doubt(logits[1][for_second]))

    def doubt(self, logits: Tensor) -> Tensor:
        """The mean loss over labels as the client has them; a scalar in nats."""
        return -((F.softmax(logits, dim=1) + _LEAST).log() @ self.labels).mean()


@dataclass(frozen=True)
class NearReceived:
    """The proximal term of the personalised model alone."""

    term: ProximalTerm

    def __call__(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Scalar."""
        return self.term({n.removeprefix(OWN): value for n, value in parameters.items() if n.startswith(OWN)})


class FixerClient:
    """One client in one round; it keeps its personalised model."""

    def __init__(self, context: ClientContext, state: FixerState | None) -> None:
        self.state = state or FixerState({})
        self._context = context
        self._config = context.config.fedfixer

    def answer(self, message: Train) -> TrainingTask:
        """Train both models on what the other picks."""
        shard, bench, config = self._context.shard, self._context.bench, self._config
        forget = forget_share(config.fixer_forget, message.round, rounds=config.fixer_rounds, exponent=1.0)
        shares = np.bincount(shard.labels, minlength=self._context.classes) / len(shard)
        labels = torch.from_numpy(shares.astype(np.float32)).to(bench.device)

        def keep(personal: Weights) -> None:
            check_weights(personal, message.weights, who=f"client {shard.client}, round {message.round}: own model")
            self.state = FixerState(personal)

        return local_task(
            self._context,
            message.round,
            message.weights,
            Picking(forget, config.fixer_confidence, labels),
            penalty=NearReceived(ProximalTerm.around(message.weights, config.fixer_distance, bench.device))
            if config.fixer_distance
            else None,
            own=self.state.personal or message.weights,
            keep=keep,
        )


def check_client(state: FixerState, context: ClientContext) -> None:
    """Refuse a stored model that is not of the run's kind.

    Raises:
        InputError: other tensors.
        DivergedError: a number that is not finite.
    """
    if state.personal:
        check_weights(state.personal, context.bench.weights(), who="personal")


FEDFIXER = Method(
    name="fedfixer",
    source="Ji et al. 2024, AAAI",
    stages="one: a global and a personalised model, which stays on its client, pick small-loss samples for each other",
    client=FixerClient,
    server=AveragingServer,
    messages=(Train, Update),
    client_state=FixerState,
    server_state=ServerState,
    claims=lambda config, channel, weights: (weights,),
    check_client=check_client,
)
