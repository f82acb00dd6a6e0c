"""What every model returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Output(NamedTuple):
    """A forward pass over n images.

    Attributes:
        logits: float (n, classes).
        features: float (n, d), the representation that the last linear layer reads; f(.; w) in docs/method.md.
    """

    logits: Tensor
    features: Tensor
