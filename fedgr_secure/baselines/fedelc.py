"""FedELC (Jiang et al. 2024, CIKM): noisy clients learn their labels together with the model.

Stage 1, the search for noisy clients and the average by distance are FedNoRo's (`fednoro`, with what is ours there).
Clean clients go on as in stage 1. A noisy client gives every sample a label that is learnt end to end (Yi & Wu 2019,
PENCIL): the softmax of logits that start at 10 for the given class and 0 for the others, and take a step of their own
after every local epoch. At the end of the training a label becomes the mean of what was learnt and what the trained
model predicts, and 10 times that are the logits to go on with. The labels never leave the client.

Where this differs from the published code, which is otherwise followed, also where the paper leaves it open:

* The last batch of an epoch is kept; the code drops it, and its labels with it in that epoch.
* The model that predicts the labels at the end is in evaluation mode, on images as they are; in the code in training
  mode, as augmented.
* A class that a client lacks has a prior as if half a sample of it were there; its logarithm would be minus infinity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fedgr_secure.baseline_sections import UNSUMMED
from fedgr_secure.baselines.class_losses import ClassLosses, Measure
from fedgr_secure.baselines.fednoro import FEDNORO, NoRoClient, TrainAs
from fedgr_secure.baselines.task import local_task
from fedgr_secure.context import ClientContext
from fedgr_secure.errors import require
from fedgr_secure.messages import Update
from fedgr_secure.training import Forward, TrainingTask
from fedgr_secure.wire import Weights


@dataclass(frozen=True)
class ELCState:
    """What a client keeps: logits of its labels, float32 (n, C); the first ones until it trains as a noisy one."""

    label_logits: NDArray[np.float32]


def first_logits(labels: NDArray[np.int64], classes: int, scale: float) -> NDArray[np.float32]:
    """`scale` for the given class, 0 for the others: float32 (n, C)."""
    return (scale * np.eye(classes)[labels]).astype(np.float32)


def merged(logits: Tensor, shares: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    """`scale` times the mean of the learnt labels and the model's predictions, float32 (n, C).

    >>> merged(torch.zeros(1, 2), np.array([[1.0, 0.0]], np.float32), 10.0)
    array([[7.5, 2.5]], dtype=float32)
    """
    labels = F.softmax(logits.detach().cpu(), dim=1).numpy()
    return (scale * (labels + shares) / 2).astype(np.float32)


@dataclass(frozen=True)
class LearntLabels:
    """KL(prediction || label) / C + a cross-entropy(label, given) + b entropy(prediction) / C, in nats.

    Attributes:
        logits: float (n, C), of the labels of all samples; a gradient gathers here.
        compatibility: a, how much a label is held to the given one.
        entropy: b, how much the model is to decide for a class.
    """

    logits: Tensor
    compatibility: float
    entropy: float

    def __call__(self, parameters: Mapping[str, Tensor], batch: Mapping[str, Tensor], forward: Forward) -> Tensor:
        """Scalar, a mean over the batch, whose column `sample` says which rows of the logits are its labels."""
        log_share = F.log_softmax(forward(batch["images"])[0], dim=1)
        log_label, share = F.log_softmax(self.logits[batch["sample"]], dim=1), log_share.exp()
        divergence = (share * (log_share - log_label)).sum(1).mean()
        entropy = -(share * log_share).sum(1).mean()
        given = F.nll_loss(log_label, batch["labels"])
        return (divergence + self.entropy * entropy) / log_share.shape[1] + self.compatibility * given

    def step(self, size: float) -> None:
        """Move the labels against the gradient that they have gathered, which is forgotten."""
        if self.logits.grad is not None:
            with torch.no_grad():
                self.logits.sub_(size * self.logits.grad)
            self.logits.grad = None


class ELCClient:
    """One client in one round; it keeps the logits of its labels."""

    def __init__(self, context: ClientContext, state: ELCState | None) -> None:
        self._context = context
        self._config = context.config.fedelc
        first = first_logits(context.shard.labels, context.classes, self._config.label_scale)
        self.state = state or ELCState(first)
        self._as_clean = NoRoClient(context)

    def answer(self, message: Measure | TrainAs) -> ClassLosses | TrainingTask:
        """The losses of each class, or a local training."""
        if isinstance(message, TrainAs) and message.noisy:
            return self._correct(message)
        return self._as_clean.answer(message)

    def _correct(self, message: TrainAs) -> TrainingTask:
        """Train the model and the labels."""
        shard, bench, config = self._context.shard, self._context.bench, self._config
        live = torch.from_numpy(self.state.label_logits.copy()).to(bench.device).requires_grad_()
        learnt = LearntLabels(live, config.label_compatibility, config.label_entropy)

        def finish(weights: Weights) -> Update:
            shares = bench.predict(weights, shard.images()).probabilities()
            self.state = ELCState(merged(learnt.logits, shares, config.label_scale))
            return Update(message.round, len(shard), weights)

        return local_task(
            self._context,
            message.round,
            message.weights,
            learnt,
            columns={"labels": torch.from_numpy(shard.labels), "sample": torch.arange(len(shard))},
            finish=finish,
            on_epoch=lambda epoch, weights: learnt.step(config.label_step),
        )


def check_client(state: ELCState, context: ClientContext) -> None:
    """Refuse stored labels that are not the client's.

    Raises:
        InputError: naming what is allowed.
    """
    logits, shape = state.label_logits, (len(context.shard), context.classes)
    fits = logits.shape == shape and logits.dtype == np.float32
    require(fits, f"label_logits: {logits.dtype}{list(logits.shape)}, allowed: float32{list(shape)}")
    require(bool(np.isfinite(logits).all()), "label_logits, allowed: finite numbers")


FEDELC = replace(
    FEDNORO,
    name="fedelc",
    source="Jiang et al. 2024, CIKM",
    stages="warm-up with adjusted logits; noisy clients found by their losses; these then learn labels with the model",
    client=ELCClient,
    client_state=ELCState,
    check_client=check_client,
    under_secure_sum=f"nothing: {UNSUMMED['fedelc']}",
)
