"""What clients have released, kept on their side: a round that is played again after a kill sends the same again.

A release whose noise is drawn anew would cost its budget twice. It is therefore written down, whole, before it leaves
the client; the file goes when a checkpoint holds the round. Of a private training its secret key is kept instead, and
a digest of what came out.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.context import Release
from fedgr_secure.errors import CheckpointError
from fedgr_secure.federation.kept import KeptRecords
from fedgr_secure.records import RoundRecord
from fedgr_secure.wire import Array, Weights
from privacy.channels.channel import Memory

_KEY = 32


class MadeAnew:
    """Uploads without noise: a round that is played again makes the same ones, and nothing need be kept."""

    def once(self, client: int, round: int, make: Callable[[], Release]) -> Release:
        """The client's upload."""
        return make()


@dataclass(frozen=True)
class Released:
    """One client's release of one round.

    Attributes:
        client, round: whose, and of which.
        plan: the channel with all its settings, as text.
        upload: what was sent.
        releases, total: what the client remembers of it (`Memory`).
    """

    client: int
    round: int
    plan: str
    upload: dict[str, Array]
    releases: int
    total: NDArray[np.int64]


class KeptReleases:
    """The releases of loss proxies of a run.

    Args:
        folder: where they are.
        plan: the channel of the run; a release of another one is not sent again.
    """

    def __init__(self, folder: Path, plan: str) -> None:
        self.records = KeptRecords(folder, "release", Released, plan)

    def once(self, client: int, round: int, make: Callable[[], Release]) -> Release:
        """The client's release of this round: the one on disk, or else a new one, which goes to disk first.

        Raises:
            CheckpointError: the file is damaged, or of another client, round or channel.
        """
        kept = self.records.read(client, round)
        if kept is not None:
            return kept.upload, Memory(kept.releases, kept.total)
        upload, memory = make()
        released = Released(client, round, self.records.plan, upload, memory.releases, memory.total)
        self.records.write(client, round, released)
        return upload, memory

    def check_replayed(self, records: Iterable[RoundRecord]) -> None:
        """Refuse to play rounds again whose releases are gone (`KeptRecords.check_replayed`)."""
        rounds = [(record.round, record.release.sent) for record in records if record.release is not None]
        self.records.check_replayed((client, round) for round, sent in rounds for client in sent)


@dataclass(frozen=True)
class Trained:
    """One client's private training of one round.

    Attributes:
        client, round: whose, and of which.
        plan: the settings of the training, as text.
        key: of the noise, of who is sampled and of the views; 32 bytes in hex, a secret of the client.
        digest: SHA-256 of the trained weights; empty until they are there.
    """

    client: int
    round: int
    plan: str
    key: str
    digest: str


class KeptTrainings:
    """The private trainings of a run.

    Args:
        folder: where they are.
        plan: the settings of the run's private training.
    """

    def __init__(self, folder: Path, plan: str) -> None:
        self.records = KeptRecords(folder, "private training", Trained, plan)

    def key(self, client: int, round: int) -> bytes:
        """The training's secret key: the one on disk, or else a new one of the operating system.

        Raises:
            CheckpointError: the file is damaged, or of another client, round or plan.
        """
        kept = self.records.read(client, round)
        if kept is None:
            kept = Trained(client, round, self.records.plan, secrets.token_hex(_KEY), "")
            self.records.write(client, round, kept)
        key = bytes.fromhex(kept.key) if re.fullmatch(r"[0-9a-f]{64}", kept.key) else b""
        if len(key) != _KEY:
            raise CheckpointError(f"{self.records.what} {self.records.path(client, round)}: its key is no 32 bytes")
        return key

    def confirm(self, client: int, round: int, weights: Weights) -> None:
        """Keep a digest of what was trained; a training that is done again must come to the same.

        Raises:
            CheckpointError: it came to something else, whose difference from the first would show gradients without
                noise.
        """
        digest = hashlib.sha256()
        for name in sorted(weights):
            digest.update(name.encode() + b"\0" + weights[name].tobytes())
        kept, found = self.records.read(client, round), digest.hexdigest()
        assert kept is not None, "key() comes first"
        if kept.digest and kept.digest != found:
            raise CheckpointError(
                f"private training {self.records.path(client, round)}: came to other weights than the first time, as "
                "on another machine or with other threads; both under one noise show what it hides: start a new run"
            )
        self.records.write(client, round, replace(kept, digest=found))

    def check_replayed(self, records: Iterable[RoundRecord]) -> None:
        """Refuse to play rounds again whose keys are gone (`KeptRecords.check_replayed`)."""
        rounds = [(record.round, record.training.sent) for record in records if record.training is not None]
        self.records.check_replayed((client, round) for round, sent in rounds for client in sent)
