"""RoFL (Yang et al. 2022, IEEE Intelligent Systems): clients exchange class centroids of features beside the model.

A client learns from the samples of small loss of each batch, of which more are left out as rounds go by. It keeps a
label with which the nearest global centroid agrees; for another it takes, after some rounds, what the received model
predicts. Its loss adds the distance of the features to its own centroids, which start from the global ones and follow
the batches, and the entropy of its predictions. The server averages the centroids by their likeness to the former ones.

What is ours, or differs from published code (an unofficial repository is all that is public):

* The centroid term moves the features, as in the paper; the code detaches them first, so that the term has no gradient.
* That term is the mean square over features and over all samples that are learnt; the code sums over both, and leaves
  out the samples whose label the nearest centroid disagrees with.
* Labels are held against the global centroids, and the client's own follow labels as they are learnt; the code takes
  the client's own for both, as they are in each batch, and the given labels for the second.
* Until labels are replaced the given ones stand. The code replaces them from round 100 of 1000: here after a tenth of
  the rounds (`--pseudo-after`), over which the weight of the centroid term rises linearly.
* A class without a global centroid keeps its labels; a class that a client has no centroid of has no centroid term; a
  client starts from the mean of its own features where there is no global centroid.
* A similarity below 0 counts as 0 in the mean of centroids, and where none is above, the mean is plain; the code may
  divide by 0 there.
* Models are averaged by n_k, as for every method here; the code averages them alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedgr_secure.baselines.centroids import (
    AskCentroids,
    Centroids,
    LocalCentroids,
    TrainNear,
    check_stored,
    class_means,
    mean_centroids,
    nearest,
)
from fedgr_secure.baselines.coteaching import forget_share, picked, smallest
from fedgr_secure.baselines.task import local_task
from fedgr_secure.context import AskCohort, ClientContext, Method, ServerContext
from fedgr_secure.errors import InputError, require
from fedgr_secure.messages import Update
from fedgr_secure.training import Forward, Prediction, TrainingTask
from fedgr_secure.wire import Array, Weights
from privacy.claims import no_privacy


@dataclass
class RobustLoss:
    """Cross-entropy on the samples of small loss, their distance to the centroids, and the predictions' entropy.

    Attributes:
        forget: the share of a batch that is left out.
        cen, entropy: weights of the two terms.
        local: the client's centroids, which follow every batch.
        anchors: the global centroids and which are present.
        replaces: whether predictions replace labels with which the nearest of these disagrees.
    """

    forget: float
    cen: float
    entropy: float
    local: LocalCentroids
    anchors: tuple[Tensor, Tensor]
    replaces: bool

    def __call__(self, parameters: Mapping[str, Tensor], batch: Mapping[str, Tensor], forward: Forward) -> Tensor:
        """Scalar. One batch is looked at as a whole."""
        output, given = forward(batch["images"]), batch["labels"]
        losses = F.cross_entropy(output[0], given, reduction="none")
        rows = smallest(losses, picked(len(given), self.forget))
        logits, features = output[0][rows], output[1][rows]
        labels = self._labels(features.detach(), given[rows], batch["predicted"][rows])
        near = self.local.squares(features, labels).mean()
        self.local.follow(features, labels)
        log_share = F.log_softmax(logits, dim=1)
        spread = -(log_share.exp() * log_share).sum(1).mean()
        return F.nll_loss(log_share, labels) + self.cen * near + self.entropy * spread

    def _labels(self, features: Tensor, given: Tensor, predicted: Tensor) -> Tensor:
        values, present = self.anchors
        if not self.replaces or not present.any():
            return given
        agrees = (nearest(features, values, present) == given) | ~present[given]
        return torch.where(agrees, given, predicted)


class RoFLClient:
    """One client in one round; it keeps nothing between rounds."""

    def __init__(self, context: ClientContext) -> None:
        self.state = None
        self._context = context
        self._local: LocalCentroids | None = None

    def answer(self, message: TrainNear | AskCentroids) -> Centroids | TrainingTask:
        """A local training, or the centroids that it ended with."""
        return self._task(message) if isinstance(message, TrainNear) else self._centroids(message.round)

    def _centroids(self, round: int) -> Centroids:
        local = self._local
        if local is None:
            raise InputError(f"client {self._context.shard.client}, round {round}: no centroids before a training")
        values, present = (part.cpu().numpy() for part in (local.values, local.present))
        return Centroids(round, np.where(present[:, None], values, np.float32(0)), present)

    def _task(self, message: TrainNear) -> TrainingTask:
        context, config, rounds = self._context, self._context.config.rofl, self._context.config.federation.rounds
        shard, bench, number = context.shard, context.bench, message.round
        labels, seen = torch.from_numpy(shard.labels), bench.predict(message.weights, shard.images())
        after = max(rounds // 10, 1) if config.pseudo_after is None else config.pseudo_after
        anchors, self._local = self._start(message, seen, labels)
        return local_task(
            self._context,
            number,
            message.weights,
            RobustLoss(
                forget_share(config.rofl_forget_rate, number, rounds=config.rofl_forget_rounds, exponent=1.0),
                config.lambda_cen * (min(number / after, 1.0) if after else 1.0),
                config.lambda_entropy,
                self._local,
                anchors,
                replaces=number >= after,
            ),
            columns={"labels": labels, "predicted": seen.logits.argmax(1)},
        )

    def _start(
        self, message: TrainNear, seen: Prediction, labels: Tensor
    ) -> tuple[tuple[Tensor, Tensor], LocalCentroids]:
        """The global centroids on the device, and the client's own to start from."""
        means, found = class_means(seen.features, labels, self._context.classes)
        values, present = torch.zeros_like(means), torch.zeros_like(found)
        if message.present.size:
            said, wanted = message.values.shape, tuple(means.shape)
            require(said == wanted, f"centroids: float32{list(said)}, allowed: float32{list(wanted)}")
            values, present = torch.from_numpy(message.values), torch.from_numpy(message.present)
        own = torch.where(present[:, None], values, means)
        on = [part.to(self._context.bench.device) for part in (values, present, own, present | found)]
        return (on[0], on[1]), LocalCentroids(on[2], on[3])


@dataclass(frozen=True)
class RoFLState:
    """The global weights; float32 (C, d) global centroids and bool (C,) which are present."""

    weights: Weights
    values: Array
    present: Array


class RoFLServer:
    """Send model and centroids, average both."""

    def __init__(self, context: ServerContext, state: RoFLState | None) -> None:
        self.state = state or RoFLState(context.initial_weights, np.zeros((0, 0), np.float32), np.zeros(0, bool))

    def round(self, number: int, cohort: AskCohort) -> None:
        """One round."""
        state = self.state
        weights = cohort.average(TrainNear(number, state.weights, state.values, state.present), state.weights)
        self.state = replace(state, weights=weights)
        found = cohort.ask(dict.fromkeys(cohort.survivors or (), AskCentroids(number)), expect=Centroids)
        values, present = mean_centroids(state.values, state.present, found)
        self.state = replace(self.state, values=values, present=present)


ROFL = Method(
    name="rofl",
    source="Yang et al. 2022, IEEE Intelligent Systems",
    stages="one: small losses near the class centroids; after some rounds predictions replace labels far from theirs",
    client=lambda context, state: RoFLClient(context),
    server=RoFLServer,
    messages=(TrainNear, AskCentroids, Centroids, Update),
    client_state=None,
    server_state=RoFLState,
    claims=lambda config, channel, weights: (
        no_privacy(
            "class centroids",
            "plain",
            "The server sees, in every round, a client's mean features of each class, and which classes it has.",
        ),
        weights,
    ),
    check_server=lambda state, samples: check_stored(state.values, state.present),
    uploads="its mean features of each class, and which classes it has",
    under_secure_sum="the model; not the centroids, which the server weighs one by one",
)
