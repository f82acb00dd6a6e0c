"""Local training with differential privacy for each record: DP-SGD (Abadi et al. 2016) by Opacus.

A step takes each record with the same probability (Poisson sampling), clips the gradient of each one's loss, adds
Gaussian noise to their sum, and divides by the expected number of records. Everything else of a training (momentum,
weight decay, a penalty on the weights, the teacher's average) works on what comes out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from fedgr_secure.errors import InputError
from privacy.dpsgd import DPSGD

if TYPE_CHECKING:
    from fedgr_secure.training import LocalSGD, TrainingTask, Workbench
    from fedgr_secure.wire import Weights


class Seeds(Protocol):
    """Where the secret seed of a client's training comes from."""

    def seed(self, client: int, round: int) -> int:
        """Below 2^63; the same when the round is played again."""

    def confirm(self, client: int, round: int, weights: Weights) -> None:
        """Told of what came out, before it leaves the client."""


@dataclass(frozen=True)
class PrivateSGD:
    """Makes the optimiser of a client's private training; stands in for plain SGD in a `Workbench`.

    Attributes:
        plans: by client.
        clip: the L2 norm that the gradient of a record's loss is clipped to.
        done: in how many trainings a client has taken part before this round.
        seeds: of the noise and the sampling.
    """

    plans: Mapping[int, DPSGD]
    clip: float
    done: Callable[[int], int]
    seeds: Seeds

    def __call__(self, bench: Workbench, task: TrainingTask, parameters: Mapping[str, nn.Parameter]) -> LocalSGD:
        """The optimiser of one training; one that takes no step where the client's budget is used up."""
        plan = self.plans[task.client]
        if self.done(task.client) >= plan.trainings:
            return _NoSteps()
        batch = min(bench.config.batch_size, len(task.images))
        rate, steps = batch / len(task.images), task.epochs * -(-len(task.images) // batch)
        if (rate, steps) != (plan.rate, plan.steps):
            raise ValueError(f"client {task.client}: rate {rate}, {steps} steps, planned: {plan.rate}, {plan.steps}")
        return _PrivateSteps(bench, task, parameters, plan, self)


class _NoSteps:
    """A client that may not train any more sends the weights as they came, which tells nothing of its records."""

    def batches(self, count: int, epochs: int, draw: torch.Generator) -> list[tuple[int, Tensor]]:
        """None."""
        return []

    def step(self, loss: Tensor | None, penalty: Tensor | None) -> None:
        """Never called."""

    def close(self, weights: Weights) -> None:
        """Nothing to tell."""


class _PrivateSteps:
    """One training's Opacus optimiser and the hooks on the model, which `close` takes off."""

    def __init__(
        self,
        bench: Workbench,
        task: TrainingTask,
        parameters: Mapping[str, nn.Parameter],
        plan: DPSGD,
        settings: PrivateSGD,
    ) -> None:
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        self._task, self._plan, self._seeds = task, plan, settings.seeds
        self._parameters: list[Any] = list(parameters.values())  # Opacus hangs per-sample gradients on them
        seed = settings.seeds.seed(task.client, task.round)
        self._secret = torch.Generator().manual_seed(seed)
        noise = self._secret if bench.device == "cpu" else torch.Generator(bench.device).manual_seed(seed ^ 1)
        try:
            # Opacus's own sampler for convolutions reads activations as if they lay channel by channel (1.6.0); the
            # small CNN's do not, and its gradients would be wrong without a word
            self._hooked: Any = GradSampleModule(bench.model, force_functorch=True)
        except NotImplementedError as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"weights_epsilon, allowed: with a model that treats each record alone: {reason}"
            ) from None
        self._plain = bench.sgd_of(self._parameters)
        self._private = DPOptimizer(
            self._plain,
            noise_multiplier=plan.noise_multiplier,
            max_grad_norm=settings.clip,
            expected_batch_size=round(plan.rate * len(task.images)),
            generator=noise,
        )

    def batches(self, count: int, epochs: int, draw: torch.Generator) -> list[tuple[int, Tensor]]:
        """Poisson samples, some of which may be empty; who is in which stays a secret of the client."""
        each = self._plan.steps // epochs
        return [
            (epoch, torch.rand(count, generator=self._secret, dtype=torch.float64).lt(self._plan.rate).nonzero()[:, 0])
            for epoch in range(1, epochs + 1)
            for _ in range(each)
        ]

    def step(self, loss: Tensor | None, penalty: Tensor | None) -> None:
        """Clip, add noise, step; an empty batch (`loss` None) gets its noise, too."""
        self._private.zero_grad()
        if loss is None:
            for value in self._parameters:
                value.grad_sample = value.new_zeros((0, *value.shape))
        else:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Full backward hook is firing")  # images need no gradient
                loss.backward()
        for value in self._parameters:  # a record whose gradient is no number must not be seen in everybody's sum
            value.grad_sample = torch.nan_to_num(value.grad_sample, nan=0.0, posinf=0.0, neginf=0.0)
        self._private.pre_step()
        if penalty is not None:
            gradients = torch.autograd.grad(penalty, self._parameters, allow_unused=True)
            for value, gradient in zip(self._parameters, gradients, strict=True):
                if gradient is not None and value.grad is not None:
                    value.grad += gradient
        self._plain.step()

    def close(self, weights: Weights) -> None:
        """Take the hooks off, and have the seed's keeper note what came out."""
        self._hooked.remove_hooks()
        for value in self._parameters:
            for name in ("grad_sample", "summed_grad", "_forward_counter"):
                if hasattr(value, name):
                    delattr(value, name)
        self._seeds.confirm(self._task.client, self._task.round, weights)
