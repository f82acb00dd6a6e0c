"""The two switches against heavy tails: capped losses, and one variance for both components."""

import numpy as np
from sklearn.mixture import GaussianMixture

from fedgr_secure.method.sieve import MixtureSettings, fit_mixture, judge


def test_tied_variances_equal_scikit_learns():
    draw = np.random.default_rng(0)
    losses = np.concatenate([draw.normal(0.5, 0.3, 300), draw.normal(2.5, 0.3, 700)])
    mixture = fit_mixture(losses, seed=3, settings=MixtureSettings(tied=True))
    assert mixture.variances[0] == mixture.variances[1]
    theirs = GaussianMixture(2, covariance_type="tied", max_iter=50, tol=1e-2, reg_covar=5e-4, random_state=3)
    theirs.fit(losses[:, None])
    clean = int(np.argmin(theirs.means_[:, 0]))
    assert np.allclose(judge(mixture, losses).q, theirs.predict_proba(losses[:, None])[:, clean], atol=1e-12)


def test_a_heavy_tail_takes_a_component_unless_losses_are_capped():
    """Clean losses near 1.2, wrong ones near 2.4, one in eight wrong ones far out: the tail looks like a mode."""
    draw = np.random.default_rng(1)
    wrong = np.concatenate([draw.normal(2.4, 0.3, 660), draw.uniform(6, 12, 90)])
    losses, is_wrong = np.concatenate([draw.normal(1.2, 0.3, 250), wrong]), np.arange(1000) >= 250
    plain = judge(fit_mixture(losses, seed=0), losses)
    capped = np.minimum(losses, 1.5 * np.log(10))
    tied = judge(fit_mixture(capped, seed=0, settings=MixtureSettings(tied=True)), capped)
    assert np.mean((plain.q < 0.5) == is_wrong) < 0.5
    assert np.mean((tied.q < 0.5) == is_wrong) > 0.95
