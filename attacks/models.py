"""The global models that a server has sent, and what they say of an image."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray

from fedgr_secure.data.types import ImageSpec, UInt8
from fedgr_secure.data.views import Views
from fedgr_secure.federation.model import model_of
from fedgr_secure.federation.view import ServerView
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import Config
from fedgr_secure.training import Workbench
from fedgr_secure.wire import Weights

Predict = Callable[[Weights, UInt8], NDArray[np.float64]]


def predictor(config: Config, spec: ImageSpec) -> Predict:
    """Maps weights and images to log-softmax, float64 (n, classes), as a client of the run computes it.

    Args:
        config: of the run.
        spec: of its images; its mean and standard deviation are those that the clients normalise with.
    """
    model = model_of(config, spec)
    bench = Workbench(model, Views.for_images(spec, config.views), config.training, Randomness(0), config.output.device)

    def predict(weights: Weights, images: UInt8) -> NDArray[np.float64]:
        """Log-softmax of the images under the weights."""
        if not len(images):
            return np.zeros((0, spec.classes))
        log_softmax: NDArray[np.float64] = F.log_softmax(bench.predict(weights, images).logits.double(), dim=1).numpy()
        return log_softmax

    return predict


def sent_models(view: ServerView) -> dict[int, Weights]:
    """The global model at the start of each recorded round; the first has seen nobody.

    Raises:
        InputError: nothing was recorded, or a file is damaged.
    """
    found = {}
    for number in view.rounds():
        for seen in view.messages(number, [kind for kind in view.kinds if "weights" in kind.__dataclass_fields__]):
            if not seen.up and seen.message.weights is not None:
                found[number] = seen.message.weights
                break
    return found
