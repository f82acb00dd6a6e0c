"""Made-up but valid results of a grid, without a run: for the tests of what shows them."""

from dataclasses import replace
from functools import cache

import numpy as np

from attacks.metrics import evaluate, roc
from attacks.results import Caps
from fedgr_secure.app.tradeoff.audits import Certified
from fedgr_secure.app.tradeoff.grid import Grid, Row
from fedgr_secure.app.tradeoff.results import Leak, Measured
from fedgr_secure.config import override
from fedgr_secure.records import Summary
from fedgr_secure.sections import Config
from privacy.claims import PrivacyClaim, no_privacy, summed_weights

BASE = override(Config(), {"train_size": 900, "rounds": 20})


def claim(epsilon, channel="histogram"):
    return PrivacyClaim(
        "loss proxies", channel, "Laplace", epsilon, 1e-5, "replace-one", "none", "Each release adds up."
    )


def summary(seed=0, *, accuracy=0.9, pearson=0.95, right=0.97, epsilon=None, method="fedgr", **changes):
    """Of one run; `epsilon` is claimed of its loss proxies."""
    proxies = [claim(epsilon)] if epsilon else [no_privacy("loss proxies", "plain", "Each client's losses are seen.")]
    values = {
        "method": method,
        "data": "digits",
        "seed": seed,
        "rounds": 20,
        "accuracy_last10": accuracy + 0.01 * seed,
        "accuracy_best": accuracy + 0.02 + 0.01 * seed,
        "noise_rate_pearson": pearson,
        "mislabel_accuracy": right,
        "mislabel_auc": right,
        "memorised_share": 0.05,
        "seconds": 61.0 + seed,
        "seconds_by_phase": {"train": 50.0},
        "bytes_up": 13_000_000,
        "bytes_down": 26_000_000,
        "client_updates": 200,
        "privacy": (summed_weights(colluders=1, insecure=False), *(proxies if method == "fedgr" else [])),
        "mislabel_calibration_error": None if right is None else 0.04,
        "peak_memory": 850_000_000,
    }
    return Summary(**(values | changes))


@cache
def leak(strength=0.0, *, others=400, subject="loss proxies", attack="matching", epsilon=None):
    """An attack whose scores for members are higher by `strength` standard deviations."""
    draw = np.random.default_rng(7)
    scores = np.concatenate([draw.normal(strength, 1, 300), draw.normal(0, 1, others)])
    truth = np.arange(300 + others) < 300
    metrics = evaluate(scores, truth)
    assert metrics is not None
    caps = Caps.of(epsilon, 1e-5) if epsilon else None
    return Leak(attack, "any", subject, metrics, roc(scores, truth), caps)


def row(series, setting="IID", *, published=None, axes=None, **changes):
    config = override(BASE, {**changes, **(axes or {})})
    return Row(setting, series, axes or {}, published, config)


def measured(one, summaries=(), *, failed=(), leaks=(), certified=None):
    return Measured(one, tuple(summaries), tuple(failed), tuple(leaks), certified)


def private(epsilon, *, setting="IID", series="FedGR, histogram", seeds=2, pearson=0.95, strength=0.1, verdict="PASS"):
    """A complete row with an epsilon; `pearson` may be a list, one value a run."""
    pearsons = pearson if isinstance(pearson, list) else [pearson] * seeds
    runs = [summary(s, accuracy=0.88, pearson=p, epsilon=epsilon) for s, p in enumerate(pearsons)]
    certified = Certified(epsilon, 0.0 if verdict == "NO POWER" else 0.9 * epsilon, "sum", verdict, 2500, 0.95, 5.0)
    leaks = [leak(strength, epsilon=epsilon)]
    return measured(row(series, setting, axes={"epsilon": epsilon}), runs, leaks=leaks, certified=certified)


def open_rows(setting="IID", published=None):
    """FedAvg and FedGR with losses in the clear, two seeds each."""
    plain = [summary(s, accuracy=0.9) for s in range(2)]
    average = [summary(s, accuracy=0.7, pearson=None, right=None, method="fedavg") for s in range(2)]
    series = leak(0.8, subject="model weights", attack="series")
    return [
        measured(row("FedAvg", setting, published=published, method="fedavg"), average, leaks=[series]),
        measured(row("FedGR, plain", setting, published=published, channel="plain"), plain, leaks=[leak(6.0), series]),
    ]


def grid(rows, *, title="Made up", seeds=2, reference="FedGR, plain"):
    return Grid(title, tuple(one.row for one in rows), seeds, reference, 1000)


def full():
    """Three settings: failed runs, undefined correlations, a refuted claim, an audit without power, a missing row."""
    rows = [*open_rows(), private(0.5, pearson=[None, None], verdict="NO POWER"), private(1.0, pearson=[0.8, None])]
    rows += [private(8.0, verdict="FAIL", strength=0.4)]
    rows += [*open_rows("Non-IID", "cifar10-noniid-mixed"), private(1.0, setting="Non-IID")]
    rows += [measured(row("FedGR, histogram", "Non-IID", axes={"epsilon": 8.0}), failed=[0, 1])]
    rows += [measured(row("FedAvg", "<b>Third</b>", method="fedavg"), [summary(1, method="fedavg")], failed=[0])]
    hostile = private(1.0, setting="<b>Third</b>", series='FedGR <script>alert("x")</script> & $noise$')
    rows += [replace(hostile, leaks=(leak(0.1, attack="<i>matching</i>"),))]
    return rows
