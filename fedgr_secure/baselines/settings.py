"""The baselines' settings, and what their published algorithms cannot do. Imports neither torch nor numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fedgr_secure.bounds import UNSET, BelowOne, Bound, FromZero, Positive, Rounds, Share

UNSUMMED: dict[str, str] = {
    "fednoro": "its server weighs each noisy client's update by its distance to the clean clients'",
    "fedelc": "its server weighs each noisy client's update by its distance to the clean clients'",
}
"""methods whose weights cannot travel under a secure sum, and why"""

UNPRIVATE: dict[str, str] = {
    "coteaching": "its loss picks among the records of a batch, so that one record changes what the others teach",
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
