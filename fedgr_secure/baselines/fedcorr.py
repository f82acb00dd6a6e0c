"""FedCorr (Xu et al. 2022, CVPR): find the noisy clients one after the other, tune on the clean ones, then train all.

Stage 1 is the warm-up, in which every client comes once a sweep. The clients of a round train one after the other, each
from the model that the one before left, and then say the mean intrinsic dimension of their predictions. A mixture over
the clients' scores tells noisy ones (the larger mean). Such a client estimates its noise level by a mixture over its
losses, relabels some of its largest losses with the model's sure predictions, and is held near the model it receives,
by beta * level * ||w - w_g||^2. Stage 2 trains on the clients of a level of at most a tenth. In stage 3 the noisy ones
first take every sure prediction as the label, and all train. Mixup throughout.

What is ours, or differs from published code:

* A sweep is cut into rounds, each a number of client trainings like those of every method here. A noisy client learns
  that it is one when it is next drawn, and looks at its losses under the model it then receives: in the paper after
  every iteration, and once between stages 2 and 3, under the same model for all; in the code losses, and the level
  from them, are of the model that the client's own training ended with, and the new labels of the global one.
* Stage 2 trains the clean clients of each cohort; the code draws as many clients as ever, all of them clean.
* The score is the mean over a client's participations, as not all come equally often (the code adds scores up).
* The proximal term is the square of the norm, as in the paper; the code leaves the square out.
* Losses are the cross-entropy of the softmax; the code takes the softmax twice.
* Losses that one Gaussian explains as well (`method.sieve.fit_mixture`) are of a client without noise, level 0.
* Without a clean client in a round of stage 2 the model stays what it is; the code divides by 0.
* Momentum, weight decay and client numbers are those of every method here; the paper has no weight decay.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fedgr_secure.baseline_sections import UNSUMMED
from fedgr_secure.baselines.correction import (
    AskDimension,
    CorrClientState,
    CorrState,
    Dimension,
    Estimate,
    NoiseLevel,
    TrainStage,
    check_client_labels,
    check_told,
    larger_scored,
)
from fedgr_secure.baselines.dimension import mean_dimension
from fedgr_secure.baselines.fedavg import ProximalTerm
from fedgr_secure.baselines.mixup import MixedLoss
from fedgr_secure.baselines.task import local_task
from fedgr_secure.context import AskCohort, ClientContext, Method, ServerContext
from fedgr_secure.errors import InputError
from fedgr_secure.messages import Update
from fedgr_secure.method.sieve import fit_mixture, judge
from fedgr_secure.training import TrainingTask
from fedgr_secure.wire import Weights
from privacy.claims import no_privacy


class CorrClient:
    """One client in one round; it keeps its corrected labels."""

    def __init__(self, context: ClientContext, state: CorrClientState | None) -> None:
        self.state = state or CorrClientState(context.shard.labels, corrected=False)
        self._context = context
        self._config = context.config.fedcorr
        self._trained: Weights | None = None

    def answer(self, message: Estimate | TrainStage | AskDimension) -> NoiseLevel | Dimension | TrainingTask:
        """A score, or a local training."""
        if isinstance(message, Estimate):
            return self._estimate(message)
        return self._task(message) if isinstance(message, TrainStage) else self._dimension(message.round)

    def _estimate(self, message: Estimate) -> NoiseLevel:
        """The noise level; the largest losses get the model's sure predictions as labels."""
        shard, labels = self._context.shard, self.state.labels
        seen = self._context.bench.predict(message.weights, shard.images())
        losses, share = seen.losses(labels), seen.probabilities()
        seed = self._context.randomness.integer("client mixture", client=shard.client, round=message.round)
        level = judge(fit_mixture(losses, seed=seed), losses).noise_rate
        worst = np.argsort(-losses, kind="stable")[: int(len(labels) * level * self._config.relabel_ratio)]
        self._relabel(share, worst)
        return NoiseLevel(message.round, level)

    def _relabel(self, share: np.ndarray, rows: np.ndarray) -> None:
        """Take the sure ones of the predictions for some samples as their labels."""
        sure = rows[share[rows].max(1) > self._config.relabel_confidence]
        labels = self.state.labels.copy()
        labels[sure] = share[sure].argmax(1)
        self.state = replace(self.state, labels=labels)

    def _task(self, message: TrainStage) -> TrainingTask:
        shard, bench, held = self._context.shard, self._context.bench, message.proximal
        if message.relabel and not self.state.corrected:
            share = bench.predict(message.weights, shard.images()).probabilities()
            self._relabel(share, np.arange(len(shard)))
            self.state = replace(self.state, corrected=True)

        def finish(weights: Weights) -> Update:
            self._trained = weights
            return Update(message.round, len(shard), weights)

        draw = self._context.randomness.numpy("mixup", client=shard.client, round=message.round)
        return local_task(
            self._context,
            message.round,
            message.weights,
            MixedLoss(draw, self._context.classes),
            columns={"labels": torch.from_numpy(self.state.labels)},
            penalty=ProximalTerm.around(message.weights, 2 * held, bench.device) if held else None,
            finish=finish,
        )

    def _dimension(self, round: int) -> Dimension:
        shard, trained = self._context.shard, self._trained
        if trained is None:
            raise InputError(f"client {shard.client}, round {round}: no dimension before a training")
        share = self._context.bench.predict(trained, shard.images()).probabilities()
        return Dimension(round, mean_dimension(share, self._config.lid_neighbours))


class CorrServer:
    """Hand the model round, tell noisy from clean clients, then average: first the clean ones, then all."""

    def __init__(self, context: ServerContext, state: CorrState | None) -> None:
        self.state = state or CorrState(context.initial_weights, {}, {})
        self._context = context
        self._config = context.config.fedcorr
        federation, tuned = context.config.federation, self._config.finetuning_rounds
        left = max(federation.rounds - federation.warmup, 0)
        self._second = federation.warmup
        self._third = self._second + (left // 2 if tuned is None else tuned)

    def round(self, number: int, cohort: AskCohort) -> None:
        """One round."""
        noisy, weights = self._noisy(), self.state.weights
        if number < self._second:
            self._one_by_one(number, cohort, noisy)
            return
        clients = cohort.clients
        if number < self._third:
            self._measure(number, cohort, noisy)
            levels = {client: float(self.state.levels.get(str(client), 0.0)) for client in clients}
            clients = tuple(client for client in clients if levels[client] <= self._config.finetune_below)
        late = number >= self._third
        tasks = {client: TrainStage(number, weights, 0.0, late and client in noisy) for client in clients}
        self.state = replace(self.state, weights=cohort.average(tasks, weights))

    def _one_by_one(self, number: int, cohort: AskCohort, noisy: frozenset[int]) -> None:
        """Each trains from the model that the one before left; what it says of itself is kept."""
        order = self._context.randomness.numpy("order of clients", round=number).permutation(cohort.clients)
        for client in map(int, order):
            weights, level = self.state.weights, 0.0
            if client in noisy:
                level = cohort.ask({client: Estimate(number, weights)}, expect=NoiseLevel)[client].level
            task = TrainStage(number, weights, self._config.proximal_weight * level, relabel=False)
            self.state = replace(self.state, weights=cohort.average({client: task}, weights))
            if client not in (cohort.survivors or ()):
                continue
            said = cohort.ask({client: AskDimension(number)}, expect=Dimension)[client].mean
            scored = self.state.dimensions.get(str(client), np.zeros(2)) + np.array([said, 1.0])
            self.state = replace(self.state, dimensions=self.state.dimensions | {str(client): scored})

    def _measure(self, number: int, cohort: AskCohort, noisy: frozenset[int]) -> None:
        """Ask the noisy ones of the cohort for their levels, once in stage 2; the others' are 0."""
        new = [client for client in cohort.clients if client in noisy and str(client) not in self.state.levels]
        found = cohort.ask(dict.fromkeys(new, Estimate(number, self.state.weights)), expect=NoiseLevel)
        levels = {str(client): np.array(reply.level, np.float64) for client, reply in found.items()}
        self.state = replace(self.state, levels=self.state.levels | levels)

    def _noisy(self) -> frozenset[int]:
        """The clients of the larger mean dimension; a pure function of what they said."""
        seeds = (self._context.randomness.integer("noisy clients", client=vote) for vote in range(9))
        return larger_scored(self.state.dimensions, seeds)


FEDCORR = Method(
    name="fedcorr",
    source="Xu et al. 2022, CVPR",
    stages="one client after the other, scored and relabelled; then the clean clients; then all, relabelled once more",
    client=CorrClient,
    server=CorrServer,
    messages=(Estimate, NoiseLevel, TrainStage, AskDimension, Dimension, Update),
    client_state=CorrClientState,
    server_state=CorrState,
    claims=lambda config, channel, weights: (
        no_privacy(
            "noise scores",
            "plain",
            "The server sees the mean dimension of a client's predictions, a noisy client's noise level, and in the "
            "first stage who trained next sees the model that one client alone has left.",
        ),
        weights,
    ),
    check_client=lambda state, context: check_client_labels(state, len(context.shard), context.classes),
    check_server=lambda state, samples: check_told(state.dimensions, state.levels, samples),
    uploads="the mean dimension of its predictions, and its noise level if it seems noisy",
    under_secure_sum=f"nothing: {UNSUMMED['fedcorr']}",
)
