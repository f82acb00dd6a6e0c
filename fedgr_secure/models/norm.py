"""Normalisation layers: GroupNorm, which keeps no statistics, or BatchNorm, which averages them over a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import nn

Norm = Literal["group", "batch"]


def group_count(channels: int) -> int:
    """The largest number of equal groups of at least four channels, at most 32 (Wu & He 2018, section 4.1).

    >>> [group_count(c) for c in (3, 16, 20, 64, 512)]
    [1, 4, 5, 16, 32]
    """
    most = max(1, min(32, channels // 4))
    return next(groups for groups in range(most, 0, -1) if channels % groups == 0)


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(group_count(channels), channels)


def norm_2d(norm: Norm) -> Callable[[int], nn.Module]:
    """A layer factory for feature maps (n, channels, height, width)."""
    return _group_norm if norm == "group" else nn.BatchNorm2d


def norm_1d(norm: Norm) -> Callable[[int], nn.Module]:
    """A layer factory for vectors (n, units): one group over all units, or BatchNorm."""
    return nn.LayerNorm if norm == "group" else nn.BatchNorm1d
