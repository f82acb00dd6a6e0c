"""What clients have released, kept on their side: a round that is played again after a kill sends the same again.

A release whose noise is drawn anew would cost its budget twice. It is therefore written down, whole, before it leaves
the client; the file goes when a checkpoint holds the round.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.context import Release
from fedgr_secure.errors import CheckpointError, InputError
from fedgr_secure.files import disk, make_folder, prune, read_bytes, write_atomic
from fedgr_secure.wire import Array, from_bytes, to_bytes
from privacy.channels.channel import Memory

_NAME = re.compile(r"round-([0-9]{7,})\.client-([0-9]{7,})")


@dataclass(frozen=True)
class Released:
    """One client's release of one round: the upload, and what it remembers (`Memory`)."""

    upload: dict[str, Array]
    releases: int
    total: NDArray[np.int64]


@dataclass(frozen=True)
class KeptReleases:
    """The releases of a run, a file each."""

    folder: Path

    def once(self, client: int, round: int, make: Callable[[], Release]) -> Release:
        """The client's release of this round: the one on disk, or else a new one, which goes to disk first.

        Raises:
            CheckpointError: the file is damaged.
        """
        path = self.folder / f"round-{round:07d}.client-{client:07d}"
        with disk(path, "read"):
            there = path.exists()
        if there:
            try:
                kept = from_bytes(read_bytes(path), (Released,))
            except InputError as error:
                raise CheckpointError(f"release {path}: cannot be read: {error}") from None
            return kept.upload, Memory(kept.releases, kept.total)
        upload, memory = make()
        make_folder(self.folder)
        write_atomic(path, to_bytes(Released(upload, memory.releases, memory.total)))
        return upload, memory

    def forget_before(self, round: int) -> None:
        """Delete the releases of rounds that will not be played again."""
        with disk(self.folder, "read"):
            names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        later = {name for name in names if (found := _NAME.fullmatch(name)) and int(found[1]) >= round}
        prune(self.folder, rf"{_NAME.pattern}(\.part)?", later)
