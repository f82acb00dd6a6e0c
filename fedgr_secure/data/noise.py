"""Wrong labels: which clients are noisy, at which rate, and what is flipped to what (docs/method.md, 'Setting')."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.data.checks import UNKNOWN
from fedgr_secure.data.cifar100 import FINE_TO_SUPERCLASS
from fedgr_secure.data.types import Labels
from fedgr_secure.errors import InputError, require
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import NoiseConfig

GROUP = 5
CIFAR10_PAIRS = {9: 1, 2: 0, 3: 5, 5: 3, 4: 7}
"""Truck to automobile, bird to airplane, cat and dog for each other, deer to horse (Patrini et al. 2017)."""

_FLOAT_ERROR = 1e-9


@dataclass(frozen=True)
class Corruption:
    """The given labels and how they came about.

    Attributes:
        labels: per client, int64 (n_k,), aligned with the client's indices.
        drawn_rate: float64 (K,), rho_k; 0 for a clean client, nan when the labels were given.
        kind: per client, "none", "symmetric", "asymmetric" or "given".
    """

    labels: tuple[Labels, ...]
    drawn_rate: NDArray[np.float64]
    kind: tuple[str, ...]


def corrupt(
    true_labels: Labels,
    shards: Sequence[NDArray[np.int64]],
    *,
    classes: int,
    config: NoiseConfig,
    randomness: Randomness,
    given: Labels | None = None,
) -> Corruption:
    """Give every client its labels.

    int(phi K) clients of a random permutation are noisy (or each with probability phi). Noisy client k draws
    rho_k ~ U(rho_min, rho_max), and exactly int(n_k rho_k) of its samples, drawn without replacement, get a new label
    that depends on the true one only. Symmetric: uniform over the other classes, so exactly this many are wrong; with
    `include_true_class` uniform over all, so the share of wrong labels is about rho_k (C-1)/C. Asymmetric: the class's
    one partner. A class that is its own partner (five of ten under `pairs`) keeps its label, so there the share of
    wrong labels is below rho_k.

    Every client draws from a generator of its own, so its labels do not depend on the other clients.

    Args:
        true_labels: int64 (N,).
        shards: per client, int64 (n_k,), indices into `true_labels`.
        classes: number of classes.
        config: the noise.
        randomness: the run's random draws.
        given: int64 (N,), labels that came with the data, or None.

    Raises:
        InputError: labels are asked for that the data lacks, or the map does not exist for this number of classes.
    """
    clients = len(shards)
    if config.label_noise == "given":
        if given is None:
            raise InputError("label_noise: given, but the data came with no given labels")
        labels = tuple(given[shard] for shard in shards)
        return Corruption(labels, np.full(clients, np.nan), ("given",) * clients)
    unknown = int((true_labels == UNKNOWN).sum())
    require(
        unknown == 0,
        f"label_noise: {config.label_noise}, allowed: given, "
        f"since the true labels of {unknown} of {len(true_labels)} training images are unknown",
    )
    if config.label_noise == "none":
        return Corruption(tuple(true_labels[s] for s in shards), np.zeros(clients), ("none",) * clients)
    return _flip(true_labels, shards, classes, config, randomness)


def _flip(
    true_labels: Labels, shards: Sequence[NDArray[np.int64]], classes: int, config: NoiseConfig, randomness: Randomness
) -> Corruption:
    partners = asymmetric_partners(config.asymmetric_map, classes) if config.label_noise != "symmetric" else None
    labels = [true_labels[shard] for shard in shards]
    rates = np.zeros(len(shards))
    kinds = ["none"] * len(shards)
    for client in noisy_clients(len(shards), config=config, randomness=randomness):
        generator = randomness.numpy("label noise", client=int(client))
        coin = generator.random() < 0.5
        rates[client] = generator.uniform(config.rho_min, config.rho_max)
        asymmetric = config.label_noise == "asymmetric" or (config.label_noise == "mixed" and coin)
        kinds[client] = "asymmetric" if asymmetric else "symmetric"
        labels[client] = _flip_client(
            labels[client],
            flips=_count(len(labels[client]), rates[client]),
            partners=partners if asymmetric else None,
            classes=classes,
            include_true_class=config.include_true_class,
            generator=generator,
        )
    return Corruption(tuple(labels), rates, tuple(kinds))


def _flip_client(
    true_labels: Labels,
    *,
    flips: int,
    partners: Labels | None,
    classes: int,
    include_true_class: bool,
    generator: np.random.Generator,
) -> Labels:
    """One client's labels; every flip reads the untouched true label, so no sample is flipped twice."""
    chosen = generator.choice(len(true_labels), size=flips, replace=False)
    labels = true_labels.copy()
    if partners is not None:
        labels[chosen] = partners[true_labels[chosen]]
    else:
        step = generator.integers(0 if include_true_class else 1, classes, size=flips)
        labels[chosen] = (true_labels[chosen] + step) % classes
    return labels


def noisy_clients(clients: int, *, config: NoiseConfig, randomness: Randomness) -> NDArray[np.int64]:
    """The numbers of the noisy clients, sorted: exactly int(phi K) of them, or each with probability phi."""
    generator = randomness.numpy("noisy clients")
    if config.client_draw == "bernoulli":
        return np.flatnonzero(generator.random(clients) < config.phi)
    return np.sort(generator.permutation(clients)[: _count(clients, config.phi)])


def _count(number: int, share: float) -> int:
    """int(number * share), but 29 for 100 and 0.29, whose product as floats is a hair below 29."""
    return math.floor(number * share + _FLOAT_ERROR)


def asymmetric_partners(name: str, classes: int) -> Labels:
    """The class that each class is mistaken for: int64 (C,).

    next: class + 1, the last to 0. pairs: CIFAR-10's classic map. groups: the next inside consecutive fives of class
    numbers (as FedGR's authors do on CIFAR-100). superclasses: the next inside CIFAR-100's super-classes.

    >>> asymmetric_partners("pairs", 10).tolist()
    [0, 1, 0, 5, 7, 3, 6, 7, 8, 1]
    >>> asymmetric_partners("groups", 10).tolist()
    [1, 2, 3, 4, 0, 6, 7, 8, 9, 5]

    Raises:
        InputError: the map does not exist for this number of classes.
    """
    numbers = np.arange(classes, dtype=np.int64)
    if name == "pairs":
        require(classes == 10, f"asymmetric_map: pairs, allowed: only with CIFAR-10's 10 classes, not {classes}")
        numbers[list(CIFAR10_PAIRS)] = list(CIFAR10_PAIRS.values())
        return numbers
    if name == "groups":
        require(
            classes % GROUP == 0, f"asymmetric_map: groups, allowed: only with a multiple of 5 classes, not {classes}"
        )
        return numbers // GROUP * GROUP + (numbers + 1) % GROUP
    if name == "superclasses":
        require(classes == 100, f"asymmetric_map: superclasses, allowed: only with CIFAR-100's 100, not {classes}")
        return _next_in_superclass()
    return (numbers + 1) % classes


def _next_in_superclass() -> Labels:
    groups = np.array(FINE_TO_SUPERCLASS)
    partners = np.empty(len(groups), dtype=np.int64)
    for group in range(groups.max() + 1):
        members = np.flatnonzero(groups == group)
        partners[members] = np.roll(members, -1)
    return partners
