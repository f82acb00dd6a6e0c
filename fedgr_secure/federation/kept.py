"""Records that a client keeps on its own side, one for a round, until no round before a checkpoint can come again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from fedgr_secure.errors import CheckpointError, InputError
from fedgr_secure.files import disk, make_folder, prune, read_bytes, write_atomic
from fedgr_secure.wire import from_bytes, to_bytes

_NAME = re.compile(r"round-([0-9]{7,})\.client-([0-9]{7,})")
_ADDRESS = ("client", "round", "plan")
_DIGEST = hashlib.sha256().digest_size

Record = TypeVar("Record")


@dataclass(frozen=True)
class KeptRecords(Generic[Record]):
    """One file a client and round: its SHA-256, then the record.

    Attributes:
        folder: where they are.
        what: what a record is called in an error.
        kind: the dataclass of the records, with the fields `client`, `round` and `plan`.
        plan: the settings that a record belongs to; one of others is refused.
    """

    folder: Path
    what: str
    kind: type[Record]
    plan: str

    def path(self, client: int, round: int) -> Path:
        """The file of a client's round."""
        return self.folder / f"round-{round:07d}.client-{client:07d}"

    def read(self, client: int, round: int) -> Record | None:
        """The record of a client's round; None where there is none.

        Raises:
            CheckpointError: the file is damaged, or of another client, round or plan.
        """
        path = self.path(client, round)
        with disk(path, "read"):
            there = path.exists()
        if not there:
            return None
        data = read_bytes(path)
        try:
            if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
                raise InputError("damaged")
            kept = from_bytes(data[_DIGEST:], (self.kind,))
        except InputError as error:
            raise CheckpointError(f"{self.what} {path}: cannot be read: {error}") from None
        if [getattr(kept, name) for name in _ADDRESS] != [client, round, self.plan]:
            raise CheckpointError(f"{self.what} {path}: of another client, round or plan than this run's")
        return kept

    def write(self, client: int, round: int, record: Record) -> None:
        """Put a record on disk, whole or not at all."""
        data = to_bytes(record)
        make_folder(self.folder)
        write_atomic(self.path(client, round), hashlib.sha256(data).digest() + data)

    def of_round(self, round: int) -> tuple[int, ...]:
        """Whose records of a round are kept, in order."""
        return tuple(sorted(client for client, at in self._kept() if at == round))

    def check_replayed(self, sent: Iterable[tuple[int, int]]) -> None:
        """Refuse to play rounds again whose records are gone: they would be made anew and cost their budget twice.

        Args:
            sent: client and round of all that left a client and is in no checkpoint.

        Raises:
            CheckpointError: naming the first one.
        """
        kept = set(self._kept())
        for client, round in sent:
            if (client, round) not in kept:
                raise CheckpointError(
                    f"{self.what} {self.path(client, round)}: is gone, though round {round} was played and no "
                    "checkpoint here holds it; new noise would spend the budget twice: put it back, or start a new run"
                )

    def forget_before(self, round: int) -> None:
        """Delete the records of rounds that will not be played again."""
        later = {self.path(client, at).name for client, at in self._kept() if at >= round}
        prune(self.folder, rf"{_NAME.pattern}(\.part)?", later)

    def _kept(self) -> list[tuple[int, int]]:
        """Client and round of every file."""
        with disk(self.folder, "read"):
            names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return [(int(found[2]), int(found[1])) for name in names if (found := _NAME.fullmatch(name))]
