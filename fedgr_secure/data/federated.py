"""From a source to a federation: divide the images, give out the labels, keep the truth apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.data.checks import UNKNOWN, check_source
from fedgr_secure.data.files import listed, shown
from fedgr_secure.data.noise import Corruption, corrupt
from fedgr_secure.data.npz import open_npz
from fedgr_secure.data.partition import partition
from fedgr_secure.data.types import FederatedData, Labels, Shard, Source, Truth
from fedgr_secure.errors import InputError, require
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import Config, DataConfig


def federate(source: Source, config: Config, randomness: Randomness) -> tuple[FederatedData, Truth]:
    """Build the federation that `config` describes, and the truth that only the evaluator may see.

    The partition follows the true labels, and the given label where the true one is unknown (-1). Where it is
    unknown, `Truth.wrong` is False, and realised rates count the known labels only (nan if a client has none).

    For `method == "central"` the partition and the noise are made as for any other method, and then pooled into one
    shard of client 0: the wrong labels are the very ones of the federated run. The pooled drawn rate is the mean over
    clients, weighted by their sizes; the pooled kind is the one kind of the noisy clients, or "mixed".

    >>> from fedgr_secure.data.sources import load_source
    >>> config = Config()
    >>> data, truth = federate(load_source(config.data), config, Randomness(config.seed))
    >>> len(data.shards), sum(len(shard) for shard in data.shards)
    (20, 1437)

    Raises:
        InputError: the source's parts do not fit, or the partition or the noise cannot be made from it.
    """
    check_source(source)
    if config.noise.label_noise == "given" and source.given_labels is None:
        raise InputError(_no_given_labels(config.data))
    true_labels = source.true_labels
    apparent = true_labels
    if source.given_labels is not None:
        apparent = np.where(true_labels == UNKNOWN, source.given_labels, true_labels)
    indices = partition(apparent, config.federation.clients, config=config.partition, randomness=randomness)
    smallest = min(len(index) for index in indices)
    require(
        config.model.norm == "group" or config.method == "central" or smallest > 1,
        f"norm: batch, but a client has {smallest} sample and never trains; allowed: from 2 each, or norm group",
    )
    labels = corrupt(
        true_labels,
        indices,
        classes=source.spec.classes,
        config=config.noise,
        randomness=randomness,
        given=source.given_labels,
    )
    if config.method == "central":
        indices, labels = _pool(indices, labels)
    shards = tuple(
        Shard(client, index, given, source.train)
        for client, (index, given) in enumerate(zip(indices, labels.labels, strict=True))
    )
    return FederatedData(source.spec, shards), _truth(source, indices, labels)


def _pool(indices: list[NDArray[np.int64]], labels: Corruption) -> tuple[list[NDArray[np.int64]], Corruption]:
    """All clients as one, in the order of the training set."""
    index = np.concatenate(indices)
    order = np.argsort(index)
    given: Labels = np.concatenate(labels.labels)[order]
    rate = np.average(labels.drawn_rate, weights=[len(i) for i in indices])
    kinds = set(labels.kind) - {"none"} or {"none"}
    kind = kinds.pop() if len(kinds) == 1 else "mixed"
    return [index[order]], Corruption((given,), np.array([rate]), (kind,))


def _truth(source: Source, indices: list[NDArray[np.int64]], labels: Corruption) -> Truth:
    true_labels = tuple(source.true_labels[index] for index in indices)
    known = [true != UNKNOWN for true in true_labels]
    wrong = tuple(k & (g != t) for k, g, t in zip(known, labels.labels, true_labels, strict=True))
    realised = [w.sum() / k.sum() if k.any() else np.nan for w, k in zip(wrong, known, strict=True)]
    return Truth(
        true_labels=true_labels,
        wrong=wrong,
        drawn_rate=labels.drawn_rate,
        realised_rate=np.array(realised, dtype=np.float64),
        kind=labels.kind,
        test=source.test,
        test_labels=source.test_labels,
    )


def _no_given_labels(config: DataConfig) -> str:
    """Why there are no given labels, naming the key that was looked for and the keys that are there."""
    if config.dataset != "npz":
        return f"label_noise: given, but dataset {config.dataset} has no given labels: npz and clothing1m can have them"
    message = f"label_noise: given, but {shown(config.path)} has no key {config.given_labels!r}"
    if config.path is not None:
        with open_npz(config.path) as archive:
            message += f"; it holds {listed(list(archive.files))}: name one with --given-labels"
    return message
