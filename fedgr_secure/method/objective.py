"""FedGR's training objective L = L_SR + lambda_B B_k + lambda_R R_k (docs/method.md, step 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

Parameters = Mapping[str, Tensor]
Forward = Callable[[Tensor], tuple[Tensor, Tensor]]


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """L_SR: mean over the batch of -sum_c y_c log p_c; rows of zeros count in the mean. Nats."""
    return -(targets * F.log_softmax(logits, dim=1)).sum(1).mean()


def distillation(teacher_logits: Tensor, student_logits: Tensor, tau: float) -> Tensor:
    """B_k: KL(softmax(teacher / tau) || softmax(student / tau)), batch mean, without a tau^2 factor. Nats."""
    student = F.log_softmax(student_logits / tau, dim=1)
    teacher = F.log_softmax(teacher_logits / tau, dim=1)
    return F.kl_div(student, teacher, reduction="batchmean", log_target=True)


def representation(kind: str, student: Tensor, reference: Tensor, tau: float) -> Tensor:
    """R_k: consistency of the student's features with the global backbone's, batch mean.

    cosine: 1 - cos; l2: squared distance of the normalised features; kl: KL(softmax(reference / tau) ||
    softmax(student / tau)), as in the authors' code.
    """
    if kind == "cosine":
        return (1 - F.cosine_similarity(student, reference, dim=1)).mean()
    if kind == "l2":
        return (F.normalize(student, dim=1) - F.normalize(reference, dim=1)).square().sum(1).mean()
    return distillation(reference, student, tau)


@dataclass(frozen=True)
class FedGRObjective:
    """The loss of a batch as a pure function; a weight of 0 switches its term off.

    The batch holds `images` (strong view), `targets` (b, C), and where the term is on `teacher_logits` (b, C) and
    `global_features` (b, d).
    """

    lambda_b: float
    lambda_r: float
    tau: float
    representation: str

    def __call__(self, parameters: Parameters, batch: Mapping[str, Tensor], forward: Forward) -> Tensor:
        """Scalar loss in nats."""
        logits, features = forward(batch["images"])
        loss = soft_cross_entropy(logits, batch["targets"])
        if self.lambda_b:
            loss = loss + self.lambda_b * distillation(batch["teacher_logits"], logits, self.tau)
        if self.lambda_r:
            loss = loss + self.lambda_r * representation(
                self.representation, features, batch["global_features"], self.tau
            )
        return loss
