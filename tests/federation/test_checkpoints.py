"""A checkpoint is whole or not there, wherever the process dies; a damaged one is refused by name."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgr_secure.errors import CheckpointError
from fedgr_secure.federation.checkpoint import Belongs, Checkpoints
from fedgr_secure.federation.store import DiskStore, MemoryStore, StateFolder


@dataclass(frozen=True)
class Server:
    """A server's state."""

    weights: dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Client:
    """A client's state."""

    day: int


BELONGS = Belongs("manifest", "rounds")


def server(number):
    return Server({"w": np.full(3, number, np.float32)})


@pytest.fixture(params=[MemoryStore, DiskStore])
def make_store(request, tmp_path):
    return lambda: request.param(StateFolder(tmp_path / "clients", Client))


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path, Server)


def play(store, first, last):
    """Rounds in which clients 0 and `round` take part and note the round."""
    for round in range(first, last):
        for client in (0, round):
            store.save(client, round, Client(round))


def test_there_is_none_before_the_first(checkpoints):
    assert checkpoints.read() is None
    assert Checkpoints(checkpoints.folder / "nowhere", Server).read() is None


def test_what_was_written_is_read(checkpoints, make_store):
    store = make_store()
    for done in (2, 5):
        play(store, 0 if done == 2 else 2, done)
        checkpoints.write(done, server(done), store, BELONGS)
    found = checkpoints.read()
    assert found.belongs == BELONGS
    assert found.rounds_done == 5
    assert found.server.weights["w"].tolist() == [5.0, 5.0, 5.0]
    assert {k: v.round for k, v in found.versions.items()} == {0: 4, 1: 1, 2: 2, 3: 3, 4: 4}
    again = make_store()
    again.restore(found.versions)
    assert [(client, state.day) for client, state in again.items()] == [(0, 4), (1, 1), (2, 2), (3, 3), (4, 4)]


def test_only_the_newest_is_kept(checkpoints, make_store, tmp_path):
    store = make_store()
    for done in range(1, 5):
        play(store, done - 1, done)
        checkpoints.write(done, server(done), store, BELONGS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.json", "clients", "server.round-0000004"]
    assert len(list((tmp_path / "clients").iterdir())) == 4


class Killed(BaseException):
    """The process dies here."""


class Mortal:
    """Lets the process die before or after its n-th renaming or deleting of a file."""

    def __init__(self, monkeypatch, step, *, after):
        self.left, self.after = step, after
        for name in ("replace", "unlink"):
            monkeypatch.setattr(Path, name, self.wrap(getattr(Path, name)))

    def wrap(self, method):
        def wrapped(*args, **options):
            self.left -= 1
            if self.left == 0 and not self.after:
                raise Killed
            result = method(*args, **options)
            if self.left == 0:
                raise Killed
            return result

        return wrapped


@pytest.mark.parametrize("after", [False, True])
def test_death_at_any_step_leaves_the_old_checkpoint_or_the_new(tmp_path, make_store, monkeypatch, after):
    """Tries every step of a second write in turn, until one write gets through."""
    outcomes = []
    for step in range(1, 40):
        checkpoints = Checkpoints(tmp_path / str(step), Server)
        states = StateFolder(checkpoints.folder / "clients", Client)
        store = type(make_store())(states)
        play(store, 0, 2)
        checkpoints.write(2, server(2), store, BELONGS)
        play(store, 2, 4)
        with monkeypatch.context() as patch:
            Mortal(patch, step, after=after)
            try:
                checkpoints.write(4, server(4), store, BELONGS)
                died = False
            except Killed:
                died = True
        found = checkpoints.read()
        again = type(store)(states)
        again.restore(found.versions)
        again.committed(found.versions)
        seen = [(client, state.day) for client, state in again.items()]
        old, new = [(0, 1), (1, 1)], [(0, 3), (1, 1), (2, 2), (3, 3)]
        assert (found.rounds_done, seen) in [(2, old), (4, new)]
        assert found.server.weights["w"][0] == found.rounds_done
        assert len(list((checkpoints.folder / "clients").iterdir())) == len(seen)  # nothing else is left
        outcomes.append(found.rounds_done)
        again.save(0, 9, Client(9))  # and the run goes on
        checkpoints.write(10, server(10), again, BELONGS)
        assert {path.name for path in checkpoints.folder.iterdir()} == {
            "checkpoint.json",
            "clients",
            "server.round-0000010",
        }
        if not died:
            break
    assert not died
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {2, 4}


def test_newer_files_that_no_checkpoint_names_are_ignored(checkpoints, make_store, tmp_path):
    store = make_store()
    play(store, 0, 2)
    checkpoints.write(2, server(2), store, BELONGS)
    StateFolder(tmp_path / "clients", Client).write(0, 7, Client(7))
    (tmp_path / "server.round-0000008").write_bytes(b"never committed")
    (tmp_path / "checkpoint.json.part").write_text('{"schema": 1, "rounds')
    found, again = checkpoints.read(), make_store()
    again.restore(found.versions)
    assert (tmp_path / "clients" / "client-0000000.round-0000007").exists()  # nothing changes before all is checked
    again.committed(found.versions)
    assert found.rounds_done == 2
    assert again.load(0).day == 1
    assert not (tmp_path / "clients" / "client-0000000.round-0000007").exists()


def edit(**changes):
    def damage(folder):
        path = folder / "checkpoint.json"
        table = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: value for key, value in table.items() if value is not None}))

    return damage


def write(name, data):
    return lambda folder: (folder / name).write_bytes(data)


SERVER = "server.round-0000002"


def truncate(folder):
    """A server state that is not a record, under a checksum that fits."""
    data = (folder / SERVER).read_bytes()[:-2]
    (folder / SERVER).write_bytes(data)
    edit(server_sha256=hashlib.sha256(data).hexdigest())(folder)


def client(**changes):
    """Client 0's entry with other values."""

    def damage(folder):
        entries = json.loads((folder / "checkpoint.json").read_text())["clients"]
        edit(clients=[entries[0] | changes, *entries[1:]])(folder)

    return damage


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (write("checkpoint.json", b'{"schema": 1, "rou'), "cannot be read: .*checkpoint.json, line 1: damaged JSON"),
        (write("checkpoint.json", b""), "checkpoint.json, line 1: damaged JSON"),
        (write("checkpoint.json", b"\xff\xfe"), "checkpoint.json, line 1: is not UTF-8 text"),
        (write("checkpoint.json", b"[1]"), r"checkpoint.json: \[1\], allowed: a table"),
        (write("checkpoint.json", b"[" * 100_000), "checkpoint.json, line 1: damaged JSON"),
        (write("checkpoint.json", b'{"schema": ' + b"9" * 5000 + b"}"), "checkpoint.json, line 1: damaged JSON"),
        (edit(schema=99), "checkpoint.json: schema: 99, allowed: 3"),
        (write("checkpoint.json", b'{"schema": 1, "server": "x"}'), "checkpoint.json: schema: 1, allowed: 3"),
        (edit(schema=3.0), "checkpoint.json: schema: 3.0, allowed: 3"),
        (edit(schema=None), "checkpoint.json: schema is missing"),
        (edit(rounds_done=None), "checkpoint.json: rounds_done is missing"),
        (edit(more=1), "checkpoint.json: unknown key 'more'"),
        *((edit(rounds_done=value), f"rounds_done: {value!r}, allowed: int") for value in ("6", 6.9, True)),
        (edit(rounds_done=0), "rounds_done: 0, allowed: a whole number from 1"),
        (edit(rounds_done=2**70), "rounds_done: .*allowed: int of at most 64 bits"),
        (edit(clients={"0": 1}), "clients: .*allowed: a list"),
        (client(client=-1), "client -1: state of round 1, allowed: clients from 0"),
        (client(client=1), "clients, allowed: each once, in rising order"),
        (client(client="0"), r"clients\[0\]: client: '0', allowed: int"),
        (client(round=2), "client 0: state of round 2, allowed: .*rounds from 0 to 1"),
        (client(round=-1), "client 0: state of round -1"),
        (edit(rounds_done=9), "server.round-0000009: cannot be read: .*the file is missing"),
        (write(SERVER, b"other bytes"), f"{SERVER}: cannot be read: damaged"),
        (lambda folder: (folder / SERVER).unlink(), f"{SERVER}: cannot be read: .*the file is missing"),
        (truncate, f"{SERVER}: cannot be read: not a record"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name(checkpoints, make_store, damage, named):
    store = make_store()
    play(store, 0, 2)
    checkpoints.write(2, server(2), store, BELONGS)
    damage(checkpoints.folder)
    with pytest.raises(CheckpointError, match=named):
        checkpoints.read()


def test_the_state_of_another_method_is_refused(checkpoints, make_store):
    store = make_store()
    play(store, 0, 1)
    checkpoints.write(1, server(1), store, BELONGS)
    with pytest.raises(CheckpointError, match="message type: Server, allowed: Client"):
        Checkpoints(checkpoints.folder, Client).read()
