"""FL-Coteaching: Co-teaching (Han et al. 2018, NeurIPS) as local training, as FedGR's authors compare it.

A client has two networks. In each batch each of them picks the samples whose loss is small for it, and the *other*
learns from these. How many are left out grows with the rounds: R(t) = rate * min(t^c / T, 1).

What is ours, or differs from published code:

* t counts the global rounds, from 0; Han et al. count epochs, of which a federation has many a round.
* The rate is each client's own estimate, from a mixture over the losses of its samples under the model that it
  received. FedGR's authors give every client the mean noise rate of the setting (`--forget given`), or where none is
  set the client's true one, which no client can know: `--forget oracle`, which results are marked with.
* A loss is the mean over the picked samples, as in the paper; its code divides that mean by their number once more.
* At least one sample is picked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from fedgr_secure.baselines.fedavg import AveragingServer, ServerState
from fedgr_secure.baselines.task import local_task
from fedgr_secure.baselines.verdicts import NO_VERDICT, check_verdict, newest
from fedgr_secure.context import ClientContext, Method
from fedgr_secure.errors import require
from fedgr_secure.messages import Train, Update
from fedgr_secure.method.sieve import Verdict, fit_mixture, judge
from fedgr_secure.models.several import each_output
from fedgr_secure.training import Forward, TrainingTask
from fedgr_secure.wire import Weights


def forget_share(rate: float, round: int, *, rounds: int, exponent: float) -> float:
    """R(t): the share of a batch that is left out in a round (Han et al. 2018).

    >>> [forget_share(0.4, t, rounds=25, exponent=1.0) for t in (0, 5, 25, 99)]
    [0.0, 0.08000000000000002, 0.4, 0.4]
    """
    return rate * min(round**exponent / rounds, 1.0)


def picked(count: int, forget: float) -> int:
    """How many of a batch are learnt from, at least one.

    >>> picked(10, 0.8), picked(10, 0.75), picked(1, 1.0)
    (2, 2, 1)
    """
    return max(1, int((1 - forget) * count + 1e-9))  # (1 - 0.8) * 10 is 1.9999999999999996


def smallest(losses: Tensor, count: int) -> Tensor:
    """Positions of the smallest losses, int64 (count,); of equal ones the first, and what is no number comes last."""
    return losses.detach().argsort(stable=True)[:count]


@dataclass(frozen=True)
class Exchange:
    """Each network's cross-entropy on the samples that the other one picks; the sum of both, in nats.

    Attributes:
        forget: the share of a batch that is left out.
    """

    forget: float

    def __call__(self, parameters: Mapping[str, Tensor], batch: Mapping[str, Tensor], forward: Forward) -> Tensor:
        """Scalar. One batch is looked at as a whole: a sample's part depends on the others' losses."""
        labels = batch["labels"]
        first, second = (
            F.cross_entropy(output.logits, labels, reduction="none") for output in each_output(forward, batch["images"])
        )
        count = picked(len(labels), self.forget)
        return first[smallest(second, count)].mean() + second[smallest(first, count)].mean()


class CoteachingClient:
    """One client in one round; it keeps its verdict, where the rate is its own estimate."""

    def __init__(self, context: ClientContext, state: Verdict | None) -> None:
        self.state = state or NO_VERDICT
        self._context = context
        self._config = context.config.coteaching

    def answer(self, message: Train) -> TrainingTask:
        """Train both networks on what the other picks."""
        context, config = self._context, self._config
        rate = self._rate(message.round, message.weights)
        forget = forget_share(rate, message.round, rounds=config.forget_rounds, exponent=config.forget_exponent)
        return local_task(
            context,
            message.round,
            message.weights,
            Exchange(forget),
        )

    def _rate(self, round: int, weights: Weights) -> float:
        """The share of wrong labels: told, given, or estimated from the losses under the received model."""
        context, given = self._context, self._config.forget_rate
        if self._config.forget == "oracle":
            require(context.oracle_rate is not None, "forget: oracle, allowed: where the client's true rate is told")
            return context.oracle_rate or 0.0
        if self._config.forget == "given":
            require(given is not None, "forget_rate: not given, but forget is 'given'")
            return given or 0.0
        losses = context.bench.predict(weights, context.shard.images()).losses(context.shard.labels)
        seed = context.randomness.integer("client mixture", client=context.shard.client, round=round)
        self.state = judge(fit_mixture(losses, seed=seed), losses)
        return self.state.noise_rate


COTEACHING = Method(
    name="coteaching",
    source="Han et al. 2018, NeurIPS (Co-teaching)",
    stages="one: two networks, each learns the small-loss samples that the other picks; more are left out with time",
    client=CoteachingClient,
    server=AveragingServer,
    messages=(Train, Update),
    client_state=Verdict,
    server_state=ServerState,
    claims=lambda config, channel, weights: (weights,),
    verdict=newest,
    check_client=check_verdict,
    networks=2,
)
