"""Where clients' states live between rounds: in memory, or as files for federations that do not fit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedgr_secure.errors import CheckpointError, InputError
from fedgr_secure.files import disk, make_folder, prune, read_bytes, write_atomic
from fedgr_secure.wire import from_bytes, to_bytes


@dataclass(frozen=True)
class Version:
    """One stored state of a client.

    Attributes:
        round: the round in which it was written.
        sha256: of the file.
    """

    round: int
    sha256: str


Versions = dict[int, Version]


class StateFolder:
    """Client states as files, one per (client, round in which it was written).

    A state is never overwritten, so that a checkpoint can name the versions that belong to it while a later round is
    already writing newer ones. A file is hashed once, when it is written, and held against that hash whenever it is
    read.
    """

    def __init__(self, folder: Path, kind: type[Any] | None) -> None:
        self._folder = folder
        self._kind = kind

    def path(self, client: int, round: int) -> Path:
        """The file of one version."""
        return self._folder / f"client-{client:07d}.round-{round:07d}"

    def write(self, client: int, round: int, state: Any) -> Version:
        """Write one version."""
        data = to_bytes(state)
        make_folder(self._folder)
        write_atomic(self.path(client, round), data)
        return Version(round, hashlib.sha256(data).hexdigest())

    def read(self, client: int, version: Version) -> Any:
        """Read one version.

        Raises:
            CheckpointError: the file is missing, damaged, or another than the one that was written.
        """
        assert self._kind is not None, "a method without client state stores none"
        path = self.path(client, version.round)
        try:
            return from_bytes(read_checked(path, version.sha256), (self._kind,))
        except InputError as error:
            raise CheckpointError(f"client state {path}: cannot be read: {error}") from None

    def prune(self, keep: Versions) -> None:
        """Delete every version that is not in `keep`."""
        names = {self.path(client, version.round).name for client, version in keep.items()}
        prune(self._folder, r"client-[0-9]+\.round-[0-9]+(\.part)?", names)


def read_checked(path: Path, sha256: str) -> bytes:
    """The content of a file of a checkpoint.

    Raises:
        InputError: it cannot be read, or its SHA-256 is another.
    """
    data = read_bytes(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise InputError("damaged (its checksum differs)")
    return data


class ClientStore(Protocol):
    """Loads a client's state when it is drawn and takes it back when it is done."""

    def load(self, client: int) -> Any | None:
        """The newest state, or None for a client that never took part."""

    def save(self, client: int, round: int, state: Any) -> None:
        """Keep `state`, written in `round`."""

    def flush(self) -> Versions:
        """Make every newest state durable; their versions."""

    def committed(self, versions: Versions) -> None:
        """A checkpoint now names `versions`; other durable versions may go."""

    def restore(self, versions: Versions) -> None:
        """Go back to these versions; the files of others stay until `committed`. `items` reads and checks each."""

    def items(self) -> Iterator[tuple[int, Any]]:
        """Every client seen and its newest state, in client order.

        Raises:
            CheckpointError: a state is missing or damaged.
        """


class MemoryStore:
    """States in memory; `flush` writes those that changed to the folder."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._states: dict[int, Any] = {}
        self._rounds: dict[int, int] = {}
        self._written: Versions = {}

    def load(self, client: int) -> Any | None:
        """The newest state."""
        if client in self._written and client not in self._states:  # restored, and not read yet
            self._states[client] = self._folder.read(client, self._written[client])
        return self._states.get(client)

    def save(self, client: int, round: int, state: Any) -> None:
        """Keep a state."""
        self._states[client] = state
        self._rounds[client] = round

    def flush(self) -> Versions:
        """Write the states that the folder does not have yet."""
        for client, round in self._rounds.items():
            if client not in self._written or self._written[client].round != round:
                self._written[client] = self._folder.write(client, round, self._states[client])
        return dict(self._written)

    def committed(self, versions: Versions) -> None:
        """Delete what the checkpoint does not name."""
        self._folder.prune(versions)

    def restore(self, versions: Versions) -> None:
        """Go back; states are read into memory when they are first asked for."""
        self._states = {}
        self._rounds = {client: version.round for client, version in versions.items()}
        self._written = dict(versions)

    def items(self) -> Iterator[tuple[int, Any]]:
        """Every client seen."""
        return ((client, self.load(client)) for client in sorted(self._rounds))


class DiskStore:
    """States on disk only: memory holds the clients of the current round."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._versions: Versions = {}
        self._durable: Versions = {}

    def load(self, client: int) -> Any | None:
        """Read the newest state."""
        version = self._versions.get(client)
        return None if version is None else self._folder.read(client, version)

    def save(self, client: int, round: int, state: Any) -> None:
        """Write a state; the one that it replaces goes unless a checkpoint names it."""
        old = self._versions.get(client)
        self._versions[client] = self._folder.write(client, round, state)
        if old is not None and old.round != round and self._durable.get(client) != old:
            with disk(path := self._folder.path(client, old.round), "removed"):
                path.unlink()

    def flush(self) -> Versions:
        """Everything is on disk already."""
        return dict(self._versions)

    def committed(self, versions: Versions) -> None:
        """Delete what the checkpoint does not name."""
        self._durable = dict(versions)
        self._folder.prune(versions)

    def restore(self, versions: Versions) -> None:
        """Go back to these versions."""
        self._versions, self._durable = dict(versions), dict(versions)

    def items(self) -> Iterator[tuple[int, Any]]:
        """Every client seen, read one at a time."""
        return ((client, self.load(client)) for client in sorted(self._versions))
