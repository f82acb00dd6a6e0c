"""The run folder: what a run leaves behind for people, plots, scripts and a resume."""

from __future__ import annotations

import fcntl
import json
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from fedgr_secure.config import Config, from_table, to_table
from fedgr_secure.errors import InputError, require
from fedgr_secure.federation.files import write_atomic
from fedgr_secure.records import ClientRecord, LossHistogram, RoundRecord, RoundTiming, Summary, to_json
from fedgr_secure.typed import read_json, read_json_lines
from fedgr_secure.wire import Weights
from privacy.claims import PrivacyClaim

_PACKAGES = ("fedgr-secure", "torch", "torchvision", "numpy", "scipy", "scikit-learn", "safetensors")


SCHEMA = 1
_LOCK = "lock"
_OWN = {
    "manifest.json",
    "rounds.jsonl",
    "timings.jsonl",
    "summary.json",
    "clients.json",
    "losses.json",
    "weights.safetensors",
    "report.html",
    "figures",
    "view",
    "checkpoint",
    _LOCK,
}


@dataclass(frozen=True)
class Manifest:
    """`manifest.json`: what is known of a run before its first round."""

    schema: int
    config: dict[str, object]
    versions: dict[str, str]
    device: str
    threads: int
    parameters: int
    data_fingerprint: str
    privacy: tuple[PrivacyClaim, ...]
    command: tuple[str, ...] | None
    started: str

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema {self.schema}, allowed: {SCHEMA} (written by another version?)")


@dataclass(frozen=True)
class RunFolder:
    """One run's folder. Rounds are appended as they end; the summary appears when the run is complete."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """The checkpoint folder."""
        return self.path / "checkpoint"

    @property
    def view(self) -> Path:
        """The recorded server view."""
        return self.path / "view"

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return (self.path / "summary.json").exists()

    def check_free(self, *, force: bool) -> None:
        """Refuse a path at which no run can start; changes nothing.

        Raises:
            InputError: it holds a run and `force` is off, or it holds something else, which is never replaced.
        """
        if self.path.exists():
            require(self.path.is_dir(), f"out: {self.path} is a file, allowed: a new or empty folder, or a run's")
            names = {path.name for path in self.path.iterdir()}
            run = (self.path / "manifest.json").is_file()
            require(
                run or names <= {"manifest.json.part", _LOCK},
                f"out: {self.path} exists and is not a run folder, allowed: a new or empty folder, or a run's folder",
            )
            require(force or not run, f"out: {self.path} holds a run already; --force replaces it")
            if run:
                self.manifest()
                foreign = sorted(names - _OWN - {f"{name}.part" for name in _OWN})
                require(
                    not foreign, f"out: {self.path} also holds {foreign[:3]}, which no run wrote; --force keeps away"
                )

    def create(self, *, force: bool) -> None:
        """Make the folder; with `force`, in place of a run that is there.

        Raises:
            InputError: it exists and is not replaced, or it cannot be made.
        """
        self.check_free(force=force)
        try:
            if self.path.exists():
                with self.in_use():
                    shutil.rmtree(self.path)
            self.path.mkdir(parents=True)
        except OSError as error:
            raise InputError(f"out: {self.path} cannot be made: {error.strerror}") from None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Hold the folder for one process; the lock goes with the process, however it ends.

        Raises:
            InputError: another process holds it.
        """
        with (self.path / _LOCK).open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"run folder: {self.path} is in use by another process") from None
            yield

    def write_manifest(
        self, config: Config, *, privacy: Iterable[PrivacyClaim], threads: int, parameters: int, fingerprint: str
    ) -> None:
        """What is known before the first round."""
        by_command = Path(sys.argv[0]).name == "fedgr-secure"
        manifest = Manifest(
            schema=SCHEMA,
            config=to_table(config),
            versions=versions(),
            device=config.output.device,
            threads=threads,
            parameters=parameters,
            data_fingerprint=fingerprint,
            privacy=tuple(privacy),
            command=tuple(sys.argv[1:]) if by_command else None,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        write_atomic(self.path / "manifest.json", json.dumps(asdict(manifest), indent=1))

    def manifest(self) -> Manifest:
        """The manifest.

        Raises:
            InputError: this is no run folder, or its manifest is damaged or of another schema.
        """
        path = self.path / "manifest.json"
        require(path.is_file(), f"run folder: {self.path} holds no manifest.json, so no run was started in it")
        manifest: Manifest = read_json(path, Manifest)
        return manifest

    def config(self) -> Config:
        """The configuration that the run was started with."""
        return from_table(self.manifest().config, where=f"{self.path / 'manifest.json'}: config")

    def append(self, record: RoundRecord, timing: RoundTiming) -> None:
        """One more round."""
        for name, line in (("rounds.jsonl", to_json(record)), ("timings.jsonl", to_json(timing))):
            with (self.path / name).open("a") as stream:
                stream.write(line + "\n")

    def keep_rounds(self, count: int) -> list[RoundRecord]:
        """Cut the records back to the first `count` rounds (a resume continues from there); those rounds.

        Raises:
            InputError: fewer rounds are recorded, or a record is damaged.
        """
        for name in ("rounds.jsonl", "timings.jsonl"):
            path = self.path / name
            lines = path.read_text().splitlines() if path.exists() else []
            require(len(lines) >= count, f"{path}: {len(lines)} rounds, allowed: the checkpoint's {count} at least")
            write_atomic(path, "".join(line + "\n" for line in lines[:count]))
        return self.rounds()

    def rounds(self, *, torn: bool = False) -> list[RoundRecord]:
        """The recorded rounds; with `torn`, a damaged last line is left out."""
        path = self.path / "rounds.jsonl"
        return list(read_json_lines(path, RoundRecord, torn=torn)) if path.exists() or self.finished else []

    def timings(self, *, torn: bool = False) -> list[RoundTiming]:
        """The recorded seconds."""
        path = self.path / "timings.jsonl"
        return list(read_json_lines(path, RoundTiming, torn=torn)) if path.exists() or self.finished else []

    def summary(self) -> Summary | None:
        """The figures of a complete run."""
        summary: Summary | None = read_json(self.path / "summary.json", Summary) if self.finished else None
        return summary

    def clients(self) -> tuple[ClientRecord, ...]:
        """What is known of each client; empty while the run is not complete."""
        path = self.path / "clients.json"
        return read_json(path, tuple[ClientRecord, ...]) if path.exists() else ()

    def losses(self) -> LossHistogram | None:
        """The loss histogram of a complete run, where the method keeps losses."""
        path = self.path / "losses.json"
        return read_json(path, LossHistogram) if path.exists() else None

    def finish(
        self,
        summary: Summary,
        clients: Iterable[ClientRecord],
        losses: LossHistogram | None,
        weights: Weights,
    ) -> None:
        """What is known after the last round; the summary comes last, since it marks the run as complete."""
        from safetensors.numpy import save

        write_atomic(self.path / "clients.json", json.dumps([asdict(client) for client in clients]))
        if losses is not None:
            write_atomic(self.path / "losses.json", to_json(losses))
        write_atomic(self.path / "weights.safetensors", save(dict(weights)))
        write_atomic(self.path / "summary.json", json.dumps(asdict(summary), indent=1, allow_nan=False))


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
