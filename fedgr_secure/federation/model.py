"""The model of a run: one network of the configured kind, or as many as its method trains."""

from __future__ import annotations

from torch import nn

from fedgr_secure.data.types import ImageSpec
from fedgr_secure.models import build_model
from fedgr_secure.models.several import Several
from fedgr_secure.randomness import Randomness
from fedgr_secure.registry import METHODS
from fedgr_secure.sections import Config


def model_of(config: Config, spec: ImageSpec) -> nn.Module:
    """What every client of the run trains, with the run's initial weights; a second network has others than the first.

    Raises:
        InputError: the images are too small for the model, or the pretrained weights do not fit.
    """
    randomness, count = Randomness(config.seed), METHODS[config.method].networks
    purposes = ["initial weights", *(f"initial weights of network {number}" for number in range(2, count + 1))]
    networks = [build_model(config.model, spec, seed=randomness.integer(purpose)) for purpose in purposes]
    return networks[0] if count == 1 else Several(networks)
