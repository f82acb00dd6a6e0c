"""What is promised about the weights, which every method sends alike."""

from __future__ import annotations

from fedgr_secure.config import Config, sums_securely
from privacy.claims import PrivacyClaim, plain_weights, summed_weights


def weights_claim(config: Config) -> PrivacyClaim:
    """The claim about the clients' weights under this configuration."""
    if not sums_securely(config):
        return plain_weights()
    return summed_weights(insecure=config.secure_sum.entropy == "insecure-seeded")
