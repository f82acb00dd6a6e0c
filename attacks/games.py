"""The games that measure leakage: how members and others are drawn, exactly, and what the attacker is told of each.

A challenger holds the truth of a run; an attack only ever gets candidates. Records from outside come from the data
set's test images and from training images that the run did not use; they get a label by the label noise of a client,
so that a wrong label alone gives nobody away. References, which the attacker may have, are other records from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.checks import check
from fedgr_secure.data.sources import load_source
from fedgr_secure.data.types import FederatedData, Labels, Truth, UInt8
from fedgr_secure.errors import require
from fedgr_secure.federation.federation import load
from fedgr_secure.federation.folder import RunFolder

NOBODY = -1
_LEAST = 4
_MOST_OUTSIDE = 10_000
"""enough for a rate of 0.1 %; every model looks at each of them"""


@dataclass(frozen=True)
class Candidates:
    """Records that an attack is asked about.

    Attributes:
        image: int64 (n,), positions in the challenger's pool of images.
        labels: int64 (n,), the label that each record carries, if it is a member.
        member: bool (n,), the truth; attacks do not look at it.
        client: int64 (n,), the client that the game names (or whose record it is, where an attack must find that out).
        row: int64 (n,), the position among that client's samples; `NOBODY` for records from outside.
    """

    image: NDArray[np.int64]
    labels: Labels
    member: NDArray[np.bool_]
    client: NDArray[np.int64]
    row: NDArray[np.int64]

    def __len__(self) -> int:
        """How many."""
        return len(self.image)

    def take(self, rows: NDArray[np.int64]) -> Candidates:
        """Some of them."""
        return Candidates(self.image[rows], self.labels[rows], self.member[rows], self.client[rows], self.row[rows])


@dataclass(frozen=True)
class Challenger:
    """Holds the truth of a run and draws candidates.

    Attributes:
        data, truth: the federation and what only its evaluator may see.
        outside: images of records that no client has, and their true labels.
    """

    data: FederatedData
    truth: Truth
    outside: UInt8
    outside_labels: Labels

    @cached_property
    def pool(self) -> UInt8:
        """All images: the clients' in order, then those from outside."""
        return np.concatenate([*[shard.images() for shard in self.data.shards], self.outside])

    @cached_property
    def members(self) -> Candidates:
        """Every record of every client."""
        shards = self.data.shards
        sizes = [len(shard) for shard in shards]
        total = sum(sizes)
        return Candidates(
            np.arange(total),
            np.concatenate([shard.labels for shard in shards]),
            np.ones(total, bool),
            np.repeat(np.arange(len(shards)), sizes),
            np.concatenate([np.arange(size) for size in sizes]),
        )

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """Which of `members` carry a wrong label."""
        return np.concatenate(self.truth.wrong)

    def others(self, clients: NDArray[np.int64], records: NDArray[np.int64], draw: np.random.Generator) -> Candidates:
        """Records from outside, each with a label by the noise of a client.

        Args:
            clients: int64 (n,), whose noise.
            records: int64 (n,), positions in `outside`.
            draw: of the labels.
        """
        labels = self._noised(self.outside_labels[records], clients, draw)
        count = len(records)
        return Candidates(
            len(self.members) + records, labels, np.zeros(count, bool), clients, np.full(count, NOBODY, np.int64)
        )

    def _noised(self, true: Labels, clients: NDArray[np.int64], draw: np.random.Generator) -> Labels:
        """A wrong label at the client's own rate, taken from the wrong labels of that true class."""
        rates = np.nan_to_num(self.truth.realised_rate)[clients]
        labels = true.copy()
        for at in np.flatnonzero(draw.random(len(true)) < rates):
            found = self._wrong_labels.get(int(true[at]))
            labels[at] = draw.choice(found) if found is not None else true[at]
        return labels

    @cached_property
    def _wrong_labels(self) -> dict[int, Labels]:
        """The members' wrong labels by true class."""
        truths = np.concatenate(self.truth.true_labels)
        return {int(c): self.members.labels[self.wrong & (truths == c)] for c in np.unique(truths[self.wrong])}


def challenge(run: Path, *, seed: int = 0) -> Challenger:
    """The challenger of a run.

    Args:
        run: its folder.
        seed: of which records from outside are taken, where there are more than 10,000.

    Raises:
        InputError: no run folder, or too few records from outside.
    """
    config = check(RunFolder(run).config())
    data, truth = load(config)
    outside, true = truth.test.take(np.arange(len(truth.test))), truth.test_labels
    if config.data.train_size is not None:
        whole = load_source(replace(config.data, train_size=None))
        outside = np.concatenate([outside, whole.train.take(np.arange(len(whole.train)))])
        true = np.concatenate([true, whole.true_labels])
    kept = _spare(outside, np.concatenate([shard.images() for shard in data.shards]))
    kept = kept[true[kept] >= 0]
    if len(kept) > _MOST_OUTSIDE:
        kept = np.sort(np.random.default_rng([seed, 3]).choice(kept, _MOST_OUTSIDE, replace=False))
    require(len(kept) >= _LEAST, f"records from outside: {len(kept)}, allowed: from {_LEAST}")
    return Challenger(data, truth, outside[kept], true[kept])


def _spare(whole: UInt8, used: UInt8) -> NDArray[np.int64]:
    """Positions of images that are none of the used ones, nor of each other, also not as copies."""
    taken, kept = {image.tobytes() for image in used}, []
    for at, image in enumerate(whole):
        if (pixels := image.tobytes()) not in taken:
            taken.add(pixels)
            kept.append(at)
    return np.array(kept, np.int64)


class Game(Protocol):
    """One way of drawing candidates."""

    @property
    def name(self) -> str:
        """In one word."""

    @property
    def says(self) -> str:
        """The question that it asks."""

    def sample(self, challenger: Challenger, outside: NDArray[np.int64], draw: np.random.Generator) -> Candidates:
        """Candidates; `outside` are the records from outside that are not the attacker's references."""


@dataclass(frozen=True)
class AnyClient:
    """Is this record anybody's? Members: all. Others: each record from outside, by the noise of a random client."""

    name: str = "any"
    says: str = "is this record in anybody's training data?"

    def sample(self, challenger: Challenger, outside: NDArray[np.int64], draw: np.random.Generator) -> Candidates:
        """Members and others."""
        clients = challenger.members.client
        return joined(challenger.members, challenger.others(draw.choice(clients, len(outside)), outside, draw))


@dataclass(frozen=True)
class TargetClient:
    """Is this record this client's? Others: each record from outside, with each client's own rate of wrong labels.

    With another rate the client's noise would tell members from others, which is no membership.
    """

    name: str = "target"
    says: str = "is this record in this client's training data?"

    def sample(self, challenger: Challenger, outside: NDArray[np.int64], draw: np.random.Generator) -> Candidates:
        """Members and others."""
        clients = np.repeat(np.arange(len(challenger.data.shards)), len(outside))
        records = np.tile(outside, len(challenger.data.shards))
        return joined(challenger.members, challenger.others(clients, records, draw))


@dataclass(frozen=True)
class RowLinkage:
    """Is this row this record's? Each row with its own record, and with one from outside."""

    name: str = "row"
    says: str = "does this uploaded row belong to this record?"

    def sample(self, challenger: Challenger, outside: NDArray[np.int64], draw: np.random.Generator) -> Candidates:
        """Members and others, with the rows that the game names."""
        members = challenger.members
        strangers = challenger.others(members.client, draw.choice(outside, len(members)), draw)
        return joined(members, replace(strangers, row=members.row))


@dataclass(frozen=True)
class MembersOnly:
    """Whose is it, what is its label, is the label wrong? All members; the attack finds out what it is not told."""

    name: str
    says: str

    def sample(self, challenger: Challenger, outside: NDArray[np.int64], draw: np.random.Generator) -> Candidates:
        """Members."""
        return challenger.members


SOURCE = MembersOnly("source", "whose record is it?")
LABEL = MembersOnly("label", "which label does this image of this client carry?")
MISLABEL = MembersOnly("mislabel", "does this row carry a wrong label?")


def joined(first: Candidates, second: Candidates) -> Candidates:
    """Both, one after the other."""
    return Candidates(
        *(
            np.concatenate([getattr(first, name), getattr(second, name)])
            for name in ("image", "labels", "member", "client", "row")
        )
    )
