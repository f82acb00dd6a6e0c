"""Rows of a trade-off that no run stands behind, for tests of what is made of them."""

import dataclasses

import numpy as np
from run_folders import make_summary

from attacks.metrics import evaluate, roc
from attacks.results import Caps
from fedgr_secure.app.tradeoff.grid import Row
from fedgr_secure.app.tradeoff.results import Leak, Measured
from fedgr_secure.config import override
from fedgr_secure.sections import Config
from privacy.claims import PrivacyClaim, summed_weights


def proxies_claim(epsilon):
    """A claim on loss proxies."""
    words = (
        "secure histogram",
        "discrete Gaussian",
        epsilon,
        1e-5,
        "replace-one",
        "none amplifies",
        "Counts are noisy.",
    )
    return PrivacyClaim("loss proxies", *words)


def leak(area, *, attack="matching", game="any", subject="loss proxies", others=2000, epsilon=None):
    """An attack with about this area: members' scores are shifted normal quantiles."""
    from scipy.stats import norm

    grid = norm.ppf((np.arange(others) + 0.5) / others)
    scores = np.concatenate([grid + np.sqrt(2) * norm.ppf(area), grid])
    truth = np.arange(2 * others) < others
    caps = Caps.of(epsilon, 1e-5) if epsilon is not None else None
    return Leak(attack, game, subject, evaluate(scores, truth), roc(scores, truth), caps)


def measured(
    series,
    *,
    accuracies=(0.9,),
    pearsons=None,
    epsilon=None,
    setting="IID",
    leaks=(),
    certified=None,
    failed=(),
    **more,
):
    """A row with one run for each accuracy, seeds from 0."""
    axes = {} if epsilon is None else {"epsilon": epsilon}
    changes = {"channel": "plain"} if epsilon is None else {"channel": "histogram", "epsilon": epsilon}
    row = Row(setting, series, axes, more.pop("published", None), override(Config(), changes | more))
    claims = (*([proxies_claim(epsilon)] if epsilon is not None else []), summed_weights(colluders=1, insecure=False))
    pearsons = pearsons or [0.98] * len(accuracies)
    summaries = tuple(
        dataclasses.replace(
            make_summary(), seed=seed, accuracy_last10=accuracy, noise_rate_pearson=pearson, privacy=claims
        )
        for seed, (accuracy, pearson) in enumerate(zip(accuracies, pearsons, strict=True))
    )
    return Measured(row, summaries, tuple(failed), tuple(leaks), certified)
