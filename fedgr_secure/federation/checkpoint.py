"""Checkpoints: the client store plus the server's state, committed by one atomic rename."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from fedgr_secure.errors import CheckpointError, InputError
from fedgr_secure.federation.store import ClientStore, Version, Versions, read_checked
from fedgr_secure.files import disk, make_folder, prune, write_atomic
from fedgr_secure.typed import read_json
from fedgr_secure.wire import from_bytes, to_bytes

SCHEMA: Final = 3


@dataclass(frozen=True)
class Belongs:
    """What a checkpoint continues, as SHA-256.

    Attributes:
        run: of everything in the manifest that decides results (`Manifest.identity`).
        rounds: of the records of the complete rounds, as they stand in `rounds.jsonl`.
    """

    run: str
    rounds: str


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands.

    Attributes:
        rounds_done: how many rounds are complete.
        server: the server half's state.
        versions: by client, the state that belongs to it.
        belongs: the run that it continues.
    """

    rounds_done: int
    server: Any
    versions: Versions
    belongs: Belongs


@dataclass(frozen=True)
class _Client:
    client: int
    round: int
    sha256: str


@dataclass(frozen=True)
class _Commit:
    """`checkpoint.json`."""

    schema: Literal[3]
    rounds_done: int
    belongs: Belongs
    server_sha256: str
    clients: tuple[_Client, ...]

    def __post_init__(self) -> None:
        if self.rounds_done < 1:
            raise ValueError(f"rounds_done: {self.rounds_done}, allowed: a whole number from 1")
        for one in self.clients:
            if one.client < 0 or not 0 <= one.round < self.rounds_done:
                raise ValueError(
                    f"client {one.client}: state of round {one.round}, allowed: clients from 0 and rounds from 0 to "
                    f"{self.rounds_done - 1}"
                )
        if any(one.client >= other.client for one, other in itertools.pairwise(self.clients)):
            raise ValueError("clients, allowed: each once, in rising order")


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoint folder of a run; `checkpoint.json` is the commit, everything it names is already on disk."""

    folder: Path
    server_kind: type[Any]

    @property
    def _commit(self) -> Path:
        return self.folder / "checkpoint.json"

    def server_file(self, rounds_done: int) -> Path:
        """The file of the server's state."""
        return self.folder / f"server.round-{rounds_done:07d}"

    def write(self, rounds_done: int, server: Any, store: ClientStore, belongs: Belongs) -> None:
        """Write a checkpoint; until the last rename the previous one stays valid."""
        make_folder(self.folder)
        data = to_bytes(server)
        path = self.server_file(rounds_done)
        write_atomic(path, data)
        versions = store.flush()
        clients = tuple(_Client(client, v.round, v.sha256) for client, v in sorted(versions.items()))
        commit = _Commit(SCHEMA, rounds_done, belongs, hashlib.sha256(data).hexdigest(), clients)
        write_atomic(self._commit, json.dumps(dataclasses.asdict(commit)))
        store.committed(versions)
        prune(self.folder, r"server\.round-[0-9]+(\.part)?", {path.name})

    def read(self) -> Checkpoint | None:
        """The newest checkpoint, or None when none was written yet.

        Raises:
            CheckpointError: it is damaged, or of a schema that this version does not read.
        """
        try:
            with disk(self._commit, "read"):
                if not self._commit.exists():
                    return None
            commit: _Commit = read_json(self._commit, _Commit)
        except InputError as error:
            raise CheckpointError(f"checkpoint cannot be read: {error}") from None
        path = self.server_file(commit.rounds_done)
        try:
            server = from_bytes(read_checked(path, commit.server_sha256), (self.server_kind,))
        except InputError as error:
            raise CheckpointError(f"server state {path}: cannot be read: {error}") from None
        versions = {one.client: Version(one.round, one.sha256) for one in commit.clients}
        return Checkpoint(commit.rounds_done, server, versions, commit.belongs)
