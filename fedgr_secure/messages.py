"""Messages that every method shares. Each is a frozen dataclass that `fedgr_secure.wire` turns into bytes."""

from __future__ import annotations

from dataclasses import dataclass

from fedgr_secure.wire import Weights


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
        if self.samples < 1:
            raise ValueError(f"samples: {self.samples}, allowed: a whole number from 1")
