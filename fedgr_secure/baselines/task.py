"""The local training that most methods share: a client's own images under the view of the baselines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fedgr_secure.context import ClientContext
from fedgr_secure.messages import Update
from fedgr_secure.training import Objective, TrainingTask
from fedgr_secure.wire import Weights


def local_task(
    context: ClientContext, round: int, start: Weights, objective: Objective, **changes: Any
) -> TrainingTask:
    """Train from `start` on the given labels for the run's local epochs, and answer with an `Update`.

    Args:
        context: of the client.
        round: that is answered.
        start: the weights to start from.
        objective: the loss.
        changes: other fields of `TrainingTask`, in place of these.
    """
    shard = context.shard
    task = TrainingTask(
        client=shard.client,
        round=round,
        start=start,
        images=shard.images(),
        view=context.bench.views.baseline,
        columns={"labels": torch.from_numpy(shard.labels)},
        objective=objective,
        epochs=context.config.training.local_epochs,
        finish=lambda weights: Update(round, len(shard), weights),
    )
    return replace(task, **changes)
