"""Verdicts on their own labels that clients of baselines keep: for the evaluator alone, they use none a second time."""

from __future__ import annotations

import numpy as np

from fedgr_secure.context import ClientContext
from fedgr_secure.errors import require
from fedgr_secure.method.sieve import Verdict
from fedgr_secure.method.stored import check_vector

NO_VERDICT = Verdict(np.zeros(0), 0.0)
"""what a client keeps before its first verdict"""


def newest(state: Verdict) -> Verdict | None:
    """The verdict that a client keeps; None before its first."""
    return state if state.q.size else None


def check_verdict(state: Verdict, context: ClientContext) -> None:
    """Refuse a stored verdict that the client cannot have reached.

    Raises:
        InputError: naming the field and what is allowed.
    """
    check_vector("q", state.q, state.q.size and len(context.shard), np.float64, (0, 1))
    share = Verdict.of(state.q).noise_rate if state.q.size else NO_VERDICT.noise_rate
    require(state.noise_rate == share, f"noise_rate: {state.noise_rate}, allowed: {share}, the share of q below 0.5")
