"""The evaluator: the only holder of the truth. It looks at models and client states from outside the federation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.context import Method
from fedgr_secure.data.types import FederatedData, Truth
from fedgr_secure.method.sieve import Verdict
from fedgr_secure.records import LossHistogram, MixtureRecord, finite_or_none
from fedgr_secure.training import Workbench
from fedgr_secure.wire import Weights

_CHUNK = 2048
_CALIBRATION_BINS = 15


@dataclass(frozen=True)
class SieveScores:
    """How well the clients know their own label errors, over everyone seen so far; None where undefined."""

    pearson: float | None = None
    mislabel_accuracy: float | None = None
    mislabel_auc: float | None = None
    mislabel_calibration_error: float | None = None


@dataclass
class Evaluator:
    """Measures a model and the clients' verdicts against the truth."""

    data: FederatedData
    truth: Truth
    bench: Workbench
    method: Method
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    mean_losses: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    participations: dict[int, int] = field(default_factory=dict)
    releases: dict[int, int] = field(default_factory=dict)

    def note(self, client: int, state: Any) -> None:
        """Take note of a client's new state."""
        method = self.method
        if state is None:
            return
        verdict = method.verdict(state) if method.verdict is not None else None
        if verdict is not None:
            self.verdicts[client] = verdict
            if method.mean_losses is not None:
                self.mean_losses[client] = method.mean_losses(state)
        if method.releases is not None:
            self.releases[client] = method.releases(state)

    def test(self, weights: Weights) -> tuple[float, float]:
        """Test accuracy in [0, 1] and mean cross-entropy in nats."""
        correct, loss = 0, 0.0
        total = len(self.truth.test_labels)
        for start in range(0, total, _CHUNK):
            rows = np.arange(start, min(start + _CHUNK, total))
            labels = self.truth.test_labels[rows]
            prediction = self.bench.predict(weights, self.truth.test.take(rows))
            correct += int((prediction.logits.argmax(1).numpy() == labels).sum())
            loss += float(prediction.losses(labels).sum())
        return correct / total, loss / total

    def memorised_share(self, weights: Weights) -> float | None:
        """Share of the wrongly labelled training samples for which the model predicts the wrong given label."""
        wrong, memorised = 0, 0
        for shard, is_wrong in zip(self.data.shards, self.truth.wrong, strict=True):
            rows = np.flatnonzero(is_wrong)
            for start in range(0, len(rows), _CHUNK):
                part = rows[start : start + _CHUNK]
                prediction = self.bench.predict(weights, shard.store.take(shard.index[part]))
                memorised += int((prediction.logits.argmax(1).numpy() == shard.labels[part]).sum())
                wrong += len(part)
        return memorised / wrong if wrong else None

    def sieve_scores(self) -> SieveScores:
        """Pearson of r_k with the realised noise rate; of 1 - q, accuracy above 0.5, AUC and calibration error."""
        from sklearn.metrics import roc_auc_score

        if not self.verdicts:
            return SieveScores()
        clients = sorted(self.verdicts)
        known = {k: self.truth.true_labels[k] >= 0 for k in clients}
        q = np.concatenate([self.verdicts[k].q[known[k]] for k in clients])
        wrong = np.concatenate([self.truth.wrong[k][known[k]] for k in clients])
        estimated = np.array([self.verdicts[k].noise_rate for k in clients])
        both = 0 < wrong.sum() < len(wrong)
        return SieveScores(
            pearson=_pearson(estimated, self.truth.realised_rate[clients]),
            mislabel_accuracy=float(((q < 0.5) == wrong).mean()) if len(q) else None,
            mislabel_auc=float(roc_auc_score(wrong, -q)) if both else None,
            mislabel_calibration_error=calibration_error(1 - q, wrong),
        )

    def estimated_noise(self, cohort: tuple[int, ...]) -> float | None:
        """Mean of the cohort's r_k."""
        rates = [self.verdicts[client].noise_rate for client in cohort if client in self.verdicts]
        return float(np.mean(rates)) if rates else None

    def loss_histogram(self, mixture: MixtureRecord | None, bins: int = 40) -> LossHistogram | None:
        """The clients' running-mean losses by the truth, beside the newest mixture."""
        if not self.mean_losses:
            return None
        losses = np.concatenate([self.mean_losses[k] for k in sorted(self.mean_losses)])
        wrong = np.concatenate([self.truth.wrong[k] for k in sorted(self.mean_losses)])
        finite = np.isfinite(losses)
        edges = np.histogram_bin_edges(losses[finite], bins) if finite.any() else np.array([0.0, 1.0])
        clean_counts, wrong_counts = (np.histogram(losses[finite & part], edges)[0] for part in (~wrong, wrong))
        return LossHistogram(tuple(edges.tolist()), tuple(clean_counts.tolist()), tuple(wrong_counts.tolist()), mixture)


def calibration_error(chance: NDArray[np.float64], happened: NDArray[np.bool_]) -> float | None:
    """Expected calibration error with 15 equal bins (Naeini et al. 2015; Guo et al. 2017); None without a sample.

    The mean over samples of how far, within a bin, the mean stated chance is from the share that happened.

    >>> calibration_error(np.array([0.9, 0.9, 0.9, 0.1]), np.array([True, True, False, False]))  # (0.7 + 0.1) / 4
    0.2
    """
    if not len(chance):
        return None
    bins = np.minimum((chance * _CALIBRATION_BINS).astype(np.int64), _CALIBRATION_BINS - 1)
    return round(float(np.abs(np.bincount(bins, chance - happened)).sum()) / len(chance), 12)


def _pearson(estimated: NDArray[np.float64], realised: NDArray[np.float64]) -> float | None:
    """Pearson's correlation; None with fewer than two clients or without spread on either side."""
    known = np.isfinite(realised)
    estimated, realised = estimated[known], realised[known]
    if len(estimated) < 2 or np.ptp(estimated) == 0 or np.ptp(realised) == 0:
        return None
    return finite_or_none(float(np.corrcoef(estimated, realised)[0, 1]))
