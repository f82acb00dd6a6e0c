"""The local teacher: a moving average of the student that the global model revises (docs/method.md, step 4)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from fedgr_secure.wire import Weights


def revise(teacher: Weights | None, global_weights: Weights, gamma_g: float) -> Weights:
    """w_ema^{t,0} = gamma_g w_ema^{t-1} + (1 - gamma_g) w_g^{t-1}; the global weights at the first participation.

    Integer buffers are the global model's.
    """
    if teacher is None:
        return dict(global_weights)
    return {
        name: (gamma_g * teacher[name] + (1 - gamma_g) * value).astype(value.dtype)
        if np.issubdtype(value.dtype, np.floating)
        else value
        for name, value in global_weights.items()
    }


def step_gamma(gamma_l: float, step: int) -> float:
    """min(gamma_l, 1 - 1 / (1 + m)) for local step m >= 1, so that the first steps count fully.

    >>> [round(step_gamma(0.99, m), 3) for m in (1, 2, 1000)]
    [0.5, 0.667, 0.99]
    """
    return min(gamma_l, 1 - 1 / (1 + step))


class MovingAverage:
    """The teacher during one local training: w_ema = gamma w_ema + (1 - gamma) w_k after every step."""

    def __init__(self, start: Weights, gamma_l: float, device: str) -> None:
        self._gamma_l = gamma_l
        self._teacher = {name: torch.from_numpy(np.array(value)).to(device) for name, value in start.items()}

    def step(self, student: Mapping[str, torch.Tensor], step: int) -> None:
        """Fold in the student after local step `step` (from 1)."""
        weight = 1 - step_gamma(self._gamma_l, step)
        with torch.no_grad():
            for name, value in self._teacher.items():
                if value.is_floating_point():
                    value.lerp_(student[name], weight)
                else:
                    value.copy_(student[name])

    def weights(self) -> Weights:
        """The averaged weights so far."""
        return {name: value.cpu().numpy() for name, value in self._teacher.items()}
