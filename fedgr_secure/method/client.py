"""FedGR's client half: what one client does with the server's messages in one round."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedgr_secure.checks import trains_privately
from fedgr_secure.context import ClientContext
from fedgr_secure.errors import InputError
from fedgr_secure.messages import Update
from fedgr_secure.method.messages import Observe, Proxies, Revise
from fedgr_secure.method.objective import FedGRObjective
from fedgr_secure.method.proxies import cap_losses, running_mean
from fedgr_secure.method.refine import NO_LABEL, clean_targets, one_hot, refined_targets, update_pseudo_labels
from fedgr_secure.method.sieve import MixtureSettings, Verdict, fit_mixture, judge
from fedgr_secure.method.teacher import MovingAverage, revise
from fedgr_secure.training import Prediction, TrainingTask
from fedgr_secure.wire import Weights
from privacy.channels.channel import Losses, Memory, Upload


@dataclass(frozen=True)
class FedGRState:
    """What a client remembers between its participations.

    Attributes:
        participations: how many rounds it took part in.
        observed: how many losses each running mean holds.
        mean_losses: float64 (n_k,), the running means in nats.
        releases: how many releases of its losses it was charged for.
        released: int64, the sum of what it has released of each sample (`Memory.total`); empty without.
        q: float64 (n_k,), the newest P(clean); 1 before the first verdict.
        noise_rate: the newest r_k; 0 before the first verdict.
        pseudo_labels: int64 (n_k,), `NO_LABEL` where there is none.
        teacher: the teacher's weights; empty before there is one.
    """

    participations: int
    observed: int
    mean_losses: NDArray[np.float64]
    releases: int
    released: NDArray[np.int64]
    q: NDArray[np.float64]
    noise_rate: float
    pseudo_labels: NDArray[np.int64]
    teacher: Weights


def first_state(samples: int) -> FedGRState:
    """The state of a client that has never taken part: every label counts as clean."""
    return FedGRState(
        participations=0,
        observed=0,
        mean_losses=np.zeros(samples),
        releases=0,
        released=Memory.fresh().total,
        q=np.ones(samples),
        noise_rate=0.0,
        pseudo_labels=np.full(samples, NO_LABEL, dtype=np.int64),
        teacher={},
    )


class FedGRClient:
    """One client in one round. `state` is what it keeps; the server only ever sees the returned messages."""

    def __init__(self, context: ClientContext, state: FedGRState | None) -> None:
        self.state = state or first_state(len(context.shard))
        self._context = context
        self._config = context.config.fedgr
        self._global: Weights | None = None
        self._newest: NDArray[np.float64] = np.zeros(0)

    def answer(self, message: Observe | Revise) -> Proxies | TrainingTask:
        """The reply to one message, or a local training that ends in the reply."""
        if isinstance(message, Observe):
            self._observe(message.weights)
            return Proxies(message.round, self._release(message.round))
        if message.weights is not None and self._global is None:  # not a second time in one round
            self._observe(message.weights)
        return self._revise(message)

    def _observe(self, weights: Weights) -> None:
        """Step 1: losses of all own samples under the global model, folded into the running means."""
        self._global = weights
        self._newest = self._fold(self._context.bench.predict(weights, self._context.shard.images()))
        self.state = replace(self.state, participations=self.state.participations + 1)

    def _release(self, round: int) -> Upload:
        """The channel's upload; what it remembers of it is kept."""
        context = self._context
        losses = Losses(self._newest, self.state.mean_losses)
        memory = Memory(self.state.releases, self.state.released)
        upload, memory = context.releases.once(
            context.shard.client, round, lambda: context.channel.encode(losses, memory, context.noise(round))
        )
        self.state = replace(self.state, releases=memory.releases, released=memory.total)
        return upload

    def _fold(self, prediction: Prediction) -> NDArray[np.float64]:
        """Fold new losses into the running means; the losses, as far as the channel lets them count."""
        cap, largest = self._config.loss_cap, self._context.channel.largest
        if cap is not None:
            largest = min(largest, cap * float(np.log(self._context.classes)))
        losses = cap_losses(prediction.losses(self._context.shard.labels), largest)
        mean = running_mean(self.state.mean_losses, self.state.observed, losses)
        self.state = replace(self.state, mean_losses=mean, observed=self.state.observed + 1)
        return losses

    def _revise(self, message: Revise) -> TrainingTask:
        """Steps 2 (client side) to 5: verdict, refined targets, revised teacher, and the training they feed."""
        if self._global is None:
            raise ValueError("Revise came before Observe and without weights")
        verdict = self._decide(message)
        warm = message.round < self._context.config.federation.warmup
        images = self._context.shard.images()
        draw = self._context.randomness.torch("weak view", client=self._context.shard.client, round=message.round)
        draw_state = draw.get_state()
        seen = self._context.bench.predict(self._global, images, view="weak", draw=draw)
        targets = self._given_targets() if warm else self._refine(seen, verdict)
        columns = {"targets": torch.from_numpy(targets)}
        teacher = self._revise_teacher(verdict) if self._keeps_teacher(warm) else None
        if teacher is not None and self._distills(warm):
            draw.set_state(draw_state)
            columns["teacher_logits"] = self._context.bench.predict(teacher, images, view="weak", draw=draw).logits
        if self._represents(warm):
            columns["global_features"] = seen.features
        return self._task(message.round, images, columns, teacher, warm)

    def _decide(self, message: Revise) -> Verdict:
        """q and r_k that apply now; the newest ones are kept for the next participation."""
        applied = Verdict(self.state.q, self.state.noise_rate)
        if message.q is not None and message.noise_rate is not None:
            if len(message.q) != len(self.state.q):
                raise InputError(f"Revise: q for {len(message.q)} samples, allowed: {len(self.state.q)}")
            newest = Verdict(message.q, message.noise_rate)
        elif message.mixture is not None:
            newest = judge(message.mixture, self.state.mean_losses)
        else:
            seed = self._context.randomness.integer(
                "client mixture", client=self._context.shard.client, round=message.round
            )
            if trains_privately(self._context.config):
                raise InputError(
                    "Revise: no mixture, allowed with weights_epsilon: one that was fitted to noisy losses"
                )
            settings = MixtureSettings(max_iter=20, tied=self._config.variances == "tied")
            mixture = fit_mixture(self.state.mean_losses, seed=seed, settings=settings)
            newest = judge(mixture, self.state.mean_losses)
        self.state = replace(self.state, q=newest.q, noise_rate=newest.noise_rate)
        return newest if self._config.decisions == "same_round" else applied

    def _given_targets(self) -> NDArray[np.float32]:
        return one_hot(self._context.shard.labels, self._context.classes)

    def _refine(self, seen: Prediction, verdict: Verdict) -> NDArray[np.float32]:
        """Step 3: the pseudo-label table, then the targets.

        Under DP-SGD a sample's target may depend on nothing but itself and what is public. r_k of a client's own
        verdict is a mean over its samples, and so does not switch them.
        """
        config, given, classes = self._config, self._context.shard.labels, self._context.classes
        if not config.refine:
            return clean_targets(given, verdict.q, classes)
        pseudo = update_pseudo_labels(self.state.pseudo_labels, seen.probabilities(), config.confidence)
        self.state = replace(self.state, pseudo_labels=pseudo)
        own = trains_privately(self._context.config) and config.decide_at == "client"
        noise_rate = 0.0 if own else verdict.noise_rate
        return refined_targets(given, pseudo, verdict.q, noise_rate=noise_rate, beta=config.beta, classes=classes)

    def _keeps_teacher(self, warm: bool) -> bool:
        """Until the warm-up ends there is none, unless it is to have its own history from the start."""
        return self._config.distill and not (warm and self._config.teacher_before_warmup == "global")

    def _revise_teacher(self, verdict: Verdict) -> Weights:
        """Step 4 at m = 0."""
        assert self._global is not None
        few = np.mean(self.state.pseudo_labels != NO_LABEL) < 0.5
        reset = self._config.reset_teacher and verdict.noise_rate >= self._config.beta and few
        past = None if reset else self.state.teacher or None
        return revise(past, self._global, self._config.gamma_g)

    def _distills(self, warm: bool) -> bool:
        return self._config.distill and self._config.lambda_b > 0 and not warm

    def _represents(self, warm: bool) -> bool:
        active = not warm or self._config.represent_from == "start"
        return self._config.represent and self._config.lambda_r > 0 and active

    def _task(
        self,
        round: int,
        images: NDArray[np.uint8],
        columns: dict[str, torch.Tensor],
        teacher: Weights | None,
        warm: bool,
    ) -> TrainingTask:
        """Step 5, with the teacher's moving average (step 4, m >= 1) after every local step."""
        config, bench = self._config, self._context.bench
        average = MovingAverage(teacher, config.gamma_l, bench.device) if teacher is not None else None

        def finish(weights: Weights) -> Update:
            self.state = replace(self.state, teacher=average.weights() if average else {})
            return Update(round, len(self._context.shard), weights)

        def observe_local(epoch: int, weights: Weights) -> None:
            if epoch == 1 and self._context.config.training.local_epochs > 1:
                self._fold(bench.predict(weights, images))

        return TrainingTask(
            client=self._context.shard.client,
            round=round,
            start=self._global or {},
            images=images,
            view="strong",
            columns=columns,
            objective=FedGRObjective(
                lambda_b=config.lambda_b if self._distills(warm) else 0.0,
                lambda_r=config.lambda_r if self._represents(warm) else 0.0,
                tau=config.tau,
                representation=config.representation,
            ),
            epochs=self._context.config.training.local_epochs,
            finish=finish,
            on_step=average.step if average else None,
            on_epoch=(lambda epoch, weights: observe_local(epoch, weights())) if config.local_observation else None,
        )


def verdict_of(state: FedGRState) -> Verdict | None:
    """The client's newest verdict, for the evaluator; None while it has never answered."""
    return Verdict(state.q, state.noise_rate) if state.observed else None
