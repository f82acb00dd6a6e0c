"""FedAvg (McMahan et al. 2017), FedProx (Li et al. 2020) and central training on the pooled data.

All three are one client half: cross-entropy with the given labels, plus a proximal term that FedAvg and central
training leave at weight 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedgr_secure.baselines.task import local_task
from fedgr_secure.context import AskCohort, ClientContext, Method, ServerContext
from fedgr_secure.messages import Train, Update
from fedgr_secure.training import Forward, TrainingTask
from fedgr_secure.wire import Weights


@dataclass(frozen=True)
class ServerState:
    """The global weights."""

    weights: Weights


def given_labels(parameters: Mapping[str, Tensor], batch: Mapping[str, Tensor], forward: Forward) -> Tensor:
    """Cross-entropy with the given labels, a scalar in nats."""
    return F.cross_entropy(forward(batch["images"])[0], batch["labels"])


@dataclass(frozen=True)
class ProximalTerm:
    """(mu / 2) ||w - w_g||^2 over the trainable parameters (Li et al. 2020, equation 2)."""

    mu: float
    anchor: Mapping[str, Tensor]

    @classmethod
    def around(cls, weights: Weights, mu: float, device: str) -> ProximalTerm:
        """Of the distance to received weights."""
        return cls(mu, {name: torch.from_numpy(value).to(device) for name, value in weights.items()})

    def __call__(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Scalar."""
        squares = [(value - self.anchor[name]).square().sum() for name, value in parameters.items()]
        return 0.5 * self.mu * torch.stack(squares).sum()


class AveragingClient:
    """One client in one round; it keeps nothing between rounds."""

    def __init__(self, context: ClientContext, mu: float, epochs: int) -> None:
        self.state = None
        self._context = context
        self._mu = mu
        self._epochs = epochs

    def answer(self, message: Train) -> TrainingTask:
        """Train on the given labels."""
        device = self._context.bench.device
        return local_task(
            self._context,
            message.round,
            message.weights,
            given_labels,
            penalty=ProximalTerm.around(message.weights, self._mu, device) if self._mu else None,
            epochs=self._epochs,
        )


class AveragingServer:
    """Send the model, average the updates."""

    def __init__(self, context: ServerContext, state: ServerState | None) -> None:
        self.state = state or ServerState(context.initial_weights)

    def round(self, number: int, cohort: AskCohort) -> None:
        """One round."""
        weights = self.state.weights
        self.state = ServerState(cohort.average(Train(number, weights), weights))


def _method(
    name: str, source: str, mu: Callable[[ClientContext], float], *, stages: str, pooled: bool = False
) -> Method:
    def client(context: ClientContext, state: None) -> AveragingClient:
        epochs = 1 if pooled else context.config.training.local_epochs
        return AveragingClient(context, mu(context), epochs)

    return Method(
        name=name,
        source=source,
        stages=stages,
        client=client,
        server=AveragingServer,
        messages=(Train, Update),
        client_state=None,
        server_state=ServerState,
        claims=lambda config, channel, weights: (weights,),
        pooled=pooled,
        under_secure_sum="nothing: one client has all data" if pooled else None,
    )


FEDAVG = _method("fedavg", "McMahan et al. 2017, AISTATS", lambda context: 0.0, stages="one: the given labels")
FEDPROX = _method(
    "fedprox",
    "Li et al. 2020, MLSys",
    lambda context: context.config.fedprox.mu,
    stages="one: the given labels, held near the global model",
)
CENTRAL = _method(
    "central",
    "pooled data, one epoch a round",
    lambda context: 0.0,
    stages="one: the given labels of all clients in one place",
    pooled=True,
)
