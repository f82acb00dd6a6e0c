"""FL-DivideMix: DivideMix (Li et al. 2020, ICLR) as local training, as FedGR's authors compare it.

A client has two networks. After a warm-up of cross-entropy, a mixture over each network's losses tells the *other*
which samples keep their label. Those are learnt with the label refined by the network's own prediction (co-refinement),
the rest with what both networks guess (co-guessing), and all are mixed (MixMatch, Berthelot et al. 2019).

What is ours, or differs from published code:

* The mixtures are fitted once a round, to the losses under the received model; in the code anew in every local epoch.
* The warm-up and the rise of the unlabelled part count rounds; Li et al. count epochs.
* A batch is a random part of all of a client's samples, in which some keep their label; the code draws two batches of
  one size, one from either set. A batch without one of the two has no part of it.
* Both networks learn in the same step; in the code one learns for an epoch, then the other.
* As many views a sample as make a difference: two where the view is random, one where it is not.
* The guesses come from the networks in training mode, the code's other network being in evaluation mode.
* A mixture that does not separate the losses keeps every label (`method.sieve`), with weight 1.
* Where a network is left without a labelled sample, the client trains as in the warm-up (FedGR's authors, too); a
  client without an unlabelled sample has the labelled part alone.
* No penalty against confidence in the warm-up, which the code has for asymmetric noise: nobody knows the kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from fedgr_secure.baselines.fedavg import AveragingServer, ServerState
from fedgr_secure.baselines.task import local_task
from fedgr_secure.baselines.verdicts import NO_VERDICT, check_verdict, newest
from fedgr_secure.context import ClientContext, Method
from fedgr_secure.messages import Train, Update
from fedgr_secure.method.sieve import MixtureSettings, Verdict, fit_mixture
from fedgr_secure.models.several import each_output, networks_of
from fedgr_secure.training import Forward, Objective, TrainingTask

_EM = MixtureSettings(max_iter=10)


def min_max(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Losses from 0 to 1; equal ones are 0, and one that is no number stays none.

    >>> min_max(np.array([1.0, 3.0, 2.0, np.inf]))
    array([0. , 1. , 0.5, inf])
    """
    finite = losses[np.isfinite(losses)]
    if not len(finite):
        return losses
    return (losses - finite.min()) / (np.ptp(finite) or 1.0)


def sharpen(shares: Tensor, temperature: float) -> Tensor:
    """p^(1/T), made to sum to 1: float (n, C)."""
    return F.softmax(shares.log() / temperature, dim=1)


def prior_penalty(log_shares: Tensor) -> Tensor:
    """KL(uniform || mean prediction) in nats, from log-probabilities (n, C)."""
    count, classes = log_shares.shape
    log_mean = log_shares.logsumexp(0) - math.log(count)
    return -math.log(classes) - log_mean.mean()


def both_learn(parameters: Mapping[str, Tensor], batch: Mapping[str, Tensor], forward: Forward) -> Tensor:
    """Cross-entropy of each network with the given labels; the sum, a scalar in nats."""
    outputs = each_output(forward, batch["images"])
    return torch.stack([F.cross_entropy(output.logits, batch["labels"]) for output in outputs]).sum()


@dataclass(frozen=True)
class MixMatch:
    """The loss of both networks on a batch with columns `labels` (n,), `clean` and `labelled` (n, 2).

    Attributes:
        draw: of the shares and partners in mixing.
        temperature: T of the sharpening.
        beta: both parameters of the shares' Beta distribution.
        unlabelled: weight of the unlabelled part.
    """

    draw: np.random.Generator
    temperature: float
    beta: float
    unlabelled: float

    def __call__(self, parameters: Mapping[str, Tensor], batch: Mapping[str, Tensor], forward: Forward) -> Tensor:
        """Scalar. One batch is looked at as a whole: samples are mixed with each other."""
        views = [batch[name] for name in ("images", "second") if name in batch]
        with torch.no_grad():
            seen = [[F.softmax(output.logits, 1) for output in each_output(forward, view)] for view in views]
        own = [torch.stack(shares).mean(0) for shares in zip(*seen, strict=True)]
        losses = [
            self.mixed_loss(network, views, self.targets(batch, own, number), batch["labelled"][:, number])
            for number, network in enumerate(networks_of(forward))
        ]
        return torch.stack(losses).sum()

    def targets(self, batch: Mapping[str, Tensor], own: Sequence[Tensor], number: int) -> Tensor:
        """What a network is to learn, float (n, C): refined labels, or both networks' guess; sharpened.

        Args:
            batch: with the columns; of `clean` and `labelled` the network's own ones are asked.
            own: each network's predictions (n, C).
            number: the network's.
        """
        given = F.one_hot(batch["labels"], own[0].shape[1]).to(own[0].dtype)
        clean = batch["clean"][:, number, None]
        refined, guessed = clean * given + (1 - clean) * own[number], torch.stack(list(own)).mean(0)
        return sharpen(torch.where(batch["labelled"][:, number, None], refined, guessed), self.temperature)

    def mixed_loss(self, network: nn.Module, views: Sequence[Tensor], targets: Tensor, labelled: Tensor) -> Tensor:
        """Cross-entropy on the labelled, squared error on the unlabelled, and the penalty; scalar."""
        inputs, wanted, kept = torch.cat(list(views)), torch.cat([targets] * len(views)), labelled.repeat(len(views))
        share = self.draw.beta(self.beta, self.beta)
        share = max(share, 1 - share)
        partner = torch.from_numpy(self.draw.permutation(len(inputs))).to(inputs.device)
        wanted = share * wanted + (1 - share) * wanted[partner]
        log_shares = F.log_softmax(network(share * inputs + (1 - share) * inputs[partner]).logits, dim=1)
        loss = prior_penalty(log_shares)
        if kept.any():
            loss = loss - (wanted * log_shares)[kept].sum(1).mean()
        if not kept.all():
            loss = loss + self.unlabelled * (log_shares.exp() - wanted)[~kept].square().mean()
        return loss


class DivideMixClient:
    """One client in one round; it keeps its verdict, the mean of both networks'."""

    def __init__(self, context: ClientContext, state: Verdict | None) -> None:
        self.state = state or NO_VERDICT
        self._context = context
        self._config = context.config.dividemix

    def answer(self, message: Train) -> TrainingTask:
        """Train both networks: on the given labels, or on what each finds clean for the other."""
        context = self._context
        columns = {"labels": torch.from_numpy(context.shard.labels)}
        objective: Objective = both_learn
        if message.round >= context.config.federation.warmup:
            clean = self._clean(message)
            self.state = Verdict.of(clean.mean(1))
            labelled = clean > self._config.mix_clean
            if labelled.any(0).all():
                columns |= {"clean": torch.from_numpy(clean).float(), "labelled": torch.from_numpy(labelled)}
                objective = self._objective(message.round)
        view = context.bench.views.baseline
        return local_task(
            context,
            message.round,
            message.weights,
            objective,
            view=view,
            second="clean" in columns and view != "plain",
            columns=columns,
        )

    def _clean(self, message: Train) -> NDArray[np.float64]:
        """P(clean) for each network, float64 (n, 2), as the other's losses say it."""
        shard, bench, found = self._context.shard, self._context.bench, []
        for other in (1, 0):
            losses = min_max(bench.predict(message.weights, shard.images(), network=other).losses(shard.labels))
            purpose = f"client mixture of network {other + 1}"
            seed = self._context.randomness.integer(purpose, client=shard.client, round=message.round)
            found.append(fit_mixture(losses, seed=seed, settings=_EM).clean_probability(losses))
        return np.stack(found, axis=1)

    def _objective(self, round: int) -> Objective:
        config, client = self._config, self._context.shard.client
        risen = min((round - self._context.config.federation.warmup) / config.mix_rounds, 1.0)
        draw = self._context.randomness.numpy("mixing", client=client, round=round)
        return MixMatch(draw, config.mix_temperature, config.mix_beta, config.mix_unlabelled * risen)


DIVIDEMIX = Method(
    name="dividemix",
    source="Li et al. 2020, ICLR (DivideMix)",
    stages="warm-up of two networks; each then finds the other's clean labels, and the rest is guessed by both",
    client=DivideMixClient,
    server=AveragingServer,
    messages=(Train, Update),
    client_state=Verdict,
    server_state=ServerState,
    claims=lambda config, channel, weights: (weights,),
    verdict=newest,
    check_client=check_verdict,
    networks=2,
)
