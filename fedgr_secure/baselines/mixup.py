"""Mixup (Zhang et al. 2018, ICLR): pairs of samples blended, their labels alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedgr_secure.training import Forward


def blend(images: Tensor, targets: Tensor, rows: Tensor, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
    """lambda x_i + (1 - lambda) x_j for images and targets, with one lambda ~ U(0, 1) = Beta(1, 1) a batch.

    Args:
        images: float (n, ...).
        targets: float (n, C), the shares of each class.
        rows: int64, whose partners are drawn among themselves; every other sample is its own partner.
        draw: of lambda and the partners.
    """
    partner = torch.arange(len(images), device=images.device)
    share = float(draw.beta(1.0, 1.0))
    partner[rows] = rows[torch.from_numpy(draw.permutation(len(rows))).to(rows.device)]
    return share * images + (1 - share) * images[partner], share * targets + (1 - share) * targets[partner]


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """-sum_c target_c log p_c, a mean over the samples in nats."""
    return -(targets * F.log_softmax(logits, dim=1)).sum(1).mean()


@dataclass(frozen=True)
class MixedLoss:
    """Cross-entropy on blended samples.

    Attributes:
        draw: of one training; each batch takes the next numbers.
    """

    draw: np.random.Generator
    classes: int

    def __call__(self, parameters: Mapping[str, Tensor], batch: Mapping[str, Tensor], forward: Forward) -> Tensor:
        """Scalar. One batch is looked at as a whole."""
        images, labels = batch["images"], batch["labels"]
        rows = torch.arange(len(labels), device=labels.device)
        mixed, targets = blend(images, F.one_hot(labels, self.classes).float(), rows, self.draw)
        return soft_cross_entropy(forward(mixed)[0], targets)
