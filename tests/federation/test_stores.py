"""Client states in memory and on disk: one contract, and what is durable when."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgr_secure.errors import CheckpointError
from fedgr_secure.federation.store import DiskStore, MemoryStore, StateFolder
from fedgr_secure.wire import from_bytes


@dataclass(frozen=True)
class Diary:
    """A client's state."""

    day: int
    losses: NDArray[np.float64]


def diary(day):
    return Diary(day, np.array([day, 0.1 + day, np.nan]))


def rounds(versions):
    return {client: version.round for client, version in versions.items()}


def same(one, other):
    return one.day == other.day and np.array_equal(one.losses, other.losses, equal_nan=True)


class StoreContract(ABC):
    """What every client store promises."""

    @abstractmethod
    def make(self, folder):
        """A store over the folder."""

    @pytest.fixture
    def folder(self, tmp_path):
        return StateFolder(tmp_path / "clients", Diary)

    @pytest.fixture
    def files(self, tmp_path):
        return lambda: sorted(path.name for path in (tmp_path / "clients").iterdir())

    @pytest.fixture
    def store(self, folder):
        return self.make(folder)

    def restored(self, folder, versions):
        """What a new process finds."""
        store = self.make(folder)
        store.restore(versions)
        list(store.items())
        store.committed(versions)
        return store

    def commit(self, store):
        versions = store.flush()
        store.committed(versions)
        return versions

    def test_a_client_that_never_took_part_has_no_state(self, store):
        assert store.load(3) is None
        assert list(store.items()) == []
        assert store.flush() == {}

    def test_the_newest_state_is_loaded(self, store):
        store.save(3, 0, diary(1))
        store.save(3, 4, diary(2))
        store.save(1, 4, diary(3))
        assert same(store.load(3), diary(2))
        assert same(store.load(1), diary(3))

    def test_items_are_the_newest_states_in_client_order(self, store):
        for client in (5, 1, 30):
            store.save(client, 0, diary(client))
        store.save(1, 1, diary(9))
        assert [(client, state.day) for client, state in store.items()] == [(1, 9), (5, 5), (30, 30)]

    def test_what_was_flushed_is_there_for_a_new_process(self, store, folder):
        store.save(3, 0, diary(1))
        store.save(1, 2, diary(2))
        versions = store.flush()
        assert rounds(versions) == {3: 0, 1: 2}
        again = self.restored(folder, versions)
        assert [(client, state.day) for client, state in again.items()] == [(1, 2), (3, 1)]
        assert same(again.load(3), diary(1))
        assert again.flush() == versions

    def test_a_committed_version_stays_until_the_next_commit(self, store, folder, files):
        store.save(3, 0, diary(0))
        store.save(1, 0, diary(10))
        first = self.commit(store)
        for round in (5, 6):
            store.save(3, round, diary(round))
        second = store.flush()  # durable, but no checkpoint names it yet
        assert "client-0000003.round-0000000" in files()
        assert same(folder.read(3, first[3]), diary(0))
        store.committed(second)
        assert files() == ["client-0000001.round-0000000", "client-0000003.round-0000006"]
        assert first[1] == second[1]  # a client that did not change keeps its version

    def test_restoring_goes_back_and_forgets_what_came_later(self, store, folder, files):
        store.save(3, 0, diary(0))
        versions = self.commit(store)
        store.save(3, 1, diary(1))
        store.save(8, 1, diary(8))
        store.flush()
        again = self.restored(folder, versions)
        assert same(again.load(3), diary(0))
        assert again.load(8) is None
        assert files() == ["client-0000003.round-0000000"]
        again.save(3, 1, diary(11))  # the round is done again
        assert same(self.restored(folder, self.commit(again)).load(3), diary(11))

    def test_restoring_nothing_starts_over(self, store, folder, files):
        store.save(3, 0, diary(0))
        store.flush()
        assert list(self.restored(folder, {}).items()) == []
        assert files() == []

    def test_parts_that_a_killed_process_left_are_pruned(self, store, files, tmp_path):
        store.save(3, 0, diary(0))
        versions = store.flush()
        (tmp_path / "clients" / "client-0000003.round-0000001.part").write_bytes(b"half")
        store.committed(versions)
        assert files() == ["client-0000003.round-0000000"]

    def test_one_flipped_bit_in_a_tensor_is_noticed(self, store, folder):
        store.save(3, 2, diary(0))
        versions = self.commit(store)
        path = folder.path(3, 2)
        data = bytearray(path.read_bytes())
        data[-20] ^= 1  # inside the losses: still a well-formed record
        path.write_bytes(data)
        assert from_bytes(bytes(data), [Diary]).day == 0
        with pytest.raises(CheckpointError, match=r"client-0000003\.round-0000002: cannot be read: damaged"):
            self.restored(folder, versions)

    def test_restoring_changes_nothing_on_disk(self, store, folder, files):
        store.save(3, 0, diary(0))
        versions = self.commit(store)
        store.save(3, 1, diary(1))
        store.flush()
        before = files()
        self.make(folder).restore(versions)
        assert files() == before == ["client-0000003.round-0000000", "client-0000003.round-0000001"]

    @pytest.mark.parametrize("damage", [None, b"", b"junk", "half"])
    def test_a_missing_or_damaged_state_is_refused_by_file_name(self, store, folder, damage):
        store.save(3, 2, diary(0))
        versions = self.commit(store)
        path = folder.path(3, 2)
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-9] if damage == "half" else damage)
        with pytest.raises(CheckpointError, match=path.name):
            self.restored(folder, versions)


class TestMemoryStore(StoreContract):
    def make(self, folder):
        return MemoryStore(folder)

    def test_nothing_is_written_before_a_flush_and_only_changes_after_it(self, store, folder, files, tmp_path):
        store.save(3, 0, diary(0))
        store.save(1, 0, diary(1))
        assert not (tmp_path / "clients").exists()
        self.commit(store)
        before = folder.path(1, 0).stat().st_mtime_ns
        store.save(3, 1, diary(2))
        self.commit(store)
        assert folder.path(1, 0).stat().st_mtime_ns == before
        assert files() == ["client-0000001.round-0000000", "client-0000003.round-0000001"]


class TestDiskStore(StoreContract):
    def make(self, folder):
        return DiskStore(folder)

    def test_a_state_is_on_disk_when_saved_and_versions_in_between_go(self, store, files):
        store.save(3, 0, diary(0))
        self.commit(store)
        for round in (1, 2, 3):
            store.save(3, round, diary(round))
        assert files() == ["client-0000003.round-0000000", "client-0000003.round-0000003"]

    def test_loading_reads_the_file(self, store, folder):
        store.save(3, 2, diary(0))
        folder.path(3, 2).write_bytes(b"junk")
        with pytest.raises(CheckpointError, match=r"client state .*client-0000003\.round-0000002: cannot be read"):
            store.load(3)
