"""Who is drawn in a round: pure functions of the settings and the seed."""

from __future__ import annotations

import numpy as np

from fedgr_secure.randomness import Randomness


def draw_cohort(round: int, *, clients: int, size: int, warmup: int, randomness: Randomness) -> tuple[int, ...]:
    """The clients of a round, sorted (docs/method.md, 'Before round alpha').

    During the warm-up a random permutation of all clients is cut into ceil(clients / size) cohorts of nearly equal size
    (never larger than `size`) and reshuffled when used up; afterwards `size` clients are drawn uniformly without
    replacement. A pure function of its arguments.
    """
    if round < warmup:
        cohorts = -(-clients // size)
        sweep, position = divmod(round, cohorts)
        order = randomness.numpy("cohort sweep", round=sweep).permutation(clients)
        drawn = np.array_split(order, cohorts)[position]
    else:
        drawn = randomness.numpy("cohort", round=round).choice(clients, size, replace=False)
    return tuple(sorted(int(client) for client in drawn))


def cohort_sizes(*, clients: int, size: int, warmup: int) -> set[int]:
    """How many clients `draw_cohort` can draw."""
    sizes = {min(size, clients)}
    if warmup:
        cohorts = -(-clients // size)
        sizes |= {clients // cohorts, -(-clients // cohorts)}
    return sizes
