"""The server's view: every message that the server sent or received, as it would have crossed the network.

Attacks read this and public knowledge, nothing else.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedgr_secure.errors import InputError
from fedgr_secure.wire import from_bytes

Level = Literal["off", "uploads", "all"]
_TO_ALL = "all"


@dataclass(frozen=True)
class ViewRecorder:
    """Writes the view of a run: `view/round-0000012/Type.up.CLIENT` and `.down.CLIENT` (or `.down.all`)."""

    folder: Path | None
    level: Level = "off"

    def sent(self, round: int, client: int | None, kind: str, data: bytes) -> None:
        """The server sent a message, to one client or to the whole cohort."""
        self._write(round, f"{kind}.down.{_TO_ALL if client is None else client}", data)

    def received(self, round: int, client: int, kind: str, data: bytes) -> None:
        """The server received a message. At level "uploads" the clients' weights are left out."""
        if self.level == "all" or kind != "Update":
            self._write(round, f"{kind}.up.{client}", data)

    def forget_from(self, round: int) -> None:
        """Drop what was recorded from `round` on (a resumed run records it again)."""
        if self.folder is not None and self.folder.is_dir():
            for path in self.folder.iterdir():
                if int(path.name.removeprefix("round-")) >= round:
                    shutil.rmtree(path)

    def _write(self, round: int, name: str, data: bytes) -> None:
        if self.level == "off" or self.folder is None:
            return
        folder = self.folder / f"round-{round:07d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@dataclass(frozen=True)
class Seen:
    """One message of the view.

    Attributes:
        round: from 0.
        client: the other end, or None for a message to the whole cohort.
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
        if not self.folder.is_dir():
            raise InputError(f"server view: {self.folder} does not exist; record one with --record-view uploads")
        return sorted(int(path.name.removeprefix("round-")) for path in self.folder.iterdir())

    def messages(self, round: int, kinds: Iterable[type[Any]] | None = None) -> list[Seen]:
        """The messages of one round, of all types or of the given ones, by type, direction and client."""
        wanted = {kind.__name__ for kind in kinds or self.kinds}
        found = []
        for path in (self.folder / f"round-{round:07d}").iterdir():
            kind, direction, client = path.name.split(".")
            if kind in wanted:
                message = from_bytes(path.read_bytes(), self.kinds)
                found.append(Seen(round, None if client == _TO_ALL else int(client), direction == "up", message))
        return sorted(found, key=lambda seen: (type(seen.message).__name__, seen.up, seen.client or 0))
