"""The one trainer: local SGD over a table of per-sample columns, with the method's objective as a pure function."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedgr_secure.data.types import UInt8
from fedgr_secure.errors import DivergedError, require
from fedgr_secure.models.several import Several, networks_of
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import TrainingConfig
from fedgr_secure.wire import Weights

if TYPE_CHECKING:
    from fedgr_secure.data.views import Views

Forward = Callable[[Tensor], tuple[Tensor, Tensor]]
Objective = Callable[[Mapping[str, Tensor], Mapping[str, Tensor], Forward], Tensor]
ViewName = Literal["plain", "weak", "strong"]

OWN = "own."
"""begins the names of the parameters of a network that stays on its client"""
_EVAL_BATCH = 512
_VIEW_VALUES = 1 << 23
"""pixels of views that are held at a time, unless one batch has more"""


@dataclass(frozen=True)
class TrainingTask:
    """One client's local training as a value: a runner decides how to carry it out.

    Attributes:
        client, round: the address of its random draws.
        start: the weights to start from.
        images: uint8 (n, channels, height, width).
        view: which view the student sees.
        own: weights of a network of the model's kind that belongs to the client alone and trains beside the model. To
            the objective both are one (`models.several`), the shared one first; its parameters' names begin with `OWN`.
        keep: told of that network's trained weights before `finish`, which never sees them.
        second: a batch holds another such view of each sample, too (`second`).
        columns: per-sample tensors (n, ...), cut into batches beside the images.
        objective: pure function of (parameters, batch, forward) -> scalar loss, a mean over the batch in which each
            sample's part depends on the sample alone, and on the parameters through `forward` alone.
        penalty: a term of the loss that depends on the parameters alone.
        epochs: passes over the data.
        finish: the reply to the server, from the trained weights.
        on_step: called after step m = 1, 2, ... with the student's live parameters and buffers.
        on_epoch: called after epoch e = 1, 2, ... with the student's weights.
    """

    client: int
    round: int
    start: Weights
    images: UInt8
    view: ViewName
    columns: Mapping[str, Tensor]
    objective: Objective
    epochs: int
    finish: Callable[[Weights], Any]
    penalty: Callable[[Mapping[str, Tensor]], Tensor] | None = None
    own: Weights | None = None
    keep: Callable[[Weights], None] | None = None
    second: bool = False
    on_step: Callable[[Mapping[str, Tensor], int], None] | None = None
    on_epoch: Callable[[int, Callable[[], Weights]], None] | None = None


class LocalSGD(Protocol):
    """The optimiser of one local training: which samples each step takes, and what it does with their loss."""

    def batches(self, count: int, epochs: int, draw: torch.Generator) -> list[tuple[int, Tensor]]:
        """Epoch (from 1) and rows, int64, of every step over `count` samples."""

    def views(self, draw: torch.Generator) -> torch.Generator:
        """Where the random views of the samples come from; `draw` is the run's own generator."""

    def step(self, loss: Tensor | None, penalty: Tensor | None) -> None:
        """One step on the loss of a batch (None: of no samples) and the penalty."""

    def close(self, weights: Weights) -> None:
        """Told of the trained weights at the end."""


class PlainSGD:
    """SGD over epochs in random order; the last batch is kept however small.

    Args:
        bench: the batch size and the optimiser's settings; with BatchNorm a batch of one sample, which has no variance,
            is skipped.
        task: not asked.
        parameters: trained in place.
    """

    def __init__(self, bench: Workbench, task: TrainingTask, parameters: Mapping[str, nn.Parameter]) -> None:
        self._optimiser = bench.sgd_of(list(parameters.values()))
        self._size, self._least = bench.config.batch_size, 2 if bench.has_batch_norm else 1

    def batches(self, count: int, epochs: int, draw: torch.Generator) -> list[tuple[int, Tensor]]:
        """Every sample once an epoch."""
        return [
            (epoch, rows)
            for epoch in range(1, epochs + 1)
            for rows in torch.randperm(count, generator=draw).split(self._size)
            if len(rows) >= self._least
        ]

    def views(self, draw: torch.Generator) -> torch.Generator:
        """The run's."""
        return draw

    def step(self, loss: Tensor | None, penalty: Tensor | None) -> None:
        """One step of SGD."""
        if loss is None:
            return
        self._optimiser.zero_grad()
        (loss if penalty is None else loss + penalty).backward()
        self._optimiser.step()

    def close(self, weights: Weights) -> None:
        """Nothing is left behind."""


@dataclass(frozen=True)
class Prediction:
    """A model's answer to n images: float32 logits (n, C) and features (n, d)."""

    logits: Tensor
    features: Tensor

    def probabilities(self) -> np.ndarray:
        """Softmax, float32 (n, C)."""
        return F.softmax(self.logits, dim=1).numpy()

    def losses(self, labels: np.ndarray) -> np.ndarray:
        """Cross-entropy with `labels` in nats, float64 (n,)."""
        return F.cross_entropy(self.logits.double(), torch.from_numpy(labels), reduction="none").numpy()


@dataclass
class Workbench:
    """What a process shares between the clients that it plays: one model, the views, the training settings."""

    model: nn.Module
    views: Views
    config: TrainingConfig
    randomness: Randomness
    device: str = "cpu"
    check: bool = False
    """refuse a non-finite loss at the step where it appears (the debug runner's switch)"""
    sgd: Callable[[Workbench, TrainingTask, Mapping[str, nn.Parameter]], LocalSGD] = PlainSGD
    """makes the optimiser of each training"""
    _live: dict[str, Tensor] = field(init=False, repr=False)
    has_batch_norm: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.model.to(self.device)
        self._live = dict(self.model.state_dict(keep_vars=True))
        norms = (nn.modules.batchnorm._BatchNorm,)
        self.has_batch_norm = any(isinstance(module, norms) for module in self.model.modules())

    def weights(self) -> Weights:
        """A copy of the model's parameters and buffers as they are now."""
        return _copied(self._live)

    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters; the other weights are buffers."""
        return tuple(name for name, value in self._live.items() if isinstance(value, nn.Parameter))

    def load(self, weights: Weights) -> None:
        """Set the model's parameters and buffers."""
        _load(self._live, weights)

    def predict(
        self,
        weights: Weights,
        images: UInt8,
        *,
        view: ViewName = "plain",
        draw: torch.Generator | None = None,
        network: int | None = None,
    ) -> Prediction:
        """Logits and features of `images` under `weights`, in evaluation mode.

        Args:
            weights: parameters and buffers.
            images: uint8 (n, channels, height, width).
            view: which view the model sees; weak and strong need `draw`.
            draw: the generator of the view's random choices.
            network: which of several networks answers; None: the model that they are.
        """
        self.load(weights)
        self.model.eval()
        answers = self.model if network is None else networks_of(self.model)[network]
        logits, features = [], []
        with torch.no_grad():
            for start in range(0, len(images), _EVAL_BATCH):
                batch = self._view(images[start : start + _EVAL_BATCH], view, draw).to(self.device)
                output = answers(batch)
                logits.append(output[0].cpu())
                features.append(output[1].cpu())
        return Prediction(torch.cat(logits), torch.cat(features))

    def train(self, task: TrainingTask) -> Weights:
        """Carry out one local training with a fresh optimiser; the trained weights.

        Raises:
            InputError: with BatchNorm, a client of one sample, which would never train.
        DivergedError: a loss is not finite, and `check` is on.
        """
        require(
            len(task.images) > 1 or not self.has_batch_norm,
            f"client {task.client}: {len(task.images)} sample, allowed with norm batch: from 2; --norm group takes any",
        )
        self.load(task.start)
        own = self._beside(task.own)
        model = self.model if own is None else Several([self.model, own])
        model.train()
        draw = self.randomness.torch("local training", client=task.client, round=task.round)
        parameters = {n: p for n, p in self._live.items() if isinstance(p, nn.Parameter)}
        parameters |= {} if own is None else {OWN + name: value for name, value in own.named_parameters()}
        sgd = self.sgd(self, task, parameters)
        columns = {name: column.to(self.device) for name, column in task.columns.items()}
        step = 0
        plan = sgd.batches(len(task.images), task.epochs, draw)
        for epoch, batches in groupby(self._batches(task, plan, sgd.views(draw)), key=lambda pair: pair[0]):
            for _, batch in batches:
                rows = batch.pop("rows")
                batch |= {name: column[rows] for name, column in columns.items()}
                loss = task.objective(parameters, batch, model) if len(rows) else None
                sgd.step(loss, task.penalty(parameters) if task.penalty is not None else None)
                step += 1
                if self.check and loss is not None and not torch.isfinite(loss):
                    raise DivergedError(f"epoch {epoch}, step {step}: the loss is {loss.item()}")
                if task.on_step is not None:
                    task.on_step(self._live, step)
            if task.on_epoch is not None:
                task.on_epoch(epoch, self.weights)
                model.train()
        if own is not None and task.keep is not None:
            task.keep(_copied(own.state_dict()))
        trained = self.weights()
        sgd.close(trained)
        return trained

    def _beside(self, weights: Weights | None) -> nn.Module | None:
        """Another network of the model's kind, with these weights."""
        if weights is None:
            return None
        own = copy.deepcopy(self.model)
        _load(own.state_dict(), weights)
        return own

    def sgd_of(self, parameters: list[nn.Parameter]) -> torch.optim.SGD:
        """A fresh SGD optimiser with the settings of the run."""
        config = self.config
        return torch.optim.SGD(parameters, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay)

    def _batches(
        self, task: TrainingTask, plan: list[tuple[int, Tensor]], draw: torch.Generator
    ) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """Pairs of epoch and batch (`images`, perhaps `second`, and the `rows` they are), as planned.

        Views are made for many batches at a time, also across epochs: on small clients that is most of their cost.
        """
        at_a_time = max(1, _VIEW_VALUES // (self.config.batch_size * task.images[0].size))
        for start in range(0, len(plan), at_a_time):
            part = plan[start : start + at_a_time]
            images = task.images[torch.cat([rows for _, rows in part]).numpy()]
            empty, sizes = torch.empty(0, *images.shape[1:]), [len(rows) for _, rows in part]
            views = {
                name: (self._view(images, task.view, draw) if len(images) else empty).split(sizes)
                for name in (("images", "second") if task.second else ("images",))
            }
            for at, (epoch, rows) in enumerate(part):
                batch = {name: pictures[at].to(self.device) for name, pictures in views.items()}
                yield epoch, batch | {"rows": rows.to(self.device)}

    def _view(self, images: UInt8, view: ViewName, draw: torch.Generator | None) -> Tensor:
        if view == "plain":
            return self.views.plain(images)
        assert draw is not None, "a random view needs a generator"
        return self.views.weak(images, draw) if view == "weak" else self.views.strong(images, draw)


def _copied(live: Mapping[str, Tensor]) -> Weights:
    """A copy of parameters and buffers as they are now."""
    return {name: value.detach().cpu().numpy().copy() for name, value in live.items()}


def _load(live: Mapping[str, Tensor], weights: Weights) -> None:
    """Set parameters and buffers."""
    with torch.no_grad():
        for name, value in live.items():
            value.copy_(torch.from_numpy(np.asarray(weights[name])))
