"""Reading a run folder back: every file of it as typed records, checked field by field."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from attacks.results import Attacked, read_results
from fedgr_secure.errors import require
from fedgr_secure.federation.folder import Manifest, RunFolder
from fedgr_secure.files import disk
from fedgr_secure.records import ClientRecord, LossHistogram, RoundRecord, RoundTiming, Summary
from fedgr_secure.sections import Config
from privacy.claims import PrivacyClaim


@dataclass(frozen=True)
class RunData:
    """Everything a run folder says. A run that has not finished has no summary, and maybe no clients or losses.

    Attributes:
        folder: where it was read from.
        manifest: what was known before the first round.
        config: the resolved configuration in the manifest.
        rounds: one record a round, in rising order of `round`.
        timings: seconds of the rounds by phase.
        summary: the figures of the finished run, or None.
        clients: one record a client; empty while the run is not finished.
        losses: the histogram of final losses, or None.
        claims: the privacy claims of the run.
        attacks: what attacks on the run came to, or None.
    """

    folder: Path
    manifest: Manifest
    config: Config
    rounds: tuple[RoundRecord, ...]
    timings: tuple[RoundTiming, ...]
    summary: Summary | None
    clients: tuple[ClientRecord, ...]
    losses: LossHistogram | None
    claims: tuple[PrivacyClaim, ...]
    attacks: Attacked | None = None


def read_run(path: Path) -> RunData:
    """Read a run folder, finished or not.

    Raises:
        InputError: the folder is missing, is not a run folder, or holds a damaged file; names the file and the line.
    """
    with disk(f"run folder: {path}", "used"):
        require(path.is_dir(), f"run folder: {path} {'is not a folder' if path.exists() else 'does not exist'}")
    folder = RunFolder(path)
    manifest, summary = folder.manifest(), folder.summary()
    torn = summary is None
    rounds = folder.rounds(torn=torn)
    for earlier, later in itertools.pairwise(rounds):
        require(
            earlier.round < later.round,
            f"{path / 'rounds.jsonl'}: round {later.round} after round {earlier.round}, allowed: rising rounds",
        )
    return RunData(
        folder=path,
        manifest=manifest,
        config=folder.config(),
        rounds=tuple(rounds),
        timings=tuple(folder.timings(torn=torn)),
        summary=summary,
        clients=folder.clients(),
        losses=folder.losses(),
        claims=summary.privacy if summary is not None else manifest.privacy,
        attacks=read_results(path),
    )
