"""What a client of FedDiv trains on (Li et al. 2024, see `feddiv`): which samples, and which of a batch count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fedgr_secure.baseline_sections import FedDivConfig
from fedgr_secure.baselines.mixup import blend, soft_cross_entropy
from fedgr_secure.training import Forward


def usable(
    labels: NDArray[np.int64], clean: NDArray[np.bool_], share: NDArray[np.float32], config: FedDivConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the samples to train on, and their labels.

    Args:
        labels: int64 (n,), given.
        clean: bool (n,), by the filter.
        share: float32 (n, C), the global model's predictions.
        config: when a client is noisy, and when a prediction is sure.
    """
    if (~clean).mean() <= config.noisy_above:
        return np.arange(len(labels)), labels
    rows = np.flatnonzero(clean | (share.max(1) >= config.relabel_above))
    return rows, np.where(clean, labels, share.argmax(1))[rows]


def consistent(logits: Tensor, prior: Tensor, expected: Tensor, factor: float) -> Tensor:
    """Bool (n,): whether logits less `factor` log prior predict the expected class."""
    return (logits - factor * prior.clamp_min(1e-12).log()).argmax(1) == expected


@dataclass
class ConsistentLoss:
    """Mixup on the samples of a batch on which the local and the global model agree.

    Attributes:
        config: factor, momentum.
        prior_weight: of KL(equal shares || mean prediction).
        draw: of mixup.
        prior: float (C,), the running mean of the local predictions; None before the first batch.
    """

    config: FedDivConfig
    prior_weight: float
    draw: np.random.Generator
    prior: Tensor | None = field(default=None)

    def __call__(self, parameters: Mapping[str, Tensor], batch: Mapping[str, Tensor], forward: Forward) -> Tensor:
        """Scalar, 0 where no sample counts. One batch is looked at as a whole."""
        images, labels = batch["images"], batch["labels"]
        with torch.no_grad():
            logits = forward(images)[0]
        rows = consistent(logits, self._follow(logits), batch["expected"], self.config.debias_factor).nonzero()[:, 0]
        mixed, targets = blend(images, F.one_hot(labels, logits.shape[1]).float(), rows, self.draw)
        found = forward(mixed)[0]
        if not len(rows):
            return 0 * found.sum()
        log_mean = F.softmax(found[rows], dim=1).mean(0).clamp_min(1e-12).log()
        equal = -np.log(logits.shape[1]) - log_mean.mean()
        return soft_cross_entropy(found[rows], targets[rows]) + self.prior_weight * equal

    def _follow(self, logits: Tensor) -> Tensor:
        past = torch.full_like(logits[0], 1 / logits.shape[1]) if self.prior is None else self.prior
        momentum = self.config.prior_momentum
        self.prior = momentum * past + (1 - momentum) * F.softmax(logits, dim=1).mean(0)
        return self.prior
