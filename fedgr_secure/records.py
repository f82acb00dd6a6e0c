"""What a run reports: typed records, written as JSON.

`rounds.jsonl` holds one `RoundRecord` a round and nothing that depends on the clock, so that two equal runs have
equal files; seconds are in `timings.jsonl` (one `RoundTiming` a round) and in the summary. A quantity that does not
apply is null, never a made-up number.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

from privacy.claims import PrivacyClaim


@dataclass(frozen=True)
class MixtureRecord:
    """The two-component mixture of a round (component 0 is the clean one). Units: nats."""

    means: tuple[float, float]
    variances: tuple[float, float]
    weights: tuple[float, float]
    note: str | None
    """why everything counts as clean (constant, tiny or single-mode losses), or a fitting warning"""


@dataclass(frozen=True)
class SumRecord:
    """One secure sum of a round.

    Attributes:
        neighbours, threshold: k and t.
        survivors: whose values are in the sum; empty when it was given up.
        aborted: why it was given up, or None.
        clipped: coordinates beyond the public range, by group, over all survivors.
        entropy: "system", or "insecure-seeded" (a simulation: the masks protect nothing).
        bytes_up, bytes_down: by phase.
    """

    neighbours: int
    threshold: int
    survivors: tuple[int, ...]
    aborted: str | None
    clipped: dict[str, int]
    entropy: str
    bytes_up: dict[str, int]
    bytes_down: dict[str, int]


@dataclass(frozen=True)
class ReleaseRecord:
    """A release of loss proxies by a private channel in a round.

    Attributes:
        releases: by client of the cohort, for how many it has been charged so far.
        epsilon: the most that any client of the cohort has spent so far, at the budget's delta; None in a simulation.
        sent: the clients that made an upload in this round.
        secure_sum: how the secure sum of the histograms went; None where rows travelled.
    """

    releases: dict[str, int]
    epsilon: float | None
    sent: tuple[int, ...]
    secure_sum: SumRecord | None


@dataclass(frozen=True)
class TrainingRecord:
    """The private trainings (DP-SGD) of a round.

    Attributes:
        trainings: by client of the cohort, for how many it has been charged so far.
        epsilon: the most that any client of the cohort has spent so far on its weights; None in a simulation.
        total_epsilon: the same for everything it has sent, weights and loss proxies.
        sent: the clients that trained in this round.
    """

    trainings: dict[str, int]
    epsilon: float | None
    total_epsilon: float | None
    sent: tuple[int, ...]


@dataclass(frozen=True)
class RoundRecord:
    """One round, as it ended.

    Attributes:
        round: from 0.
        stage: "warm-up" or "main".
        cohort: the clients drawn.
        accuracy: test accuracy of the new global model, in [0, 1].
        test_loss: mean test cross-entropy in nats.
        estimated_noise: mean of the cohort's r_k.
        noise_rate_pearson: correlation of the newest r_k with the realised noise rate, over all clients seen.
        mislabel_accuracy: share of the seen samples whose clean/wrong verdict is right.
        mislabel_auc: area under the ROC of P(wrong) against wrong, over the seen samples.
        mislabel_calibration_error: expected calibration error of P(wrong), over the seen samples, in [0, 1].
        memorised_share: share of all wrongly labelled samples for which the global model predicts the wrong label.
        mixture: the server's mixture, if it fitted one.
        bytes_up, bytes_down: serialised messages of the round.
        client_updates: local trainings done in the round.
        survivors: whose updates are in the average; None when the whole cohort's are. Of the others some have vanished,
            and a method may have asked some for no update (FedCorr's stage 2 asks the clean clients alone).
        secure_sum: how the secure sum of the weights went, if they travelled under one.
        release: what a private channel released, if it did.
        training: what DP-SGD was charged for, if the weights are trained by it.
    """

    round: int
    stage: str
    cohort: tuple[int, ...]
    accuracy: float
    test_loss: float
    estimated_noise: float | None
    noise_rate_pearson: float | None
    mislabel_accuracy: float | None
    mislabel_auc: float | None
    memorised_share: float | None
    mixture: MixtureRecord | None
    bytes_up: int
    bytes_down: int
    client_updates: int
    survivors: tuple[int, ...] | None = None
    secure_sum: SumRecord | None = None
    release: ReleaseRecord | None = None
    training: TrainingRecord | None = None
    mislabel_calibration_error: float | None = None


@dataclass(frozen=True)
class RoundTiming:
    """Wall seconds of one round by phase (message type or "evaluate"), in the order they ran."""

    round: int
    seconds: dict[str, float]


@dataclass(frozen=True)
class ClientRecord:
    """One client at the end of a run, for `clients.json`."""

    client: int
    samples: int
    noise_kind: str
    drawn_rate: float | None
    realised_rate: float
    estimated_rate: float | None
    participations: int
    releases: int | None = None
    """charged by a private channel"""
    epsilon: float | None = None
    """spent by these"""
    trainings: int | None = None
    """charged by DP-SGD"""
    total_epsilon: float | None = None
    """spent by both together"""


@dataclass(frozen=True)
class LossHistogram:
    """The clients' final running-mean losses, counted per bin and split by the truth, for `losses.json`.

    Attributes:
        edges: b + 1 rising bin edges in nats.
        clean: b counts of rightly labelled samples.
        wrong: b counts of wrongly labelled samples.
        mixture: the newest mixture, or None.
    """

    edges: tuple[float, ...]
    clean: tuple[int, ...]
    wrong: tuple[int, ...]
    mixture: MixtureRecord | None

    def __post_init__(self) -> None:
        bins = len(self.edges) - 1
        if bins < 1 or len(self.clean) != bins or len(self.wrong) != bins:
            raise ValueError(
                f"{len(self.edges)} edges, {len(self.clean)} clean and {len(self.wrong)} wrong counts, "
                "allowed: one edge more than counts"
            )
        if not all(low < high for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("edges, allowed: rising numbers")
        if not math.isfinite(self.edges[-1] - self.edges[0]):
            raise ValueError(f"edges from {self.edges[0]:g} to {self.edges[-1]:g}, allowed: a finite span")
        if min(*self.clean, *self.wrong) < 0:
            raise ValueError(f"{min(*self.clean, *self.wrong)} samples in a bin, allowed: a whole number from 0")


@dataclass(frozen=True)
class Summary:
    """`summary.json`: the figures of a run. Accuracies are shares in [0, 1].

    `sums_given_up` counts the rounds whose secure sum had too few clients left and left the model as it was; null
    for a run in the clear. `oracle` says what of the truth the clients were told; null for nothing, as it should be.
    `peak_memory` is in bytes, of the process that ended the run, with whatever else it did.
    """

    method: str
    data: str
    seed: int
    rounds: int
    accuracy_last10: float
    accuracy_best: float
    noise_rate_pearson: float | None
    mislabel_accuracy: float | None
    mislabel_auc: float | None
    memorised_share: float | None
    seconds: float
    seconds_by_phase: dict[str, float]
    bytes_up: int
    bytes_down: int
    client_updates: int
    privacy: tuple[PrivacyClaim, ...]
    sums_given_up: int | None = None
    mislabel_calibration_error: float | None = None
    peak_memory: int | None = None
    oracle: str | None = None


def to_json(record: Any) -> str:
    """A record as one line of strict JSON (no NaN, no Infinity).

    Raises:
        ValueError: a number in it is not finite.
    """
    return json.dumps(dataclasses.asdict(record), allow_nan=False)


def finite_or_none(value: float) -> float | None:
    """A number for a record: None when it is undefined.

    >>> finite_or_none(float("nan")) is None, finite_or_none(0.5)
    (True, 0.5)
    """
    return float(value) if math.isfinite(value) else None
