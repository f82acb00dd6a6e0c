"""The disk: files that are either whole or not there, and whatever the system refuses as one line."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from fedgr_secure.errors import InputError


@contextmanager
def disk(name: object, doing: str) -> Iterator[None]:
    """Turn what the operating system refuses into `InputError`: "NAME: cannot be DOING: reason".

    Args:
        name: the file or folder; a name with control characters is shown quoted.
        doing: "read", "written", "made", ...
    """
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that holds NUL or that no file system can spell
        text = str(name) if str(name).isprintable() else repr(str(name))
        raise InputError(f"{text}: cannot be {doing}: {getattr(error, 'strerror', None) or error}") from None


def open_regular(path: Path, mode: str) -> IO[Any]:
    """Open a regular file; anything else (a pipe would wait for ever) is refused.

    Raises:
        InputError: it is something else.
        OSError: as `open`.
    """

    def without_waiting(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK, 0o666)

    stream = open(path, mode, opener=without_waiting)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise InputError(f"{path}: is not a regular file")
    return stream


def read_bytes(path: Path) -> bytes:
    """The content of a regular file.

    Raises:
        InputError: it is missing, is something else than a file, or cannot be read.
    """
    with disk(path, "read"):
        try:
            with open_regular(path, "rb") as stream:
                data: bytes = stream.read()
                return data
        except FileNotFoundError:
            raise InputError(f"{path}: the file is missing") from None


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a file so that a killed process leaves the old content or the new, never a part.

    Raises:
        InputError: the disk is full, or the file may not be written.
    """
    temporary = path.with_name(path.name + ".part")
    with disk(path, "written"):
        with open_regular(temporary, "wb") as stream:
            stream.write(data.encode() if isinstance(data, str) else data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)


def write_plain(path: Path, data: bytes, *, append: bool = False) -> None:
    """Write a file, or add to its end; a killed process may leave a part of `data`.

    Raises:
        InputError: as `write_atomic`.
    """
    with disk(path, "written"), open_regular(path, "ab" if append else "wb") as stream:
        stream.write(data)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are missing."""
    with disk(path, "made"):
        path.mkdir(parents=True, exist_ok=True)


def prune(folder: Path, pattern: str, keep: Container[str]) -> None:
    """Delete the files of a folder whose whole name matches the regular expression, but for the names in `keep`."""
    with disk(folder, "cleared"):
        for path in folder.iterdir() if folder.is_dir() else ():
            if re.fullmatch(pattern, path.name) and path.name not in keep and not path.is_dir():
                path.unlink()
