"""What the baselines' clients say beside their models, in one form: means over groups of their records.

The mean loss of a class (FedNoRo, FedELC); the mean and the mean square of all losses, which a mixture fitted by EM
keeps exactly, so that FedDiv's six numbers say them; the mean features of a class (RoFL). Of all of these a server can
compute what any one record would have put in. How noisy a client is, and which classes it has, is read off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.baselines.centroids import Centroids, TrainNear
from fedgr_secure.baselines.class_losses import ClassLosses
from fedgr_secure.baselines.correction import Dimension, NoiseLevel
from fedgr_secure.baselines.filters import LocalFilter, rows_of
from fedgr_secure.errors import require
from fedgr_secure.federation.view import ServerView
from fedgr_secure.method.sieve import MixtureSettings

Vector = NDArray[np.float64]
Kind = Literal["loss", "moments", "features"]


@dataclass(frozen=True)
class GroupMean:
    """The mean, over a group of one client's records, of numbers that the server can compute for any record.

    Attributes:
        label: the group is the records with this given label; None: all.
        count: of records; None: not said.
        kind: of numbers: the loss; the loss and its square; the features.
        values: float64 (d,).
        client, round: whose, and under which round's global model.
    """

    label: int | None
    count: int | None
    kind: Kind
    values: Vector
    client: int = -1
    round: int = -1


@dataclass(frozen=True)
class Statement:
    """What one message says of its client.

    Attributes:
        means: of groups of its records.
        noisiness: by what it is called: a number that rises with its share of wrong labels.
        classes: float64 (classes,), its share of records with each label, or 1 for each class that it has.
    """

    means: tuple[GroupMean, ...] = ()
    noisiness: Mapping[str, float] = field(default_factory=dict)
    classes: Vector | None = None


def _class_losses(said: ClassLosses) -> Statement:
    groups = [
        GroupMean(int(label), int(said.counts[label]), "loss", said.losses[[label]])
        for label in np.flatnonzero(said.counts)
    ]
    total = said.counts.sum()
    level = float(said.losses @ said.counts / total)
    return Statement(tuple(groups), {"mean loss": level}, said.counts / total)


def _filter(said: LocalFilter) -> Statement:
    if said.filter is None:
        return Statement()
    means, variances, weights = rows_of(said.filter)
    square = weights @ (np.maximum(variances - MixtureSettings().reg_covar, 0.0) + means**2)
    group = GroupMean(None, said.samples, "moments", np.array([weights @ means, square]))
    return Statement((group,), {"share of the noisy component": float(weights[1])})


def _centroids(said: Centroids) -> Statement:
    has = np.flatnonzero(said.present)
    groups = [GroupMean(int(label), None, "features", said.values[label].astype(np.float64)) for label in has]
    return Statement(tuple(groups), classes=said.present.astype(np.float64))


_READERS: dict[type[Any], tuple[str, Callable[[Any], Statement]]] = {
    ClassLosses: ("class-wise losses", _class_losses),
    LocalFilter: ("loss filter", _filter),
    Centroids: ("class centroids", _centroids),
    Dimension: ("noise scores", lambda said: Statement(noisiness={"mean dimension": said.mean})),
    NoiseLevel: ("noise scores", lambda said: Statement(noisiness={"noise level": said.level})),
}
"""by message type: the subject of the claim that speaks of it, and how it is read"""


@dataclass(frozen=True)
class Said:
    """Everything that the clients of a run have said beside models and loss proxies.

    Attributes:
        subject: of the claim that speaks of it; None where nothing was said.
        means: of groups of records.
        noisiness: by what it is called, then by client: the mean of what it said.
        classes: by client, float64 (classes,): its share of records with each label, or 1 / m for each of the m
            classes of which anything was seen.
    """

    subject: str | None
    means: tuple[GroupMean, ...]
    noisiness: Mapping[str, Mapping[int, float]]
    classes: Mapping[int, Vector]


def read_said(view: ServerView, sizes: tuple[int, ...], cohorts: Mapping[int, tuple[int, ...]], classes: int) -> Said:
    """Everything that was said in a run.

    Args:
        view: recorded.
        sizes: samples of each client.
        cohorts: who was drawn, by round.
        classes: of the data.

    Raises:
        InputError: a message that no client of this run can have sent.
    """
    subject, means, levels, shares = None, [], defaultdict(lambda: defaultdict(list)), {}  # type: ignore[var-annotated]
    for number, client, message in _messages(view):
        where = f"server view: {view.folder}: round {number}, client {client}: {type(message).__name__}"
        require(client in cohorts.get(number, ()), f"{where}, allowed: of the round's cohort")
        subject, reader = _READERS[type(message)]
        found = reader(message)
        _check(found, sizes[client], classes, where)
        means += [replace(group, client=client, round=number) for group in found.means]
        for name, value in found.noisiness.items():
            levels[name][client].append(value)
        if found.classes is not None:
            shares[client] = np.maximum(shares.get(client, 0.0), found.classes)
    noisiness = {
        name: {client: float(np.mean(values)) for client, values in sorted(of.items())} for name, of in levels.items()
    }
    mix = {client: share / max(share.sum(), 1.0) for client, share in sorted(shares.items())}
    return Said(subject, tuple(means), noisiness, mix)


def _messages(view: ServerView) -> list[tuple[int, int, Any]]:
    """Round, client and message, of those that are read here."""
    kinds = [kind for kind in view.kinds if kind in _READERS]
    asked = [TrainNear] if Centroids in kinds else []
    found = []
    for number in view.rounds() if kinds else ():
        seen = view.messages(number, [*kinds, *asked])
        anchors = next((one.message for one in seen if isinstance(one.message, TrainNear)), None)
        for one in seen:
            if one.up and one.client is not None:
                message = one.message
                if isinstance(message, Centroids) and anchors is not None:
                    message = _moved(message, anchors)
                found.append((number, one.client, message))
    return found


def _moved(said: Centroids, anchors: TrainNear) -> Centroids:
    """The centroids that the client's records have moved.

    One that is the global one to the bit says nothing of records, but that the client has learnt none of that class.
    """
    if anchors.values.shape != said.values.shape:
        return said
    learnt = said.present & (said.values != anchors.values).any(1)
    return replace(said, values=np.where(learnt[:, None], said.values, np.float32(0)), present=learnt)


def _check(found: Statement, samples: int, classes: int, where: str) -> None:
    said = classes if found.classes is None else len(found.classes)
    require(said == classes, f"{where}: {said} classes, allowed: {classes}")
    counts = [group.count for group in found.means if group.count is not None]
    require(not counts or sum(counts) == samples, f"{where}: {sum(counts)} samples, allowed: {samples}")
