"""What is promised about weights that are trained without differential privacy."""

from __future__ import annotations

from fedgr_secure.checks import sums_securely
from fedgr_secure.cohorts import cohort_sizes
from fedgr_secure.sections import Config
from privacy.claims import PrivacyClaim, plain_weights, summed_weights
from privacy.secagg import default_colluders


def weights_claim(config: Config) -> PrivacyClaim:
    """The claim about the clients' weights under this configuration."""
    if not sums_securely(config):
        return plain_weights()
    federation, settings = config.federation, config.secure_sum
    sizes = cohort_sizes(clients=federation.clients, size=federation.cohort, warmup=federation.warmup)
    most = settings.colluders if settings.colluders is not None else min(map(default_colluders, sizes))
    return summed_weights(colluders=most, insecure=settings.entropy == "insecure-seeded")
