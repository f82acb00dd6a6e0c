"""Several networks of one kind as one model: what is averaged, summed, counted, saved and attacked is all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from fedgr_secure.models.output import Output


class Several(nn.Module):
    """Networks side by side, each with weights of its own.

    The gradient of a sum of losses, one a network, is for each network that of its own loss alone, and SGD moves each
    parameter by its own gradient: one optimiser over all of them is as many optimisers as there are networks.

    Args:
        networks: of one kind.
    """

    def __init__(self, networks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, images: Tensor) -> Output:
        """The mean of the networks' logits (n, classes), and their features side by side (n, networks * d).

        The largest mean is the largest sum, by which Li et al. (2020, DivideMix) classify.
        """
        outputs = each_output(self, images)
        logits = torch.stack([output.logits for output in outputs]).mean(0)
        return Output(logits, torch.cat([output.features for output in outputs], dim=1))


def networks_of(model: Callable[[Tensor], Any]) -> tuple[nn.Module, ...]:
    """The networks that a model is."""
    assert isinstance(model, Several), f"{type(model).__name__}: a method that asks each network says how many"
    return tuple(model.networks)


def each_output(forward: Callable[[Tensor], Any], images: Tensor) -> tuple[Output, ...]:
    """Every network's own answer, for an objective that is given the run's model as `forward`."""
    return tuple(network(images) for network in networks_of(forward))
