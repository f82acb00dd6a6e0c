"""Checkpoints: the client store plus the server's state, committed by one atomic rename."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgr_secure.errors import CheckpointError
from fedgr_secure.federation.files import write_atomic
from fedgr_secure.federation.store import ClientStore, Versions
from fedgr_secure.wire import WireError, from_bytes, to_bytes

SCHEMA = 1


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands.

    Attributes:
        rounds_done: how many rounds are complete.
        server: the server half's state.
        versions: by client, the round in which its state was written.
    """

    rounds_done: int
    server: Any
    versions: Versions


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoint folder of a run; `checkpoint.json` is the commit, everything it names is already on disk."""

    folder: Path
    server_kind: type[Any]

    @property
    def _commit(self) -> Path:
        return self.folder / "checkpoint.json"

    def write(self, rounds_done: int, server: Any, store: ClientStore) -> None:
        """Write a checkpoint; until the last rename the previous one stays valid."""
        self.folder.mkdir(parents=True, exist_ok=True)
        data = to_bytes(server)
        name = f"server.round-{rounds_done:07d}"
        write_atomic(self.folder / name, data)
        versions = store.flush()
        table = {
            "schema": SCHEMA,
            "rounds_done": rounds_done,
            "server": name,
            "server_sha256": hashlib.sha256(data).hexdigest(),
            "clients": {str(client): round for client, round in sorted(versions.items())},
        }
        write_atomic(self._commit, json.dumps(table))
        store.committed(versions)
        for path in self.folder.glob("server.round-*"):
            if path.name != name:
                path.unlink()

    def read(self) -> Checkpoint | None:
        """The newest checkpoint, or None when none was written yet.

        Raises:
            CheckpointError: it is damaged, or of a schema that this version does not read.
        """
        if not self._commit.exists():
            return None
        try:
            table = json.loads(self._commit.read_text())
            if table["schema"] != SCHEMA:
                raise CheckpointError(f"checkpoint {self._commit}: schema {table['schema']}, allowed: {SCHEMA}")
            data = (self.folder / table["server"]).read_bytes()
            if hashlib.sha256(data).hexdigest() != table["server_sha256"]:
                raise CheckpointError(f"checkpoint {self.folder / table['server']}: damaged (its checksum differs)")
            versions = {int(client): int(round) for client, round in table["clients"].items()}
            return Checkpoint(int(table["rounds_done"]), from_bytes(data, (self.server_kind,)), versions)
        except CheckpointError:
            raise
        except (OSError, WireError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"checkpoint {self._commit}: cannot be read: {reason}") from None
