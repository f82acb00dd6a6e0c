"""The run folder: what a run leaves behind for people, plots, scripts and a resume."""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from fedgr_secure.config import Config, from_table, to_table
from fedgr_secure.errors import InputError, require
from fedgr_secure.federation.files import write_atomic
from fedgr_secure.records import ClientRecord, RoundRecord, RoundTiming, Summary, round_from_json, to_json
from fedgr_secure.wire import Weights
from privacy.claims import PrivacyClaim

SCHEMA = 1
_PACKAGES = ("fedgr-secure", "torch", "torchvision", "numpy", "scipy", "scikit-learn", "safetensors")


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

    def create(self, *, force: bool) -> None:
        """Make the folder; with `force`, in place of a run that is there.

        Raises:
            InputError: it exists and is not replaced, or it is not a run folder.
        """
        if self.path.exists():
            run = (self.path / "manifest.json").exists()
            require(run or not any(self.path.iterdir()), f"out: {self.path} exists and is not a run folder")
            require(force or not run, f"out: {self.path} holds a run already; --force replaces it")
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True)

    def write_manifest(
        self, config: Config, *, privacy: Iterable[PrivacyClaim], threads: int, parameters: int, fingerprint: str
    ) -> None:
        """What is known before the first round."""
        table = {
            "schema": SCHEMA,
            "config": to_table(config),
            "versions": versions(),
            "device": config.output.device,
            "threads": threads,
            "parameters": parameters,
            "data_fingerprint": fingerprint,
            "privacy": [asdict(claim) for claim in privacy],
            "command": sys.argv[1:] if Path(sys.argv[0]).name == "fedgr-secure" else None,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_atomic(self.path / "manifest.json", json.dumps(table, indent=1))

    def manifest(self) -> dict[str, Any]:
        """The manifest.

        Raises:
            InputError: this is no run folder, or its manifest is damaged or of another schema.
        """
        path = self.path / "manifest.json"
        try:
            table = json.loads(path.read_text())
        except FileNotFoundError:
            raise InputError(f"run folder: {self.path} holds no manifest.json") from None
        except (OSError, ValueError) as error:
            raise InputError(f"manifest: {path} cannot be read: {error}") from None
        require(
            isinstance(table, dict) and table.get("schema") == SCHEMA,
            f"manifest: {path} has another schema, allowed: {SCHEMA}",
        )
        return table

    def config(self) -> Config:
        """The configuration that the run was started with."""
        table = self.manifest().get("config")
        require(isinstance(table, dict), f"manifest: {self.path / 'manifest.json'} holds no config")
        config: Config = from_table(Config, table, where=str(self.path / "manifest.json"))  # type: ignore[arg-type]
        return config

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

    def rounds(self) -> list[RoundRecord]:
        """The recorded rounds."""
        path = self.path / "rounds.jsonl"
        try:
            return [round_from_json(line) for line in path.read_text().splitlines()]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from None

    def timings(self) -> list[RoundTiming]:
        """The recorded seconds."""
        return [RoundTiming(**json.loads(line)) for line in (self.path / "timings.jsonl").read_text().splitlines()]

    def finish(
        self,
        summary: Summary,
        clients: Iterable[ClientRecord],
        losses: dict[str, Any] | None,
        weights: Weights,
    ) -> None:
        """What is known after the last round; the summary comes last, since it marks the run as complete."""
        from safetensors.numpy import save

        write_atomic(self.path / "clients.json", json.dumps([asdict(client) for client in clients]))
        if losses is not None:
            write_atomic(self.path / "losses.json", json.dumps(losses))
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
