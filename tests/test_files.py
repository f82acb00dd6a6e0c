"""A file is whole or not there: the process may die at any moment of a write."""

import os

import pytest

from fedgr_secure.files import write_atomic


class Killed(BaseException):
    """The process dies here."""


@pytest.fixture
def dies_before_the_data_is_safe(monkeypatch):
    def die(descriptor):
        raise Killed

    monkeypatch.setattr(os, "fsync", die)


@pytest.mark.parametrize("data", [b"new", "new"])
def test_the_content_is_replaced_and_nothing_else_is_left(tmp_path, data):
    path = tmp_path / "state"
    path.write_bytes(b"old and longer")
    write_atomic(path, data)
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_dies_leaves_the_old_content(tmp_path, dies_before_the_data_is_safe):
    path = tmp_path / "state"
    path.write_bytes(b"old")
    with pytest.raises(Killed):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_first_write_that_dies_leaves_no_file_of_that_name(tmp_path, dies_before_the_data_is_safe):
    with pytest.raises(Killed):
        write_atomic(tmp_path / "state", b"new")
    assert not (tmp_path / "state").exists()


def test_what_an_earlier_death_left_does_not_get_in_the_way(tmp_path):
    (tmp_path / "state.part").write_bytes(b"half of something long")
    write_atomic(tmp_path / "state", b"new")
    assert (tmp_path / "state").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
