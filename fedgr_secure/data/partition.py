"""Which client owns which training image: equal shards, Dirichlet shares of every class, or a file."""

from __future__ import annotations

import heapq
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.data.files import read_text, reason, shown
from fedgr_secure.data.types import Labels
from fedgr_secure.errors import InputError, require
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import PartitionConfig

Indices = NDArray[np.int64]

REDRAWS = 10
"""Dirichlet partitions drawn before samples are moved to clients that own too few."""


def partition(
    labels: Labels, clients: int, *, config: PartitionConfig, randomness: Randomness
) -> list[NDArray[np.int64]]:
    """Divide the training images among the clients, by their true labels.

    * iid: a random permutation cut into shards whose sizes differ by at most one.
    * dirichlet: every class is divided by shares drawn from Dirichlet(alpha); a client that already owns N/K samples
      gets nothing of further classes (the balance trick; Lin et al. 2020, Li et al. 2021). Up to ten partitions are
      drawn until each client owns `min_samples`; of ten that fail, the one that lacks least is kept, and every client
      below `min_samples` takes random samples from whichever client owns most at that moment.
    * file: a JSON list with one list of training indices per client. Images that no list names stay unused.

    Args:
        labels: int64 (N,).
        clients: K.
        config: the partition.
        randomness: the run's random draws.

    Returns:
        K sorted int64 arrays of indices, disjoint and none empty.

    Raises:
        InputError: more clients than images, too few images for `min_samples`, or a file that is not such a list.

    >>> shards = partition(np.arange(10) % 2, 3, config=PartitionConfig(), randomness=Randomness(seed=0))
    >>> [len(shard) for shard in shards]
    [4, 3, 3]
    """
    samples = len(labels)
    require(1 <= clients <= samples, f"clients: {clients}, allowed: from 1 to {samples}, the number of training images")
    if config.partition == "file":
        return _from_file(config.partition_file, clients, samples)
    generator = randomness.numpy("partition")
    if config.partition == "iid":
        return [np.sort(shard) for shard in np.array_split(generator.permutation(samples), clients)]
    return _dirichlet(labels, clients, config, generator)


def _dirichlet(
    labels: Labels, clients: int, config: PartitionConfig, generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    least, alpha = config.min_samples, config.dirichlet_alpha
    require(
        clients * least <= len(labels),
        f"min_samples: {least}, allowed: at most {len(labels) // clients} "
        f"({len(labels)} training images over {clients} clients)",
    )
    require(alpha > 0, f"dirichlet_alpha: {alpha}, allowed: above 0")
    best, best_lack = np.empty(0, dtype=np.int64), len(labels) + 1
    for _ in range(REDRAWS):
        owners = _dirichlet_owners(labels, clients, alpha, generator)
        lack = int(np.maximum(least - np.bincount(owners, minlength=clients), 0).sum())
        if lack < best_lack:
            best, best_lack = owners, lack
        if lack == 0:
            break
    if best_lack:
        _fill_up(best, clients, least, generator)
    order = np.argsort(best, kind="stable")
    return np.split(order, np.cumsum(np.bincount(best, minlength=clients))[:-1])


def _dirichlet_owners(labels: Labels, clients: int, alpha: float, generator: np.random.Generator) -> Indices:
    """The owner of every sample, int64 (N,)."""
    owners = np.empty(len(labels), dtype=np.int64)
    sizes = np.zeros(clients, dtype=np.int64)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        closed = sizes >= len(labels) / clients
        running = np.cumsum(_shares(alpha, closed, generator))
        cuts = np.floor(running / running[-1] * len(members)).astype(np.int64)
        counts = np.diff(cuts, prepend=0)
        owners[members] = np.repeat(np.arange(clients), counts)
        sizes += counts
    return owners


def _shares(alpha: float, closed: NDArray[np.bool_], generator: np.random.Generator) -> NDArray[np.float64]:
    """Dirichlet shares, 0 for closed clients; if no open client has any, one gets all (as alpha goes to 0)."""
    shares = np.where(closed, 0.0, generator.dirichlet(np.full(len(closed), alpha)))
    if not shares.sum() > 0:
        shares = np.zeros(len(closed))
        shares[generator.choice(np.flatnonzero(~closed))] = 1.0
    return shares


def _fill_up(owners: Indices, clients: int, least: int, generator: np.random.Generator) -> None:
    """Move samples, in place, until every client owns `least`; needs clients * least <= N, and then always ends."""
    sizes = np.bincount(owners, minlength=clients)
    largest = [(-int(size), client) for client, size in enumerate(sizes)]
    heapq.heapify(largest)
    members: dict[int, list[int]] = {}
    for poor in np.flatnonzero(sizes < least):
        for _ in range(least - int(sizes[poor])):
            size, rich = heapq.heappop(largest)
            if rich not in members:
                members[rich] = generator.permutation(np.flatnonzero(owners == rich)).tolist()
            owners[members[rich].pop()] = poor
            heapq.heappush(largest, (size + 1, rich))


def _from_file(path: Path | None, clients: int, samples: int) -> list[NDArray[np.int64]]:
    if path is None:
        raise InputError("partition_file: not given, but partition is 'file': name the JSON file with --partition-file")
    try:
        rows = json.loads(read_text(path, "partition_file"))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"partition_file: {shown(path)} cannot be read as JSON: {reason(error)}") from None
    where = f"partition_file: {shown(path)}"
    require(isinstance(rows, list), f"{where}: a {type(rows).__name__}, allowed: a list of index lists")
    require(len(rows) == clients, f"{where}: {len(rows)} lists, allowed: {clients}, one per client")
    shards = [_row(row, samples, f"{where}: client {client}") for client, row in enumerate(rows)]
    owner = np.full(samples, -1, dtype=np.int64)
    for client, shard in enumerate(shards):
        taken = shard[owner[shard] >= 0]
        if len(taken):
            raise InputError(
                f"{where}: index {taken[0]} is in the lists of clients {owner[taken[0]]} and {client}, "
                "allowed: one list"
            )
        owner[shard] = client
    return shards


def _row(row: Any, samples: int, where: str) -> Indices:
    require(isinstance(row, list), f"{where}: {shown(row)}, allowed: a list of indices")
    require(bool(row), f"{where}: no index, allowed: at least 1")
    for value in row:
        require(
            type(value) is int and 0 <= value < samples,
            f"{where}: {shown(value)}, allowed: whole numbers from 0 to {samples - 1}",
        )
    shard = np.sort(np.array(row, dtype=np.int64))
    twice = shard[1:][shard[1:] == shard[:-1]]
    require(len(twice) == 0, f"{where}: index {twice[:1].tolist()} twice, allowed: once")
    return shard
