"""Putting a checkpoint back: everything is checked first, and only then does the disk change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedgr_secure.aggregate import check_weights
from fedgr_secure.errors import CheckpointError, DivergedError, InputError
from fedgr_secure.federation.checkpoint import Checkpoint, Checkpoints
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.federation.store import StateFolder
from fedgr_secure.records import RoundRecord

if TYPE_CHECKING:
    from fedgr_secure.federation.federation import Federation


def restore(federation: Federation, folder: RunFolder) -> int:
    """Put the checkpoint's states back and cut the records to it; the number of complete rounds.

    Raises:
        InputError: the checkpoint or the records are damaged, do not belong together, or belong to another run than the
            manifest tells of. Nothing has changed then.
    """
    checkpoint = Checkpoints(folder.checkpoints, federation.method.server_state).read()
    done = 0
    if checkpoint is not None:
        done = checkpoint.rounds_done
        _check_belongs(federation, folder, checkpoint)
        _put_server_back(federation, folder, checkpoint)
        _put_clients_back(federation, folder, checkpoint)
        _put_records_back(federation, folder.recorded(done))
    replayed = tuple(folder.beyond(done))
    federation.releases.check_replayed(replayed)
    if federation.training is not None and federation.training.keys is not None:
        federation.training.keys.check_replayed(replayed)
    folder.cut(done)
    federation.recorder.forget_from(done)
    federation.store.committed(checkpoint.versions if checkpoint is not None else {})
    return done


def _check_belongs(federation: Federation, folder: RunFolder, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint of other settings, of other records, or that lacks clients."""
    done, rounds = checkpoint.rounds_done, federation.config.federation.rounds
    if checkpoint.belongs.run != folder.manifest().identity():
        raise CheckpointError(
            f"checkpoint {folder.checkpoints}: belongs to other settings, data or versions than "
            f"{folder.path / 'manifest.json'} names; undo what was edited, or start a new run"
        )
    if done > rounds:
        raise CheckpointError(
            f"checkpoint {folder.checkpoints}: {done} rounds done, allowed: at most rounds = {rounds}"
        )
    if checkpoint.belongs.rounds != folder.digest(done):
        raise CheckpointError(
            f"checkpoint {folder.checkpoints}: belongs to other records than the first {done} of "
            f"{folder.path / 'rounds.jsonl'}"
        )
    newest: dict[int, int] = {}
    if federation.method.client_state is not None:
        newest = {client: number for number in range(done) for client in federation.drawn(number)}
    found = {client: version.round for client, version in checkpoint.versions.items()}
    for client in sorted(newest.keys() | found.keys()):
        if newest.get(client) != found.get(client):
            raise CheckpointError(
                f"checkpoint {folder.checkpoints}: client {client}: state of round {found.get(client)}, "
                f"allowed: {newest.get(client)}, its last of the {done} rounds"
            )


def _put_server_back(federation: Federation, folder: RunFolder, checkpoint: Checkpoint) -> None:
    path = Checkpoints(folder.checkpoints, federation.method.server_state).server_file(checkpoint.rounds_done)
    with _blaming("server state", path):
        check_weights(checkpoint.server.weights, federation.server.state.weights, who="weights")
        if federation.method.check_server is not None:
            federation.method.check_server(checkpoint.server, [len(shard) for shard in federation.data.shards])
    federation.server.state = checkpoint.server


def _put_clients_back(federation: Federation, folder: RunFolder, checkpoint: Checkpoint) -> None:
    states = StateFolder(folder.checkpoints / "clients", federation.method.client_state)
    federation.store.restore(checkpoint.versions)
    for client, state in federation.store.items():
        with _blaming(f"client {client}: state", states.path(client, checkpoint.versions[client].round)):
            if federation.method.check_client is not None:
                federation.method.check_client(state, federation.context(client))
        federation.evaluator.note(client, state)


def _put_records_back(federation: Federation, records: list[RoundRecord]) -> None:
    counts = federation.evaluator.participations
    for record in records:
        federation.mixture = record.mixture or federation.mixture
        for client in record.cohort:
            counts[client] = counts.get(client, 0) + 1


@contextmanager
def _blaming(what: str, path: Path) -> Iterator[None]:
    """Name the file whose content is not what the run could have written."""
    try:
        yield
    except (InputError, DivergedError) as error:
        raise CheckpointError(f"{what} {path}: {error}") from None
