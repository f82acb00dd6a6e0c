"""Where clients' states live between rounds: in memory, or as files for federations that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from fedgr_secure.errors import CheckpointError
from fedgr_secure.federation.files import write_atomic
from fedgr_secure.wire import WireError, from_bytes, to_bytes

Versions = dict[int, int]


class StateFolder:
    """Client states as files, one per (client, round in which it was written).

    A state is never overwritten, so that a checkpoint can name the versions that belong to it while a later round is
    already writing newer ones.
    """

    def __init__(self, folder: Path, kind: type[Any] | None) -> None:
        self._folder = folder
        self._kind = kind

    def path(self, client: int, round: int) -> Path:
        """The file of one version."""
        return self._folder / f"client-{client:07d}.round-{round:07d}"

    def write(self, client: int, round: int, state: Any) -> None:
        """Write one version."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path(client, round), to_bytes(state))

    def read(self, client: int, round: int) -> Any:
        """Read one version.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        assert self._kind is not None, "a method without client state stores none"
        path = self.path(client, round)
        try:
            return from_bytes(path.read_bytes(), (self._kind,))
        except (OSError, WireError) as error:
            raise CheckpointError(f"client state {path}: cannot be read: {error}") from None

    def prune(self, keep: set[tuple[int, int]]) -> None:
        """Delete every version that is not in `keep` (pairs of client and round)."""
        if self._folder.is_dir():
            names = {self.path(*version).name for version in keep}
            for path in self._folder.glob("client-*.round-*"):
                if path.name not in names:
                    path.unlink()


class ClientStore(Protocol):
    """Loads a client's state when it is drawn and takes it back when it is done."""

    def load(self, client: int) -> Any | None:
        """The newest state, or None for a client that never took part."""

    def save(self, client: int, round: int, state: Any) -> None:
        """Keep `state`, written in `round`."""

    def flush(self) -> Versions:
        """Make every newest state durable; the round in which each was written."""

    def committed(self, versions: Versions) -> None:
        """A checkpoint now names `versions`; other durable versions may go."""

    def restore(self, versions: Versions) -> None:
        """Go back to these versions."""

    def items(self) -> Iterator[tuple[int, Any]]:
        """Every client seen and its newest state, in client order."""


class MemoryStore:
    """States in memory; `flush` writes those that changed to the folder."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._states: dict[int, Any] = {}
        self._versions: Versions = {}
        self._durable: Versions = {}

    def load(self, client: int) -> Any | None:
        """The newest state."""
        return self._states.get(client)

    def save(self, client: int, round: int, state: Any) -> None:
        """Keep a state."""
        self._states[client] = state
        self._versions[client] = round

    def flush(self) -> Versions:
        """Write the states that the folder does not have yet."""
        for client, round in self._versions.items():
            if self._durable.get(client) != round:
                self._folder.write(client, round, self._states[client])
        return dict(self._versions)

    def committed(self, versions: Versions) -> None:
        """Delete what the checkpoint does not name."""
        self._durable = dict(versions)
        self._folder.prune(set(versions.items()))

    def restore(self, versions: Versions) -> None:
        """Read these versions into memory."""
        self._states = {client: self._folder.read(client, round) for client, round in versions.items()}
        self._versions = dict(versions)
        self.committed(versions)

    def items(self) -> Iterator[tuple[int, Any]]:
        """Every client seen."""
        return iter(sorted(self._states.items()))


class DiskStore:
    """States on disk only: memory holds the clients of the current round."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._versions: Versions = {}
        self._durable: Versions = {}

    def load(self, client: int) -> Any | None:
        """Read the newest state."""
        round = self._versions.get(client)
        return None if round is None else self._folder.read(client, round)

    def save(self, client: int, round: int, state: Any) -> None:
        """Write a state; the one that it replaces goes unless a checkpoint names it."""
        self._folder.write(client, round, state)
        old = self._versions.get(client)
        if old is not None and old != round and self._durable.get(client) != old:
            self._folder.path(client, old).unlink()
        self._versions[client] = round

    def flush(self) -> Versions:
        """Everything is on disk already."""
        return dict(self._versions)

    def committed(self, versions: Versions) -> None:
        """Delete what the checkpoint does not name."""
        self._durable = dict(versions)
        self._folder.prune(set(versions.items()))

    def restore(self, versions: Versions) -> None:
        """Go back to these versions, checking that each can be read."""
        for client, round in versions.items():
            self._folder.read(client, round)
        self._versions = dict(versions)
        self.committed(versions)

    def items(self) -> Iterator[tuple[int, Any]]:
        """Every client seen, read one at a time."""
        return ((client, self._folder.read(client, round)) for client, round in sorted(self._versions.items()))
