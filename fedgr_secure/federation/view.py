"""The server's view: every message that the server sent or received, as it would have crossed the network.

Attacks read this and public knowledge, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedgr_secure.errors import InputError, require
from fedgr_secure.files import disk, make_folder, read_bytes, write_plain
from fedgr_secure.wire import WireError, from_bytes

Level = Literal["off", "uploads", "all"]
_TO_ALL = "all"
_ROUND = re.compile(r"round-([0-9]{7}|[1-9][0-9]{7,})")
_MESSAGE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\.(up|down)\.(0|[1-9][0-9]*|all)")


@dataclass(frozen=True)
class ViewRecorder:
    """Writes the view of a run: `view/round-0000012/Type.up.CLIENT` and `.down.CLIENT` (or `.down.all`)."""

    folder: Path | None
    level: Level = "off"

    def sent(self, round: int, client: int | None, kind: str, data: bytes) -> None:
        """The server sent a message, to one client or to the whole cohort."""
        self._write(round, f"{kind}.down.{_TO_ALL if client is None else client}", data)

    def received(self, round: int, client: int | None, kind: str, data: bytes) -> None:
        """The server received a message, or (client None) the sum of many. Clients' weights only at level "all"."""
        if self.level == "all" or kind != "Update":
            self._write(round, f"{kind}.up.{_TO_ALL if client is None else client}", data)

    def forget_from(self, round: int) -> None:
        """Drop what was recorded from `round` on (a resumed run records it again); other files stay."""
        if self.folder is not None:
            for number, folder in _rounds(self.folder):
                for path, *_ in _messages(folder) if number >= round else ():
                    with disk(path, "removed"):
                        path.unlink()
                with suppress(OSError):  # not empty: it holds something else
                    folder.rmdir()

    def _write(self, round: int, name: str, data: bytes) -> None:
        if self.level == "off" or self.folder is None:
            return
        folder = self.folder / f"round-{round:07d}"
        make_folder(folder)
        write_plain(folder / name, data)


def _rounds(view: Path) -> Iterator[tuple[int, Path]]:
    """The folders that a recorder made, by round; whatever else lies there is not ours."""
    with disk(view, "read"):
        for path in sorted(view.iterdir()) if view.is_dir() else ():
            found = _ROUND.fullmatch(path.name)
            if found and path.is_dir():
                yield int(found[1]), path


def _messages(folder: Path) -> Iterator[tuple[Path, str, bool, int | None]]:
    """The messages that a recorder wrote: file, type, whether up, and client (None: all of the cohort)."""
    with disk(folder, "read"):
        for path in sorted(folder.iterdir()):
            found = _MESSAGE.fullmatch(path.name)
            if found and path.is_file():
                yield path, found[1], found[2] == "up", None if found[3] == _TO_ALL else int(found[3])


@dataclass(frozen=True)
class Seen:
    """One message of the view.

    Attributes:
        round: from 0.
        client: the other end, or None for a message to the whole cohort or a sum over it.
        up: from the client to the server.
        message: the message itself.
    """

    round: int
    client: int | None
    up: bool
    message: Any


@dataclass(frozen=True)
class ServerView:
    """Reads a recorded view.

    Attributes:
        folder: the `view` folder of a run.
        kinds: the message types of the run's method (`METHODS[name].messages`).
    """

    folder: Path
    kinds: tuple[type[Any], ...]

    def rounds(self) -> list[int]:
        """The recorded rounds, in order.

        Raises:
            InputError: nothing was recorded.
        """
        require(
            self.folder.is_dir(), f"server view: {self.folder} does not exist; record one with --record-view uploads"
        )
        return sorted(number for number, _ in _rounds(self.folder))

    def messages(self, round: int, kinds: Iterable[type[Any]] | None = None) -> list[Seen]:
        """The messages of one round, of all types or of the given ones, by type, direction and client.

        Raises:
            InputError: the round was not recorded, or a file is damaged or holds another message than its name says.
        """
        wanted = {kind.__name__ for kind in kinds or self.kinds}
        folder = dict(_rounds(self.folder)).get(round)
        if folder is None:
            raise InputError(f"server view: {self.folder} holds no round {round}")
        found = [
            Seen(round, client, up, self._read(path, kind, round))
            for path, kind, up, client in _messages(folder)
            if kind in wanted
        ]
        return sorted(found, key=lambda seen: (type(seen.message).__name__, seen.up, seen.client or 0))

    def senders(self, round: int, kind: str) -> set[int]:
        """Whose messages of a type the server received in a round, by the names of the files."""
        folder = dict(_rounds(self.folder)).get(round)
        sent = _messages(folder) if folder is not None else ()
        return {client for _, found, up, client in sent if found == kind and up and client is not None}

    def _read(self, path: Path, kind: str, round: int) -> Any:
        try:
            message: Any = from_bytes(read_bytes(path), self.kinds)
        except WireError as error:
            raise WireError(f"{path}: {error}") from None
        said = f"{type(message).__name__} of round {message.round}"
        require(said == f"{kind} of round {round}", f"{path}: holds {said}, allowed: {kind} of round {round}")
        return message
