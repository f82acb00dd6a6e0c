"""Messages that every method shares. Each is a frozen dataclass that `fedgr_secure.wire` turns into bytes."""

from __future__ import annotations

from dataclasses import dataclass

from fedgr_secure.wire import Weights

MOST_SAMPLES = 2**31 - 1
"""of one client; more is a mistake or an attack on the average"""


@dataclass(frozen=True)
class Train:
    """Server to client: train on your data, starting from these weights.

    Attributes:
        round: from 0.
        weights: the global model's parameters and buffers by name.
    """

    round: int
    weights: Weights


@dataclass(frozen=True)
class Update:
    """Client to server: the locally trained model.

    Attributes:
        round: the round that this answers.
        samples: n_k, the weight of this update in the average.
        weights: the local model's parameters and buffers by name.
    """

    round: int
    samples: int
    weights: Weights

    def __post_init__(self) -> None:
        if type(self.samples) is not int or not 1 <= self.samples <= MOST_SAMPLES:
            raise ValueError(f"samples: {self.samples}, allowed: a whole number from 1 to {MOST_SAMPLES}")
