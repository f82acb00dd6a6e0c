"""The baselines' settings, and what their published algorithms cannot do. Imports neither torch nor numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fedgr_secure.bounds import UNSET, BelowOne, Bound, FromZero, Positive, Rounds, RoundsFromZero, Share

STAGED = ("fedgr", "dividemix", "fedcorr", "feddiv", "fedelc", "fednoro")
"""methods whose first stage is the warm-up; the others do the same in every round"""

UNSUMMED: dict[str, str] = {
    "fedcorr": "its first stage hands one client's model to the next, and there is no sum to hide it in",
    "fednoro": "its server weighs each noisy client's update by its distance to the clean clients'",
    "fedelc": "its server weighs each noisy client's update by its distance to the clean clients'",
}
"""methods whose weights cannot travel under a secure sum, and why"""

UNPRIVATE: dict[str, str] = {
    "coteaching": "its loss picks among the records of a batch, so that one record changes what the others teach",
    "fedcorr": "its scores leave the client as they are",
    "rofl": "its centroids leave the client as they are",
    "feddiv": "the filter of its losses leaves the client as it is",
    "fednoro": "its mean losses of each class leave the client as they are",
    "dividemix": "its loss mixes the records of a batch with each other",
    "fedelc": "its mean losses of each class leave the client as they are",
    "fedfixer": "its loss picks among the records of a batch, so that one record changes what the others teach",
}
"""methods that cannot be trained by DP-SGD, and why"""

Exponent = Annotated[float, Bound("a number above 0, at most 10", lambda x: 0 < x <= 10)]


@dataclass(frozen=True)
class CoteachingConfig:
    """FL-Coteaching (Han et al. 2018)."""

    forget: Literal["estimated", "given", "oracle"] = "estimated"
    """share of a batch that teaches nothing: the client's own estimate, --forget-rate, or its true noise rate"""
    forget_rate: Annotated[Share | None, UNSET] = None
    """that share for --forget given (default: none; given needs it)"""
    forget_rounds: Rounds = 25
    """rounds until the whole share is left out, T in rate * min(t^c / T, 1)"""
    forget_exponent: Exponent = 1.0
    """c in rate * min(t^c / T, 1)"""


@dataclass(frozen=True)
class FedNoRoConfig:
    """FedNoRo (Wu et al. 2023); its first stage is the warm-up."""

    distillation_weight: Share = 0.8
    """how much the global model's predictions count in a noisy client's loss in the end"""
    distillation_rounds: Annotated[Rounds | None, UNSET] = None
    """rounds after the warm-up in which that weight rises (default: all that are left)"""
    distillation_temperature: Positive = 0.8
    """temperature of the global model's predictions"""


@dataclass(frozen=True)
class DivideMixConfig:
    """FL-DivideMix (Li et al. 2020); its first stage is the warm-up."""

    mix_unlabelled: FromZero = 25.0
    """weight of the squared error on samples that have lost their label, in the end"""
    mix_rounds: Rounds = 16
    """rounds after the warm-up in which that weight rises"""
    mix_temperature: Positive = 0.5
    """temperature that refined and guessed labels are sharpened by"""
    mix_beta: Positive = 4.0
    """both parameters of the Beta distribution of the shares in mixing"""
    mix_clean: BelowOne = 0.5
    """a sample keeps its label above this probability (strict)"""


@dataclass(frozen=True)
class FedELCConfig:
    """FedELC (Jiang et al. 2024); its first stage is the warm-up."""

    label_scale: Positive = 10.0
    """what a noisy client's logits of its labels start from: this times the given one"""
    label_step: FromZero = 1000.0
    """step that these logits take after every local epoch"""
    label_compatibility: FromZero = 0.5
    """how much a learnt label is held to the given one"""
    label_entropy: FromZero = 0.2
    """how much the model is to decide for one class"""


@dataclass(frozen=True)
class FedFixerConfig:
    """FedFixer (Ji et al. 2024); its coefficients are unpublished, so all four defaults are ours."""

    fixer_forget: Share = 0.2
    """share of a batch that teaches nothing, in the end (unpublished; ours)"""
    fixer_rounds: Rounds = 10
    """rounds until the whole share is left out (unpublished; ours)"""
    fixer_confidence: FromZero = 0.1
    """weight of the confidence regulariser (unpublished; ours)"""
    fixer_distance: FromZero = 1.0
    """weight of the personalised model's squared distance to the global one (unpublished; ours)"""


@dataclass(frozen=True)
class FedDivConfig:
    """FedDiv (Li et al. 2024); its first stage is the warm-up."""

    noisy_above: Share = 0.1
    """a client with a larger share of samples that the filter does not call clean relabels them"""
    relabel_above: Share = 0.75
    """least probability that the global model's prediction needs to become a label"""
    debias_factor: FromZero = 0.5
    """how much of the logarithm of the mean local prediction is taken from a local model's logits"""
    prior_momentum: Share = 0.2
    """how much of its past the mean local prediction keeps from batch to batch"""
    prior_weight: Annotated[FromZero | None, UNSET] = None
    """weight of the term that holds the mean prediction near equal shares (default: 0 if partition is iid, else 1)"""


@dataclass(frozen=True)
class RoFLConfig:
    """RoFL (Yang et al. 2022)."""

    rofl_forget_rate: Share = 0.2
    """share of a batch that teaches nothing in the end"""
    rofl_forget_rounds: Rounds = 10
    """rounds until the whole share is left out"""
    pseudo_after: Annotated[RoundsFromZero | None, UNSET] = None
    """rounds until labels are replaced, over which the centroid term rises (default: a tenth of the rounds, from 1)"""
    lambda_cen: FromZero = 1.0
    """weight of the centroid term in the end"""
    lambda_entropy: FromZero = 0.8
    """weight of the predictions' entropy"""


@dataclass(frozen=True)
class FedCorrConfig:
    """FedCorr (Xu et al. 2022); its first stage is the warm-up."""

    finetuning_rounds: Annotated[RoundsFromZero | None, UNSET] = None
    """rounds of its second stage, after the warm-up (default: half of those that are left)"""
    proximal_weight: FromZero = 5.0
    """beta in beta * mu_k * ||w - w_g||^2, in the first stage; mu_k is the client's noise level"""
    lid_neighbours: Annotated[int, Bound("a whole number from 2 to 10000 (distances)", lambda x: 2 <= x <= 10**4)] = 20
    """nearest neighbours from which the dimension of a client's predictions is estimated"""
    relabel_ratio: Share = 0.5
    """share of the samples that are thought wrong which the first stage may relabel, those of the largest losses"""
    relabel_confidence: Share = 0.5
    """a prediction becomes a label only above this probability"""
    finetune_below: Share = 0.1
    """clients whose noise level is at most this train in the second stage"""
