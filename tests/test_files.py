"""A file is whole or not there: the process may die at any moment of a write."""

import errno
import os
from pathlib import Path

import pytest

from fedgr_secure.errors import InputError
from fedgr_secure.files import make_folder, prune, read_bytes, write_atomic, write_plain


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


@pytest.mark.parametrize(("code", "reason"), [(errno.ENOSPC, "No space left on device"), (errno.EIO, "Input/output")])
def test_a_full_or_broken_disk_is_one_line_that_names_the_file(tmp_path, monkeypatch, code, reason):
    def refuse(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(InputError, match=rf"state: cannot be written: {reason}"):
        write_atomic(tmp_path / "state", b"new")


OPERATIONS = {
    "read": read_bytes,
    "written": lambda path: write_atomic(path, b""),
    "written plainly": lambda path: write_plain(path, b""),
    "added to": lambda path: write_plain(path, b"", append=True),
    "made": make_folder,
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("x" * 300, "File name too long"),
        ("nul\0byte", "embedded null byte"),
        ("half\ud83dpair", "surrogates not allowed"),
        ("file/inside", "Not a directory"),
    ],
)
def test_what_the_system_refuses_is_one_line(tmp_path, operation, name, reason):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=rf"cannot be (read|written|made): .*{reason}") as caught:
        OPERATIONS[operation](tmp_path / name)
    assert len(str(caught.value).splitlines()) == 1
    assert "\0" not in str(caught.value)


@pytest.mark.parametrize("operation", ["read", "written plainly", "added to"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_regular_files_are_opened_and_nobody_waits_for_a_pipe(tmp_path, operation, make):
    make(tmp_path / "odd")
    with pytest.raises(
        InputError, match=r"odd: (is not a regular file|cannot be \w+: (No such device|Is a directory))"
    ):
        OPERATIONS[operation](tmp_path / "odd")


def test_a_pipe_in_the_place_of_the_part_is_refused_too(tmp_path):
    os.mkfifo(tmp_path / "state.part")
    with pytest.raises(InputError, match=r"cannot be written|not a regular file"):
        write_atomic(tmp_path / "state", b"new")


def test_a_missing_file_is_called_missing(tmp_path):
    with pytest.raises(InputError, match="state: the file is missing"):
        read_bytes(tmp_path / "state")


def test_pruning_leaves_other_names_folders_and_what_is_kept(tmp_path):
    for name in ("state-1", "state-2", "state-1.txt", "my state-1"):
        (tmp_path / name).write_text("")
    (tmp_path / "state-3").mkdir()
    prune(tmp_path, r"state-[0-9]", {"state-2"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my state-1", "state-1.txt", "state-2", "state-3"]
    prune(Path(tmp_path / "nowhere"), "", set())
