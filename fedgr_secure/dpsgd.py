"""Local training with differential privacy for each record: DP-SGD (Abadi et al. 2016) by Opacus.

A step takes each record with the same probability (Poisson sampling), clips the gradient of each one's loss, adds
Gaussian noise to their sum, and divides by the expected number of records. Everything else of a training (momentum,
weight decay, a penalty on the weights, the teacher's average) works on what comes out.

Who is sampled, which view of an image is seen, and the noise come from ChaCha20 under a key of 256 bits that the client
keeps: seeds of torch's generators have 32 bits that count on a CPU, which anybody can try, and views that follow from a
public seed would shift from record to record with who is sampled.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fedgr_secure.errors import InputError
from privacy.dpsgd import DPSGD

_STATE_AT, _STATE_WORDS = 24, 624
"""where the Mersenne Twister's words lie in the bytes of a torch CPU generator's state"""

if TYPE_CHECKING:
    from fedgr_secure.training import LocalSGD, TrainingTask, Workbench
    from fedgr_secure.wire import Weights


class Keys(Protocol):
    """Where the secret key of a client's training comes from."""

    def key(self, client: int, round: int) -> bytes:
        """32 bytes; the same when the round is played again."""

    def confirm(self, client: int, round: int, weights: Weights) -> None:
        """Told of what came out, before it leaves the client."""


@dataclass(frozen=True)
class PrivateSGD:
    """Makes the optimiser of a client's private training; stands in for plain SGD in a `Workbench`.

    Attributes:
        plans: by client.
        clip: the L2 norm that the gradient of a record's loss is clipped to.
        done: in how many trainings a client has taken part before this round.
        keys: of the noise, the sampling and the views.
    """

    plans: Mapping[int, DPSGD]
    clip: float
    done: Callable[[int], int]
    keys: Keys

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

    def views(self, draw: torch.Generator) -> torch.Generator:
        """There is nothing to see."""
        return draw

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

        self._task, self._plan, self._keys = task, plan, settings.keys
        self._parameters: list[Any] = list(parameters.values())  # Opacus hangs per-sample gradients on them
        self._secret = secret_generator(settings.keys.key(task.client, task.round))
        self._views = torch_generator(self._secret)
        batch = round(plan.rate * len(task.images))
        self._noise = plan.noise_multiplier * settings.clip / batch
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
            noise_multiplier=0.0,  # `step` adds it, from the secret key
            max_grad_norm=settings.clip,
            expected_batch_size=batch,
        )

    def batches(self, count: int, epochs: int, draw: torch.Generator) -> list[tuple[int, Tensor]]:
        """Poisson samples, some of which may be empty; who is in which stays a secret of the client."""
        each = self._plan.steps // epochs
        return [
            (epoch, torch.from_numpy(np.flatnonzero(self._secret.random(count) < self._plan.rate)))
            for epoch in range(1, epochs + 1)
            for _ in range(each)
        ]

    def views(self, draw: torch.Generator) -> torch.Generator:
        """Of the client alone."""
        return self._views

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
        for value in self._parameters:
            drawn = self._secret.standard_normal(tuple(value.shape), dtype=np.float32)
            value.grad += self._noise * torch.from_numpy(drawn).to(value.device)
        if penalty is not None:
            gradients = torch.autograd.grad(penalty, self._parameters, allow_unused=True)
            for value, gradient in zip(self._parameters, gradients, strict=True):
                if gradient is not None:
                    value.grad += gradient
        self._plain.step()

    def close(self, weights: Weights) -> None:
        """Take the hooks off, and have the key's keeper note what came out."""
        self._hooked.remove_hooks()
        for value in self._parameters:
            for name in ("grad_sample", "summed_grad", "_forward_counter"):
                if hasattr(value, name):
                    delattr(value, name)
        self._keys.confirm(self._task.client, self._task.round, weights)


def secret_generator(key: bytes) -> np.random.Generator:
    """NumPy's samplers over the stream of ChaCha20 (Bernstein 2008) under a key of 32 bytes.

    >>> secret_generator(bytes(32)).bytes(4).hex()
    '76b8e0ad'
    """
    from randomgen import ChaCha

    return np.random.Generator(ChaCha(key=int.from_bytes(key, "little"), rounds=20))


def torch_generator(source: np.random.Generator) -> torch.Generator:
    """A torch CPU generator whose whole state, not only 32 bits of a seed, comes from `source`."""
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    words = state.numpy()[_STATE_AT : _STATE_AT + 8 * _STATE_WORDS].view(np.uint64)
    words[:] = source.integers(0, 2**32, _STATE_WORDS, dtype=np.uint64)
    generator.set_state(state)
    return generator
