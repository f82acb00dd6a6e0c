"""The run folder: what a run leaves behind for people, plots, scripts and a resume."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from fedgr_secure.config import from_table, to_table
from fedgr_secure.errors import InputError, require
from fedgr_secure.federation.replaced import REPLACED, forget, put_back, recover, set_aside
from fedgr_secure.files import disk, open_regular, read_bytes, write_atomic, write_plain
from fedgr_secure.records import ClientRecord, LossHistogram, RoundRecord, RoundTiming, Summary, to_json
from fedgr_secure.sections import Config, OutputConfig
from fedgr_secure.typed import decode, first_lines, read_json, read_json_lines
from fedgr_secure.wire import Weights
from privacy.claims import PrivacyClaim

_PACKAGES = (
    *("fedgr-secure", "torch", "torchvision", "numpy", "scipy", "scikit-learn", "safetensors"),
    *("cryptography", "opendp", "opacus", "randomgen"),  # masks, noise, DP-SGD
)


SCHEMA = 1
MOST_THREADS = 1024
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
    "attacks.json",
    "attacks.npz",
    "view",
    "checkpoint",
    REPLACED,
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
        if not 1 <= self.threads <= MOST_THREADS:
            raise ValueError(f"threads: {self.threads}, allowed: a whole number from 1 to {MOST_THREADS}")

    def identity(self) -> str:
        """SHA-256 of everything here that decides results: a checkpoint belongs to it.

        It leaves out where run and data are (the data have a fingerprint of their own), and who started it when.
        """
        config = from_table(self.config, where="manifest")
        place = {"device": config.output.device, "threads": config.output.threads}
        config = essence(dataclasses.replace(config, data=dataclasses.replace(config.data, path=None, download=False)))
        table = asdict(self) | {"config": to_table(config), "place": place, "command": None, "started": None}
        return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def essence(config: Config) -> Config:
    """The part of a configuration that decides the results."""
    return dataclasses.replace(config, output=OutputConfig(memorised_every=config.output.memorised_every))


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

    @property
    def holds_run(self) -> bool:
        """Whether a run was started here."""
        with disk(f"run folder: {self.path}", "used"):
            return (self.path / "manifest.json").is_file()

    def check_free(self, *, force: bool) -> None:
        """Refuse a path at which no run can start; changes nothing.

        Raises:
            InputError: it holds a run and `force` is off, or it holds something else, which is never replaced.
        """
        with disk(f"out: {self.path}", "used"):
            dangling = self.path.is_symlink() and not self.path.exists()
            require(not dangling, f"out: {self.path} is a link to nowhere, allowed: a new or empty folder, or a run's")
            if self.path.exists():
                require(self.path.is_dir(), f"out: {self.path} is a file, allowed: a new or empty folder, or a run's")
                self._check_content({path.name for path in self.path.iterdir()}, force=force)

    def _check_content(self, names: set[str], *, force: bool) -> None:
        run = self.holds_run or not names.isdisjoint({REPLACED, f"{REPLACED}.part"})
        require(
            run or names <= {"manifest.json.part", _LOCK},
            f"out: {self.path} exists and is not a run folder, allowed: a new or empty folder, or a run's folder",
        )
        require(force or not run, f"out: {self.path} holds a run already; --force replaces it")
        if self.holds_run:
            self.manifest()
        if run:
            foreign = sorted(names - self._own())
            require(not foreign, f"out: {self.path} also holds {foreign[:3]}, which no run wrote; --force keeps away")

    @staticmethod
    def _own() -> set[str]:
        """The names that a run writes."""
        return _OWN | {f"{name}.part" for name in _OWN}

    @contextmanager
    def fresh(self, *, force: bool) -> Iterator[None]:
        """Make the folder and hold it for a new run; with `force`, in place of a run that is there.

        A run that fails before its first round is done leaves nothing behind. Until then the run that it replaces waits
        in `replaced/`, and comes back if the new one fails; after a kill it is still there, and a further `--force`
        keeps it until a new run has done its first round.

        Raises:
            InputError: it exists and is not replaced, it cannot be made, or another process holds it.
        """
        self.check_free(force=force)
        with disk(f"out: {self.path}", "made"):
            made = [path for path in (self.path, *self.path.parents) if not path.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
        with self.in_use():
            recover(self.path)
            self.check_free(force=force)
            names = self._own() - {_LOCK}
            set_aside(self.path, names, begun=self.done > 0)
            try:
                yield
            except Exception:
                if not self.done:
                    put_back(self.path, names)
                    self._unmake(made)
                raise

    def _unmake(self, made: list[Path]) -> None:
        """Remove the folders that were made, unless they hold something."""
        if made:
            (self.path / _LOCK).unlink(missing_ok=True)
        for path in made:
            with suppress(OSError):
                path.rmdir()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Hold the folder for one process; the lock goes with the process, however it ends.

        Raises:
            InputError: another process holds it.
        """
        with disk(self.path / _LOCK, "written"):
            stream = open_regular(self.path / _LOCK, "ab")
        with stream:
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
        require(self.holds_run, f"run folder: {self.path} holds no manifest.json, so no run was started in it")
        manifest: Manifest = read_json(self.path / "manifest.json", Manifest)
        return manifest

    def config(self) -> Config:
        """The configuration that the run was started with."""
        return from_table(self.manifest().config, where=f"{self.path / 'manifest.json'}: config")

    def append(self, record: RoundRecord, timing: RoundTiming) -> None:
        """One more round. With the first, a run that this one replaces is gone for good."""
        for name, line in (("rounds.jsonl", to_json(record)), ("timings.jsonl", to_json(timing))):
            write_plain(self.path / name, f"{line}\n".encode(), append=True)
        if record.round == 0:
            forget(self.path)

    @property
    def done(self) -> int:
        """How many rounds are recorded."""
        return self._bytes("rounds.jsonl").count(b"\n")

    def digest(self, count: int) -> str:
        """SHA-256 of the first `count` records, as they are in the file.

        Raises:
            InputError: fewer rounds are recorded.
        """
        lines = first_lines(self._bytes("rounds.jsonl"), count, self.path / "rounds.jsonl")
        return hashlib.sha256(b"\n".join(lines)).hexdigest()

    def recorded(self, count: int) -> list[RoundRecord]:
        """The first `count` rounds, whatever follows them.

        Raises:
            InputError: fewer rounds (or their seconds) are recorded, or one of them is damaged.
        """
        if count == 0:
            return []
        records = list(read_json_lines(self.path / "rounds.jsonl", RoundRecord, first=count))
        timings = list(read_json_lines(self.path / "timings.jsonl", RoundTiming, first=count))
        for name, found in (("rounds.jsonl", records), ("timings.jsonl", timings)):
            for number, one in enumerate(found):
                require(one.round == number, f"{self.path / name}, line {number + 1}: round {one.round}, not {number}")
        return records

    def beyond(self, count: int) -> Iterator[RoundRecord]:
        """The rounds that are recorded after the first `count`, up to a damaged line."""
        for line in self._bytes("rounds.jsonl").split(b"\n")[count:]:
            try:
                yield decode(RoundRecord, json.loads(line), "rounds.jsonl")
            except (ValueError, RecursionError):
                return

    def cut(self, count: int) -> None:
        """Cut the records back to the first `count` rounds; a resume continues from there."""
        for name in ("rounds.jsonl", "timings.jsonl"):
            lines = first_lines(self._bytes(name), count, self.path / name)
            write_atomic(self.path / name, b"".join(line + b"\n" for line in lines))

    def _bytes(self, name: str) -> bytes:
        """A file's content; nothing while it is not there."""
        path = self.path / name
        return read_bytes(path) if path.exists() else b""

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

    def weights(self) -> Weights:
        """The final global model of a complete run.

        Raises:
            InputError: the file is missing or damaged.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load

        path = self.path / "weights.safetensors"
        try:
            return load(read_bytes(path))
        except SafetensorError as error:
            raise InputError(f"{path}: {error}") from None

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
