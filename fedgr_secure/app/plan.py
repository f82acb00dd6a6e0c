"""A plan of releases, as the accountant is asked about it. Imports neither torch nor numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fedgr_secure.bounds import UNSET


@dataclass(frozen=True)
class Plan:
    """What a private channel is to release, and either its noise or its epsilon."""

    epsilon: Annotated[float | None, UNSET] = None
    """the budget: what noise does it need? (default: 1 where no scale is given)"""
    scale: Annotated[float | None, UNSET] = None
    """the noise: what epsilon does it cost? of a count, all honest shares; in nats; as a multiple of the clip"""
    delta: float = 1e-5
    """the failure probability that goes with epsilon (Laplace noise needs none)"""
    channel: Literal["histogram", "noisy", "weights"] = "histogram"
    """noisy counts under a secure sum, a noisy number per sample, or the weights trained by DP-SGD"""
    releases: int = 6
    """in how many releases (weights: local trainings) a client takes part"""
    adjacency: Literal["replace-one", "add-remove", "label", "client"] = "replace-one"
    """what is protected"""
    honest: int = 5
    """histogram: honest clients whose shares of the noise are in every sum"""
    noising: Literal["once", "per_loss", "diagonal", "fresh_on_mean"] = "once"
    """noisy: the plan; once takes one release"""
    mechanism: Literal["laplace", "gaussian"] = "laplace"
    """noisy: the noise"""
    clip: float = 4.605
    """noisy: nats at which losses are clipped; 2 ln 10 here"""
    grid_steps: int = 1024
    """noisy: steps from 0 to the clip"""
    largest: int = 64
    """records of one client at most; what the adjacency client is about"""
    rate: float = 1.0
    """weights: the share of a client's records in a batch"""
    steps: int = 1
    """weights: steps of one local training"""
    records: int = 1000
    """records of all clients; delta must be below one over them"""
