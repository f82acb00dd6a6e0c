"""The channel of a run, from its settings: how loss proxies reach the server."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from fedgr_secure.errors import InputError, require
from fedgr_secure.federation.counts import fewest_honest
from fedgr_secure.sections import Config
from privacy.budget import Budget, Schedule
from privacy.channels.channel import Channel
from privacy.channels.histogram import HistogramProxies
from privacy.channels.noisy import NoisyProxies
from privacy.channels.plain import PlainProxies
from privacy.errors import PrivacyError
from privacy.mechanisms import Grid


def channel_for(config: Config, *, classes: int, samples: Sequence[int], sizes: Collection[int]) -> Channel:
    """The channel of a run.

    Args:
        config: checked.
        classes: of the data.
        samples: how many each client holds.
        sizes: of the cohorts to come.

    Raises:
        InputError: a budget, a grid or a noise that cannot be.
    """
    if config.method != "fedgr" or not config.fedgr.sieve:
        return PlainProxies()
    try:
        return _channel(config, classes, samples, sizes)
    except PrivacyError as error:
        raise InputError(str(error)) from None


def _channel(config: Config, classes: int, samples: Sequence[int], sizes: Collection[int]) -> Channel:
    settings, federation = config.proxies, config.federation
    if settings.channel == "plain":
        return PlainProxies()
    largest = settings.clip * math.log(classes)
    insecure = settings.noise == "insecure-seeded"
    if settings.channel == "histogram":  # without masks each client's counts have one share of the noise
        insecure = insecure or config.secure_sum.entropy == "insecure-seeded"
    budget = Budget(
        settings.epsilon, settings.delta, releases_of(config), settings.adjacency, sum(samples), _bound(config, samples)
    )
    sweep = -(-len(samples) // min(federation.cohort, len(samples)))
    first = max(federation.warmup - sweep, 0)
    if settings.channel == "histogram":
        schedule = Schedule(first, max(federation.warmup, sweep), settings.release_every)
        return HistogramProxies(
            budget, _edges(largest, settings.bins), fewest_honest(config.secure_sum, sizes), schedule, insecure
        )
    grid, always = Grid(largest, settings.grid_steps), Schedule(first, federation.rounds, 1)
    return NoisyProxies(budget, grid, settings.noising, settings.mechanism, always, insecure)


def releases_of(config: Config) -> int:
    """Of a client at most: one for the plan that has one; else as the settings say."""
    one = config.proxies.channel == "noisy" and config.proxies.noising == "once"
    return 1 if one else config.proxies.releases


def _bound(config: Config, samples: Sequence[int]) -> int:
    """The public bound on a client's number of samples."""
    given, most = config.secure_sum.largest_samples, max(samples)
    require(
        given is None or given >= most,
        f"largest_samples: {given}, allowed: at least {most}, the samples of the largest client",
    )
    return given or 1 << (most - 1).bit_length()


def _edges(largest: float, bins: int) -> tuple[float, ...]:
    """Narrower bins near 0, where right labels have their losses: C u^1.5 for u from 0 to 1 in equal steps."""
    return tuple((largest * np.linspace(0.0, 1.0, bins + 1) ** 1.5).tolist())
