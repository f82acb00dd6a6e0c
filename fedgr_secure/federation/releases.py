"""What clients have released, kept on their side: a round that is played again after a kill sends the same again.

A release whose noise is drawn anew would cost its budget twice. It is therefore written down, whole, before it leaves
the client; the file goes when a checkpoint holds the round.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.context import Release
from fedgr_secure.errors import CheckpointError, InputError
from fedgr_secure.files import disk, make_folder, prune, read_bytes, write_atomic
from fedgr_secure.records import RoundRecord
from fedgr_secure.wire import Array, from_bytes, to_bytes
from privacy.channels.channel import Memory

_NAME = re.compile(r"round-([0-9]{7,})\.client-([0-9]{7,})")
_DIGEST = hashlib.sha256().digest_size


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


@dataclass(frozen=True)
class KeptReleases:
    """The releases of a run, a file each: its SHA-256, then the record.

    Attributes:
        folder: where they are.
        plan: the channel of the run; a release of another one is not sent again.
    """

    folder: Path
    plan: str

    def _path(self, client: int, round: int) -> Path:
        return self.folder / f"round-{round:07d}.client-{client:07d}"

    def once(self, client: int, round: int, make: Callable[[], Release]) -> Release:
        """The client's release of this round: the one on disk, or else a new one, which goes to disk first.

        Raises:
            CheckpointError: the file is damaged, or of another client, round or channel.
        """
        path = self._path(client, round)
        with disk(path, "read"):
            there = path.exists()
        if there:
            return self._read(path, client, round)
        upload, memory = make()
        data = to_bytes(Released(client, round, self.plan, upload, memory.releases, memory.total))
        make_folder(self.folder)
        write_atomic(path, hashlib.sha256(data).digest() + data)
        return upload, memory

    def _read(self, path: Path, client: int, round: int) -> Release:
        data = read_bytes(path)
        try:
            if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
                raise InputError("damaged")
            kept = from_bytes(data[_DIGEST:], (Released,))
        except InputError as error:
            raise CheckpointError(f"release {path}: cannot be read: {error}") from None
        if (kept.client, kept.round, kept.plan) != (client, round, self.plan):
            raise CheckpointError(f"release {path}: of another client, round or channel than this run's")
        return kept.upload, Memory(kept.releases, kept.total)

    def of_round(self, round: int) -> tuple[int, ...]:
        """Whose releases of a round are kept, in order."""
        return tuple(sorted(client for client, at in self._kept() if at == round))

    def check_replayed(self, records: Iterable[RoundRecord]) -> None:
        """Refuse to play rounds again whose releases are gone: they would be made anew and cost their budget twice.

        Raises:
            CheckpointError: naming the first one.
        """
        kept = set(self._kept())
        for record in records:
            for client in record.release.sent if record.release is not None else ():
                if (client, record.round) not in kept:
                    raise CheckpointError(
                        f"release {self._path(client, record.round)}: is gone, though round {record.round} was "
                        "played and no checkpoint here holds it; new noise would spend the budget twice: put it back, "
                        "or start a new run"
                    )

    def forget_before(self, round: int) -> None:
        """Delete the releases of rounds that will not be played again."""
        later = {self._path(client, at).name for client, at in self._kept() if at >= round}
        prune(self.folder, rf"{_NAME.pattern}(\.part)?", later)

    def _kept(self) -> list[tuple[int, int]]:
        """Client and round of every file."""
        with disk(self.folder, "read"):
            names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return [(int(found[2]), int(found[1])) for name in names if (found := _NAME.fullmatch(name))]
