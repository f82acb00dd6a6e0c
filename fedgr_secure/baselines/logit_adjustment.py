"""Cross-entropy with logits that are adjusted by a client's own class prior (Menon et al. 2021, ICLR)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fedgr_secure.training import Forward


def log_prior(labels: NDArray[np.int64], classes: int) -> NDArray[np.float32]:
    """Log of the class shares, float32 (C,); half a sample of a class that is absent."""
    counts = np.maximum(np.bincount(labels, minlength=classes), 0.5)
    return np.log(counts / counts.sum()).astype(np.float32)


@dataclass(frozen=True)
class AdjustedLoss:
    """(1 - w) cross-entropy + w KL(soft labels || prediction), both with adjusted logits, in nats.

    Attributes:
        log_prior: float (C,), added to the logits (Menon et al. 2021).
        weight: w; without a column of soft labels there is cross-entropy alone.
    """

    log_prior: Tensor
    weight: float = 0.0

    def __call__(self, parameters: Mapping[str, Tensor], batch: Mapping[str, Tensor], forward: Forward) -> Tensor:
        """Scalar, a mean over the batch."""
        log_share = F.log_softmax(forward(batch["images"])[0] + self.log_prior, dim=1)
        given = F.nll_loss(log_share, batch["labels"])
        if "soft" not in batch:
            return given
        return (1 - self.weight) * given + self.weight * F.kl_div(log_share, batch["soft"], reduction="batchmean")
